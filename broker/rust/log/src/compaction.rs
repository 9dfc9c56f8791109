//! Compaction as work for a thread: choose neighbours that are mostly dead, rewrite them a slice at a time, and let the
//! manifest say that the new segment stands for them.
//!
//! What must stay true: only what the older checkpoint covers is touched, and only by what the newest one, as it is on the
//! disk, says of it; a new segment and its directory are on the disk with their names before the manifest is, and what
//! they replace goes after it. A slice that fails before that leaves everything as it was.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::active::random_id;
use crate::catalog::{Catalog, Choice, Holding, Sizes};
use crate::directory::Lookup;
use crate::disk::Disk;
use crate::error::LogError;
use crate::fold_ticket::{Keeper, Retired, Running};
use crate::manifest::{Entry, Manifest};
use crate::record::Position;
use crate::recovery::Sealed;
use crate::rewriting::{Fault, Rewriting};
use crate::segment::{Segment, SegmentHeader};

/// The segment that is written to and the one that is folded stand beside what compaction is there to bound.
const SEGMENTS_ABOVE: u64 = 2;
/// With less patience small segments are not merged: it takes room and time, and frees nothing.
const MERGE_PATIENCE: f64 = 0.5;

/// A slice of compaction that runs without the log's lock.
#[derive(Debug)]
#[must_use]
pub struct CompactionTicket {
    pub(crate) log_id: [u8; 16],
    pub(crate) epoch: u64,
    pub(crate) sizes: Sizes,
    /// What all segments take on the disk.
    pub(crate) taken: u64,
    /// The room on the disk beyond what draining the log needs; `None` when the disk does not say.
    pub(crate) spare: Option<u64>,
    /// The numbers of segments that stay as they are: nothing is rewritten in their place or across them.
    pub(crate) barriers: BTreeSet<u64>,
    pub(crate) directory: Arc<Path>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) keeper: Arc<Mutex<Keeper>>,
    pub(crate) stopped: Arc<AtomicBool>,
    pub(crate) running: Running,
}

/// What a slice did, for [`crate::Log::finish_compaction`].
#[derive(Debug)]
#[must_use]
pub struct Compacted {
    /// How many bytes it wrote.
    pub bytes: u64,
    /// Whether there is more to do without waiting for another checkpoint.
    pub more: bool,
    /// How much of a pause may follow: all of it while the log takes twice what lives, none once it takes
    /// [`SEGMENTS_ABOVE`] segments more.
    pub patience: f64,
    /// Why something was given up. Nothing is lost: the segments stay as they were.
    pub given_up: Option<LogError>,
    replacement: Option<Replacement>,
    running: Running,
}

/// A segment that stands for others from now on.
#[derive(Debug)]
struct Replacement {
    segment: Arc<Segment>,
    end: Position,
    lookup: Lookup,
    /// The lowest and the highest number of what it replaces.
    numbers: (u64, u64),
    sources: Vec<Arc<Segment>>,
}

impl CompactionTicket {
    /// Writes about `bytes_max` bytes. An error stops the log: nobody knows then which manifest a start will find.
    pub fn perform(self, bytes_max: u64) -> Result<Compacted, LogError> {
        let keeper = Arc::clone(&self.keeper);
        let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stopped.load(Ordering::SeqCst) {
            return Err(LogError::Stopped { path: self.directory.to_path_buf() });
        }
        let is_over = |rewriting: &mut Rewriting| self.spare == Some(0) || self.is_barred(rewriting.numbers());
        if let Some(rewriting) = keeper.rewriting.take_if(is_over) {
            let given_up = rewriting.abandon(self.disk.as_ref()).err();
            return Ok(self.compacted(&keeper, 0, true, given_up, None));
        }
        let slice = self.slice(&mut keeper, bytes_max);
        let (bytes, given_up) = match slice {
            Ok(bytes) => (bytes, None),
            Err(fault) => (0, self.give_up(&mut keeper, fault)),
        };
        let (replacement, given_up) = match keeper.rewriting.take_if(|rewriting| rewriting.is_done()) {
            Some(rewriting) => self.publish(&mut keeper, rewriting)?,
            None => (None, given_up),
        };
        // Bytes that cannot be written will not be in a moment either: the next checkpoint brings the next attempt.
        let more = given_up.is_none() && (bytes > 0 || self.choose(&mut keeper).is_some());
        Ok(self.compacted(&keeper, bytes, more, given_up, replacement))
    }

    fn compacted(
        self,
        keeper: &Keeper,
        bytes: u64,
        more: bool,
        given_up: Option<LogError>,
        replacement: Option<Replacement>,
    ) -> Compacted {
        let patience = self.patience(&keeper.catalog);
        Compacted { bytes, more, patience, given_up, replacement, running: self.running }
    }

    fn patience(&self, catalog: &Catalog) -> f64 {
        let above = self.taken.saturating_sub(2 * catalog.live_bytes());
        (1.0 - above as f64 / (SEGMENTS_ABOVE * self.sizes.bytes_max) as f64).max(0.0)
    }

    /// Goes on with what was begun, or begins.
    fn slice(&self, keeper: &mut Keeper, bytes_max: u64) -> Result<u64, Fault> {
        if keeper.rewriting.is_none() {
            keeper.rewriting = self.begin(keeper)?;
        }
        keeper.rewriting.as_mut().map_or(Ok(0), |rewriting| rewriting.step(self.disk.as_ref(), bytes_max))
    }

