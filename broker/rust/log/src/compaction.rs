//! Compaction as work for a thread: choose neighbours that are mostly dead, rewrite them a slice at a time, and put the
//! new segment into the manifest in their place.
//!
//! Invariants: only records that the older checkpoint covers are changed, and only by the newest one as it is on the
//! disk. A new segment and its directory are on the disk with their names before the manifest is, and the segments that
//! they replace are removed after it. A slice that fails before that changes nothing.

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
use crate::format::Format;
use crate::manifest::{Entry, Manifest};
use crate::record::Position;
use crate::recovery::Sealed;
use crate::rewriting::{Fault, Rewriting};
use crate::segment::{Segment, SegmentHeader};

/// The active segment and the one being folded are beyond the bound of compaction.
const SEGMENTS_ABOVE: u64 = 2;
/// With less patience small segments are not merged: it takes space and time, and frees nothing.
const MERGE_PATIENCE: f64 = 0.5;

/// A slice of compaction that runs without the log's lock.
#[derive(Debug)]
#[must_use]
pub struct CompactionTicket {
    pub(crate) log_id: [u8; 16],
    pub(crate) epoch: u64,
    pub(crate) shard: u16,
    pub(crate) sizes: Sizes,
    /// Disk space of all segments.
    pub(crate) taken: u64,
    /// Disk space beyond the need of draining the log; `None` when unknown.
    pub(crate) spare: Option<u64>,
    /// Numbers of segments that stay as they are: nothing is rewritten in their place or across them.
    pub(crate) barriers: BTreeSet<u64>,
    pub(crate) directory: Arc<Path>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) keeper: Arc<Mutex<Keeper>>,
    pub(crate) stopped: Arc<AtomicBool>,
    pub(crate) running: Running,
}

/// Result of a slice, for [`crate::Log::finish_compaction`].
#[derive(Debug)]
#[must_use]
pub struct Compacted {
    /// Bytes written.
    pub bytes: u64,
    /// Whether more can be done without another checkpoint.
    pub more: bool,
    /// How much of a pause may follow: all of it while the log takes twice its live bytes, none once it takes
    /// [`SEGMENTS_ABOVE`] segments more.
    pub patience: f64,
    /// Why a rewrite was given up. Nothing is lost: the segments are unchanged.
    pub given_up: Option<LogError>,
    replacement: Option<Replacement>,
    running: Running,
}

/// A segment that replaces others.
#[derive(Debug)]
struct Replacement {
    segment: Arc<Segment>,
    end: Position,
    lookup: Lookup,
    /// The lowest and the highest number of the replaced segments.
    numbers: (u64, u64),
    sources: Vec<Arc<Segment>>,
}

impl CompactionTicket {
    /// Writes about `bytes_max` bytes. An error stops the log: it is then unknown which manifest a start will find.
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
        // Bytes that cannot be written now cannot be in a moment either: the next checkpoint brings the next attempt.
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

    /// Continues a rewrite, or begins one.
    fn slice(&self, keeper: &mut Keeper, bytes_max: u64) -> Result<u64, Fault> {
        if keeper.rewriting.is_none() {
            keeper.rewriting = self.begin(keeper)?;
        }
        keeper.rewriting.as_mut().map_or(Ok(0), |rewriting| rewriting.step(self.disk.as_ref(), bytes_max))
    }

    fn begin(&self, keeper: &mut Keeper) -> Result<Option<Rewriting>, Fault> {
        let Some(chosen) = self.choose(keeper) else { return Ok(None) };
        let segment_id = random_id(&self.directory).map_err(Fault::Output)?;
        let header = SegmentHeader::new(Format::One, self.log_id, segment_id, (self.epoch, Position(0)));
        let holdings = keeper.catalog.holdings().get(chosen).unwrap_or_default();
        Rewriting::plan(&self.directory, holdings, &keeper.state, (header, self.shard))
    }

    fn choose(&self, keeper: &mut Keeper) -> Option<std::ops::Range<usize>> {
        // A rewritten segment is written whole before anything is freed.
        let has_room = self.spare.is_none_or(|spare| spare > self.sizes.bytes_max);
        // A power failure may still undo progress of a fold that could not be published.
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

    /// Publishes the new segment in the manifest. A failure before the rename gives it up; after it, it stops the log.
    fn publish(
        &self,
        keeper: &mut Keeper,
        rewriting: Rewriting,
    ) -> Result<(Option<Replacement>, Option<LogError>), LogError> {
        let disk = self.disk.as_ref();
        let (segment, lookup) = match self.prepare(keeper, &rewriting) {
            Ok(sealed) => sealed,
            Err(error) => {
                // The next attempt or start removes the rest.
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

    /// Brings everything to the disk in an order in which a start finds either the old segments or the new one.
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
    /// Replaces the old segments by the new one. One that turned out corrupt meanwhile is kept under another name.
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
