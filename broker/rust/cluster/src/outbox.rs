//! Frames that wait for a connection: messages as bytes, and records as the replica that is to get them, so that these are read when the
//! connection takes them.
//!
//! Invariants: nothing waits for a broker that is not connected. Messages go before records, as they are small and elections wait
//! for them. When too many wait, new ones are dropped: replicas ask again for what they miss.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use bytes::Bytes;
use penstock_replica::{BrokerId, ReplicaId};

use crate::lock::lock;
use crate::questions::ShardId;

/// More than a second of beats for ten thousand shards.
const MESSAGES_MAX: usize = 1 << 16;

#[derive(Default)]
pub(crate) struct Outboxes(Mutex<HashMap<BrokerId, Outbox>>);

#[derive(Default)]
struct Outbox {
    messages: VecDeque<Bytes>,
    records: VecDeque<(ShardId, ReplicaId)>,
}

/// The next thing to send to a broker.
pub(crate) enum Next {
    Message(Bytes),
    Records(ShardId, ReplicaId),
}

impl Outboxes {
    pub fn connected(&self, broker: BrokerId) {
        lock(&self.0).insert(broker, Outbox::default());
    }

    pub fn disconnected(&self, broker: BrokerId) {
        let dropped = lock(&self.0).remove(&broker);
        drop(dropped);
    }

    /// Says whether the message waits: it does not where the broker is not connected, or where too many wait.
    pub fn put_message(&self, broker: BrokerId, message: Vec<u8>) -> bool {
        let mut outboxes = lock(&self.0);
        let found = outboxes.get_mut(&broker).filter(|outbox| outbox.messages.len() < MESSAGES_MAX);
        found.map(|outbox| outbox.messages.push_back(message.into())).is_some()
    }

    pub fn put_records(&self, broker: BrokerId, shard: ShardId, replica: ReplicaId) {
        if let Some(outbox) = lock(&self.0).get_mut(&broker) {
            outbox.records.push_back((shard, replica));
        }
    }

    pub fn next(&self, broker: BrokerId) -> Option<Next> {
        let mut outboxes = lock(&self.0);
        let outbox = outboxes.get_mut(&broker)?;
        if let Some(message) = outbox.messages.pop_front() {
            return Some(Next::Message(message));
        }
        outbox.records.pop_front().map(|(shard, replica)| Next::Records(shard, replica))
    }
}
