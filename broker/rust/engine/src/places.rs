//! Positions in logs that have to be on the disk before a confirm: after a batch, and of several batches.

use std::fmt;
use std::sync::Arc;

use penstock_log::Position;

use crate::assigned::Assigned;
use crate::error::EngineError;
use crate::shard::Shard;

/// At most one position of each log: the highest.
#[derive(Clone, Default)]
pub struct Places(Vec<(Arc<Shard>, Position)>);

impl Places {
    pub fn add(&mut self, shard: &Arc<Shard>, position: Position) {
        match self.0.iter_mut().find(|(known, _)| Arc::ptr_eq(known, shard)) {
            Some((_, furthest)) => *furthest = position.max(*furthest),
            None => self.0.push((Arc::clone(shard), position)),
        }
    }

    pub fn add_all(&mut self, others: &Places) {
        others.0.iter().for_each(|(shard, position)| self.add(shard, *position));
    }

    /// Whether all of them are on the disk.
    #[must_use]
    pub fn are_synced(&self) -> bool {
        self.0.iter().all(|(shard, position)| shard.synced() >= *position)
    }

    /// Requests the missing syncs.
    pub fn request_sync(&self) {
        let missing = self.0.iter().filter(|(shard, position)| shard.synced() < *position);
        missing.for_each(|(shard, _)| shard.request_sync());
    }

    /// Blocks until all of them are on the disk.
    ///
    /// # Errors
    /// As [`Shard::wait_synced`].
    pub(crate) fn sync(&self) -> Result<(), EngineError> {
        self.0.iter().try_for_each(|(shard, position)| shard.sync_to(*position))
    }

    /// Completes when all of them are on the disk.
    ///
    /// # Errors
    /// As [`Shard::wait_synced`].
    pub async fn wait(&self) -> Result<(), EngineError> {
        for (shard, position) in &self.0 {
            shard.wait_synced(*position).await?;
        }
        Ok(())
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|(shard, position)| (shard.name(), position))).finish()
    }
}

/// Positions of the logs after a batch, for durability `disk`, and what else its publisher may need.
#[derive(Debug, Default)]
pub struct Published {
    /// In the vhost's log; 0 when everything went to others.
    pub end: Position,
    /// In own logs of queues.
    pub elsewhere: Places,
    /// Why the messages without a fate, the last of the batch, and the `Full` ones were not stored: there was no space
    /// for the first of them.
    pub refused: Option<EngineError>,
    /// The sequences of the messages that were stored now, if the publisher asked for them. One that was stored before has
    /// none here.
    pub assigned: Vec<Assigned>,
}

impl Published {
    /// The positions that durability `disk` waits for. `shard` is the one that was published to.
    #[must_use]
    pub fn places(self, shard: &Arc<Shard>) -> Places {
        let mut places = self.elsewhere;
        places.add(shard, self.end);
        places
    }
}
