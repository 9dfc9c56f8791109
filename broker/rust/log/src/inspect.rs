//! Inspection of a stopped log: the content of each segment and its errors. It only reads, and goes on after corrupt
//! records.
//!
//! Invariants: a segment that was removed because it had no live message is not missing. The newest checkpoint decides:
//! every message that it counts as live must have a record, and nothing else below it must.

use std::path::Path;

use penstock_queue::{QueueId, Sequence, SequenceRange};

use crate::checkpoint::Checkpoints;
use crate::corruption::targets_at;
use crate::directory::Directory;
use crate::epochs::Epochs;
use crate::error::LogError;
use crate::fold::FoldState;
use crate::gap::Gap;
use crate::header::{HeaderFound, read_header, rewritten_segment};
use crate::manifest::Manifest;
use crate::names::Names;
use crate::record::{DecodeError, Position, Record, Target};
use crate::segment::{Check, Resume, SEGMENT_HEADER_BYTES, Segment, directory_path, rewritten_path, segment_path};

/// Stands for the file of messages that no segment holds.
const NO_FILE: &str = "no segment";

const NO_HEADER: &str = "its header cannot be read, and a copy of it says the same";

/// Content of one segment of a stopped log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentReport {
    pub file: String,
    pub first_position: u64,
    /// Bytes of its records, header not included.
    pub bytes: u64,
    pub records: u64,
    pub messages: u64,
    pub settles: u64,
    /// The first error, and its byte in the file.
    pub error: Option<String>,
    pub error_at: Option<u64>,
    /// Every record that cannot be read.
    pub corrupt: Vec<CorruptRecord>,
}

/// A record that cannot be read, and its targets as far as known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorruptRecord {
    /// Its byte in the file, and its position in the log.
    pub at: u64,
    pub position: u64,
    pub why: String,
    pub targets: Vec<Target>,
}

/// Reports on every segment that counts, oldest first; `verify` checks payloads and directories too. Messages that the
/// newest checkpoint counts as live and that have no record come last, under a name that no file has. The log is shard 0.
pub fn inspect(directory: &Path, verify: bool) -> Result<Vec<SegmentReport>, LogError> {
    inspect_shard(directory, 0, verify)
}

/// The same for the log of any shard. A segment of another one is reported.
pub fn inspect_shard(directory: &Path, shard: u16, verify: bool) -> Result<Vec<SegmentReport>, LogError> {
    let names = Names::list(directory)?;
    let (checkpoints, state) = Checkpoints::load(directory, &names.checkpoints, &mut None)?;
    // An older checkpoint than the newest file depends on segments that went since.
    let is_newest = checkpoints.newest_number() == names.checkpoints.last().copied();
    let covered = checkpoints.newest();
    let mut listed = list((directory, shard), &names, &state)?;
    let mut inspection = Inspection { verify, covered, left: state, next: None };
    for Listed { number, epoch, report, segment } in listed.iter_mut().rev() {
        if let Some(segment) = segment {
            inspection.inspect((*number, *epoch), report, segment);
        }
    }
    // Messages in a segment without a readable header are reported with that segment.
    let is_whole = is_newest && listed.iter().all(|listed| listed.segment.is_some());
    let lost = inspection.lost().filter(|_| is_whole);
    Ok(listed.into_iter().map(|listed| listed.report).chain(lost).collect())
}

/// One segment that counts; `None` when its header cannot be read.
struct Listed {
    number: u64,
    /// The epoch of the start that began it; `None` for a rewritten one.
    epoch: Option<u64>,
    report: SegmentReport,
    segment: Option<Segment>,
}

