//! Rolling to the next segment, and its size.
//!
//! Invariants: a segment is sealed only once the next one exists; where none can be created the log stays unchanged.

use std::sync::Arc;

use super::room::Purpose;
use super::{Log, Sealed};
use crate::active::{Active, Size, random_id};
use crate::directory::Lookup;
use crate::error::LogError;
use crate::record::{Position, RECORD_BYTES_MAX};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

/// A segment of at least this many times the smallest size is followed by a small one: see [`Log::next_segment_bytes`].
pub(super) const LARGE_TIMES: u64 = 8;

impl Log {
    /// Rolls to the next segment when this one is full, and reserves space in it.
    #[cold]
    pub(super) fn make_place(&mut self, end: u64, length: u64, purpose: Purpose) -> Result<(), LogError> {
        if end > self.active.segment.bytes() {
            self.roll(length, purpose)?;
        }
        self.reserve_to(self.active.segment.offset_of(self.appended()) + length, purpose)
    }

    /// Rolls to the next segment, which has space for a record of `length`.
    fn roll(&mut self, length: u64, purpose: Purpose) -> Result<(), LogError> {
        let first = self.write()?;
        let least = SEGMENT_HEADER_BYTES + length;
        let size = self.size_with_room(self.next_segment_bytes().max(least), least, purpose)?;
        if size.bytes > RECORD_BYTES_MAX + SEGMENT_HEADER_BYTES {
            return Err(LogError::RecordTooLarge { bytes: length, bytes_max: RECORD_BYTES_MAX });
        }
        match self.begin_segment(first, size) {
            Err(error) if error.is_full() && purpose == Purpose::Upkeep => {
                self.begin_segment(first, self.smallest(size.bytes, least))
            }
            begun => begun,
        }
    }

    pub(super) fn begin_segment(&mut self, first: Position, size: Size) -> Result<(), LogError> {
        let segment_id = random_id(&self.directory)?;
        let header = SegmentHeader::new(self.format(), self.log_id, segment_id, (self.epoch, first));
        let header = header.of_shard(self.options.shard);
        let number = self.active.segment.number() + 1;
        let (active, unsynced) = Active::create(&self.directory, self.options.disk.as_ref(), number, &header, size)?;
        let Active { segment, index, .. } = std::mem::replace(&mut self.active, active);
        segment.seal();
        self.ahead.segment_begins();
        self.grown_bytes = self.grown_bytes.max(segment.bytes().min(self.options.segment_bytes_max));
        self.sealed.push(Sealed { segment, end: first, lookup: Lookup::Memory(Arc::new(index)) });
        self.unsynced.push(unsynced);
        Ok(())
    }

    /// Segments double up to the largest, and each large one is followed by a small one. A checkpoint at the small
    /// one's end finds the large one dead already when consumers keep up, so that its bytes are never written to the
    /// disk.
    pub(super) fn next_segment_bytes(&self) -> u64 {
        let min = self.options.segment_bytes_min;
        let last = self.active.segment.bytes();
        let grown = self.grown_bytes.max(last.min(self.options.segment_bytes_max));
        if last > min && last >= LARGE_TIMES * min {
            return min;
        }
        (grown * 2).min(self.options.segment_bytes_max)
    }
}
