//! Writing down up to where the messages of producers are complete, so that a start need not ask the logs, of which one may
//! have had its last message of a producer long ago.
//!
//! Invariant: the vhost's log has a complete sequence only once all messages up to it are on the disk, in every log.

use std::num::NonZeroU64;

use penstock_log::Position;

use crate::error::EngineError;
use crate::log_number::LogNumber;
use crate::producer_logs::Noting;
use crate::shard::Shard;
use crate::state::State;

/// Producers whose complete sequence is written in one hold of the lock.
const NOTED_AT_ONCE: usize = 1024;

impl Shard {
    /// Write the complete sequences of the last call that are certain by now, and begin with others. Waits for no disk.
    ///
    /// # Errors
    /// `Log` when they cannot be written; `Stopped` when a bug poisoned a shard.
    pub fn note_complete(&self) -> Result<(), EngineError> {
        let (producers, logs) = {
            let mut guard = self.lock()?;
            if guard.closed || guard.stopped.is_some() || !self.are_synced(&guard.noting.until) {
                return Ok(());
            }
            let certain = std::mem::take(&mut guard.noting).producers;
            if !certain.is_empty() {
                guard.write_complete(&certain)?;
                guard.write()?;
            }
            guard.producers.take_changed(NOTED_AT_ONCE)
        };
        if producers.is_empty() {
            return Ok(());
        }
        let mut until = Vec::with_capacity(logs.len());
        for (log, home) in logs.iter().filter_map(|log| Some((*log, self.others.log(*log)?))) {
            until.push((log, home.lock()?.log.end()));
        }
        let mut guard = self.lock()?;
        until.push((LogNumber::VHOST, guard.log.end()));
        guard.noting = Noting { producers, until };
        Ok(())
    }

    /// Say whether all of these logs are on the disk up to there, and request the missing syncs. A log that was deleted is
    /// not waited for.
    fn are_synced(&self, until: &[(LogNumber, Position)]) -> bool {
        let is_synced = |shard: &Shard, position| {
            let is_synced = shard.synced() >= position;
            if !is_synced {
                shard.request_sync();
            }
            is_synced
        };
        let missing = until.iter().filter(|(log, position)| match *log {
            LogNumber::VHOST => !is_synced(self, *position),
            other => self.others.log(other).is_some_and(|home| !is_synced(&home, *position)),
        });
        missing.count() == 0
    }
}

impl State {
    /// Write the complete sequences of all producers. The other logs are closed, and so on the disk.
    pub(crate) fn write_all_complete(&mut self) -> Result<(), EngineError> {
        let (mut producers, _) = self.producers.take_changed(usize::MAX);
        producers.extend(std::mem::take(&mut self.noting).producers);
        self.write_complete(&producers)
    }

    /// The caller writes.
    fn write_complete(&mut self, producers: &[(NonZeroU64, u64)]) -> Result<(), EngineError> {
        for &(id, complete) in producers {
            let Some(logs) = self.producers.noting(id, complete) else { continue };
            self.put_logs(id, complete, &logs)?;
        }
        Ok(())
    }
}
