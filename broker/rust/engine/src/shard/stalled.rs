//! The behaviour while a shard's lock is held for long, for example by a thread that waits for a slow disk: queries
//! return the last known counts, and a task that can wait without a thread is woken when the lock is released.
//!
//! Invariants: nothing here waits for the lock for longer than `STALL_MIN` in all, including that of a queue's own log.
//! A wake-up may be spurious or missed (releasing and requesting it are not ordered), so tasks check again after a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::Shard;
use super::stalls::{Held, keep, known};

/// A longer hold of the lock is a stall: one round takes a millisecond or two. The caller may be the one thread that
/// serves all vhosts, and is blocked for this long; a false positive only delays an answer.
const STALL_MIN: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// While it exists a task wants to be notified.
struct Watch<'a>(&'a AtomicBool);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Shard {
    /// Whether no thread holds its lock or waits for it.
    #[must_use]
    pub fn is_free(&self) -> bool {
        let Ok(_next) = self.next.try_lock() else { return self.next.is_poisoned() };
        !matches!(self.state.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// How often its lock was taken: while that does not change, one thread holds it.
    #[must_use]
    pub fn holds(&self) -> u64 {
        self.stalls.holds.load(Ordering::Relaxed)
    }

    /// Whether a thread holds the lock for long. Detection takes a moment, once for each stall.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        is_any_stalled(&[self])
    }

    /// The same for this shard and the own logs of its queues.
    #[must_use]
    pub fn is_family_stalled(self: &Arc<Self>) -> bool {
        let family = self.family();
        is_any_stalled(&family.iter().map(Arc::as_ref).collect::<Vec<_>>())
    }

    /// Where tasks queue; one of them watches the lock.
    #[must_use]
    pub fn waiting(&self) -> &Semaphore {
        &self.stalls.waiting
    }

    /// Returns when the lock is free or was released; occasionally too early or never. For the one task that has
    /// `waiting`.
    pub async fn let_go(&self) {
        self.stalls.is_watched.store(true, Ordering::SeqCst);
        let _watch = Watch(&self.stalls.is_watched);
        if !self.is_free() {
            self.stalls.let_go.notified().await;
        }
    }

    /// Whether its disk was slow a while ago.
    #[must_use]
    pub fn is_slow(&self, now: Instant) -> bool {
        known(&self.stalls.slow_until).is_some_and(|until| now < until)
    }

    pub fn slow_until(&self, until: Instant) {
        keep(&self.stalls.slow_until, Some(until));
    }

    /// The lock, for a quick read; `None` while it stalls.
    pub(super) fn glance(&self) -> Option<Held<'_>> {
        if self.is_stalled() { None } else { self.lock().ok() }
    }
}

/// Whether the lock of one of them is held for long: a moment is enough to check all.
fn is_any_stalled(shards: &[&Shard]) -> bool {
    let began = Instant::now();
    let mut held: Vec<(&Shard, u64)> = shards.iter().map(|shard| (*shard, shard.holds())).collect();
    loop {
        held.retain(|(shard, holds)| !shard.is_free() && shard.holds() == *holds);
        let is_known = |(shard, holds): &(&Shard, u64)| shard.stalls.found_at.load(Ordering::Relaxed) == *holds;
        if held.is_empty() || held.iter().any(is_known) {
            return !held.is_empty();
        }
        if began.elapsed() >= STALL_MIN {
            held.iter().for_each(|(shard, holds)| shard.stalls.found_at.store(*holds, Ordering::Relaxed));
            return true;
        }
        sleep(LOOK_EVERY);
    }
}
