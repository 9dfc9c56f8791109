//! A shard's lock, held, and what is known of the shard while the lock is held for long.
//!
//! Invariants: when the lock of a stopped shard is released, the reason is stored outside it, so that it can be read
//! without the lock; consumers are woken, and a replica hears of what was appended, after it is released, so that none of them waits for it.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LockResult, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Instant;

use penstock_log::LogStats;
use tokio::sync::{Notify, Semaphore};

use crate::corruption::Corruption;
use crate::signal::Wakes;
use crate::state::State;

/// Last known state of a shard for stalls, and their detection.
pub(super) struct Stalls {
    pub waiting: Semaphore,
    /// Whether a task wants to be woken by `let_go`.
    pub is_watched: AtomicBool,
    pub let_go: Notify,
    /// How often the lock was taken.
    pub holds: AtomicU64,
    /// Nanoseconds that threads waited for the lock. A thread that finds it free reads no clock and writes nothing here.
    pub waited_ns: AtomicU64,
    /// The value of `holds` at the last stall: one detection is enough for each.
    pub found_at: AtomicU64,
    /// Until when it counts as slow.
    pub slow_until: Mutex<Option<Instant>>,
    pub fault: OnceLock<String>,
    pub totals: Mutex<(u64, u64)>,
    pub stats: Mutex<LogStats>,
    pub corruptions: Mutex<Vec<Corruption>>,
}

impl Default for Stalls {
    fn default() -> Stalls {
        Stalls {
            waiting: Semaphore::new(1),
            is_watched: AtomicBool::new(false),
            let_go: Notify::new(),
            holds: AtomicU64::new(1),
            waited_ns: AtomicU64::new(0),
            found_at: AtomicU64::new(0),
            slow_until: Mutex::default(),
            fault: OnceLock::new(),
            totals: Mutex::default(),
            stats: Mutex::default(),
            corruptions: Mutex::default(),
        }
    }
}

/// The lock, held.
pub(crate) struct Held<'a> {
    // Dropped in this order: first release, then wake and notify.
    state: MutexGuard<'a, State>,
    wakes: Wakes,
    tells: TellsWhenDropped<'a>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(reason) = &self.state.stopped {
            self.tells.0.fault.get_or_init(|| reason.clone());
        }
        let State { term, log, wakes, .. } = &mut *self.state;
        if let Some(news) = term.as_mut().and_then(|term| term.news(log.end())) {
            wakes.replicate(news);
        }
        std::mem::swap(&mut self.wakes, wakes);
    }
}

struct TellsWhenDropped<'a>(&'a Stalls);

impl Stalls {
    pub fn taken<'a>(&'a self, state: MutexGuard<'a, State>) -> Held<'a> {
        self.holds.fetch_add(1, Ordering::Relaxed);
        Held { state, wakes: Wakes::default(), tells: TellsWhenDropped(self) }
    }

    /// Takes one of the shard's locks, and counts the time when another thread has it.
    #[inline]
    pub fn locked<'a, T>(&self, lock: &'a Mutex<T>) -> LockResult<MutexGuard<'a, T>> {
        match lock.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => self.wait_for(lock),
        }
    }

    #[cold]
    fn wait_for<'a, T>(&self, lock: &'a Mutex<T>) -> LockResult<MutexGuard<'a, T>> {
        let begun = Instant::now();
        let guard = lock.lock();
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waited_ns.fetch_add(nanos, Ordering::Relaxed);
        guard
    }
}

impl Deref for Held<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for TellsWhenDropped<'_> {
    fn drop(&mut self) {
        if self.0.is_watched.load(Ordering::Relaxed) {
            self.0.let_go.notify_one();
        }
    }
}

/// The last known value.
pub(super) fn known<T: Clone>(last: &Mutex<T>) -> T {
    last.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Stores the value for the next stall, and returns it.
pub(super) fn keep<T: Clone>(last: &Mutex<T>, now: T) -> T {
    last.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&now);
    now
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::File;
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    use penstock_log::{Disk, Payload, RealDisk};
    use penstock_queue::QueueId;

    use super::*;
    use crate::engine::{Engine, EngineOptions};
    use crate::publication::Publication;

    /// No write succeeds once it has failed.
    #[derive(Debug, Default)]
    struct FailedDisk(AtomicBool);

    impl Disk for FailedDisk {
        fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
            if self.0.load(Ordering::SeqCst) {
                return Err(io::Error::from_raw_os_error(5));
            }
            RealDisk.write_at(file, bytes, offset)
        }
    }

    #[test]
    fn the_time_counts_that_a_thread_waits_for_a_lock_that_another_has() {
        let (stalls, lock) = (Stalls::default(), Mutex::new(()));
        for _ in 0..100 {
            drop(stalls.locked(&lock).unwrap());
        }
        let waited_ns = || stalls.waited_ns.load(Ordering::Relaxed);
        assert_eq!(waited_ns(), 0, "the lock was free");

        while waited_ns() == 0 {
            let held = lock.lock().unwrap();
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| drop(stalls.locked(&lock).unwrap()));
                // The other thread comes to the lock meanwhile, or in one of the next rounds.
                std::thread::sleep(Duration::from_millis(1));
                drop(held);
                waits.join().unwrap();
            });
        }
    }

    /// Health took the lock, and reported no problem as long as another thread had it.
    #[test]
    fn a_shard_that_stopped_is_told_of_also_while_another_holds_its_lock() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(FailedDisk::default());
        let options = EngineOptions {
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 256 << 10,
            segment_idle: Duration::from_secs(60),
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
            producers_of_user_max: 16,
        };
        let engine = Engine::on_disk(options, Arc::clone(&disk) as _).unwrap();
        let shard = engine.open_shard("/", directory.path(), false).unwrap();
        shard.put_queue(QueueId(1), "jobs", false, None).unwrap();
        disk.0.store(true, Ordering::SeqCst);
        let payload = Payload::new(b"", b"jobs", b"", b"body").unwrap();
        let (exchange, key) = (&b""[..], &b"jobs"[..]);
        let one = Publication { payload, exchange, key, headers: None, persistent: false, mandatory: true };
        shard.publish(&[one], None, 1, &mut Vec::new()).unwrap_err();

        let held = shard.lock().unwrap();

        assert!(shard.fault().is_some());
        drop(held);
    }
}
