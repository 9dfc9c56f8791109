//! The log itself: appending to the tail, writing it, rolling to the next segment, and finding stored messages.
//!
//! Invariants: positions are contiguous over all segments; nothing is visible to a reader before its write returned;
//! bound, synced <= written <= appended. The caller holds the log's lock: long work leaves as a ticket.

mod bound;
mod closing;
mod comparing;
mod copying;
mod cutting;
mod envelope;
mod epoch;
mod extents;
mod handing_on;
mod quarantine;
mod reading;
mod recent;
mod rolling;
mod room;
mod scrubbing;
mod settling;
mod syncing;
mod timers;
mod upkeep;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use penstock_queue::QueueId;
use rustc_hash::FxHashMap;

pub use self::reading::Portion;
pub use self::recent::Passed;
use self::recent::Recent;
use self::room::Purpose;
pub use self::room::Room;
use self::timers::Timers;
pub use self::timers::{DeadlineTicket, DeadlinesRead};
use crate::active::{Active, Size, random, random_id};
use crate::ahead::Ahead;
use crate::backup::Holds;
use crate::catalog::Catalog;
use crate::corruption::Quarantined;
use crate::directory::Lookup;
use crate::disk::{Disk, RealDisk};
use crate::encode::{
    Payload, Stamp, delete_bytes, encode_delete, encode_mark, encode_message, epoch_bytes, mark_bytes,
};
use crate::epochs::Epochs;
use crate::error::{Corruption, LogError};
use crate::fold::FoldState;
use crate::fold_ticket::Keeper;
use crate::format::Format;
use crate::kept::{Kept, Share};
use crate::names::number_of;
use crate::record::{MarkView, Position, RECORD_BYTES_MAX, Target};
use crate::recovery::{Recovered, Recovery, Sealed, recover};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::sync::Unsynced;
use crate::synced_file::SyncedFile;

/// The pages of this many of the largest segments stay with readers; a third such part is for the directories, for
/// folds, and for readers of segments that others have left.
const READ_SEGMENTS: u64 = 2;
/// After a large message the tail's buffer shrinks to this.
const TAIL_BYTES_KEPT: usize = 1 << 20;

/// How a log is opened.
#[derive(Clone, Debug)]
pub struct LogOptions {
    pub segment_bytes_min: u64,
    pub segment_bytes_max: u64,
    /// Whether the page cache may have been lost since the last write. Sequences may have been assigned that the disk
    /// does not know of, so every queue's next sequence is raised; and later writes may exist without earlier ones, so
    /// records after a bad one above `synced` do not count. A start that truncates a torn tail raises by itself.
    pub raise: bool,
    /// Messages are refused rather than leave less free space than this on the disk.
    pub free_bytes_min: u64,
    /// The format of new segments. A log that has one of a newer format goes on in that.
    pub format: Format,
    /// The shard of its virtual host that it is; 0 also for the dedicated log of a queue. A segment of another shard is
    /// refused.
    pub shard: u16,
    /// Whether the log has a high watermark, as a replica's has: see [`Log::set_bound`].
    pub is_bounded: bool,
    /// The id of a log that has no file yet: all replicas of a log have the same one. Without it a new log draws one. A log
    /// with another id is refused.
    pub log_id: Option<[u8; 16]>,
    /// Space that all logs on this disk keep free.
    pub kept: Arc<Kept>,
    pub disk: Arc<dyn Disk>,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes_min: 1 << 20,
            segment_bytes_max: 64 << 20,
            raise: false,
            free_bytes_min: 0,
            format: Format::NEWEST,
            shard: 0,
            is_bounded: false,
            log_id: None,
            kept: Arc::default(),
            disk: Arc::new(RealDisk),
        }
    }
}

/// An opened log, the state of its queues, and the work of the start.
#[derive(Debug)]
pub struct Opened {
    pub log: Log,
    /// At the log's end, or at its bound.
    pub state: FoldState,
    pub recovery: Recovery,
    /// Places that could not be read and are skipped.
    pub quarantined: Vec<Quarantined>,
    /// The new names of segments after the log's end.
    pub set_aside: Vec<String>,
    /// Index files whose segments had been removed.
    pub removed_indexes: Vec<String>,
    epoch_to_begin: Option<EpochToBegin>,
}

/// The tasks of the first epoch after a start in format 2.
#[derive(Clone, Copy, Debug)]
struct EpochToBegin {
    raises: u8,
    /// The log has no file yet that says its id.
    is_new: bool,
}

