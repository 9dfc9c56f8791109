//! Tracks which bytes of a segment were written a moment ago. They are in the page cache, so the system need not be
//! asked.
//!
//! Invariants: fresh bytes were written by this process less than `FRESH_MS` ago and are among the newest `FRESH_BYTES`
//! of their segment. The system evicts the least recently used pages, so a fresh page goes only when almost nothing is
//! left of the page cache; such a page is read without a check, as is one that goes between the check and the read.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const FRESH_MS: u64 = 1_000;
const FRESH_BYTES: u64 = 1 << 20;

/// The fresh bytes of a segment; see the module.
#[derive(Debug)]
pub(crate) struct Fresh {
    /// Where the first recent write began, and when.
    from: AtomicU64,
    since_ms: AtomicU64,
}

impl Default for Fresh {
    fn default() -> Fresh {
        Fresh { from: AtomicU64::new(u64::MAX), since_ms: AtomicU64::new(0) }
    }
}

impl Fresh {
    /// Notes a write from an offset on. Writes of one segment come one after the other.
    pub fn written(&self, from: u64, now_ms: u64) {
        let since = self.since_ms.load(Ordering::Relaxed);
        if self.from.load(Ordering::Relaxed) == u64::MAX || now_ms.saturating_sub(since) > FRESH_MS / 2 {
            // In this order: a reader that sees the new time sees the new offset, too.
            self.from.store(from, Ordering::Release);
            self.since_ms.store(now_ms, Ordering::Release);
        }
    }

    /// Whether all bytes from an offset to the end of the written ones are fresh.
    pub fn covers(&self, from: u64, end: u64, now_ms: u64) -> bool {
        let since = self.since_ms.load(Ordering::Acquire);
        now_ms.saturating_sub(since) < FRESH_MS
            && from >= self.from.load(Ordering::Acquire)
            && end.saturating_sub(from) <= FRESH_BYTES
    }
}

/// Since the first call of this process.
pub(crate) fn now_ms() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGAN.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{FRESH_BYTES, FRESH_MS, Fresh};

    #[test]
    fn nothing_is_fresh_before_the_first_write() {
        assert!(!Fresh::default().covers(0, 0, 0));
        assert!(!Fresh::default().covers(64, 100, 5));
    }

    #[test]
    fn what_was_written_is_fresh_for_a_while() {
        let fresh = Fresh::default();
        fresh.written(64, 10);
        assert!(fresh.covers(64, 200, 10));
        assert!(fresh.covers(100, 200, 10 + FRESH_MS - 1));
        assert!(!fresh.covers(100, 200, 10 + FRESH_MS));
    }

    #[test]
    fn a_later_write_makes_nothing_fresh_that_lay_before_it() {
        let fresh = Fresh::default();
        fresh.written(64, 10);
        fresh.written(200, 5_000);
        assert!(!fresh.covers(64, 300, 5_000));
        assert!(fresh.covers(200, 300, 5_000));
    }

    #[test]
    fn a_steady_writer_keeps_its_last_writes_fresh() {
        let fresh = Fresh::default();
        for now in 0..10_000 {
            fresh.written(now * 10, now);
            assert!(fresh.covers(now * 10, now * 10 + 10, now), "at {now} ms");
            assert!(now <= FRESH_MS || !fresh.covers((now - FRESH_MS) * 10, now * 10 + 10, now), "at {now} ms");
        }
    }

    #[test]
    fn only_the_newest_bytes_are_fresh() {
        let fresh = Fresh::default();
        fresh.written(64, 10);
        assert!(!fresh.covers(64, 65 + FRESH_BYTES, 10));
        assert!(fresh.covers(65, 65 + FRESH_BYTES, 10));
    }
}
