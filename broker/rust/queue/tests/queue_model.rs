//! The queue machine against a list of messages with their states: slow, obvious, and right by reading.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use penstock_queue::{
    Queue, QueueError, Sequence, SequenceRange, Settle, Settled, Settling, SubscriptionId, SubscriptionSettings, Taken,
};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Ready,
    Held(usize),
    Settled,
}

#[derive(Clone, Debug)]
struct Message {
    sequence: u64,
    size: u32,
    place: Place,
    delivery_count: u32,
    /// It came back after a delivery, counted or not.
    is_redelivered: bool,
    /// It was sent to its holder.
    is_sent: bool,
    /// Its size was reported.
    is_sized: bool,
    /// While its size is outstanding, it is part of the ready bytes.
    is_counted: bool,
    /// Settled with its size outstanding, which this subscription may still report.
    awaited_by: Option<usize>,
    /// Its size will never be reported.
    is_lost: bool,
}

impl Message {
    fn ready_bytes(&self) -> u64 {
        let is_part = match self.place {
            Place::Ready => self.is_sized || self.is_counted,
            Place::Held(_) => !self.is_sized && self.is_counted,
            Place::Settled => self.is_counted && (self.awaited_by.is_some() || self.is_lost),
        };
        if is_part { u64::from(self.size) } else { 0 }
    }

    fn is_unsized(&self) -> bool {
        match self.place {
            Place::Ready => false,
            Place::Held(_) => !self.is_sized,
            Place::Settled => self.awaited_by.is_some(),
        }
    }
}

#[derive(Clone, Debug)]
struct Consumer {
    id: SubscriptionId,
    settings: SubscriptionSettings,
    is_there: bool,
    waits: bool,
}

#[derive(Default)]
struct Model {
    next: u64,
    messages: Vec<Message>,
    consumers: Vec<Consumer>,
    /// Consumers that wait and have credit, the next one first.
    turns: Vec<usize>,
    /// Messages below may have been delivered before the start.
    perhaps_delivered_below: u64,
    /// Messages that a consumer returns do not count as delivered.
    counts_failures: bool,
}

impl Model {
    fn new() -> Self {
        Model { next: 1, ..Model::default() }
    }

    fn count(&self, is_counted: impl Fn(&Message) -> bool) -> u64 {
        self.messages.iter().filter(|message| is_counted(message)).count() as u64
    }

    fn ready_count(&self) -> u64 {
        self.count(|message| message.place == Place::Ready)
    }

    fn ready_bytes(&self) -> u64 {
        self.messages.iter().map(Message::ready_bytes).sum()
    }

    fn held_by(&self, consumer: usize) -> u64 {
        self.count(|message| message.place == Place::Held(consumer))
    }

    fn credit(&self, consumer: usize) -> u64 {
        let Consumer { is_there, settings, .. } = self.consumers[consumer];
        if is_there { u64::from(settings.prefetch).saturating_sub(self.held_by(consumer)) } else { 0 }
    }

    fn update_turns(&mut self) {
        for consumer in 0..self.consumers.len() {
            let has_turns = self.turns.contains(&consumer);
            if self.credit(consumer) == 0 || !self.consumers[consumer].waits {
                self.turns.retain(|&other| other != consumer);
            } else if !has_turns {
                self.turns.push(consumer);
            }
        }
    }

    fn forget_lost(&mut self) {
        if self.ready_count() == 0 && !self.messages.iter().any(Message::is_unsized) {
            self.messages.iter_mut().for_each(|message| message.is_lost = false);
        }
    }

    fn publish(&mut self, size: u32) -> u64 {
        let sequence = self.next;
        self.next += 1;
        self.messages.push(Message {
            sequence,
            size,
            place: Place::Ready,
            delivery_count: 0,
            is_redelivered: false,
            is_sent: false,
            is_sized: false,
            is_counted: true,
            awaited_by: None,
            is_lost: false,
        });
        sequence
    }

