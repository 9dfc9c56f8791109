//! Transactions: messages and settlements of one log that are applied in one envelope, as a whole or not at all.
//!
//! Invariant: nothing changes before it is certain that all of it can be appended. Whatever does not fit an envelope, goes to
//! several logs, or is refused by a queue, is refused with a reason, and then nothing of the transaction has happened.
//!
//! Messages that are rejected into a dead-letter exchange are put aside with the transaction and move after it, as others do.

use std::sync::Arc;

use penstock_log::{DEADLINE_MS_MAX, EnvelopeSizes, Operation, Outcome, Position, Settlement};
use penstock_queue::{QueueId, SequenceRange, Settle, Settling};
use rustc_hash::FxHashMap;

use super::{Round, Routed, Sent, Stored};
use crate::counters::Metric;
use crate::error::EngineError;
use crate::places::Places;
use crate::publication::{Fate, Publication};
use crate::routes::{AtOnce, Routes};
use crate::shard::Shard;
use crate::state::State;
use crate::subscription::Subscription;

/// The messages and settlements of a transaction.
#[derive(Clone, Copy)]
pub struct Transaction<'a> {
    pub batch: &'a [Publication<'a>],
    pub settlements: &'a [TransactionSettlement<'a>],
    pub now_ms: u64,
}

/// Messages of one subscription that a transaction settles.
#[derive(Clone, Copy)]
pub struct TransactionSettlement<'a> {
    pub subscription: &'a Subscription,
    /// Ascending.
    pub ranges: &'a [SequenceRange],
    pub how: Settle,
}

/// A transaction that was applied.
#[derive(Debug, Default)]
pub struct Committed {
    /// Where its log ends behind it.
    pub places: Places,
    /// Of each settlement, how many messages it settled, and their bytes.
    pub settled: Vec<(u64, u64)>,
}

/// Work that is left to do without the lock.
struct Applied {
    end: Position,
    settled: Vec<(u64, u64)>,
    stored: Stored,
    has_sealed: bool,
    /// Runs of dead letters, if there are new ones.
    dying: Option<usize>,
    too_long: Vec<QueueId>,
}

impl Shard {
    /// Applies a transaction as a whole. It is in the page cache when this returns; `fates` gets an entry for each message. On an
    /// error nothing of it was applied.
    ///
    /// # Errors
    /// `TransactionTooLarge` and `TransactionLogs`; `TransactionExchange`, `QueueShut` and `QueueLength` for its messages; `Log`
    /// when there is no space, or when the disk failed, which stops the shard; `Stopped` and `Closed`.
    pub fn commit(
        self: &Arc<Self>,
        transaction: Transaction<'_>,
        fates: &mut Vec<Fate>,
    ) -> Result<Committed, EngineError> {
        loop {
            let mut routes = Routes::of(&self.routing(), transaction.batch, AtOnce::WHOLE);
            if routes.count() < transaction.batch.len() {
                return Err(EngineError::TransactionTooLarge);
            }
            let home = self.home_of_all(routes.reached(), transaction.settlements)?;
            let applied = home.commit_here(transaction, &mut routes, fates)?;
            routes.keep();
            // Without a result, a queue was deleted after the messages were routed.
            let Some(Applied { end, settled, stored, has_sealed, dying, too_long }) = applied else { continue };
            home.count_stored(stored, has_sealed);
            home.counters().add(Metric::Settled, settled.iter().map(|(count, _)| count).sum());
            // It was applied. An error of these is one of the log, as whoever waits for its sync finds.
            let _ = home.shorten_after(&too_long);
            let _ = dying.map(|run_count| home.dead_letters_added(run_count));
            let mut places = Places::default();
            places.add(&home, end);
            return Ok(Committed { places, settled });
        }
    }

