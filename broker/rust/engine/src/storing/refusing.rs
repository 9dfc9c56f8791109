//! Messages that full queues refuse: the other queues have them nevertheless, and the publisher is told.

use penstock_queue::QueueId;

use super::Stored;
use crate::error::EngineError;
use crate::level::Level;
use crate::publication::{Fate, Publication};
use crate::state::State;

impl State {
    /// The queues among those of a message that refuse it because they are full, if any.
    pub(crate) fn full_among(&self, queues: &[QueueId], publication: &Publication<'_>) -> Vec<QueueId> {
        let payload = &publication.payload;
        let is_repeated = payload.producer().is_some_and(|producer| self.producers.has_stored(producer));
        if is_repeated || self.has_copy(payload) {
            return Vec::new();
        }
        let is_full = |queue: &&QueueId| {
            let (Some(limit), Some(entry)) = (self.rejecting.get(queue), self.queues.get(queue)) else { return false };
            let bytes = entry.machine.free_bytes().saturating_add(payload.body_bytes());
            limit.is_exceeded(entry.machine.free_count() + 1, bytes, 0)
        };
        queues.iter().filter(is_full).copied().collect()
    }

    /// Stores a message that some of its queues refuse in the others. One that is recognized when it is sent again is stored in
    /// no queue of this log: the next time, all of them or none have it.
    pub(super) fn store_in_others(
        &mut self,
        queues: &[QueueId],
        full_queues: &[QueueId],
        publication: &Publication<'_>,
        at: (usize, Option<Level>),
        full: &mut Option<EngineError>,
        stored: &mut Stored,
    ) -> Result<Fate, EngineError> {
        stored.refused_count += 1;
        let payload = &publication.payload;
        if payload.producer().is_none() && payload.source().is_none() {
            let others: Vec<QueueId> = queues.iter().filter(|queue| !full_queues.contains(queue)).copied().collect();
            if !others.is_empty() {
                let before = self.passed_on.len();
                self.store_in_all(&others, publication, at, full, stored)?;
                // Not all of its queues are elsewhere: the answer stays that it was refused.
                self.passed_on.iter_mut().skip(before).for_each(|one| one.is_all = false);
            }
        }
        Ok(Fate::Overflow)
    }
}