    fn take(&mut self, consumer: usize, count_max: u32) -> Vec<Taken> {
        if !self.consumers[consumer].is_there {
            return Vec::new();
        }
        let willing_count = (0..self.consumers.len()).filter(|&other| self.credit(other) > 0).count();
        let share = (self.ready_count() / (willing_count as u64).max(1)).max(1);
        let wanted = self.credit(consumer).min(u64::from(count_max)).min(share);
        let below = self.perhaps_delivered_below;
        let ready = self.messages.iter_mut().filter(|message| message.place == Place::Ready);
        ready
            .take(wanted as usize)
            .map(|message| {
                message.place = Place::Held(consumer);
                Taken {
                    sequence: Sequence(message.sequence),
                    delivery_count: message.delivery_count,
                    redelivered: message.is_redelivered || message.sequence < below,
                }
            })
            .collect()
    }

    fn size(&mut self, consumer: usize, sequence: u64) {
        if !self.consumers[consumer].is_there {
            return;
        }
        let Some(message) = self.messages.iter_mut().find(|message| message.sequence == sequence) else { return };
        match message.place {
            Place::Held(holder) if holder == consumer => message.is_sized = true,
            Place::Settled if message.awaited_by == Some(consumer) => message.awaited_by = None,
            _ => (),
        }
    }

    fn settle(&mut self, consumer: usize, ranges: &[SequenceRange], how: Settle, is_corrupt: bool) -> Sum {
        let mut sum = Sum::default();
        for message in self.messages.iter_mut().filter(|message| message.place == Place::Held(consumer)) {
            let number = Sequence(message.sequence);
            if !ranges.iter().any(|range| range.first <= number && number <= range.last) {
                continue;
            }
            let is_sent = std::mem::take(&mut message.is_sent);
            let size = if message.is_sized { message.size } else { 0 };
            if how.is_requeue() {
                sum.add_returned(message.sequence, size, is_sent);
                message.place = Place::Ready;
                let is_counted = how == Settle::RequeueFailed || !self.counts_failures;
                message.delivery_count += u32::from(is_sent && is_counted);
                message.is_redelivered |= is_sent;
                continue;
            }
            sum.add(message.sequence, size);
            message.place = Place::Settled;
            message.is_lost = !message.is_sized && is_corrupt;
            message.awaited_by = (!message.is_sized && !is_corrupt).then_some(consumer);
        }
        sum
    }

    fn unsubscribe(&mut self, consumer: usize) -> Sum {
        let everything = SequenceRange { first: Sequence(0), last: Sequence(u64::MAX) };
        let sum = self.settle(consumer, &[everything], Settle::RequeueFailed, false);
        self.consumers[consumer].is_there = false;
        for message in self.messages.iter_mut().filter(|message| message.awaited_by == Some(consumer)) {
            message.awaited_by = None;
            message.is_lost = true;
        }
        sum
    }

    fn purge(&mut self) -> Sum {
        let mut sum = Sum { bytes: self.ready_bytes(), ..Sum::default() };
        for message in &mut self.messages {
            message.is_lost = false;
            if message.place == Place::Ready {
                sum.sequences.insert(message.sequence);
                sum.count += 1;
                message.place = Place::Settled;
            } else if message.is_unsized() {
                message.is_counted = false;
            }
        }
        sum
    }
}

/// The messages that a call settled, as a set.
#[derive(Debug, Default, PartialEq)]
struct Sum {
    /// Of requeued ones those that were sent.
    sequences: BTreeSet<u64>,
    bytes: u64,
    count: u64,
}

impl Sum {
    fn add(&mut self, sequence: u64, bytes: u32) {
        self.add_returned(sequence, bytes, true);
    }

    fn join(&mut self, mut other: Sum) {
        self.sequences.append(&mut other.sequences);
        self.bytes += other.bytes;
        self.count += other.count;
    }

    fn add_returned(&mut self, sequence: u64, bytes: u32, is_sent: bool) {
        assert!(!is_sent || self.sequences.insert(sequence));
        self.bytes += u64::from(bytes);
        self.count += 1;
    }

