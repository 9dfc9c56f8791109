//! Delayed and expired messages of a queue against a map of states: slow, and right by reading.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use penstock_queue::{Queue, Sequence, SequenceRange, Settle, Standing, SubscriptionId, SubscriptionSettings, Taken};
use proptest::prelude::*;

const SIZE: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Delayed,
    Held,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Publish,
    PublishDelayed,
    /// At most so many.
    Take(u32),
    Ack(usize),
    Requeue(usize),
    /// The consumer says the size.
    Size(usize),
    PutAside(usize),
    Release(usize),
    Expire(usize, usize),
    Purge(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = 0..64_usize;
    let step = prop_oneof![
        4 => Just(Step::Publish),
        4 => Just(Step::PublishDelayed),
        4 => (1..5_u32).prop_map(Step::Take),
        2 => at.clone().prop_map(Step::Ack),
        2 => at.clone().prop_map(Step::Requeue),
        3 => at.clone().prop_map(Step::Size),
        3 => at.clone().prop_map(Step::PutAside),
        4 => at.clone().prop_map(Step::Release),
        2 => (at, 1..4_usize).prop_map(|(at, count)| Step::Expire(at, count)),
        1 => prop_oneof![1_usize..4, Just(usize::MAX >> 1)].prop_map(Step::Purge),
    ];
    prop::collection::vec(step, 0..120)
}

struct World {
    queue: Queue,
    id: SubscriptionId,
    /// The messages that are not settled.
    messages: BTreeMap<u64, State>,
    next: u64,
    /// The messages whose size the queue knows.
    sized: BTreeSet<u64>,
    /// Only a size that the queue knows counts below: a purge removed the others.
    counted_from: u64,
    /// A purge of a part estimates the bytes; they are right again after one of everything, and without messages.
    has_estimate: bool,
}

fn range(number: u64) -> SequenceRange {
    SequenceRange { first: Sequence(number), last: Sequence(number) }
}

impl World {
    fn new() -> World {
        let mut queue = Queue::new();
        let settings = SubscriptionSettings { prefetch: 1000, auto_ack: false, exclusive: false };
        let id = queue.subscribe(settings).unwrap();
        let (messages, sized) = (BTreeMap::new(), BTreeSet::new());
        World { queue, id, messages, next: 1, sized, counted_from: 1, has_estimate: false }
    }

    fn all(&self, state: State) -> Vec<u64> {
        self.messages.iter().filter(|(_, found)| **found == state).map(|(&number, _)| number).collect()
    }

