//! A fold as work for a thread: read sealed segments, write the directories of the live ones, publish a checkpoint.
//!
//! Invariants: before a checkpoint gets its name, every segment with a live message of it is on the disk with its
//! directory, and so are their names; a segment that is dead at the checkpoint need not be. A fold that fails half-way
//! leaves the state at the record it reached, and the next one goes on from there. Only records with a correct checksum
//! are folded, and a sector that cannot be read costs the records in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::backup::Holds;
use crate::catalog::{Catalog, Holding};
use crate::checkpoint::{Checkpoints, unlink_if_there};
use crate::contents::Contents;
use crate::corruption::Quarantined;
use crate::directory::{self, Lookup};
use crate::disk::Disk;
use crate::error::{Corruption, LogError};
use crate::fold::FoldState;
use crate::format::Format;
use crate::live_segments::LiveSegment;
use crate::manifest::Entry;
use crate::record::{DecodeError, Position};
use crate::rewriting::Rewriting;
use crate::segment::{Check, Resume, Segment, aside_path, corrupt_path};
use crate::sync::Unsynced;
use crate::synced_file::{Progress, SyncedFile};

/// A checkpoint is saved twice when this many times its size is between the two that are kept, and at least so much.
const COPY_TIMES: u64 = 8;
const COPY_BYTES_MIN: u64 = 1 << 20;

/// State that the folds of a log pass on.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) state: FoldState,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) catalog: Catalog,
    pub(crate) rewriting: Option<Rewriting>,
    /// Segments that the start missed: the next start checks whether they are still missing.
    pub(crate) gone: Vec<LiveSegment>,
    /// Their entries in the manifest, by which a segment that is put back is served again.
    pub(crate) gone_entries: Vec<Entry>,
    /// Nothing is compacted once its log is closed: another log may be open on the directory.
    pub(crate) is_closed: bool,
}

/// A sealed segment in a fold, whose directory is not written yet.
#[derive(Debug)]
pub(crate) struct FoldPart {
    pub(crate) segment: Arc<Segment>,
    pub(crate) end: Position,
    pub(crate) lookup: Lookup,
    /// Set while its bytes are not known to be on the disk.
    pub(crate) unsynced: Option<Unsynced>,
}

/// Marks a fold as running until it is dropped.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// A fold that runs without the log's lock, over the segments that were sealed since the last one, except the newest.
#[derive(Debug)]
#[must_use]
pub struct FoldTicket {
    pub(crate) parts: Vec<FoldPart>,
    pub(crate) boundary: Position,
    pub(crate) log_id: [u8; 16],
    /// Of the checkpoint.
    pub(crate) format: Format,
    pub(crate) directory: Arc<Path>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) synced_file: Arc<Mutex<SyncedFile>>,
    pub(crate) keeper: Arc<Mutex<Keeper>>,
    pub(crate) stopped: Arc<AtomicBool>,
    pub(crate) holds: Arc<Holds>,
    pub(crate) running: Running,
}

/// Result of a fold, for [`crate::Log::finish_fold`].
#[derive(Debug)]
#[must_use]
pub struct Folded {
    pub(crate) parts: Vec<FoldPart>,
    /// Segments that are no longer needed, ascending.
    pub(crate) dead: Vec<Arc<Segment>>,
    /// Records that became corrupt and were skipped.
    pub corrupt: Vec<Quarantined>,
    pub(crate) boundary: Position,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) running: Running,
}

/// Files and maps that the log no longer needs. Performing it removes the files; dropping it releases the maps. Both
/// take a while, so do them without the log's lock.
#[derive(Debug, Default)]
#[must_use]
pub struct Retired {
    pub(crate) files: Vec<PathBuf>,
    /// Corrupt segments: they are renamed instead.
    pub(crate) kept: Vec<PathBuf>,
    pub(crate) disk: Option<Arc<dyn Disk>>,
    /// Running copies keep the files that they need.
    pub(crate) holds: Arc<Holds>,
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) lookups: Vec<Lookup>,
}

impl Retired {
    /// Adds a segment with its files; a corrupt one's file is kept under another name.
    pub(crate) fn push(&mut self, segment: Arc<Segment>, is_kept: bool) {
        let files = if is_kept { &mut self.kept } else { &mut self.files };
        files.push(segment.path().to_owned());
        self.files.push(segment.directory_path());
        self.segments.push(segment);
    }

    /// The names that corrupt segments get by [`Retired::perform`], or once no copy needs them.
    #[must_use]
    pub fn asides(&self) -> Vec<String> {
        let name = |path: &PathBuf| aside_path(path).file_name().map(|name| name.to_string_lossy().into_owned());
        self.kept.iter().filter_map(name).collect()
    }

