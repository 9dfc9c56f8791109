//! Reader of one part of a lease: the same messages in the same order, however often and after any restart.
//!
//! The lease's mark alone decides the messages of a part; one that was dropped as corrupt is left out and moves no
//! other into another part. In a queue with priorities, the highest comes first. Reading settles nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use penstock_log::{LogError, Outcome, Target};
use penstock_queue::{QueueId, Sequence, SequenceRange, Settle, SubscriptionId, TURN_LANES, Taken};

use crate::counters::Metric;
use crate::error::EngineError;
use crate::priorities::target_of;
use crate::shard::Shard;
use crate::state::State;
use crate::subscription::{Filled, Picked, rebuild};

/// A lease, and a part of it: the first is 0.
#[derive(Clone, Copy, Debug)]
pub struct LeasePart<'a> {
    pub owner: &'a str,
    pub number: u64,
    pub part: u32,
    pub parts: u32,
}

/// A reader; see the module.
pub struct LeaseReader {
    shard: Arc<Shard>,
    queue: QueueId,
    owner: String,
    number: u64,
    holder: SubscriptionId,
    /// The highest priority of the queue, or the highest number of a lane of keys.
    highest: u8,
    all: Vec<SequenceRange>,
    /// The ranges still to be found, the next one first.
    ranges: VecDeque<SequenceRange>,
    /// The segment that it read last.
    hint: u64,
}

impl Shard {
    /// # Errors
    /// `NoQueue`; `NoLease`; `LeasePart` when there is no such part.
    pub fn read_lease(self: &Arc<Self>, queue: QueueId, wanted: LeasePart<'_>) -> Result<LeaseReader, EngineError> {
        let LeasePart { owner, number, part, parts } = wanted;
        if part >= parts {
            return Err(EngineError::LeasePart { part, parts });
        }
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        let entry = self.entry(&mut guard, queue)?;
        let lease = entry.leases.get(&entry.name, owner, number)?;
        let (holder, all) = (lease.holder, lease.part(part, parts));
        let has_turns = entry.keys.is_some() || entry.machine.lanes().any(|lane| lane >= TURN_LANES);
        let highest = entry.priorities.as_ref().map_or(0, |priorities| priorities.highest);
        let highest = if has_turns { u8::MAX } else { highest };
        let ranges = all.iter().copied().collect();
        let shard = Arc::clone(self);
        Ok(LeaseReader { shard, queue, owner: owner.to_owned(), number, holder, highest, all, ranges, hint: 0 })
    }
}

impl LeaseReader {
    /// The shard whose lock it takes.
    #[must_use]
    pub fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    #[must_use]
    pub fn queue(&self) -> QueueId {
        self.queue
    }

    /// The highest priority of the queue, 0 for a queue without priorities; 255 for one with lanes of keys.
    #[must_use]
    pub fn highest_priority(&self) -> u8 {
        self.highest
    }

    /// Finds the next messages, at most `count_max`; returns whether there were any.
    ///
    /// # Errors
    /// `NoQueue`, `NoLease` once the lease has ended; `Paused`; `Log` when a message's record cannot be found.
    pub fn fill(&mut self, count_max: u32, filled: &mut Vec<Filled>) -> Result<bool, EngineError> {
        let shard = Arc::clone(&self.shard);
        let mut guard = shard.lock()?;
        if guard.is_paused() {
            return Err(EngineError::Paused(shard.name().to_owned()));
        }
        let found = self.find(&mut guard, count_max, filled);
        let passed = guard.log.take_passed();
        // Releasing pages takes time.
        drop(guard);
        drop(passed);
        found
    }

    fn find(&mut self, state: &mut State, count_max: u32, filled: &mut Vec<Filled>) -> Result<bool, EngineError> {
        loop {
            self.check(state)?;
            let Some(&SequenceRange { first, last }) = self.ranges.front() else { return Ok(false) };
            let settled = self.shard.entry(state, self.queue)?.machine.settled_in(first.lane());
            let from = settled.next_unsettled(first);
            let end = settled.next_settled(from).unwrap_or(last.next()).min(last.next());
            if from >= end {
                self.pass(last);
                continue;
            }
            let count = (end.0 - from.0).min(u64::from(count_max));
            let Target { queue, sequence } = target_of(self.queue, from);
            let located = match state.log.seek(queue, sequence, count as usize, self.hint) {
                // A directory that changed on the disk is rebuilt from its segment.
                Err(error) if rebuild(state, &error)? => continue,
                located => located?,
            };
            let Some(located) = located.as_ref().filter(|located| located.first == sequence) else {
                let stored = located.map_or(end, |located| located.first.in_lane(from.lane()).min(end));
                self.drop_lost(state, from, stored)?;
                continue;
            };
            let taken =
                (from.0..).map(|number| Taken { sequence: Sequence(number), delivery_count: 0, redelivered: false });
            let picked: Vec<Picked> =
                taken.zip(&located.offsets).map(|(taken, &offset)| Picked { taken, offset }).collect();
            self.hint = located.segment.number();
            self.pass(Sequence(from.0 + picked.len() as u64 - 1));
            filled.push(Filled { segment: Arc::clone(&located.segment), picked });
            return Ok(true);
        }
    }