    /// The log of all these queues and of what is settled: this one where there is nothing.
    fn home_of_all(
        self: &Arc<Self>,
        reached: &[QueueId],
        settlements: &[TransactionSettlement<'_>],
    ) -> Result<Arc<Shard>, EngineError> {
        let settled = settlements.iter().map(|one| (one.subscription.queue(), Arc::clone(one.subscription.shard())));
        let mut all = settled.chain(reached.iter().map(|&queue| (queue, self.home_of(queue))));
        let Some((first, home)) = all.next() else { return Ok(Arc::clone(self)) };
        let Some((other, elsewhere)) = all.find(|(_, other)| !Arc::ptr_eq(other, &home)) else { return Ok(home) };
        Err(EngineError::TransactionLogs(home.name_of(first)?, elsewhere.name_of(other)?))
    }

    fn name_of(&self, queue: QueueId) -> Result<String, EngineError> {
        Ok(self.lock()?.queues.get(&queue).map_or_else(String::new, |entry| entry.name.clone()))
    }

    /// `None` when the routes are not those of the present queues any more.
    fn commit_here(
        &self,
        transaction: Transaction<'_>,
        routes: &mut Routes,
        fates: &mut Vec<Fate>,
    ) -> Result<Option<Applied>, EngineError> {
        let Transaction { batch, now_ms, .. } = transaction;
        let (refused, room) = {
            let mut guard = self.lock()?;
            let state = &mut *guard;
            if !batch.is_empty() && routes.removals < state.removals {
                return Ok(None);
            }
            let sent = Sent { producer: None, batch, level: None, now_ms, with_sequences: false };
            self.begin_hold(state, sent, routes, AtOnce::WHOLE)?;
            let full = (!batch.is_empty() && self.is_full()).then(|| self.full());
            match full.map_or_else(|| state.makes_room_for(transaction, routes), Err) {
                Ok(()) => {
                    let applied = state.apply(transaction, routes, fates);
                    return Ok(Some(applied.inspect_err(|error| state.stopped = Some(error.to_string()))?));
                }
                Err(refused) => {
                    let room = refused.is_full().then(|| state.log.room());
                    (refused, room)
                }
            }
        };
        room.into_iter().for_each(|room| self.ran_out(room));
        Err(refused)
    }
}

impl State {
    /// Checks that all of a transaction can be applied, and reserves its space.
    fn makes_room_for(&mut self, transaction: Transaction<'_>, routes: &Routes) -> Result<(), EngineError> {
        let mut sizes = EnvelopeSizes::default();
        let mut given: FxHashMap<QueueId, (u64, u64)> = FxHashMap::default();
        for (place, publication) in transaction.batch.iter().enumerate() {
            let queues = routes.queues(place).ok_or_else(|| no_exchange(publication))?;
            if queues.iter().any(|queue| self.shut.contains(queue)) {
                return Err(EngineError::QueueShut);
            }
            let body_bytes = publication.payload.body_bytes();
            for &queue in queues.iter().filter(|queue| self.rejecting.contains_key(queue)) {
                let (count, bytes) = given.entry(queue).or_default();
                if !self.takes_letter(queue, (*count, *bytes), body_bytes) {
                    return Err(EngineError::QueueLength);
                }
                (*count, *bytes) = (*count + 1, *bytes + body_bytes);
            }
            self.assign_keys(queues, &publication.payload);
            if !queues.is_empty() {
                sizes.add_message(&publication.payload, queues.len());
            }
        }
        for settlement in transaction.settlements {
            self.add_settlement(settlement, &mut sizes);
        }
        if sizes.heads_bytes() == 0 {
            return Ok(());
        }
        if !self.log.takes_envelope(&sizes) {
            return Err(EngineError::TransactionTooLarge);
        }
        Ok(self.log.reserve_envelope(&sizes)?)
    }

