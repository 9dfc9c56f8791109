//! Steps over a segment's records in order, with as much of the segment in this process's memory as requested.
//!
//! Invariant: every record of a step has the position that it claims.

use std::sync::atomic::Ordering;

use super::{SEGMENT_HEADER_BYTES, Segment, written_in};
use crate::disk::Disk;
use crate::error::{Corruption, LogError};
use crate::record::{
    CRC_AT, DecodeError, Decoded, HEADER_BYTES, Outline, Position, decode_with, envelope_end, le_u32, le_u64, outline,
};

/// How much of a segment is kept in memory while it is folded.
const WINDOW_BYTES: u64 = 4 << 20;
/// The largest head of a record: 16 Ki ranges of 16 bytes and the fields before them.
const HEAD_BYTES_MAX: u64 = 512 << 10;

impl Segment {
    /// Walks over the records from an offset on, up to the readable end.
    pub(crate) fn walk(&self, from: u64, check: Check) -> Result<Walk<'_>, LogError> {
        let bytes = self.readable_bytes()?;
        self.populate_range(from as usize, bytes.len())?;
        Ok(Walk { bytes, at: from, segment: self, check, window: (from, bytes.len() as u64) })
    }

    /// The same over bytes that were read from the file.
    pub(crate) fn walk_over<'a>(&'a self, bytes: &'a [u8], check: Check) -> Walk<'a> {
        self.walk_over_from(bytes, SEGMENT_HEADER_BYTES, check)
    }

    /// The same from an offset on.
    pub(crate) fn walk_over_from<'a>(&'a self, bytes: &'a [u8], from: u64, check: Check) -> Walk<'a> {
        Walk { bytes, at: from, segment: self, check, window: (from, bytes.len() as u64) }
    }

    /// The same with only a part of the segment in this process's memory, as long as [`Walk::keep_window`] is called
    /// before each step and only heads of records are read.
    pub(crate) fn walk_in_window(&self, from: u64, check: Check) -> Result<Walk<'_>, LogError> {
        let bytes = self.readable_bytes()?;
        Ok(Walk { bytes, at: from, segment: self, check, window: (from, from) })
    }

    /// The same over all records up to an offset, also those above the log's bound.
    pub(crate) fn walk_heads(&self, end: u64) -> Result<Walk<'_>, LogError> {
        self.walk_heads_from(SEGMENT_HEADER_BYTES, end, Check::Head)
    }

    /// The same from an offset on.
    pub(crate) fn walk_heads_from(&self, at: u64, end: u64, check: Check) -> Result<Walk<'_>, LogError> {
        let bytes = self.map()?.bytes();
        let bytes = bytes.get(..end as usize).ok_or_else(|| self.corrupt(bytes.len() as u64, Corruption::Short))?;
        Ok(Walk { bytes, at, segment: self, check, window: (at, at) })
    }

    /// Whether a record ends at an offset, by the lengths of those between another one and it.
    pub(crate) fn ends_record(&self, disk: &dyn Disk, from: u64, to: u64) -> Result<bool, LogError> {
        let mut walk = self.walk_heads_from(from, to, Check::Nothing)?;
        while walk.offset() < to {
            walk.keep_window(disk)?;
            if walk.step().is_err() {
                return Ok(false);
            }
        }
        Ok(walk.offset() == to)
    }
}

/// How much of a record is checked while walking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Bytes that this process wrote.
    Nothing,
    /// Heads, but of messages only their positions while all bytes read of the segment were written by this process.
    Folded,
    Head,
    HeadAndPayload,
}

/// Where walking goes on after unreadable bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// At any record: those of an unreadable envelope were applied with it.
    Anywhere,
    /// Not within an envelope, which may never have been written whole.
    BehindEnvelope,
}

/// Steps over a segment's records.
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    at: u64,
    segment: &'a Segment,
    check: Check,
    /// The part that is in memory, as offsets.
    window: (u64, u64),
}

impl<'a> Walk<'a> {
    /// Where the next record begins, or where walking ended.
    pub(crate) fn offset(&self) -> u64 {
        self.at
    }

    /// Brings the next part into memory, and releases the passed one.
    pub(crate) fn keep_window(&mut self, disk: &dyn Disk) -> Result<(), LogError> {
        let (begin, end) = self.window;
        if end >= self.bytes.len() as u64 {
            return Ok(());
        }
        if self.at + HEAD_BYTES_MAX <= end {
            return self.keep_envelope(disk);
        }
        self.segment.map()?.release(begin as usize, (self.at - begin) as usize);
        self.window = (self.at, self.at + WINDOW_BYTES);
        // Not beyond the written part: in memory (tmpfs), a read where nothing was reserved takes space.
        let end = (self.at + WINDOW_BYTES).min(self.bytes.len() as u64);
        self.segment.populate_through(disk, self.at as usize, end as usize)?;
        self.keep_envelope(disk)
    }

