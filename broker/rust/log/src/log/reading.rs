//! Look-ups for readers: any message by its sequence, the oldest segment's part of a queue, the newest time;
//! and the release of maps without readers.
//!
//! Invariants: a queue's sequences ascend from segment to segment, rewritten ones included, so a binary search finds
//! segments. Only [`Log::newest_time`], which is for a start, reads records.

use std::sync::Arc;

use penstock_queue::{QueueId, Sequence, SequenceRange};

use super::Log;
use crate::directory::Lookup;
use crate::error::LogError;
use crate::fold_ticket::Retired;
use crate::index::Reach;
use crate::record_reader::RecordReader;
use crate::segment::{Located, Segment};

/// The part of a queue in one sealed segment.
#[derive(Clone, Debug)]
pub struct Portion {
    pub segment: Arc<Segment>,
    /// Ascending, each whole and with the bytes of its bodies; the first may begin below the requested sequence.
    pub runs: Vec<(SequenceRange, u64)>,
    /// Where the record of the last of them begins.
    pub last_offset: u32,
}

impl Log {
    /// Removes the maps of segments in which no message was located since the last call. The next use maps them again;
    /// the old maps go when the returned value and their last reader are dropped.
    pub fn unmap_idle(&mut self) -> Retired {
        let mut retired = Retired::default();
        for sealed in &mut self.sealed {
            if sealed.segment.take_used() {
                continue;
            }
            if let Some(unmapped) = sealed.lookup.unmapped() {
                retired.lookups.push(std::mem::replace(&mut sealed.lookup, unmapped));
            }
            retired.segments.extend(unmap(&mut sealed.segment));
        }
        if !self.active.segment.take_used() {
            retired.segments.extend(unmap(&mut self.active.segment));
        }
        retired
    }

    /// Finds the message with exactly that sequence, with those that follow it without a gap in the same segment, at
    /// most `count_max` in all; `None` when it is not stored, or not written yet.
    pub fn locate(&self, queue: QueueId, from: Sequence, count_max: usize) -> Result<Option<Located>, LogError> {
        if let Some(offsets) = self.active.index.find(queue, from) {
            let readable = self.active.segment.readable();
            let offsets = offsets.iter().take(count_max).take_while(|&&offset| u64::from(offset) < readable);
            return Ok(self.located(&self.active.segment, None, from, offsets.copied().collect()));
        }
        let hint = self.hints.borrow().get(&queue).copied().unwrap_or(0);
        let begin = self.sealed.partition_point(|sealed| sealed.segment.number() < hint);
        for at in [begin, begin + 1] {
            if let Some(located) = self.locate_in(at, queue, from, count_max)? {
                return Ok(Some(located));
            }
        }
        // Elsewhere a binary search finds it: a log may have thousands of segments.
        match self.first_sealed(queue, from)? {
            Some((at, first)) if first == from => self.locate_in(at, queue, from, count_max),
            _ => Ok(None),
        }
    }

    fn locate_in(
        &self,
        at: usize,
        queue: QueueId,
        from: Sequence,
        count_max: usize,
    ) -> Result<Option<Located>, LogError> {
        let Some(sealed) = self.sealed.get(at) else { return Ok(None) };
        let Some(offsets) = sealed.lookup.find(queue, from, count_max)? else { return Ok(None) };
        self.hints.borrow_mut().insert(queue, sealed.segment.number());
        Ok(self.located(&sealed.segment, Some(&sealed.lookup), from, offsets))
    }

