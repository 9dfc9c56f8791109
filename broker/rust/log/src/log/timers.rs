//! The deadlines of a log's messages, as they come: for a segment with an index file only its earliest time is in memory.
//!
//! Invariants: no deadline is passed over, and each comes at least once in the life of a process; it may come again once
//! its segment was folded or rewritten, so whoever takes it asks the queue whether the message is still there. Only
//! deadlines of segments whose index is not written yet are kept one by one; those that a start finds are put in order when
//! the first of them comes, which is seldom before a fold has written them. Index files are read, and deadlines are put in
//! order, without the log's lock. Those of messages above the bound come when it has passed them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use super::Log;
use crate::deadlines::{Deadline, Times};
use crate::directory::{Directory, Lookup};
use crate::error::LogError;
use crate::index::MemoryIndex;
use crate::record::Target;
use crate::recovery::Sealed;
use crate::segment::Segment;

/// Times, and places among the deadlines of an index.
type Waiting = BinaryHeap<Reverse<(u64, u32)>>;

/// The deadlines of a segment that have not come yet.
#[derive(Debug)]
struct Timer {
    segment_id: u64,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// All deadlines of its index in memory: how many there are, and the earliest time.
    Unordered { count: usize, next_ms: u64 },
    /// Times, and places among the deadlines of its index in memory.
    Memory(Waiting),
    /// How many of those in its index file have come, and the time of the next one.
    File { taken: usize, next_ms: u64 },
}

impl Timer {
    fn next_ms(&self) -> Option<u64> {
        match &self.source {
            Source::Unordered { next_ms, .. } => Some(*next_ms),
            Source::Memory(waiting) => waiting.peek().map(|Reverse((at_ms, _))| *at_ms),
            Source::File { next_ms, .. } => Some(*next_ms).filter(|&next_ms| next_ms < u64::MAX),
        }
    }

    fn of(segment: &Segment, lookup: &Lookup) -> Option<Timer> {
        let source = match lookup {
            Lookup::Memory(index) => {
                Source::Unordered { count: index.deadlines().len(), next_ms: index.earliest_ms()? }
            }
            // When its header cannot be read now, whoever waits for the deadline gets the error.
            Lookup::File(directory) => Source::File { taken: 0, next_ms: directory.earliest_ms().unwrap_or(Some(0))? },
            Lookup::Nothing => return None,
        };
        Some(Timer { segment_id: segment.id(), source })
    }

    /// Whether it goes on although the segment was folded, rewritten or replaced.
    fn is_of(&self, segment: &Segment, lookup: &Lookup) -> bool {
        let is_same = matches!(
            (&self.source, lookup),
            (Source::Unordered { .. } | Source::Memory(_), Lookup::Memory(_)) | (Source::File { .. }, Lookup::File(_))
        );
        is_same && self.segment_id == segment.id()
    }
}

fn waiting(index: &MemoryIndex) -> Waiting {
    index.deadlines().iter().zip(0..).map(|(deadline, at)| Reverse((deadline.at_ms, at))).collect()
}

/// The timers of all segments with deadlines, by the segments' numbers.
#[derive(Debug, Default)]
pub(super) struct Timers {
    by_number: BTreeMap<u64, Timer>,
    /// Deadlines that came while their messages were above the bound: number of the segment, time, and place.
    early: Vec<(u64, (u64, u32))>,
    /// Whether some of those came back, and nothing was told so.
    has_returned: bool,
}

impl Timers {
    fn add(&mut self, segment: &Segment, added: &[Deadline], from: usize) {
        let empty = || Timer { segment_id: segment.id(), source: Source::Memory(BinaryHeap::new()) };
        if let Source::Memory(waiting) = &mut self.by_number.entry(segment.number()).or_insert_with(empty).source {
            let from = from as u32;
            waiting.extend(added.iter().zip(from..).map(|(deadline, at)| Reverse((deadline.at_ms, at))));
        }
    }

    /// The earliest time, and the number of the segment.
    fn next(&self) -> Option<(u64, u64)> {
        self.by_number.iter().filter_map(|(&number, timer)| Some((timer.next_ms()?, number))).min()
    }

    /// How many deadlines are kept one by one.
    pub(super) fn count_in_memory(&self) -> u64 {
        let count = |timer: &Timer| match &timer.source {
            Source::Unordered { count, .. } => *count as u64,
            Source::Memory(waiting) => waiting.len() as u64,
            Source::File { .. } => 0,
        };
        self.by_number.values().map(count).sum()
    }
}

/// Deadlines to be read, for a thread without the log's lock.
#[derive(Debug)]
#[must_use]
pub struct DeadlineTicket {
    number: u64,
    segment_id: u64,
    /// Those that were in memory.
    found: Vec<Deadline>,
    /// The index in memory whose deadlines are to be put in order.
    unordered: Option<Arc<MemoryIndex>>,
    /// The index file, and how many of its deadlines have come.
    file: Option<(Arc<Directory>, usize)>,
    to_ms: u64,
    count_max: usize,
}

