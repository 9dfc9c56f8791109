//! A segment file: its header, its name and its map. See `docs/format.md`, "Segments".
//!
//! Invariants: bytes are read only below `readable`, which moves up after a write returned and never down while readers
//! exist; a segment's map lives as long as any reference to that [`Segment`].

mod walk;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use penstock_queue::Sequence;
use rustix::io::Errno;

pub(crate) use self::walk::{Check, Resume, Walk};
use crate::active::STEP_BYTES;
use crate::disk::{Disk, RealDisk};
use crate::epochs::Codings;
use crate::error::{Corruption, LogError};
use crate::format::{Coding, Format};
use crate::fresh::{Fresh, now_ms};
use crate::map::Map;
use crate::record::{
    DecodeError, HEADER_BYTES, MessageView, Position, Record, Target, decode_with, le_u32, le_u64, message_at,
};
pub(crate) use crate::segment_header::{SEGMENT_HEADER_BYTES, SegmentHeader};

/// The format of the other files.
pub(crate) const FORMAT: u32 = 1;

/// The name of the segment file with that number.
pub(crate) fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("msgs.{number:010}"))
}

/// An unused name for a segment that no start reads any more.
pub(crate) fn aside_path(path: &Path) -> PathBuf {
    let numbered = |again: u64| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".aside");
        if again > 1 {
            name.push(format!(".{again}"));
        }
        path.with_file_name(name)
    };
    (1..).map(numbered).find(|free| !free.exists()).unwrap_or_else(|| numbered(1))
}

/// The name of the file that marks a segment as corrupt.
pub(crate) fn corrupt_path(segment: &Path) -> PathBuf {
    let mut name = segment.as_os_str().to_owned();
    name.push(".corrupt");
    PathBuf::from(name)
}

/// The name of a segment that replaces the one with that number and some that followed it.
pub(crate) fn rewritten_path(directory: &Path, number: u64, edition: u32) -> PathBuf {
    directory.join(format!("msgs.{number:010}.{edition}"))
}

/// The name of the directory of the segment with that name.
pub(crate) fn directory_path(segment: &Path) -> PathBuf {
    let mut name = segment.as_os_str().to_owned();
    name.push(".idx");
    PathBuf::from(name)
}

/// Path of a segment and how far it can be read; shared by all its maps.
#[derive(Debug)]
struct Place {
    number: u64,
    /// 1 as appended, more once rewritten.
    edition: u32,
    path: PathBuf,
    first: Position,
    /// Where the positions of a rewritten segment end; its records keep theirs, with gaps and in any order.
    rewritten_end: Option<Position>,
    segment_id: u64,
    epoch: u64,
    codings: Codings,
    bytes: u64,
    readable: AtomicU64,
    sealed: AtomicBool,
    used: AtomicBool,
    /// Whether an earlier process wrote it, or bytes of it were read from the disk again: its records are checked
    /// before they are delivered.
    recovered: AtomicBool,
    fresh: Fresh,
}

/// A segment that can be read without the log's lock. Its map is made at the first use and stays until it is dropped.
#[derive(Debug)]
pub struct Segment {
    place: Arc<Place>,
    map: OnceLock<Map>,
}

/// Stored messages of one queue with contiguous sequences from `first` on, all in one segment.
#[derive(Clone, Debug)]
pub struct Located {
    pub segment: Arc<Segment>,
    pub first: Sequence,
    /// Where their records begin, for [`Segment::message`].
    pub offsets: Vec<u32>,
}

