//! The record of a shard that the coordinator stores, and the outcome of changing it.
//!
//! It changes only by compare-and-set on its version, never on its epoch alone (rule 9).

use std::collections::{BTreeMap, BTreeSet};

use crate::{Boot, BrokerId, Epoch, ReplicaId};

/// The leader of a shard, and the replicas that have everything that is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardRecord {
    pub epoch: Epoch,
    pub leader: Leader,
    /// Each of them has every committed record on its disk.
    pub in_sync: BTreeSet<ReplicaId>,
    /// All replicas with their brokers; those that are not in sync are learners.
    pub replicas: BTreeMap<ReplicaId, BrokerId>,
    /// The in-sync set never shrinks below this number (rule 10).
    pub min_in_sync: usize,
}

impl ShardRecord {
    /// The brokers with a replica.
    #[must_use]
    pub fn brokers(&self) -> BTreeSet<BrokerId> {
        self.replicas.values().copied().collect()
    }
}

/// The process that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    pub broker: BrokerId,
    pub replica: ReplicaId,
    pub boot: Boot,
}

/// The version of a record. Only equality counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(pub u64);

/// The coordinator's answer to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Changed(Version),
    /// The record has another version than the change expects.
    Conflict,
    /// No answer came: the change may have been made, or may still be.
    Unknown,
}
