//! The offsets of a segment's messages, kept in memory from the first append until the segment's directory is on disk.
//!
//! Invariants: a queue's sequences only ascend, and appending to the queue of the last append needs no hashing and no
//! allocation beyond a list's growth.

use std::ops::Range;

use penstock_queue::{QueueId, Sequence};
use rustc_hash::FxHashMap;

use crate::contents::Contents;
use crate::deadlines::{DEADLINE_MS_MAX, Deadline, DeadlineKind, Times};
use crate::disk::RealDisk;
use crate::error::{Corruption, LogError};
use crate::record::{Decoded, Record, Target};
use crate::segment::{Check, Resume, SEGMENT_HEADER_BYTES, Segment, Walk};

/// Messages of one queue with contiguous sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) body_bytes: u64,
    /// When the first and the last of them were stored.
    pub(crate) first_ms: u64,
    pub(crate) last_ms: u64,
    pub(crate) offsets: Vec<u32>,
}

/// Whether a segment has messages of a queue at or above a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// No message of the queue.
    Absent,
    /// Only lower ones.
    Below,
    At(Sequence),
}

#[derive(Debug)]
struct QueueRuns {
    queue: QueueId,
    next: u64,
    current: Run,
    earlier: Vec<Run>,
}

/// The index of a segment, from its readable records.
pub(crate) fn of_segment(segment: &Segment) -> Result<MemoryIndex, LogError> {
    match segment.walk(SEGMENT_HEADER_BYTES, Check::Head) {
        Err(LogError::Corrupt { why: Corruption::Unreadable, .. }) => {
            let contents = Contents::read(&RealDisk, segment.path(), segment.readable())?;
            Ok(of_contents(segment, &contents))
        }
        walk => Ok(of_walk(walk?)),
    }
}

/// The same with the bytes that the disk returns of the file.
pub(crate) fn of_contents(segment: &Segment, contents: &Contents) -> MemoryIndex {
    of_walk(segment.walk_over(contents.up_to(segment.readable()), Check::Head))
}

/// The index of records that have to fill a part of a segment; `None` where they do not.
pub(crate) fn of_whole(segment: &Segment, bytes: &[u8]) -> Option<MemoryIndex> {
    let mut index = MemoryIndex::default();
    let mut walk = segment.walk_over(bytes, Check::Head);
    while walk.offset() < bytes.len() as u64 {
        let (offset, decoded) = walk.step().ok()?;
        index.take_in(offset, &decoded);
    }
    Some(index)
}

fn of_walk(mut walk: Walk<'_>) -> MemoryIndex {
    let mut index = MemoryIndex::default();
    loop {
        match walk.step() {
            Ok((offset, decoded)) => index.take_in(offset, &decoded),
            Err(_) if walk.resume(Resume::Anywhere) => {}
            Err(_) => return index,
        }
    }
}

/// Per queue the offsets of its messages.
#[derive(Debug, Default)]
pub(crate) struct MemoryIndex {
    slots: FxHashMap<QueueId, usize>,
    queues: Vec<QueueRuns>,
    last: usize,
    /// In the order of the records.
    deadlines: Vec<Deadline>,
}

impl MemoryIndex {
    /// The least sequence of the queue's next message, 0 for any.
    pub(crate) fn next_of(&mut self, queue: QueueId) -> u64 {
        self.slot(queue).and_then(|slot| self.queues.get(slot)).map_or(0, |runs| runs.next)
    }

    /// Adds the messages of a record.
    pub(crate) fn take_in(&mut self, offset: u32, decoded: &Decoded<'_>) {
        decoded.each(offset, |offset, record| {
            if let Record::Message(message) = record {
                let sizes = (message.body.len() as u64, message.stored_at_ms);
                message.targets().for_each(|target| self.push(target, offset, sizes));
                if message.has_deadlines() {
                    let times = message.times();
                    message.targets().for_each(|target| self.push_deadlines(target, times));
                }
            }
        });
    }

