//! Work on a replica's log without the replica's lock: syncs, promises and folds.
//!
//! Invariant: when a copy takes the place of a log, work on that log has ended, and what came of it is never taken for news of the copy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Working {
    /// Read by work that is under way.
    running: RwLock<()>,
    /// Counts the logs that the replica had.
    log: AtomicU64,
}

impl Working {
    /// The number of the replica's log.
    pub fn log(&self) -> u64 {
        self.log.load(Ordering::Acquire)
    }

    /// Works on the log with a number. `None`, without working, where another log has taken its place. Call it without the replica's lock.
    pub fn on<T>(&self, log: u64, work: impl FnOnce() -> T) -> Option<T> {
        let _running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        (self.log() == log).then(work)
    }

    /// Replaces the log once no work is under way. Call it without the replica's lock.
    pub fn replace<T>(&self, replace: impl FnOnce() -> T) -> T {
        let _alone = self.running.write().unwrap_or_else(PoisonError::into_inner);
        self.log.fetch_add(1, Ordering::AcqRel);
        replace()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_on_a_log_that_was_replaced_is_not_done() {
        let working = Working::default();
        let before = working.log();
        assert_eq!(working.on(before, || 1), Some(1));

        working.replace(|| ());

        assert_eq!(working.on(before, || 1), None);
        assert_eq!(working.on(working.log(), || 2), Some(2));
    }
}
