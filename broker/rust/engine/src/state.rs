//! State under a shard's lock: the log and the queues, and the steps that touch both.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use penstock_log::{Log, Outcome, Position, Settlement, Target, marks};
use penstock_queue::{AckSet, QueueId, RetrySchedule, Sequence, SequenceRange, Settled};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::aging::Aging;
use crate::alarms::Alarm;
use crate::assigned::Assigned;
use crate::corruption::Corruptions;
use crate::dead_letters::{DeadLetters, Dying};
use crate::decision::Stage;
use crate::error::EngineError;
use crate::fair_keys::FoundKeys;
use crate::gone::Gone;
use crate::histories::Histories;
use crate::identity::{Identities, Identity};
use crate::lease::Found;
use crate::length::LengthLimit;
use crate::log_number::LogNumber;
use crate::overdue::Overdue;
use crate::priorities::by_lane;
use crate::producer_logs::Noting;
use crate::producers::Producers;
use crate::publication::PassedOn;
use crate::queue_entry::{QueueEntry, QueueSettings};
use crate::signal::Wakes;
use crate::stream::Stream;
use crate::term::Term;
use crate::unused::last_uses::IdleQueues;
use crate::windows::Windows;

/// A queue in another log, and its name once the routing table has it.
pub(crate) struct Elsewhere {
    pub log: LogNumber,
    pub name: Option<String>,
}

pub(crate) struct State {
    pub log: Log,
    pub queues: FxHashMap<QueueId, QueueEntry>,
    /// Queues that were deleted lately.
    pub gone: Gone,
    /// The streams among them, and perhaps deleted ones.
    pub streams: FxHashSet<QueueId>,
    /// The queues with priorities, and the highest of each.
    pub priorities: BTreeMap<QueueId, u8>,
    /// Lanes of keys from before the start, of queues that do not have them yet.
    pub turn_lanes: FxHashMap<QueueId, Vec<u16>>,
    /// Which keys had which lanes, of queues that do not have them yet.
    pub found_keys: FxHashMap<QueueId, FoundKeys>,
    /// The queues whose keys take turns.
    pub keyed: FxHashSet<QueueId>,
    /// Leases from before the start whose queues do not have their lanes yet.
    pub waiting_leases: FxHashMap<QueueId, Found>,
    /// Queues that are about to be deleted as empty: nothing is stored in them.
    pub shut: FxHashSet<QueueId>,
    /// The limits of queues that refuse messages when they are full.
    pub rejecting: FxHashMap<QueueId, LengthLimit>,
    /// Queues that drop their oldest messages and that the current publish has messages for; empty between publishes.
    pub limited: Vec<QueueId>,
    /// Such queues that have too many messages, for the thread of expiries.
    pub too_long: FxHashSet<QueueId>,
    /// The queues that are deleted when they are unused for some time.
    pub idle: IdleQueues,
    /// The queues whose messages have an age limit.
    pub aging: FxHashMap<QueueId, Aging>,
    /// Messages whose time was over while a consumer had them, of queues with any.
    pub overdue: Overdue,
    /// Where the dead letters of queues go; those of others are dropped.
    pub dead_letters: FxHashMap<QueueId, Arc<DeadLetters>>,
    /// How often messages of queues may come back after a delivery.
    pub delivery_limits: FxHashMap<QueueId, u32>,
    /// When messages that come back to queues are ready again; those of others are at once.
    pub retry_schedules: FxHashMap<QueueId, Arc<RetrySchedule>>,
    /// The digests that queues and exchanges have seen, to recognize repetitions.
    pub windows: Windows,
    /// The last messages that exchanges keep, for queues that are bound later.
    pub histories: Histories,
    /// The marks of histories for which the disk was full, by owner and key: they are appended later.
    pub unnoted: BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>,
    /// Messages that are about to leave their queues.
    pub dying: Dying,
    /// When the next message may have to go, in ms; the shard reads it without the lock.
    pub next_expiry: Arc<Alarm>,
    /// Messages from before the start that their queues had refused, until all queues are known.
    pub refused: Vec<Target>,
    /// Requeued messages that wait, by their times.
    pub retries: BinaryHeap<Reverse<(u64, QueueId, Sequence)>>,
    /// Deadlines up to this time have come.
    pub passed_ms: u64,
    /// How many queues were removed from the routing table of the vhost when one of this log was the last time.
    pub removals: u64,
    /// Queues of the vhost in other logs.
    pub elsewhere: FxHashMap<QueueId, Elsewhere>,
    /// Queues with an own log, as this log records: a start reports a missing one.
    pub own_logs: FxHashSet<QueueId>,
    /// How many shards the vhost has, as this log records: a start reports a missing one.
    pub shard_count: u16,
    /// Messages of the current publish for queues elsewhere.
    pub passed_on: Vec<PassedOn>,
    /// Whether it has messages that all their logs have.
    pub has_repeats: bool,
    pub targets: Vec<Target>,
    /// The sequences of the current publish, if its publisher asked for them.
    pub assigned: Option<Vec<Assigned>>,
    /// The settlements of the current transaction, which it appends together.
    pub transacted: Option<Vec<(Settlement, Vec<SequenceRange>)>>,
    pub touched: Vec<QueueId>,
    /// Signals that ring once the lock is released.
    pub wakes: Wakes,
    /// Sealed segments that were reported to the fold thread.
    pub sealed_seen: u64,
    /// The first sequence of a new queue; above 1 once a start had to skip sequences.
    pub first_sequence: Sequence,
    pub corruptions: Corruptions,
    /// Offsets of groups whose streams did not get their names yet.
    pub recovered_groups: FxHashMap<QueueId, BTreeMap<String, u64>>,
    /// The ids of streams.
    pub identities: Identities,
    pub producers: Producers,
    pub noting: Noting,
    /// The state of streams that are stages.
    pub stages: FxHashMap<QueueId, Stage>,
    /// Of queues whose messages were copied into this log: the sequences of those that were.
    pub sources: FxHashMap<QueueId, AckSet>,
    /// How many these are; the shard reads it without the lock.
    pub source_count: Arc<AtomicUsize>,
    /// When the last message was stored: no later message has an earlier time.
    pub stored_at_ms: u64,
    /// Set in a shard of a replicated log, until the log has left.
    pub term: Option<Box<Term>>,
    /// Why the shard stopped, once it has.
    pub stopped: Option<String>,
    pub closed: bool,
    /// Whether it is closed because its term is over.
    pub is_deposed: bool,
}

