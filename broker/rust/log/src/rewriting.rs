//! Rewriting neighbouring segments into one with only their live messages, a slice at a time.
//!
//! Invariants: a record keeps its position, its payload and the payload's checksum; of its targets the live ones stay,
//! in their order; both checksums are checked before a copy. In the new file the sequences of a queue ascend, and
//! queues follow each other unless they share a record: those keep their order.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_queue::QueueId;
use rustc_hash::FxHashMap;

use crate::catalog::Holding;
use crate::checkpoint::unlink_if_there;
use crate::deadlines::Times;
use crate::directory::{self, Lookup};
use crate::disk::Disk;
use crate::encode::encode_pruned;
use crate::epochs::Codings;
use crate::error::{Corruption, LogError};
use crate::fold::FoldState;
use crate::format::Format;
use crate::index::MemoryIndex;
use crate::manifest;
use crate::record::{Position, Target};
use crate::record_reader::RecordReader;
use crate::segment::{Segment, SegmentHeader, directory_path, rewritten_path};

/// Bytes written between syncs, so that each sync has little to do.
const SYNC_BYTES: u64 = 8 << 20;

/// A record to copy: its live targets begin at `target` among all of them.
#[derive(Clone, Copy, Debug)]
struct Planned {
    source: u32,
    offset: u32,
    target: u32,
    count: u32,
    /// The lowest queue of those that are tied to each other by records they share.
    group: QueueId,
}

/// Why a slice failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Bytes of this segment are corrupt, or cannot be read.
    Source(Arc<Segment>, LogError),
    /// The new file cannot be written.
    Output(LogError),
    /// More messages are live than expected: nothing would be gained.
    NotWorthIt,
}

/// A rewrite; see the module.
#[derive(Debug)]
pub(crate) struct Rewriting {
    sources: Vec<RecordReader>,
    end: Position,
    records: Vec<Planned>,
    targets: Vec<Target>,
    done: usize,
    header: SegmentHeader,
    codings: Codings,
    edition: u32,
    path: PathBuf,
    file: Option<File>,
    buffer: Vec<u8>,
    written: u64,
    unsynced: u64,
    /// Above this it is not worth it.
    bytes_max: u64,
    index: MemoryIndex,
}

impl Rewriting {
    /// Lists the live messages of these neighbours, which have one format; `header` has the ids of the new segment, and comes with its shard.
    pub(crate) fn plan(
        directory: &Path,
        holdings: &[Holding],
        state: &FoldState,
        (header, shard): (SegmentHeader, u16),
    ) -> Result<Option<Rewriting>, Fault> {
        let (Some(first), Some(last)) = (holdings.first(), holdings.last()) else { return Ok(None) };
        let (mut sources, mut found) = (Vec::with_capacity(holdings.len()), Vec::new());
        for (source, held) in (0..).zip(holdings) {
            let segment = Arc::new(held.segment.unmapped());
            let listed = list(source, &held.lookup, state, &mut found);
            // Opened now: a fold may find it dead and remove it while it is copied.
            let opened = listed.and_then(|()| RecordReader::open(Arc::clone(&segment)));
            sources.push(opened.map_err(|error| Fault::Source(segment, error))?);
        }
        found.sort_unstable_by_key(|&(source, offset, target)| (source, offset, target.queue, target.sequence));
        let (records, targets) = gather(&found);
        let edition = first.segment.edition().saturating_add(1);
        let bytes: u64 = holdings.iter().map(|held| held.segment.room_bytes()).sum();
        let is_merge = holdings.iter().all(|held| held.segment.is_rewritten());
        let (format, epoch) = (first.segment.format(), first.segment.epoch());
        let is_rewritten = format == Format::Two;
        let epoch = if is_rewritten { epoch } else { header.epoch };
        let header = SegmentHeader { format, epoch, first: first.segment.first(), is_rewritten, ..header };
        let header = header.of_shard(shard);
        Ok(Some(Rewriting {
            end: last.end,
            header,
            codings: header.codings(&state.epochs, last.end),
            edition,
            path: rewritten_path(directory, first.segment.number(), edition),
            sources,
            records,
            targets,
            done: 0,
            file: None,
            buffer: Vec::new(),
            written: 0,
            unsynced: 0,
            bytes_max: if is_merge { u64::MAX } else { bytes / 8 * 7 },
            index: MemoryIndex::default(),
        }))
    }