    /// The queue's first message with that sequence or a higher one, with those that follow it without a gap in the
    /// same segment, at most `count_max` in all. `hint` is the number of the segment to search first.
    pub fn seek(
        &self,
        queue: QueueId,
        from: Sequence,
        count_max: usize,
        hint: u64,
    ) -> Result<Option<Located>, LogError> {
        if let Some(found) = self.seek_active(queue, from, count_max) {
            return Ok(Some(found));
        }
        let hinted = self.sealed.partition_point(|sealed| sealed.segment.number() < hint);
        for sealed in self.sealed.iter().skip(hinted).take(2) {
            if let Some(offsets) = sealed.lookup.find(queue, from, count_max)? {
                return Ok(self.located(&sealed.segment, Some(&sealed.lookup), from, offsets));
            }
        }
        let Some((at, first)) = self.first_sealed(queue, from)? else {
            return Ok(match self.active.index.reach(queue, from) {
                Reach::At(first) => self.seek_active(queue, first, count_max),
                Reach::Absent | Reach::Below => None,
            });
        };
        let Some(sealed) = self.sealed.get(at) else { return Ok(None) };
        let offsets = sealed.lookup.find(queue, first, count_max)?.unwrap_or_default();
        Ok(self.located(&sealed.segment, Some(&sealed.lookup), first, offsets))
    }

    /// When the run of stored messages began that has the message with that sequence: none from it on was stored before.
    /// `None` when it is not stored, or its index does not say.
    pub fn stored_from(&self, queue: QueueId, sequence: Sequence) -> Result<Option<u64>, LogError> {
        if let Some(run) = self.active.index.run_of(queue, sequence) {
            return Ok(Some(run.first_ms));
        }
        match self.first_sealed(queue, sequence)? {
            Some((at, first)) if first == sequence => {
                self.sealed.get(at).map_or(Ok(None), |sealed| sealed.lookup.stored_from(queue, sequence))
            }
            _ => Ok(None),
        }
    }

    /// The part from there on of the first sealed segment with a message of the queue at or above `from`; none of a segment
    /// that ends above the bound.
    pub fn portion(&self, queue: QueueId, from: Sequence) -> Result<Option<Portion>, LogError> {
        let Some((at, from)) = self.first_sealed(queue, from)? else { return Ok(None) };
        let Some(sealed) = self.sealed.get(at).filter(|_| at < self.within_bound()) else { return Ok(None) };
        let runs = sealed.lookup.runs_from(queue, from)?;
        let Some(&(last, _)) = runs.last() else { return Ok(None) };
        let last_offset = sealed.lookup.find(queue, last.last, 1)?.and_then(|offsets| offsets.first().copied());
        let segment = Arc::clone(&sealed.segment);
        Ok(last_offset.map(|last_offset| Portion { segment, runs, last_offset }))
    }

