//! The queue machine: which messages are ready, which subscription holds which, and whose turn it is.
//!
//! A ready message costs no memory; only messages with a consumer, or returned ones, are kept one by one. The machine
//! knows neither bodies nor the log nor the time: sizes are reported to it once the bytes were read. The cost of a call
//! depends on the messages it touches, however many subscriptions there are.

mod expiring;
mod laned;
mod leased;
mod limited;
pub(crate) mod settling;

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::ack_set::AckSet;
use crate::backlog::Backlog;
use crate::ids::{Sequence, SequenceRange};
use crate::lanes::{Lanes, TakenInTurns};
use crate::settled::{Settle, Settled, extend};
use crate::slots::Slots;
use crate::subscription::{Rank, Sizing, Subscription, SubscriptionId, SubscriptionSettings};
use crate::turns::{CONSUMER_PRIORITIES_MAX, Turns};

/// Why a subscription was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QueueError {
    #[error("the queue is consumed exclusively by another subscription; wait until that one ends")]
    HeldExclusively,
    #[error("the queue has consumers ({count}) and cannot be consumed exclusively; cancel them first")]
    AlreadyConsumed { count: usize },
    #[error(
        "the consumers of the queue have {CONSUMER_PRIORITIES_MAX} different priorities already; use one of theirs"
    )]
    TooManyPriorities,
}

/// A message taken by a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub sequence: Sequence,
    /// How often it was delivered and returned.
    pub delivery_count: u32,
    /// It was delivered before, or may have been before the last start.
    pub redelivered: bool,
}

/// One queue.
///
/// Invariants:
/// * in each lane, every sequence below the cursor is settled, held by exactly one subscription, or returned; every sequence
///   from the cursor up to `next` is settled or ready;
/// * the counts and bytes of unacked messages are those that the subscriptions hold;
/// * a consumer has turns exactly when it waits and has credit: a busy or blocked one is not woken;
/// * with nothing ready or delayed and no size outstanding, no ready bytes are left.
#[derive(Debug)]
pub struct Queue {
    backlog: Lanes,
    unacked_count: u64,
    unacked_bytes: u64,
    /// Messages taken, and perhaps settled since, with their size outstanding.
    unsized_count: u64,
    slots: Slots,
    turns: Turns,
    /// Subscriptions that are no consumers any more.
    retired_count: usize,
    exclusive: bool,
    counts_failures: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Queue::new()
    }
}

impl Queue {
    #[must_use]
    pub fn new() -> Self {
        Queue::recovered(Sequence::FIRST, AckSet::default(), 0, 0, BTreeMap::new())
    }

    /// A queue after a start: unacked messages are ready again, whichever consumer held them.
    ///
    /// `count` and `bytes` are those of the unsettled messages in the log's fold; where the count contradicts the ack
    /// set, the ack set is right.
    #[must_use]
    pub fn recovered(
        next: Sequence,
        settled: AckSet,
        count: u64,
        bytes: u64,
        delivery_counts: BTreeMap<Sequence, u32>,
    ) -> Self {
        let mut backlog = Backlog::new(next, settled, bytes, delivery_counts);
        debug_assert_eq!(backlog.count(), count, "the fold counts what the ack set leaves unsettled");
        backlog.forget_lost_bytes();
        Queue {
            backlog: Lanes::new(backlog),
            unacked_count: 0,
            unacked_bytes: 0,
            unsized_count: 0,
            slots: Slots::default(),
            turns: Turns::default(),
            retired_count: 0,
            exclusive: false,
            counts_failures: false,
        }
    }

    /// Counts a delivery when a consumer failed on a message, or else whenever one comes back.
    pub fn set_counts_failures(&mut self, counts_failures: bool) {
        self.counts_failures = counts_failures;
    }

    #[must_use]
    pub fn counts_failures(&self) -> bool {
        self.counts_failures
    }

    /// Makes one more message ready and returns its sequence.
    #[inline]
    pub fn publish(&mut self, body_bytes: u64) -> Sequence {
        self.backlog.publish(body_bytes)
    }

    /// # Errors
    /// When this subscription, or an existing one, is exclusive.
    pub fn subscribe(&mut self, settings: SubscriptionSettings) -> Result<SubscriptionId, QueueError> {
        self.subscribe_as(settings, Rank::default())
    }