/// The segments that count, ascending.
fn list((directory, shard): (&Path, u16), names: &Names, state: &FoldState) -> Result<Vec<Listed>, LogError> {
    let covered = state.position;
    let manifest = Manifest::load(directory, &mut None)?;
    let mut listed = list_rewritten((directory, shard), &manifest, &state.epochs);
    let mut without_header = Vec::new();
    for &number in &names.segments {
        let path = segment_path(directory, number);
        let mut report = report_of(&path);
        let (mut segment, mut epoch) = (None, None);
        match read_header(&path) {
            // The next start removes the segments that a rewritten one replaces.
            Ok(HeaderFound::Segment(header, _) | HeaderFound::Copy(header, ..))
                if manifest.replacement(directory, header.first).is_some() =>
            {
                continue;
            }
            Ok(HeaderFound::Segment(header, bytes)) => {
                report.first_position = header.first.0;
                epoch = Some(header.epoch);
                segment = Some(Segment::new(directory, number, &header, bytes));
                if let Err(LogError::Corrupt { at, why, .. }) = header.check_shard(shard, &path) {
                    fail(&mut report, at, &why.to_string());
                }
            }
            Ok(HeaderFound::Copy(header, bytes, _)) => {
                report.first_position = header.first.0;
                epoch = Some(header.epoch);
                segment = Some(Segment::new(directory, number, &header, bytes));
                fail(&mut report, 0, NO_HEADER);
            }
            Ok(HeaderFound::Zeros) => {
                without_header.push(number);
                fail(&mut report, 0, "its header was never written");
            }
            Ok(HeaderFound::Unreadable(error)) | Err(error) => fail(&mut report, 0, &error.to_string()),
        }
        listed.push(Listed { number, epoch, report, segment });
    }
    listed.sort_by_key(|listed| listed.number);
    // A segment that was dead when the checkpoint was made never had to reach the disk, nor did its directory.
    without_header.retain(|&number| {
        let later = listed.partition_point(|listed| listed.number <= number);
        let next = listed.iter().skip(later).find_map(|listed| listed.segment.as_ref());
        next.is_some_and(|next| next.first() <= covered) && !directory_path(&segment_path(directory, number)).exists()
    });
    listed.retain(|listed| without_header.binary_search(&listed.number).is_err());
    Ok(listed)
}

fn list_rewritten((directory, shard): (&Path, u16), manifest: &Manifest, epochs: &Epochs) -> Vec<Listed> {
    let mut listed = Vec::with_capacity(manifest.entries.len());
    for entry in &manifest.entries {
        let mut report = report_of(&rewritten_path(directory, entry.number, entry.edition));
        report.first_position = entry.first.0;
        let segment = match rewritten_segment(directory, entry, (None, shard), epochs) {
            // It was dead when a checkpoint was made.
            Ok(None) => continue,
            Ok(Some((segment, is_readable))) => {
                if !is_readable {
                    fail(&mut report, 0, NO_HEADER);
                }
                Some(segment)
            }
            Err(error) => {
                fail(&mut report, 0, &error.to_string());
                None
            }
        };
        listed.push(Listed { number: entry.number, epoch: None, report, segment });
    }
    listed
}

fn report_of(path: &Path) -> SegmentReport {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    SegmentReport { file, ..SegmentReport::default() }
}

/// Inspects the segments from the newest to the oldest.
struct Inspection {
    verify: bool,
    /// Position of the newest checkpoint.
    covered: Position,
    /// Its state, with every found message settled.
    left: FoldState,
    next: Option<Next>,
}

/// The segment after the inspected one.
#[derive(Clone, Copy)]
struct Next {
    number: u64,
    epoch: Option<u64>,
    first: Position,
    /// Whether it was begun where the one before it ends. One start numbers its segments consecutively; another one
    /// continues from the existing files, and reuses the numbers of those that were removed as dead.
    is_behind: bool,
}

impl Inspection {
    fn inspect(&mut self, (number, epoch): (u64, Option<u64>), report: &mut SegmentReport, segment: &Segment) {
        if let Some(next) = &mut self.next {
            next.is_behind = next.number == number + 1 && next.epoch.is_some() && next.epoch == epoch;
        }
        let has_live = self.read(report, segment).unwrap_or_else(|error| {
            fail(report, 0, &error.to_string());
            true
        });
        if !has_live && segment.first() < self.covered && !segment.directory_path().exists() {
            // Dead when the checkpoint was made: its bytes never had to reach the disk.
            (report.error, report.error_at) = (None, None);
            report.corrupt.clear();
        }
        let told: Vec<Target> = report.corrupt.iter().flat_map(|corrupt| &corrupt.targets).copied().collect();
        told.into_iter().for_each(|target| {
            self.find(target);
        });
        if self.verify {
            verify_directory(report, segment);
        }
        if self.next.is_none_or(|next| segment.first() <= next.first) {
            self.next = Some(Next { number, epoch, first: segment.first(), is_behind: false });
        }
    }

    /// Reads all records; returns whether any of them is a message that the checkpoint counts as live.
    fn read(&mut self, report: &mut SegmentReport, segment: &Segment) -> Result<bool, LogError> {
        let limit = self.next.map(|next| next.first);
        if limit.is_some_and(|limit| limit < segment.first()) {
            return Ok(true);
        }
        if !segment.is_rewritten() {
            segment.set_readable(limit.map_or(segment.bytes(), |limit| segment.offset_of(limit)));
        }
        let check = if self.verify { Check::HeadAndPayload } else { Check::Head };
        let mut walk = segment.walk(SEGMENT_HEADER_BYTES, check)?;
        let (mut bytes, mut has_live) = (0, false);
        loop {
            let at = walk.offset();
            match walk.step() {
                Ok((_, decoded)) => {
                    bytes += u64::from(decoded.length);
                    decoded.each(0, |_, record| has_live |= self.count(report, record));
                }
                Err(_) if self.is_after_end(segment, at)? => return Ok(has_live),
                Err(error) => {
                    if !walk.resume(Resume::Anywhere) {
                        report.bytes = at - SEGMENT_HEADER_BYTES;
                        self.end_at(report, segment, (at, error))?;
                        return Ok(has_live);
                    }
                    add_corrupt(report, segment, at, error)?;
                }
            }
            report.bytes = bytes;
        }
    }