    /// Adds a message. One whose sequence does not ascend is left out: callers check [`MemoryIndex::next_of`] first.
    /// Its body has so many bytes, and it was stored at that time.
    pub(crate) fn push(&mut self, target: Target, offset: u32, (body_bytes, at_ms): (u64, u64)) {
        let sequence = target.sequence.0;
        let slot = self.slot(target.queue);
        let Some(runs) = slot.and_then(|slot| self.queues.get_mut(slot)) else {
            self.push_first(target, offset, (body_bytes, at_ms));
            return;
        };
        if sequence == runs.next {
            runs.current.offsets.push(offset);
            runs.current.body_bytes += body_bytes;
            runs.current.last_ms = at_ms;
        } else if sequence > runs.next {
            let run = Run::new(target, offset, (body_bytes, at_ms));
            runs.earlier.push(std::mem::replace(&mut runs.current, run));
        } else {
            return;
        }
        runs.next = sequence.saturating_add(1);
    }

    /// Adds the deadlines of a message, if it has any.
    pub(crate) fn push_deadlines(&mut self, target: Target, times: Times) {
        let kinds = [(DeadlineKind::Due, times.due_at_ms), (DeadlineKind::Expires, times.expires_at_ms)];
        for (kind, at_ms) in kinds {
            if let Some(at_ms) = at_ms {
                let at_ms = at_ms.min(DEADLINE_MS_MAX);
                self.deadlines.push(Deadline { at_ms, queue: target.queue, sequence: target.sequence, kind });
            }
        }
    }

    /// The deadlines of its messages, in the order of the records.
    pub(crate) fn deadlines(&self) -> &[Deadline] {
        &self.deadlines
    }

    /// The earliest time of them.
    pub(crate) fn earliest_ms(&self) -> Option<u64> {
        self.deadlines.iter().map(|deadline| deadline.at_ms).min()
    }

    /// The deadlines by time.
    pub(crate) fn sorted_deadlines(&self) -> Vec<Deadline> {
        let mut deadlines = self.deadlines.clone();
        deadlines.sort_unstable();
        deadlines
    }

    /// The message with that sequence and those that follow it without a gap.
    pub(crate) fn find(&self, queue: QueueId, from: Sequence) -> Option<&[u32]> {
        let slot = match self.queues.get(self.last) {
            Some(runs) if runs.queue == queue => self.last,
            _ => *self.slots.get(&queue)?,
        };
        let runs = self.queues.get(slot)?;
        if from.0 >= runs.current.first {
            return from_in(&runs.current, from);
        }
        let after = runs.earlier.partition_point(|run| run.first <= from.0);
        from_in(runs.earlier.get(after.checked_sub(1)?)?, from)
    }

    /// The run that has a message.
    pub(crate) fn run_of(&self, queue: QueueId, sequence: Sequence) -> Option<&Run> {
        let runs = self.slots.get(&queue).and_then(|&slot| self.queues.get(slot))?;
        let after = runs.earlier.partition_point(|run| run.first <= sequence.0);
        let run =
            if sequence.0 >= runs.current.first { &runs.current } else { runs.earlier.get(after.checked_sub(1)?)? };
        from_in(run, sequence).map(|_| run)
    }

    /// The queue's first sequence at or above `from`.
    pub(crate) fn reach(&self, queue: QueueId, from: Sequence) -> Reach {
        let Some(runs) = self.slots.get(&queue).and_then(|&slot| self.queues.get(slot)) else { return Reach::Absent };
        let passed = runs.earlier.partition_point(|run| run.first.saturating_add(run.offsets.len() as u64) <= from.0);
        let run = runs.earlier.get(passed).unwrap_or(&runs.current);
        if run.first.saturating_add(run.offsets.len() as u64) <= from.0 {
            return Reach::Below;
        }
        Reach::At(from.max(Sequence(run.first)))
    }

    /// The runs of one queue, ascending.
    pub(crate) fn own_runs(&self, queue: QueueId) -> impl Iterator<Item = &Run> {
        let own = self.slots.get(&queue).and_then(|&slot| self.queues.get(slot));
        own.into_iter().flat_map(|runs| self.runs_of(runs)).map(|(_, run)| run)
    }

