//! The ack set against a set of single sequences.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;

use penstock_queue::{AckSet, Sequence, SequenceRange};
use proptest::prelude::*;

const NUMBERS: u64 = 64;

fn next(settled: &HashSet<u64>, from: u64, is_settled: bool) -> u64 {
    (from..).find(|number| settled.contains(number) == is_settled).unwrap()
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
                set.insert(SequenceRange { first: Sequence(first), last: Sequence(first + length) });
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
                set.insert(SequenceRange { first: Sequence(first), last: Sequence(first + length) });
            }
            set
        };
        prop_assert_eq!(settle(&ranges), settle(&shuffled));
    }

    #[test]
    fn any_range_is_taken_without_a_panic(ranges: Vec<(u64, u64)>, probe: u64) {
        let mut set = AckSet::default();
        for (first, last) in ranges {
            let range = SequenceRange { first: Sequence(first), last: Sequence(last) };
            set.insert(range);
            let (_contains, _next) = (set.contains(Sequence(probe)), set.next_unsettled(Sequence(probe)));
            let _count = range.count();
        }
    }
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
