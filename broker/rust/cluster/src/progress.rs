//! How far the replicas of a shard are, as its leader knows it.

use penstock_log::Position;
use penstock_replica::{Epoch, ReplicaId, Role};

use crate::shard::Shard;

/// All of it is of the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub epoch: Epoch,
    pub end: Position,
    /// Everything below is committed.
    pub committed: Position,
    /// Up to where the other replicas have acknowledged the log. Those that have acknowledged nothing in this epoch are left out.
    pub acknowledged: Vec<(ReplicaId, Position)>,
}

impl Shard {
    /// `None` where this replica does not lead, or is not open.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        self.lock().as_mut()?.act(|replicator, log| {
            let Role::Leader { epoch, .. } = replicator.role() else { return None };
            let acknowledged = replicator.acknowledged();
            Some(Progress { epoch, end: log.end(), committed: log.bound(), acknowledged })
        })
    }
}