    /// Continues after a message of the first range.
    fn pass(&mut self, last: Sequence) {
        if let Some(range) = self.ranges.pop_front()
            && let Some(rest) = SequenceRange::new(last.next(), range.last)
        {
            self.ranges.push_front(rest);
        }
    }

    /// Checks that the lease still exists: a later one may have its number.
    fn check(&self, state: &mut State) -> Result<(), EngineError> {
        let entry = self.shard.entry(state, self.queue)?;
        if entry.leases.get(&entry.name, &self.owner, self.number)?.holder == self.holder {
            return Ok(());
        }
        Err(EngineError::NoLease { queue: entry.name.clone(), owner: self.owner.clone(), number: self.number })
    }

    /// Drops messages of an earlier process that no segment holds.
    fn drop_lost(&self, state: &mut State, first: Sequence, end: Sequence) -> Result<(), EngineError> {
        let recovered_below = self.shard.entry(state, self.queue)?.recovered_below(first);
        let range = SequenceRange::new(first, Sequence(end.min(recovered_below).0.saturating_sub(1)));
        let Some(range) = range.filter(|_| state.stopped.is_none()) else {
            return Err(self.shard.missing(self.queue, first));
        };
        self.shard.keep_replicated(state, &self.shard.missing(self.queue, range.first))?;
        let count = self.drop_range(state, range)?;
        self.shard.tell_lost(state, self.queue, count);
        Ok(())
    }

    /// Drops a message with an unreadable record from the lease and the queue, so that it is never delivered, unless
    /// only the directory entry was wrong. Messages found after it have to be found again.
    ///
    /// # Errors
    /// `NoQueue`, `NoLease` once the lease has ended; `Log` when the settlement cannot be written.
    pub fn drop_corrupt(&mut self, sequence: Sequence, error: &LogError) -> Result<(), EngineError> {
        let LogError::Corrupt { path, at, why } = error else { return Ok(()) };
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let shard = Arc::clone(&self.shard);
        let mut guard = shard.lock()?;
        let state = &mut *guard;
        self.check(state)?;
        let is_before = |range: &&SequenceRange| sequence < range.first || range.last < sequence;
        self.ranges = self.all.iter().skip_while(is_before).copied().collect();
        if let Some(first) = self.ranges.front_mut() {
            first.first = sequence;
        }
        // Checking a directory reads all of it: once per file is enough.
        let is_rebuilt = !state.corruptions.has(&file) && state.log.rebuild_directory(&file)?;
        if !is_rebuilt {
            shard.keep_corrupt(state, (&file, *at), error)?;
        }
        if !is_rebuilt && self.drop_range(state, SequenceRange { first: sequence, last: sequence })? > 0 {
            state.log.quarantine(&file, *at);
            let is_first = state.corruptions.note(&file, *at, &why.to_string(), &[self.queue]);
            self.shard.tell_corruption(state, &file, 1, is_first);
        }
        Ok(())
    }

    fn drop_range(&self, state: &mut State, range: SequenceRange) -> Result<u64, EngineError> {
        let entry = self.shard.entry(state, self.queue)?;
        let dropped = entry.machine.settle(self.holder, &[range], Settle::Reject);
        entry.leases.shrink(&self.owner, self.number, dropped.bytes);
        state.log_settled(self.queue, Outcome::Drop, &dropped)?;
        Ok(dropped.count)
    }

    /// Counts what was sent.
    pub fn sent(&self, sizes: &[(Sequence, u32)]) {
        let bytes: u64 = sizes.iter().map(|&(_, size)| u64::from(size)).sum();
        self.shard.counters().add(Metric::Delivered, sizes.len() as u64);
        self.shard.counters().add(Metric::DeliveredBytes, bytes);
    }
}
