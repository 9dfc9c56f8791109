//! Messages that full queues refuse: the other queues have them nevertheless, and the publisher is told.
//!
//! A queue may have the messages that it refuses dead-lettered. Such a message is stored in the queue as one that was put aside,
//! in one envelope with a mark that says so, and moves from there as any dead letter does: after a crash a start finds the mark.
//! It never counts for the length of the queue, and no consumer gets it there.

use penstock_log::{Attributes, EnvelopeSizes, Operation, Outcome, Payload, REFUSED_AT_MS, Settlement};
use penstock_queue::{QueueId, SequenceRange};
use penstock_wire::amqp::deaths::Reason;

use super::Stored;
use crate::error::EngineError;
use crate::length::Overflow;
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
        let is_full = |queue: &&QueueId| self.rejects(**queue, (0, 0), payload.body_bytes());
        queues.iter().filter(is_full).copied().collect()
    }

    /// Whether a queue refuses a message of so many bytes behind so many others that it gets with it. Messages that are about to
    /// leave do not count, nor do their bytes once they are known.
    pub(crate) fn rejects(&self, queue: QueueId, (count, bytes): (u64, u64), body_bytes: u64) -> bool {
        let (Some(limit), Some(entry)) = (self.rejecting.get(&queue), self.queues.get(&queue)) else { return false };
        let (dying, dying_bytes) = self.dying.length_of(queue);
        let free = entry.machine.free_count().saturating_sub(dying);
        let free_bytes = entry.machine.free_bytes().saturating_sub(dying_bytes.unwrap_or(0));
        limit.is_exceeded(free + count + 1, free_bytes.saturating_add(bytes).saturating_add(body_bytes), 0)
    }

    /// Stores a message that some of its queues refuse in the others. One that is recognized when it is sent again is stored in
    /// no queue of this log, and is no dead letter: the next time, all of them or none have it.
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
            let with_letter: Vec<QueueId> =
                full_queues.iter().filter(|queue| self.dead_letters_refused(**queue)).copied().collect();
            if !with_letter.is_empty() {
                full.take().map_or(Ok(()), Err)?;
                let waiting_count = self.put_refused(&with_letter, payload, others.len())?;
                stored.refused_waiting = stored.refused_waiting.max(waiting_count);
            }
            if !others.is_empty() {
                let before = self.passed_on.len();
                self.store_in_all(&others, publication, at, full, stored)?;
                // Not all of its queues are elsewhere: the answer stays that it was refused.
                self.passed_on.iter_mut().skip(before).for_each(|one| one.is_all = false);
            }
        }
        Ok(Fate::Overflow)
    }

    /// Whether the messages that a queue refuses are dead letters.
    fn dead_letters_refused(&self, queue: QueueId) -> bool {
        let is_asked = self.rejecting.get(&queue).is_some_and(|limit| limit.overflow == Overflow::RejectPublishDlx);
        is_asked && self.dead_letters.contains_key(&queue)
    }

    /// Puts a message that some queues refuse aside in them, if there is space for that and for its record in others; returns how
    /// many letters of one of them wait.
    fn put_refused(
        &mut self,
        queues: &[QueueId],
        payload: &Payload<'_>,
        other_count: usize,
    ) -> Result<u64, EngineError> {
        // As a letter it has no times: those of the message do not count any more.
        let attributes = payload.attributes().copied().unwrap_or_default();
        let Attributes { priority, created_at_ms, is_tombstone, .. } = attributes;
        let attributes = Attributes { priority, created_at_ms, is_tombstone, ..Attributes::default() };
        let letter = payload.part((attributes != Attributes::default()).then_some(&attributes));
        let mut sizes = EnvelopeSizes::default();
        sizes.add_message(&letter, queues.len());
        queues.iter().for_each(|&queue| sizes.add_settle(&refusal_of(queue), 1));
        let is_together = self.log.takes_envelope(&sizes);
        if other_count > 0 {
            sizes.add_message(payload, other_count);
        }
        if self.log.takes_envelope(&sizes) {
            self.log.reserve_envelope(&sizes)?;
        } else {
            self.log.reserve(payload, queues.len() + other_count)?;
        }
        // Its publisher does not learn the sequence of a message that was refused.
        let assigned = self.assigned.take();
        self.assign_sequences(queues, &letter, 0);
        self.assigned = assigned;
        let appended = self.append_refused(&letter, is_together);
        appended.inspect_err(|error| self.stopped = Some(error.to_string()))?;
        let mut waiting_count = 0;
        for target in std::mem::take(&mut self.targets) {
            let (queue, lane) = self.queue_of(target.queue);
            let sequence = target.sequence.in_lane(lane);
            self.dead_letter(queue, &[sequence], Reason::MaxLength);
            self.dying.note_size(queue, sequence, u32::try_from(payload.body_bytes()).unwrap_or(u32::MAX));
            waiting_count = waiting_count.max(self.dying.count_of(queue));
        }
        Ok(waiting_count)
    }

    /// Appends a letter that has its sequences, with the marks of its refusal.
    fn append_refused(&mut self, letter: &Payload<'_>, is_together: bool) -> Result<(), EngineError> {
        let ranges: Vec<[SequenceRange; 1]> =
            self.targets.iter().map(|target| [SequenceRange::of(target.sequence)]).collect();
        let message = Operation::Message { payload: *letter, stored_at_ms: self.stored_at_ms, targets: &self.targets };
        let refusals = self.targets.iter().zip(&ranges);
        let refusals =
            refusals.map(|(target, ranges)| Operation::Settle { settlement: refusal_of(target.queue), ranges });
        let operations: Vec<Operation<'_>> = std::iter::once(message).chain(refusals).collect();
        if is_together {
            self.log.append_together(&operations)?;
            return Ok(());
        }
        // It has more queues than an envelope. A crash between its records leaves a message that was not refused.
        for operation in operations {
            self.log.append_together(&[operation])?;
        }
        Ok(())
    }
}

fn refusal_of(queue: QueueId) -> Settlement {
    Settlement { queue, outcome: Outcome::Return, count: 1, bytes: 0, due_at_ms: Some(REFUSED_AT_MS) }
}