impl State {
    pub fn new(log: Log, first_sequence: Sequence, next_expiry: Arc<Alarm>) -> State {
        State {
            log,
            queues: FxHashMap::default(),
            gone: Gone::default(),
            streams: FxHashSet::default(),
            priorities: BTreeMap::new(),
            turn_lanes: FxHashMap::default(),
            found_keys: FxHashMap::default(),
            keyed: FxHashSet::default(),
            waiting_leases: FxHashMap::default(),
            shut: FxHashSet::default(),
            rejecting: FxHashMap::default(),
            limited: Vec::new(),
            too_long: FxHashSet::default(),
            idle: IdleQueues::default(),
            aging: FxHashMap::default(),
            overdue: Overdue::default(),
            dead_letters: FxHashMap::default(),
            delivery_limits: FxHashMap::default(),
            retry_schedules: FxHashMap::default(),
            windows: Windows::default(),
            histories: Histories::default(),
            unnoted: BTreeMap::new(),
            dying: Dying::default(),
            next_expiry,
            refused: Vec::new(),
            retries: BinaryHeap::new(),
            passed_ms: 0,
            removals: 0,
            elsewhere: FxHashMap::default(),
            own_logs: FxHashSet::default(),
            shard_count: 1,
            passed_on: Vec::new(),
            has_repeats: false,
            targets: Vec::new(),
            assigned: None,
            transacted: None,
            touched: Vec::new(),
            wakes: Wakes::default(),
            sealed_seen: 0,
            first_sequence,
            corruptions: Corruptions::default(),
            recovered_groups: FxHashMap::default(),
            identities: FxHashMap::default(),
            producers: Producers::default(),
            noting: Noting::default(),
            stages: FxHashMap::default(),
            sources: FxHashMap::default(),
            source_count: Arc::default(),
            stored_at_ms: 0,
            term: None,
            stopped: None,
            closed: false,
            is_deposed: false,
        }
    }

    /// Adds a queue, or assigns a recovered one its name. No message is routed to it yet.
    pub fn put_queue(&mut self, settings: QueueSettings<'_>) {
        let QueueSettings { id, name, auto_delete, levels, stream } = settings;
        let entry = self.entry_of(id);
        entry.name = name.to_owned();
        entry.auto_delete = auto_delete;
        entry.levels = levels;
        // One without priorities cannot have leases in lanes.
        self.waiting_leases.remove(&id);
        let groups = self.recovered_groups.remove(&id).unwrap_or_default();
        self.streams.extend(stream.map(|_| id));
        let Some(entry) = self.queues.get_mut(&id) else { return };
        match (stream, &mut entry.stream) {
            (Some(settings), Some(stream)) => stream.set(settings),
            (Some(settings), none) => *none = Some(Box::new(Stream::new(settings, groups))),
            (None, stream) => *stream = None,
        }
    }

    /// Assigns a stream its id, unless it has one. Also returns the position after its mark.
    ///
    /// # Errors
    /// `Log` when the mark cannot be written.
    pub fn identify(&mut self, queue: QueueId) -> Result<(Identity, Position), EngineError> {
        if let Some(&found) = self.identities.get(&queue) {
            return Ok(found);
        }
        let mut id = [0; 16];
        for half in id.chunks_exact_mut(8) {
            half.copy_from_slice(&self.log.random()?.to_le_bytes());
        }
        let at = self.log.append_mark(&marks::owner_of_identity(queue), &[], &id)?;
        self.write()?;
        self.identities.insert(queue, (Identity(id), at));
        Ok((Identity(id), at))
    }

