//! Background work of a log: folds, compaction and copies begin here, and their results are applied.
//!
//! Invariants: a fold and a slice of compaction never run at once. Folds go on during a copy, so that memory stays
//! bounded; compaction waits for it, as it would free nothing before. Compaction never takes the space that draining
//! the log needs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::rolling::LARGE_TIMES;
use super::{Log, LogOptions, Stage};
use crate::backup::{BackupTicket, Hold};
use crate::catalog::Sizes;
use crate::compaction::{Compacted, CompactionTicket};
use crate::error::LogError;
use crate::fold_ticket::{FoldPart, FoldTicket, Folded, Retired, Running};
use crate::kept::Share;
use crate::manifest::{Entry, Manifest};
use crate::record::Position;
use crate::recovery::Sealed;

impl Log {
    /// A fold of sealed segments, for a thread without the lock; `None` when there is nothing to gain yet.
    pub fn begin_fold(&mut self) -> Option<FoldTicket> {
        let sealed = self.sealed.get(..self.within_bound())?;
        let newest = sealed.len().checked_sub(1)?;
        // Messages that are live at the end of a small segment are mostly in it, so that a checkpoint there syncs
        // little; at the end of a large one it would sync a whole large segment.
        let is_small = |sealed: &Sealed| sealed.segment.bytes() <= self.options.segment_bytes_min;
        let has_large = self.options.segment_bytes_max >= LARGE_TIMES * self.options.segment_bytes_min;
        let small = if has_large { sealed.iter().rposition(is_small) } else { None };
        let recovered = sealed.partition_point(|sealed| sealed.end <= self.recovered).checked_sub(1);
        let boundary = small.max(recovered).max(newest.checked_sub(1))?;
        self.ticket(boundary, false)
    }

    /// Applies the result of a fold. Remove the returned files without the lock.
    pub fn finish_fold(&mut self, folded: Folded) -> Retired {
        let Folded { parts, dead, corrupt, boundary, checkpoint_bytes, running } = folded;
        corrupt.iter().for_each(|found| self.quarantine(&found.file, found.at));
        self.share = Share::new(&self.options.kept, checkpoint_bytes);
        let mut retired = self.retired();
        for part in parts {
            let number = part.segment.number();
            let Ok(at) = self.sealed.binary_search_by_key(&number, |sealed| sealed.segment.number()) else { continue };
            if let Some(sealed) = self.sealed.get_mut(at) {
                retired.lookups.push(std::mem::replace(&mut sealed.lookup, part.lookup));
            }
            retired.segments.push(part.segment);
        }
        let is_dead = |number: u64| dead.binary_search_by_key(&number, |segment| segment.number()).is_ok();
        self.sealed.retain(|sealed| !is_dead(sealed.segment.number()));
        for segment in dead {
            let is_kept = self.quarantined.contains(&segment.number());
            retired.push(segment, is_kept);
        }
        self.follow_segments();
        self.folded = self.folded.max(boundary);
        // Live records below the checkpoint are on the disk, and a start reads no others below it.
        if boundary > self.synced {
            self.note_synced(boundary);
        }
        drop(running);
        retired
    }

    /// A copy of the log as it is now, up to its bound, for a thread without the lock. Until it is done its files stay and no compaction
    /// begins; folds do.
    pub fn begin_backup(&mut self) -> Result<BackupTicket, LogError> {
        let position = self.write().map(|_| self.bound())?;
        let (count, segment, file) = self.last_up_to(position)?;
        let sealed = self.sealed.get(..count).unwrap_or_default();
        let paths = |sealed: &Sealed| (sealed.segment.path().to_path_buf(), sealed.segment.directory_path());
        let entry = |sealed: &Sealed| Entry::of(&sealed.segment, sealed.end);
        // The bytes of a dead one need not be on the disk.
        let to_check = |sealed: &Sealed| if sealed.is_dead(self.folded) { 0 } else { sealed.records_end() };
        let of = |(at, sealed): (usize, &Sealed)| (sealed.segment.unmapped(), to_check(sealed), self.gap_behind(at));
        let files: Vec<_> = sealed.iter().map(paths).collect();
        let (hold, checkpoints) = Hold::take(&self.holds, &self.options.disk, &self.directory, &files)?;
        Ok(BackupTicket {
            directory: Arc::clone(&self.directory),
            log_id: self.log_id,
            position,
            sealed: sealed.iter().enumerate().map(of).collect(),
            unserved: self.unserved.clone(),
            manifest: Manifest { entries: sealed.iter().filter_map(entry).collect() },
            active: (segment.unmapped(), file),
            active_bytes: (segment.offset_of(position), segment.bytes()),
            hold,
            checkpoints,
            room_needed: self.room().needed,
        })
    }

