//! Between connections and replicas: frames that come go to the shard that they name, and a connection that can take a frame gets the next
//! one.

use std::sync::Arc;

use bytes::Bytes;
use penstock_peers::{Frame, Link, Traffic};
use penstock_replica::BrokerId;
use penstock_replication::wire;

use crate::outbox::Next;
use crate::shard::Shared;
use crate::shards::Shards;

pub(crate) struct NodeTraffic {
    pub shards: Arc<Shards>,
    pub shared: Arc<Shared>,
}

impl Traffic for NodeTraffic {
    fn next(&self, to: BrokerId) -> Option<Frame> {
        loop {
            match self.shared.outboxes.next(to)? {
                Next::Message(head) => return Some(Frame { head, body: Bytes::new() }),
                Next::Records(shard, replica) => {
                    let mut frame = None;
                    if let Some(shard) = self.shards.get(&shard) {
                        shard.guard(|shard| frame = shard.ship(replica));
                    }
                    if frame.is_some() {
                        return frame;
                    }
                }
            }
        }
    }

    fn received(&self, from: BrokerId, frame: Bytes) {
        match wire::decode(&frame) {
            Ok(wire::Frame::Message { log_id, message, records }) => {
                // A replica that is not opened yet, or that has moved away, says nothing.
                if let Some(shard) = self.shards.get(&log_id) {
                    let records = frame.slice_ref(records);
                    shard.guard(|shard| shard.receive(from, message, records));
                }
            }
            Ok(wire::Frame::Copy { log_id, message }) => {
                if let Some(shard) = self.shards.get(&log_id) {
                    shard.take_copy(from, message);
                }
            }
            Ok(wire::Frame::Host { log_id, content }) => self.shared.events.received(from, &log_id, content),
            Err(error) => self.shared.events.noticed(&format!("broker {from} sent a frame that is refused: {error}")),
        }
    }

    fn link(&self, broker: BrokerId, link: Link) {
        let link = match link {
            Link::Up { protocol } => {
                self.shared.outboxes.connected(broker, protocol);
                penstock_replica::Link::Up
            }
            Link::Down => {
                self.shared.outboxes.disconnected(broker);
                penstock_replica::Link::Down
            }
            Link::Refused => penstock_replica::Link::Refused,
        };
        self.shared.links.set(broker, link);
        for shard in self.shards.all() {
            shard.guard(|shard| shard.linked(broker, link));
        }
        self.shared.events.linked(broker, link == penstock_replica::Link::Up);
    }

    fn failed(&self, broker: BrokerId, reason: &str) {
        self.shared.events.noticed(&format!("broker {broker} is not connected: {reason}"));
    }
}
