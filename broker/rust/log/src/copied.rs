//! Checks of the files of a log that were copied from another replica, before they take the place of a log.
//!
//! Invariants: every record of a copied segment has both its checksums and its position, also those that no reader has needed yet. Files come in
//! the order of [`copied_order`], so that the codings are known before the segments, and a segment is checked once the next one says where it
//! ends. A segment
//! that was dead at the newest checkpoint is passed over, because its bytes never had to reach the disk.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint;
use crate::epochs::{Codings, Epochs};
use crate::error::{Corruption, LogError};
use crate::gap::Gap;
use crate::header::{HeaderFound, read_header};
use crate::names::{edition_of, number_of, plain_number};
use crate::record::Position;
use crate::scrubbing::ScrubTicket;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment};

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// The place of a file in the order in which [`CopiedLog`] takes files, by its name.
#[must_use]
pub fn copied_order(name: &str) -> (u8, u64, String) {
    match number_of(name) {
        Some(number) => (1, number, name.to_owned()),
        None if name.starts_with("checkpoint.") => (0, 0, name.to_owned()),
        None => (2, 0, name.to_owned()),
    }
}

/// A log whose files come one after the other; see the module.
#[derive(Debug)]
pub struct CopiedLog {
    directory: PathBuf,
    /// Before the names of its files.
    prefix: &'static str,
    log_id: [u8; 16],
    /// Where it ends.
    end: Position,
    /// Of the newest checkpoint: its position, and the epochs up to there.
    covered: Position,
    epochs: Epochs,
    /// The newest checkpoint that cannot be read.
    unreadable: Option<LogError>,
    /// The newest segment, which is not checked yet.
    segment: Option<Segment>,
}

impl CopiedLog {
    /// A log with that id and end, of which no file is there yet.
    #[must_use]
    pub fn new(directory: &Path, prefix: &'static str, log_id: [u8; 16], end: Position) -> CopiedLog {
        CopiedLog {
            directory: directory.to_owned(),
            prefix,
            log_id,
            end,
            covered: Position(0),
            epochs: Epochs::default(),
            unreadable: None,
            segment: None,
        }
    }

    /// Takes the file with a name, which is whole. Blocks.
    ///
    /// # Errors
    /// `Corrupt` where it, or the segment before it, is not as it was written; `Io`.
    pub fn take(&mut self, name: &str) -> Result<(), LogError> {
        let path = self.directory.join(format!("{}{name}", self.prefix));
        if name.starts_with("checkpoint.") {
            return self.take_checkpoint(&path);
        }
        let Some(number) = number_of(name) else { return Ok(()) };
        if name.ends_with(".corrupt") {
            return Err(LogError::corrupt(&path, 0, Corruption::Marked));
        }
        let is_rewritten = edition_of(name).is_some();
        if !is_rewritten && plain_number(name).is_none() {
            return Ok(());
        }
        if let Some(error) = self.unreadable.take() {
            return Err(error);
        }
        let Some(segment) = self.opened(path, (number, is_rewritten))? else { return Ok(()) };
        let before = self.segment.replace(segment);
        before.map_or(Ok(()), |before| self.check(&before, self.segment.as_ref()))
    }

    /// All files were taken: checks the last segment. Blocks.
    ///
    /// # Errors
    /// As [`CopiedLog::take`].
    pub fn finish(&mut self) -> Result<(), LogError> {
        let last = self.segment.take();
        last.map_or(Ok(()), |last| self.check(&last, None))
    }

    fn take_checkpoint(&mut self, path: &Path) -> Result<(), LogError> {
        match checkpoint::read(path) {
            Ok((log_id, _)) if log_id != self.log_id => Err(LogError::corrupt(path, 0, Corruption::OtherLog)),
            Ok((_, state)) => {
                (self.covered, self.epochs, self.unreadable) = (state.position, state.epochs, None);
                Ok(())
            }
            Err(error @ LogError::Corrupt { .. }) => {
                self.unreadable = Some(error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// A segment by its header. `None` for one without any: it was dead before its header had to be on the disk, so it has no directory either.
    fn opened(&self, path: PathBuf, (number, is_rewritten): (u64, bool)) -> Result<Option<Segment>, LogError> {
        let (header, bytes) = match read_header(&path)? {
            HeaderFound::Segment(header, bytes) => (header, bytes),
            HeaderFound::Zeros => return Ok(None),
            HeaderFound::Copy(..) => return Err(LogError::corrupt(&path, 0, Corruption::SegmentHeader)),
            HeaderFound::Unreadable(error) => return Err(error),
        };
        if header.log_id != self.log_id {
            return Err(LogError::corrupt(&path, 16, Corruption::OtherLog));
        }
        if !is_rewritten {
            let codings = Codings::of_one(header.coding());
            return Ok(Some(Segment::copied(path, number, (&header, codings), bytes, None)));
        }
        // Records of a rewritten one are below the checkpoint, and have no copy of the header behind them.
        let bytes = std::fs::metadata(&path).map_err(|error| LogError::io("open", &path, error))?.len();
        let codings = header.codings(&self.epochs, self.covered);
        Ok(Some(Segment::copied(path, number, (&header, codings), bytes, Some(self.covered))))
    }

    /// Checks all records of a segment, up to the next one.
    fn check(&self, segment: &Segment, next: Option<&Segment>) -> Result<(), LogError> {
        let limit = next.map_or(self.end, Segment::first);
        let is_covered = segment.is_rewritten() || limit.min(self.end) <= self.covered;
        if is_covered && !segment.directory_path().exists() {
            return Ok(());
        }
        let end = if segment.is_rewritten() { segment.bytes() } else { segment.offset_of(limit).min(segment.bytes()) };
        let gap = if is_covered { Gap::behind_copied(segment, next)? } else { None };
        check_records(segment, end, gap.as_ref())
    }
}

fn check_records(segment: &Segment, end: u64, gap: Option<&Gap>) -> Result<(), LogError> {
    let open = || File::open(segment.path()).map(Arc::new).map_err(|error| LogError::io("open", segment.path(), error));
    let mut at = SEGMENT_HEADER_BYTES;
    while at < end {
        let ticket = ScrubTicket::over(segment.unmapped(), open()?, (at, end), gap.cloned());
        let (place, _) = ticket.perform(READ_BYTES).map_err(|found| found.error)?;
        at = place.offset;
    }
    Ok(())
}