    /// The same for a subscription of some rank.
    ///
    /// # Errors
    /// As [`Queue::subscribe`], and when the queue's consumers have too many different priorities.
    pub fn subscribe_as(&mut self, settings: SubscriptionSettings, rank: Rank) -> Result<SubscriptionId, QueueError> {
        let count = self.slots.count() - self.retired_count;
        if self.exclusive {
            return Err(QueueError::HeldExclusively);
        }
        if settings.exclusive && count > 0 {
            return Err(QueueError::AlreadyConsumed { count });
        }
        if !self.turns.has_room_for(rank) {
            return Err(QueueError::TooManyPriorities);
        }
        self.exclusive = settings.exclusive;
        let id = self.slots.insert(Subscription::new(settings, rank));
        self.turns.enter(id, rank);
        self.update_turn(id);
        Ok(id)
    }

    /// Ends a subscription. Its messages return to their places, with one more delivery counted when they were sent;
    /// returns the runs of those for a requeue record.
    pub fn unsubscribe(&mut self, id: SubscriptionId) -> Vec<SequenceRange> {
        let Some(subscription) = self.slots.remove(id) else { return Vec::new() };
        self.turns.leave(id, subscription.rank, subscription.is_willing);
        self.retired_count -= usize::from(subscription.is_retired);
        self.exclusive &= !subscription.settings.exclusive;
        self.unsized_count -= subscription.unsized_count() as u64;
        self.unacked_count -= subscription.held_count() as u64;
        let mut ranges = Vec::new();
        for &message in subscription.held() {
            self.unacked_bytes -= u64::from(message.bytes().unwrap_or(0));
            if message.is_sent() {
                extend(&mut ranges, SequenceRange { first: message.sequence, last: message.sequence });
            }
            self.backlog.give_back(message);
        }
        self.forget_lost_bytes();
        ranges
    }

    /// Makes a subscription one that takes nothing more and keeps what it holds until it ends: others may be exclusive beside it,
    /// and another one becomes active in its place.
    pub fn retire(&mut self, id: SubscriptionId) {
        let Some(subscription) = self.slots.get_mut(id) else { return };
        self.retired_count += usize::from(!std::mem::replace(&mut subscription.is_retired, true));
        self.exclusive &= !std::mem::replace(&mut subscription.settings.exclusive, false);
        if subscription.rank != Rank::Pull {
            self.turns.retire(id);
        }
        self.set_prefetch(id, 0);
    }

    /// Changes how many messages a subscription may hold; it keeps messages beyond that.
    pub fn set_prefetch(&mut self, id: SubscriptionId, prefetch: u32) {
        if let Some(subscription) = self.slots.get_mut(id) {
            subscription.settings.prefetch = prefetch;
            self.update_turn(id);
        }
    }

    /// Takes ready messages for a subscription, those of the highest priority first, one of each key in turn, in a lane the
    /// lowest first, and appends them to `out`: no more than its credit, `count_max` and its fair share, which is the ready messages divided by the
    /// consumers with credit of its priority, but at least one, and none while others come first. A subscription that takes no
    /// longer waits, until it says so.
    pub fn take(&mut self, id: SubscriptionId, count_max: u32, out: &mut Vec<Taken>) {
        self.hold_up(id, false);
        let Some(subscription) = self.slots.get_mut(id) else { return };
        subscription.waits = false;
        let ready_count = self.backlog.count();
        let share = self.turns.share(id, subscription.rank, ready_count);
        let wanted = subscription.credit().min(u64::from(count_max)).min(share).min(ready_count);
        self.unacked_count += wanted;
        let (unacked_bytes, unsized_count) = (&mut self.unacked_bytes, &mut self.unsized_count);
        let before = out.len();
        let turns = self.backlog.take(wanted, |backlog, wanted| {
            let (returned_bytes, fresh_count, count) = take_from(backlog, wanted, subscription, out);
            *unacked_bytes += returned_bytes;
            *unsized_count += fresh_count;
            count
        });
        if !turns.is_empty() {
            in_turns(out, before, &turns);
        }
        subscription.is_busy = wanted > 0;
        self.update_turn(id);
        self.forget_lost_bytes();
    }

