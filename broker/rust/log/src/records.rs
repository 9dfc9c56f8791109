//! Records as bytes, between replicas: how a leader reads them and how a follower checks them, both as work for a thread.
//!
//! Invariants: only whole records of one segment are read, so of one epoch, and both checksums of each match. They are read from
//! the file, also above the log's bound, and nothing is mapped. Bytes from another replica are checked whole before one of them is
//! appended.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Corruption, LogError};
use crate::format::Coding;
use crate::gap::Gap;
use crate::record::{DecodeError, HEADER_BYTES, Position, RECORD_BYTES_MAX, Record, decode_record, le_u32};
use crate::segment::Segment;

/// Records to be read; see the module. The files of a segment stay readable while this exists.
#[derive(Debug)]
#[must_use]
pub struct RecordsTicket {
    segment: Segment,
    file: Arc<File>,
    from: u64,
    to: u64,
    gap: Option<Gap>,
}

/// Records that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    pub after: Position,
    pub until: Position,
    pub bytes: Bytes,
}

impl RecordsTicket {
    /// The records of a segment from one position up to another, which are both in it, or in the gap behind it. `None` where its file ends before.
    pub(crate) fn of(
        segment: &Segment,
        file: Option<&Arc<File>>,
        (after, until): (Position, Position),
        gap: Option<Gap>,
    ) -> Result<Option<RecordsTicket>, LogError> {
        let [from, mut to] = [after, until].map(|position| segment.offset_of(position));
        if gap.is_some() {
            to = to.min(segment.bytes());
            if from >= to {
                return Ok(None);
            }
        }
        let file = file.map_or_else(|| opened(segment.path()), |file| Ok(Arc::clone(file)))?;
        Ok(Some(RecordsTicket { segment: segment.unmapped(), file, from, to, gap }))
    }

    /// Reads as many records as have at most so many bytes together, and the first one in any case. `None` where there are
    /// none any more, as the segment of these positions was removed before an earlier start. Blocks.
    ///
    /// # Errors
    /// `Corrupt` where a record cannot be read.
    pub fn perform(self, bytes_max: usize) -> Result<Option<Records>, LogError> {
        let whole = usize::try_from(self.to - self.from).unwrap_or(usize::MAX);
        let mut bytes = self.read(whole.min(bytes_max.max(HEADER_BYTES)))?;
        let first = u64::from(bytes.first_chunk::<4>().map_or(0, |length| le_u32(length)));
        if first == 0 && bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        if first > bytes.len() as u64 && first <= RECORD_BYTES_MAX.min(whole as u64) {
            bytes = self.read(first as usize)?;
        }
        let end = match self.whole_records(&bytes)? {
            0 => return Ok(None),
            end => end,
        };
        bytes.truncate(end);
        let [after, until] = [self.from, self.from + end as u64].map(|offset| self.segment.position_of(offset));
        Ok(Some(Records { after, until, bytes: bytes.into() }))
    }

    fn read(&self, length: usize) -> Result<Vec<u8>, LogError> {
        self.segment.note_read(self.from, self.from + length as u64);
        let mut bytes = vec![0; length];
        match self.file.read_exact_at(&mut bytes, self.from) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.segment.corrupt(self.from, Corruption::Short))
            }
            Err(error) => Err(LogError::io("read", self.segment.path(), error)),
        }
    }

    /// Where the last whole record ends. Only the last one may be cut off, or what is in a gap.
    fn whole_records(&self, bytes: &[u8]) -> Result<usize, LogError> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = bytes.get(at..).unwrap_or_default();
            let length = rest.first_chunk::<4>().map_or(usize::MAX, |length| le_u32(length) as usize);
            if at > 0 && (length > rest.len() || rest.len() < HEADER_BYTES) {
                break;
            }
            let offset = self.from + at as u64;
            match self.whole_record(rest, offset) {
                Ok(length) => at += length,
                Err(_) if self.gap.as_ref().map_or(Ok(false), |gap| gap.has_begun_at(offset))? => break,
                Err(error) => return Err(self.segment.unreadable(offset, error)),
            }
        }
        Ok(at)
    }

    /// The length of the record that begins these bytes of an offset.
    fn whole_record(&self, bytes: &[u8], offset: u64) -> Result<usize, DecodeError> {
        let decoded = decode_record(bytes, self.segment.coding())?;
        if decoded.position != self.segment.position_of(offset) {
            return Err(DecodeError::Position);
        }
        decoded.verify()?;
        Ok(decoded.length as usize)
    }
}

fn opened(path: &Path) -> Result<Arc<File>, LogError> {
    File::open(path).map(Arc::new).map_err(|error| LogError::io("open", path, error))
}

/// Records of one epoch from another replica, of which each was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedRecords {
    pub(crate) epoch: u64,
    after: Position,
    until: Position,
    /// The first of them begins the epoch.
    pub(crate) begins: bool,
    pub(crate) bytes: Bytes,
}

impl CheckedRecords {
    /// Checks bytes that another replica of a log sent as the records of an epoch from a position on: each is whole, has its
    /// position, and both its checksums match. This needs no lock.
    ///
    /// # Errors
    /// Why they are not such records.
    pub fn check(log_id: &[u8; 16], epoch: u64, after: Position, bytes: Bytes) -> Result<CheckedRecords, DecodeError> {
        let coding = Coding::of_epoch(log_id, epoch);
        let (mut until, mut begins) = (after, false);
        let mut rest = bytes.as_ref();
        if rest.is_empty() {
            return Err(DecodeError::End);
        }
        while !rest.is_empty() {
            let decoded = decode_record(rest, coding)?;
            decoded.verify()?;
            match decoded.record {
                _ if decoded.position != until => return Err(DecodeError::Position),
                _ if decoded.is_enclosed => return Err(DecodeError::Kind),
                Record::Epoch(begun) if begun.epoch == epoch && until == after => begins = true,
                Record::Epoch(_) => return Err(DecodeError::Fields),
                _ => {}
            }
            until.0 = until.0.checked_add(u64::from(decoded.length)).ok_or(DecodeError::Position)?;
            rest = rest.get(decoded.length as usize..).unwrap_or_default();
        }
        Ok(CheckedRecords { epoch, after, until, begins, bytes })
    }

    #[must_use]
    pub fn after(&self) -> Position {
        self.after
    }

    #[must_use]
    pub fn until(&self) -> Position {
        self.until
    }

    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}
