//! Acknowledging and releasing leases, some messages at a time, so that other users of the virtual host do not wait for
//! a whole lease.
//!
//! Invariants:
//! * messages are settled in one envelope with the removal of their marks, or before it, so that a process that dies between
//!   the two leaves a lease of messages that are not delivered again;
//! * a lease that is being acknowledged exists until all of it is settled, so that the owner gets its confirmation only
//!   then;
//! * a released lease is removed, in memory and in the log, before the first of its messages is delivered to others.

use std::collections::VecDeque;

use penstock_log::{MarkView, Operation, Outcome, Settlement, marks};
use penstock_queue::{QueueId, SequenceRange, Settle, Settled, Settling, SubscriptionId};

use crate::counters::Metric;
use crate::error::EngineError;
use crate::lease::{check_owner, key_of};
use crate::priorities::by_lane;
use crate::shard::Shard;
use crate::state::State;
use crate::subscription::SETTLED_AT_ONCE;

const ALL: &[SequenceRange] = &[SequenceRange::ALL];

impl Shard {
    /// Settles every message of an owner's leases up to a number and removes them; returns how many messages. Leases
    /// that are acknowledged already are skipped. After an error the first of the leases may be acknowledged.
    ///
    /// # Errors
    /// `NoQueue`; `LeaseNumber` when that number was never assigned; `Log` when it cannot be written.
    pub fn ack_leases(&self, queue: QueueId, owner: &str, up_to: u64) -> Result<u64, EngineError> {
        check_owner(owner)?;
        let mut count = 0;
        loop {
            let mut guard = self.lock()?;
            guard.check(self.name())?;
            let Some(settled_count) = self.ack_part(&mut guard, queue, owner, up_to)? else { return Ok(count) };
            if guard.has_sealed() {
                self.request_fold();
            }
            drop(guard);
            count += settled_count;
            self.counters().add(Metric::Settled, settled_count);
        }
    }