/// Counters of one log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    pub segments: u64,
    pub mapped_bytes: u64,
    pub bytes_written: u64,
    /// Bytes that compaction wrote, without directories.
    pub bytes_rewritten: u64,
    /// Sealed segments whose index is in memory, as no fold has taken them yet.
    pub unfolded_segments: u64,
    /// Deadlines that are kept one by one: those of segments whose index is not written yet.
    pub deadlines_in_memory: u64,
}

/// Whether a log can be appended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No epoch has begun since the log of format 2 was opened.
    Opened,
    /// No epoch has begun since the log was truncated, or since the last one could not begin.
    Between,
    Begun,
    Closed,
}

/// A shard's log.
#[derive(Debug)]
pub struct Log {
    directory: Arc<Path>,
    options: LogOptions,
    log_id: [u8; 16],
    /// Of the segments to come.
    epoch: u64,
    /// The highest epoch that has begun, also where its record was cut.
    newest_epoch: u64,
    /// The epochs of format 2 up to the log's end.
    epochs: Epochs,
    /// Records that are appended and not written; the first of them is at `written`.
    tail: Vec<u8>,
    written: Position,
    /// A write failed: its bytes are still in `tail`.
    write_behind: bool,
    stage: Stage,
    bytes_written: u64,
    bytes_rewritten: u64,
    active: Active,
    /// Ascending; their positions are contiguous up to the active segment, except for removed ones.
    sealed: Vec<Sealed>,
    grown_bytes: u64,
    synced: Position,
    /// The high watermark of a log that has one; without it, its end.
    bound: Option<Position>,
    /// How often it was cut.
    cuts: u64,
    ahead: Ahead,
    unsynced: Vec<Unsynced>,
    stopped: Arc<AtomicBool>,
    synced_file: Arc<Mutex<SyncedFile>>,
    keeper: Arc<Mutex<Keeper>>,
    folding: Arc<AtomicBool>,
    holds: Arc<Holds>,
    folded: Position,
    share: Share,
    /// The state of the start: folds go on from there.
    recovered: Position,
    /// The segment that a queue was last found in: the next look-up begins there.
    hints: RefCell<FxHashMap<QueueId, u64>>,
    recent: RefCell<Recent>,
    timers: Timers,
    /// The numbers of corrupt segments: nothing is rewritten in their place or across them, and once they have no live
    /// message their files are renamed, not removed.
    quarantined: BTreeSet<u64>,
    /// The numbers of other segments that are not rewritten, and across which none is: see [`Log::fence`].
    fenced: BTreeSet<u64>,
    /// Segments that stay and are not served: their headers cannot be read, or the manifest does not name them; and the
    /// files that record missing ones.
    unserved: Vec<PathBuf>,
}

impl Log {
    /// Opens the log in a directory, which is made when absent. In format 1 this begins an epoch in a new segment; in
    /// format 2 it appends nothing, and [`Opened::begin_epoch`] does.
    pub fn open(directory: &Path, options: LogOptions) -> Result<Opened, LogError> {
        std::fs::create_dir_all(directory).map_err(|error| LogError::io("create", directory, error))?;
        let mut options = options;
        options.segment_bytes_max = options.segment_bytes_max.clamp(2 * SEGMENT_HEADER_BYTES, RECORD_BYTES_MAX);
        options.segment_bytes_min =
            options.segment_bytes_min.clamp(2 * SEGMENT_HEADER_BYTES, options.segment_bytes_max);
        let recovered = recover(directory, &options)?;
        let recovery = recovered.recovery;
        let mut state = recovered.bounded.as_ref().map_or(&recovered.state, |(_, state)| state).clone();
        let (quarantined, set_aside) = (recovered.quarantined.clone(), recovered.set_aside.clone());
        let removed_indexes = recovered.removed_indexes.clone();
        let (lost, missed_starts) = (recovered.lost.clone(), recovered.missed_starts);
        let raise = options.raise || recovery.torn_bytes > 0 || recovered.has_lost;
        // Above the sequences that those starts assigned, also when their records are back.
        let raises = if raise { missed_starts.saturating_add(1).min(u64::from(u8::MAX)) as u8 } else { 0 };
        let is_new = recovered.log_id.is_none();
        let mut log = Log::after(directory, options, recovered)?;
        log.follow_segments();
        quarantined.iter().for_each(|found| log.quarantine(&found.file, found.at));
        log.unserved.extend(log.unserved_of(&quarantined));
        log.quarantined.extend(quarantined.iter().filter_map(|found| number_of(&found.file)));
        log.fence(lost.iter().filter_map(|path| number_of(&path.file_name()?.to_string_lossy())));
        let mut epoch_to_begin = None;
        if log.format() == Format::One {
            log.begin_as_one(&mut state, raises)?;
            log.settle_start(raises > 0 || is_new)?;
        } else {
            epoch_to_begin = Some(EpochToBegin { raises, is_new });
        }
        if !quarantined.is_empty() {
            // With an earlier position a start after a power failure would take the corrupt record for the log's torn
            // tail, and drop the records after it.
            let synced = log.synced_file.lock().unwrap_or_else(PoisonError::into_inner);
            synced.sync(log.options.disk.as_ref())?;
        }
        Ok(Opened { log, state, recovery, quarantined, set_aside, removed_indexes, epoch_to_begin })
    }

