//! The ready messages of a queue by priority: one backlog for each lane, of which the first is that of every queue.
//!
//! A message's sequence says its lane. Lanes above the first are made on first use, and nothing is kept for the others.
//! A queue without any costs what its only backlog costs. Operations on ranges expect each range in one lane.

use std::collections::BTreeSet;

use crate::ack_set::AckSet;
use crate::backlog::Backlog;
use crate::held::Held;
use crate::ids::{Sequence, SequenceRange};
use crate::settled::{Settled, Standing};

#[derive(Debug)]
pub(crate) struct Lanes {
    first: Backlog,
    others: Option<Box<Others>>,
}

/// Invariants: lanes ascend from 1; `count` is the sum of their ready messages.
#[derive(Debug, Default)]
struct Others {
    lanes: Vec<(u8, Backlog)>,
    count: u64,
}

impl Others {
    fn get(&self, lane: u8) -> Option<&Backlog> {
        let at = self.lanes.binary_search_by_key(&lane, |&(number, _)| number).ok()?;
        self.lanes.get(at).map(|(_, backlog)| backlog)
    }

    fn get_mut(&mut self, lane: u8) -> Option<&mut Backlog> {
        let at = self.lanes.binary_search_by_key(&lane, |&(number, _)| number).ok()?;
        self.lanes.get_mut(at).map(|(_, backlog)| backlog)
    }

    fn change<T>(&mut self, lane: u8, change: impl FnOnce(&mut Backlog) -> T) -> Option<T> {
        let backlog = self.get_mut(lane)?;
        let before = backlog.count();
        let changed = change(backlog);
        self.count = self.count + self.get(lane).map_or(0, Backlog::count) - before;
        Some(changed)
    }
}

impl Lanes {
    pub(crate) fn new(first: Backlog) -> Lanes {
        Lanes { first, others: None }
    }

    /// Adds a lane above the first, with its messages from before a start, unless it has that lane.
    pub(crate) fn put(&mut self, lane: u8, backlog: Backlog) {
        let others = self.others.get_or_insert_default();
        if let Err(at) = others.lanes.binary_search_by_key(&lane, |&(number, _)| number) {
            others.count += backlog.count();
            others.lanes.insert(at, (lane, backlog));
        }
    }

    pub(crate) fn first(&self) -> &Backlog {
        &self.first
    }

    pub(crate) fn into_first(self) -> Backlog {
        self.first
    }

    /// The lanes above the first, ascending.
    pub(crate) fn others(&self) -> impl Iterator<Item = (u8, &Backlog)> {
        self.others.iter().flat_map(|others| others.lanes.iter().map(|(lane, backlog)| (*lane, backlog)))
    }

    /// The lane of a sequence, if there is one.
    pub(crate) fn get(&self, lane: u8) -> Option<&Backlog> {
        if lane == 0 { Some(&self.first) } else { self.others.as_ref()?.get(lane) }
    }

    fn all(&self) -> impl Iterator<Item = &Backlog> {
        std::iter::once(&self.first).chain(self.others().map(|(_, backlog)| backlog))
    }

    #[inline]
    fn change<T>(&mut self, lane: u8, change: impl FnOnce(&mut Backlog) -> T) -> Option<T> {
        if lane == 0 { Some(change(&mut self.first)) } else { self.others.as_mut()?.change(lane, change) }
    }

    pub(crate) fn count(&self) -> u64 {
        self.first.count() + self.others.as_ref().map_or(0, |others| others.count)
    }

    pub(crate) fn delayed_count(&self) -> u64 {
        self.all().map(Backlog::delayed_count).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.all().map(Backlog::bytes).sum()
    }

    #[inline]
    pub(crate) fn publish(&mut self, body_bytes: u64) -> Sequence {
        self.first.publish(body_bytes)
    }

    pub(crate) fn publish_delayed(&mut self, body_bytes: u64) -> Sequence {
        self.first.publish_delayed(body_bytes)
    }

    /// Stores a message in a lane, which begins with `first` if it is a new one.
    pub(crate) fn publish_in(&mut self, lane: u8, first: Sequence, body_bytes: u64, is_delayed: bool) -> Sequence {
        let publish = |backlog: &mut Backlog| {
            if is_delayed { backlog.publish_delayed(body_bytes) } else { backlog.publish(body_bytes) }
        };
        if let Some(sequence) = self.change(lane, publish) {
            return sequence;
        }
        let first = first.in_lane(lane);
        let mut backlog = Backlog::new(first, AckSet::starting_at(first), 0, std::collections::BTreeMap::new());
        let sequence = publish(&mut backlog);
        self.put(lane, backlog);
        sequence
    }

    /// Has messages taken, at most so many: from one lane after the other, the highest first. `from` takes from a lane and
    /// returns how many.
    pub(crate) fn take(&mut self, mut wanted: u64, mut from: impl FnMut(&mut Backlog, u64) -> u64) {
        if let Some(others) = &mut self.others
            && others.count > 0
        {
            for (_, backlog) in others.lanes.iter_mut().rev().filter(|(_, backlog)| backlog.count() > 0) {
                if wanted == 0 {
                    return;
                }
                let taken = from(backlog, wanted);
                others.count -= taken;
                wanted -= taken;
            }
        }
        if wanted > 0 {
            from(&mut self.first, wanted);
        }
    }

