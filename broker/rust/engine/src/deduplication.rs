//! Queues and exchanges that recognize messages which came before, by a header: see
//! `docs/decisions/0075-windows-of-seen-messages.md`.
//!
//! Invariants: an id is seen once a message with it is stored, and both are in one envelope of the log, so that a crash leaves
//! both or none; what is not stored because its id was seen is confirmed when that is on the disk. Each log of a virtual host has
//! its own windows. Copies and dead letters are not looked at: a repetition that is dropped is one that a publisher sent.

mod settings;

use penstock_log::{EnvelopeSizes, MarkView, Operation, Payload, marks};
use penstock_queue::QueueId;

use crate::error::EngineError;
use crate::publication::Publication;
use crate::state::State;
use crate::windows::{Sighting, Windows};

impl State {
    /// Whether a message may be a repetition for its exchange or one of its queues.
    pub(crate) fn may_recognize(&self, queues: &[QueueId], publication: &Publication<'_>) -> bool {
        let Windows { queues: watched, exchanges, .. } = &self.windows;
        publication.headers.is_some()
            && publication.payload.source().is_none()
            && ((!exchanges.is_empty() && exchanges.contains_key(publication.exchange))
                || (!watched.is_empty() && queues.iter().any(|queue| watched.contains_key(queue))))
    }

    /// The queues of a message that have not had it, and those in other logs; `None` when none of them looks. What is to be
    /// remembered is noted.
    pub(crate) fn fresh_among(&mut self, queues: &[QueueId], publication: &Publication<'_>) -> Option<Vec<QueueId>> {
        self.windows.new.clear();
        if !self.may_recognize(queues, publication) {
            return None;
        }
        let now_ms = self.stored_at_ms;
        let is_known = self.is_known_to_exchange(publication, now_ms);
        let mut fresh = Vec::with_capacity(queues.len());
        for &queue in queues {
            if self.elsewhere.contains_key(&queue) || !(is_known || self.is_known_to(queue, publication, now_ms)) {
                fresh.push(queue);
            }
        }
        Some(fresh)
    }

    fn is_known_to_exchange(&mut self, publication: &Publication<'_>, now_ms: u64) -> bool {
        let Windows { exchanges, new, .. } = &mut self.windows;
        let Some(watch) = exchanges.get_mut(publication.exchange) else { return false };
        let Some((id, expires_at_ms)) = watch.id_of(publication.headers, now_ms) else { return false };
        if watch.window.contains(&id, now_ms) {
            watch.deduplicated_count += 1;
            return true;
        }
        let (owner, size_max) = (marks::owner_of_exchange_window(publication.exchange), watch.settings.size_max);
        new.push(Sighting { queue: None, owner, id, expires_at_ms, size_max });
        false
    }

    fn is_known_to(&mut self, queue: QueueId, publication: &Publication<'_>, now_ms: u64) -> bool {
        let Windows { queues, new, .. } = &mut self.windows;
        let Some(watch) = queues.get_mut(&queue) else { return false };
        let Some((id, expires_at_ms)) = watch.id_of(publication.headers, now_ms) else { return false };
        if watch.window.contains(&id, now_ms) {
            watch.deduplicated_count += 1;
            return true;
        }
        let (owner, size_max) = (marks::owner_of_window(queue).to_vec(), watch.settings.size_max);
        new.push(Sighting { queue: Some(queue), owner, id, expires_at_ms, size_max });
        false
    }

    /// Reserves space for a message and what is to be remembered with it.
    pub(crate) fn reserve_message(&mut self, payload: &Payload<'_>, queue_count: usize) -> Result<(), EngineError> {
        match self.sizes_with_sightings(payload, queue_count) {
            Some(sizes) => Ok(self.log.reserve_envelope(&sizes)?),
            None => Ok(self.log.reserve(payload, queue_count)?),
        }
    }

    /// `None` when nothing is to be remembered, or the message has more queues than an envelope.
    fn sizes_with_sightings(&self, payload: &Payload<'_>, queue_count: usize) -> Option<EnvelopeSizes> {
        let mut sizes = EnvelopeSizes::default();
        sizes.add_message(payload, queue_count);
        for sighting in &self.windows.new {
            sizes.add_mark(&MarkView { owner: &sighting.owner, key: &sighting.id, value: &sighting.value() });
        }
        (!self.windows.new.is_empty() && self.log.takes_envelope(&sizes)).then_some(sizes)
    }

    /// Appends a message that has its sequences, with what its queues here remember of it.
    pub(crate) fn append_remembered(&mut self, payload: &Payload<'_>) -> Result<(), EngineError> {
        let mut sightings = std::mem::take(&mut self.windows.new);
        let is_stored = |queue: QueueId| self.targets.iter().any(|target| self.queue_of(target.queue).0 == queue);
        sightings.retain(|sighting| sighting.queue.is_none_or(is_stored));
        let values: Vec<_> = sightings.iter().map(Sighting::value).collect();
        let marks = sightings.iter().zip(&values);
        let marks = marks.map(|(Sighting { owner, id, .. }, value)| MarkView { owner, key: id, value });
        let mut sizes = EnvelopeSizes::default();
        sizes.add_message(payload, self.targets.len());
        marks.clone().for_each(|mark| sizes.add_mark(&mark));
        if self.log.takes_envelope(&sizes) {
            let message =
                Operation::Message { payload: *payload, stored_at_ms: self.stored_at_ms, targets: &self.targets };
            let operations: Vec<_> = std::iter::once(message).chain(marks.map(Operation::Mark)).collect();
            self.log.append_together(&operations)?;
        } else {
            // It has more queues than an envelope. A crash between its records leaves a message that is not remembered.
            self.log.append_message(payload, self.stored_at_ms, &self.targets)?;
            for MarkView { owner, key, value } in marks {
                self.log.append_mark(owner, key, value)?;
            }
        }
        sightings.into_iter().for_each(|sighting| self.windows.remember(&sighting));
        Ok(())
    }
}
