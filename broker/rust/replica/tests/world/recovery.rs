//! An operator who recovers a shard when no replica in sync is left, and brokers that come back with the disks that were counted as lost.
//!
//! The change of the record, and what the host of a halted replica does, are those of `penstock.cluster.recovering`.

use penstock_replica::{Leader, ShardRecord};

use super::{Due, World};

/// An epoch by a recovery is above those before by at least so many: no count of elections is.
const EPOCHS: u64 = 1 << 20;

impl World {
    /// A broker starts, with the disk that it has.
    pub fn start_broker(&mut self, broker: usize) {
        self.after(1, Due::Start { broker });
    }

    /// Lets the replica of a broker lead although others had more, and returns how many entries are lost that were committed. What it has
    /// counts as committed from now on.
    pub fn recover(&mut self, from: usize) -> usize {
        let chosen = self.brokers[from].replica_id;
        let record = self.coordinator.record().clone();
        let up = || self.brokers.iter().filter(|broker| broker.is_up());
        let promised = up().map(|broker| broker.disk.promised).max().unwrap_or(0).max(record.epoch);
        let mut replicas = record.replicas;
        replicas.retain(|_, holder| !up().any(|broker| broker.number as u64 == *holder));
        replicas.extend(up().map(|broker| (broker.replica_id, broker.number as u64)));
        let epoch = (promised / EPOCHS + 1) * EPOCHS;
        let leader = Leader { broker: from as u64, replica: chosen, boot: 0 };
        let in_sync = [chosen].into();
        self.coordinator.replace(ShardRecord { epoch, leader, in_sync, replicas, min_in_sync: 1 });
        self.recovered = epoch;
        self.checks.recover(&self.brokers[from].disk)
    }

    /// Whether a replica has halted because its log is from before the recovery.
    pub(super) fn is_from_before(&self, broker: usize) -> bool {
        let newest = self.brokers[broker].disk.entries.last().map_or(0, |entry| entry.epoch);
        newest < self.recovered
    }

    /// The log of a replica is set aside, and it begins anew.
    pub(super) fn begin_anew(&mut self, broker: usize) {
        self.lose_machine(broker);
        self.lose_disk(broker);
        self.start_broker(broker);
    }
}
