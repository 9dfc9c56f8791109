//! Starting from a directory: the newest whole checkpoint, and the fold of the records after it.
//!
//! Invariants: unreadable records below `synced` are skipped, reported with their place, and never deleted; above it
//! the log ends at the first bad record, and segments after that are set aside. While the page cache is known to be
//! that of the last writer, records arrived in order: a record after a bad one proves corruption, not a torn tail. No
//! old segment is written to.

mod bound;
mod gaps;
mod headers;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::headers::{Found, refuse_without_checkpoint};
use crate::checkpoint::{Checkpoints, unlink_if_there};
use crate::contents::Contents;
use crate::corruption::{Quarantined, file_name, known_targets, marked};
use crate::cut::Cut;
use crate::directory::{Directory, Lookup};
use crate::disk::Disk;
use crate::epochs::count_of;
use crate::error::{Corruption, LogError};
use crate::fold::FoldState;
use crate::fold_ticket::set_aside;
use crate::format::Format;
use crate::header::rewritten_segment;
use crate::index::MemoryIndex;
use crate::live_segments::{LiveSegment, find_gone};
use crate::log::LogOptions;
use crate::lost_files::{self, Lost};
use crate::manifest::{Entry, Manifest};
use crate::names::Names;
use crate::orphans::remove_orphans;
use crate::record::{DecodeError, Decoded, EpochView, Position, Record};
use crate::resync::write_again;
use crate::segment::{
    Check, Resume, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, corrupt_path, directory_path, rewritten_path,
    segment_path,
};
use crate::synced_file::{Progress, SyncedFile};

/// Each makes the next start skip more sequences.
const MISSED_STARTS_MAX: u64 = 64;

/// Work that a start did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    pub bytes_read: u64,
    pub records: u64,
    /// Incomplete records: at most this many bytes, none of them confirmed as synced, are not served.
    pub torn_bytes: u64,
}

/// A sealed segment of the log.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) segment: Arc<Segment>,
    pub(crate) end: Position,
    pub(crate) lookup: Lookup,
}

impl Sealed {
    /// Where its records end in the file.
    pub(crate) fn records_end(&self) -> u64 {
        let segment = &self.segment;
        if segment.is_rewritten() { segment.bytes() } else { segment.offset_of(self.end).min(segment.bytes()) }
    }

    /// Whether it has no live message below the newest checkpoint, whose position is given: its bytes need not be on the disk.
    pub(crate) fn is_dead(&self, folded: Position) -> bool {
        self.end <= folded && matches!(self.lookup, Lookup::Nothing)
    }
}

/// Result of recovery; `state` is at the log's end.
pub(crate) struct Recovered {
    /// The bound of a log that has one, and the state there.
    pub(crate) bounded: Option<(Position, FoldState)>,
    pub(crate) log_id: Option<[u8; 16]>,
    /// The newest format of its segments.
    pub(crate) format: Format,
    pub(crate) state: FoldState,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) synced: SyncedFile,
    pub(crate) sealed: Vec<Sealed>,
    pub(crate) next_number: u64,
    pub(crate) recovery: Recovery,
    pub(crate) quarantined: Vec<Quarantined>,
    pub(crate) set_aside: Vec<String>,
    pub(crate) removed_indexes: Vec<String>,
    /// Segments that the checkpoint depends on and that are not among `sealed`.
    pub(crate) gone: Vec<LiveSegment>,
    /// Their entries in the manifest, by which a segment that is put back is served again.
    pub(crate) gone_entries: Vec<Entry>,
    /// Records after the checkpoint are missing: sequences may have been assigned without a trace.
    pub(crate) has_lost: bool,
    /// How many unreadable starts may have raised in the missing part.
    pub(crate) missed_starts: u64,
    /// The files that record missing segments.
    pub(crate) lost: Vec<PathBuf>,
}