    fn one(&self, state: State, at: usize) -> Option<u64> {
        let all = self.all(state);
        (!all.is_empty()).then(|| all[at % all.len()])
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Publish => {
                assert_eq!(self.queue.publish(SIZE), Sequence(self.next));
                self.stored(State::Ready);
            }
            Step::PublishDelayed => {
                assert_eq!(self.queue.publish_delayed(SIZE), Sequence(self.next));
                self.stored(State::Delayed);
            }
            Step::Take(count_max) => self.take(count_max),
            Step::Ack(at) => self.with_held(at, |world, number| {
                world.size(number);
                assert_eq!(world.queue.settle(world.id, &[range(number)], Settle::Ack).count, 1);
                world.messages.remove(&number);
            }),
            Step::Size(at) => self.with_held(at, World::size),
            Step::Requeue(at) => self.with_held(at, |world, number| {
                world.size(number);
                world.queue.sent(world.id, &[range(number)]);
                world.queue.settle(world.id, &[range(number)], Settle::Requeue);
                world.messages.insert(number, State::Ready);
            }),
            Step::PutAside(at) => self.with_held(at, |world, number| {
                world.queue.put_aside(world.id, &[range(number)]);
                world.messages.insert(number, State::Delayed);
            }),
            Step::Release(at) => {
                // One that does not wait is not released.
                let wanted: Vec<u64> = [State::Delayed, State::Ready, State::Held]
                    .iter()
                    .filter_map(|state| self.one(*state, at))
                    .collect();
                let is_delayed = wanted.first().is_some_and(|number| self.messages[number] == State::Delayed);
                let sequences: Vec<_> = wanted.iter().map(|&number| Sequence(number)).collect();
                assert_eq!(self.queue.release(&sequences), u64::from(is_delayed));
                if is_delayed {
                    self.messages.insert(wanted[0], State::Ready);
                }
            }
            Step::Expire(at, count) => self.expire(at, count),
            Step::Purge(runs_max) => self.purge(runs_max),
        }
    }

    fn purge(&mut self, runs_max: usize) {
        let (ready, delayed) = (self.all(State::Ready), self.all(State::Delayed));
        // All messages have one size, so an estimate is right when exactly those that are here count.
        let is_even = self.messages.iter().all(|(number, state)| self.counts(*number) == (*state != State::Held));
        let purged = self.queue.purge(runs_max);
        let found: Vec<u64> = purged.ranges.iter().flat_map(|range| range.first.0..=range.last.0).collect();
        // Skipped sequences do not exist here, so the runs name the lowest ready messages alone.
        assert!(ready.starts_with(&found), "{found:?} of {ready:?}");
        assert!(found.len() == ready.len() || purged.ranges.len() == runs_max, "{found:?} of {ready:?}");
        assert_eq!(purged.count, found.len() as u64);
        self.messages.retain(|number, _| !found.contains(number));
        if found.len() == ready.len() && delayed.is_empty() {
            (self.counted_from, self.has_estimate) = (self.next, false);
        } else {
            self.has_estimate |= !is_even;
        }
    }

    fn size(&mut self, number: u64) {
        self.queue.sized(self.id, &[(Sequence(number), SIZE as u32)]);
        self.sized.insert(number);
    }

    /// The bytes of ready and delayed messages, and of those that the consumer has and whose size the queue does not know.
    fn ready_bytes(&self) -> u64 {
        SIZE * self.messages.keys().filter(|number| self.counts(**number)).count() as u64
    }

    fn counts(&self, number: u64) -> bool {
        let (is_sized, is_counted) = (self.sized.contains(&number), number >= self.counted_from);
        if self.messages[&number] == State::Held { !is_sized && is_counted } else { is_sized || is_counted }
    }

    fn check_bytes(&mut self) {
        let held = self.all(State::Held);
        let sized = held.iter().filter(|number| self.sized.contains(number)).count();
        assert_eq!(self.queue.unacked_bytes(), SIZE * sized as u64);
        self.has_estimate &= self.messages.len() > sized;
        if !self.has_estimate {
            assert_eq!(self.queue.ready_bytes(), self.ready_bytes());
        }
    }

    fn stored(&mut self, state: State) {
        self.messages.insert(self.next, state);
        self.next += 1;
    }

    /// The lowest ready messages come first, also those that were delayed.
    fn take(&mut self, count_max: u32) {
        let mut taken: Vec<Taken> = Vec::new();
        self.queue.take(self.id, count_max, &mut taken);
        let numbers: Vec<u64> = taken.iter().map(|taken| taken.sequence.0).collect();
        let mut ready = self.all(State::Ready);
        ready.truncate(count_max as usize);
        assert_eq!(numbers, ready);
        self.messages.extend(numbers.iter().map(|&number| (number, State::Held)));
    }

    fn with_held(&mut self, at: usize, act: impl FnOnce(&mut World, u64)) {
        if let Some(number) = self.one(State::Held, at) {
            act(self, number);
        }
    }

    /// Some neighbours, in whatever state they are.
    fn expire(&mut self, at: usize, count: usize) {
        let numbers: Vec<u64> =
            self.messages.keys().skip(at % self.messages.len().max(1)).take(count).copied().collect();
        let sizes: Vec<_> = numbers.iter().map(|&number| (Sequence(number), SIZE as u32)).collect();
        let (settled, held) = self.queue.expire(&sizes);
        let is_held = |number: &&u64| self.messages[*number] == State::Held;
        let (expected, gone): (Vec<u64>, Vec<u64>) = numbers.iter().partition(is_held);
        assert_eq!(held.iter().map(|sequence| sequence.0).collect::<Vec<_>>(), expected);
        assert_eq!((settled.count, settled.bytes), (gone.len() as u64, SIZE * gone.len() as u64));
        self.messages.retain(|number, _| !gone.contains(number));
        let (again, _) = self.queue.expire(&sizes);
        assert_eq!(again.count, 0);
    }

    fn check(&self) {
        self.queue.check_invariants();
        let (ready, delayed) = (self.all(State::Ready), self.all(State::Delayed));
        assert_eq!((self.queue.ready_count(), self.queue.delayed_count()), (ready.len() as u64, delayed.len() as u64));
        assert_eq!(self.queue.unacked_count(), self.all(State::Held).len() as u64);
        for number in 1..self.next {
            let expected = match self.messages.get(&number) {
                None => Standing::Settled,
                Some(State::Ready) => Standing::Ready,
                Some(State::Delayed) => Standing::Delayed,
                Some(State::Held) => Standing::Held,
            };
            assert_eq!(self.queue.standing(Sequence(number)), expected, "message {number}");
        }
        let found: Vec<u64> =
            self.queue.ready_from(Sequence(3), 7).iter().flat_map(|range| range.first.0..=range.last.0).collect();
        assert_eq!(found, ready.into_iter().filter(|&number| number >= 3).take(7).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn delayed_and_expired_messages_are_where_the_model_has_them(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
            world.check_bytes();
        }
        // In the end everything is delivered or settled, and no bytes are left.
        let delayed: Vec<_> = world.all(State::Delayed).into_iter().map(Sequence).collect();
        world.queue.release(&delayed);
        world.messages.extend(delayed.iter().map(|sequence| (sequence.0, State::Ready)));
        world.take(1000);
        let held = world.all(State::Held);
        for number in held {
            world.size(number);
            world.queue.settle(world.id, &[range(number)], Settle::Ack);
        }
        prop_assert_eq!((world.queue.ready_count(), world.queue.ready_bytes(), world.queue.unacked_bytes()), (0, 0, 0));
        prop_assert_eq!(world.queue.settled().below(), Sequence(world.next));
    }
}

