//! A consumer's end of a queue: take ready messages, report their sizes, settle them.
//!
//! Taking happens under the shard's lock and returns places in segments; the bytes are read after it. Dropping a
//! subscription requeues its messages.

mod retiring;
mod taking;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use penstock_log::{LogError, Outcome, Segment};
use penstock_queue::{
    QueueId, Rank, Sequence, SequenceRange, Settle, Settled, Settling, SubscriptionId, SubscriptionSettings, Taken,
};
use penstock_wire::amqp::deaths::Reason;

use crate::aging::Freshness;
use crate::clock::clock_ms;
use crate::counters::Metric;
use crate::credit::{Credit, Share};
use crate::error::EngineError;
use crate::holding::{Holding, recount};
use crate::queue_entry::QueueEntry;
use crate::retrying::{aside_for_now, outcome_of};
use crate::shard::Shard;
use crate::signal::Signal;
use crate::state::State;

/// Messages and ranges that are settled or requeued in one hold of the shard's lock.
pub(crate) const SETTLED_AT_ONCE: usize = 4096;

/// Settings of a consumer.
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionOptions {
    pub prefetch: u32,
    pub auto_ack: bool,
    pub exclusive: bool,
    /// Takes only on request (`take_now`), and does not count as a consumer.
    pub pull: bool,
}

/// Further choices of a consumer: how it is woken, its credit, its priority and its timeout.
#[derive(Debug, Default)]
pub struct Joining<'a> {
    pub signal: Arc<Signal>,
    /// A credit that it shares with others.
    pub credit: Option<&'a Arc<Credit>>,
    /// Consumers of a higher priority get messages first, while they have credit.
    pub priority: i32,
    /// How long it may keep a message unacked; without it the queue decides.
    pub ack_timeout_ms: Option<u64>,
    /// Set for one that pulls when no consumer may be exclusive beside it; a consumer always hinders that.
    pub hinders_exclusive: bool,
}

/// One taken message: its state in the queue and the place of its record.
#[derive(Clone, Copy, Debug)]
pub struct Picked {
    pub taken: Taken,
    pub offset: u32,
}

/// Messages of one segment, in the order they are delivered.
#[derive(Debug)]
pub struct Filled {
    pub segment: Arc<Segment>,
    pub picked: Vec<Picked>,
}

/// An auto-delete queue lost its last consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused {
    pub queue: String,
    pub id: QueueId,
}

/// A subscription; see the module.
pub struct Subscription {
    shard: Arc<Shard>,
    queue: QueueId,
    id: SubscriptionId,
    signal: Arc<Signal>,
    options: SubscriptionOptions,
    /// Counts while it is not paused.
    prefetch: AtomicU32,
    is_paused: AtomicBool,
    /// Its part of a credit that others share.
    share: Option<Arc<Share>>,
    /// The age limit of the queue when it last took messages; the largest number when there is none.
    max_age_ms: AtomicU64,
    /// Deadlines up to this time had come by then.
    passed_ms: AtomicU64,
    /// Whether it is no consumer any more.
    is_retired: AtomicBool,
    /// How long it may keep a message unacked, if it chose that; else its queue says it.
    own_ack_timeout_ms: Option<u64>,
    /// Whether the deliveries of a message were limited then.
    counts_deliveries: AtomicBool,
    open: AtomicBool,
}

impl Shard {
    /// Adds a consumer to a queue.
    ///
    /// # Errors
    /// `NoQueue`; `IsStream`; `Queue` when another consumer is exclusive or this one cannot be.
    pub fn subscribe(
        self: &Arc<Self>,
        queue: QueueId,
        options: SubscriptionOptions,
    ) -> Result<Subscription, EngineError> {
        self.subscribe_as(queue, options, Joining::default())
    }

    /// The same with a signal of the caller, such as one of a ready list, and with a credit that it shares with others.
    ///
    /// # Errors
    /// As [`Shard::subscribe`].
    pub fn subscribe_with(
        self: &Arc<Self>,
        queue: QueueId,
        options: SubscriptionOptions,
        signal: Arc<Signal>,
        credit: Option<&Arc<Credit>>,
    ) -> Result<Subscription, EngineError> {
        self.subscribe_as(queue, options, Joining { signal, credit, ..Joining::default() })
    }

