//! Messages of a queue that are not to be delivered yet, and those that became ready out of their turn.
//!
//! Both are sets of sequences in blocks, so that a million of them takes some 100 kB wherever they are. Only a message whose
//! size or deliveries are known is kept by itself. This module knows no time: others say when a message is ready.

use std::collections::BTreeMap;

use crate::ack_set::AckSet;
use crate::held::Held;
use crate::ids::{Sequence, SequenceRange};

/// Invariants: a sequence is in one of the sets at most, and kept messages wait.
#[derive(Debug, Default)]
pub(crate) struct Delayed {
    waiting: Set,
    /// Ready, below the queue's cursor, and never taken.
    released: Set,
    kept: BTreeMap<Sequence, Held>,
}

/// A set of sequences.
#[derive(Debug)]
struct Set {
    members: AckSet,
    count: u64,
}

impl Default for Set {
    fn default() -> Self {
        Set { members: AckSet::starting_at(Sequence(0)), count: 0 }
    }
}

impl Set {
    fn insert(&mut self, sequence: Sequence) {
        if !self.members.contains(sequence) {
            self.members.insert(SequenceRange { first: sequence, last: sequence });
            self.count += 1;
        }
    }

    fn remove(&mut self, sequence: Sequence) -> bool {
        let is_member = self.members.contains(sequence);
        if is_member {
            self.members.remove(sequence);
            self.count -= 1;
        }
        is_member
    }
}

impl Delayed {
    /// The same messages in a lane.
    pub(crate) fn in_lane(self, lane: u16) -> Delayed {
        let moved = |set: Set| {
            let mut in_lane = Set::default();
            for range in set.members.ranges() {
                let range = SequenceRange { first: range.first.in_lane(lane), last: range.last.in_lane(lane) };
                in_lane.members.insert(range);
            }
            Set { count: set.count, ..in_lane }
        };
        let kept = self.kept.into_values().map(|held| held.in_lane(lane)).map(|held| (held.sequence, held)).collect();
        Delayed { waiting: moved(self.waiting), released: moved(self.released), kept }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.count == 0 && self.released.count == 0
    }

    pub(crate) fn waiting_count(&self) -> u64 {
        self.waiting.count
    }

    pub(crate) fn released_count(&self) -> usize {
        self.released.count as usize
    }

    pub(crate) fn insert(&mut self, sequence: Sequence) {
        self.waiting.insert(sequence);
    }

    /// Keeps what is known of a message that waits.
    pub(crate) fn keep(&mut self, message: Held) {
        self.kept.insert(message.sequence, message);
    }

    /// The kept messages in a range.
    pub(crate) fn kept_in(&self, range: SequenceRange) -> impl Iterator<Item = &Held> {
        self.kept.range(range.first..=range.last).map(|(_, message)| message)
    }

    /// The first sequence from one on that does not wait.
    pub(crate) fn next_free(&self, from: Sequence) -> Sequence {
        self.waiting.members.next_unsettled(from)
    }

    pub(crate) fn next_waiting(&self, from: Sequence) -> Option<Sequence> {
        self.waiting.members.next_settled(from)
    }

    /// Makes a message ready; `None` when it does not wait. Returns what was kept of it: such a message, and one at or above
    /// the cursor, is not among the released ones.
    pub(crate) fn release(&mut self, sequence: Sequence, cursor: Sequence) -> Option<Option<Held>> {
        if !self.waiting.remove(sequence) {
            return None;
        }
        let kept = self.kept.remove(&sequence);
        if kept.is_none() && sequence < cursor {
            self.released.insert(sequence);
        }
        Some(kept)
    }

    /// Takes the lowest released message, unless `lowest` is lower.
    pub(crate) fn take_released(&mut self, lowest: Option<Sequence>) -> Option<Sequence> {
        let last = lowest.unwrap_or(SequenceRange::ALL.last);
        self.take_released_in(SequenceRange { first: Sequence(0), last })
    }

    /// Takes the lowest released message of a range.
    pub(crate) fn take_released_in(&mut self, range: SequenceRange) -> Option<Sequence> {
        let first = self.released.members.next_settled(range.first).filter(|first| *first <= range.last)?;
        self.released.remove(first);
        Some(first)
    }

    pub(crate) fn released_from(&self, from: Sequence) -> impl Iterator<Item = SequenceRange> + '_ {
        let ranges = self.released.members.ranges().filter(move |range| range.last >= from);
        ranges.map(move |range| SequenceRange { first: range.first.max(from), ..range })
    }

    /// Removes the released messages below a sequence.
    pub(crate) fn forget_released_below(&mut self, end: Sequence) {
        let rest: Vec<SequenceRange> = self.released_from(end).collect();
        self.released = Set::default();
        for range in rest {
            self.released.members.insert(range);
            self.released.count += range.count();
        }
    }

    /// Removes a message; returns whether it was ready, and what was kept of it. `None` when it is not here.
    pub(crate) fn remove(&mut self, sequence: Sequence) -> Option<(bool, Option<Held>)> {
        if self.waiting.remove(sequence) {
            return Some((false, self.kept.remove(&sequence)));
        }
        self.released.remove(sequence).then_some((true, None))
    }

    /// Whether a message is ready; `None` when it is not here.
    pub(crate) fn standing(&self, sequence: Sequence) -> Option<bool> {
        if self.waiting.members.contains(sequence) {
            return Some(false);
        }
        self.released.members.contains(sequence).then_some(true)
    }

    /// # Panics
    /// When an invariant does not hold.
    pub(crate) fn check_invariants(&self, cursor: Sequence) {
        for set in [&self.waiting, &self.released] {
            assert_eq!(set.count, set.members.ranges().map(|range| range.count()).sum::<u64>(), "a count is wrong");
        }
        let is_waiting = |sequence| self.waiting.members.contains(sequence);
        let released = self.released.members.ranges().flat_map(|range| (range.first.0..=range.last.0).map(Sequence));
        released.for_each(|sequence| assert!(sequence < cursor && !is_waiting(sequence), "a message is twice here"));
        assert!(self.kept.keys().all(|&sequence| is_waiting(sequence)), "a message is kept and does not wait");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_messages_take_little_memory_while_they_wait_and_when_they_are_ready() {
        let mut delayed = Delayed::default();
        (1..=300_000).for_each(|number| delayed.insert(Sequence(2 * number)));
        let heap_bytes = |delayed: &Delayed| [&delayed.waiting, &delayed.released].map(|set| set.members.heap_bytes());
        assert!(heap_bytes(&delayed).iter().sum::<usize>() < 100_000);

        (1..=300_000)
            .for_each(|number| assert_eq!(delayed.release(Sequence(2 * number), Sequence(u64::MAX)), Some(None)));

        assert!(heap_bytes(&delayed).iter().sum::<usize>() < 100_000);
        assert_eq!((delayed.waiting_count(), delayed.released_count()), (0, 300_000));
        assert_eq!(delayed.take_released(None), Some(Sequence(2)));
        assert_eq!(delayed.take_released(Some(Sequence(3))), None);
    }
}