    /// A slice of compaction, for a thread without the lock; `None` while a fold, another slice or a copy is running.
    pub fn begin_compaction(&mut self) -> Option<CompactionTicket> {
        if self.stage == Stage::Closed || self.holds.is_held() || self.folding.swap(true, Ordering::SeqCst) {
            return None;
        }
        let room = self.room();
        let LogOptions { segment_bytes_min: bytes_min, segment_bytes_max: bytes_max, .. } = self.options;
        Some(CompactionTicket {
            log_id: self.log_id,
            epoch: self.epoch,
            shard: self.options.shard,
            sizes: Sizes { bytes_min, bytes_max },
            taken: self.active.reserved + self.sealed.iter().map(|sealed| sealed.segment.room_bytes()).sum::<u64>(),
            spare: room.free.map(|free| free.saturating_sub(room.needed)),
            barriers: &self.quarantined | &self.fenced,
            directory: Arc::clone(&self.directory),
            disk: Arc::clone(&self.options.disk),
            keeper: Arc::clone(&self.keeper),
            stopped: Arc::clone(&self.stopped),
            running: Running(Arc::clone(&self.folding)),
        })
    }

    /// Applies the result of a slice. Remove the returned files without the lock; their readers keep them.
    pub fn finish_compaction(&mut self, compacted: Compacted) -> Retired {
        self.bytes_rewritten += compacted.bytes;
        let mut retired = self.retired();
        compacted.install(&mut self.sealed, &mut self.quarantined, &mut retired);
        self.follow_segments();
        retired
    }

    fn retired(&self) -> Retired {
        let (disk, holds) = (Some(Arc::clone(&self.options.disk)), Arc::clone(&self.holds));
        Retired { disk, holds, ..Retired::default() }
    }

    pub(super) fn end_compaction(&self) -> Result<(), LogError> {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        keeper.is_closed = true;
        let begun = keeper.rewriting.take();
        begun.map_or(Ok(()), |rewriting| rewriting.abandon(self.options.disk.as_ref()))
    }

    /// A fold up to the end of the sealed segment at that index; with `again` also where the newest checkpoint ends there.
    pub(super) fn ticket(&mut self, last: usize, again: bool) -> Option<FoldTicket> {
        let boundary = self.sealed.get(last)?.end;
        // The state of a start with a bound is within a segment, and a checkpoint is at the end of one.
        if boundary < self.recovered {
            return None;
        }
        let is_new = boundary > self.folded || (again && boundary == self.folded && boundary > Position(0));
        if !is_new || self.folding.swap(true, Ordering::SeqCst) {
            return None;
        }
        // The others have been folded, and the keeper knows them. This also writes directories that were derived again.
        let is_new = |sealed: &Sealed| sealed.lookup.is_unwritten();
        let part = |sealed: &Sealed| {
            let number = sealed.segment.number();
            let unsynced = self.unsynced.iter().find(|unsynced| unsynced.number == number);
            FoldPart {
                segment: Arc::clone(&sealed.segment),
                end: sealed.end,
                lookup: sealed.lookup.clone(),
                unsynced: unsynced.cloned(),
            }
        };
        Some(FoldTicket {
            parts: self.sealed.iter().take(last + 1).filter(|sealed| is_new(sealed)).map(part).collect(),
            boundary,
            log_id: self.log_id,
            format: self.format(),
            directory: Arc::clone(&self.directory),
            disk: Arc::clone(&self.options.disk),
            synced_file: Arc::clone(&self.synced_file),
            keeper: Arc::clone(&self.keeper),
            stopped: Arc::clone(&self.stopped),
            holds: Arc::clone(&self.holds),
            running: Running(Arc::clone(&self.folding)),
        })
    }
}
