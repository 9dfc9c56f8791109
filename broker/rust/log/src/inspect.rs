//! Inspection of a stopped log: what each segment holds and what is wrong with it. Reads only, and goes on after what
//! is damaged.
//!
//! What must stay true: a segment that was removed because nothing in it lived is not missing. The newest checkpoint
//! decides: every message that it counts as live must have a record, and nothing else below it must.

use std::path::Path;

use penstock_queue::{QueueId, Sequence, SequenceRange};

use crate::checkpoint::Checkpoints;
use crate::damage::targets_at;
use crate::directory::Directory;
use crate::error::LogError;
use crate::fold::FoldState;
use crate::header::{HeaderFound, read_header, rewritten_segment};
use crate::manifest::Manifest;
use crate::names::Names;
use crate::record::{DecodeError, Position, Record, Target};
use crate::segment::{Check, SEGMENT_HEADER_BYTES, Segment, directory_path, rewritten_path, segment_path};

/// What stands for the file of messages that no segment holds.
const NO_FILE: &str = "no segment";

const NO_HEADER: &str = "its header cannot be read, and a copy of it says the same";

/// What one segment of a stopped log holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentReport {
    pub file: String,
    pub first_position: u64,
    /// Of its records, header not included.
    pub bytes: u64,
    pub records: u64,
    pub messages: u64,
    pub settles: u64,
    /// The first thing that is wrong, and its byte in the file.
    pub error: Option<String>,
    pub error_at: Option<u64>,
    /// Every record that cannot be read.
    pub damaged: Vec<DamagedRecord>,
}

/// A record that cannot be read, and whom it was for as far as anything tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRecord {
    /// Its byte in the file, and its position in the log.
    pub at: u64,
    pub position: u64,
    pub why: String,
    pub targets: Vec<Target>,
}

/// Reports on every segment that counts, oldest first; `verify` checks payloads and directories too. Messages that the
/// newest checkpoint counts as live and that have no record come last, under a name that no file has.
pub fn inspect(directory: &Path, verify: bool) -> Result<Vec<SegmentReport>, LogError> {
    let names = Names::list(directory)?;
    let (checkpoints, state) = Checkpoints::load(directory, &names.checkpoints, &mut None)?;
    // An older checkpoint than the newest file counts on segments that went since.
    let is_newest = checkpoints.newest_number() == names.checkpoints.last().copied();
    let covered = checkpoints.newest();
    let mut listed = list(directory, &names, covered)?;
    let mut inspection = Inspection { verify, covered, left: state, next: None };
    for Listed { number, epoch, report, segment } in listed.iter_mut().rev() {
        if let Some(segment) = segment {
            inspection.inspect((*number, *epoch), report, segment);
        }
    }
    // What lies in a segment without a readable header is told with that segment.
    let is_whole = is_newest && listed.iter().all(|listed| listed.segment.is_some());
    let lost = inspection.lost().filter(|_| is_whole);
    Ok(listed.into_iter().map(|listed| listed.report).chain(lost).collect())
}

/// One segment that counts; `None` when its header cannot be read.
struct Listed {
    number: u64,
    /// Of the start in which it was begun; none of a rewritten one.
    epoch: Option<u64>,
    report: SegmentReport,
    segment: Option<Segment>,
}