impl Segment {
    /// The message whose record begins at `offset`, from [`Located::offsets`]. Only bounds are checked.
    // As in the functions that it calls: each result that is passed on by a call is a copy of some 150 bytes, for each
    // message that is delivered.
    #[inline(always)]
    pub fn message(&self, offset: u32) -> Result<MessageView<'_>, LogError> {
        let record = self.readable_bytes()?.get(offset as usize..).unwrap_or_default();
        match message_at(record, self.coding_of(record)) {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(self.corrupt(u64::from(offset), Corruption::NoRecordHere)),
            Err(error) => Err(self.unreadable(u64::from(offset), error)),
        }
    }

    /// The message of a queue, for its delivery: in a segment that an earlier process wrote, or of which bytes had to
    /// be read from the disk again, both checksums, the position and the queue's sequence are checked, because the
    /// bytes or the directory that led here may have changed since.
    #[inline(always)]
    pub fn message_for(&self, offset: u32, target: Target) -> Result<MessageView<'_>, LogError> {
        let message = self.message(offset)?;
        if self.place.recovered.load(Ordering::Relaxed) {
            self.check(offset, target, &message)?;
        }
        Ok(message)
    }

    fn check(&self, offset: u32, target: Target, message: &MessageView<'_>) -> Result<(), LogError> {
        let at = u64::from(offset);
        message.verify().map_err(|error| self.corrupt(at, error))?;
        let position = message.position();
        if !self.is_placed(position, at) {
            return Err(self.corrupt(at, DecodeError::Position));
        }
        if !message.targets().any(|found| found == target) {
            return Err(self.corrupt(at, Corruption::NoRecordHere));
        }
        Ok(())
    }

    /// The message that begins these bytes of an `offset` of the segment, after checks of its position and both its
    /// checksums.
    pub(crate) fn check_record<'a>(&self, record: &'a [u8], offset: u32) -> Result<MessageView<'a>, LogError> {
        let corrupt = |error: DecodeError| self.unreadable(u64::from(offset), error);
        let decoded = decode_with(record, self.coding_of(record), true).map_err(corrupt)?;
        if !self.is_placed(decoded.position, u64::from(offset)) {
            return Err(corrupt(DecodeError::Position));
        }
        let Record::Message(message) = decoded.record else {
            return Err(self.corrupt(u64::from(offset), Corruption::NoRecordHere));
        };
        message.verify().map_err(corrupt)?;
        Ok(message)
    }

    /// Whether it is complete; pages of such a segment may have to be read from the disk.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.place.sealed.load(Ordering::Acquire)
    }

    /// Brings the pages from one record's offset to another's into memory, the last record included. Blocks, and makes
    /// a bad sector an error instead of a signal.
    pub fn populate(&self, from: u32, to: u32) -> Result<(), LogError> {
        let to = to as usize;
        self.populate_range(from as usize, to.saturating_add(HEADER_BYTES))?;
        let length = self.readable_bytes()?.get(to..).map_or(0, |record| le_u32(record) as usize);
        self.populate_range(to, to.saturating_add(length))
    }

    /// Whether the records from one offset to another, the last included, can be read without waiting for the disk.
    #[must_use]
    pub fn is_resident(&self, from: u32, to: u32) -> bool {
        if self.place.fresh.covers(u64::from(from), self.readable(), now_ms()) {
            return true;
        }
        let (Ok(map), Ok(readable)) = (self.map(), self.readable_bytes()) else { return false };
        let (from, to) = (from as usize, to as usize);
        let head_end = to.saturating_add(HEADER_BYTES).min(readable.len());
        if from >= head_end || !map.is_resident(from, head_end - from) {
            return false;
        }
        let length = readable.get(to..).map_or(0, |record| le_u32(record) as usize);
        let end = to.saturating_add(length).min(readable.len());
        end <= head_end || map.is_resident(head_end, end - head_end)
    }

    /// Ascends along the log. A rewritten segment has that of the first one it replaced.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.place.number
    }

    /// Random and unique to its file.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.place.segment_id
    }

    /// The path of its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    pub(crate) fn new(directory: &Path, number: u64, header: &SegmentHeader, bytes: u64) -> Segment {
        let codings = Codings::of_one(header.coding());
        Self::at(segment_path(directory, number), (number, 1), (header, codings), bytes, None)
    }

    /// A segment for the positions from its header's first up to `end`.
    pub(crate) fn rewritten(
        directory: &Path,
        (number, edition): (u64, u32),
        (header, codings): (&SegmentHeader, Codings),
        bytes: u64,
        end: Position,
    ) -> Segment {
        let path = rewritten_path(directory, number, edition);
        let segment = Self::at(path, (number, edition), (header, codings), bytes, Some(end));
        segment.set_readable(bytes);
        segment.seal();
        // Its records are copies of ones that an earlier process may have written.
        segment.mark_recovered();
        segment
    }

    /// One that was copied from another replica under another name; with an end where it was rewritten.
    pub(crate) fn copied(
        path: PathBuf,
        number: u64,
        coded: (&SegmentHeader, Codings),
        bytes: u64,
        rewritten_end: Option<Position>,
    ) -> Segment {
        let segment = Self::at(path, (number, 1), coded, bytes, rewritten_end);
        segment.set_readable(bytes);
        segment
    }

    fn at(
        path: PathBuf,
        (number, edition): (u64, u32),
        (header, codings): (&SegmentHeader, Codings),
        bytes: u64,
        rewritten_end: Option<Position>,
    ) -> Segment {
        let place = Place {
            number,
            edition,
            path,
            first: header.first,
            rewritten_end,
            segment_id: header.segment_id,
            epoch: header.epoch,
            codings,
            bytes,
            readable: AtomicU64::new(SEGMENT_HEADER_BYTES),
            sealed: AtomicBool::new(false),
            used: AtomicBool::new(false),
            recovered: AtomicBool::new(false),
            fresh: Fresh::default(),
        };
        Segment { place: Arc::new(place), map: OnceLock::new() }
    }

    /// The same segment without a map.
    pub(crate) fn unmapped(&self) -> Segment {
        Segment { place: Arc::clone(&self.place), map: OnceLock::new() }
    }

    pub(crate) fn edition(&self) -> u32 {
        self.place.edition
    }

    pub(crate) fn is_rewritten(&self) -> bool {
        self.place.rewritten_end.is_some()
    }

    /// The name of its directory's file.
    pub(crate) fn directory_path(&self) -> PathBuf {
        directory_path(&self.place.path)
    }

    /// The format of its records.
    pub(crate) fn format(&self) -> Format {
        self.place.codings.first().format
    }

    /// The epoch in its header.
    pub(crate) fn epoch(&self) -> u64 {
        self.place.epoch
    }

    /// How its first record is coded, and all of them unless it was rewritten.
    #[inline]
    pub(crate) fn coding(&self) -> Coding {
        self.place.codings.first()
    }

    /// How the record that begins these bytes is coded: in a rewritten segment by its position.
    #[inline]
    pub(crate) fn coding_of(&self, record: &[u8]) -> Coding {
        self.place.codings.of(|| record.get(8..16).map_or(self.place.first, |position| Position(le_u64(position))))
    }

    pub(crate) fn first(&self) -> Position {
        self.place.first
    }

    /// The file's size without the copy of its header.
    pub(crate) fn bytes(&self) -> u64 {
        self.place.bytes
    }

    /// Its disk space, which is reserved in steps.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.readable().next_multiple_of(STEP_BYTES).min(self.place.bytes)
    }

    pub(crate) fn readable(&self) -> u64 {
        self.place.readable.load(Ordering::Acquire)
    }

    pub(crate) fn set_readable(&self, offset: u64) {
        self.place.readable.store(offset.min(self.place.bytes), Ordering::Release);
    }

    /// Notes that the bytes from an offset up to another were just written, and can be read.
    pub(crate) fn written(&self, from: u64, to: u64) {
        self.place.fresh.written(from, now_ms());
        self.set_readable(to);
    }

    pub(crate) fn seal(&self) {
        self.place.sealed.store(true, Ordering::Release);
    }

    pub(crate) fn mark_recovered(&self) {
        self.place.recovered.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_mapped(&self) -> bool {
        self.map.get().is_some()
    }

    pub(crate) fn mark_used(&self) {
        self.place.used.store(true, Ordering::Relaxed);
    }

    /// Whether it was used since the last call.
    pub(crate) fn take_used(&self) -> bool {
        self.place.used.swap(false, Ordering::Relaxed)
    }

    /// The offset of a position in this segment.
    pub(crate) fn offset_of(&self, position: Position) -> u64 {
        position.0.saturating_sub(self.place.first.0).saturating_add(SEGMENT_HEADER_BYTES)
    }

    pub(crate) fn position_of(&self, offset: u64) -> Position {
        Position(self.place.first.0.saturating_add(offset.saturating_sub(SEGMENT_HEADER_BYTES)))
    }

    /// The position of the record at an offset: in a rewritten segment, which keeps positions, as its bytes claim.
    pub(crate) fn claimed_position(&self, offset: u64) -> Position {
        if !self.is_rewritten() {
            return self.position_of(offset);
        }
        let claimed = self.bytes_from(offset).get(8..16).map_or(self.place.first, |bytes| Position(le_u64(bytes)));
        if self.is_placed(claimed, offset) { claimed } else { self.place.first }
    }

    /// Whether a record at that offset may have that position.
    fn is_placed(&self, position: Position, offset: u64) -> bool {
        match self.place.rewritten_end {
            Some(end) => position >= self.place.first && position < end,
            None => position == self.position_of(offset),
        }
    }

    #[cold]
    pub(crate) fn corrupt(&self, at: u64, why: impl Into<Corruption>) -> LogError {
        LogError::corrupt(&self.place.path, at, why)
    }

    /// The error of a record that cannot be read: one of a newer version is not corrupt.
    #[cold]
    pub(crate) fn unreadable(&self, at: u64, error: DecodeError) -> LogError {
        match error {
            DecodeError::Newer => LogError::newer_record(&self.place.path, at),
            error => self.corrupt(at, error),
        }
    }

    /// Takes its pages out of this process's memory.
    pub(crate) fn release(&self) {
        if let Some(map) = self.map.get() {
            map.release(0, map.bytes().len());
        }
    }

    pub(crate) fn map(&self) -> Result<&Map, LogError> {
        if let Some(map) = self.map.get() {
            return Ok(map);
        }
        let file = File::open(&self.place.path).map_err(|error| LogError::io("open", &self.place.path, error))?;
        let map = Map::of(&file).map_err(|error| LogError::io("map", &self.place.path, error))?;
        Ok(self.map.get_or_init(|| map))
    }

    /// The readable bytes from an offset on; empty when they cannot be read.
    pub(crate) fn bytes_from(&self, offset: u64) -> &[u8] {
        self.readable_bytes().ok().and_then(|bytes| bytes.get(offset as usize..)).unwrap_or_default()
    }

    #[inline]
    fn readable_bytes(&self) -> Result<&[u8], LogError> {
        let readable = self.readable() as usize;
        let bytes = self.map()?.bytes();
        bytes.get(..readable).ok_or_else(|| self.corrupt(bytes.len() as u64, Corruption::Short))
    }

    /// Call it before these bytes of the file are read past the map: pages that this read brings from the disk are in
    /// memory afterwards, and could not be distinguished from written ones.
    pub(crate) fn note_read(&self, from: u64, to: u64) {
        let to = to.min(self.readable());
        if from >= to || self.place.recovered.load(Ordering::Relaxed) {
            return;
        }
        if !self.map().is_ok_and(|map| map.is_resident(from as usize, (to - from) as usize)) {
            self.mark_recovered();
        }
    }

    fn populate_range(&self, from: usize, to: usize) -> Result<(), LogError> {
        self.populate_through(&RealDisk, from, to)
    }

    fn populate_through(&self, disk: &dyn Disk, from: usize, to: usize) -> Result<(), LogError> {
        let map = self.map()?;
        let to = to.min(map.bytes().len());
        if from >= to {
            return Ok(());
        }
        if !self.place.recovered.load(Ordering::Relaxed) && !map.is_resident(from, to - from) {
            self.mark_recovered();
        }
        let populated = disk.populate(&self.place.path, from as u64..to as u64, &|| map.populate(from, to - from));
        populated.map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            // The kernel's errors for unreadable sectors; any other may be temporary.
            Some(Errno::FAULT | Errno::IO | Errno::HWPOISON) => self.corrupt(from as u64, Corruption::Unreadable),
            _ => LogError::io("read", &self.place.path, error),
        })
    }
}

/// How many bytes there are up to the last one that is not zero, that one included.
pub(crate) fn written_in(bytes: &[u8]) -> usize {
    // By blocks from the end: nearly all of them are zeros, and a block is compared by wide words.
    let is_written = |block: &[u8]| block.iter().fold(0, |any, &byte| any | byte) != 0;
    let Some(last) = bytes.chunks(4096).rposition(is_written) else { return 0 };
    let block = bytes.get(last * 4096..).unwrap_or_default();
    let block = block.get(..4096).unwrap_or(block);
    last * 4096 + block.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1)
}
