//! How a consumer takes messages: its share of the ready ones, the places of their records, and what to do about records that
//! cannot be read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_log::{LogError, Outcome, Target};
use penstock_queue::{QueueId, Sequence, SequenceRange, Settle, Settled, Taken};
use penstock_wire::amqp::deaths::Reason;

use super::{Filled, Picked, Subscription, ranges_of, rebuild};
use crate::error::EngineError;
use crate::priorities::target_of;
use crate::state::State;

impl Subscription {
    /// Takes this consumer's share, at most `count_max` messages. When there is none, its signal fires once there is:
    /// it has to listen then, and take again.
    ///
    /// # Errors
    /// `NoQueue` once the queue is gone; `Log` when a message's record cannot be found.
    pub fn fill(&self, count_max: u32, filled: &mut Vec<Filled>) -> Result<(), EngineError> {
        let mut guard = self.lock()?;
        let taken = self.take(&mut guard, count_max, &mut Vec::new(), filled);
        let taken = taken.and_then(|()| guard.mark_deliveries(self.queue));
        // Without shared credit it waits for that, and messages wake another one.
        if filled.is_empty()
            && let Ok(entry) = self.shard.entry(&mut guard, self.queue)
        {
            if self.share.as_ref().is_some_and(|share| share.waits()) {
                entry.machine.hold_up(self.id, true);
            } else {
                entry.machine.wait(self.id);
            }
        }
        // It may have been woken for the messages that it left: wake another one.
        guard.wake(self.queue, 1);
        let passed = guard.log.take_passed();
        // Releasing pages takes time.
        drop(guard);
        drop(passed);
        taken
    }

    /// Takes for a pull: at most `count_max` messages, whatever the prefetch. Returns how many stay ready. After a
    /// failure it holds no more than before: the caller does not learn which were taken.
    ///
    /// # Errors
    /// As [`Subscription::fill`].
    pub fn take_now(&self, count_max: u32, filled: &mut Vec<Filled>) -> Result<u64, EngineError> {
        self.pull(count_max, State::mark_deliveries, filled)
    }

    /// The same for messages that are not delivered yet.
    pub(crate) fn take_aside(&self, count_max: u32, filled: &mut Vec<Filled>) -> Result<u64, EngineError> {
        self.pull(count_max, |_, _| Ok(()), filled)
    }

    fn pull(
        &self,
        count_max: u32,
        mark: impl FnOnce(&mut State, QueueId) -> Result<(), EngineError>,
        filled: &mut Vec<Filled>,
    ) -> Result<u64, EngineError> {
        let mut guard = self.lock()?;
        guard.note_use(self.queue);
        let mut taken = Vec::new();
        let pulled = self.take_parts(&mut guard, count_max, &mut taken, filled);
        let pulled = pulled.and_then(|()| mark(&mut guard, self.queue));
        let entry = self.shard.entry(&mut guard, self.queue)?;
        entry.machine.set_prefetch(self.id, 0);
        if pulled.is_err() {
            filled.clear();
            let ranges = ranges_of(taken.iter().map(|taken| taken.sequence));
            let put_back = entry.machine.put_back(self.id, &ranges);
            guard.wake(self.queue, put_back);
        }
        let ready_count = self.shard.entry(&mut guard, self.queue)?.machine.ready_count();
        let passed = guard.log.take_passed();
        drop(guard);
        drop(passed);
        pulled.map(|()| ready_count)
    }

    /// The messages that were sent to it and that it holds.
    ///
    /// # Errors
    /// `NoQueue` once the queue is gone.
    pub fn delivered(&self) -> Result<Vec<SequenceRange>, EngineError> {
        let mut guard = self.lock()?;
        Ok(self.shard.entry(&mut guard, self.queue)?.machine.sent_to(self.id))
    }

    /// Wakes another waiting consumer, when this one was woken and takes nothing now. It does not wait itself: it has
    /// to take later.
    pub fn pass_on(&self) {
        if let Ok(mut guard) = self.lock() {
            guard.wake(self.queue, 1);
        }
    }

