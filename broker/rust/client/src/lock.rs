//! Locks without poison: the state that they protect is consistent at every await-free step, so a panic elsewhere in
//! the process must not break the client.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `is_done` or until `timeout` has passed; a `None` timeout waits for ever.
pub(crate) fn wait_until<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    timeout: Option<Duration>,
    mut is_done: impl FnMut(&T) -> bool,
) -> MutexGuard<'a, T> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    while !is_done(&guard) {
        guard = match deadline {
            None => condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                condvar.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
    guard
}