    /// Adds what a settlement takes at most: a range for each message.
    fn add_settlement(&self, settlement: &TransactionSettlement<'_>, sizes: &mut EnvelopeSizes) {
        let TransactionSettlement { subscription, ranges, how } = settlement;
        let Some(entry) = self.queues.get(&subscription.queue()) else { return };
        // Each of them may wait for another time.
        let is_single = self.retry_schedule(subscription.queue(), *how).is_some();
        let held = entry.machine.held_in(subscription.id(), ranges);
        for lane in held.chunk_by(|one, other| one.first.lane() == other.first.lane()) {
            let count: u64 = lane.iter().map(SequenceRange::count).sum();
            let queue = subscription.queue();
            // Its time takes space, whether it has one or not.
            let one = Settlement { queue, outcome: Outcome::Requeue, count, bytes: 0, due_at_ms: Some(0) };
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let (records, ranges) = if is_single { (count, 1) } else { (1, count) };
            (0..records).for_each(|_| sizes.add_settle(&one, ranges));
        }
    }

    /// Applies a transaction for which there is room. An error stops the shard, whose queues are then ahead of its log.
    fn apply(
        &mut self,
        Transaction { batch, settlements, .. }: Transaction<'_>,
        routes: &Routes,
        fates: &mut Vec<Fate>,
    ) -> Result<Applied, EngineError> {
        let routed = Routed { batch, routes, producer: None, level: None };
        let (mut targets, mut ends) = (Vec::new(), Vec::new());
        let stored = self.assign_batch(routed, (&mut targets, &mut ends), fates);
        self.transacted = Some(Vec::new());
        let done = self.settle_all(settlements);
        let transacted = joined(self.transacted.take().unwrap_or_default());
        let (settled, dying) = done?;
        let mut operations = self.messages(&ends, &targets);
        let settle = |(settlement, ranges)| Operation::Settle { settlement, ranges };
        operations.extend(transacted.iter().map(|(settlement, ranges)| (*settlement, ranges.as_slice())).map(settle));
        if !operations.is_empty() {
            self.log.append_together(&operations)?;
        }
        let Round { published, too_long, .. } = self.end_hold(None, false, None)?;
        Ok(Applied { end: published.end, settled, stored, has_sealed: self.has_sealed(), dying, too_long })
    }

    /// Settles in memory; returns how much of each, and the runs of dead letters if there are new ones.
    #[allow(clippy::type_complexity)]
    fn settle_all(
        &mut self,
        settlements: &[TransactionSettlement<'_>],
    ) -> Result<(Vec<(u64, u64)>, Option<usize>), EngineError> {
        let (mut all, mut dying) = (Vec::with_capacity(settlements.len()), None);
        for TransactionSettlement { subscription, ranges, how } in settlements {
            let (mut count, mut bytes) = (0, 0);
            let mut settling = Settling::of(ranges);
            // Messages of a queue that is gone went with it.
            while !settling.is_done() && self.queues.contains_key(&subscription.queue()) {
                let (settled, runs) = subscription.settle_held(self, &mut settling, *how)?;
                (count, bytes) = (count + settled.count, bytes + settled.bytes);
                dying = runs.or(dying);
            }
            subscription.recount(self);
            all.push((count, bytes));
        }
        Ok((all, dying))
    }
}

/// The settlements of one lane with one outcome as one: those of several consumers have different messages.
fn joined(all: Vec<(Settlement, Vec<SequenceRange>)>) -> Vec<(Settlement, Vec<SequenceRange>)> {
    let mut found: Vec<(Settlement, Vec<SequenceRange>)> = Vec::new();
    let mut places = FxHashMap::default();
    for (mut settlement, ranges) in all {
        settlement.due_at_ms = settlement.due_at_ms.map(|due_at_ms| due_at_ms.min(DEADLINE_MS_MAX));
        let Settlement { queue, outcome, count, bytes, due_at_ms } = settlement;
        let place = *places.entry((queue, outcome as u8, due_at_ms)).or_insert(found.len());
        match found.get_mut(place) {
            Some((joined, before)) => {
                (joined.count, joined.bytes) = (joined.count + count, joined.bytes + bytes);
                before.extend(ranges);
            }
            None => found.push((settlement, ranges)),
        }
    }
    found.iter_mut().for_each(|(_, ranges)| ranges.sort_unstable_by_key(|range| range.first));
    found
}

fn no_exchange(publication: &Publication<'_>) -> EngineError {
    EngineError::TransactionExchange(String::from_utf8_lossy(publication.exchange).into_owned())
}
