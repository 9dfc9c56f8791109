//! Rounds of the background threads on a shard's log.
//!
//! Invariant: long work happens without the shard's lock.

use std::sync::atomic::Ordering;
use std::time::Instant;

use penstock_log::{Folded, Retired};

use super::Shard;
use crate::corruption::retired_line;
use crate::counters::Metric;
use crate::error::EngineError;

/// The remainder of an empty log after a whole fold: the active segment, and the one before the older checkpoint.
const SEGMENTS_AT_REST: u64 = 2;

/// Result of a compaction slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub bytes: u64,
    /// Whether there is more to do.
    pub more: bool,
    /// How much of the usual pause may follow.
    pub patience: f64,
}

impl Shard {
    /// One round of a sync thread.
    pub(crate) fn sync_once(&self) -> Result<(), EngineError> {
        self.sync_waits.store(false, Ordering::Release);
        let (ticket, synced) = {
            let mut guard = self.lock()?;
            if guard.closed {
                return Ok(());
            }
            guard.check(&self.name)?;
            (guard.log.begin_sync(), guard.log.synced())
        };
        let Some(ticket) = ticket else {
            // A fold synced all of it, and those who wait do not know.
            self.publish_synced(synced);
            return Ok(());
        };
        let started = Instant::now();
        let synced = ticket.perform()?;
        self.around.counters.add(Metric::Syncs, 1);
        self.around.counters.add(Metric::SyncMicros, u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX));
        self.lock()?.log.finish_sync(synced);
        self.publish_synced(synced.position());
        Ok(())
    }

    /// One round of the fold thread; returns whether there was something to fold.
    pub(crate) fn fold_once(&self) -> Result<bool, EngineError> {
        self.fold_waits.store(false, Ordering::Release);
        let ticket = {
            let mut guard = self.lock()?;
            if guard.closed || guard.stopped.is_some() {
                return Ok(false);
            }
            guard.log.begin_fold()
        };
        let Some(ticket) = ticket else { return Ok(false) };
        self.remove(self.finish_fold(ticket.perform()?)?)?;
        Ok(true)
    }

    /// Applies the result of a fold, and reports the bad records that it found.
    fn finish_fold(&self, folded: Folded) -> Result<Retired, EngineError> {
        let mut guard = self.lock()?;
        for found in &folded.corrupt {
            let is_first = guard.corruptions.note(&found.file, found.at, &found.why.to_string(), &found.queues);
            self.tell_corruption(&guard, &found.file, 1, is_first);
        }
        Ok(guard.log.finish_fold(folded))
    }

    /// Removes files that are no longer needed, and reports corrupt ones, which are renamed instead.
    fn remove(&self, retired: Retired) -> Result<(), EngineError> {
        let asides = retired.asides();
        retired.perform()?;
        for file in asides {
            let file = self.number.place_of(&file);
            self.around.notices.warn(retired_line(&self.name, &file));
        }
        Ok(())
    }

    /// A slice of compaction; `None` when none could begin.
    pub(crate) fn compact_once(&self, bytes_max: u64) -> Result<Option<Slice>, EngineError> {
        let ticket = {
            let mut guard = self.lock()?;
            if guard.closed || guard.stopped.is_some() {
                return Ok(None);
            }
            guard.log.begin_compaction()
        };
        let Some(ticket) = ticket else { return Ok(None) };
        let compacted = ticket.perform(bytes_max)?;
        let slice = Slice { bytes: compacted.bytes, more: compacted.more, patience: compacted.patience };
        self.counters().add(Metric::Compacted, slice.bytes);
        if compacted.given_up.is_some() {
            self.counters().add(Metric::CompactionsGivenUp, 1);
        }
        let retired = self.lock()?.log.finish_compaction(compacted);
        self.remove(retired)?;
        Ok(Some(slice))
    }

    /// Releases maps without readers since the last call.
    pub(crate) fn unmap_idle(&self) {
        // Unmapping takes time: do it without the lock.
        let retired = self.lock().map(|mut guard| guard.log.unmap_idle());
        drop(retired);
    }

    /// Returns the disk space of an emptied shard: without new messages no segment would fill up, and no fold would
    /// come.
    pub(crate) fn free_when_empty(&self) -> Result<(), EngineError> {
        let segments = {
            let guard = self.lock()?;
            if guard.closed || guard.stopped.is_some() {
                return Ok(());
            }
            guard.log.stats().segments
        };
        if segments <= SEGMENTS_AT_REST || !self.has_no_messages()? {
            return Ok(());
        }
        self.make_room()
    }

    /// Expires messages by the limits of streams. Without publishers no segment would fill up and no fold would come:
    /// then the disk space is returned at once.
    pub(crate) fn retain_and_free(&self, now_ms: u64) -> Result<(), EngineError> {
        let end = self.lock()?.log.end().0;
        let is_quiet = self.retained_until.swap(end, Ordering::Relaxed) == end;
        if self.retain(now_ms)? > 0 && is_quiet {
            self.make_room()?;
        }
        Ok(())
    }

    /// Frees the disk space of messages that were settled since the last time, without waiting for segments to fill up.
    pub(crate) fn make_room(&self) -> Result<(), EngineError> {
        if self.lock()?.log.end().0 == self.freed_until.load(Ordering::Relaxed) {
            return Ok(());
        }
        for _ in 0..2 {
            let ticket = {
                let mut guard = self.lock()?;
                if guard.closed || guard.stopped.is_some() {
                    return Ok(());
                }
                guard.log.begin_whole_fold()?
            };
            let Some(ticket) = ticket else { return Ok(()) };
            let folded = ticket.perform()?;
            let end = self.lock()?.log.end();
            self.remove(self.finish_fold(folded)?)?;
            self.freed_until.store(end.0, Ordering::Relaxed);
        }
        Ok(())
    }
}
