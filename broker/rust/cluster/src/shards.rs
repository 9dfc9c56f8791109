//! The replicas that are open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::questions::ShardId;
use crate::shard::Shard;

/// See the module.
#[derive(Default)]
pub(crate) struct Shards {
    open: Mutex<HashMap<ShardId, Arc<Shard>>>,
}

impl Shards {
    pub fn get(&self, id: &ShardId) -> Option<Arc<Shard>> {
        lock(&self.open).get(id).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Shard>> {
        lock(&self.open).values().cloned().collect()
    }

    /// Opens a replica for events.
    pub fn add(&self, shard: &Arc<Shard>) {
        lock(&self.open).insert(*shard.id(), Arc::clone(shard));
    }

    /// Takes a replica out, so that no event reaches it any more.
    pub fn remove(&self, id: &ShardId) -> Option<Arc<Shard>> {
        lock(&self.open).remove(id)
    }

    pub fn clear(&self) {
        lock(&self.open).clear();
    }
}