/// Reads the directory up to the log's end and syncs the part past `synced`. Where the page cache was not lost since the
/// last write, every byte implies all bytes written before it.
pub(crate) fn recover(directory: &Path, options: &LogOptions) -> Result<Recovered, LogError> {
    let (disk, keeps_order) = (options.disk.as_ref(), !options.raise);
    let mut synced = after_cut(directory, disk)?;
    let names = Names::list(directory)?;
    for path in &names.temporary {
        unlink_if_there(disk, path)?;
    }
    let mut log_id = None;
    let (checkpoints, state) = Checkpoints::load(directory, &names.checkpoints, &mut log_id)?;
    let manifest = Manifest::load(directory, &mut log_id)?;
    manifest.repair(disk, directory, log_id)?;
    let lost_before = lost_files::load(&names.lost)?;
    let mut reader = Reader::new((directory, disk), keeps_order, (&names, &checkpoints.live), state, synced.progress());
    reader.lost_before = lost_before;
    reader.shard = options.shard;
    reader.bound = reader.bound.filter(|_| options.is_bounded);
    let sorted = reader.sort(&names, &manifest)?;
    let (headers, headless) = reader.headers(&sorted.plain, &mut log_id)?;
    if checkpoints.newest() == Position(0) {
        let is_unsynced = !keeps_order && synced.says_nothing_is_synced();
        refuse_without_checkpoint(directory, &names, &headers, &headless, is_unsynced)?;
    }
    reader.remove_all(sorted.replaced)?;
    headless.into_iter().try_for_each(|(number, is_zeros)| reader.pass_headless(number, is_zeros, &headers))?;
    reader.read_in_order(headers, &manifest, log_id)?;
    reader.check_segments(&names)?;
    reader.reach_synced();
    reader.sync_names()?;
    let bounded = reader.end_at_bound(&mut synced)?;
    let unnamed = sorted.unnamed;
    let Reader { sealed, state, quarantined, .. } = &reader;
    let gone = find_gone(directory, &checkpoints.live, &unnamed, sealed, state, quarantined)?;
    let is_missed = |one: &LiveSegment| gone.iter().any(|(missed, _)| missed == one);
    // Every live message is in another segment.
    let leftovers = unnamed.iter().filter(|one| !is_missed(one)).map(|one| one.path(directory));
    reader.remove_all(leftovers.collect())?;
    reader.lost.iter().try_for_each(|lost| lost_files::save(disk, directory, lost))?;
    let missed_starts = reader.missed_starts.min(MISSED_STARTS_MAX);
    let Reader { format, state, sealed, recovery, mut quarantined, set_aside, has_lost, lost_before, lost, .. } =
        reader;
    quarantined.extend(gone.iter().filter_map(|(_, found)| found.clone()));
    let gone: Vec<LiveSegment> = gone.into_iter().map(|(one, _)| one).collect();
    let is_gone = |entry: &&Entry| {
        let is_within = |one: &LiveSegment| entry.first <= one.first && one.first < entry.end;
        gone.iter().any(is_within) && !rewritten_path(directory, entry.number, entry.edition).exists()
    };
    let gone_entries = manifest.entries.iter().filter(is_gone).copied().collect();
    let removed_indexes = remove_orphans(disk, directory, &names, &gone)?;
    let last = highest_number(names.highest, &gone, lost_before.iter().chain(&lost));
    let lost = names.lost.into_iter().chain(lost.iter().map(|lost| lost_files::lost_path(directory, *lost.start())));
    Ok(Recovered {
        bounded,
        log_id,
        format,
        state,
        checkpoints,
        synced,
        sealed,
        next_number: last.saturating_add(1),
        recovery,
        quarantined,
        set_aside,
        removed_indexes,
        gone,
        gone_entries,
        has_lost,
        missed_starts,
        lost: lost.collect(),
    })
}

/// The file `synced`, once a cut is completed that an earlier process began.
fn after_cut(directory: &Path, disk: &dyn Disk) -> Result<SyncedFile, LogError> {
    let mut synced = SyncedFile::load(directory)?;
    if let Some(cut) = Cut::load(directory)? {
        synced.set_format(Format::Two);
        cut.complete(disk, directory, &mut synced, None)?;
    }
    Ok(synced)
}

