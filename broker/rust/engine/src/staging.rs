//! Stages: streams of rows that consumers cannot see until their batch is decided, and the decision that publishes a
//! batch.
//!
//! Invariants: a decision is on the disk before the first of its rows is copied, or in one envelope with all of them, and
//! only a completed one is answered; a decided batch is never decided again, and one that comes again with other rows is
//! refused; a row leaves the stage in one envelope with its copy, or after it, and an interrupted copy is resumed with the
//! same sequences, so that no log stores a row twice. Rows are read without the shard's lock.

mod copying;

use std::sync::Arc;

use penstock_log::{ENVELOPE_RECORDS_MAX, Outcome, Payload, Position, RowsDigest, Target, marks};
use penstock_queue::{QueueId, SequenceRange};
use rustc_hash::{FxHashMap, FxHashSet};

use self::copying::{Copy, parts_of, rounds_of, runs_of};
use crate::decision::{ATTEMPTS_MAX, Copying, Decided, Decision, Stage, StageTag, StagedOutcome, digest_of};
use crate::error::EngineError;
use crate::producers::STAGE_PREFIX;
use crate::routes::KEY_BYTES_AT_ONCE;
use crate::shard::Shard;
use crate::stage_reader::StageReader;
use crate::state::State;

/// An attempt at a part of a batch, and its number of rows as counted by its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagedAttempt {
    pub attempt: u64,
    pub count: u64,
}

/// A batch to publish. An empty `exchange` is the default one.
#[derive(Clone, Copy, Debug)]
pub struct StagedBatch<'a> {
    pub batch: u64,
    pub attempts: &'a [StagedAttempt],
    pub exchange: &'a str,
    pub routing_key: &'a str,
}

/// The last decision of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageStanding {
    pub last_batch: Option<u64>,
    /// Whether that batch is still to be copied.
    pub copying: bool,
}

/// The right to decide about a stage, one at a time.
struct Turn {
    shard: Arc<Shard>,
    queue: QueueId,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Ok(mut guard) = self.shard.lock()
            && let Some(stage) = guard.stages.get_mut(&self.queue)
        {
            stage.is_busy = false;
        }
    }
}

impl Shard {
    /// A unique number for an attempt.
    ///
    /// # Errors
    /// `Log` when the system has no random numbers; `Stopped` when a bug poisoned the shard.
    pub fn new_attempt(&self) -> Result<u64, EngineError> {
        Ok(self.lock()?.log.random()?.max(1))
    }

