//! Copies of a shard's log and of its queues' own logs, made while messages come and go.

use std::path::Path;
use std::sync::Arc;

use penstock_log::{BackupTicket, Disk as _, Position, RealDisk};
use penstock_queue::QueueId;

use crate::dedicated::{KeptFolder, io};
use crate::error::EngineError;
use crate::shard::{FOLDER, Shard};

/// A copy to make of a shard's log and its queues' own logs. While it exists the logs keep the files that it names,
/// even when a queue is deleted, and fold on.
pub struct Backup {
    ticket: BackupTicket,
    shard: Arc<Shard>,
    own: Vec<(QueueId, Backup)>,
    /// Dropped after the ticket, whose files are in it.
    _kept: KeptFolder,
}

impl Backup {
    /// Everything below it is in the copy.
    #[must_use]
    pub fn position(&self) -> Position {
        self.ticket.position()
    }

    /// Makes the copy in an empty directory. Blocks.
    ///
    /// # Errors
    /// `Log` when a file cannot be copied or synced.
    pub fn write(self, directory: &Path) -> Result<(), EngineError> {
        let written = self.ticket.perform(directory);
        self.shard.request_fold();
        written?;
        write_own(directory, self.own)
    }
}

impl Shard {
    /// Fixes the content of a copy of the log: everything stored until now.
    ///
    /// # Errors
    /// `Log` when the tail cannot be written; `Stopped` and `Closed`.
    pub fn begin_backup(self: &Arc<Self>) -> Result<Backup, EngineError> {
        let mut own = Vec::new();
        for (id, shard) in self.dedicated.all() {
            own.push((id, shard.begin_backup()?));
        }
        let kept = self.keep_folder();
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        let ticket = guard.log.begin_backup()?;
        drop(guard);
        Ok(Backup { ticket, shard: Arc::clone(self), own, _kept: kept })
    }
}

/// Copies own logs to their places in a restored directory, including those of queues that were deleted meanwhile.
fn write_own(directory: &Path, own: Vec<(QueueId, Backup)>) -> Result<(), EngineError> {
    if own.is_empty() {
        return Ok(());
    }
    let folder = directory.join(FOLDER);
    std::fs::create_dir(&folder).map_err(|source| io("make", &folder, source))?;
    for (id, backup) in own {
        let target = folder.join(id.0.to_string());
        std::fs::create_dir(&target).map_err(|source| io("make", &target, source))?;
        backup.write(&target)?;
    }
    for path in [&folder, directory] {
        RealDisk.sync_directory(path).map_err(|source| io("sync", path, source))?;
    }
    Ok(())
}
