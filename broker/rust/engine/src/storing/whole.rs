//! Messages that are stored as a whole or not at all, with the rows of a stage that they were: in one envelope.
//!
//! Invariant: nothing changes before it is certain that all of it can be appended. Messages are declined that do not fit an
//! envelope, of which one may be refused or was stored before, or that go to several logs: then the caller stores them one
//! by one.

use penstock_log::{EnvelopeSizes, MarkView, Operation, Outcome, Settlement, Target, marks};
use penstock_queue::{QueueId, Settled};

use super::{Along, Routed, Stored};
use crate::decision::Decision;
use crate::error::EngineError;
use crate::level::Level;
use crate::log_number::LogNumber;
use crate::producers::{Before, ProducerSession};
use crate::publication::{Fate, Publication};
use crate::state::State;

impl Along<'_> {
    fn add_to(&self, sizes: &mut EnvelopeSizes, mark: &[u8]) {
        // Rows that others drop meanwhile split a run.
        let rows: u64 = self.runs.iter().map(|(range, _)| range.count()).sum();
        sizes.add_settle(&drop_of(self.stage, &Settled::default()), usize::try_from(rows).unwrap_or(usize::MAX));
        sizes.add_mark(&mark_of(&marks::owner_of_stage(self.stage), mark));
    }
}

fn drop_of(queue: QueueId, settled: &Settled) -> Settlement {
    Settlement { queue, outcome: Outcome::Drop, count: settled.count, bytes: settled.bytes, due_at_ms: None }
}

fn mark_of<'a>(owner: &'a [u8], value: &'a [u8]) -> MarkView<'a> {
    MarkView { owner, key: &[], value }
}

impl State {
    /// Whether all of it can be stored in one envelope; then its space is reserved.
    pub(super) fn makes_room(&mut self, routed: Routed<'_>, along: Option<&Along<'_>>) -> bool {
        for (place, publication) in routed.batch.iter().enumerate() {
            self.assign_keys(routed.routes.queues(place).unwrap_or_default(), &publication.payload);
        }
        let mut sizes = EnvelopeSizes::default();
        if let Some(along) = along {
            let mark = along.decision.as_ref().map(Decision::encode).unwrap_or_default();
            along.add_to(&mut sizes, &mark);
        }
        along.is_none_or(|along| self.queues.contains_key(&along.stage) && !self.has_copied(along))
            && self.add_all(routed, &mut sizes).is_some()
            && (along.is_some() || !self.may_recognize_any(routed))
            && self.log.takes_envelope(&sizes)
            && self.reaches_here(routed.producer).is_ok()
            && self.log.reserve_envelope(&sizes).is_ok()
    }

    /// Adds up the messages; `None` when one of them may be refused, is not for this log alone, or was stored before.
    fn add_all(&self, Routed { batch, routes, .. }: Routed<'_>, sizes: &mut EnvelopeSizes) -> Option<()> {
        let mut last = 0;
        for (place, publication) in batch.iter().enumerate() {
            if let Some(producer) = publication.payload.producer() {
                let is_new = self.producers.before(producer) == Before::New && !self.producers.has_stored(producer);
                if !is_new || producer.sequence <= last {
                    return None;
                }
                last = producer.sequence;
            }
            if self.has_copy(&publication.payload) {
                return None;
            }
            let queues = routes.queues(place)?;
            let is_returned = publication.mandatory && !routes.reaches_queue(place);
            if is_returned || queues.iter().any(|queue| self.may_refuse(queue)) {
                return None;
            }
            if !queues.is_empty() {
                sizes.add_message(&publication.payload, queues.len());
            }
        }
        Some(())
    }

    /// Whether a message may be a repetition. A row of a stage that was published before has its own ways to be recognized.
    fn may_recognize_any(&self, Routed { batch, routes, .. }: Routed<'_>) -> bool {
        let mut each = batch.iter().enumerate();
        each.any(|(place, one)| routes.queues(place).is_some_and(|queues| self.may_recognize(queues, one)))
    }

    /// Whether one of the rows has its copy: a crash came between the two.
    fn has_copied(&self, along: &Along<'_>) -> bool {
        along.runs.iter().any(|(range, _)| self.has_copies_in(along.stage, *range))
    }

    /// Whether a queue does not take every message, or not in this log.
    fn may_refuse(&self, queue: &QueueId) -> bool {
        self.shut.contains(queue) || self.rejecting.contains_key(queue) || self.elsewhere.contains_key(queue)
    }

