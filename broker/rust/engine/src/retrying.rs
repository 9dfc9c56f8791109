//! Messages that come back to a queue with a retry schedule: they wait for their back-off before they are ready again.
//!
//! Invariants: the time is in the log with the return itself, so a start makes the message wait for the same time. A message over
//! the delivery limit does not wait. Whatever waits keeps its time when the schedule changes.

use std::sync::Arc;

use penstock_log::Outcome;
use penstock_queue::{QueueId, RetrySchedule, Sequence, SequenceRange, Settle, Settled, Settling, SubscriptionId};

use crate::clock::clock_ms;
use crate::error::EngineError;
use crate::shard::Shard;
use crate::state::State;

impl Shard {
    /// Sets the retries of queues; without a schedule messages that come back are ready at once. It counts for messages that
    /// come back from now on.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn schedule_retries(
        &self,
        queues: impl IntoIterator<Item = (QueueId, Option<RetrySchedule>)>,
    ) -> Result<(), EngineError> {
        for (id, schedule) in queues {
            let set = |state: &mut State| match schedule {
                Some(schedule) => drop(state.retry_schedules.insert(id, Arc::new(schedule))),
                None => drop(state.retry_schedules.remove(&id)),
            };
            match self.others.home(id) {
                Some(home) => set(&mut *home.lock()?),
                None => set(&mut *self.lock()?),
            }
        }
        Ok(())
    }
}

impl State {
    /// The schedule of messages that come back to a queue in this way; `None` when they do not wait.
    pub(crate) fn retry_schedule(&self, queue: QueueId, how: Settle) -> Option<Arc<RetrySchedule>> {
        if self.retry_schedules.is_empty() {
            return None;
        }
        self.retry_schedules.get(&queue).filter(|schedule| schedule.covers(how)).map(Arc::clone)
    }

    /// Has messages wait that came back and were put aside, and wakes consumers for those of the settlement that need not. Logs
    /// both. Those that are about to leave the queue are only logged.
    pub(crate) fn return_later(
        &mut self,
        queue: QueueId,
        schedule: &RetrySchedule,
        (settled, outcome): (&Settled, Outcome),
    ) -> Result<(), EngineError> {
        let now_ms = clock_ms().max(self.passed_ms);
        let State { queues, dying, .. } = self;
        let Some(entry) = queues.get_mut(&queue) else { return Ok(()) };
        let sequences = settled.ranges.iter().flat_map(|range| (range.first.0..=range.last.0).map(Sequence));
        let (leaving, staying): (Vec<_>, Vec<_>) =
            sequences.partition(|sequence| !dying.is_empty() && dying.contains(queue, *sequence));
        let count = staying.len() as u64;
        let mut waiting = entry.machine.back_off(staying, schedule);
        let mut at_once = waiting.remove(&0).unwrap_or_default();
        let ready_count = at_once.iter().map(SequenceRange::count).sum::<u64>();
        for (delay_ms, ranges) in &waiting {
            self.note_retries(queue, now_ms.saturating_add(*delay_ms), ranges);
        }
        // The others of the settlement were not sent.
        self.wake(queue, settled.count.saturating_sub(count) + ready_count);
        at_once.extend(leaving.into_iter().map(SequenceRange::of));
        at_once.sort_unstable_by_key(|range| range.first);
        self.log_back(queue, outcome, None, &at_once)?;
        for (delay_ms, ranges) in &waiting {
            self.log_back(queue, outcome, Some(now_ms.saturating_add(*delay_ms)), ranges)?;
        }
        Ok(())
    }

    /// Returns a part of what a consumer that is gone holds; returns how many of these leave the queue.
    pub(crate) fn return_lost(
        &mut self,
        queue: QueueId,
        id: SubscriptionId,
        (settling, steps_max): (&mut Settling<'_>, usize),
    ) -> u64 {
        let schedule = self.retry_schedule(queue, Settle::RequeueFailed);
        let Some(entry) = self.queues.get_mut(&queue) else { return 0 };
        let how = if schedule.is_some() { aside_for_now(Settle::RequeueFailed) } else { Settle::RequeueFailed };
        let returned = entry.machine.settle_some(id, settling, how, steps_max);
        let leaving = self.dead_letter_overdelivered(queue, &returned.ranges);
        let logged = match schedule {
            Some(schedule) => self.return_later(queue, &schedule, (&returned, Outcome::Requeue)),
            None => {
                self.wake(queue, returned.count);
                self.log_returned(queue, &returned.ranges)
            }
        };
        // They are unacked on the disk anyway: after a start, a delivery that could not be written is not counted.
        drop(logged);
        leaving
    }
}

/// How the log has messages that come back in this way.
pub(crate) fn outcome_of(how: Settle, counts_failures: bool) -> Outcome {
    if counts_failures && how.is_return() { Outcome::Return } else { Outcome::Requeue }
}

/// How the machine takes messages back that will wait: their times follow from their delivery counts.
pub(crate) fn aside_for_now(how: Settle) -> Settle {
    if how.is_return() { Settle::RequeueAt(0) } else { Settle::FailedAside }
}