    /// Appends a message to the tail. Returns the position after it: the message is in the page cache once
    /// [`Log::write`] returned that much, and on the disk once [`Log::synced`] is not below it. For more targets than
    /// one record names it is stored in several records.
    #[inline]
    pub fn append_message(
        &mut self,
        payload: &Payload<'_>,
        stored_at_ms: u64,
        targets: &[Target],
    ) -> Result<Position, LogError> {
        if targets.len() <= self.format().targets_max() {
            return self.append_copy(payload, stored_at_ms, targets);
        }
        self.append_copies(payload, stored_at_ms, targets)
    }

    #[cold]
    fn append_copies(
        &mut self,
        payload: &Payload<'_>,
        stored_at_ms: u64,
        targets: &[Target],
    ) -> Result<Position, LogError> {
        let targets_max = self.format().targets_max();
        self.reserve(payload, targets.len())?;
        let last = targets.len().div_ceil(targets_max) - 1;
        let attributes = payload.attributes_of_part();
        for (place, targets) in targets.chunks(targets_max).enumerate() {
            // A log may end after any record: the producer's sequence and the source count as stored with the last of them.
            let payload = if place == last { *payload } else { payload.part(attributes.as_ref()) };
            self.append_copy(&payload, stored_at_ms, targets)?;
        }
        Ok(self.appended())
    }

    #[inline(always)]
    fn append_copy(
        &mut self,
        payload: &Payload<'_>,
        stored_at_ms: u64,
        targets: &[Target],
    ) -> Result<Position, LogError> {
        let format = self.format();
        check_count("targets", targets.len(), 1, format.targets_max())?;
        if !payload.fits(format) {
            return Err(LogError::NotInFormat { what: "an attribute of a message" });
        }
        let position = self.take_place(payload.record_bytes(format, targets.len()), Purpose::Message)?;
        for target in targets {
            if format == Format::One && target.queue.0 > u32::MAX.into() {
                return Err(LogError::NotInFormat { what: "a queue's number above 2^32" });
            }
            let next = self.active.index.next_of(target.queue);
            if target.sequence.0 < next {
                let (queue, sequence) = (target.queue.0, target.sequence.0);
                return Err(LogError::NotAscending { queue, sequence, last: next.saturating_sub(1) });
            }
        }
        let offset = self.active.segment.offset_of(position) as u32;
        for target in targets {
            self.active.index.push(*target, offset, (payload.body_bytes(), stored_at_ms));
        }
        if let Some(attributes) = payload.attributes() {
            self.push_deadlines(targets, attributes.into());
        }
        let stamp = self.stamp(position);
        encode_message(&mut self.tail, stamp, payload, stored_at_ms, targets);
        Ok(self.appended())
    }

    /// Reserves space for a message, so that appending it cannot fail for lack of space. For more targets than one
    /// record names, space for all its copies is reserved in one segment.
    pub fn reserve(&mut self, payload: &Payload<'_>, target_count: usize) -> Result<(), LogError> {
        let (format, targets_max) = (self.format(), self.format().targets_max());
        if !payload.fits(format) {
            return Err(LogError::NotInFormat { what: "an attribute of a message" });
        }
        let bytes = if target_count <= targets_max {
            payload.record_bytes(format, target_count)
        } else {
            let (copies, rest) = (target_count / targets_max, target_count % targets_max);
            let last = if rest > 0 { payload.record_bytes(format, rest) } else { 0 };
            copies * payload.record_bytes(format, targets_max) + last
        };
        self.take_place(bytes, Purpose::Message).map(|_| ())
    }