    /// This log knows of all logs of a producer before it has a later message of it.
    fn reaches_here(&mut self, producer: Option<&ProducerSession>) -> Result<(), EngineError> {
        let Some(session) = producer.filter(|_| !self.elsewhere.is_empty()) else { return Ok(()) };
        if let Some(logs) = self.producers.reaching(session.id(), std::iter::once(LogNumber::VHOST)) {
            self.note_logs(session.id(), &logs)?;
            self.producers.reached(session.id(), logs);
        }
        Ok(())
    }

    /// Stores all of it, for which there is room. An error stops the shard, whose queues are then ahead of its log.
    pub(super) fn append_whole(
        &mut self,
        routed: Routed<'_>,
        along: Option<Along<'_>>,
        fates: &mut Vec<Fate>,
    ) -> Result<Stored, EngineError> {
        let (mut targets, mut ends) = (Vec::new(), Vec::new());
        let stored = self.assign_batch(routed, (&mut targets, &mut ends), fates);
        let settled = along.as_ref().map(|along| (along.stage, self.settle_runs(along.stage, along.runs)));
        let mark = along.and_then(|along| Some((along.stage, along.decision?))).map(|(stage, decision)| {
            let value = decision.encode();
            self.stages.entry(stage).or_default().decision = Some(decision);
            (marks::owner_of_stage(stage), value)
        });
        let mut operations = self.messages(&ends, &targets);
        if let Some((stage, settled)) = settled.as_ref().filter(|(_, settled)| !settled.ranges.is_empty()) {
            operations.push(Operation::Settle { settlement: drop_of(*stage, settled), ranges: &settled.ranges });
        }
        operations.extend(mark.as_ref().map(|(owner, value)| Operation::Mark(mark_of(owner, value))));
        if !operations.is_empty() {
            self.log.append_together(&operations)?;
        }
        Ok(stored)
    }

    /// Assigns all messages their sequences: adds the targets of those that are stored, and where those of each end.
    pub(super) fn assign_batch<'a>(
        &mut self,
        routed: Routed<'a>,
        (targets, ends): (&mut Vec<Target>, &mut Vec<(&'a Publication<'a>, usize)>),
        fates: &mut Vec<Fate>,
    ) -> Stored {
        let mut stored = Stored::default();
        for (place, publication) in routed.batch.iter().enumerate() {
            let queues = routed.routes.queues(place).unwrap_or_default();
            let fate = self.assign_whole(queues, (place, publication), routed.level);
            if matches!(fate, Fate::Stored(_)) {
                targets.extend_from_slice(&self.targets);
                ends.push((publication, targets.len()));
                stored.count += 1;
                stored.bytes += publication.payload.body_bytes();
            }
            let is_stored = matches!(fate, Fate::Stored(_)) && routed.routes.reaches_queue(place);
            let fate = if is_stored { fate } else { publication.fate_nowhere() };
            if let Some(producer) = publication.payload.producer() {
                self.producers.note(producer, fate);
            }
            fates.push(fate);
        }
        stored
    }

    /// Assigns a message its sequences, and notes that the log has its producer's.
    fn assign_whole(
        &mut self,
        queues: &[QueueId],
        (place, publication): (usize, &Publication<'_>),
        level: Option<Level>,
    ) -> Fate {
        let payload = &publication.payload;
        let levels = self.assign_sequences(queues, payload, place);
        let is_stored = !self.targets.is_empty();
        if is_stored {
            self.note_copy(payload);
        }
        let stored = Fate::Stored(Level::of(level, levels, publication.persistent));
        let fate = if is_stored { stored } else { publication.fate_nowhere() };
        if let Some(producer) = payload.producer().filter(|_| is_stored) {
            self.note_stored(payload, producer);
        }
        fate
    }

    /// The records of messages, each with the end of its targets.
    pub(crate) fn messages<'a>(&self, ends: &[(&Publication<'a>, usize)], targets: &'a [Target]) -> Vec<Operation<'a>> {
        let (stored_at_ms, mut from) = (self.stored_at_ms, 0);
        let message = |&(publication, end): &(&Publication<'a>, usize)| {
            let targets = targets.get(from..end).unwrap_or_default();
            from = end;
            Operation::Message { payload: publication.payload, stored_at_ms, targets }
        };
        ends.iter().map(message).collect()
    }
}