    /// Stores rows in a stage; their payloads have the tag of their attempt as their exchange. Rows of a decided batch
    /// are compared when it is published again. Returns the position for [`Shard::wait_synced`].
    ///
    /// # Errors
    /// `NoQueue`; `NotStream`; `Log` when the disk is full, which leaves the first of the rows in the stage, or when it
    /// failed; `Stopped` and `Closed`.
    pub fn stage(&self, queue: QueueId, rows: &[Payload<'_>], now_ms: u64) -> Result<Position, EngineError> {
        let mut end = Position(0);
        for some in holds_of(rows) {
            end = self.stage_some(queue, some, now_ms)?;
        }
        Ok(end)
    }

    /// The same for one hold of the lock.
    fn stage_some(&self, queue: QueueId, rows: &[Payload<'_>], now_ms: u64) -> Result<Position, EngineError> {
        let (staged, end, has_sealed, room) = {
            let mut guard = self.lock()?;
            let state = &mut *guard;
            state.check(self.name())?;
            if self.entry(state, queue)?.stream.is_none() {
                return Err(EngineError::NotStream(self.entry(state, queue)?.name.clone()));
            }
            if self.is_full() {
                return Err(self.full());
            }
            state.stored_at_ms = state.stored_at_ms.max(now_ms);
            let staged = state.stage_all(queue, rows);
            let room = staged.as_ref().is_err_and(EngineError::is_full).then(|| state.log.room());
            state.write()?;
            (staged, state.log.end(), state.has_sealed(), room)
        };
        room.into_iter().for_each(|room| self.ran_out(room));
        if has_sealed {
            self.request_fold();
        }
        staged.map(|()| end)
    }

    /// Publishes the rows of the named attempts, whole and once, and drops the stage's other rows of the batch and of
    /// earlier ones. A batch that was decided before must have the same rows, in any order. Blocks on the disk.
    ///
    /// # Errors
    /// `StageBusy` while another call decides; `StagedRows` when the stage does not have the rows of the attempts;
    /// `StagedDiffers` and `StagedForgotten` for another batch under the number of a decided one;
    /// `NoExchange`; `TooMany` attempts or producers; as [`Shard::publish_as`]. After the decision an error leaves the
    /// rest to the next call or start.
    pub fn publish_staged(
        self: &Arc<Self>,
        queue: QueueId,
        wanted: &StagedBatch<'_>,
    ) -> Result<StagedOutcome, EngineError> {
        let _turn = self.take_turn(queue)?;
        let carried_on = self.copy_decided(queue)?;
        let was_decided = self.lock()?.last_batch(queue).is_some_and(|last| wanted.batch <= last);
        if was_decided {
            self.compare_decided(queue, wanted)?;
            return Ok(StagedOutcome { was_decided, ..carried_on });
        }
        match self.decide(queue, wanted)? {
            Some(copied) => Ok(copied),
            None => self.copy_decided(queue),
        }
    }

    /// Drops a stage's rows of a batch that is not being copied: of the named attempts, or of all when none is named. Returns how
    /// many rows. Blocks on the disk.
    ///
    /// # Errors
    /// `StageBusy`; `NoQueue`; `Log`; `Stopped` and `Closed`.
    pub fn discard_staged(self: &Arc<Self>, queue: QueueId, batch: u64, attempts: &[u64]) -> Result<u64, EngineError> {
        let _turn = self.take_turn(queue)?;
        if self.lock()?.stages.get(&queue).is_some_and(|stage| stage.is_copying(batch)) {
            return Ok(0);
        }
        let named: FxHashSet<u64> = attempts.iter().copied().collect();
        self.drop_staged(queue, batch, |attempt| named.is_empty() || named.contains(&attempt))
    }

    /// Drops a stage's rows of these attempts at a batch.
    fn drop_staged(
        self: &Arc<Self>,
        queue: QueueId,
        batch: u64,
        is_named: impl Fn(u64) -> bool,
    ) -> Result<u64, EngineError> {
        let is_meant = |tag: StageTag| tag.batch == batch && is_named(tag.attempt);
        let mut dropped = 0;
        let mut reader = StageReader::open(self, queue, None)?;
        while reader.next(|rows| {
            let meant = rows.iter().filter(|row| row.tag.is_some_and(is_meant));
            dropped += self.settle_staged(queue, &runs_of(meant))?;
            Ok(())
        })? {}
        Ok(dropped)
    }

    /// [`Shard::carry_on_staged`] on a thread of its own, which ends afterwards; no thread when there is nothing to do.
    pub fn carry_on_staged_apart(self: &Arc<Self>) {
        let shard = Arc::clone(self);
        let has_work = self.lock().is_ok_and(|guard| guard.stages.values().any(Stage::is_undone));
        if has_work {
            let thread = std::thread::Builder::new().name("penstock-stages".to_owned());
            if let Err(error) = thread.spawn(move || shard.carry_on_staged()) {
                let text = format!("vhost '{}': batches that were decided before the start wait: {error}", self.name());
                self.notices().warn(text);
            }
        }
    }

    /// Completes decisions of earlier processes; stages that cannot be completed are reported and left.
    pub fn carry_on_staged(self: &Arc<Self>) {
        let undone = || -> Result<Vec<QueueId>, EngineError> {
            let guard = self.lock()?;
            Ok(guard.stages.iter().filter(|(_, stage)| stage.is_undone()).map(|(&queue, _)| queue).collect())
        };
        for queue in undone().unwrap_or_default() {
            let copied = self.take_turn(queue).and_then(|_turn| self.copy_decided(queue));
            match copied {
                Ok(outcome) => self.notices().tell(format!(
                    "vhost '{}': a batch in stage {} that was decided before the start is published; {} rows were left to copy",
                    self.name(),
                    queue.0,
                    outcome.stored
                )),
                Err(error) => self.notices().warn(format!(
                    "vhost '{}': a batch in stage {} that was decided before the start is not published yet: {error}; publish \
                     it again to carry on",
                    self.name(),
                    queue.0
                )),
            }
        }
    }

    /// The last decisions of stages, in the order of the ids.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn stage_states(&self, ids: &[QueueId]) -> Result<Vec<StageStanding>, EngineError> {
        let guard = self.lock()?;
        let standing = |id: &QueueId| {
            let decision = guard.stages.get(id).and_then(|stage| stage.decision.as_ref());
            StageStanding {
                last_batch: decision.map(|decision| decision.batch),
                copying: decision.is_some_and(|decision| decision.copying.is_some()),
            }
        };
        Ok(ids.iter().map(standing).collect())
    }

    fn take_turn(self: &Arc<Self>, queue: QueueId) -> Result<Turn, EngineError> {
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        self.entry(&mut guard, queue)?;
        let stage = guard.stages.entry(queue).or_default();
        if std::mem::replace(&mut stage.is_busy, true) {
            return Err(EngineError::StageBusy);
        }
        Ok(Turn { shard: Arc::clone(self), queue })
    }

    /// Writes a decision, with all of its rows when they are few, and returns when it is on the disk: with the outcome, when
    /// nothing is left to copy.
    fn decide(
        self: &Arc<Self>,
        queue: QueueId,
        wanted: &StagedBatch<'_>,
    ) -> Result<Option<StagedOutcome>, EngineError> {
        let attempts: FxHashMap<u64, u64> = wanted.attempts.iter().map(|one| (one.attempt, one.count)).collect();
        if attempts.len() > ATTEMPTS_MAX {
            return Err(EngineError::TooMany { what: "attempts of this batch", max: ATTEMPTS_MAX });
        }
        let reader = StageReader::open(self, queue, None)?;
        let (first, end) = reader.range();
        let decided = self.check_staged(reader, wanted.batch, attempts)?;
        let session = self.open_any_producer(&producer_of(queue))?;
        // Above what any log has: no row of this batch passes for one of an earlier batch.
        let base = self.sequence_in_family(session.name())?.unwrap_or_default();
        // Once decided, it could only be carried on when the exchange is there again.
        if !self.routing().has_exchange(wanted.exchange) {
            return Err(EngineError::NoExchange(wanted.exchange.to_owned(), self.name().to_owned()));
        }
        let copying = Copying {
            first,
            end,
            base,
            exchange: wanted.exchange.as_bytes().to_vec(),
            routing_key: wanted.routing_key.as_bytes().to_vec(),
            attempts: wanted.attempts.iter().map(|one| one.attempt).collect(),
        };
        let before = self.lock()?.stages.get(&queue).and_then(|stage| stage.decision.clone());
        let mut history = before.map(|decision| decision.history).unwrap_or_default();
        history.add(decided);
        let decision = Decision { batch: wanted.batch, history, copying: None };
        let mut copy = Copy::of(self, (queue, wanted.batch), copying, session);
        if let Some(end) = copy.at_once(decided.rows, &decision)? {
            self.sync_to(end)?;
            return Ok(Some(copy.outcome));
        }
        let end = {
            let mut guard = self.lock()?;
            guard.check(self.name())?;
            self.entry(&mut guard, queue)?;
            guard.put_decision(queue, Decision { copying: Some(copy.copying), ..decision })?
        };
        self.sync_to(end).map(|()| None)
    }

    /// Checks that a decided batch comes again with the rows that it had, and drops these. The same attempts were compared
    /// before, or decided.
    fn compare_decided(self: &Arc<Self>, queue: QueueId, wanted: &StagedBatch<'_>) -> Result<(), EngineError> {
        let decision = self.lock()?.stages.get(&queue).and_then(|stage| stage.decision.clone());
        let Some(mut decision) = decision else { return Ok(()) };
        let batch = wanted.batch;
        let before = decision.history.find(batch).map_err(|_| EngineError::StagedForgotten { batch })?;
        let before = before.unwrap_or(Decided { batch, ..Decided::default() });
        let attempts: FxHashMap<u64, u64> = wanted.attempts.iter().map(|one| (one.attempt, one.count)).collect();
        if before.attempts == digest_of(attempts.keys().copied()) {
            return Ok(());
        }
        let now = self.check_staged(StageReader::open(self, queue, None)?, batch, attempts)?;
        if (now.rows, now.digest) != (before.rows, before.digest) {
            return Err(EngineError::StagedDiffers { batch, stored: before.rows, staged: now.rows });
        }
        decision.history.repeated(batch, now.attempts);
        let end = {
            let mut guard = self.lock()?;
            guard.check(self.name())?;
            self.entry(&mut guard, queue)?;
            guard.put_decision(queue, decision)?
        };
        self.sync_to(end)?;
        self.drop_staged(queue, batch, |_| true).map(|_| ())
    }

    /// Checks that the stage has exactly the rows that the attempts counted, and returns what they are.
    fn check_staged(
        &self,
        mut reader: StageReader,
        batch: u64,
        mut missing: FxHashMap<u64, u64>,
    ) -> Result<Decided, EngineError> {
        let attempts = digest_of(missing.keys().copied());
        let (mut too_many, mut rows_count, mut digest) = (None, 0, RowsDigest::default());
        while reader.next(|rows| {
            let tagged = rows.iter().filter_map(|row| Some((row, row.tag?)));
            for (row, tag) in tagged.filter(|(_, tag)| tag.batch == batch) {
                if let Some(count) = missing.get_mut(&tag.attempt) {
                    rows_count += 1;
                    digest = digest.and(row.view.row_digest());
                    match count.checked_sub(1) {
                        Some(less) => *count = less,
                        None => too_many = Some(tag.attempt),
                    }
                }
            }
            Ok(())
        })? {}
        let wrong = too_many.or_else(|| missing.iter().find(|(_, count)| **count > 0).map(|(attempt, _)| *attempt));
        let found = Decided { batch, attempts, rows: rows_count, digest: digest.0 };
        wrong.map_or(Ok(found), |attempt| Err(EngineError::StagedRows { batch, attempt }))
    }

    /// Copies the rest of the last decision, if any, and returns when all of it is on the disk.
    fn copy_decided(self: &Arc<Self>, queue: QueueId) -> Result<StagedOutcome, EngineError> {
        let decision = self.lock()?.stages.get(&queue).and_then(|stage| stage.decision.clone());
        let Some(Decision { batch, history, copying: Some(copying) }) = decision else {
            return Ok(StagedOutcome::default());
        };
        let session = self.open_any_producer(&producer_of(queue))?;
        let mut reader = StageReader::open(self, queue, Some(copying.end))?;
        let mut copy = Copy::of(self, (queue, batch), copying, session);
        while reader.next(|rows| rounds_of(rows).try_for_each(|round| copy.round(round)))? {}
        let end = {
            let mut guard = self.lock()?;
            guard.check(self.name())?;
            self.entry(&mut guard, queue)?;
            guard.put_decision(queue, Decision { batch, history, copying: None })?
        };
        let outcome = copy.outcome;
        self.sync_to(end)?;
        self.pass_source(self, queue)?;
        Ok(outcome)
    }

    /// Removes runs of rows from a stage; returns how many rows.
    fn settle_staged(&self, queue: QueueId, runs: &[(SequenceRange, u64)]) -> Result<u64, EngineError> {
        if runs.is_empty() {
            return Ok(0);
        }
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        self.entry(&mut guard, queue)?;
        let settled = guard.settle_runs(queue, runs);
        guard.log_settled(queue, Outcome::Drop, &settled)?;
        Ok(settled.count)
    }
}

impl State {
    pub(crate) fn last_batch(&self, queue: QueueId) -> Option<u64> {
        self.stages.get(&queue)?.decision.as_ref().map(|decision| decision.batch)
    }