    /// Appends the deletion of a queue. Returns the position after it.
    pub fn append_delete(&mut self, queue: QueueId) -> Result<Position, LogError> {
        let stamp = self.place(delete_bytes(self.format()), Purpose::Upkeep)?;
        encode_delete(&mut self.tail, stamp, queue);
        self.hints.get_mut().remove(&queue);
        Ok(self.appended())
    }

    /// Appends a value that an owner keeps under a key; an empty one removes the key. Returns the position after it.
    pub fn append_mark(&mut self, owner: &[u8], key: &[u8], value: &[u8]) -> Result<Position, LogError> {
        check_count("bytes of a mark's owner or key", owner.len().max(key.len()), 0, u16::MAX as usize)?;
        let mark = MarkView { owner, key, value };
        let stamp = self.place(mark_bytes(&mark), Purpose::Upkeep)?;
        encode_mark(&mut self.tail, stamp, &mark);
        Ok(self.appended())
    }

    /// A random number, unique for all purposes.
    pub fn random(&self) -> Result<u64, LogError> {
        random_id(&self.directory)
    }

    /// Writes the tail. Everything below the position it returns is in the page cache and visible to readers. After a
    /// failure the tail is kept and nothing more is appended until a write succeeds.
    pub fn write(&mut self) -> Result<Position, LogError> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(LogError::Stopped { path: self.directory.to_path_buf() });
        }
        if self.tail.is_empty() {
            return Ok(self.written);
        }
        let segment = &self.active.segment;
        let offset = segment.offset_of(self.written);
        if let Err(error) = self.options.disk.write_at(&self.active.file, &self.tail, offset) {
            self.write_behind = true;
            return Err(LogError::io("write", segment.path(), error));
        }
        let bytes = self.tail.len() as u64;
        let readable = self.bound.map_or(offset + bytes, |bound| segment.offset_of(bound));
        segment.written(offset, readable.min(offset + bytes));
        self.write_behind = false;
        self.written.0 += bytes;
        let (disk, end) = (self.options.disk.as_ref(), offset + bytes);
        self.ahead.prepare(disk, &self.active.file, self.written, end, self.active.reserved);
        self.bytes_written += bytes;
        self.tail.clear();
        if self.tail.capacity() > 4 * TAIL_BYTES_KEPT {
            self.tail.shrink_to(TAIL_BYTES_KEPT);
        }
        Ok(self.written)
    }

    /// The format of the segment that records are appended to.
    #[inline]
    #[must_use]
    pub fn format(&self) -> Format {
        self.active.segment.format()
    }

    /// The position after the last record appended.
    #[must_use]
    pub fn end(&self) -> Position {
        self.appended()
    }

    /// Everything below this is on the disk.
    #[must_use]
    pub fn synced(&self) -> Position {
        self.synced
    }

    /// How often a segment was sealed, earlier starts included: when it grows, there may be something to fold.
    #[must_use]
    pub fn sealed_count(&self) -> u64 {
        self.active.segment.number().saturating_sub(1)
    }

    /// Segments that readers left since the last call, to drop without the lock.
    pub fn take_passed(&mut self) -> Passed {
        self.recent.get_mut().take_passed()
    }

    #[must_use]
    pub fn stats(&self) -> LogStats {
        let segments = self.sealed.iter().map(|sealed| &sealed.segment).chain(std::iter::once(&self.active.segment));
        let mapped = segments.filter(|segment| segment.is_mapped()).map(|segment| segment.bytes()).sum::<u64>();
        let unfolded = self.sealed.iter().filter(|sealed| matches!(sealed.lookup, Lookup::Memory(_))).count();
        LogStats {
            segments: self.sealed.len() as u64 + 1,
            mapped_bytes: mapped + self.sealed.iter().map(|sealed| sealed.lookup.mapped_bytes()).sum::<u64>(),
            bytes_written: self.bytes_written,
            bytes_rewritten: self.bytes_rewritten,
            unfolded_segments: unfolded as u64,
            deadlines_in_memory: self.timers.count_in_memory(),
        }
    }
}

