//! A shard whose lock is held for long, as by one who waits for a slow disk: who only looks is told what was known last, and
//! who could wait elsewhere can ask first.
//!
//! What must stay true: nothing here waits for the lock, for longer than `STALL_MIN` in all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use penstock_log::LogStats;
use tokio::sync::Semaphore;

use super::{Damage, Shard};
use crate::state::State;

/// A hold of the lock that takes longer is a stall: one round takes a millisecond or two.
const STALL_MIN: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What is told of a shard while it stalls, and how that is found out.
pub(super) struct Stalls {
    waiting: Semaphore,
    /// How often the lock was taken.
    holds: AtomicU64,
    /// What `holds` was when the last stall was found: one look is enough for each.
    found_at: AtomicU64,
    /// Until when it is taken for slow.
    slow_until: Mutex<Option<Instant>>,
    pub fault: OnceLock<String>,
    pub totals: Mutex<(u64, u64)>,
    pub stats: Mutex<LogStats>,
    pub damages: Mutex<Vec<Damage>>,
}

impl Default for Stalls {
    fn default() -> Stalls {
        Stalls {
            waiting: Semaphore::new(1),
            holds: AtomicU64::new(1),
            found_at: AtomicU64::new(0),
            slow_until: Mutex::default(),
            fault: OnceLock::new(),
            totals: Mutex::default(),
            stats: Mutex::default(),
            damages: Mutex::default(),
        }
    }
}

impl Stalls {
    pub fn taken(&self) {
        self.holds.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shard {
    /// Whether nobody holds its lock or waits for it.
    #[must_use]
    pub fn is_free(&self) -> bool {
        let Ok(_next) = self.next.try_lock() else { return self.next.is_poisoned() };
        !matches!(self.state.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// How often its lock was taken: while that does not change, one holds it all the time.
    #[must_use]
    pub fn holds(&self) -> u64 {
        self.stalls.holds.load(Ordering::Relaxed)
    }

    /// Whether somebody holds the lock for long. Takes a moment to find out, once for each stall.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        let (began, holds) = (Instant::now(), self.holds());
        loop {
            if self.is_free() || self.holds() != holds {
                return false;
            }
            if self.stalls.found_at.load(Ordering::Relaxed) == holds || began.elapsed() >= STALL_MIN {
                self.stalls.found_at.store(holds, Ordering::Relaxed);
                return true;
            }
            sleep(LOOK_EVERY);
        }
    }

    /// Where tasks wait for one of them, which looks after the lock.
    #[must_use]
    pub fn waiting(&self) -> &Semaphore {
        &self.stalls.waiting
    }

    /// Whether its disk was slow a while ago.
    #[must_use]
    pub fn is_slow(&self, now: Instant) -> bool {
        known(&self.stalls.slow_until).is_some_and(|until| now < until)
    }

    pub fn slow_until(&self, until: Instant) {
        keep(&self.stalls.slow_until, Some(until));
    }

    /// The lock, for one who only looks; nothing while it stalls.
    pub(super) fn glance(&self) -> Option<MutexGuard<'_, State>> {
        if self.is_stalled() { None } else { self.lock().ok() }
    }
}

/// What was known last.
pub(super) fn known<T: Clone>(last: &Mutex<T>) -> T {
    last.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Keeps it for the next stall, and gives it back.
pub(super) fn keep<T: Clone>(last: &Mutex<T>, now: T) -> T {
    last.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&now);
    now
}
