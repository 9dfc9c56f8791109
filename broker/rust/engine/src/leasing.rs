//! Reserving leases: messages taken out of a queue under an owner's name and a number, until that owner acknowledges
//! them.
//!
//! Invariants: a lease is returned only with its mark in the log, and what is reserved may be delivered then: messages that are
//! over their time expire, and early ones wait. Later a leased message is its owner's, as one of a consumer. Sizes and times are
//! read without the shard's lock.

use std::sync::Arc;

use penstock_log::{LogError, MessageView, Position, marks};
use penstock_queue::{QueueId, Sequence, SequenceRange};

use crate::aging::Moment;
use crate::error::EngineError;
use crate::lease::{LEASE_MESSAGES_MAX, LEASE_RANGES_MAX, Lease, Leases, key_of};
use crate::priorities::target_of;
use crate::shard::Shard;
use crate::state::State;
use crate::subscription::{Filled, Picked, Subscription};

/// Messages taken in one hold of the shard's lock.
const TAKEN_AT_ONCE: u32 = 1024;
/// The pages of a sealed segment are loaded in units of this size.
const CHUNK_BYTES: u32 = 1 << 20;

/// Limits of a lease; 0 is no limit but that of every lease.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseLimits {
    pub messages_max: u64,
    /// It ends with the message that reaches this.
    pub bytes_max: u64,
}

/// A lease as shown to its owner and to operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStanding {
    pub number: u64,
    pub count: u64,
    pub bytes: u64,
    pub reserved_at_ms: u64,
}

/// Result of a reservation: a lease without messages does not exist, and its number is still the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    pub lease: LeaseStanding,
    /// Whether this call made it.
    pub is_new: bool,
    /// Messages that stay ready.
    pub ready_count: u64,
    /// The lease is durable once this is synced.
    pub position: Position,
}

/// An owner of leases, with its acknowledged and its open ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOwnerStanding {
    pub owner: String,
    pub acked: u64,
    pub leases: Vec<LeaseStanding>,
}

impl Shard {
    /// Takes ready messages into an owner's next lease, or returns the lease again when it exists. May block on the
    /// disk.
    ///
    /// # Errors
    /// `NoQueue`; `IsStream`; `Queue` while a consumer is exclusive; `LeaseOwner`, `LeaseNumber`, `TooMany`; `Log` when
    /// a message's record cannot be found, or the lease cannot be written.
    pub fn reserve_lease(
        self: &Arc<Self>,
        queue: QueueId,
        owner: &str,
        number: u64,
        limits: LeaseLimits,
        now_ms: u64,
    ) -> Result<Reserved, EngineError> {
        if let Some(there) = self.lease_there(queue, owner, number)? {
            return Ok(there);
        }
        let taking = self.subscribe_lease(queue)?;
        let taken = take(&taking, limits);
        let mut guard = self.lock()?;
        let kept = taken.and_then(|()| self.keep(&mut guard, &taking, (owner, number), now_ms));
        // Messages beyond the lease are put back undelivered.
        if !matches!(kept, Ok(Some(_))) {
            let put_back = self.entry(&mut guard, queue)?.machine.put_back(taking.id(), &[SequenceRange::ALL]);
            guard.wake(queue, put_back);
        }
        let ready_count = self.entry(&mut guard, queue)?.machine.ready_count();
        let position = guard.log.end();
        drop(guard);
        match kept? {
            Some(lease) => {
                taking.hand_over();
                Ok(Reserved { lease, is_new: true, ready_count, position })
            }
            None => {
                drop(taking);
                let there = self.lease_there(queue, owner, number)?;
                let nothing = LeaseStanding { number, ..LeaseStanding::default() };
                Ok(there.unwrap_or(Reserved { lease: nothing, is_new: false, ready_count, position }))
            }
        }
    }

    /// The lease when it exists already.
    fn lease_there(&self, queue: QueueId, owner: &str, number: u64) -> Result<Option<Reserved>, EngineError> {
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        let position = guard.log.end();
        let entry = self.entry(&mut guard, queue)?;
        if entry.stream.is_some() {
            return Err(EngineError::IsStream(entry.name.clone()));
        }
        let ready_count = entry.machine.ready_count();
        let found = entry.leases.find(&entry.name, owner, number)?;
        Ok(found.map(|lease| Reserved { lease: standing(number, lease), is_new: false, ready_count, position }))
    }