impl Log {
    fn after(directory: &Path, options: LogOptions, recovered: Recovered) -> Result<Log, LogError> {
        let Recovered { log_id, format, state, checkpoints, sealed, next_number, gone, gone_entries, lost, .. } =
            recovered;
        let (mut synced, bounded) = (recovered.synced, recovered.bounded);
        let log_id = id_of(directory, log_id, options.log_id)?;
        let directory: Arc<Path> = Arc::from(directory);
        let format = options.format.max(format);
        synced.set_format(format);
        let (end, epochs) = (state.position, state.epochs.clone());
        let newest_epoch = state.epoch.max(synced.progress().epoch);
        let (epoch, stage) = match format {
            Format::One => (state.epoch + 1, Stage::Begun),
            Format::Two => (epoch::after(newest_epoch, &directory)?, Stage::Opened),
        };
        let (bound, state) = bound::of(bounded, state, format)?;
        let counted = bound::hide_above(bound, &sealed);
        let header = SegmentHeader::new(format, log_id, random_id(&directory)?, (epoch, end)).of_shard(options.shard);
        let least = SEGMENT_HEADER_BYTES + epoch_bytes(format) as u64;
        let bytes = options.segment_bytes_min.max(least);
        let size = Size::bare(bytes, least);
        let (active, unsynced) = Active::create(&directory, options.disk.as_ref(), next_number, &header, size)?;
        let share = Share::new(&options.kept, checkpoints.newest_bytes);
        let recent = RefCell::new(Recent::new(READ_SEGMENTS * options.segment_bytes_max));
        Ok(Log {
            grown_bytes: bytes,
            written: end,
            synced: end,
            bound,
            cuts: synced.cuts(),
            newest_epoch,
            epochs,
            ahead: Ahead::new(end),
            recovered: state.position,
            folded: checkpoints.newest(),
            share,
            keeper: Arc::new(Mutex::new(Keeper {
                state,
                checkpoints,
                catalog: Catalog::of(counted),
                rewriting: None,
                gone,
                gone_entries,
                is_closed: false,
            })),
            synced_file: Arc::new(Mutex::new(synced)),
            unsynced: vec![unsynced],
            directory,
            options,
            log_id,
            epoch,
            tail: Vec::with_capacity(TAIL_BYTES_KEPT / 16),
            write_behind: false,
            stage,
            bytes_written: 0,
            bytes_rewritten: 0,
            active,
            sealed,
            stopped: Arc::default(),
            folding: Arc::default(),
            holds: Arc::default(),
            hints: RefCell::default(),
            recent,
            timers: Timers::default(),
            quarantined: BTreeSet::new(),
            fenced: BTreeSet::new(),
            unserved: lost,
        })
    }

    fn appended(&self) -> Position {
        Position(self.written.0 + self.tail.len() as u64)
    }

    #[cold]
    fn refusal(&self) -> LogError {
        let path = self.directory.to_path_buf();
        if self.stage == Stage::Closed { LogError::Closed { path } } else { LogError::NoEpoch { path } }
    }

    /// Reserves space for a record of that length; returns where it will be.
    #[inline]
    fn place(&mut self, length: usize, purpose: Purpose) -> Result<Stamp, LogError> {
        self.take_place(length, purpose).map(|position| self.stamp(position))
    }

    fn stamp(&self, position: Position) -> Stamp {
        Stamp { position, coding: self.active.segment.coding(), enclosed: 0 }
    }

    #[inline]
    fn take_place(&mut self, length: usize, purpose: Purpose) -> Result<Position, LogError> {
        if self.stage != Stage::Begun {
            return Err(self.refusal());
        }
        if self.write_behind {
            return Err(LogError::WriteBehind);
        }
        if self.stopped.load(Ordering::Relaxed) {
            return Err(LogError::Stopped { path: self.directory.to_path_buf() });
        }
        let position = self.appended();
        let end = self.active.segment.offset_of(position) + length as u64;
        if end > self.active.reserved {
            self.make_place(end, length as u64, purpose)?;
        }
        Ok(position)
    }
}

/// The id of a log: that in its files, else the expected one, else a random one.
fn id_of(directory: &Path, found: Option<[u8; 16]>, expected: Option<[u8; 16]>) -> Result<[u8; 16], LogError> {
    match (found, expected) {
        (Some(found), Some(expected)) if found != expected => {
            Err(LogError::corrupt(directory, 0, Corruption::OtherLog))
        }
        (Some(id), _) | (None, Some(id)) => Ok(id),
        (None, None) => random(directory),
    }
}

fn check_count(of: &'static str, count: usize, count_min: usize, count_max: usize) -> Result<(), LogError> {
    if count < count_min || count > count_max {
        return Err(LogError::CountOutOfBounds { of, count, count_max });
    }
    Ok(())
}