    pub(crate) fn take_range(&mut self, range: SequenceRange, out: &mut Vec<Held>) {
        self.change(range.first.lane(), |backlog| backlog.take_range(range, out));
    }

    pub(crate) fn give_back(&mut self, message: Held) {
        self.change(message.sequence.lane(), |backlog| backlog.give_back(message));
    }

    pub(crate) fn put_back(&mut self, message: Held) {
        self.change(message.sequence.lane(), |backlog| backlog.put_back(message));
    }

    pub(crate) fn put_aside(&mut self, message: Held) {
        self.change(message.sequence.lane(), |backlog| backlog.put_aside(message));
    }

    #[inline]
    pub(crate) fn sized(&mut self, sequence: Sequence, bytes: u32) {
        self.change(sequence.lane(), |backlog| backlog.sized(sequence, bytes));
    }

    pub(crate) fn settle(&mut self, ranges: &[SequenceRange]) {
        for &range in ranges {
            self.change(range.first.lane(), |backlog| backlog.settle_range(range));
        }
    }

    pub(crate) fn purge(&mut self, lane: u8, runs_max: usize) -> Settled {
        self.change(lane, |backlog| backlog.purge(runs_max)).unwrap_or_default()
    }

    pub(crate) fn purge_returned(&mut self, lane: u8, count_max: usize) -> Settled {
        self.change(lane, |backlog| backlog.purge_returned(count_max)).unwrap_or_default()
    }

    pub(crate) fn settle_fresh(&mut self, range: SequenceRange, bytes: u64) -> Settled {
        self.change(range.first.lane(), |backlog| backlog.settle_fresh(range, bytes)).unwrap_or_default()
    }

    pub(crate) fn set_perhaps_delivered_below(&mut self, below: Sequence) {
        self.change(below.lane(), |backlog| backlog.set_perhaps_delivered_below(below));
    }

    pub(crate) fn delay_recovered(&mut self, sequence: Sequence) {
        self.change(sequence.lane(), |backlog| backlog.delay_recovered(sequence));
    }

    pub(crate) fn release(&mut self, sequence: Sequence) -> bool {
        self.change(sequence.lane(), |backlog| backlog.release(sequence)).unwrap_or_default()
    }

    pub(crate) fn set_aside(&mut self, sequence: Sequence) -> bool {
        self.change(sequence.lane(), |backlog| backlog.set_aside(sequence)).unwrap_or_default()
    }

    /// Of a range in one lane.
    pub(crate) fn delivered_more_often(&self, range: SequenceRange, limit: u32) -> Vec<Sequence> {
        let backlog = self.get(range.first.lane());
        backlog.map(|backlog| backlog.delivered_more_often(range, limit)).unwrap_or_default()
    }

    pub(crate) fn deliveries_of_waiting(&self, sequence: Sequence) -> u32 {
        self.get(sequence.lane()).map_or(0, |backlog| backlog.deliveries_of_waiting(sequence))
    }

    /// The messages are of one lane.
    pub(crate) fn expire(&mut self, messages: &[(Sequence, u32)]) -> (Settled, Vec<Sequence>) {
        let lane = messages.first().map_or(0, |(sequence, _)| sequence.lane());
        debug_assert!(messages.iter().all(|(sequence, _)| sequence.lane() == lane), "messages of several lanes");
        self.change(lane, |backlog| backlog.expire(messages)).unwrap_or_default()
    }

    /// The ready messages in the lane of a sequence, from that sequence on.
    pub(crate) fn ready_from(&self, from: Sequence, count_max: u64) -> Vec<SequenceRange> {
        self.get(from.lane()).map(|backlog| backlog.ready_from(from, count_max)).unwrap_or_default()
    }

    pub(crate) fn standing(&self, sequence: Sequence) -> Standing {
        self.get(sequence.lane()).map_or(Standing::Settled, |backlog| backlog.standing(sequence))
    }

    /// See [`Backlog::forget_lost_bytes`].
    pub(crate) fn forget_lost_bytes(&mut self) {
        match &mut self.others {
            None => self.first.forget_lost_bytes(),
            // With messages in some lane, bytes that another one lost are forgotten later.
            Some(others) if others.count + self.first.count() > 0 => {}
            Some(others) => {
                self.first.forget_lost_bytes();
                others.lanes.iter_mut().for_each(|(_, backlog)| backlog.forget_lost_bytes());
            }
        }
    }

    /// # Panics
    /// When an invariant does not hold.
    pub(crate) fn check_invariants(&self, held: &BTreeSet<Sequence>) {
        let of = |lane: u8| held.iter().copied().filter(|sequence| sequence.lane() == lane).collect();
        self.first.check_invariants(&of(0));
        let Some(others) = &self.others else {
            assert!(held.iter().all(|sequence| sequence.lane() == 0), "a message is held of no lane");
            return;
        };
        assert!(others.lanes.is_sorted_by(|(one, _), (other, _)| 0 < *one && one < other), "lanes do not ascend");
        assert!(held.iter().all(|sequence| self.get(sequence.lane()).is_some()), "a message is held of no lane");
        for (lane, backlog) in &others.lanes {
            assert_eq!(backlog.next().lane(), *lane, "a lane has sequences of another");
            backlog.check_invariants(&of(*lane));
        }
        let count: u64 = others.lanes.iter().map(|(_, backlog)| backlog.count()).sum();
        assert_eq!(others.count, count, "the count of messages in lanes is wrong");
    }
}
