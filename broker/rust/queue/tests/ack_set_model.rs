//! The ack set against a set of single sequences, and over many blocks against a list of ranges.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;

use penstock_queue::{AckSet, Sequence, SequenceRange};
use proptest::prelude::*;

const NUMBERS: u64 = 64;
const BLOCK: u64 = 1 << 16;

fn next(settled: &HashSet<u64>, from: u64, is_settled: bool) -> u64 {
    (from..).find(|number| settled.contains(number) == is_settled).unwrap()
}

fn range(first: u64, last: u64) -> SequenceRange {
    SequenceRange { first: Sequence(first), last: Sequence(last) }
}

/// Settled ranges that ascend and do not touch, the first of them from 0 on.
#[derive(Clone, Debug)]
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    fn insert(&mut self, mut first: u64, mut last: u64) {
        self.0.retain(|&(other_first, other_last)| {
            let is_apart = other_last + 1 < first || last + 1 < other_first;
            if !is_apart {
                (first, last) = (first.min(other_first), last.max(other_last));
            }
            is_apart
        });
        self.0.push((first, last));
        self.0.sort_unstable();
    }

    fn remove(&mut self, number: u64) {
        let split = |&(first, last): &(u64, u64)| {
            if number < first || number > last {
                return vec![(first, last)];
            }
            let below = (first < number).then(|| (first, number - 1));
            below.into_iter().chain((number < last).then(|| (number + 1, last))).collect()
        };
        self.0 = self.0.iter().flat_map(split).collect();
    }

    fn around(&self, number: u64) -> Option<(u64, u64)> {
        let at = self.0.partition_point(|&(_, last)| last < number);
        self.0.get(at).copied().filter(|&(first, _)| first <= number)
    }

    /// The expected lowest unsettled sequence, and the expected ranges.
    fn below_and_ranges(&self) -> (u64, Vec<(u64, u64)>) {
        match self.0.as_slice() {
            [(0, last), above @ ..] => (last + 1, above.to_vec()),
            all => (0, all.to_vec()),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Settle(u64, u64),
    /// Every so manieth of a range.
    Scatter {
        first: u64,
        count: u64,
        every: u64,
    },
    Remove(u64),
}

/// Near the edge of a block, anywhere in the first ones, or far away.
fn number() -> impl Strategy<Value = u64> {
    let edge = (0..6_u64, 0..5_u64).prop_map(|(block, more)| (block * BLOCK + more).saturating_sub(2));
    prop_oneof![4 => edge, 2 => 0..5 * BLOCK, 1 => (1..4_u64).prop_map(|far| far << 32)]
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![0..4_u64, Just(BLOCK - 1), Just(BLOCK), 0..3 * BLOCK, Just((1 << 32) - 1)];
    let scatter = (number(), 1..9_000_u64, 2..4_u64);
    prop_oneof![
        4 => (number(), length).prop_map(|(first, length)| Step::Settle(first, first + length)),
        2 => scatter.prop_map(|(first, count, every)| Step::Scatter { first, count, every }),
        2 => number().prop_map(Step::Remove),
    ]
}

fn apply(step: &Step, set: &mut AckSet, model: &mut Ranges) {
    match *step {
        Step::Settle(first, last) => {
            set.insert(range(first, last));
            model.insert(first, last);
        }
        Step::Scatter { first, count, every } => {
            // The model takes them all together: one by one they would take it quadratic time.
            let mut scattered = Vec::new();
            for number in (0..count).map(|place| first + place * every) {
                set.insert(range(number, number));
                if model.around(number).is_none() {
                    scattered.push((number, number));
                }
            }
            model.0.extend(scattered);
            model.0.sort_unstable();
            model.0.dedup_by(|next, run| {
                let touches = run.1 + 1 == next.0;
                if touches {
                    run.1 = next.1;
                }
                touches
            });
        }
        Step::Remove(number) => {
            set.remove(Sequence(number));
            model.remove(number);
        }
    }
}

proptest! {
    #[test]
    fn an_ack_set_holds_what_a_set_of_numbers_holds(
        below in 0u64..8, steps in prop::collection::vec((0..NUMBERS, 0u64..12, prop::bool::weighted(0.2)), 0..40),
    ) {
        let mut set = AckSet::starting_at(Sequence(below));
        let mut model: HashSet<u64> = (0..below).collect();
        for (first, length, is_removed) in steps {
            if is_removed {
                set.remove(Sequence(first));
                model.remove(&first);
            } else {
                set.insert(range(first, first + length));
                model.extend(first..=first + length);
            }

            let lowest = next(&model, 0, false);
            prop_assert_eq!(set.below().0, lowest);
            let mut last_end = lowest;
            for range in set.ranges() {
                prop_assert!(range.first.0 > last_end, "ranges ascend, are apart, and lie above the lowest");
                prop_assert!((range.first.0..=range.last.0).all(|number| model.contains(&number)));
                last_end = range.last.0 + 1;
            }
            for number in 0..NUMBERS + 16 {
                prop_assert_eq!(set.contains(Sequence(number)), model.contains(&number));
                prop_assert_eq!(set.next_unsettled(Sequence(number)).0, next(&model, number.max(lowest), false));
                let settled = (number..NUMBERS + 16).find(|number| model.contains(number)).map(Sequence);
                prop_assert_eq!(set.next_settled(Sequence(number)), settled);
                let unsettled = (0..number).rev().find(|number| !model.contains(number)).map(Sequence);
                prop_assert_eq!(set.last_unsettled(Sequence(number)), unsettled);
            }
        }
    }

    #[test]
    fn the_order_of_settling_does_not_matter(
        (ranges, shuffled) in prop::collection::vec((1u64..200, 0u64..9), 0..30)
            .prop_flat_map(|ranges| (Just(ranges.clone()), Just(ranges).prop_shuffle())),
    ) {
        let settle = |ranges: &[(u64, u64)]| {
            let mut set = AckSet::default();
            for &(first, length) in ranges {
                set.insert(range(first, first + length));
            }
            set
        };
        prop_assert_eq!(settle(&ranges), settle(&shuffled));
    }

    #[test]
    fn any_range_is_taken_without_a_panic(ranges: Vec<(u64, u64)>, removed: Vec<u64>, probe: u64) {
        let mut set = AckSet::default();
        let probe = Sequence(probe);
        for (first, last) in ranges {
            let range = range(first, last);
            set.insert(range);
            let _answers = (set.contains(probe), set.next_unsettled(probe), set.next_settled(probe));
            let _answers = (set.last_unsettled(probe), range.count(), set.ranges().count());
        }
        for number in removed {
            set.remove(Sequence(number));
            prop_assert!(!set.contains(Sequence(number)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn an_ack_set_of_many_blocks_holds_what_a_list_of_ranges_holds(
        below in number(), steps in prop::collection::vec(step(), 1..12),
    ) {
        let mut set = AckSet::starting_at(Sequence(below));
        let mut model = Ranges(Vec::new());
        if below > 0 {
            model.insert(0, below - 1);
        }
        for step in steps {
            apply(&step, &mut set, &mut model);

            let found: Vec<_> = set.ranges().map(|range| (range.first.0, range.last.0)).collect();
            let (lowest, ranges) = model.below_and_ranges();
            prop_assert_eq!(set.below().0, lowest);
            prop_assert!(found == ranges, "other ranges after {:?}", step);
            let edges = ranges.iter().take(50).chain(ranges.iter().rev().take(50));
            for probe in edges.flat_map(|&(first, last)| [first - 1, first, last, last + 1]) {
                let around = model.around(probe);
                prop_assert_eq!(set.contains(Sequence(probe)), around.is_some());
                prop_assert_eq!(set.next_unsettled(Sequence(probe)).0, around.map_or(probe, |(_, last)| last + 1));
                let above = ranges.iter().find(|&&(_, last)| last >= probe).map(|&(first, _)| first.max(probe));
                prop_assert_eq!(set.next_settled(Sequence(probe)).map(|settled| settled.0), above);
                let unsettled = around.map_or(Some(probe), |(first, _)| first.checked_sub(1));
                prop_assert_eq!(set.last_unsettled(Sequence(probe + 1)).map(|last| last.0), unsettled);
            }
            let same = ranges.iter().rev().fold(AckSet::starting_at(Sequence(lowest)), |mut same, &(first, last)| {
                same.insert(range(first, last));
                same
            });
            prop_assert!(set == same, "sets with the same content are equal in whatever form");
        }
    }
}

/// A million messages in an order that has nothing to do with their places.
fn scattered() -> impl Iterator<Item = u64> {
    (0..1 << 20).map(|number: u64| 1 + number * 0x9_e375 % (1 << 20))
}

#[test]
fn half_a_million_scattered_acks_among_a_million_messages_take_less_than_a_megabyte() {
    let mut set = AckSet::default();

    let mut largest = 0;
    for number in scattered().take(500_000) {
        set.insert(range(number, number));
        largest = largest.max(set.heap_bytes());
    }

    assert!(set.ranges().count() > 100_000, "the acks are scattered");
    assert!(largest < 200_000, "{largest} bytes");
}

#[test]
fn a_queue_without_unsettled_messages_takes_no_memory() {
    let mut set = AckSet::default();

    scattered().for_each(|number| set.insert(range(number, number)));

    assert_eq!(set.below(), Sequence((1 << 20) + 1));
    assert_eq!(set.heap_bytes(), 0);
}

#[test]
fn few_scattered_acks_and_few_holes_take_few_bytes() {
    let few = |set: &AckSet| assert!(set.heap_bytes() < 1_000, "{} bytes", set.heap_bytes());
    let mut set = AckSet::default();

    (1..=50).for_each(|number| set.insert(range(number * 1_000, number * 1_000)));
    few(&set);
    let mut holes = scattered().filter(|number| number % 20_000 != 7);
    set.insert(range(2, 6));
    holes.by_ref().for_each(|number| set.insert(range(number, number)));

    assert_eq!(set.below(), Sequence(7));
    assert_eq!(set.ranges().count(), 53);
    assert!(set.heap_bytes() < 4_000, "{} bytes", set.heap_bytes());
}

#[test]
fn a_range_of_many_blocks_takes_as_little_as_a_short_one() {
    let mut set = AckSet::default();

    for start in 1..=4 {
        set.insert(range(start << 40, (start << 40) + (1 << 32)));
    }

    assert_eq!(set.ranges().count(), 4);
    assert!(set.heap_bytes() < 2_000, "{} bytes", set.heap_bytes());
}

#[test]
fn a_range_the_wrong_way_round_settles_nothing() {
    let mut set = AckSet::default();
    let range = SequenceRange { first: Sequence(10), last: Sequence(5) };

    set.insert(range);

    assert_eq!(set, AckSet::default());
    assert_eq!(range.count(), 0);
    assert_eq!(SequenceRange::new(Sequence(10), Sequence(5)), None);
}

#[test]
fn everything_there_is_may_be_settled_at_once() {
    let mut set = AckSet::default();

    set.insert(SequenceRange { first: Sequence(0), last: Sequence(u64::MAX) });

    assert_eq!(set.below(), Sequence(u64::MAX));
    assert_eq!(set.ranges().count(), 0);
}
