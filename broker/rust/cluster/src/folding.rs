//! Folds and compaction of a log whose queues are closed: a follower keeps no more on its disk and in memory than a leader, and opens
//! its queues from a checkpoint and few records after it when it leads. Queues that have the log do both themselves.
//!
//! Invariants: both are local and read nothing above the high watermark. While one of them is under way, no copy takes the place of the
//! log and no queues are opened on it.

use penstock_log::{CompactionTicket, FoldTicket, Log, LogError};
use penstock_replication::Input;

use crate::lock::lock;
use crate::place::Place;
use crate::shard::Shard;

/// How a slice of compaction ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    /// Whether more can be done before the next fold.
    pub more: bool,
    /// How much of a pause may follow, from 0 to 1.
    pub patience: f64,
}

impl Shard {
    /// Folds records that are committed, and removes segments that nothing needs any more; returns whether there was something to do. Queues
    /// that have the log do it themselves. Blocks.
    ///
    /// # Errors
    /// When the log cannot be read, or the disk is full or fails.
    pub fn fold(&self) -> Result<bool, LogError> {
        self.keep_up(|| self.perform_fold(self.with_own_log(Log::begin_fold).flatten())).unwrap_or(Ok(false))
    }

    /// Works on the log while no other fold, no compaction and no opening of queues does. `None` where a copy has just taken its place.
    pub(crate) fn keep_up<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.working.on(self.working.log(), || {
            let upkeep = lock(&self.upkeep);
            let done = work();
            drop(upkeep);
            done
        })
    }

    /// Called within [`Shard::keep_up`].
    pub(crate) fn perform_fold(&self, ticket: Option<FoldTicket>) -> Result<bool, LogError> {
        let Some(ticket) = ticket else { return Ok(false) };
        let folded = ticket.perform()?;
        for found in &folded.corrupt {
            let directory = self.directory.display();
            self.shared
                .events
                .noticed(&format!("{directory}/{} is corrupt at byte {}: {}", found.file, found.at, found.why));
        }
        let is_corrupt = !folded.corrupt.is_empty();
        // It marks what is corrupt.
        if let Some(retired) = self.with_log(|log| log.finish_fold(folded)) {
            retired.perform()?;
        }
        // A stream may have ended with messages that are settled now.
        self.readers.wake();
        if is_corrupt && self.has_other_copy() {
            self.step(Input::Stopped);
        }
        Ok(true)
    }

    /// Rewrites about so many bytes of segments that are mostly dead; `None` where nothing could begin. Blocks.
    pub(crate) fn compact(&self, bytes_max: u64) -> Result<Option<Slice>, LogError> {
        self.keep_up(|| self.perform_compaction(bytes_max)).unwrap_or(Ok(None))
    }

    fn perform_compaction(&self, bytes_max: u64) -> Result<Option<Slice>, LogError> {
        let ticket: Option<CompactionTicket> = self.with_own_log(Log::begin_compaction).flatten();
        let Some(ticket) = ticket else { return Ok(None) };
        let compacted = ticket.perform(bytes_max)?;
        let slice = Slice { more: compacted.more, patience: compacted.patience };
        if let Some(retired) = self.with_log(|log| log.finish_compaction(compacted)) {
            retired.perform()?;
        }
        Ok(Some(slice))
    }

    /// Acts on the log if no queues have it.
    fn with_own_log<T>(&self, act: impl FnOnce(&mut Log) -> T) -> Option<T> {
        match self.lock().as_mut() {
            Some(Place::Here(replicated)) => Some(act(replicated.log())),
            _ => None,
        }
    }
}