    pub fn perform(self) -> Result<(), LogError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let remove = |path: &PathBuf, is_kept| self.holds.remove(disk.as_ref(), path, is_kept);
        self.kept.iter().try_for_each(|path| remove(path, true))?;
        self.files.iter().try_for_each(|path| remove(path, false))?;
        self.holds.removed(disk.as_ref(), self.files.first().map(PathBuf::as_path))
    }
}

impl FoldTicket {
    /// Folds and publishes the checkpoint.
    pub fn perform(mut self) -> Result<Folded, LogError> {
        let keeper = Arc::clone(&self.keeper);
        // A thread that panicked left the state at a record's end: it changes only by whole records.
        let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stopped.load(Ordering::SeqCst) {
            return Err(LogError::Stopped { path: self.directory.to_path_buf() });
        }
        let mut corrupt = Vec::new();
        for part in &self.parts {
            advance(&mut keeper.state, part, self.disk.as_ref(), &mut corrupt)?;
        }
        let live = self.live(&keeper.state)?;
        for (part, &is_live) in self.parts.iter_mut().zip(&live) {
            if is_live {
                keep(part, self.disk.as_ref(), &self.stopped)?;
            } else {
                part.lookup = Lookup::Nothing;
            }
        }
        let names_synced = self.disk.sync_directory(&self.directory);
        names_synced.map_err(|error| self.stop(LogError::io("sync", &self.directory, error)))?;
        let listed = self.listed(&mut keeper, &live)?;
        let Keeper { state, checkpoints, catalog, .. } = &mut *keeper;
        let (disk, holds) = (self.disk.as_ref(), self.holds.as_ref());
        let checkpoint_bytes = checkpoints.save(disk, &self.directory, (&self.log_id, self.format), state, &listed)?;
        checkpoints.trim(disk, &self.directory, holds)?;
        // Messages that died since the older checkpoint would stay until the next: saved twice, both have the same
        // state.
        if state.position.0 - checkpoints.floor().0 > COPY_BYTES_MIN.max(COPY_TIMES * checkpoint_bytes) {
            match checkpoints.save(disk, &self.directory, (&self.log_id, self.format), state, &listed) {
                Err(error) if error.is_full() => {}
                copied => copied.map(|_| ())?,
            }
            checkpoints.trim(disk, &self.directory, holds)?;
        }
        // Not above the bound, so no cut takes it back.
        let mut synced = self.synced_file.lock().unwrap_or_else(PoisonError::into_inner);
        synced.save(self.disk.as_ref(), Progress::to(self.boundary))?;
        drop(synced);
        for part in &self.parts {
            catalog.put(Holding::new(&part.segment, part.end, &part.lookup));
        }
        let dead = catalog.take_dead(state, checkpoints.floor())?;
        let FoldTicket { parts, boundary, running, .. } = self;
        Ok(Folded { parts, dead, corrupt, boundary, checkpoint_bytes, running })
    }

    fn live(&self, state: &FoldState) -> Result<Vec<bool>, LogError> {
        let has_live = |part: &FoldPart| part.lookup.any_run(|queue, first, count| state.has_live(queue, first, count));
        self.parts.iter().map(has_live).collect()
    }

    /// The segments that the checkpoint depends on, these parts among them.
    fn listed(&self, keeper: &mut Keeper, live: &[bool]) -> Result<Vec<LiveSegment>, LogError> {
        let Keeper { state, catalog, gone, .. } = keeper;
        let known = catalog.live(state)?.into_iter().chain(gone.iter().copied());
        let mut listed: BTreeMap<u64, LiveSegment> = known.map(|one| (one.number, one)).collect();
        for (part, &is_live) in self.parts.iter().zip(live) {
            if is_live {
                listed.insert(part.segment.number(), LiveSegment::of(&part.segment));
            }
        }
        Ok(listed.into_values().collect())
    }

    fn stop(&self, error: LogError) -> LogError {
        self.stopped.store(true, Ordering::SeqCst);
        error
    }
}

/// Renames a segment to a name that no start reads and that explains itself. Returns the name.
pub(crate) fn set_aside(disk: &dyn Disk, path: &Path) -> Result<PathBuf, LogError> {
    let aside = aside_path(path);
    disk.rename(path, &aside).map_err(|error| LogError::io("rename", path, error))?;
    unlink_if_there(disk, &corrupt_path(path))?;
    Ok(aside)
}

