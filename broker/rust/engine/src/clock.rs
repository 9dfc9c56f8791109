//! Two clocks: the system's, which dates messages and producers, and a steady one, which cannot be set.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub(crate) fn clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// How long this process runs, in ms: times of it are only compared with one another.
pub(crate) fn steady_ms() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    u64::try_from(FIRST.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}