/// The segments that count, ascending.
fn list(directory: &Path, names: &Names, covered: Position) -> Result<Vec<Listed>, LogError> {
    let manifest = Manifest::load(directory, &mut None)?;
    let mut listed = list_rewritten(directory, &manifest);
    let mut without_header = Vec::new();
    for &number in &names.segments {
        let path = segment_path(directory, number);
        let mut report = report_of(&path);
        let (mut segment, mut epoch) = (None, None);
        match read_header(&path) {
            // What a rewritten segment stands for goes at the next start.
            Ok(HeaderFound::Segment(header, _) | HeaderFound::Copy(header, ..))
                if manifest.replacement(directory, header.first).is_some() =>
            {
                continue;
            }
            Ok(HeaderFound::Segment(header, bytes)) => {
                report.first_position = header.first.0;
                epoch = Some(header.epoch);
                segment = Some(Segment::new(directory, number, &header, bytes));
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
    // One that was dead when the checkpoint was made never had to reach the disk, nor did its directory.
    without_header.retain(|&number| {
        let later = listed.partition_point(|listed| listed.number <= number);
        let next = listed.iter().skip(later).find_map(|listed| listed.segment.as_ref());
        next.is_some_and(|next| next.first() <= covered) && !directory_path(&segment_path(directory, number)).exists()
    });
    listed.retain(|listed| without_header.binary_search(&listed.number).is_err());
    Ok(listed)
}

fn list_rewritten(directory: &Path, manifest: &Manifest) -> Vec<Listed> {
    let mut listed = Vec::with_capacity(manifest.entries.len());
    for entry in &manifest.entries {
        let mut report = report_of(&rewritten_path(directory, entry.number, entry.edition));
        report.first_position = entry.first.0;
        let segment = match rewritten_segment(directory, entry, None) {
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

/// Goes over the segments from the newest to the oldest.
struct Inspection {
    verify: bool,
    /// Where the newest checkpoint stands.
    covered: Position,
    /// Its state, with every message settled that was found.
    left: FoldState,
    next: Option<Next>,
}

/// The segment that follows the one that is inspected.
#[derive(Clone, Copy)]
struct Next {
    number: u64,
    epoch: Option<u64>,
    first: Position,
    /// Whether it was begun where the one before it ends. The same start numbers its segments one after another; another one
    /// goes by the files that it finds, and gives the numbers again of those that went because all in them was dead.
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
            report.damaged.clear();
        }
        let told: Vec<Target> = report.damaged.iter().flat_map(|damaged| &damaged.targets).copied().collect();
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

    /// Reads all records; says whether any of them is a message that the checkpoint counts as live.
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
                    has_live |= self.count(report, &decoded.record);
                }
                Err(_) if self.is_after_end(segment, at)? => return Ok(has_live),
                Err(error) => {
                    if !walk.resume() {
                        report.bytes = at - SEGMENT_HEADER_BYTES;
                        self.end_at(report, segment, (at, error))?;
                        return Ok(has_live);
                    }
                    add_damaged(report, segment, at, error)?;
                }
            }
            report.bytes = bytes;
        }
    }

    /// Whether what stands at an offset may lie after the segment's end: what a crash tore stays there, and where it began
    /// only the segment said that was next, which is gone since. No start reads anything but messages below the checkpoint, so
    /// that nothing is missed behind the last one that the index file names.
    fn is_after_end(&self, segment: &Segment, at: u64) -> Result<bool, LogError> {
        let has_next = self.next.is_some_and(|next| next.is_behind);
        if segment.is_rewritten() || segment.first() >= self.covered || has_next {
            return Ok(false);
        }
        let directory = Directory::of(segment);
        Ok(directory.is_usable()? && directory.last_offset()?.is_some_and(|last| u64::from(last) < at))
    }

    /// Says whether the record is a message that lives.
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

    /// Takes note that a message has a record; says whether it lives.
    fn find(&mut self, Target { queue, sequence }: Target) -> bool {
        let Some(left) = self.left.queues.get_mut(&queue) else { return false };
        let is_live = sequence < left.next && left.settled.next_unsettled(sequence) == sequence;
        if is_live {
            left.settled.insert(SequenceRange { first: sequence, last: sequence });
        }
        is_live
    }

    /// Nothing more can be read from an offset on: the end of the log or of the segment, unless something is written there.
    fn end_at(
        &self,
        report: &mut SegmentReport,
        segment: &Segment,
        (at, ended): (u64, DecodeError),
    ) -> Result<(), LogError> {
        if ended != DecodeError::End {
            return add_damaged(report, segment, at, ended);
        }
        if segment.is_rewritten() {
            if at != segment.bytes() {
                fail(report, at, "records are missing at its end");
            }
        } else if let Some(next) = self.next
            && next.first != segment.position_of(at)
            // Segments between them that nothing lived in were removed.
            && (next.is_behind || next.first > self.covered)
        {
            fail(report, at, "records are missing before the next segment");
        }
        Ok(())
    }

    /// The messages that live and have no record.
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
            report.damaged.push(DamagedRecord { at: 0, position: 0, why, targets });
        }
        report.error.is_some().then_some(report)
    }
}

fn add_damaged(report: &mut SegmentReport, segment: &Segment, at: u64, why: DecodeError) -> Result<(), LogError> {
    fail(report, at, &why.to_string());
    let directory = Directory::of(segment);
    let directory = directory.is_usable()?.then_some(&directory);
    let targets = targets_at(segment, directory, at)?;
    let position = segment.claimed_position(at);
    report.damaged.push(DamagedRecord { at, position: position.0, why: why.to_string(), targets });
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
