//! The reports of a node, which wait for Python's loop. Nothing here waits for the GIL: a report is queued and an eventfd made readable.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use penstock_cluster::{Events, Published, Report, Reports, ShardId, Token};
use penstock_log::{FoldState, LogError, Position};
use penstock_replica::Role;
use rustix::event::{EventfdFlags, eventfd};

use crate::cluster_records::{
    AppendEnded, LogReplaced, NodeEvent, NodeNotice, PeerChanged, ReplicaFailed, RoleChanged,
};

pub(crate) struct NodeEvents {
    waiting: Mutex<Reports<NodeEvent>>,
    wake: OwnedFd,
}

impl NodeEvents {
    pub(crate) fn new() -> std::io::Result<NodeEvents> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(NodeEvents { waiting: Mutex::default(), wake })
    }

    pub(crate) fn wake_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// All that wait, oldest first.
    pub(crate) fn take(&self) -> VecDeque<Report<NodeEvent>> {
        // Nothing to read means that another take was faster.
        let _ = rustix::io::read(self.wake.as_fd(), &mut [0_u8; 8]);
        self.lock().take()
    }

    pub(crate) fn push(&self, event: NodeEvent) {
        self.put(|reports| reports.put(event));
    }

    fn push_of(&self, shard: &ShardId, event: NodeEvent) {
        self.put(|reports| reports.put_of(shard, event));
    }

    fn put(&self, put: impl FnOnce(&mut Reports<NodeEvent>)) {
        put(&mut self.lock());
        // It fails only when the counter is readable already.
        let _ = rustix::io::write(self.wake.as_fd(), &1_u64.to_le_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, Reports<NodeEvent>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Events for NodeEvents {
    fn committed(&self, shard: &ShardId, below: Position) {
        self.put(|reports| reports.commit(shard, below));
    }

    fn ended(&self, shard: &ShardId, publish: Token, how: Published) {
        let is_committed = how == Published::Committed;
        self.push_of(shard, NodeEvent::Ended(AppendEnded { shard: shard.to_vec(), token: publish, is_committed }));
    }

    fn role(&self, shard: &ShardId, role: Role) {
        self.push_of(shard, NodeEvent::Role(RoleChanged { shard: shard.to_vec(), role: role.into() }));
    }

    fn failed(&self, shard: &ShardId, error: &LogError) {
        self.push_of(shard, NodeEvent::Failed(ReplicaFailed { shard: shard.to_vec(), reason: error.to_string() }));
    }

    fn replaced(&self, shard: &ShardId, _: FoldState) {
        self.push_of(shard, NodeEvent::Replaced(LogReplaced { shard: shard.to_vec() }));
    }

    fn noticed(&self, sentence: &str) {
        self.push(NodeEvent::Notice(NodeNotice { text: sentence.to_owned() }));
    }

    fn received(&self, from: u64, shard: &ShardId, content: &[u8]) {
        self.put(|reports| reports.receive(from, shard, content));
    }

    fn linked(&self, broker: u64, is_up: bool) {
        self.push(NodeEvent::Peer(PeerChanged { broker, is_connected: is_up }));
    }
}