    /// The latest time of a message stored by an earlier process; 0 when none can be read.
    pub fn newest_time(&self) -> Result<u64, LogError> {
        for sealed in self.sealed.iter().rev() {
            let mut offsets = sealed.lookup.last_offsets()?;
            let readable = sealed.segment.readable();
            offsets.retain(|&offset| u64::from(offset) < readable);
            if !sealed.segment.is_rewritten() {
                // Records are in the order in which they were stored.
                offsets = offsets.into_iter().max().into_iter().collect();
            }
            let mut newest = None;
            let mut records = RecordReader::open(Arc::clone(&sealed.segment))?;
            for offset in offsets {
                match records.message(offset) {
                    Ok(message) => newest = newest.max(Some(message.stored_at_ms)),
                    Err(LogError::Corrupt { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            if let Some(newest) = newest {
                return Ok(newest);
            }
        }
        Ok(0)
    }

    pub(super) fn located(
        &self,
        segment: &Arc<Segment>,
        lookup: Option<&Lookup>,
        first: Sequence,
        offsets: Vec<u32>,
    ) -> Option<Located> {
        if offsets.is_empty() {
            return None;
        }
        segment.mark_used();
        self.recent.borrow_mut().note(segment, lookup);
        let offsets = if self.bound.is_some() { up_to_readable(segment, offsets)? } else { offsets };
        // Mapped now, so that the bytes stay readable when the file is removed; a reader meets a failure again.
        let _ = segment.map();
        Some(Located { segment: Arc::clone(segment), first, offsets })
    }

    fn seek_active(&self, queue: QueueId, from: Sequence, count_max: usize) -> Option<Located> {
        let offsets = self.active.index.find(queue, from)?;
        let readable = self.active.segment.readable();
        let offsets = offsets.iter().take(count_max).take_while(|&&offset| u64::from(offset) < readable);
        self.located(&self.active.segment, None, from, offsets.copied().collect())
    }

    /// The index among the sealed segments of the first one with such a message, and the message's sequence.
    pub(super) fn first_sealed(&self, queue: QueueId, from: Sequence) -> Result<Option<(usize, Sequence)>, LogError> {
        let (mut low, mut high) = (0, self.sealed.len());
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let mut at = middle;
            let mut reach = Reach::Absent;
            for sealed in self.sealed.iter().take(high).skip(middle) {
                reach = sealed.lookup.reach(queue, from)?;
                if reach != Reach::Absent {
                    break;
                }
                at += 1;
            }
            match reach {
                Reach::Absent => high = middle,
                Reach::Below => low = at + 1,
                Reach::At(first) => {
                    found = Some((at, first));
                    high = middle;
                }
            }
        }
        Ok(found)
    }
}

/// The offsets of records that can be read; `None` without any.
fn up_to_readable(segment: &Segment, mut offsets: Vec<u32>) -> Option<Vec<u32>> {
    let readable = segment.readable();
    offsets.truncate(offsets.partition_point(|&offset| u64::from(offset) < readable));
    (!offsets.is_empty()).then_some(offsets)
}

impl Lookup {
    fn reach(&self, queue: QueueId, from: Sequence) -> Result<Reach, LogError> {
        match self {
            Lookup::Memory(index) => Ok(index.reach(queue, from)),
            Lookup::File(directory) => directory.reach(queue, from),
            Lookup::Nothing => Ok(Reach::Absent),
        }
    }

    fn stored_from(&self, queue: QueueId, sequence: Sequence) -> Result<Option<u64>, LogError> {
        Ok(match self {
            Lookup::Memory(index) => index.run_of(queue, sequence).map(|run| run.first_ms),
            Lookup::File(directory) => {
                let entry = directory.own_entries(queue, sequence)?.next().filter(|entry| entry.first <= sequence);
                entry.and_then(|entry| entry.stored_ms).map(|(first_ms, _)| first_ms)
            }
            Lookup::Nothing => None,
        })
    }

    /// The queue's runs that reach up to that sequence or beyond.
    fn runs_from(&self, queue: QueueId, from: Sequence) -> Result<Vec<(SequenceRange, u64)>, LogError> {
        let run = |first: u64, count: usize, bytes: u64| {
            let last = Sequence(first.saturating_add(count as u64).saturating_sub(1));
            SequenceRange::new(Sequence(first), last).filter(|range| range.last >= from).map(|range| (range, bytes))
        };
        Ok(match self {
            Lookup::Memory(index) => {
                index.own_runs(queue).filter_map(|own| run(own.first, own.offsets.len(), own.body_bytes)).collect()
            }
            Lookup::File(directory) => {
                let own = directory.own_entries(queue, from)?;
                own.filter_map(|entry| run(entry.first.0, entry.count as usize, entry.body_bytes)).collect()
            }
            Lookup::Nothing => Vec::new(),
        })
    }

    /// Where the last record of every run begins.
    fn last_offsets(&self) -> Result<Vec<u32>, LogError> {
        match self {
            Lookup::Memory(index) => Ok(index.runs().filter_map(|(_, run)| run.offsets.last().copied()).collect()),
            Lookup::File(directory) => {
                let mut offsets = Vec::new();
                for entry in directory.entries()? {
                    let last = Sequence(entry.first.0.saturating_add(u64::from(entry.count)).saturating_sub(1));
                    offsets.extend(directory.offsets(&entry, last, 1)?);
                }
                Ok(offsets)
            }
            Lookup::Nothing => Ok(Vec::new()),
        }
    }
}

fn unmap(segment: &mut Arc<Segment>) -> Option<Arc<Segment>> {
    segment.is_mapped().then(|| std::mem::replace(segment, Arc::new(segment.unmapped())))
}
