//! Waits for the disk, which the host performs on a thread of its own.
//!
//! Invariant: at most one sync and one promise are under way. What is written meanwhile is covered by the next sync: so many
//! publishes share each.

use penstock_log::{LogError, SyncTicket, Synced};
use penstock_replica::Epoch;

use crate::promise_file::PromiseTicket;

/// Work that blocks; see the module.
#[derive(Debug)]
#[must_use]
pub enum Work {
    Sync(SyncTicket),
    Promise(PromiseTicket),
}

/// The result of [`Work`], for [`crate::Input::Done`].
#[derive(Debug)]
#[must_use]
pub enum WorkDone {
    Synced(Result<Synced, LogError>),
    Promised(Result<Epoch, std::io::Error>),
}

impl Work {
    /// Performs it. Blocks.
    pub fn perform(self) -> WorkDone {
        match self {
            Work::Sync(ticket) => WorkDone::Synced(ticket.perform()),
            Work::Promise(ticket) => WorkDone::Promised(ticket.perform()),
        }
    }
}
