//! A consumer that leaves its queue and still has messages to settle.

use std::sync::atomic::Ordering;

use crate::counters::Metric;
use crate::error::EngineError;
use crate::subscription::{Subscription, Unused, unused};

impl Subscription {
    /// Counts no more as a consumer, and takes nothing more; what it holds stays with it until that is settled, or it is closed.
    /// Of a queue with a single active consumer the next one becomes active. Returns whether an auto-delete queue lost its last consumer.
    ///
    /// # Errors
    /// `NoQueue` once the queue is gone.
    pub fn retire(&self) -> Result<Option<Unused>, EngineError> {
        let mut guard = self.lock()?;
        let entry = self.shard.entry(&mut guard, self.queue)?;
        if !self.open.load(Ordering::Acquire) || !self.is_consumer() {
            return Ok(None);
        }
        self.is_retired.store(true, Ordering::Release);
        self.is_paused.store(true, Ordering::Release);
        entry.machine.retire(self.id);
        entry.tell_active();
        entry.pull_count += 1;
        let (unused, ready_count) = (unused(entry, self.queue), entry.machine.ready_count());
        // It may have been woken for a message that it does not take.
        guard.wake(self.queue, ready_count);
        self.shard.counters().subtract(Metric::Consumers, 1);
        Ok(unused)
    }

    /// Whether it counts as a consumer of its queue.
    pub(super) fn is_consumer(&self) -> bool {
        !self.options.pull && !self.is_retired.load(Ordering::Acquire)
    }
}
