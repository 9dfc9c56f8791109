//! A queue of a shard: its machine, and what the engine keeps beside it.

use std::sync::Arc;

use penstock_log::Payload;
use penstock_queue::{Queue, QueueId, Sequence, SubscriptionId};
use rustc_hash::FxHashMap;

use crate::delivery_mark::DeliveryMark;
use crate::fair_keys::FairKeys;
use crate::lease::Leases;
use crate::length::HeadLimit;
use crate::level::QueueLevels;
use crate::priorities::{Lane, Priorities};
use crate::signal::{Signal, Wakes};
use crate::stream::{Stream, StreamSettings};

/// A queue of the topology.
#[derive(Clone, Copy, Debug)]
pub struct QueueSettings<'a> {
    pub id: QueueId,
    pub name: &'a str,
    pub auto_delete: bool,
    pub levels: QueueLevels,
    /// Set for a stream.
    pub stream: Option<StreamSettings>,
}

/// A queue's messages and the bytes of their bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Delayed messages included: a start does not know them before it delivers them.
    pub ready_count: u64,
    /// The delayed ones among them that are known, without dead letters on their way.
    pub delayed_count: u64,
    pub unacked_count: u64,
    pub ready_bytes: u64,
    pub unacked_bytes: u64,
    pub consumer_count: u64,
    /// Messages it ever received.
    pub published_count: u64,
    /// Deliveries since the start, redeliveries included.
    pub delivered_count: u64,
    /// Messages that left it: acked, rejected, purged, or removed by retention.
    pub settled_count: u64,
    /// Messages since the start that were not stored because it had seen their ids.
    pub deduplicated_count: u64,
}

/// A queue with the engine's state beside the machine.
pub(crate) struct QueueEntry {
    pub name: String,
    pub machine: Queue,
    pub auto_delete: bool,
    pub levels: QueueLevels,
    pub signals: FxHashMap<SubscriptionId, Arc<Signal>>,
    /// Subscriptions that only hold messages taken one by one; they are not consumers.
    pub pull_count: usize,
    /// Messages of the current publish for this queue while it is watched; zero between publishes.
    pub fresh_count: u64,
    /// Messages below this sequence were stored by an earlier process: their records may be corrupt. Of the first lane.
    pub recovered_below: Sequence,
    /// Sequences below the next one that no message had: starts skipped them.
    pub skipped: u64,
    /// Its readers, when it is a stream.
    pub stream: Option<Box<Stream>>,
    /// Its reserved messages by owner.
    pub leases: Leases,
    /// How far its messages may have been delivered.
    pub deliveries: DeliveryMark,
    /// Deliveries since the start.
    pub delivered_count: u64,
    /// How old its messages may become.
    pub max_age_ms: Option<u64>,
    /// Set for a queue that drops its oldest messages when it has too many.
    pub head_limit: Option<Box<HeadLimit>>,
    /// How long its consumers may keep a message unacked.
    pub ack_timeout_ms: Option<u64>,
    /// Set for a queue with priorities.
    pub priorities: Option<Box<Priorities>>,
    /// Set for a queue whose keys take turns.
    pub keys: Option<Box<FairKeys>>,
    /// Whether it has the last messages of an exchange, and no consumers.
    pub is_history: bool,
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
            skipped: 0,
            stream: None,
            leases: Leases::default(),
            deliveries: DeliveryMark::default(),
            delivered_count: 0,
            max_age_ms: None,
            head_limit: None,
            ack_timeout_ms: None,
            priorities: None,
            keys: None,
            is_history: false,
        }
    }

    /// How many messages it ever received, also those that a power failure lost after others.
    pub fn received_count(&self) -> u64 {
        let received = |next: Sequence, skipped: u64| next.0.saturating_sub(Sequence::FIRST.0).saturating_sub(skipped);
        let first = received(self.machine.next(), self.skipped);
        let Some(priorities) = &self.priorities else { return first };
        let of_lane = |(lane, next, _): (u16, Sequence, Sequence)| {
            received(next.within(), priorities.lanes.get(&lane).map_or(0, |lane| lane.skipped))
        };
        first + self.machine.ends_of_lanes().map(of_lane).sum::<u64>()
    }

    /// Messages of the lane of a sequence below this were stored by an earlier process.
    pub fn recovered_below(&self, sequence: Sequence) -> Sequence {
        if sequence.lane() == 0 {
            return self.recovered_below;
        }
        let lane = self.priorities.as_ref().and_then(|priorities| priorities.lanes.get(&sequence.lane()));
        lane.map_or(Sequence(0), |lane| lane.recovered_below)
    }

    /// The lane of a message. A new lane begins with the sequence `first`.
    pub fn lane_for(&mut self, payload: &Payload<'_>, first: Sequence) -> u16 {
        let Some(priorities) = &mut self.priorities else { return 0 };
        let priority = payload.priority().min(priorities.highest);
        let lane = self.keys.as_ref().map_or(priority.into(), |keys| keys.lane_of(payload, priority));
        if lane == 0 {
            return 0;
        }
        priorities.lanes.entry(lane).or_insert_with(|| Lane {
            recovered_below: Sequence(0),
            skipped: first.0 - Sequence::FIRST.0,
            deliveries: DeliveryMark::default(),
        });
        lane
    }

    pub fn consumer_count(&self) -> usize {
        let readers = self.stream.as_deref().map_or(0, Stream::reader_count);
        self.signals.len().saturating_sub(self.pull_count) + readers
    }

    /// Whether anybody may wait for its messages. A wide publish visits other queues only once, which matters when they
    /// are more than a processor's cache holds.
    pub fn is_watched(&self) -> bool {
        self.stream.is_some() || !self.signals.is_empty()
    }

    /// Wakes the active consumer of a queue with a single active consumer, so that it knows that it is active.
    pub fn tell_active(&self) {
        if let Some(signal) = self.machine.active().and_then(|id| self.signals.get(&id)) {
            signal.stand_by(false);
        }
    }

    /// Ends its consumers and readers.
    pub fn cancel(&mut self, reason: &str, wakes: &mut Wakes) {
        self.signals.values().for_each(|signal| wakes.cancel(signal, reason));
        self.stream.iter_mut().for_each(|stream| stream.cancel(reason, wakes));
    }

    /// Wakes as many waiting consumers as `fresh_count` new ready messages can feed, in turn. A woken consumer takes,
    /// and wakes the next one when something stays ready, so that no message stays while a consumer waits.
    pub fn wake(&mut self, fresh_count: u64, wakes: &mut Wakes) {
        if let Some(stream) = &mut self.stream {
            stream.wake(wakes);
            return;
        }
        for _ in 0..fresh_count.min(self.signals.len() as u64) {
            let Some(id) = self.machine.next_to_wake() else { return };
            if let Some(signal) = self.signals.get(&id) {
                wakes.add(signal);
            }
        }
    }
}

/// The counts of a queue with so many dead letters on their way.
pub(crate) fn counts_of(entry: &QueueEntry, dying: u64) -> QueueCounts {
    let (ready_count, unacked_count) = (entry.machine.free_count(), entry.machine.unacked_count());
    let published_count = entry.received_count();
    QueueCounts {
        ready_count,
        delayed_count: entry.machine.delayed_count().saturating_sub(dying),
        unacked_count,
        ready_bytes: entry.machine.ready_bytes(),
        unacked_bytes: entry.machine.unacked_bytes(),
        consumer_count: entry.consumer_count() as u64,
        published_count,
        delivered_count: entry.delivered_count,
        settled_count: published_count.saturating_sub(ready_count + unacked_count),
        deduplicated_count: 0,
    }
}
