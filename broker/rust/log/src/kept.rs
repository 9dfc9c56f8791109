//! Disk space that the logs on one disk keep free for one another.
//!
//! Invariant: each open log has its share in the sum, so a message that goes to one of them leaves enough for all
//! others until they free space: pages for starts and settlements, an index file, a checkpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A start takes 8 KiB, a checkpoint of few queues 4 KiB, and settlements reserve space in steps of 16 KiB.
const LOG_BYTES: u64 = 64 << 10;

/// The sum of all shares. Logs of one disk are opened with the same sum.
#[derive(Debug, Default)]
pub struct Kept(AtomicU64);

/// The share of one log. Dropping it returns the share.
#[derive(Debug)]
pub(crate) struct Share {
    kept: Arc<Kept>,
    bytes: u64,
}

impl Share {
    /// The share of a log with a newest checkpoint of this size: it writes the next one before it removes another.
    pub(crate) fn new(kept: &Arc<Kept>, checkpoint_bytes: u64) -> Share {
        let bytes = LOG_BYTES.saturating_add(checkpoint_bytes);
        kept.0.fetch_add(bytes, Ordering::Relaxed);
        Share { kept: Arc::clone(kept), bytes }
    }

    /// The share of what is left of a log that another owner has.
    pub(crate) fn empty(kept: &Arc<Kept>) -> Share {
        Share { kept: Arc::clone(kept), bytes: 0 }
    }

    /// The sum of all logs' shares, including this one.
    pub(crate) fn of_all(&self) -> u64 {
        self.kept.0.load(Ordering::Relaxed)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.kept.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_logs_that_are_open() {
        let kept = Arc::<Kept>::default();
        let mut first = Share::new(&kept, 100);
        let second = Share::new(&kept, 0);
        assert_eq!(first.of_all(), 2 * LOG_BYTES + 100);

        first = Share::new(&kept, 3_000);
        assert_eq!(second.of_all(), 2 * LOG_BYTES + 3_000);
        drop(second);
        assert_eq!(first.of_all(), LOG_BYTES + 3_000);
    }
}