    fn begin(&self, keeper: &mut Keeper) -> Result<Option<Rewriting>, Fault> {
        let Some(chosen) = self.choose(keeper) else { return Ok(None) };
        let segment_id = random_id(&self.directory).map_err(Fault::Output)?;
        let header = SegmentHeader { log_id: self.log_id, segment_id, first: Position(0), epoch: self.epoch };
        let holdings = keeper.catalog.holdings().get(chosen).unwrap_or_default();
        Rewriting::plan(&self.directory, holdings, &keeper.state, header)
    }

    fn choose(&self, keeper: &mut Keeper) -> Option<std::ops::Range<usize>> {
        // A rewritten segment is written whole before anything is freed.
        let has_room = self.spare.is_none_or(|spare| spare > self.sizes.bytes_max);
        // What a fold reached and could not publish may still be undone by a power failure.
        if !has_room || keeper.is_closed || keeper.state.position != keeper.checkpoints.newest() {
            return None;
        }
        let floor = keeper.checkpoints.floor();
        keeper.catalog.measure(&keeper.state, floor);
        let merges = self.patience(&keeper.catalog) >= MERGE_PATIENCE;
        keeper.catalog.choose(Choice { floor, sizes: self.sizes, barriers: &self.barriers, merges })
    }

    fn is_barred(&self, (first, last): (u64, u64)) -> bool {
        self.barriers.range(first..=last).next().is_some()
    }

    fn give_up(&self, keeper: &mut Keeper, fault: Fault) -> Option<LogError> {
        let abandoned = keeper.rewriting.take();
        let given_up = match fault {
            Fault::Output(error) => Some(error),
            Fault::Source(segment, error) => {
                keeper.catalog.get_mut(&segment).map(Holding::refuse);
                Some(error)
            }
            Fault::NotWorthIt => {
                for source in abandoned.iter().flat_map(|rewriting| rewriting.sources()) {
                    if let Some(held) = keeper.catalog.get_mut(source) {
                        held.correct(source.bytes());
                    }
                }
                None
            }
        };
        let removed = abandoned.map_or(Ok(()), |rewriting| rewriting.abandon(self.disk.as_ref()));
        given_up.or(removed.err())
    }

    /// Lets the manifest name the new segment. A failure before the rename gives it up; after it, it stops the log.
    fn publish(
        &self,
        keeper: &mut Keeper,
        rewriting: Rewriting,
    ) -> Result<(Option<Replacement>, Option<LogError>), LogError> {
        let disk = self.disk.as_ref();
        let (segment, lookup) = match self.prepare(keeper, &rewriting) {
            Ok(sealed) => sealed,
            Err(error) => {
                // What is left of it goes at the next attempt or start.
                let _ = rewriting.abandon(disk);
                let _ = Manifest::abandon(disk, &self.directory);
                return Ok((None, Some(error)));
            }
        };
        Manifest::publish(disk, &self.directory).inspect_err(|_| self.stopped.store(true, Ordering::SeqCst))?;
        let (entry, numbers) = (rewriting.entry(), rewriting.numbers());
        keeper.catalog.replace(numbers.0, numbers.1, Holding::new(&segment, entry.end, &lookup));
        let sources = rewriting.sources().cloned().collect();
        Ok((Some(Replacement { segment: Arc::new(segment), end: entry.end, lookup, numbers, sources }), None))
    }

    /// Brings all to the disk in the order that lets a start find either the old segments or the new one.
    fn prepare(&self, keeper: &Keeper, rewriting: &Rewriting) -> Result<(Segment, Lookup), LogError> {
        let disk = self.disk.as_ref();
        let sealed = rewriting.seal(disk, &self.directory)?;
        disk.sync_directory(&self.directory).map_err(|error| LogError::io("sync", &self.directory, error))?;
        let (first, last) = rewriting.numbers();
        let stays = |holding: &&Holding| !(first..=last).contains(&holding.segment.number());
        let kept = keeper.catalog.holdings().iter().filter(stays).filter_map(Holding::entry);
        let own = rewriting.entry();
        let is_apart = |gone: &Entry| gone.end <= own.first || own.end <= gone.first;
        let gone = keeper.gone_entries.iter().copied().filter(is_apart);
        let mut entries: Vec<Entry> = kept.chain(gone).chain([own]).collect();
        entries.sort_unstable_by_key(|entry| entry.first);
        Manifest { entries }.prepare(disk, &self.directory, &self.log_id)?;
        Ok(sealed)
    }
}

impl Compacted {
    /// Puts the new segment in the place of the old ones. One that was found damaged meanwhile is kept, aside.
    pub(crate) fn install(self, sealed: &mut Vec<Sealed>, quarantined: &mut BTreeSet<u64>, retired: &mut Retired) {
        let Some(Replacement { segment, end, lookup, numbers: (first, last), sources }) = self.replacement else {
            return;
        };
        let from = sealed.partition_point(|sealed| sealed.segment.number() < first);
        let to = sealed.partition_point(|sealed| sealed.segment.number() <= last);
        for replaced in sealed.splice(from..to, [Sealed { segment, end, lookup }]) {
            retired.segments.push(replaced.segment);
            retired.lookups.push(replaced.lookup);
        }
        for source in sources {
            let is_kept = quarantined.remove(&source.number());
            retired.push(source, is_kept);
        }
        drop(self.running);
    }
}