/// The highest number that a segment has had. Rewritten ones keep the numbers of their sources, which ascend along the
/// log. A missing one may come back.
fn highest_number<'a>(named: u64, gone: &[LiveSegment], lost: impl Iterator<Item = &'a Lost>) -> u64 {
    let last = gone.iter().map(|one| one.number).fold(named, u64::max);
    lost.map(|lost| *lost.end()).fold(last, u64::max)
}

/// Reads the segments in order.
struct Reader<'a> {
    directory: &'a Path,
    disk: &'a dyn Disk,
    keeps_order: bool,
    /// That it is in its virtual host.
    shard: u16,
    format: Format,
    state: FoldState,
    /// Position of the checkpoint.
    floor: Position,
    /// The segments that it lists.
    live: &'a [LiveSegment],
    /// The numbers of the plain segment files.
    numbers: &'a [u64],
    /// The numbers of files that were missing at earlier starts, and at this one.
    lost_before: Vec<Lost>,
    lost: Vec<Lost>,
    synced: Position,
    sealed: Vec<Sealed>,
    recovery: Recovery,
    quarantined: Vec<Quarantined>,
    set_aside: Vec<String>,
    has_lost: bool,
    /// Whether an earlier start raised: segments that it missed may be back, and messages may be settled in them and
    /// again since.
    has_raised: bool,
    /// Starts whose records are missing.
    missed_starts: u64,
    /// Whether the log's end was found: later segments are set aside.
    ended: bool,
    /// Whether a segment after the end was renamed.
    has_moved: bool,
    /// Whether a file was quarantined for its missing header: that already explains why positions are missing.
    has_headless: bool,
    /// Whether a segment was written again.
    has_written: bool,
    /// Above it nothing counts for the state of a log that has a bound.
    bound: Option<Position>,
    /// That state, once records above it were found.
    at_bound: Option<FoldState>,
}

/// How far a walk came, and what it had to skip.
struct Walked {
    index: MemoryIndex,
    end: Position,
    corrupt: Vec<Quarantined>,
}

impl<'a> Reader<'a> {
    fn new(
        (directory, disk): (&'a Path, &'a dyn Disk),
        keeps_order: bool,
        (names, live): (&'a Names, &'a [LiveSegment]),
        state: FoldState,
        progress: Progress,
    ) -> Self {
        Reader {
            directory,
            disk,
            keeps_order,
            shard: 0,
            // A segment may be gone that only a checkpoint knows of.
            format: if state.epochs.iter().len() > 0 { Format::Two } else { Format::One },
            floor: state.position,
            live,
            numbers: &names.segments,
            lost_before: Vec::new(),
            lost: Vec::new(),
            synced: progress.position.max(state.position),
            bound: Some(progress.bound.max(state.position)),
            state,
            sealed: Vec::new(),
            recovery: Recovery::default(),
            quarantined: Vec::new(),
            set_aside: Vec::new(),
            has_lost: false,
            has_raised: false,
            missed_starts: 0,
            ended: false,
            has_moved: false,
            has_headless: false,
            has_written: false,
            at_bound: None,
        }
    }
}