    /// Settles one lock hold's worth, and removes the leases that are complete; `None` once all are.
    fn ack_part(&self, state: &mut State, queue: QueueId, owner: &str, up_to: u64) -> Result<Option<u64>, EngineError> {
        let entry = self.entry(state, queue)?;
        let Some(found) = entry.leases.acking(&entry.name, owner, up_to)? else { return Ok(None) };
        let (mut parts, mut ended): (Vec<Settled>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut left = SETTLED_AT_ONCE;
        while let Some((&number, lease)) = found.leases.range(..=up_to).next().filter(|_| left > 0) {
            let (holder, mut settling) = (lease.holder, Settling::of(ALL));
            let settled = entry.machine.settle_some(holder, &mut settling, Settle::Ack, left);
            left = left.saturating_sub(usize::try_from(settled.count).unwrap_or(usize::MAX).max(1));
            parts.push(settled);
            if settling.is_done() {
                entry.machine.unsubscribe(holder);
                found.leases.remove(&number);
                ended.push(number);
            }
        }
        found.acked = if found.leases.range(..=up_to).next().is_none() {
            up_to
        } else {
            ended.last().copied().unwrap_or(found.acked)
        };
        let acked = (!ended.is_empty() || found.acked == up_to).then_some(found.acked);
        // Each part is of one lane.
        let settled = parts.iter().flat_map(|part| by_lane(queue, &part.ranges).map(move |lane| (part, lane)));
        let settled: Vec<_> = settled.collect();
        let mut operations: Vec<Operation<'_>> = settled
            .iter()
            .map(|(part, (lane, ranges))| settle(*lane, Outcome::Ack, (part.count, part.bytes), ranges))
            .collect();
        let mark_owner = marks::owner_of_leases(queue);
        let (acked_key, acked) = (key_of(owner, 0), acked.map(u64::to_le_bytes));
        operations.extend(acked.as_ref().map(|acked| mark(&mark_owner, &acked_key, acked)));
        let ended: Vec<Vec<u8>> = ended.into_iter().map(|number| key_of(owner, number)).collect();
        operations.extend(ended.iter().map(|key| mark(&mark_owner, key, &[])));
        state.log.append_together(&operations)?;
        state.write()?;
        Ok(Some(parts.iter().map(|settled| settled.count).sum()))
    }

    /// Returns the messages of an owner's leases from a number on to their places, with one more delivery counted;
    /// returns how many. From 0 on the owner is removed too: its next lease has the number 1 again.
    ///
    /// # Errors
    /// `NoQueue`; `LeaseOwner`; `Log` when it cannot be written: the messages are back, but their counts may not be
    /// raised.
    pub fn release_leases(&self, queue: QueueId, owner: &str, from: u64) -> Result<u64, EngineError> {
        check_owner(owner)?;
        let (mut holders, mut count) = (VecDeque::new(), 0);
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        let forgotten = self.forget_leases(&mut guard, (queue, owner, from), &mut holders)?;
        // The first messages come back in one envelope with the end of their leases.
        let returned = self.return_part(&mut guard, queue, &mut holders)?;
        count += returned.iter().map(SequenceRange::count).sum::<u64>();
        let mut written = guard.log_released(queue, &forgotten, &returned);
        drop(guard);
        while !holders.is_empty() {
            let mut guard = self.lock()?;
            let returned = self.return_part(&mut guard, queue, &mut holders)?;
            count += returned.iter().map(SequenceRange::count).sum::<u64>();
            written = written.and(guard.log_returned(queue, &returned));
        }
        written.map(|()| count)
    }

    /// Removes an owner's leases from a number on; `holders` are the holders of their messages. Returns the keys of their
    /// marks.
    fn forget_leases(
        &self,
        state: &mut State,
        (queue, owner, from): (QueueId, &str, u64),
        holders: &mut VecDeque<SubscriptionId>,
    ) -> Result<Vec<Vec<u8>>, EngineError> {
        let entry = self.entry(state, queue)?;
        let Some(found) = entry.leases.owners.get_mut(owner) else { return Ok(Vec::new()) };
        let ended = found.leases.split_off(&from);
        let is_over = from == 0 || found.acked == 0 && found.leases.is_empty();
        if is_over {
            entry.leases.owners.remove(owner);
        }
        holders.extend(ended.values().map(|lease| lease.holder));
        Ok(ended.keys().copied().chain(is_over.then_some(0)).map(|number| key_of(owner, number)).collect())
    }

    /// Returns one lock hold's worth of messages, and removes finished ones from `holders`.
    fn return_part(
        &self,
        state: &mut State,
        queue: QueueId,
        holders: &mut VecDeque<SubscriptionId>,
    ) -> Result<Vec<SequenceRange>, EngineError> {
        let entry = self.entry(state, queue)?;
        let mut returned = Vec::new();
        let mut left = SETTLED_AT_ONCE;
        while let Some(&holder) = holders.front().filter(|_| left > 0) {
            let held_count = entry.machine.unsettled_of(holder) as usize;
            if held_count <= left {
                returned.extend(entry.machine.unsubscribe(holder));
                holders.pop_front();
            } else {
                let part = entry.machine.settle_some(holder, &mut Settling::of(ALL), Settle::RequeueFailed, left);
                returned.extend(part.ranges);
            }
            left = left.saturating_sub(held_count.max(1));
        }
        state.wake(queue, returned.iter().map(SequenceRange::count).sum());
        Ok(returned)
    }
}

impl State {
    /// Logs that leases are removed, by the keys of their marks, and that messages of theirs came back.
    fn log_released(
        &mut self,
        queue: QueueId,
        keys: &[Vec<u8>],
        returned: &[SequenceRange],
    ) -> Result<(), EngineError> {
        let mark_owner = marks::owner_of_leases(queue);
        let mut operations: Vec<Operation<'_>> = keys.iter().map(|key| mark(&mark_owner, key, &[])).collect();
        let returned: Vec<_> = by_lane(queue, returned).collect();
        for (lane, ranges) in &returned {
            let count = ranges.iter().map(SequenceRange::count).sum();
            operations.push(settle(*lane, Outcome::Requeue, (count, 0), ranges));
        }
        self.log.append_together(&operations)?;
        self.write()
    }
}

fn settle(queue: QueueId, outcome: Outcome, (count, bytes): (u64, u64), ranges: &[SequenceRange]) -> Operation<'_> {
    Operation::Settle { settlement: Settlement { queue, outcome, count, bytes, due_at_ms: None }, ranges }
}

fn mark<'a>(owner: &'a [u8], key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    Operation::Mark(MarkView { owner, key, value })
}
