//! The system's clock, as messages and names of producers are dated by it.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