    /// Reports the body sizes of taken messages: their bytes move from the ready to the unacked ones. Each is
    /// reported once, best in the order of taking; a message that came back with its size known needs none.
    pub fn sized(&mut self, id: SubscriptionId, sizes: &[(Sequence, u32)]) {
        let Some(subscription) = self.slots.get_mut(id) else { return };
        let mut guess = usize::MAX;
        for &(sequence, bytes) in sizes {
            let sizing = subscription.size(sequence, bytes, &mut guess);
            if sizing == Sizing::Nothing {
                continue;
            }
            self.unsized_count -= 1;
            self.backlog.sized(sequence, bytes);
            if sizing == Sizing::Held {
                self.unacked_bytes += u64::from(bytes);
            }
        }
        self.forget_lost_bytes();
    }

    /// Notes that the messages of `ranges` that a subscription holds were sent: each counts one more delivery when it
    /// comes back.
    pub fn sent(&mut self, id: SubscriptionId, ranges: &[SequenceRange]) {
        if let Some(subscription) = self.slots.get_mut(id) {
            ranges.iter().for_each(|&range| subscription.sent(range));
        }
    }

    /// Settles the messages of `ranges` that a subscription holds; others are skipped.
    pub fn settle(&mut self, id: SubscriptionId, ranges: &[SequenceRange], how: Settle) -> Settled {
        let mut settled = Settled::default();
        let is_uncounted = self.counts_failures && how.is_return();
        let Some(subscription) = self.slots.get_mut(id) else { return settled };
        for &range in ranges {
            let places = subscription.places(range);
            if how.is_requeue() {
                for message in subscription.release(places) {
                    settled.add_returned(message, how);
                    self.unsized_count -= u64::from(message.bytes().is_none());
                    match how {
                        Settle::RequeueAt(_) if message.is_sent() && is_uncounted => {
                            self.backlog.put_aside(message.uncounted());
                        }
                        Settle::RequeueAt(_) | Settle::FailedAside if message.is_sent() => {
                            self.backlog.put_aside(message.returned());
                        }
                        Settle::Aside => self.backlog.put_aside(message.untouched()),
                        _ if is_uncounted => self.backlog.put_back(message.uncounted()),
                        _ => self.backlog.give_back(message),
                    }
                }
                continue;
            }
            let unsized_count = subscription.add_up(places.clone(), &mut settled);
            if unsized_count > 0 {
                subscription.await_sizes(places.clone());
            }
            drop(subscription.release(places));
        }
        if !how.is_requeue() {
            self.backlog.settle(&settled.ranges);
        }
        self.forget_settled(id, &settled);
        settled
    }

    /// Settles a taken message that cannot be delivered because its bytes are corrupt. When its size was not reported
    /// it is unknown for good, and its bytes count as ready until the queue is empty.
    pub fn drop_message(&mut self, id: SubscriptionId, sequence: Sequence) -> Settled {
        let mut settled = Settled::default();
        let Some(subscription) = self.slots.get_mut(id) else { return settled };
        let places = subscription.places(SequenceRange { first: sequence, last: sequence });
        self.unsized_count -= subscription.add_up(places.clone(), &mut settled);
        drop(subscription.release(places));
        self.backlog.settle(&settled.ranges);
        self.forget_settled(id, &settled);
        settled
    }

    /// Settles every ready message of a queue with one lane, or the lowest of them in so many runs; unacked ones stay.
    pub fn purge(&mut self, runs_max: usize) -> Settled {
        self.purge_lane(0, runs_max)
    }

    /// Settles the messages of a range that were never taken, whose bodies have `bytes` bytes in all: retention of a
    /// stream.
    pub fn settle_fresh(&mut self, range: SequenceRange, bytes: u64) -> Settled {
        let settled = self.backlog.settle_fresh(range, bytes);
        self.forget_lost_bytes();
        settled
    }

    /// Notes whether a consumer has credit that it cannot use, until it takes again: others need not wait for it then.
    pub fn hold_up(&mut self, id: SubscriptionId, is_held_up: bool) {
        if let Some(subscription) = self.slots.get_mut(id)
            && std::mem::replace(&mut subscription.is_held_up, is_held_up) != is_held_up
        {
            self.update_turn(id);
        }
    }