    /// Copies records of about that many bytes; returns how many were written.
    pub(crate) fn step(&mut self, disk: &dyn Disk, bytes_max: u64) -> Result<u64, Fault> {
        if self.file.is_none() {
            self.create(disk).map_err(Fault::Output)?;
        }
        while (self.buffer.len() as u64) < bytes_max
            && let Some(&planned) = self.records.get(self.done)
        {
            self.copy(planned)?;
            self.done += 1;
        }
        let bytes = self.buffer.len() as u64;
        if self.written + bytes > self.bytes_max {
            return Err(Fault::NotWorthIt);
        }
        self.flush(disk).map_err(Fault::Output)?;
        Ok(bytes)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.file.is_some() && self.done == self.records.len()
    }

    /// Writes the directory of the copy; then file and directory are on the disk, their names not yet.
    pub(crate) fn seal(&self, disk: &dyn Disk, directory: &Path) -> Result<(Segment, Lookup), LogError> {
        let number = self.numbers().0;
        let coded = (&self.header, self.codings.clone());
        let segment = Segment::rewritten(directory, (number, self.edition), coded, self.written, self.end);
        let written = directory::save(disk, &segment, &self.index)?;
        Ok((segment, Lookup::File(Arc::new(written))))
    }

    pub(crate) fn entry(&self) -> manifest::Entry {
        manifest::Entry {
            number: self.numbers().0,
            edition: self.edition,
            segment_id: self.header.segment_id,
            first: self.header.first,
            end: self.end,
        }
    }

    /// The lowest and the highest number of the replaced segments.
    pub(crate) fn numbers(&self) -> (u64, u64) {
        let number = |source: Option<&RecordReader>| source.map_or(0, |source| source.segment().number());
        (number(self.sources.first()), number(self.sources.last()))
    }

    pub(crate) fn sources(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.sources.iter().map(RecordReader::segment)
    }

    /// Removes the copy; a start would, too.
    pub(crate) fn abandon(self, disk: &dyn Disk) -> Result<(), LogError> {
        drop(self.file);
        unlink_if_there(disk, &self.path)?;
        unlink_if_there(disk, &directory_path(&self.path))
    }

    fn create(&mut self, disk: &dyn Disk) -> Result<(), LogError> {
        unlink_if_there(disk, &self.path)?;
        let file = disk.create(&self.path, 0).map_err(|error| LogError::io("create", &self.path, error))?;
        self.file = Some(file);
        self.buffer.extend_from_slice(&self.header.encode());
        Ok(())
    }

    fn flush(&mut self, disk: &dyn Disk) -> Result<(), LogError> {
        let Some(file) = &self.file else { return Ok(()) };
        disk.write_at(file, &self.buffer, self.written).map_err(|error| LogError::io("write", &self.path, error))?;
        self.written += self.buffer.len() as u64;
        self.unsynced += self.buffer.len() as u64;
        self.buffer.clear();
        if self.unsynced >= SYNC_BYTES || self.done == self.records.len() {
            disk.sync(file).map_err(|error| LogError::io("sync", &self.path, error))?;
            self.unsynced = 0;
        }
        Ok(())
    }

    fn copy(&mut self, planned: Planned) -> Result<(), Fault> {
        let Some(source) = self.sources.get_mut(planned.source as usize) else { return Ok(()) };
        let from = planned.target as usize;
        let targets = self.targets.get(from..from + planned.count as usize).unwrap_or_default();
        let offset = self.written + self.buffer.len() as u64;
        let copied = copy_record(source, planned.offset, targets, &self.codings, &mut self.buffer);
        let copied = copied.map_err(|error| Fault::Source(Arc::clone(source.segment()), error))?;
        let Ok(offset) = u32::try_from(offset) else { return Err(Fault::NotWorthIt) };
        for target in targets {
            self.index.push(*target, offset, (copied.body_bytes, copied.stored_at_ms));
            self.index.push_deadlines(*target, copied.times);
        }
        Ok(())
    }
}