    /// Whether the bytes at an offset may be after the segment's end: a torn tail stays there, and only the next
    /// segment said where it began, which is gone since. A start reads only messages below the checkpoint, so nothing
    /// is missed after the last one that the index file names.
    fn is_after_end(&self, segment: &Segment, at: u64) -> Result<bool, LogError> {
        let has_next = self.next.is_some_and(|next| next.is_behind);
        if segment.is_rewritten() || segment.first() >= self.covered || has_next {
            return Ok(false);
        }
        Gap::by_directory(segment)?.map_or(Ok(false), |gap| gap.has_begun_at(at))
    }

    /// Returns whether the record is a live message.
    fn count(&mut self, report: &mut SegmentReport, record: &Record<'_>) -> bool {
        report.records += 1;
        match record {
            Record::Message(message) => {
                report.messages += 1;
                message.targets().fold(false, |is_live, target| self.find(target) | is_live)
            }
            Record::Settle(_) => {
                report.settles += 1;
                false
            }
            _ => false,
        }
    }

    /// Notes that a message has a record; returns whether it is live.
    fn find(&mut self, Target { queue, sequence }: Target) -> bool {
        let Some(left) = self.left.queues.get_mut(&queue) else { return false };
        let is_live = sequence < left.next && left.settled.next_unsettled(sequence) == sequence;
        if is_live {
            left.settled.insert(SequenceRange { first: sequence, last: sequence });
        }
        is_live
    }

    /// Nothing more can be read from an offset on: the end of the log or of the segment, unless there are bytes.
    fn end_at(
        &self,
        report: &mut SegmentReport,
        segment: &Segment,
        (at, ended): (u64, DecodeError),
    ) -> Result<(), LogError> {
        if ended != DecodeError::End {
            return add_corrupt(report, segment, at, ended);
        }
        if segment.is_rewritten() {
            if at != segment.bytes() {
                fail(report, at, "records are missing at its end");
            }
        } else if let Some(next) = self.next
            && next.first != segment.position_of(at)
            // Segments between them without live messages were removed.
            && (next.is_behind || next.first > self.covered)
        {
            fail(report, at, "records are missing before the next segment");
        }
        Ok(())
    }

    /// The live messages without a record.
    fn lost(&self) -> Option<SegmentReport> {
        let mut queues: Vec<QueueId> = self.left.queues.keys().copied().collect();
        queues.sort_unstable();
        let mut report = SegmentReport { file: NO_FILE.to_owned(), ..SegmentReport::default() };
        for queue in queues {
            let next = self.left.queues.get(&queue).map_or(0, |left| left.next.0);
            let mut runs = self.left.live_runs(queue, Sequence(0), next);
            let Some(first) = runs.next() else { continue };
            let count = runs.fold(first.count(), |count, run| count + run.count());
            let why = format!("{count} messages from {} on have no record in any segment", first.first.0);
            fail(&mut report, 0, &why);
            let targets = vec![Target { queue, sequence: first.first }];
            report.corrupt.push(CorruptRecord { at: 0, position: 0, why, targets });
        }
        report.error.is_some().then_some(report)
    }
}

fn add_corrupt(report: &mut SegmentReport, segment: &Segment, at: u64, why: DecodeError) -> Result<(), LogError> {
    fail(report, at, &why.to_string());
    let directory = Directory::of(segment);
    let directory = directory.is_usable()?.then_some(&directory);
    let targets = targets_at(segment, directory, at)?;
    let position = segment.claimed_position(at);
    report.corrupt.push(CorruptRecord { at, position: position.0, why: why.to_string(), targets });
    Ok(())
}

fn verify_directory(report: &mut SegmentReport, segment: &Segment) {
    if !segment.directory_path().exists() {
        return;
    }
    if let Err(error) = Directory::of(segment).verify() {
        fail(report, 0, &error.to_string());
    }
}

fn fail(report: &mut SegmentReport, at: u64, error: &str) {
    if report.error.is_none() {
        report.error = Some(error.to_owned());
        report.error_at = Some(at);
    }
}