    /// The messages whose records begin in a range of the segment, by queue and sequence.
    pub(crate) fn targets_in(&self, range: Range<u64>) -> Vec<Target> {
        let mut found: Vec<Target> = Vec::new();
        for (queue, run) in self.runs() {
            let numbers =
                run.offsets.iter().zip(run.first..).filter(|(offset, _)| range.contains(&u64::from(**offset)));
            found.extend(numbers.map(|(_, number)| Target { queue, sequence: Sequence(number) }));
        }
        found.sort_unstable_by_key(|target| (target.queue, target.sequence));
        found
    }

    /// All runs, by queue and first sequence.
    pub(crate) fn sorted_runs(&self) -> Vec<(QueueId, &Run)> {
        let mut slots: Vec<&QueueRuns> = self.queues.iter().collect();
        slots.sort_unstable_by_key(|runs| runs.queue);
        slots.iter().flat_map(|runs| self.runs_of(runs)).collect()
    }

    /// All runs, in no order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (QueueId, &Run)> {
        self.queues.iter().flat_map(|runs| self.runs_of(runs))
    }

    fn runs_of<'a>(&'a self, runs: &'a QueueRuns) -> impl Iterator<Item = (QueueId, &'a Run)> {
        runs.earlier.iter().chain(std::iter::once(&runs.current)).map(|run| (runs.queue, run))
    }

    fn slot(&mut self, queue: QueueId) -> Option<usize> {
        if let Some(runs) = self.queues.get(self.last)
            && runs.queue == queue
        {
            return Some(self.last);
        }
        let slot = *self.slots.get(&queue)?;
        self.last = slot;
        Some(slot)
    }

    fn push_first(&mut self, target: Target, offset: u32, sizes: (u64, u64)) {
        let current = Run::new(target, offset, sizes);
        self.last = self.queues.len();
        self.slots.insert(target.queue, self.last);
        let next = target.sequence.0.saturating_add(1);
        self.queues.push(QueueRuns { queue: target.queue, next, current, earlier: Vec::new() });
    }
}

impl Run {
    fn new(target: Target, offset: u32, (body_bytes, at_ms): (u64, u64)) -> Run {
        Run { first: target.sequence.0, body_bytes, first_ms: at_ms, last_ms: at_ms, offsets: vec![offset] }
    }
}

fn from_in(run: &Run, from: Sequence) -> Option<&[u32]> {
    let skipped = usize::try_from(from.0.checked_sub(run.first)?).ok()?;
    run.offsets.get(skipped..).filter(|offsets| !offsets.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn push(index: &mut MemoryIndex, queue: u64, sequence: u64, offset: u32) {
        index.push(Target { queue: QueueId(queue), sequence: Sequence(sequence) }, offset, (1, 1));
    }

    #[test]
    fn a_message_is_found_with_those_that_follow_without_a_gap() {
        let mut index = MemoryIndex::default();
        for (sequence, offset) in [(5, 64), (6, 100), (9, 140), (10, 180)] {
            push(&mut index, 1, sequence, offset);
            push(&mut index, 2, sequence + 100, offset);
        }

        assert_eq!(index.find(QueueId(1), Sequence(5)), Some(&[64, 100][..]));
        assert_eq!(index.find(QueueId(1), Sequence(6)), Some(&[100][..]));
        assert_eq!(index.find(QueueId(2), Sequence(110)), Some(&[180][..]));
        for absent in [4, 7, 8, 11] {
            assert_eq!(index.find(QueueId(1), Sequence(absent)), None);
        }
        assert_eq!(index.find(QueueId(3), Sequence(5)), None);
    }

    #[test]
    fn a_number_that_does_not_ascend_is_left_out() {
        let mut index = MemoryIndex::default();
        push(&mut index, 1, 5, 64);
        push(&mut index, 1, 5, 100);

        assert_eq!(index.next_of(QueueId(1)), 6);
        assert_eq!(index.find(QueueId(1), Sequence(5)), Some(&[64][..]));
    }

    #[test]
    fn runs_are_sorted_by_queue_and_first_number() {
        let mut index = MemoryIndex::default();
        push(&mut index, 9, 1, 64);
        push(&mut index, 2, 7, 100);
        push(&mut index, 9, 5, 140);

        let found: Vec<_> = index.sorted_runs().into_iter().map(|(queue, run)| (queue.0, run.first)).collect();

        assert_eq!(found, [(2, 7), (9, 1), (9, 5)]);
    }
}
