//! Looking at a stopped log: what each segment holds and where it stops making sense. Reads only, and goes on after what
//! is damaged.

use std::path::Path;

use crate::damage::targets_at;
use crate::directory::Directory;
use crate::error::LogError;
use crate::header::{HeaderFound, read_header, rewritten_segment};
use crate::manifest::Manifest;
use crate::names::Names;
use crate::record::{DecodeError, Position, Record, Target};
use crate::segment::{Check, SEGMENT_HEADER_BYTES, Segment, rewritten_path, segment_path};

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

/// Reports on every segment that counts, oldest first; `verify` checks payloads and directories too.
pub fn inspect(directory: &Path, verify: bool) -> Result<Vec<SegmentReport>, LogError> {
    let names = Names::list(directory)?;
    let manifest = Manifest::load(directory, &mut None)?;
    let mut found: Vec<(u64, SegmentReport, Option<Segment>)> = Vec::new();
    for entry in &manifest.entries {
        let mut report = report_of(&rewritten_path(directory, entry.number, entry.edition));
        report.first_position = entry.first.0;
        match rewritten_segment(directory, entry, None) {
            // It was dead when a checkpoint was made.
            Ok(None) => continue,
            Ok(Some((segment, is_readable))) => {
                if !is_readable {
                    fail(&mut report, 0, NO_HEADER);
                }
                found.push((entry.number, report, Some(segment)));
            }
            Err(error) => {
                fail(&mut report, 0, &error.to_string());
                found.push((entry.number, report, None));
            }
        }
    }
    for &number in &names.segments {
        let path = segment_path(directory, number);
        let mut report = report_of(&path);
        let mut segment = None;
        match read_header(&path) {
            // What a rewritten segment stands for goes at the next start.
            Ok(HeaderFound::Segment(header, _) | HeaderFound::Copy(header, ..)) if manifest.covers(header.first) => {
                continue;
            }
            Ok(HeaderFound::Segment(header, bytes)) => {
                report.first_position = header.first.0;
                segment = Some(Segment::new(directory, number, &header, bytes));
            }
            Ok(HeaderFound::Copy(header, bytes, _)) => {
                report.first_position = header.first.0;
                segment = Some(Segment::new(directory, number, &header, bytes));
                fail(&mut report, 0, NO_HEADER);
            }
            Ok(HeaderFound::Zeros) => fail(&mut report, 0, "its header was never written"),
            Ok(HeaderFound::Unreadable(error)) | Err(error) => fail(&mut report, 0, &error.to_string()),
        }
        found.push((number, report, segment));
    }
    found.sort_by_key(|&(number, ..)| number);
    let mut limit = None;
    for (_, report, segment) in found.iter_mut().rev() {
        let Some(segment) = segment else { continue };
        if let Err(error) = read(report, segment, limit, verify) {
            fail(report, 0, &error.to_string());
        }
        if verify {
            verify_directory(report, segment);
        }
        limit = Some(limit.map_or(segment.first(), |limit: Position| limit.min(segment.first())));
    }
    Ok(found.into_iter().map(|(_, report, _)| report).collect())
}

fn report_of(path: &Path) -> SegmentReport {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    SegmentReport { file, ..SegmentReport::default() }
}

fn read(report: &mut SegmentReport, segment: &Segment, limit: Option<Position>, verify: bool) -> Result<(), LogError> {
    if limit.is_some_and(|limit| limit < segment.first()) {
        return Ok(());
    }
    if !segment.is_rewritten() {
        segment.set_readable(limit.map_or(segment.bytes(), |limit| segment.offset_of(limit)));
    }
    let check = if verify { Check::HeadAndPayload } else { Check::Head };
    let mut walk = segment.walk(SEGMENT_HEADER_BYTES, check)?;
    let mut bytes = 0;
    loop {
        let at = walk.offset();
        match walk.step() {
            Ok((_, decoded)) => {
                report.records += 1;
                report.messages += u64::from(matches!(decoded.record, Record::Message(_)));
                report.settles += u64::from(matches!(decoded.record, Record::Settle(_)));
                bytes += u64::from(decoded.length);
            }
            Err(error) => {
                if !walk.resume() {
                    report.bytes = at - SEGMENT_HEADER_BYTES;
                    return end_at(report, segment, at, error, limit);
                }
                add_damaged(report, segment, at, error)?;
            }
        }
        report.bytes = bytes;
    }
}

/// Nothing more can be read from an offset on: the end of the log or of the segment, unless something is written there.
fn end_at(
    report: &mut SegmentReport,
    segment: &Segment,
    at: u64,
    ended: DecodeError,
    limit: Option<Position>,
) -> Result<(), LogError> {
    if ended != DecodeError::End {
        add_damaged(report, segment, at, ended)
    } else if segment.is_rewritten() {
        if at != segment.bytes() {
            fail(report, at, "records are missing at its end");
        }
        Ok(())
    } else if limit.is_some_and(|limit| limit != segment.position_of(at)) {
        fail(report, at, "records are missing before the next segment");
        Ok(())
    } else {
        Ok(())
    }
}

fn add_damaged(report: &mut SegmentReport, segment: &Segment, at: u64, why: DecodeError) -> Result<(), LogError> {
    fail(report, at, &why.to_string());
    let directory = Directory::new(segment.directory_path(), segment.id());
    let directory = directory.is_usable()?.then_some(&directory);
    let targets = targets_at(segment, directory, at)?;
    let position = segment.claimed_position(at);
    report.damaged.push(DamagedRecord { at, position: position.0, why: why.to_string(), targets });
    Ok(())
}

fn verify_directory(report: &mut SegmentReport, segment: &Segment) {
    let path = segment.directory_path();
    if !path.exists() {
        return;
    }
    if let Err(error) = Directory::new(path, segment.id()).verify() {
        fail(report, 0, &error.to_string());
    }
}

fn fail(report: &mut SegmentReport, at: u64, error: &str) {
    if report.error.is_none() {
        report.error = Some(error.to_owned());
        report.error_at = Some(at);
    }
}