    /// Lets one consumer at a time be active, or all of them.
    pub fn set_single_active(&mut self, is_single: bool) {
        if is_single != self.turns.is_single() {
            let consumers = self.slots.iter().filter(|(_, subscription)| !subscription.is_retired);
            self.turns.set_single(is_single, consumers.map(|(id, subscription)| (id, subscription.rank)));
        }
    }

    /// The active consumer, of a queue with a single active one.
    #[must_use]
    pub fn active(&self) -> Option<SubscriptionId> {
        self.turns.active()
    }

    /// Whether a consumer stands by while another one is active.
    #[must_use]
    pub fn stands_by(&self, id: SubscriptionId) -> bool {
        self.turns.is_single() && self.turns.active() != Some(id)
    }

    /// Makes a subscription that found nothing wait for its turn, after all that wait already.
    pub fn wait(&mut self, id: SubscriptionId) {
        if let Some(subscription) = self.slots.get_mut(id) {
            subscription.waits = true;
            self.update_turn(id);
        }
    }

    /// The subscription to wake: of those that wait, have credit and may take, the one that waits longest, while anything is
    /// ready. It no longer waits: when it takes less than there is, another one has to be woken.
    pub fn next_to_wake(&mut self) -> Option<SubscriptionId> {
        if self.backlog.count() == 0 {
            return None;
        }
        let id = self.slots.id_at(self.turns.next()?)?;
        if let Some(subscription) = self.slots.get_mut(id) {
            subscription.waits = false;
            subscription.is_busy = true;
        }
        Some(id)
    }

    /// How many subscriptions wait and can take something now: at most one for each ready message.
    #[must_use]
    pub fn wakes(&self) -> usize {
        let waiting_count = self.turns.waiting_count();
        usize::try_from(self.backlog.count()).map_or(waiting_count, |ready| ready.min(waiting_count))
    }

    /// The sequence of the next published message in the first lane.
    #[must_use]
    pub fn next(&self) -> Sequence {
        self.backlog.first().next()
    }

    /// The first sequence that was never taken there.
    #[must_use]
    pub fn first_untaken(&self) -> Sequence {
        self.backlog.first().cursor()
    }

    /// Messages below it may have been with a consumer before the start.
    #[must_use]
    pub fn perhaps_delivered_below(&self) -> Sequence {
        self.backlog.first().perhaps_delivered_below()
    }

    /// After a start: existing messages with a lower sequence in that lane may have been with a consumer before, and are
    /// flagged as redelivered.
    pub fn set_perhaps_delivered_below(&mut self, below: Sequence) {
        self.backlog.set_perhaps_delivered_below(below);
    }

    /// The settled sequences of the first lane.
    #[must_use]
    pub fn settled(&self) -> &AckSet {
        self.backlog.first().settled()
    }

    #[must_use]
    pub fn ready_count(&self) -> u64 {
        self.backlog.count()
    }

    /// The bytes of ready and delayed messages, and of taken ones with their size outstanding.
    #[must_use]
    pub fn ready_bytes(&self) -> u64 {
        self.backlog.bytes()
    }

    #[must_use]
    pub fn unacked_count(&self) -> u64 {
        self.unacked_count
    }

    #[must_use]
    pub fn unacked_bytes(&self) -> u64 {
        self.unacked_bytes
    }

    #[must_use]
    pub fn subscription_count(&self) -> usize {
        self.slots.count()
    }

    /// How many messages a subscription holds; 0 when it has ended.
    #[must_use]
    pub fn unsettled_of(&self, id: SubscriptionId) -> u32 {
        self.slots.get(id).map_or(0, |subscription| u32::try_from(subscription.held_count()).unwrap_or(u32::MAX))
    }

    /// How many messages a subscription may take before it has to settle some; 0 when it has ended.
    #[must_use]
    pub fn credit(&self, id: SubscriptionId) -> u64 {
        self.slots.get(id).map_or(0, Subscription::credit)
    }

    fn forget_settled(&mut self, id: SubscriptionId, settled: &Settled) {
        self.unacked_count -= settled.count;
        self.unacked_bytes -= settled.bytes;
        self.update_turn(id);
        self.forget_lost_bytes();
    }

