//! Copies of a replica's log for a backup, whether it leads or follows.
//!
//! Invariants: all of a copy is committed. The log goes on meanwhile, and keeps the files that the copy names until that is dropped.

use penstock_log::{BackupTicket, Log, LogError};

use crate::shard::Shard;

impl Shard {
    /// Fixes a copy of the log, up to the high watermark. `None` where the replica is not open.
    ///
    /// # Errors
    /// When the log cannot be written or listed.
    pub fn begin_backup(&self) -> Option<Result<BackupTicket, LogError>> {
        self.with_log(Log::begin_backup)
    }
}