/// Deadlines that have come, for [`Log::finish_deadlines`].
#[derive(Debug)]
#[must_use]
pub struct DeadlinesRead {
    number: u64,
    segment_id: u64,
    found: Vec<Deadline>,
    /// The deadlines of an index in memory, in order.
    ordered: Option<(Arc<MemoryIndex>, Waiting)>,
    /// How many of the file's have come, and the time of the next one.
    file: Option<(usize, Option<u64>)>,
    to_ms: u64,
    count_max: usize,
}

impl DeadlinesRead {
    /// The number of the segment that has the messages.
    #[must_use]
    pub fn segment(&self) -> u64 {
        self.number
    }
}

impl DeadlineTicket {
    pub fn perform(self) -> Result<DeadlinesRead, LogError> {
        let DeadlineTicket { number, segment_id, found, unordered, file, to_ms, count_max } = self;
        let ordered = unordered.map(|index| {
            let waiting = waiting(&index);
            (index, waiting)
        });
        let mut read = DeadlinesRead { number, segment_id, found, ordered, file: None, to_ms, count_max };
        if let Some((directory, taken)) = file {
            let (found, next_ms) = directory.deadlines(taken, (to_ms, count_max))?;
            // Pieces come from the page cache again, and the next ones may be far away.
            directory.release();
            read.file = Some((taken + found.len(), next_ms));
            read.found.extend(found);
        }
        Ok(read)
    }
}

