//! What a shard's lock protects: the log, the queues and the routing tables, and the steps that touch more than one of them.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use penstock_log::{Log, Outcome, Target};
use penstock_queue::{AckSet, Matched, Queue, QueueId, Routing, Sequence, SequenceRange, Settled, SubscriptionId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::damage::Damages;
use crate::delivered::DeliveryMark;
use crate::error::EngineError;
use crate::lease::Leases;
use crate::level::QueueLevels;
use crate::passed_on::PassedOn;
use crate::producers::Producers;
use crate::signal::Signal;
use crate::staging::Stage;
use crate::stream::Stream;
use crate::topology::QueueSettings;

/// A queue with what the engine knows of it beside the machine.
pub(crate) struct QueueEntry {
    pub name: String,
    pub machine: Queue,
    pub auto_delete: bool,
    pub levels: QueueLevels,
    pub signals: FxHashMap<SubscriptionId, Arc<Signal>>,
    /// Subscriptions that only hold what was taken one by one; they are no consumers.
    pub pull_count: usize,
    /// Messages of the running publish that went here; zero between publishes.
    pub fresh_count: u64,
    /// Messages below this number were stored by an earlier process: their records may be damaged.
    pub recovered_below: Sequence,
    /// Who reads it, when it is a stream.
    pub stream: Option<Stream>,
    /// What owners have reserved of it.
    pub leases: Leases,
    /// How far its messages may have gone out.
    pub deliveries: DeliveryMark,
}

impl QueueEntry {
    pub fn new(name: &str, machine: Queue, auto_delete: bool) -> QueueEntry {
        QueueEntry {
            name: name.to_owned(),
            machine,
            auto_delete,
            levels: QueueLevels::default(),
            signals: FxHashMap::default(),
            pull_count: 0,
            fresh_count: 0,
            recovered_below: Sequence(0),
            stream: None,
            leases: Leases::default(),
            deliveries: DeliveryMark::default(),
        }
    }

    pub fn consumer_count(&self) -> usize {
        let readers = self.stream.as_ref().map_or(0, Stream::reader_count);
        self.signals.len().saturating_sub(self.pull_count) + readers
    }

    /// Ends whoever consumes or reads it.
    pub fn cancel(&self, reason: &str) {
        self.signals.values().for_each(|signal| signal.cancel(reason));
        self.stream.iter().for_each(|stream| stream.cancel(reason));
    }

    /// Rings as many waiting consumers as `fresh_count` new ready messages can feed, turn by turn. Whoever is rung takes, and
    /// rings the next one when that leaves something ready, so that nothing stays beside one that waits.
    pub fn wake(&mut self, fresh_count: u64) {
        if let Some(stream) = &mut self.stream {
            stream.wake();
            return;
        }
        for _ in 0..fresh_count.min(self.signals.len() as u64) {
            let Some(id) = self.machine.next_to_wake() else { return };
            if let Some(signal) = self.signals.get(&id) {
                signal.ring();
            }
        }
    }
}

/// Where the last message went: publishers repeat themselves.
#[derive(Default)]
pub(crate) struct LastRoute {
    pub exchange: Vec<u8>,
    pub key: Vec<u8>,
    pub generation: Option<u64>,
}

pub(crate) struct State {
    pub log: Log,
    pub queues: FxHashMap<QueueId, QueueEntry>,
    /// Those of them that are streams, and perhaps some that are gone.
    pub streams: FxHashSet<QueueId>,
    /// Queues that are about to be deleted as empty ones: nothing is stored in them.
    pub shut: FxHashSet<QueueId>,
    pub routing: Routing,
    pub matched: Matched,
    /// Queues that have a log of their own, and their names once the routing tables have them.
    pub elsewhere: FxHashMap<QueueId, Option<String>>,
    /// Queues that have a log of their own, as this log remembers: a start misses it.
    pub own_logs: FxHashSet<QueueId>,
    /// The only queue of a log of its own, which is what `matched` says then.
    pub only: Option<QueueId>,
    /// Where messages of named producers lie that are in logs of their own; nothing for those that have none there.
    pub producer_homes: FxHashMap<NonZeroU64, Option<QueueId>>,
    /// What of the running publish goes to queues elsewhere.
    pub passed_on: Vec<PassedOn>,
    pub last_route: LastRoute,
    pub targets: Vec<Target>,
    pub touched: Vec<QueueId>,
    /// Sealed segments that the fold thread was told of.
    pub sealed_seen: u64,
    /// The number that the first message of a new queue gets; above 1 once a start had to skip numbers.
    pub first_sequence: Sequence,
    pub damages: Damages,
    /// Offsets of groups whose streams did not get their names yet.
    pub recovered_groups: FxHashMap<QueueId, BTreeMap<String, u64>>,
    pub producers: Producers,
    /// Of streams that are stages: what was decided about them.
    pub stages: FxHashMap<QueueId, Stage>,
    /// When the last message was stored: no later one says an earlier time.
    pub stored_at_ms: u64,
    /// Why the shard stopped, once it has.
    pub stopped: Option<String>,
    pub closed: bool,
}

impl State {
    pub fn new(log: Log, first_sequence: Sequence) -> State {
        State {
            log,
            queues: FxHashMap::default(),
            streams: FxHashSet::default(),
            shut: FxHashSet::default(),
            routing: Routing::default(),
            matched: Matched::default(),
            elsewhere: FxHashMap::default(),
            own_logs: FxHashSet::default(),
            only: None,
            producer_homes: FxHashMap::default(),
            passed_on: Vec::new(),
            last_route: LastRoute::default(),
            targets: Vec::new(),
            touched: Vec::new(),
            sealed_seen: 0,
            first_sequence,
            damages: Damages::default(),
            recovered_groups: FxHashMap::default(),
            producers: Producers::default(),
            stages: FxHashMap::default(),
            stored_at_ms: 0,
            stopped: None,
            closed: false,
        }
    }

    /// Adds a queue, or gives a recovered one its name.
    pub fn put_queue(&mut self, settings: QueueSettings<'_>) {
        let QueueSettings { id, name, auto_delete, levels, stream } = settings;
        self.routing.put_queue(name, id);
        let first = self.first_sequence;
        let new = || Queue::recovered(first, AckSet::starting_at(first), 0, 0, BTreeMap::new());
        let entry = self.queues.entry(id).or_insert_with(|| QueueEntry::new("", new(), false));
        entry.name = name.to_owned();
        entry.auto_delete = auto_delete;
        entry.levels = levels;
        let groups = self.recovered_groups.remove(&id).unwrap_or_default();
        self.streams.extend(stream.map(|_| id));
        match (stream, &mut entry.stream) {
            (Some(settings), Some(stream)) => stream.set(settings),
            (Some(settings), none) => *none = Some(Stream::new(settings, groups)),
            (None, stream) => *stream = None,
        }
    }

    /// Refuses to go on once the shard is closed or a write has failed.
    pub fn check(&self, shard: &str) -> Result<(), EngineError> {
        match &self.stopped {
            Some(reason) => Err(EngineError::Stopped(shard.to_owned(), reason.clone())),
            None if self.closed => Err(EngineError::Closed(shard.to_owned())),
            None => Ok(()),
        }
    }

    /// Whether a segment was sealed since the last time somebody asked.
    pub fn has_sealed(&mut self) -> bool {
        let sealed_count = self.log.sealed_count();
        std::mem::replace(&mut self.sealed_seen, sealed_count) < sealed_count
    }

    /// Writes down what was settled. The record is in the page cache when this returns.
    pub fn log_settled(&mut self, queue: QueueId, outcome: Outcome, settled: &Settled) -> Result<(), EngineError> {
        if settled.ranges.is_empty() {
            return Ok(());
        }
        self.log.append_settle(queue, outcome, settled.count, settled.bytes, &settled.ranges)?;
        self.write()
    }

    /// Writes down that messages went back to their places.
    pub fn log_returned(&mut self, queue: QueueId, ranges: &[SequenceRange]) -> Result<(), EngineError> {
        if ranges.is_empty() {
            return Ok(());
        }
        let count = ranges.iter().map(SequenceRange::count).sum();
        self.log.append_settle(queue, Outcome::Requeue, count, 0, ranges)?;
        self.write()
    }

    /// Puts the log's tail into the page cache; a failure stops the shard, whose memory is then ahead of its log.
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
