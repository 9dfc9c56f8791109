//! Looking at a stopped log: what each segment holds and where it stops making sense. Reads only, and goes on after what
//! is damaged.

use std::path::Path;

use crate::directory::{Directory, directory_path};
use crate::error::LogError;
use crate::record::{DecodeError, Position, Record};
use crate::recovery::{HeaderFound, Names, read_header};
use crate::segment::{Check, SEGMENT_HEADER_BYTES, Segment, segment_path};

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
    pub error: Option<String>,
    pub error_at: Option<u64>,
}

/// Reports on every segment, oldest first; `verify` checks payloads and directories too.
pub fn inspect(directory: &Path, verify: bool) -> Result<Vec<SegmentReport>, LogError> {
    let names = Names::list(directory)?;
    let mut reports = Vec::new();
    let mut segments = Vec::new();
    for &number in &names.segments {
        let path = segment_path(directory, number);
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut report = SegmentReport { file, ..SegmentReport::default() };
        let mut segment = None;
        match read_header(directory, number) {
            Ok(HeaderFound::Segment(header, bytes)) => {
                report.first_position = header.first.0;
                segment = Some(Segment::new(directory, number, &header, bytes));
            }
            Ok(HeaderFound::Zeros) => fail(&mut report, 0, "its header was never written"),
            Ok(HeaderFound::Unreadable(error)) | Err(error) => fail(&mut report, 0, &error.to_string()),
        }
        reports.push(report);
        segments.push(segment);
    }
    let mut limit = None;
    for (report, segment) in reports.iter_mut().zip(&segments).rev() {
        let Some(segment) = segment else { continue };
        if let Err(error) = read(report, segment, limit, verify) {
            fail(report, 0, &error.to_string());
        }
        if verify && report.error.is_none() {
            verify_directory(report, directory, segment);
        }
        limit = Some(limit.map_or(segment.first(), |limit: Position| limit.min(segment.first())));
    }
    Ok(reports)
}

fn read(report: &mut SegmentReport, segment: &Segment, limit: Option<Position>, verify: bool) -> Result<(), LogError> {
    if limit.is_some_and(|limit| limit < segment.first()) {
        return Ok(());
    }
    segment.set_readable(limit.map_or(segment.bytes(), |limit| segment.offset_of(limit)));
    let mut walk = segment.walk(SEGMENT_HEADER_BYTES, if verify { Check::HeadAndPayload } else { Check::Head })?;
    let ended = loop {
        match walk.step() {
            Ok((_, decoded)) => {
                report.records += 1;
                report.messages += u64::from(matches!(decoded.record, Record::Message(_)));
                report.settles += u64::from(matches!(decoded.record, Record::Settle(_)));
            }
            Err(error) => break error,
        }
    };
    let at = walk.offset();
    report.bytes = at - SEGMENT_HEADER_BYTES;
    if ended != DecodeError::End {
        fail(report, at, &ended.to_string());
    } else if limit.is_some_and(|limit| limit != segment.position_of(at)) {
        fail(report, at, "records are missing before the next segment");
    }
    Ok(())
}

fn verify_directory(report: &mut SegmentReport, directory: &Path, segment: &Segment) {
    let path = directory_path(directory, segment.number());
    if !path.exists() {
        return;
    }
    if let Err(error) = Directory::new(path, segment.id()).verify() {
        fail(report, 0, &error.to_string());
    }
}

fn fail(report: &mut SegmentReport, at: u64, error: &str) {
    report.error = Some(error.to_owned());
    report.error_at = Some(at);
}
