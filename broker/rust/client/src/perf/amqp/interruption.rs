//! Whether runs are to end before their time.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Ends the run early: it reports, and deletes its queues.
pub fn interrupt() {
    IS_INTERRUPTED.store(true, Ordering::Release);
}

/// An interruption is that of one run.
pub(super) fn begin() {
    IS_INTERRUPTED.store(false, Ordering::Release);
}

pub(super) fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Acquire)
}
