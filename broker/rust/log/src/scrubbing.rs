//! Checks of records that lie on the disk, as work for a thread: a disk that changes old bytes is noticed before a consumer needs them, and
//! while other replicas still have them.
//!
//! Invariants: only sealed segments below the bound are read, whose records neither change nor are cut, and from the file, not from the
//! map, so that a sector that cannot be read is an error. A segment without a live message below the newest checkpoint is passed over: its
//! bytes need not be on the disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::corruption::file_name;
use crate::error::{Corruption, LogError};
use crate::gap::Gap;
use crate::header::is_bad_sector;
use crate::record::{DecodeError, HEADER_BYTES, Position, RECORD_BYTES_MAX, decode_record, le_u32};
use crate::segment::Segment;
use crate::segment_header::SEGMENT_HEADER_BYTES;

/// How far a round of checks has come in a log. The default is its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubPlace {
    /// The segment's first position.
    pub(crate) segment: Position,
    /// Of its file: records are elsewhere in the next one.
    pub(crate) edition: u32,
    /// In that file.
    pub(crate) offset: u64,
}

/// Records to be checked; see the module.
#[derive(Debug)]
#[must_use]
pub struct ScrubTicket {
    segment: Segment,
    /// It stays readable when the segment is removed.
    file: Arc<File>,
    from: u64,
    /// Where the segment's records end, or before, where it has a gap behind it.
    end: u64,
    gap: Option<Gap>,
}

/// Where a record cannot be read, and why.
#[derive(Debug)]
pub struct CorruptAt {
    pub file: String,
    pub at: u64,
    pub error: LogError,
}

impl CorruptAt {
    /// Whether the file is at fault. It is not where the process has no memory or no file left, or where a newer version wrote the record.
    #[must_use]
    pub fn is_of_the_file(&self) -> bool {
        match &self.error {
            LogError::Io { source, .. } => is_bad_sector(source) || source.kind() == std::io::ErrorKind::NotFound,
            error => matches!(error, LogError::Corrupt { .. }),
        }
    }
}

impl ScrubTicket {
    /// The records of a segment from an offset on. Called under the log's lock, where no file of a segment that it has is gone.
    pub(crate) fn of(segment: &Segment, (from, end): (u64, u64), gap: Option<Gap>) -> Result<ScrubTicket, CorruptAt> {
        match File::open(segment.path()) {
            Ok(file) => Ok(ScrubTicket { segment: segment.unmapped(), file: Arc::new(file), from, end, gap }),
            Err(error) => {
                let error = LogError::io("open", segment.path(), error);
                Err(CorruptAt { file: file_name(segment), at: from, error })
            }
        }
    }

    /// The records of a segment between two offsets, in a file that is open.
    pub(crate) fn over(segment: Segment, file: Arc<File>, (from, end): (u64, u64), gap: Option<Gap>) -> ScrubTicket {
        ScrubTicket { segment, file, from, end, gap }
    }

    /// Checks about so many bytes of records, both checksums of each, and at least one. Returns the place after them, and how many
    /// bytes were read. Blocks.
    ///
    /// # Errors
    /// A record that is not as it was written, or that cannot be read from the disk.
    pub fn perform(self, bytes_max: usize) -> Result<(ScrubPlace, usize), CorruptAt> {
        let place = |offset| ScrubPlace { segment: self.segment.first(), edition: self.segment.edition(), offset };
        let rest = usize::try_from(self.end.saturating_sub(self.from)).unwrap_or(usize::MAX);
        let mut bytes = self.read(rest.min(bytes_max.max(HEADER_BYTES)))?;
        let first = u64::from(bytes.first_chunk::<4>().map_or(0, |length| le_u32(length)));
        if first == 0 && bytes.iter().all(|&byte| byte == 0) {
            // A start assigns the positions of segments that were removed to the one before.
            return Ok((place(self.end), bytes.len()));
        }
        if first > bytes.len() as u64 && first <= RECORD_BYTES_MAX.min(rest as u64) {
            bytes = self.read(first as usize)?;
        }
        match self.check(&bytes) {
            Ok(checked) => Ok((place(self.from + checked as u64), bytes.len())),
            Err(found) if self.is_in_gap(&found)? => Ok((place(self.end), bytes.len())),
            Err(found) => Err(found),
        }
    }

    /// Whether what cannot be read is behind the segment's records.
    fn is_in_gap(&self, found: &CorruptAt) -> Result<bool, CorruptAt> {
        let Some(gap) = &self.gap else { return Ok(false) };
        gap.has_begun_at(found.at).map_err(|error| self.corruption(found.at, error))
    }

    fn read(&self, length: usize) -> Result<Vec<u8>, CorruptAt> {
        self.segment.note_read(self.from, self.from + length as u64);
        let mut bytes = vec![0; length];
        match self.file.read_exact_at(&mut bytes, self.from) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.corruption(self.from, self.segment.corrupt(self.from, Corruption::Short)))
            }
            Err(error) => Err(self.corruption(self.from, LogError::io("read", self.segment.path(), error))),
        }
    }

    /// Where the last whole record ends. Only the last one may be cut off, and zeros to the end follow no record.
    fn check(&self, bytes: &[u8]) -> Result<usize, CorruptAt> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let length = rest.first_chunk::<4>().map_or(usize::MAX, |length| le_u32(length) as usize);
            let is_cut = length > rest.len() || rest.len() < HEADER_BYTES;
            if at > 0 && (is_cut || length == 0) {
                break;
            }
            let offset = self.from + at as u64;
            let unreadable = |error: DecodeError| self.corruption(offset, self.segment.unreadable(offset, error));
            let decoded = decode_record(rest, self.segment.coding_of(rest)).map_err(unreadable)?;
            if !self.segment.is_rewritten() && decoded.position != self.segment.position_of(offset) {
                return Err(unreadable(DecodeError::Position));
            }
            decoded.verify().map_err(unreadable)?;
            at += decoded.length as usize;
        }
        Ok(at)
    }

    fn corruption(&self, at: u64, error: LogError) -> CorruptAt {
        CorruptAt { file: file_name(&self.segment), at, error }
    }
}

impl ScrubPlace {
    /// Where to begin in a segment, whose records end there; `None` where the round has passed it. One that was rewritten meanwhile is read
    /// from its beginning.
    pub(crate) fn within(self, segment: &Segment, end: u64) -> Option<u64> {
        match segment.first().cmp(&self.segment) {
            std::cmp::Ordering::Less => None,
            std::cmp::Ordering::Greater => Some(SEGMENT_HEADER_BYTES),
            std::cmp::Ordering::Equal if segment.edition() != self.edition => Some(SEGMENT_HEADER_BYTES),
            std::cmp::Ordering::Equal => Some(self.offset.max(SEGMENT_HEADER_BYTES)).filter(|&offset| offset < end),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Error;
    use std::path::Path;

    use super::*;

    #[test]
    fn only_what_lies_on_the_disk_is_corrupt() {
        let path = Path::new("msgs.0000000001");
        let is_corrupt = |error| CorruptAt { file: String::new(), at: 64, error }.is_of_the_file();
        let is_corrupt_after = |code| is_corrupt(LogError::io("open", path, Error::from_raw_os_error(code)));

        assert!(is_corrupt(LogError::corrupt(path, 64, Corruption::Short)));
        for code in [libc::EIO, libc::ENOENT] {
            assert!(is_corrupt_after(code), "{code}");
        }
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EACCES] {
            assert!(!is_corrupt_after(code), "{code}");
        }
        assert!(!is_corrupt(LogError::newer_record(path, 64)));
    }
}
