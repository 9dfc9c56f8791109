//! The ready messages of a queue by priority, and by keys that take turns: one backlog for each lane, of which the first is
//! that of every queue.
//!
//! Lanes of priorities come first, then those of keys: of *p* priorities, the lane of a key's slot *s* and of a priority is
//! *s* times *p* plus the priority. Messages without a key have the lanes of priorities, as one more slot. Among the messages
//! of the highest priority each slot that has any gives one in turn. A message's sequence says its lane. Lanes above the first are made on first use, and nothing is kept for the others.
//! A queue without any costs what its only backlog costs. Operations on ranges expect each range in one lane.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::ack_set::AckSet;
use crate::backlog::Backlog;
use crate::held::Held;
use crate::ids::{Sequence, SequenceRange, TURN_LANES};
use crate::settled::{Settled, Standing};

/// A lane whose turn may come.
struct ReadyLane {
    lane: u16,
    slot: u16,
    count: u64,
}

/// How many each of some gives of which so many are wanted, one after the other in rounds, as long as it has some.
fn shares_of(counts: &[u64], mut wanted: u64) -> Vec<u64> {
    let mut shares = vec![0; counts.len()];
    loop {
        let left = || counts.iter().zip(&shares).filter(|(count, share)| count > share);
        let (giving, least) = (left().count() as u64, left().map(|(count, share)| count - share).min().unwrap_or(0));
        if giving == 0 || wanted == 0 {
            return shares;
        }
        let giving_more = counts.iter().zip(&mut shares).filter(|(count, share)| **count > **share);
        if wanted < giving {
            giving_more.take(usize::try_from(wanted).unwrap_or(usize::MAX)).for_each(|(_, share)| *share += 1);
            return shares;
        }
        let rounds = (wanted / giving).min(least);
        giving_more.for_each(|(_, share)| *share += rounds);
        wanted -= rounds * giving;
    }
}

#[derive(Debug)]
pub(crate) struct Lanes {
    first: Backlog,
    others: Option<Box<Others>>,
}

/// Invariants: lanes ascend from 1; `count` is the sum of their ready messages.
#[derive(Debug)]
struct Others {
    lanes: Vec<(u16, Backlog)>,
    count: u64,
    /// How many priorities the lanes of each key are for.
    priorities: u16,
    /// The slot whose turn was the last, by priority; that of messages without a key is 0, and those of keys are from 1 on.
    last_slots: Vec<u16>,
}

impl Default for Others {
    fn default() -> Others {
        Others { lanes: Vec::new(), count: 0, priorities: 1, last_slots: Vec::new() }
    }
}

/// How many messages were taken of each slot, in the order of their turns; and the same for the next priority.
pub(crate) type TakenInTurns = Vec<Vec<u64>>;

impl Others {
    fn has_turns(&self) -> bool {
        self.lanes.last().is_some_and(|(lane, _)| *lane >= TURN_LANES)
    }

    /// The priority of a lane, and its slot.
    fn place_of(&self, lane: u16) -> (u16, u16) {
        let priorities = self.priorities.max(1);
        lane.checked_sub(TURN_LANES).map_or((lane, 0), |turn| (turn % priorities, 1 + turn / priorities))
    }

    fn get(&self, lane: u16) -> Option<&Backlog> {
        let at = self.lanes.binary_search_by_key(&lane, |&(number, _)| number).ok()?;
        self.lanes.get(at).map(|(_, backlog)| backlog)
    }

    fn get_mut(&mut self, lane: u16) -> Option<&mut Backlog> {
        let at = self.lanes.binary_search_by_key(&lane, |&(number, _)| number).ok()?;
        self.lanes.get_mut(at).map(|(_, backlog)| backlog)
    }