#[test]
fn a_purge_in_two_runs_leaves_no_returned_message_behind() {
    let mut world = World::new();
    (0..5).for_each(|_| world.step(Step::Publish));
    world.step(Step::Take(5));
    // The messages 1, 2, 3 and 5 come back: two runs, though more messages than that.
    [0, 0, 0, 1].into_iter().for_each(|at| world.step(Step::Requeue(at)));

    world.step(Step::Purge(2));

    assert!(world.all(State::Ready).is_empty());
    world.check();
}

/// Its bytes stayed for good.
#[test]
fn a_message_that_a_consumer_had_during_a_purge_expires_with_its_bytes_once_it_waits() {
    let mut world = World::new();
    world.step(Step::Publish);
    world.step(Step::Take(1));
    world.step(Step::Size(0));
    world.step(Step::Purge(1));
    world.step(Step::Publish);
    world.step(Step::PutAside(0));

    world.step(Step::Expire(0, 1));

    world.check();
    world.check_bytes();
    assert_eq!(world.queue.ready_bytes(), SIZE);
}

#[test]
fn messages_that_become_ready_out_of_their_turn_come_first_and_in_order() {
    let mut queue = Queue::new();
    let settings = SubscriptionSettings { prefetch: 10, auto_ack: false, exclusive: false };
    let id = queue.subscribe(settings).unwrap();
    let delayed: Vec<_> = (0..100_000).map(|_| queue.publish_delayed(SIZE)).collect();
    queue.publish(SIZE);
    let mut taken = Vec::new();
    queue.take(id, 1, &mut taken);
    assert_eq!(taken[0].sequence, Sequence(100_001));

    assert_eq!(queue.release(&delayed), 100_000);

    assert_eq!(queue.ready_count(), 100_000);
    queue.take(id, 1, &mut taken);
    assert_eq!(taken[1].sequence, Sequence(1));
}