/// Moves the state to the end of a sealed segment. The heads of records are checked, those of messages once bytes of
/// the segment had to be read from the disk again; corrupt ones are skipped and reported, and their messages keep their
/// sequences.
fn advance(
    state: &mut FoldState,
    part: &FoldPart,
    disk: &dyn Disk,
    corrupt: &mut Vec<Quarantined>,
) -> Result<(), LogError> {
    match advance_in_map(state, part, disk, corrupt) {
        // From the record that was reached on; a segment with bad sectors is rare enough to be read as a whole.
        Err(LogError::Corrupt { why: Corruption::Unreadable, .. }) => advance_in_file(state, part, disk, corrupt),
        other => other,
    }
}

fn advance_in_map(
    state: &mut FoldState,
    part: &FoldPart,
    disk: &dyn Disk,
    corrupt: &mut Vec<Quarantined>,
) -> Result<(), LogError> {
    // A map of its own, dropped at the end.
    let segment = part.segment.unmapped();
    let mut walk = segment.walk_in_window(segment.offset_of(state.position), Check::Folded)?;
    while state.position < part.end {
        walk.keep_window(disk)?;
        if let Some(outline) = walk.step_outline() {
            state.apply_outline(&outline, segment.position_of(walk.offset()));
            continue;
        }
        let at = walk.offset();
        match walk.step() {
            Ok((_, decoded)) => state.apply(&decoded.record, segment.position_of(walk.offset())),
            Err(error) => {
                walk.open_window(disk)?;
                let to = if walk.resume(Resume::Anywhere) { segment.position_of(walk.offset()) } else { part.end };
                corrupt.push(pass_over(state, part, (at, why_of(error)), to));
            }
        }
    }
    Ok(())
}

/// The same with the bytes that the disk returns of the file.
fn advance_in_file(
    state: &mut FoldState,
    part: &FoldPart,
    disk: &dyn Disk,
    corrupt: &mut Vec<Quarantined>,
) -> Result<(), LogError> {
    let segment = &part.segment;
    let contents = Contents::read(disk, segment.path(), segment.readable())?;
    let from = segment.offset_of(state.position);
    let mut walk = segment.walk_over_from(contents.up_to(segment.readable()), from, Check::Head);
    while state.position < part.end {
        let at = walk.offset();
        match walk.step() {
            Ok((_, decoded)) => {
                state.apply(&decoded.record, segment.position_of(walk.offset()));
                if contents.is_bad(at, walk.offset()) {
                    // Its head is whole, so it counts as stored; a reader detects the rest.
                    corrupt.push(claimed(part, at, walk.offset()));
                }
            }
            Err(error) => {
                let is_bad = contents.is_bad(at, contents.claimed_end(at));
                let why = if is_bad { Corruption::Unreadable } else { why_of(error) };
                let to = if walk.resume(Resume::Anywhere) { segment.position_of(walk.offset()) } else { part.end };
                corrupt.push(pass_over(state, part, (at, why), to));
            }
        }
    }
    Ok(())
}

fn why_of(error: DecodeError) -> Corruption {
    if error == DecodeError::End { Corruption::Short } else { error.into() }
}

/// The report of a record between two offsets of which a part cannot be read.
fn claimed(part: &FoldPart, at: u64, to: u64) -> Quarantined {
    let mut found = Quarantined::new(&part.segment, at, Corruption::Unreadable);
    if let Lookup::Memory(index) = &part.lookup {
        index.targets_in(at..to).into_iter().for_each(|target| found.concern(target.queue));
    }
    found
}

/// Moves the state over corrupt bytes, up to a position; returns their report.
fn pass_over(state: &mut FoldState, part: &FoldPart, (at, why): (u64, Corruption), to: Position) -> Quarantined {
    let mut found = Quarantined::new(&part.segment, at, why);
    if let Lookup::Memory(index) = &part.lookup {
        for target in index.targets_in(at..part.segment.offset_of(to)) {
            found.concern(target.queue);
            state.apply_unreadable(target);
        }
    }
    state.position = to;
    found
}

/// Brings a live segment, and its directory, to the disk.
fn keep(part: &mut FoldPart, disk: &dyn Disk, stopped: &AtomicBool) -> Result<(), LogError> {
    if let Some(unsynced) = part.unsynced.take() {
        unsynced.sync(disk).inspect_err(|_| stopped.store(true, Ordering::SeqCst))?;
    }
    let written = match &part.lookup {
        Lookup::Memory(index) => directory::save(disk, &part.segment, index)?,
        Lookup::File(found) if part.lookup.is_unwritten() => directory::save_derived(disk, found)?,
        Lookup::File(_) | Lookup::Nothing => return Ok(()),
    };
    part.lookup = Lookup::File(Arc::new(written));
    Ok(())
}
