//! A shard finds the queues that were unused for as long as they may be, and notes the uses of queues.
//!
//! Invariants: nothing looks at a queue before one of its times has come; the clock of the machine may be set meanwhile.

use penstock_queue::QueueId;

use crate::clock::{clock_ms, steady_ms};
use crate::error::EngineError;
use crate::queue_entry::QueueEntry;
use crate::shard::Shard;
use crate::state::State;

/// Queues that are looked at in one hold of the lock.
const AT_ONCE: usize = 1024;

impl Shard {
    /// Sets after which time without consumers, gets and declarations queues are reported as unused; `None` is never.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn expire_queues(&self, times: impl IntoIterator<Item = (QueueId, Option<u64>)>) -> Result<(), EngineError> {
        let mut elsewhere = Vec::new();
        let mut guard = self.lock()?;
        for (id, after_ms) in times {
            if guard.elsewhere.contains_key(&id) {
                elsewhere.push((id, after_ms));
            } else {
                guard.expire_queue(id, after_ms);
            }
        }
        drop(guard);
        for (id, after_ms) in elsewhere {
            if let Some(home) = self.others.home(id) {
                home.lock()?.expire_queue(id, after_ms);
            }
        }
        Ok(())
    }

    /// Notes that a queue was declared again.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn use_queue(&self, id: QueueId) -> Result<(), EngineError> {
        if let Some(home) = self.others.home(id) {
            return home.use_queue(id);
        }
        self.lock()?.idle.used(id, steady_ms());
        Ok(())
    }

    /// Whether a queue was unused for its time, and is unused.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn is_unused(&self, id: QueueId) -> Result<bool, EngineError> {
        if let Some(home) = self.others.home(id) {
            return home.is_unused(id);
        }
        let guard = self.lock()?;
        Ok(guard.idle.is_due(id, steady_ms()) && !guard.is_in_use(id))
    }

    /// Reports the queues that were unused for their time.
    pub(crate) fn report_idle(&self) -> Result<(), EngineError> {
        let now_ms = steady_ms();
        loop {
            let mut guard = self.lock()?;
            let state = &mut *guard;
            if state.closed || state.idle.next_ms().is_none_or(|at_ms| at_ms > now_ms) {
                return Ok(());
            }
            let mut idle = std::mem::take(&mut state.idle);
            let due = idle.take_due(now_ms, AT_ONCE, |id| state.is_in_use(id));
            state.idle = idle;
            let named = |id: QueueId| Some((id, state.queues.get(&id)?.name.clone()));
            let found: Vec<_> = due.into_iter().filter_map(named).collect();
            drop(guard);
            if !found.is_empty() {
                self.unused().add(self.name(), found);
            }
        }
    }
}

impl State {
    /// Notes that a queue is used now.
    #[inline]
    pub(crate) fn note_use(&mut self, id: QueueId) {
        if !self.idle.is_empty() {
            self.idle.used(id, steady_ms());
        }
    }

    fn expire_queue(&mut self, id: QueueId, after_ms: Option<u64>) {
        if self.queues.contains_key(&id) {
            self.idle.set(id, after_ms, steady_ms());
            self.next_idle_ms().into_iter().for_each(|at_ms| self.next_expiry.lower(at_ms));
        }
    }

    /// When to look for unused queues next, by the clock of alarms.
    pub(crate) fn next_idle_ms(&self) -> Option<u64> {
        let at_ms = self.idle.next_ms()?;
        Some(clock_ms().saturating_add(at_ms.saturating_sub(steady_ms())))
    }

    /// Whether it has consumers, or messages that are reserved by leases.
    fn is_in_use(&self, id: QueueId) -> bool {
        let is_used = |entry: &QueueEntry| entry.consumer_count() > 0 || entry.leases.has_any();
        self.queues.get(&id).is_some_and(is_used)
    }
}
