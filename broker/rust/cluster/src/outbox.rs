//! Frames that wait for a connection: messages as bytes, and records as the replica that is to get them, so that these are read when the
//! connection takes them.
//!
//! Invariants: nothing waits for a broker that is not connected. Messages go before records, as they are small and elections wait
//! for them. A frame that needs a newer version of the protocol than the connection has is dropped. When too many wait, or too many bytes of large ones, new ones are dropped: replicas and brokers ask again for what they miss.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use bytes::Bytes;
use penstock_replica::{BrokerId, ReplicaId};
use penstock_replication::wire::needed;

use crate::lock::lock;
use crate::questions::ShardId;

/// More than a second of beats for ten thousand shards.
const MESSAGES_MAX: usize = 1 << 16;
/// Bytes of messages of brokers, and of parts of copies, that wait for one broker. Those of replicas do not count: they are small.
const LARGE_BYTES_MAX: usize = 32 << 20;

#[derive(Default)]
pub(crate) struct Outboxes(Mutex<HashMap<BrokerId, Outbox>>);

#[derive(Default)]
struct Outbox {
    /// The version of the protocol of the connection.
    protocol: u16,
    messages: VecDeque<Message>,
    large_bytes: usize,
    records: VecDeque<(ShardId, ReplicaId)>,
}

struct Message {
    frame: Bytes,
    is_large: bool,
}

/// The next thing to send to a broker.
pub(crate) enum Next {
    Message(Bytes),
    Records(ShardId, ReplicaId),
}

impl Outboxes {
    pub fn connected(&self, broker: BrokerId, protocol: u16) {
        lock(&self.0).insert(broker, Outbox { protocol, ..Outbox::default() });
    }

    pub fn disconnected(&self, broker: BrokerId) {
        let dropped = lock(&self.0).remove(&broker);
        drop(dropped);
    }

    /// A message of a replica. It is dropped where the broker is not connected, or where too many wait.
    pub fn put_message(&self, broker: BrokerId, message: Vec<u8>) {
        self.put(broker, Message { frame: message.into(), is_large: false });
    }

    /// A message of a broker, or about a copy. Says whether it waits.
    pub fn put_large(&self, broker: BrokerId, message: Vec<u8>) -> bool {
        self.put(broker, Message { frame: message.into(), is_large: true })
    }

    fn put(&self, broker: BrokerId, message: Message) -> bool {
        let mut outboxes = lock(&self.0);
        let Some(outbox) = outboxes.get_mut(&broker) else { return false };
        if needed(&message.frame) > outbox.protocol {
            return false;
        }
        let bytes = if message.is_large { message.frame.len() } else { 0 };
        let has_room = outbox.messages.len() < MESSAGES_MAX && outbox.large_bytes + bytes <= LARGE_BYTES_MAX;
        if has_room {
            outbox.large_bytes += bytes;
            outbox.messages.push_back(message);
        }
        has_room
    }

    /// Whether a large message would wait now.
    pub fn has_room(&self, broker: BrokerId, bytes: usize) -> bool {
        lock(&self.0).get(&broker).is_some_and(|outbox| outbox.large_bytes + bytes <= LARGE_BYTES_MAX)
    }

    pub fn put_records(&self, broker: BrokerId, shard: ShardId, replica: ReplicaId) {
        if let Some(outbox) = lock(&self.0).get_mut(&broker) {
            outbox.records.push_back((shard, replica));
        }
    }

    pub fn next(&self, broker: BrokerId) -> Option<Next> {
        let mut outboxes = lock(&self.0);
        let outbox = outboxes.get_mut(&broker)?;
        if let Some(Message { frame, is_large }) = outbox.messages.pop_front() {
            outbox.large_bytes -= if is_large { frame.len() } else { 0 };
            return Some(Next::Message(frame));
        }
        outbox.records.pop_front().map(|(shard, replica)| Next::Records(shard, replica))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_bytes(outboxes: &Outboxes) -> Option<usize> {
        match outboxes.next(1)? {
            Next::Message(frame) => Some(frame.len()),
            Next::Records(..) => None,
        }
    }

    #[test]
    fn a_frame_of_a_newer_version_goes_only_to_a_broker_that_knows_it() {
        let outboxes = Outboxes::default();
        let newer = || vec![0, 0, 0, 0, 77, 2, 0, 0];
        outboxes.connected(1, 1);
        outboxes.put_message(1, newer());
        assert!(!outboxes.put_large(1, newer()));
        outboxes.put_message(1, vec![0, 0, 0, 0, 77, 1, 0]);
        assert_eq!(next_bytes(&outboxes), Some(7));
        assert_eq!(next_bytes(&outboxes), None);

        outboxes.connected(1, 2);
        outboxes.put_message(1, newer());

        assert_eq!(next_bytes(&outboxes), Some(8));
    }

    #[test]
    fn large_messages_that_wait_have_a_bound_and_keep_none_of_a_replica_away() {
        let outboxes = Outboxes::default();
        assert!(!outboxes.put_large(1, vec![0; 9]), "it is not connected");
        outboxes.connected(1, 1);
        let megabytes = LARGE_BYTES_MAX >> 20;

        let taken = (0..2 * megabytes).filter(|_| outboxes.put_large(1, vec![0; 1 << 20])).count();
        outboxes.put_message(1, vec![0; 7]);

        assert_eq!(taken, megabytes);
        assert_eq!(next_bytes(&outboxes), Some(1 << 20));
        assert!(outboxes.put_large(1, vec![0; 1 << 20]), "there is room again");
        let waiting = std::iter::from_fn(|| next_bytes(&outboxes)).collect::<Vec<_>>();
        assert_eq!(waiting.iter().filter(|&&bytes| bytes == 7).count(), 1);
        assert_eq!(waiting.len(), megabytes + 1);
    }
}