    fn update_turn(&mut self, id: SubscriptionId) {
        let Some(subscription) = self.slots.get_mut(id) else { return };
        let is_willing = subscription.credit() > 0 && !subscription.is_held_up;
        let was_willing = std::mem::replace(&mut subscription.is_willing, is_willing);
        let waits = is_willing && subscription.waits;
        self.turns.update(id, subscription.rank, (was_willing, is_willing), waits);
    }

    fn forget_lost_bytes(&mut self) {
        if self.unsized_count == 0 {
            self.backlog.forget_lost_bytes();
        }
    }

    /// For tests: it checks everything.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn check_invariants(&self) {
        let (mut held, mut bytes, mut unsized_count, mut count) = (BTreeSet::new(), 0, 0, 0);
        let (mut willing, mut retired_count) = (Vec::new(), 0);
        for (id, subscription) in self.slots.iter() {
            retired_count += usize::from(subscription.is_retired);
            let is_willing = subscription.credit() > 0 && !subscription.is_held_up;
            assert_eq!(subscription.is_willing, is_willing, "who has credit is willing");
            if is_willing {
                willing.push((id, subscription.rank, subscription.waits));
            }
            assert!(subscription.held().is_sorted_by_key(|message| message.sequence), "what is held ascends");
            count += subscription.held_count();
            held.extend(subscription.held().map(|message| message.sequence));
            bytes += subscription.held().map(|message| u64::from(message.bytes().unwrap_or(0))).sum::<u64>();
            unsized_count += subscription.unsized_count() as u64;
        }
        assert_eq!(held.len(), count, "a message is held twice");
        assert_eq!(self.unacked_count, count as u64, "the count of unacked messages is wrong");
        assert_eq!(self.unacked_bytes, bytes, "the bytes of unacked messages are wrong");
        assert_eq!(self.unsized_count, unsized_count, "the count of sizes to be told is wrong");
        assert_eq!(self.retired_count, retired_count, "the count of those that retired is wrong");
        self.turns.check_invariants(&willing);
        self.backlog.check_invariants(&held);
        if unsized_count == 0 && self.free_count() == 0 {
            assert_eq!(self.ready_bytes(), 0, "bytes are left of nothing");
        }
    }
}

/// Orders messages that were taken lane by lane, from an index on, so that each lane has its turn.
fn in_turns(out: &mut Vec<Taken>, from: usize, turns: &TakenInTurns) {
    let mut rest = out.split_off(from).into_iter();
    for shares in turns {
        let take = |&share: &u64| rest.by_ref().take(usize::try_from(share).unwrap_or(usize::MAX)).collect::<Vec<_>>();
        let lanes: Vec<Vec<Taken>> = shares.iter().map(take).collect();
        let rounds = lanes.iter().map(Vec::len).max().unwrap_or(0);
        for round in 0..rounds {
            out.extend(lanes.iter().filter_map(|lane| lane.get(round)));
        }
    }
    out.extend(rest);
}

/// Takes messages of one lane; returns the bytes of those that had come back with a known size, the number of those
/// without, and how many it took.
fn take_from(
    backlog: &mut Backlog,
    wanted: u64,
    subscription: &mut Subscription,
    out: &mut Vec<Taken>,
) -> (u64, u64, u64) {
    let below = backlog.perhaps_delivered_below();
    let taken = |sequence: Sequence, delivery_count: u32, is_redelivered: bool| Taken {
        sequence,
        delivery_count,
        redelivered: is_redelivered || delivery_count > 0 || sequence < below,
    };
    let (mut left, mut bytes, mut unsized_count) = (wanted, 0, 0);
    while left > 0 {
        let Some(message) = backlog.take_returned() else { break };
        match message.bytes() {
            Some(known) => bytes += u64::from(known),
            None => unsized_count += 1,
        }
        out.push(taken(message.sequence, message.delivery_count(), message.is_redelivered()));
        subscription.hold(message);
        left -= 1;
    }
    while let Some((run, delivery_count)) = backlog.take_fresh(left) {
        left -= run.end - run.start;
        unsized_count += run.end - run.start;
        out.extend(run.clone().map(|number| taken(Sequence(number), delivery_count, false)));
        subscription.hold_run(run, delivery_count);
    }
    (bytes, unsized_count, wanted - left)
}