    /// Removes the state of a stage whose queue is gone, and its producer name.
    pub(crate) fn forget_stage(&mut self, queue: QueueId) -> Result<(), EngineError> {
        if self.stages.remove(&queue).is_some() {
            self.forget_producer(&producer_of(queue))?;
        }
        Ok(())
    }

    /// Stages all rows, until one finds no space; an error after that stops the shard, whose queue is then ahead of its
    /// log.
    fn stage_all(&mut self, queue: QueueId, rows: &[Payload<'_>]) -> Result<(), EngineError> {
        for payload in rows {
            self.log.reserve(payload, 1)?;
            let Some(entry) = self.queues.get_mut(&queue) else { return Ok(()) };
            let sequence = entry.machine.publish(payload.body_bytes());
            if let Err(error) = self.log.append_message(payload, self.stored_at_ms, &[Target { queue, sequence }]) {
                self.stopped = Some(error.to_string());
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn put_decision(&mut self, queue: QueueId, decision: Decision) -> Result<Position, EngineError> {
        self.log.append_mark(&marks::owner_of_stage(queue), &[], &decision.encode())?;
        self.write()?;
        self.stages.entry(queue).or_default().decision = Some(decision);
        Ok(self.log.end())
    }
}

/// The producer name of a stage, which clients cannot open.
fn producer_of(queue: QueueId) -> String {
    format!("{STAGE_PREFIX}{}", queue.0)
}

/// Rows to be staged in parts for one hold of the lock each, by their keys: callers limit the bytes of bodies.
fn holds_of<'a, 'b>(rows: &'a [Payload<'b>]) -> impl Iterator<Item = &'a [Payload<'b>]> {
    parts_of(rows, (ENVELOPE_RECORDS_MAX, KEY_BYTES_AT_ONCE), |row| row.key().map_or(0, <[u8]>::len))
}