impl Reader<'_> {
    /// Reads the plain segments and the rewritten ones between them.
    fn read_in_order(
        &mut self,
        headers: Vec<Found>,
        manifest: &Manifest,
        log_id: Option<[u8; 16]>,
    ) -> Result<(), LogError> {
        let mut rewritten = manifest.entries.iter().peekable();
        for mut found in headers {
            while let Some(entry) = rewritten.next_if(|entry| entry.first <= found.segment.first()) {
                self.read_rewritten(entry, log_id)?;
            }
            let next = rewritten.peek().map(|entry| entry.first);
            found.limit = found.limit.into_iter().chain(next).min();
            self.read(found)?;
        }
        for entry in rewritten {
            self.read_rewritten(entry, log_id)?;
        }
        Ok(())
    }

    /// A log is closed without segments only when it has no live message.
    fn check_segments(&self, names: &Names) -> Result<(), LogError> {
        let is_empty = names.segments.is_empty() && self.sealed.is_empty();
        if is_empty && self.state.queues.values().any(|queue| queue.count > 0) {
            return Err(LogError::corrupt(self.directory, 0, Corruption::NoSegment));
        }
        Ok(())
    }

    /// Reads a segment that the manifest names. A missing one was dead when a checkpoint was made.
    fn read_rewritten(&mut self, entry: &Entry, log_id: Option<[u8; 16]>) -> Result<(), LogError> {
        let Some((segment, is_readable)) =
            rewritten_segment(self.directory, entry, (log_id, self.shard), &self.state.epochs)?
        else {
            return Ok(());
        };
        if !is_readable {
            self.quarantine_header(segment.path());
        }
        if entry.end > self.floor {
            return Err(segment.corrupt(0, Corruption::NotCovered));
        }
        self.read_below(segment, entry.end)
    }

    fn read(&mut self, found: Found) -> Result<(), LogError> {
        let Found { segment, header, limit } = found;
        let is_superseded = limit.is_some_and(|limit| limit < segment.first());
        if self.ended || is_superseded {
            let written = self.contents(&segment)?.written_above(SEGMENT_HEADER_BYTES);
            self.recovery.torn_bytes += if is_superseded { 0 } else { written };
            return self.set_aside(segment.number());
        }
        segment.seal();
        segment.set_readable(limit.map_or(segment.bytes(), |limit| segment.offset_of(limit)));
        if segment.first() < self.floor {
            // Checkpoints are at ends of segments, so all of it is covered; segments after it may be missing because
            // they were dead.
            let end = limit.map_or(self.floor, |limit| limit.min(self.floor));
            segment.set_readable(segment.offset_of(end));
            return self.read_below(segment, end);
        }
        if segment.first() > self.state.position {
            if self.state.position >= self.synced && !self.keeps_order {
                return self.end_before(segment);
            }
            self.pass_gap(&segment);
        }
        self.read_above(segment, header, limit)
    }

    /// Reads a segment that the checkpoint covers: only its directory is needed.
    fn read_below(&mut self, segment: Segment, end: Position) -> Result<(), LogError> {
        if let Some(lookup) = self.directory_file(&segment)? {
            self.push(segment, end, lookup);
            return Ok(());
        }
        // Without a directory it was dead when the checkpoint was made, unless the file was deleted.
        let contents = self.contents(&segment)?;
        let walked = self.walk(&segment, &contents, end, None)?;
        let lookup = Lookup::Memory(Arc::new(walked.index));
        let is_live = lookup.any_run(|queue, first, count| self.state.has_live(queue, first, count))?;
        if !is_live && self.lost_before.iter().any(|lost| lost.contains(&segment.number())) {
            // It was put back after its numbers had been given up.
            return self.set_aside(segment.number());
        }
        if is_live {
            self.quarantined.extend(walked.corrupt);
        }
        self.push(segment, end, if is_live { lookup } else { Lookup::Nothing });
        Ok(())
    }

    /// Reads a segment with records after the checkpoint.
    fn read_above(&mut self, segment: Segment, header: SegmentHeader, limit: Option<Position>) -> Result<(), LogError> {
        let owed = match limit {
            // The next segment was begun after all of this one was written.
            Some(limit) if self.keeps_order => limit,
            Some(limit) => limit.min(self.synced),
            None => self.synced,
        };
        let contents = self.contents(&segment)?;
        let walked = self.walk(&segment, &contents, owed, Some(header.epoch))?;
        self.quarantined.extend(walked.corrupt);
        self.state.position = self.state.position.max(walked.end);
        let at = segment.offset_of(walked.end);
        if limit != Some(walked.end) {
            self.ended = true;
            self.recovery.torn_bytes += contents.written_above(at);
        }
        segment.set_readable(at);
        if walked.end > self.synced || segment.first() >= self.synced {
            // Including the torn tail: nothing is thrown away.
            write_again(self.disk, &segment, &header, &contents)?;
            self.has_written = true;
        }
        self.push(segment, walked.end, Lookup::Memory(Arc::new(walked.index)));
        Ok(())
    }

    fn contents(&self, segment: &Segment) -> Result<Contents, LogError> {
        Contents::read(self.disk, segment.path(), segment.bytes())
    }

    fn directory_file(&self, segment: &Segment) -> Result<Option<Lookup>, LogError> {
        let directory = Directory::of(segment);
        Ok(directory.is_usable()?.then(|| Lookup::File(Arc::new(directory))))
    }

    /// Indexes the records up to the torn tail, which begins with a bad one at or above `owed`, and skips bad ones
    /// before it. With the epoch in which the segment was begun, records above the state's position are folded.
    fn walk(
        &mut self,
        segment: &Segment,
        contents: &Contents,
        owed: Position,
        fold: Option<u64>,
    ) -> Result<Walked, LogError> {
        let mut walked = Walked { index: MemoryIndex::default(), end: owed, corrupt: Vec::new() };
        // Records of a rewritten one keep their positions: its end is that of its file.
        let owed_to = if segment.is_rewritten() { segment.bytes() } else { segment.offset_of(owed) };
        let mut walk = segment.walk_over(contents.up_to(segment.readable()), Check::Head);
        let mut begun_in = fold;
        loop {
            let at = walk.offset();
            let is_owed = at < owed_to;
            walk.set_check(if is_owed { Check::Head } else { Check::HeadAndPayload });
            match walk.step() {
                Ok((offset, decoded)) => {
                    let end = segment.position_of(walk.offset());
                    if fold.is_some() {
                        self.pass_bound(end);
                    }
                    if begun_in.take().is_some() {
                        self.enter_epoch(segment, matches!(decoded.record, Record::Epoch(_)));
                    }
                    self.take_in(&mut walked, offset, &decoded, fold.map(|_| end));
                    if contents.is_bad(at, walk.offset()) {
                        // Its head is whole: a reader detects the rest.
                        walked.corrupt.push(self.found_bad(segment, contents, at, Corruption::Unreadable));
                    }
                }
                Err(error @ DecodeError::Newer) => return Err(segment.unreadable(at, error)),
                Err(error) => {
                    // A write that was cut short leaves no unreadable sector.
                    let is_bad = contents.is_bad(at, contents.claimed_end(at));
                    // Above what is owed an envelope may be the torn tail, with whole records in it.
                    let to = if is_owed { Resume::Anywhere } else { Resume::BehindEnvelope };
                    let goes_on = (is_owed || self.keeps_order || is_bad) && walk.resume(to);
                    if !is_owed && !goes_on {
                        walked.end = segment.position_of(at);
                        return Ok(walked);
                    }
                    if !goes_on && error == DecodeError::End && self.has_headless {
                        // The records after its end were in that file.
                        self.has_lost |= fold.is_some();
                        return Ok(walked);
                    }
                    let why = if is_bad { Corruption::Unreadable } else { error.into() };
                    let is_short = !goes_on && error == DecodeError::End && fold.is_some();
                    let gone = if is_short { self.miss_behind(segment, segment.position_of(at), owed) } else { None };
                    let found = gone.unwrap_or_else(|| self.found_bad(segment, contents, at, why));
                    self.note_lost((found, at), fold, &mut walked.corrupt);
                    if !goes_on {
                        return Ok(walked);
                    }
                }
            }
        }
    }

    /// Notes the epoch of a segment with records, and whether the first of them begins it: every epoch begins a segment
    /// with its record.
    fn enter_epoch(&mut self, segment: &Segment, is_begun: bool) {
        let before = count_of(segment.epoch()).saturating_sub(u64::from(is_begun));
        let missed = before.saturating_sub(count_of(self.state.epoch));
        self.missed_starts = self.missed_starts.saturating_add(missed);
        if !is_begun {
            self.state.epoch = self.state.epoch.max(segment.epoch());
        }
        if segment.format() == Format::Two {
            self.state.epochs.begin(segment.epoch(), segment.first());
        }
    }

    /// The report of a record that cannot be read.
    fn found_bad(&self, segment: &Segment, contents: &Contents, at: u64, why: Corruption) -> Quarantined {
        let mut found = Quarantined::new(segment, at, why);
        let record = contents.from(at);
        let queues = known_targets(record, segment.coding_of(record), &self.state);
        queues.into_iter().for_each(|queue| found.concern(queue));
        found
    }

    /// Adds a record to the index, and to the state when it ends above it.
    fn take_in(&mut self, walked: &mut Walked, offset: u32, decoded: &Decoded<'_>, end: Option<Position>) {
        let end = end.filter(|&end| end > self.state.position);
        walked.index.take_in(offset, decoded);
        if end.is_some()
            && let Some(corrupt) = walked.corrupt.last_mut()
        {
            self.concern_skipped(decoded, corrupt);
        }
        if let Some(end) = end {
            self.has_raised |= matches!(decoded.record, Record::Epoch(begun) if begun.raises > 0);
            self.state.apply(&decoded.record, end);
            self.recovery.records += 1;
            self.recovery.bytes_read += u64::from(decoded.length);
        }
    }

    /// Sequences are missing before a message: after corruption, its queue is among those affected.
    fn concern_skipped(&self, decoded: &Decoded<'_>, corrupt: &mut Quarantined) {
        decoded.each(0, |_, record| {
            let Record::Message(message) = record else { return };
            for target in message.targets() {
                let next = self.state.queues.get(&target.queue).map_or(target.sequence, |queue| queue.next);
                if next < target.sequence {
                    corrupt.concern(target.queue);
                }
            }
        });
    }

    /// Records that no record can be read at an offset.
    fn note_lost(&mut self, (found, at): (Quarantined, u64), fold: Option<u64>, corrupt: &mut Vec<Quarantined>) {
        corrupt.push(found);
        let Some(epoch) = fold else { return };
        self.has_lost = true;
        if at == SEGMENT_HEADER_BYTES && epoch > self.state.epoch {
            // Every epoch begins a segment with its record, so that one may be lost. A needless raise only skips
            // sequences.
            let end = self.state.position;
            self.state.apply(&Record::Epoch(EpochView::of_one(epoch, true)), end);
        }
    }

    fn push(&mut self, segment: Segment, end: Position, lookup: Lookup) {
        let file = file_name(&segment);
        if !self.quarantined.iter().any(|one| one.file == file) {
            self.quarantined.extend(marked(self.directory, &file));
        }
        // The map was for reading it now; a delivery maps it again.
        self.sealed.push(Sealed { segment: Arc::new(segment.unmapped()), end, lookup });
    }

    /// Segments after the end must not come back once another one has their positions: a start that found both would
    /// report unsynced records as corruption.
    fn sync_names(&self) -> Result<(), LogError> {
        if !self.has_written && !self.has_moved {
            return Ok(());
        }
        self.sync_directory()
    }

    fn sync_directory(&self) -> Result<(), LogError> {
        self.disk.sync_directory(self.directory).map_err(|error| LogError::io("sync", self.directory, error))
    }

    /// A corrupt one is set aside instead.
    fn unlink_with_directory(&self, path: PathBuf) -> Result<(), LogError> {
        let mark = corrupt_path(&path);
        if mark.exists() && path.exists() {
            set_aside(self.disk, &path)?;
        }
        unlink_if_there(self.disk, &path)?;
        unlink_if_there(self.disk, &directory_path(&path))?;
        unlink_if_there(self.disk, &mark)
    }

    fn unlink(&mut self, number: u64) -> Result<(), LogError> {
        self.has_moved = true;
        unlink_if_there(self.disk, &segment_path(self.directory, number))
    }

    fn set_aside(&mut self, number: u64) -> Result<(), LogError> {
        self.has_moved = true;
        let aside = set_aside(self.disk, &segment_path(self.directory, number))?;
        self.set_aside.extend(aside.file_name().map(|name| name.to_string_lossy().into_owned()));
        Ok(())
    }
}
