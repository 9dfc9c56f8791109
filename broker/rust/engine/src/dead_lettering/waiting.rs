//! How long moving dead letters waits until another log has their copies on the disk, or committed.
//!
//! Invariants: one thread moves the dead letters of all virtual hosts, so it waits for a replicated log a short time only. A log that did not
//! get there in time is behind until it does: meanwhile it gets no further copies, and no wait. Copies that a log had before, and that
//! is not behind, are safe: each was waited for, or was there at the start, and `behind` is no lower than the place of any of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use penstock_log::Position;

use crate::shard::Shard;

/// Far longer than a sync or a commit usually takes.
const WAIT_MAX: Duration = Duration::from_millis(500);

impl Shard {
    /// Whether this log has not synced yet what it should have in time.
    pub(crate) fn is_behind(&self) -> bool {
        self.synced().0 < self.dead_lettering.behind.load(Ordering::Acquire)
    }

    /// Waits a short time until everything below a position is synced, unless the log is behind anyway.
    pub(crate) fn wait_a_while(&self, position: Position) {
        if !self.is_behind() {
            // Its errors show with the next message.
            let _ = self.sync_within(position, WAIT_MAX);
        }
    }

    /// Waits a short time until everything below a position is synced; returns whether it is. Until then the log is behind. A log
    /// that this broker alone has takes only as long as the disk, and is waited for: when it closes, letters without a copy would
    /// come again.
    pub(crate) fn syncs_in_time(&self, position: Position) -> bool {
        let is_synced = match self.is_replicated() {
            false => self.sync_to(position).is_ok(),
            true => !self.is_behind() && matches!(self.sync_within(position, WAIT_MAX), Ok(true)),
        };
        if !is_synced {
            self.dead_lettering.behind.fetch_max(position.0, Ordering::AcqRel);
        }
        is_synced
    }
}
