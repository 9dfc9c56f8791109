//! Which records a follower is to get.

use penstock_replica::{BrokerId, Epoch, Position, ReplicaId};

/// Records that a follower is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub to: ReplicaId,
    pub broker: BrokerId,
    /// That this replica leads.
    pub epoch: Epoch,
    pub after: Position,
    pub until: Position,
    pub of: Epoch,
    /// At most so many bytes are read together.
    pub bytes_max: usize,
}