    fn of_ranges(ranges: &[SequenceRange], bytes: u64, count: u64) -> Sum {
        let mut sequences = BTreeSet::new();
        for range in ranges {
            assert!(range.first <= range.last, "a range holds nothing");
            assert!((range.first.0..=range.last.0).all(|number| sequences.insert(number)), "a number is in two ranges");
        }
        Sum { sequences, bytes, count }
    }

    fn of(settled: &Settled) -> Sum {
        Sum::of_ranges(&settled.ranges, settled.bytes, settled.count)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Publish {
        size: u32,
        count: u8,
    },
    Subscribe(SubscriptionSettings),
    Unsubscribe(usize),
    SetPrefetch(usize, u32),
    Take(usize, u32),
    /// Reports the sizes of some messages of a consumer, perhaps from the last to the first.
    Size {
        consumer: usize,
        share: u64,
        is_reversed: bool,
    },
    Wait(usize),
    Sent(usize, u64, u64),
    Settle(usize, Vec<(u64, u64)>, Settle),
    Purge,
    Drop(usize, u64),
    Wake,
    Restart {
        gap: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let consumer = || 0usize..6;
    let prefetch = || prop_oneof![4 => 0u32..8, 1 => Just(u32::MAX)];
    let range = prop_oneof![
        6 => (0u64..40, 0u64..8).prop_map(|(first, length)| (first, first + length)),
        1 => (0u64..40).prop_map(|first| (first, u64::MAX)),
        1 => (0u64..40, 0u64..40),
    ];
    let how = prop_oneof![
        3 => Just(Settle::Ack),
        1 => Just(Settle::Reject),
        2 => Just(Settle::Requeue),
        1 => Just(Settle::RequeueFailed),
    ];
    let settings = (prefetch(), any::<bool>(), prop::bool::weighted(0.2))
        .prop_map(|(prefetch, auto_ack, exclusive)| SubscriptionSettings { prefetch, auto_ack, exclusive });
    let step = prop_oneof![
        6 => (0u32..100, 1u8..6).prop_map(|(size, count)| Step::Publish { size, count }),
        3 => settings.prop_map(Step::Subscribe),
        1 => consumer().prop_map(Step::Unsubscribe),
        1 => (consumer(), prefetch()).prop_map(|(consumer, prefetch)| Step::SetPrefetch(consumer, prefetch)),
        8 => (consumer(), 0u32..10).prop_map(|(consumer, count_max)| Step::Take(consumer, count_max)),
        5 => (consumer(), 1u64..4, any::<bool>())
            .prop_map(|(consumer, share, is_reversed)| Step::Size { consumer, share, is_reversed }),
        1 => consumer().prop_map(Step::Wait),
        6 => (consumer(), prop::collection::vec(range, 1..4), how)
            .prop_map(|(consumer, ranges, how)| Step::Settle(consumer, ranges, how)),
        1 => Just(Step::Purge),
        1 => (consumer(), 0u64..40).prop_map(|(consumer, sequence)| Step::Drop(consumer, sequence)),
        4 => (consumer(), 0u64..40, 0u64..40).prop_map(|(consumer, first, last)| Step::Sent(consumer, first, last)),
        3 => Just(Step::Wake),
        1 => prop_oneof![Just(0u64), Just(3), Just(1 << 32)].prop_map(|gap| Step::Restart { gap }),
    ];
    prop::collection::vec(step, 1..120)
}

struct Pair {
    queue: Queue,
    model: Model,
}

impl Pair {
    fn id(&self, consumer: usize) -> Option<(usize, SubscriptionId)> {
        let place = consumer.checked_rem(self.model.consumers.len())?;
        Some((place, self.model.consumers[place].id))
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Publish { size, count } => {
                for _ in 0..count {
                    assert_eq!(self.queue.publish(u64::from(size)).0, self.model.publish(size));
                }
            }
            Step::Subscribe(settings) => self.subscribe(settings),
            Step::Wake => self.wake(),
            Step::Purge => self.purge(),
            Step::Restart { gap } => self.restart(gap),
            Step::Unsubscribe(consumer)
            | Step::SetPrefetch(consumer, _)
            | Step::Take(consumer, _)
            | Step::Size { consumer, .. }
            | Step::Wait(consumer)
            | Step::Sent(consumer, ..)
            | Step::Settle(consumer, ..)
            | Step::Drop(consumer, _) => {
                if let Some((place, id)) = self.id(consumer) {
                    self.step_of(step, place, id);
                }
            }
        }
    }

    fn step_of(&mut self, step: Step, place: usize, id: SubscriptionId) {
        let Pair { queue, model } = self;
        match step {
            Step::Unsubscribe(_) => {
                let returned = model.unsubscribe(place);
                assert_eq!(Sum::of_ranges(&queue.unsubscribe(id), returned.bytes, returned.count), returned);
            }
            Step::SetPrefetch(_, prefetch) => {
                queue.set_prefetch(id, prefetch);
                model.consumers[place].settings.prefetch = prefetch;
            }
            Step::Take(_, count_max) => {
                let mut taken = Vec::new();
                model.consumers[place].waits = false;
                queue.take(id, count_max, &mut taken);
                assert_eq!(taken, model.take(place, count_max));
            }
            Step::Size { share, is_reversed, .. } => self.size(place, id, share, is_reversed),
            Step::Sent(_, first, last) => {
                queue.sent(id, &[SequenceRange { first: Sequence(first), last: Sequence(last) }]);
                let held = model.messages.iter_mut().filter(|message| message.place == Place::Held(place));
                held.filter(|message| (first..=last).contains(&message.sequence)).for_each(|one| one.is_sent = true);
            }
            Step::Wait(_) => {
                queue.wait(id);
                model.consumers[place].waits = true;
            }
            Step::Settle(_, ranges, how) => {
                let ranges: Vec<_> = ranges
                    .iter()
                    .map(|&(first, last)| SequenceRange { first: Sequence(first), last: Sequence(last) })
                    .collect();
                let mut sum = Sum::default();
                let mut settling = Settling::of(&ranges);
                while !settling.is_done() {
                    let part = queue.settle_some(id, &mut settling, how, 3);
                    assert!(part.count <= 3, "a part holds more messages than it may");
                    sum.join(Sum::of(&part));
                }
                assert_eq!(sum, model.settle(place, &ranges, how, false));
            }
            Step::Drop(_, number) => {
                let range = SequenceRange { first: Sequence(number), last: Sequence(number) };
                let expected = model.settle(place, &[range], Settle::Reject, true);
                assert_eq!(Sum::of(&queue.drop_message(id, Sequence(number))), expected);
            }
            _ => unreachable!("the step concerns no consumer"),
        }
    }

    /// Part by part.
    fn purge(&mut self) {
        let mut purged = Sum::default();
        for _ in 0..self.queue.returned_count(0) / 2 {
            purged.join(Sum::of(&self.queue.purge_returned(0, 2)));
        }
        loop {
            let part = self.queue.purge(3);
            self.queue.check_invariants();
            purged.join(Sum::of(&part));
            if part.ranges.len() < 3 {
                break;
            }
        }
        assert_eq!(purged, self.model.purge());
    }

    fn subscribe(&mut self, settings: SubscriptionSettings) {
        let there: Vec<_> = self.model.consumers.iter().filter(|consumer| consumer.is_there).collect();
        let expected = if there.iter().any(|consumer| consumer.settings.exclusive) {
            Err(QueueError::HeldExclusively)
        } else if settings.exclusive && !there.is_empty() {
            Err(QueueError::AlreadyConsumed { count: there.len() })
        } else {
            Ok(())
        };
        let got = self.queue.subscribe(settings);
        assert_eq!(got.map(|_| ()), expected);
        if let Ok(id) = got {
            assert!(self.model.consumers.iter().all(|other| other.id != id), "an id was given twice");
            self.model.consumers.push(Consumer { id, settings, is_there: true, waits: false });
        }
    }

    fn size(&mut self, place: usize, id: SubscriptionId, share: u64, is_reversed: bool) {
        let given = self.model.messages.iter().filter(|message| {
            message.sequence % share == 0 && (message.place == Place::Held(place) || message.awaited_by == Some(place))
        });
        let mut sizes: Vec<_> = given.map(|message| (Sequence(message.sequence), message.size)).collect();
        if is_reversed {
            sizes.reverse();
        }
        self.queue.sized(id, &sizes);
        sizes.iter().for_each(|(sequence, _)| self.model.size(place, sequence.0));
    }

    fn wake(&mut self) {
        let expected = if self.model.ready_count() == 0 { None } else { self.model.turns.first().copied() };
        let woken = self.queue.next_to_wake();
        assert_eq!(woken, expected.map(|place| self.model.consumers[place].id));
        if let Some(place) = expected {
            self.model.consumers[place].waits = false;
        }
    }

    /// The queue after a start: consumers are gone, sequences may have been skipped.
    fn restart(&mut self, gap: u64) {
        let Pair { queue, model } = self;
        let mut settled = queue.settled().clone();
        if gap > 0 {
            settled.insert(SequenceRange { first: queue.next(), last: Sequence(queue.next().0 + gap - 1) });
        }
        model.next += gap;
        model.consumers.clear();
        model.turns.clear();
        model.messages.retain(|message| message.place != Place::Settled);
        let mut delivery_counts = BTreeMap::new();
        for message in &mut model.messages {
            (message.place, message.is_sized, message.is_counted) = (Place::Ready, false, true);
            (message.is_sent, message.is_redelivered) = (false, message.delivery_count > 0);
            if message.delivery_count > 0 {
                delivery_counts.insert(Sequence(message.sequence), message.delivery_count);
            }
        }
        let (count, bytes) = (model.ready_count(), model.ready_bytes());
        *queue = Queue::recovered(Sequence(model.next), settled, count, bytes, delivery_counts);
        queue.set_counts_failures(model.counts_failures);
        // Messages published from now on are new, however far the mark before the start went.
        model.perhaps_delivered_below = model.next.min(20 + gap);
        queue.set_perhaps_delivered_below(Sequence(20 + gap));
    }

    fn compare(&mut self) {
        let Pair { queue, model } = self;
        model.update_turns();
        model.forget_lost();
        queue.check_invariants();
        let unsettled = |message: &&Message| matches!(message.place, Place::Held(_));
        let unacked_bytes: u64 = model
            .messages
            .iter()
            .filter(unsettled)
            .filter(|message| message.is_sized)
            .map(|message| u64::from(message.size))
            .sum();
        assert_eq!(queue.next().0, model.next);
        assert_eq!(queue.ready_count(), model.ready_count());
        assert_eq!(queue.ready_bytes(), model.ready_bytes());
        assert_eq!(queue.unacked_count(), model.messages.iter().filter(unsettled).count() as u64);
        assert_eq!(queue.unacked_bytes(), unacked_bytes);
        assert_eq!(queue.subscription_count(), model.consumers.iter().filter(|consumer| consumer.is_there).count());
        assert_eq!(queue.wakes() as u64, model.ready_count().min(model.turns.len() as u64));
        for (place, consumer) in model.consumers.iter().enumerate() {
            assert_eq!(u64::from(queue.unsettled_of(consumer.id)), model.held_by(place));
            assert_eq!(queue.credit(consumer.id), model.credit(place));
        }
        for message in &model.messages {
            assert_eq!(queue.settled().contains(Sequence(message.sequence)), message.place == Place::Settled);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_queue_does_what_a_list_of_messages_does(steps in steps(), counts_failures in any::<bool>()) {
        let mut pair = Pair { queue: Queue::new(), model: Model { counts_failures, ..Model::new() } };
        pair.queue.set_counts_failures(counts_failures);
        for step in steps {
            pair.step(step);
            pair.compare();
        }
    }
}