    fn change<T>(&mut self, lane: u16, change: impl FnOnce(&mut Backlog) -> T) -> Option<T> {
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
    pub(crate) fn put(&mut self, lane: u16, backlog: Backlog) {
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
    pub(crate) fn others(&self) -> impl Iterator<Item = (u16, &Backlog)> {
        self.others.iter().flat_map(|others| others.lanes.iter().map(|(lane, backlog)| (*lane, backlog)))
    }

    /// The lane of a sequence, if there is one.
    pub(crate) fn get(&self, lane: u16) -> Option<&Backlog> {
        if lane == 0 { Some(&self.first) } else { self.others.as_ref()?.get(lane) }
    }

    fn all(&self) -> impl Iterator<Item = &Backlog> {
        std::iter::once(&self.first).chain(self.others().map(|(_, backlog)| backlog))
    }

    #[inline]
    fn change<T>(&mut self, lane: u16, change: impl FnOnce(&mut Backlog) -> T) -> Option<T> {
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
    pub(crate) fn publish_in(&mut self, lane: u16, first: Sequence, body_bytes: u64, is_delayed: bool) -> Sequence {
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

    /// Says how many priorities the lanes of each key are for, before the queue has such lanes.
    pub(crate) fn set_priorities(&mut self, count: u16) {
        self.others.get_or_insert_default().priorities = count.max(1);
    }

    /// The lanes in the order of their messages: the highest priority first, in it that without a key.
    pub(crate) fn in_order(&self) -> Vec<u16> {
        let Some(others) = &self.others else { return vec![0] };
        let mut lanes: Vec<u16> = std::iter::once(0).chain(others.lanes.iter().map(|(lane, _)| *lane)).collect();
        lanes.sort_by_key(|&lane| {
            let (priority, slot) = others.place_of(lane);
            (Reverse(priority), slot)
        });
        lanes
    }

    /// Whether all messages that a lane ever had are settled.
    pub(crate) fn is_settled(&self, lane: u16) -> bool {
        self.get(lane).is_none_or(|backlog| backlog.settled().below() >= backlog.next())
    }

    /// Has messages taken, at most so many: of the highest priority first, and where keys take turns one of each. `from` takes
    /// from a lane and returns how many. With keys, returns how many were taken of which.
    pub(crate) fn take(&mut self, wanted: u64, mut from: impl FnMut(&mut Backlog, u64) -> u64) -> TakenInTurns {
        if self.others.as_ref().is_some_and(|others| others.has_turns()) {
            return self.take_in_turns(wanted, from);
        }
        self.take_by_priority(wanted, &mut from);
        TakenInTurns::new()
    }

    fn take_in_turns(&mut self, mut wanted: u64, mut from: impl FnMut(&mut Backlog, u64) -> u64) -> TakenInTurns {
        let mut all = TakenInTurns::new();
        for (priority, mut turns) in self.ready_by_priority() {
            if wanted == 0 {
                break;
            }
            let last = self.others.as_ref().and_then(|others| others.last_slots.get(priority)).copied().unwrap_or(0);
            let begin = turns.partition_point(|turn| turn.slot <= last);
            turns.rotate_left(begin);
            let shares = shares_of(&turns.iter().map(|turn| turn.count).collect::<Vec<_>>(), wanted);
            wanted -= shares.iter().sum::<u64>();
            for (turn, share) in turns.iter().zip(&shares).filter(|(_, share)| **share > 0) {
                self.change(turn.lane, |backlog| from(backlog, *share));
            }
            // The last round has those with the largest share, of which the last one had the last turn.
            let most = shares.iter().copied().max().unwrap_or(0);
            let served = turns.iter().zip(&shares).rfind(|(_, share)| **share == most);
            if let (Some((turn, _)), Some(others)) = (served, &mut self.others) {
                let slots = others.last_slots.len().max(priority + 1);
                others.last_slots.resize(slots, 0);
                others.last_slots.get_mut(priority).into_iter().for_each(|last| *last = turn.slot);
            }
            all.push(shares);
        }
        all
    }

    /// The lanes with ready messages, by priority from the highest on, each in the order of slots.
    fn ready_by_priority(&self) -> impl Iterator<Item = (usize, Vec<ReadyLane>)> + use<> {
        let mut found: BTreeMap<Reverse<u16>, Vec<ReadyLane>> = BTreeMap::new();
        let others = self.others.iter().flat_map(|others| others.lanes.iter().map(|(lane, backlog)| (*lane, backlog)));
        for (lane, backlog) in std::iter::once((0, &self.first)).chain(others).filter(|(_, one)| one.count() > 0) {
            let (priority, slot) = self.others.as_ref().map_or((0, 0), |others| others.place_of(lane));
            found.entry(Reverse(priority)).or_default().push(ReadyLane { lane, slot, count: backlog.count() });
        }
        found.into_iter().map(|(Reverse(priority), lanes)| (priority.into(), lanes))
    }

    fn take_by_priority(&mut self, mut wanted: u64, mut from: impl FnMut(&mut Backlog, u64) -> u64) {
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

    pub(crate) fn purge(&mut self, lane: u16, runs_max: usize) -> Settled {
        self.change(lane, |backlog| backlog.purge(runs_max)).unwrap_or_default()
    }

    pub(crate) fn purge_returned(&mut self, lane: u16, count_max: usize) -> Settled {
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
        let of = |lane: u16| held.iter().copied().filter(|sequence| sequence.lane() == lane).collect();
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

#[cfg(test)]
mod tests {
    use super::shares_of;

    #[test]
    fn each_gives_one_in_a_round_while_it_has_some() {
        assert_eq!(shares_of(&[5, 1, 2], 0), [0, 0, 0]);
        assert_eq!(shares_of(&[5, 1, 2], 2), [1, 1, 0]);
        assert_eq!(shares_of(&[5, 1, 2], 4), [2, 1, 1]);
        assert_eq!(shares_of(&[5, 1, 2], 5), [2, 1, 2]);
        assert_eq!(shares_of(&[5, 1, 2], 100), [5, 1, 2]);
        assert_eq!(shares_of(&[u64::MAX, u64::MAX], 7), [4, 3]);
        assert_eq!(shares_of(&[], 7), [0; 0]);
    }
}