    /// Makes a lease of the taken messages; `None` when there are none, or another call was faster.
    fn keep(
        &self,
        state: &mut State,
        taking: &Subscription,
        (owner, number): (&str, u64),
        now_ms: u64,
    ) -> Result<Option<LeaseStanding>, EngineError> {
        state.check(self.name())?;
        let queue = taking.queue();
        let entry = self.entry(state, queue)?;
        if entry.leases.find(&entry.name, owner, number)?.is_some() {
            return Ok(None);
        }
        let mut held = entry.machine.held(taking.id());
        if let Some(beyond) = held.ranges.get(LEASE_RANGES_MAX..).filter(|beyond| !beyond.is_empty()) {
            let put_back = entry.machine.put_back(taking.id(), beyond);
            held = entry.machine.held(taking.id());
            state.wake(queue, put_back);
        }
        if held.count == 0 {
            return Ok(None);
        }
        // Its reader is unknown here, so released messages count as delivered.
        self.entry(state, queue)?.machine.sent(taking.id(), &[SequenceRange::ALL]);
        let lease = Lease { holder: taking.id(), ranges: held.ranges, bytes: held.bytes, reserved_at_ms: now_ms };
        state.log.append_mark(&marks::owner_of_leases(queue), &key_of(owner, number), &lease.mark())?;
        state.write()?;
        let standing = standing(number, &lease);
        self.entry(state, queue)?.leases.insert(owner, number, lease);
        Ok(Some(standing))
    }

    /// The owners of a queue's leases by name.
    ///
    /// # Errors
    /// `NoQueue`.
    pub fn leases(&self, queue: QueueId) -> Result<Vec<LeaseOwnerStanding>, EngineError> {
        let mut guard = self.lock()?;
        let Leases { owners } = &self.entry(&mut guard, queue)?.leases;
        let of_owner = |(name, owner): (&String, &crate::lease::Owner)| LeaseOwnerStanding {
            owner: name.clone(),
            acked: owner.acked,
            leases: owner.leases.iter().map(|(&number, lease)| standing(number, lease)).collect(),
        };
        Ok(owners.iter().map(of_owner).collect())
    }
}

fn standing(number: u64, lease: &Lease) -> LeaseStanding {
    LeaseStanding { number, count: lease.count(), bytes: lease.bytes, reserved_at_ms: lease.reserved_at_ms }
}

/// Takes up to the limits, and reads the sizes: a message that cannot be read is dropped before it is in a lease.
fn take(taking: &Subscription, limits: LeaseLimits) -> Result<(), EngineError> {
    let unless_0 = |limit: u64| if limit == 0 { u64::MAX } else { limit };
    let mut left = unless_0(limits.messages_max).min(LEASE_MESSAGES_MAX);
    let mut bytes_left = unless_0(limits.bytes_max);
    while left > 0 && bytes_left > 0 {
        let mut filled = Vec::new();
        taking.take_aside(TAKEN_AT_ONCE.min(u32::try_from(left).unwrap_or(u32::MAX)), &mut filled)?;
        if filled.is_empty() {
            return Ok(());
        }
        let Read { sizes, stale, early } = read(taking, &filled)?;
        taking.expire(&stale)?;
        if !early.is_empty() {
            taking.put_aside(&early)?;
        }
        let mut kept = 0;
        for &(_, size) in &sizes {
            if bytes_left == 0 {
                break;
            }
            bytes_left = bytes_left.saturating_sub(u64::from(size));
            kept += 1;
        }
        left = left.saturating_sub(kept as u64);
        taking.sized(&sizes, sizes.get(kept..).unwrap_or_default())?;
    }
    Ok(())
}

/// The readable ones among taken messages, in order.
#[derive(Default)]
struct Read {
    /// Messages that the lease reserves, with the sizes of their bodies.
    sizes: Vec<(Sequence, u32)>,
    /// Expired messages, with the sizes of their bodies.
    stale: Vec<(Sequence, u32)>,
    /// Delayed messages, with the times at which they become ready.
    early: Vec<(Sequence, u64)>,
}

fn read(taking: &Subscription, filled: &[Filled]) -> Result<Read, EngineError> {
    let (mut read, freshness) = (Read::default(), taking.freshness());
    for Filled { segment, picked } in filled {
        let mut rest = picked.as_slice();
        while let Some(&Picked { offset: from, .. }) = rest.first() {
            let count = rest.iter().take_while(|one| (from..from.saturating_add(CHUNK_BYTES)).contains(&one.offset));
            let (chunk, others) = rest.split_at(count.count().max(1));
            rest = others;
            let last = chunk.iter().map(|one| one.offset).max().unwrap_or(from);
            let is_there = segment.populate(from, last).is_ok();
            for &Picked { taken, offset } in chunk {
                let target = target_of(taking.queue(), taken.sequence);
                // There are unreadable sectors: read one message at a time.
                let populated = if is_there { Ok(()) } else { segment.populate(offset, offset) };
                match populated.and_then(|()| segment.message_for(offset, target)) {
                    Ok(view) => read.add(taken.sequence, &view, freshness.moment(&view)),
                    Err(error @ LogError::Corrupt { .. }) => taking.drop_corrupt(taken.sequence, &error)?,
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    Ok(read)
}

impl Read {
    fn add(&mut self, sequence: Sequence, view: &MessageView<'_>, moment: Moment) {
        let size = u32::try_from(view.body.len()).unwrap_or(u32::MAX);
        match moment {
            Moment::Now => self.sizes.push((sequence, size)),
            Moment::Never => self.stale.push((sequence, size)),
            Moment::Later(due_at_ms) => self.early.push((sequence, due_at_ms)),
        }
    }
}