impl Log {
    /// The time of the next deadline; there may be nothing to do then.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.timers.next().map(|(at_ms, _)| at_ms)
    }

    /// Whether the bound was raised since the last call while deadlines waited for it: they have come, and are found now.
    pub fn take_returned_deadlines(&mut self) -> bool {
        std::mem::take(&mut self.timers.has_returned)
    }

    /// The deadlines of a segment up to a time, at most so many, to be read without the lock; `None` when none has come.
    /// Ask again after [`Log::finish_deadlines`], and for one ticket at a time.
    pub fn begin_deadlines(&mut self, to_ms: u64, count_max: usize) -> Option<DeadlineTicket> {
        let (_, number) = self.timers.next().filter(|&(at_ms, _)| at_ms <= to_ms)?;
        let timer = self.timers.by_number.get(&number)?;
        let segment_id = timer.segment_id;
        let (unordered, file) = match (&timer.source, self.lookup_of(number)) {
            (Source::Memory(_), None | Some(Lookup::Memory(_))) => (None, None),
            (Source::Unordered { .. }, Some(Lookup::Memory(index))) => (Some(Arc::clone(index)), None),
            (Source::File { taken, .. }, Some(Lookup::File(directory))) => {
                (None, Some((Arc::clone(directory), *taken)))
            }
            _ => return None,
        };
        let is_waiting = unordered.is_none() && file.is_none();
        let found = if is_waiting { self.take_waiting(number, to_ms, count_max) } else { Vec::new() };
        Some(DeadlineTicket { number, segment_id, found, unordered, file, to_ms, count_max })
    }

    /// Notes how far a ticket has read; returns its deadlines, each with a message that may be gone.
    pub fn finish_deadlines(&mut self, read: DeadlinesRead) -> Vec<Deadline> {
        let DeadlinesRead { number, segment_id, mut found, ordered, file, to_ms, count_max } = read;
        // One that was folded or cut meanwhile has another timer.
        let now = self.lookup_of(number);
        let ordered = ordered.filter(|(of, _)| matches!(now, Some(Lookup::Memory(index)) if Arc::ptr_eq(index, of)));
        let timer = self.timers.by_number.get_mut(&number).filter(|timer| timer.segment_id == segment_id);
        match (timer.map(|timer| &mut timer.source), ordered, file) {
            (Some(source @ Source::Unordered { .. }), Some((_, waiting)), _) => {
                *source = Source::Memory(waiting);
                found.extend(self.take_waiting(number, to_ms, count_max));
            }
            (Some(Source::File { taken, next_ms }), _, Some((now_taken, next))) => {
                (*taken, *next_ms) = (now_taken, next.unwrap_or(u64::MAX));
            }
            _ => {}
        }
        found
    }

    fn lookup_of(&self, number: u64) -> Option<&Lookup> {
        let at = self.sealed.binary_search_by_key(&number, |sealed| sealed.segment.number()).ok()?;
        self.sealed.get(at).map(|sealed| &sealed.lookup)
    }

    /// Takes the next deadlines of an index in memory up to a time, at most so many. Those of messages above the bound are put
    /// aside.
    fn take_waiting(&mut self, number: u64, to_ms: u64, count_max: usize) -> Vec<Deadline> {
        let sealed = self.sealed.binary_search_by_key(&number, |sealed| sealed.segment.number());
        let (segment, index) = match sealed.ok().and_then(|at| self.sealed.get(at)) {
            Some(Sealed { segment, lookup: Lookup::Memory(index), .. }) => (segment, index.as_ref()),
            Some(_) => return Vec::new(),
            None => (&self.active.segment, &self.active.index),
        };
        let Some(Timer { source: Source::Memory(waiting), .. }) = self.timers.by_number.get_mut(&number) else {
            return Vec::new();
        };
        let readable = self.bound.map_or(u64::MAX, |_| segment.readable());
        let is_hidden = |deadline: &Deadline| {
            let offsets = index.find(deadline.queue, deadline.sequence);
            offsets.and_then(|offsets| offsets.first()).is_some_and(|&offset| u64::from(offset) >= readable)
        };
        let mut found = Vec::new();
        while found.len() < count_max
            && let Some(&Reverse((at_ms, at))) = waiting.peek()
            && at_ms <= to_ms
        {
            waiting.pop();
            match index.deadlines().get(at as usize) {
                Some(deadline) if is_hidden(deadline) => self.timers.early.push((number, (at_ms, at))),
                deadline => found.extend(deadline),
            }
        }
        found
    }

    /// Adds the deadlines of a message to the active segment.
    #[cold]
    pub(super) fn push_deadlines(&mut self, targets: &[Target], times: Times) {
        let index = &mut self.active.index;
        let from = index.deadlines().len();
        targets.iter().for_each(|target| index.push_deadlines(*target, times));
        self.add_timers_from(from);
    }

    /// Adds timers for the deadlines of the active segment from that one on.
    pub(super) fn add_timers_from(&mut self, from: usize) {
        let added = self.active.index.deadlines().get(from..).unwrap_or_default();
        if !added.is_empty() {
            self.timers.add(&self.active.segment, added, from);
        }
    }

    /// Lets deadlines come again that came while their messages were above the bound.
    pub(super) fn return_early_deadlines(&mut self) {
        self.timers.has_returned |= !self.timers.early.is_empty();
        for (number, deadline) in std::mem::take(&mut self.timers.early) {
            // One that was folded meanwhile has them all again.
            if let Some(Timer { source: Source::Memory(waiting), .. }) = self.timers.by_number.get_mut(&number) {
                waiting.push(Reverse(deadline));
            }
        }
    }

    /// Forgets the timers of a segment that is cut: the part of it that stays gets new ones.
    pub(super) fn cut_timers(&mut self, number: u64) {
        self.timers.by_number.remove(&number);
        self.timers.early.retain(|&(of, _)| of != number);
    }

    /// Makes the timers those of the present segments, after some were folded, rewritten or removed.
    pub(super) fn follow_segments(&mut self) {
        let mut before = std::mem::take(&mut self.timers.by_number);
        let active = self.active.segment.number();
        self.timers.by_number.extend(before.remove_entry(&active));
        for sealed in &self.sealed {
            let number = sealed.segment.number();
            let kept = before.remove(&number).filter(|timer| timer.is_of(&sealed.segment, &sealed.lookup));
            if let Some(timer) = kept.or_else(|| Timer::of(&sealed.segment, &sealed.lookup)) {
                self.timers.by_number.insert(number, timer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use penstock_queue::{QueueId, Sequence};

    use super::*;
    use crate::encode::Payload;
    use crate::log::LogOptions;
    use crate::record::Attributes;

    fn open(directory: &std::path::Path) -> Log {
        let options = LogOptions { segment_bytes_min: 1 << 12, segment_bytes_max: 1 << 12, ..LogOptions::default() };
        let mut opened = Log::open(directory, options).unwrap();
        opened.begin_epoch(Default::default()).unwrap();
        opened.log
    }

    fn unordered(log: &Log) -> usize {
        let is_unordered = |timer: &&Timer| matches!(timer.source, Source::Unordered { .. });
        log.timers.by_number.values().filter(is_unordered).count()
    }

    /// A start put all of them in order, a fifth of the time that it took without any, for folds to write them soon after.
    #[test]
    fn a_start_puts_no_deadlines_in_order_and_the_first_that_comes_those_of_its_segment() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = open(directory.path());
        for number in 1..=200 {
            let attributes = Attributes { expires_at_ms: Some(1000 - number), ..Attributes::default() };
            let payload = Payload::new(b"", b"jobs", b"", &[7; 20]).unwrap().with_attributes(&attributes);
            let target = Target { queue: QueueId(1), sequence: Sequence(number) };
            log.append_message(&payload, 5, &[target]).unwrap();
        }
        log.write().unwrap();
        drop(log);

        let mut log = open(directory.path());
        let (count, segments) = (unordered(&log), log.timers.by_number.len());
        assert!(segments > 2);
        assert_eq!(count, segments);

        let ticket = log.begin_deadlines(802, 3).unwrap();
        assert_eq!(unordered(&log), count, "that is done without the lock");
        let found = ticket.perform().map(|read| log.finish_deadlines(read)).unwrap();
        assert_eq!(found.iter().map(|deadline| deadline.at_ms).collect::<Vec<_>>(), [800, 801, 802]);
        assert_eq!(unordered(&log), count - 1);
    }
}