    /// A subscription of a lease, which takes messages once. No consumer is exclusive beside it.
    pub(crate) fn subscribe_lease(self: &Arc<Self>, queue: QueueId) -> Result<Subscription, EngineError> {
        let options = SubscriptionOptions { prefetch: 0, auto_ack: false, exclusive: false, pull: true };
        self.subscribe_as(queue, options, Joining { hinders_exclusive: true, ..Joining::default() })
    }

    /// The same with all that a consumer may choose beside its options.
    ///
    /// # Errors
    /// As [`Shard::subscribe`].
    pub fn subscribe_as(
        self: &Arc<Self>,
        queue: QueueId,
        options: SubscriptionOptions,
        joining: Joining<'_>,
    ) -> Result<Subscription, EngineError> {
        let Joining { signal, credit, priority, ack_timeout_ms, hinders_exclusive } = joining;
        let prefetch = if options.pull { 0 } else { options.prefetch };
        let (id, counts_deliveries) = {
            let mut guard = self.lock()?;
            guard.check(self.name())?;
            let is_limited = guard.delivery_limits.contains_key(&queue);
            let entry = self.entry(&mut guard, queue)?;
            if entry.stream.is_some() {
                return Err(EngineError::IsStream(entry.name.clone()));
            }
            let settings = SubscriptionSettings { prefetch, auto_ack: options.auto_ack, exclusive: options.exclusive };
            let rank = if options.pull { Rank::Pull } else { Rank::Consumer(priority) };
            let id = entry.machine.subscribe_as(settings, rank)?;
            signal.stand_by(!options.pull && entry.machine.stands_by(id));
            signal.limit_unacked(entry.ack_timeout_ms);
            entry.signals.insert(id, Arc::clone(&signal));
            entry.pull_count += usize::from(options.pull);
            if options.pull && !hinders_exclusive {
                // A consumer may be exclusive beside messages that were got one by one.
                entry.machine.retire(id);
            }
            (id, AtomicBool::new(is_limited))
        };
        if !options.pull {
            self.counters().add(Metric::Consumers, 1);
        }
        let (shard, share) = (Arc::clone(self), credit.map(|credit| Share::new(credit, &signal)));
        let (prefetch, is_paused, open) = (AtomicU32::new(prefetch), AtomicBool::new(false), AtomicBool::new(true));
        let (max_age_ms, passed_ms) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        let is_retired = AtomicBool::new(false);
        Ok(Subscription {
            shard,
            queue,
            id,
            signal,
            options,
            prefetch,
            is_paused,
            share,
            max_age_ms,
            passed_ms,
            is_retired,
            own_ack_timeout_ms: ack_timeout_ms,
            counts_deliveries,
            open,
        })
    }
}

impl Subscription {
    #[must_use]
    pub fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// The shard whose lock it takes.
    #[must_use]
    pub fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    #[must_use]
    pub fn queue(&self) -> QueueId {
        self.queue
    }

    pub(crate) fn id(&self) -> SubscriptionId {
        self.id
    }