    /// The same for a stream that is being declared. On a full disk the first question for its id does it.
    pub fn identify_if_room(&mut self, queue: QueueId) -> Result<(), EngineError> {
        match self.identify(queue) {
            Err(error) if error.is_full() => Ok(()),
            identified => identified.map(drop),
        }
    }

    /// Whether this vhost has this log: a dedicated one goes with its queue.
    pub fn has_log(&self, log: LogNumber) -> bool {
        log.queue().is_none_or(|queue| self.elsewhere.contains_key(&queue))
    }

    /// Fails once the shard is closed or a write has failed.
    pub fn check(&self, shard: &str) -> Result<(), EngineError> {
        match &self.stopped {
            Some(reason) => Err(EngineError::Stopped(shard.to_owned(), reason.clone())),
            None if self.closed && self.is_deposed => Err(EngineError::NotLeading(shard.to_owned())),
            None if self.closed => Err(EngineError::Closed(shard.to_owned())),
            None => Ok(()),
        }
    }

    /// Whether a segment was sealed since the last call.
    pub fn has_sealed(&mut self) -> bool {
        let sealed_count = self.log.sealed_count();
        std::mem::replace(&mut self.sealed_seen, sealed_count) < sealed_count
    }

    /// Logs a settlement of messages of one lane. The record is in the page cache when this returns.
    pub fn log_settled(&mut self, queue: QueueId, outcome: Outcome, settled: &Settled) -> Result<(), EngineError> {
        let Settled { count, bytes, ranges } = settled;
        let mut lanes = by_lane(queue, ranges);
        let Some((lane, ranges)) = lanes.next() else { return Ok(()) };
        debug_assert!(lanes.next().is_none(), "the bytes of each lane are not known");
        let settlement = Settlement { queue: lane, outcome, count: *count, bytes: *bytes, due_at_ms: None };
        self.append_settlement(settlement, ranges)?;
        self.write()
    }

    /// Appends a settlement, or keeps it for the current transaction.
    fn append_settlement(
        &mut self,
        settlement: Settlement,
        ranges: Cow<'_, [SequenceRange]>,
    ) -> Result<(), EngineError> {
        if let Some(transacted) = &mut self.transacted {
            transacted.push((settlement, ranges.into_owned()));
            return Ok(());
        }
        let Settlement { queue, outcome, count, bytes, due_at_ms } = settlement;
        match due_at_ms {
            None => self.log.append_settle(queue, outcome, count, bytes, &ranges)?,
            Some(due_at_ms) if outcome == Outcome::Return => {
                self.log.append_return_at(queue, due_at_ms, count, &ranges)?
            }
            Some(due_at_ms) => self.log.append_requeue_at(queue, due_at_ms, count, &ranges)?,
        };
        Ok(())
    }

    /// Settles runs of messages that were never taken, each with the bytes of their bodies.
    pub fn settle_runs(&mut self, queue: QueueId, runs: &[(SequenceRange, u64)]) -> Settled {
        let mut settled = Settled::default();
        let Some(entry) = self.queues.get_mut(&queue) else { return settled };
        for &(range, bytes) in runs {
            let one = entry.machine.settle_fresh(range, bytes);
            settled.count += one.count;
            settled.bytes += one.bytes;
            settled.ranges.extend(one.ranges);
        }
        settled
    }

    /// Logs that messages were requeued.
    pub fn log_returned(&mut self, queue: QueueId, ranges: &[SequenceRange]) -> Result<(), EngineError> {
        self.log_back(queue, Outcome::Requeue, None, ranges)
    }

    /// Logs that messages came back, and until when they wait. Uncounted ones that do not wait are unacked on the disk anyway.
    pub fn log_back(
        &mut self,
        queue: QueueId,
        outcome: Outcome,
        due_at_ms: Option<u64>,
        ranges: &[SequenceRange],
    ) -> Result<(), EngineError> {
        if ranges.is_empty() || (outcome == Outcome::Return && due_at_ms.is_none()) {
            return Ok(());
        }
        for (lane, ranges) in by_lane(queue, ranges) {
            let count = ranges.iter().map(SequenceRange::count).sum();
            let settlement = Settlement { queue: lane, outcome, count, bytes: 0, due_at_ms };
            self.append_settlement(settlement, ranges)?;
        }
        self.write()
    }

    /// Writes the log's tail into the page cache; a failure stops the shard, whose memory is then ahead of its log.
    pub fn write(&mut self) -> Result<(), EngineError> {
        match self.log.write() {
            Ok(_) => Ok(()),
            Err(error) => {
                self.stopped = Some(error.to_string());
                Err(error.into())
            }
        }
    }
}