    /// The heads of an envelope are all over it.
    fn keep_envelope(&mut self, disk: &dyn Disk) -> Result<(), LogError> {
        let length = self.bytes.get(self.at as usize..).and_then(envelope_end).unwrap_or(0);
        let (begin, to) = (self.window.1, (self.at + length).min(self.bytes.len() as u64));
        if to <= begin {
            return Ok(());
        }
        self.window.1 = to;
        self.segment.populate_through(disk, begin as usize, to as usize)
    }

    /// The checksum of the head at an offset, as it is stored.
    pub(crate) fn checksum_at(&self, offset: u32) -> u32 {
        self.bytes.get(offset as usize..).and_then(|record| record.get(CRC_AT..HEADER_BYTES)).map_or(0, le_u32)
    }

    /// Whether only zeros follow.
    pub(crate) fn is_at_zeros(&mut self, disk: &dyn Disk) -> Result<bool, LogError> {
        self.open_window(disk)?;
        Ok(written_in(self.bytes.get(self.at as usize..).unwrap_or_default()) == 0)
    }

    /// Makes everything up to the end readable, for [`Walk::resume`].
    pub(crate) fn open_window(&mut self, disk: &dyn Disk) -> Result<(), LogError> {
        self.window.1 = self.bytes.len() as u64;
        self.segment.populate_through(disk, self.at as usize, self.bytes.len())
    }

    /// Steps over a message without flags; `None`, and no step, at anything else, and where a check fails.
    pub(crate) fn step_outline(&mut self) -> Option<Outline<'a>> {
        let record = self.bytes.get(self.at as usize..)?;
        let found = outline(record, self.segment.format())?;
        if self.check != Check::Nothing && !self.holds(&found, record) {
            return None;
        }
        self.at += u64::from(found.length);
        Some(found)
    }

    fn holds(&self, found: &Outline<'_>, record: &[u8]) -> bool {
        let is_trusted = self.check == Check::Folded && !self.segment.place.recovered.load(Ordering::Relaxed);
        let is_placed = self.segment.is_placed(found.position, self.at) && found.length as usize <= record.len();
        is_placed && (is_trusted || found.holds(record, self.segment.coding_of(record).seed))
    }

    /// The next record and its offset; [`DecodeError::End`] when none begins there.
    pub(crate) fn step(&mut self) -> Result<(u32, Decoded<'a>), DecodeError> {
        let record = self.bytes.get(self.at as usize..).ok_or(DecodeError::End)?;
        let decoded = decode_with(record, self.segment.coding_of(record), self.check != Check::Nothing)?;
        if !self.segment.is_placed(decoded.position, self.at) {
            return Err(DecodeError::Position);
        }
        if self.check == Check::HeadAndPayload {
            decoded.verify()?;
        }
        let offset = self.at as u32;
        self.at += u64::from(decoded.length);
        Ok((offset, decoded))
    }

    /// Checks later records as `check` says.
    pub(crate) fn set_check(&mut self, check: Check) {
        self.check = check;
    }

    /// Skips unreadable bytes, to the next place where a whole record has its own position; false, and no step, when
    /// there is none. Bytes of a message cannot pass for a record: they do not know the random id in its checksum.
    pub(crate) fn resume(&mut self, to: Resume) -> bool {
        let begin = self.at as usize + 1;
        let rest = self.bytes.get(begin..).unwrap_or_default();
        // A record begins before the last byte that is not zero; nearly all of an active segment is after it.
        let end = written_in(rest).saturating_add(HEADER_BYTES).min(rest.len());
        let rest = rest.get(..end).unwrap_or_default();
        for (at, header) in (begin as u64..).zip(rest.windows(HEADER_BYTES)) {
            let says = header.get(8..16).map_or(0, le_u64);
            if !self.segment.is_placed(Position(says), at) {
                continue;
            }
            let record = self.bytes.get(at as usize..).unwrap_or_default();
            let counts = match decode_with(record, self.segment.coding_of(record), true) {
                Ok(decoded) => to == Resume::Anywhere || !decoded.is_enclosed,
                Err(error) => error == DecodeError::Newer,
            };
            if counts {
                self.at = at;
                return true;
            }
        }
        false
    }
}