    fn lock(&self) -> Result<Holding<'_>, EngineError> {
        let held = self.shard.lock()?;
        Ok(Holding { held, queue: self.queue, id: self.id, share: self.share.as_deref() })
    }

    #[must_use]
    pub fn is_auto_ack(&self) -> bool {
        self.options.auto_ack
    }

    /// Reports the sizes of read messages, and counts them as delivered; with auto-ack they are settled.
    ///
    /// # Errors
    /// `NoQueue` once the queue is gone; `Log` when the settlement cannot be written.
    pub fn sent(&self, sizes: &[(Sequence, u32)]) -> Result<(), EngineError> {
        let bytes: u64 = sizes.iter().map(|&(_, size)| u64::from(size)).sum();
        {
            let mut guard = self.lock()?;
            let entry = self.shard.entry(&mut guard, self.queue)?;
            entry.delivered_count += sizes.len() as u64;
            let machine = &mut entry.machine;
            machine.sized(self.id, sizes);
            let ranges = ranges_with(sizes).unwrap_or_default();
            if !self.options.auto_ack {
                machine.sent(self.id, &ranges);
            } else if !ranges.is_empty() {
                let settled = self.settle_as(&mut guard, &ranges, (Settle::Ack, Outcome::Ack))?;
                self.fold_sealed(&mut guard);
                self.shard.counters().add(Metric::Settled, settled);
            }
        }
        self.shard.counters().add(Metric::Delivered, sizes.len() as u64);
        self.shard.counters().add(Metric::DeliveredBytes, bytes);
        Ok(())
    }

    /// How long it may keep a message unacked, in ms.
    #[must_use]
    pub fn ack_timeout_ms(&self) -> Option<u64> {
        self.own_ack_timeout_ms.or(self.signal.ack_timeout_ms())
    }

    /// The messages of these ranges that it holds.
    ///
    /// # Errors
    /// `NoQueue` once the queue is gone.
    pub fn held_in(&self, ranges: &[SequenceRange]) -> Result<Vec<SequenceRange>, EngineError> {
        let mut guard = self.lock()?;
        Ok(self.shard.entry(&mut guard, self.queue)?.machine.held_in(self.id, ranges))
    }

    /// Which of the messages that it took may be delivered now; the others are for [`Subscription::expire`] and
    /// [`Subscription::put_aside`].
    #[must_use]
    pub fn freshness(&self) -> Freshness {
        let max_age_ms = self.max_age_ms.load(Ordering::Relaxed);
        // The clock may go back, but a deadline that has come does not come again.
        let now_ms = clock_ms().max(self.passed_ms.load(Ordering::Relaxed));
        let freshness_at = if self.options.pull { Freshness::for_pull } else { Freshness::at };
        freshness_at(now_ms, (max_age_ms < u64::MAX).then_some(max_age_ms))
    }

    /// Whether the queue limits how often a message is delivered: then a delivery says how often it was.
    #[must_use]
    pub fn counts_deliveries(&self) -> bool {
        self.counts_deliveries.load(Ordering::Relaxed)
    }

    /// Returns messages that it took too early to the queue until they are due; each with that time.
    ///
    /// # Errors
    /// `NoQueue` once the queue is gone.
    pub fn put_aside(&self, early: &[(Sequence, u64)]) -> Result<(), EngineError> {
        let mut guard = self.lock()?;
        let passed_ms = guard.passed_ms;
        self.passed_ms.fetch_max(passed_ms, Ordering::Relaxed);
        let machine = &mut self.shard.entry(&mut guard, self.queue)?.machine;
        // Nothing would release those whose deadlines have come meanwhile.
        let (due, early): (Vec<_>, Vec<_>) = early.iter().copied().partition(|&(_, due_at_ms)| due_at_ms <= passed_ms);
        let ranges = |some: &[(Sequence, u64)]| ranges_of(some.iter().map(|&(sequence, _)| sequence));
        machine.put_aside(self.id, &ranges(&early));
        let put_back = machine.put_back(self.id, &ranges(&due));
        guard.wake(self.queue, put_back);
        Ok(())
    }

    /// Expires messages that it took and did not deliver, each with the size of its body.
    ///
    /// # Errors
    /// As [`Subscription::sent`].
    pub fn expire(&self, sizes: &[(Sequence, u32)]) -> Result<(), EngineError> {
        let Some(ranges) = ranges_with(sizes) else { return Ok(()) };
        let mut guard = self.lock()?;
        let machine = &mut self.shard.entry(&mut guard, self.queue)?.machine;
        machine.sized(self.id, sizes);
        if guard.dead_letters.contains_key(&self.queue) {
            let machine = &mut self.shard.entry(&mut guard, self.queue)?.machine;
            let aside = machine.settle(self.id, &ranges, Settle::Aside);
            let run_count = guard.note_dying(self.queue, &aside.ranges, Reason::Expired);
            drop(guard);
            self.shard.counters().add(Metric::Expired, aside.count);
            return self.shard.dead_letters_added(run_count);
        }
        let expired = self.settle_as(&mut guard, &ranges, (Settle::Reject, Outcome::Expire))?;
        self.fold_sealed(&mut guard);
        self.shard.counters().add(Metric::Expired, expired);
        Ok(())
    }

    /// Settles messages that it holds, and logs that, lane by lane; returns how many.
    fn settle_as(
        &self,
        state: &mut State,
        ranges: &[SequenceRange],
        (how, outcome): (Settle, Outcome),
    ) -> Result<u64, EngineError> {
        let mut count = 0;
        for some in ranges.chunk_by(|one, other| one.first.lane() == other.first.lane()) {
            let settled = self.shard.entry(state, self.queue)?.machine.settle(self.id, some, how);
            state.log_settled(self.queue, outcome, &settled)?;
            count += settled.count;
        }
        Ok(count)
    }

    /// Reports the sizes of messages that it keeps, and puts those in `too_many` back undelivered.
    pub(crate) fn sized(&self, sizes: &[(Sequence, u32)], too_many: &[(Sequence, u32)]) -> Result<(), EngineError> {
        let mut guard = self.lock()?;
        let entry = self.shard.entry(&mut guard, self.queue)?;
        entry.machine.sized(self.id, sizes);
        entry.delivered_count += sizes.len() as u64;
        if let Some(ranges) = ranges_with(too_many) {
            let put_back = entry.machine.put_back(self.id, &ranges);
            guard.wake(self.queue, put_back);
        }
        Ok(())
    }

    /// Puts messages in `ranges` that it holds back undelivered; returns how many are ready then.
    ///
    /// # Errors
    /// `NoQueue` once the queue is gone.
    pub fn put_back(&self, ranges: &[SequenceRange]) -> Result<u64, EngineError> {
        let mut guard = self.lock()?;
        let entry = self.shard.entry(&mut guard, self.queue)?;
        let put_back = entry.machine.put_back(self.id, ranges);
        let ready_count = entry.machine.ready_count();
        guard.wake(self.queue, put_back);
        Ok(ready_count)
    }

    /// Leaves its messages held under its id.
    pub(crate) fn hand_over(self) {
        self.open.store(false, Ordering::Release);
        let Ok(mut guard) = self.lock() else { return };
        if let Ok(entry) = self.shard.entry(&mut guard, self.queue) {
            entry.signals.remove(&self.id);
            entry.pull_count = entry.pull_count.saturating_sub(usize::from(!self.is_consumer()));
        }
    }

    /// Settles the messages in `ranges` that this consumer holds; returns how many that were.
    ///
    /// # Errors
    /// `NoQueue` once the queue is gone; `Log` when the settlement cannot be written.
    pub fn settle(&self, ranges: &[SequenceRange], how: Settle) -> Result<u64, EngineError> {
        let mut count = 0;
        let mut settling = Settling::of(ranges);
        while !settling.is_done() {
            count += self.settle_part(&mut settling, how)?.0;
        }
        Ok(count)
    }

    /// The same for one lock hold's worth of a settlement; also returns the bytes of the bodies.
    ///
    /// # Errors
    /// As [`Subscription::settle`].
    pub fn settle_part(&self, settling: &mut Settling<'_>, how: Settle) -> Result<(u64, u64), EngineError> {
        let mut guard = self.lock()?;
        let (settled, dying) = self.settle_held(&mut guard, settling, how)?;
        self.fold_sealed(&mut guard);
        drop(guard);
        self.shard.counters().add(Metric::Settled, settled.count);
        dying.map_or(Ok(()), |run_count| self.shard.dead_letters_added(run_count))?;
        Ok((settled.count, settled.bytes))
    }

    /// The same under the lock, which the caller holds. Also returns how many runs of dead letters wait, if it added some.
    pub(crate) fn settle_held(
        &self,
        state: &mut State,
        settling: &mut Settling<'_>,
        how: Settle,
    ) -> Result<(Settled, Option<usize>), EngineError> {
        let how = match how {
            Settle::RequeueAt(due_at_ms) if due_at_ms <= state.passed_ms => Settle::Requeue,
            Settle::Reject if state.dead_letters.contains_key(&self.queue) => Settle::Aside,
            how => how,
        };
        let schedule = state.retry_schedule(self.queue, how);
        let entry = self.shard.entry(state, self.queue)?;
        let in_machine = if schedule.is_some() { aside_for_now(how) } else { how };
        let back = outcome_of(how, entry.machine.counts_failures());
        let settled = entry.machine.settle_some(self.id, settling, in_machine, SETTLED_AT_ONCE);
        let mut dying = None;
        if how.is_requeue() && how != Settle::Aside {
            let over = state.dead_letter_overdelivered(self.queue, &settled.ranges);
            dying = (over > 0).then(|| state.dying.run_count());
        }
        match how {
            Settle::Aside => dying = Some(state.note_dying(self.queue, &settled.ranges, Reason::Rejected)),
            Settle::Ack => state.log_settled(self.queue, Outcome::Ack, &settled)?,
            Settle::Reject => state.log_settled(self.queue, Outcome::Drop, &settled)?,
            Settle::Requeue | Settle::RequeueFailed | Settle::FailedAside => match schedule {
                Some(schedule) => state.return_later(self.queue, &schedule, (&settled, back))?,
                None => {
                    state.wake(self.queue, settled.count);
                    state.log_back(self.queue, back, None, &settled.ranges)?;
                }
            },
            Settle::RequeueAt(due_at_ms) => {
                let waiting = state.note_retries(self.queue, due_at_ms, &settled.ranges);
                state.wake(self.queue, settled.count - waiting);
                state.log_back(self.queue, back, Some(due_at_ms), &settled.ranges)?;
            }
        }
        Ok((settled, dying))
    }

    /// Counts its share of a credit anew after the caller settled some of its messages under the lock.
    pub(crate) fn recount(&self, state: &mut State) {
        recount(state, self.queue, self.id, self.share.as_deref());
    }

    /// Settlements fill segments too, and without publishers they free the disk.
    fn fold_sealed(&self, state: &mut State) {
        if state.has_sealed() {
            self.shard.request_fold();
        }
    }

    /// How many messages it holds.
    #[must_use]
    pub fn unacked_count(&self) -> u32 {
        let Ok(mut guard) = self.lock() else { return 0 };
        self.shard.entry(&mut guard, self.queue).map_or(0, |entry| entry.machine.unsettled_of(self.id))
    }

    /// Changes how many messages it may hold; while it is paused this counts later.
    ///
    /// # Errors
    /// `NoQueue` once the queue is gone.
    pub fn set_prefetch(&self, prefetch: u32) -> Result<(), EngineError> {
        self.prefetch.store(prefetch, Ordering::Release);
        self.apply_flow()
    }

    /// Takes nothing until it is resumed, and keeps what it holds.
    ///
    /// # Errors
    /// As [`Subscription::set_prefetch`].
    pub fn pause(&self) -> Result<(), EngineError> {
        self.is_paused.store(true, Ordering::Release);
        self.apply_flow()
    }

    /// # Errors
    /// As [`Subscription::set_prefetch`].
    pub fn resume(&self) -> Result<(), EngineError> {
        self.is_paused.store(false, Ordering::Release);
        self.apply_flow()
    }

    fn apply_flow(&self) -> Result<(), EngineError> {
        let mut guard = self.lock()?;
        let entry = self.shard.entry(&mut guard, self.queue)?;
        if self.open.load(Ordering::Acquire) {
            let is_paused = self.is_paused.load(Ordering::Acquire);
            entry.machine.set_prefetch(self.id, if is_paused { 0 } else { self.prefetch.load(Ordering::Acquire) });
        }
        guard.note_if_long(self.queue);
        // With credit it takes; without credit it passes on a wake-up that it cannot use.
        guard.wakes.add(&self.signal);
        Ok(())
    }

    /// Requeues its messages and leaves the queue, once; it takes nothing afterwards. Returns whether an auto-delete
    /// queue lost its last consumer.
    pub fn close(&self) -> Option<Unused> {
        if !self.open.swap(false, Ordering::AcqRel) {
            return None;
        }
        if self.is_consumer() {
            self.shard.counters().subtract(Metric::Consumers, 1);
        }
        self.return_most();
        let unused = self.end();
        self.share.iter().for_each(|share| share.leave());
        unused
    }

    fn end(&self) -> Option<Unused> {
        let mut guard = self.lock().ok()?;
        let entry = self.shard.entry(&mut guard, self.queue).ok()?;
        let returned = entry.machine.unsubscribe(self.id);
        entry.signals.remove(&self.id);
        entry.tell_active();
        entry.pull_count = entry.pull_count.saturating_sub(usize::from(!self.is_consumer()));
        let unused = if self.is_consumer() { unused(entry, self.queue) } else { None };
        if guard.dead_letter_overdelivered(self.queue, &returned) > 0 {
            self.shard.request_moves();
        }
        let ready_count = self.shard.entry(&mut guard, self.queue).ok()?.machine.ready_count();
        guard.note_use(self.queue);
        // Messages that it held, sent or not, and the one that it may have been woken for and did not take.
        guard.wake(self.queue, ready_count);
        if guard.check(self.shard.name()).is_ok() {
            // They are unacked on the disk anyway. If the record finds no space, as on a full disk, a start does not
            // count the delivery. A failed write stops the shard by itself.
            let _ = guard.log_returned(self.queue, &returned);
        }
        unused
    }

    /// Requeues its messages part by part, except for the last part unless they wait. It takes nothing meanwhile.
    fn return_most(&self) {
        let mut settling = Settling::of(&[SequenceRange::ALL]);
        while !settling.is_done() {
            let Ok(mut guard) = self.lock() else { return };
            let is_well = guard.check(self.shard.name()).is_ok();
            let Ok(entry) = self.shard.entry(&mut guard, self.queue) else { return };
            entry.machine.set_prefetch(self.id, 0);
            let rest_max =
                if guard.retry_schedule(self.queue, Settle::RequeueFailed).is_some() { 0 } else { SETTLED_AT_ONCE };
            let Ok(entry) = self.shard.entry(&mut guard, self.queue) else { return };
            if !is_well || entry.machine.unsettled_of(self.id) as usize <= rest_max {
                return;
            }
            if guard.return_lost(self.queue, self.id, (&mut settling, SETTLED_AT_ONCE)) > 0 {
                self.shard.request_moves();
            }
            drop(guard);
            // A waiter for the lock gets it now.
            std::thread::yield_now();
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether a directory caused an error, and was rebuilt.
pub(crate) fn rebuild(state: &mut State, error: &LogError) -> Result<bool, EngineError> {
    let LogError::Corrupt { path, .. } = error else { return Ok(false) };
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(state.log.rebuild_directory(&file)?)
}

/// The queue, when it is deleted now that a consumer has left.
fn unused(entry: &QueueEntry, queue: QueueId) -> Option<Unused> {
    let is_unused = entry.auto_delete && entry.consumer_count() == 0;
    is_unused.then(|| Unused { queue: entry.name.clone(), id: queue })
}

fn ranges_with(sizes: &[(Sequence, u32)]) -> Option<Vec<SequenceRange>> {
    Some(ranges_of(sizes.iter().map(|&(sequence, _)| sequence))).filter(|ranges| !ranges.is_empty())
}

fn ranges_of(sequences: impl Iterator<Item = Sequence>) -> Vec<SequenceRange> {
    let mut ranges: Vec<SequenceRange> = Vec::new();
    for sequence in sequences {
        match ranges.last_mut() {
            Some(last) if last.last.next() == sequence => last.last = sequence,
            _ => ranges.push(SequenceRange { first: sequence, last: sequence }),
        }
    }
    ranges
}