    /// Takes so many messages in parts, each at most this subscription's share.
    fn take_parts(
        &self,
        state: &mut State,
        count_max: u32,
        taken: &mut Vec<Taken>,
        filled: &mut Vec<Filled>,
    ) -> Result<(), EngineError> {
        let mut left = count_max;
        while left > 0 {
            let entry = self.shard.entry(state, self.queue)?;
            let before = entry.machine.unsettled_of(self.id);
            entry.machine.set_prefetch(self.id, before.saturating_add(left));
            self.take(state, left, taken, filled)?;
            let entry = self.shard.entry(state, self.queue)?;
            let count = entry.machine.unsettled_of(self.id).saturating_sub(before);
            if count == 0 {
                break;
            }
            left = left.saturating_sub(count);
        }
        Ok(())
    }

    /// Takes until something was found, or the queue is empty; `taken` gets all of it.
    fn take(
        &self,
        state: &mut State,
        count_max: u32,
        taken: &mut Vec<Taken>,
        filled: &mut Vec<Filled>,
    ) -> Result<(), EngineError> {
        while !state.is_paused() {
            let before = taken.len();
            self.passed_ms.store(state.passed_ms, Ordering::Relaxed);
            let entry = self.shard.entry(state, self.queue)?;
            self.max_age_ms.store(entry.max_age_ms.unwrap_or(u64::MAX), Ordering::Relaxed);
            let machine = &mut entry.machine;
            let granted = self.share.as_ref().map_or(count_max, |share| {
                let ready_count = u32::try_from(machine.ready_count()).unwrap_or(u32::MAX);
                let credit = u32::try_from(machine.credit(self.id)).unwrap_or(u32::MAX);
                share.reserve(count_max.min(credit).min(ready_count))
            });
            machine.take(self.id, granted, taken);
            if !state.delivery_limits.is_empty() && self.leave_overdelivered(state, before, taken) {
                continue;
            }
            let fresh = taken.get(before..).unwrap_or_default();
            if fresh.is_empty() || self.find(state, fresh, filled)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Has those of the taken messages leave the queue that were delivered too often: a limit may be younger than its messages.
    /// Returns whether these are all of them.
    fn leave_overdelivered(&self, state: &mut State, from: usize, taken: &mut Vec<Taken>) -> bool {
        let State { delivery_limits, queues, .. } = state;
        let limit = delivery_limits.get(&self.queue).copied();
        self.counts_deliveries.store(limit.is_some(), Ordering::Relaxed);
        let (Some(limit), Some(entry)) = (limit, queues.get_mut(&self.queue)) else { return false };
        let fresh = taken.split_off(from);
        let (over, within): (Vec<Taken>, Vec<Taken>) = fresh.into_iter().partition(|one| one.delivery_count > limit);
        taken.extend(within);
        if over.is_empty() {
            return false;
        }
        let ranges: Vec<SequenceRange> = over.iter().map(|one| SequenceRange::of(one.sequence)).collect();
        let aside = entry.machine.settle(self.id, &ranges, Settle::Aside);
        state.note_dying(self.queue, &aside.ranges, Reason::DeliveryLimit);
        self.shard.request_moves();
        taken.len() == from
    }

    /// Finds the records of taken messages; returns whether it found some, or they wait until they are committed. Messages of an
    /// earlier process that no segment holds are dropped.
    fn find(&self, state: &mut State, taken: &[Taken], filled: &mut Vec<Filled>) -> Result<bool, EngineError> {
        let mut rest = taken;
        let mut is_done = false;
        while let Some(first) = rest.first() {
            let Target { queue, sequence } = target_of(self.queue, first.sequence);
            let located = match state.log.locate(queue, sequence, contiguous(rest)) {
                Ok(located) => located,
                // A directory that changed on the disk is rebuilt from its segment.
                Err(error) if rebuild(state, &error)? => continue,
                Err(error) => return Err(error.into()),
            };
            let Some(located) = located else {
                if state.is_uncommitted(self.queue, first.sequence) {
                    self.leave_uncommitted(state, rest)?;
                    return Ok(true);
                }
                let lost = self.drop_lost(state, rest)?;
                rest = rest.get(lost..).unwrap_or_default();
                continue;
            };
            let picked = rest.iter().zip(&located.offsets);
            let picked: Vec<Picked> = picked.map(|(&taken, &offset)| Picked { taken, offset }).collect();
            rest = rest.get(picked.len()..).unwrap_or_default();
            is_done |= !picked.is_empty();
            match filled.last_mut() {
                Some(last) if Arc::ptr_eq(&last.segment, &located.segment) => last.picked.extend(picked),
                _ => filled.push(Filled { segment: located.segment, picked }),
            }
        }
        Ok(is_done)
    }

    /// Leaves messages in the queue until they are committed.
    fn leave_uncommitted(&self, state: &mut State, taken: &[Taken]) -> Result<(), EngineError> {
        let ranges = ranges_of(taken.iter().map(|taken| taken.sequence));
        self.shard.entry(state, self.queue)?.machine.put_back(self.id, &ranges);
        state.wait_for_commit(self.queue);
        Ok(())
    }

    /// Drops the first of some taken messages and later ones that no segment holds either; returns how many.
    fn drop_lost(&self, state: &mut State, taken: &[Taken]) -> Result<usize, EngineError> {
        let first = taken.first().map_or(Sequence(0), |taken| taken.sequence);
        let recovered_below = self.shard.entry(state, self.queue)?.recovered_below(first);
        if state.stopped.is_some() || first >= recovered_below {
            return Err(self.shard.missing(self.queue, first));
        }
        let Target { queue, sequence } = target_of(self.queue, first);
        let stored = state.log.next_stored(queue, sequence)?.map(|next| next.in_lane(first.lane()));
        let next = stored.unwrap_or(recovered_below).min(recovered_below);
        let is_lost = |number: &Sequence| number.lane() == first.lane() && *number < next;
        let lost: Vec<Sequence> = taken.iter().map(|taken| taken.sequence).take_while(is_lost).collect();
        if lost.is_empty() {
            return Err(self.shard.missing(self.queue, first));
        }
        self.shard.keep_replicated(state, &self.shard.missing(self.queue, first))?;
        self.drop_all(state, &lost)?;
        self.shard.tell_lost(state, self.queue, lost.len() as u64);
        Ok(lost.len())
    }

    /// Drops a message that this consumer holds and whose record cannot be read, so that it is never delivered. When
    /// only the directory entry is wrong, the message is requeued instead.
    ///
    /// # Errors
    /// `NoQueue` once the queue is gone; `Log` when the settlement cannot be written.
    pub fn drop_corrupt(&self, sequence: Sequence, error: &LogError) -> Result<(), EngineError> {
        let LogError::Corrupt { path, at, why } = error else { return Ok(()) };
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut guard = self.lock()?;
        let state = &mut *guard;
        // Checking a directory reads all of it: once per file is enough.
        if !state.corruptions.has(&file) && state.log.rebuild_directory(&file)? {
            let entry = self.shard.entry(state, self.queue)?;
            let range = SequenceRange { first: sequence, last: sequence };
            let returned = entry.machine.settle(self.id, &[range], Settle::Requeue);
            state.wake(self.queue, returned.count);
            return Ok(());
        }
        self.shard.keep_corrupt(state, (&file, *at), error)?;
        self.drop_all(state, &[sequence])?;
        state.log.quarantine(&file, *at);
        let is_first = state.corruptions.note(&file, *at, &why.to_string(), &[self.queue]);
        self.shard.tell_corruption(state, &file, 1, is_first);
        Ok(())
    }

    fn drop_all(&self, state: &mut State, numbers: &[Sequence]) -> Result<(), EngineError> {
        let machine = &mut self.shard.entry(state, self.queue)?.machine;
        let mut dropped = Settled::default();
        for &number in numbers {
            let one = machine.drop_message(self.id, number);
            dropped.count += one.count;
            dropped.bytes += one.bytes;
            for range in one.ranges {
                match dropped.ranges.last_mut() {
                    Some(last) if last.last.next() == range.first => last.last = range.last,
                    _ => dropped.ranges.push(range),
                }
            }
        }
        state.log_settled(self.queue, Outcome::Drop, &dropped)
    }
}

/// How many of the first messages follow each other without a gap.
fn contiguous(taken: &[Taken]) -> usize {
    let Some(first) = taken.first() else { return 0 };
    taken.iter().zip(first.sequence.0..).take_while(|(taken, expected)| taken.sequence.0 == *expected).count()
}