/// A live message: source, offset in it, and target.
type Found = (u32, u32, Target);

fn list(source: u32, lookup: &Lookup, state: &FoldState, found: &mut Vec<Found>) -> Result<(), LogError> {
    let Lookup::File(directory) = lookup else { return Ok(()) };
    directory.rebuild()?;
    for entry in directory.entries()? {
        for run in state.live_runs(entry.queue, entry.first, u64::from(entry.count)) {
            let offsets = directory.offsets(&entry, run.first, run.count() as usize)?;
            let target = |sequence| Target { queue: entry.queue, sequence };
            let sequences = std::iter::successors(Some(run.first), |sequence| Some(sequence.next()));
            found.extend(
                offsets.into_iter().zip(sequences).map(|(offset, sequence)| (source, offset, target(sequence))),
            );
        }
    }
    Ok(())
}

/// Joins targets of the same record, and orders the records.
fn gather(found: &[Found]) -> (Vec<Planned>, Vec<Target>) {
    let targets: Vec<Target> = found.iter().map(|&(_, _, target)| target).collect();
    let mut records: Vec<Planned> = Vec::new();
    let mut groups = Groups::default();
    for (at, &(source, offset, target)) in (0..).zip(found) {
        match records.last_mut() {
            Some(last) if (last.source, last.offset) == (source, offset) => {
                last.count += 1;
                groups.tie(last.group, target.queue);
            }
            _ => records.push(Planned { source, offset, target: at, count: 1, group: target.queue }),
        }
    }
    for record in &mut records {
        record.group = groups.lowest(record.group);
    }
    records.sort_unstable_by_key(|record| (record.group, record.source, record.offset));
    (records, targets)
}

/// Which queues are tied to each other.
#[derive(Default)]
struct Groups {
    below: FxHashMap<QueueId, QueueId>,
}

impl Groups {
    /// Path compression: every visited queue points to the answer from then on, so that chains stay short.
    fn lowest(&mut self, queue: QueueId) -> QueueId {
        let mut lowest = queue;
        while let Some(&below) = self.below.get(&lowest) {
            lowest = below;
        }
        let mut at = queue;
        while at != lowest {
            at = self.below.insert(at, lowest).unwrap_or(lowest);
        }
        lowest
    }

    fn tie(&mut self, one: QueueId, other: QueueId) {
        let (one, other) = (self.lowest(one), self.lowest(other));
        if one != other {
            self.below.insert(one.max(other), one.min(other));
        }
    }
}

/// The fields of a copied message that the index keeps.
struct Copied {
    body_bytes: u64,
    stored_at_ms: u64,
    times: Times,
}

/// Appends a record with only these of its targets, for another segment.
fn copy_record(
    source: &mut RecordReader,
    offset: u32,
    targets: &[Target],
    codings: &Codings,
    out: &mut Vec<u8>,
) -> Result<Copied, LogError> {
    let segment = Arc::clone(source.segment());
    let message = source.message(offset)?;
    if !targets.iter().all(|target| message.targets().any(|found| found == *target)) {
        return Err(segment.corrupt(u64::from(offset), Corruption::NoRecordHere));
    }
    encode_pruned(out, &message, targets, codings.of(|| message.position()));
    let (body_bytes, stored_at_ms) = (message.body.len() as u64, message.stored_at_ms);
    Ok(Copied { body_bytes, stored_at_ms, times: message.times() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_of_many_tied_queues_is_one_step_away_once_it_was_asked_for() {
        let mut groups = Groups::default();
        for queue in (0..1000).rev() {
            groups.tie(QueueId(queue + 1), QueueId(queue));
        }

        assert_eq!(groups.lowest(QueueId(1000)), QueueId(0));

        assert!((1..=1000).all(|queue| groups.below.get(&QueueId(queue)) == Some(&QueueId(0))));
    }
}
