//! A broker of the world: its disk, and its process while there is one.

use penstock_replica::{Epochs, Leader, Millis, Replica, ReplicaId, Role, Settings, Stored};

use super::random::Random;

/// A record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub epoch: u64,
    pub value: u64,
}

#[derive(Debug, Default)]
pub struct Disk {
    pub entries: Vec<Entry>,
    pub synced: u64,
    pub promised: u64,
    pub cuts: u64,
    high_watermark: u64,
}

pub struct Broker {
    pub number: usize,
    pub replica_id: ReplicaId,
    pub disk: Disk,
    /// One life of its replica, which events are for.
    pub boot: u64,
    /// One life of its process, in which the replica may be closed and opened again.
    process: u64,
    pub is_running: bool,
    /// The replica of its disk, unless it is closed.
    pub replica: Option<Replica>,
    /// Whether its disk has a replica.
    pub has_replica: bool,
    pub is_syncing: bool,
    pub paused_until: Millis,
    pub stalled_until: Millis,
    /// Since when it delivers.
    pub delivers_since: Option<Millis>,
    /// The last epoch in which it took publishes.
    served: u64,
}

impl Disk {
    pub fn truncate(&mut self, position: u64) {
        self.entries.truncate(position as usize);
        self.synced = self.synced.min(position);
        self.cuts += 1;
    }

    pub fn write(&mut self, after: u64, until: u64, begins: Option<u64>, entries: &[Entry]) -> Result<(), String> {
        let is_next = self.entries.len() as u64 == after && entries.len() as u64 == until - after;
        let last = self.entries.last().map_or(0, |entry| entry.epoch);
        let first = entries.first().map_or(0, |entry| entry.epoch);
        if !is_next || begins.unwrap_or(last) != first || entries.iter().any(|entry| entry.epoch != first) {
            return Err(format!(
                "{} entries from {after} are written to a log of {}",
                entries.len(),
                self.entries.len()
            ));
        }
        self.entries.extend_from_slice(entries);
        Ok(())
    }

    /// Stores it now and then, and never ahead of the synced log.
    pub fn store_high_watermark(&mut self, position: u64, random: &mut Random) {
        if random.happens(500) {
            self.high_watermark = position.min(self.synced).max(self.high_watermark);
        }
    }

    fn epochs(&self) -> Epochs {
        let mut epochs: Vec<(u64, u64)> = Vec::new();
        for (position, entry) in self.entries.iter().enumerate() {
            if epochs.last().is_none_or(|&(epoch, _)| epoch < entry.epoch) {
                epochs.push((entry.epoch, position as u64));
            }
        }
        Epochs::new(epochs)
    }
}

impl Broker {
    pub fn blank(number: usize) -> Broker {
        Broker {
            number,
            replica_id: 100 + number as u128,
            disk: Disk::default(),
            boot: 0,
            process: 0,
            is_running: false,
            replica: None,
            has_replica: false,
            is_syncing: false,
            paused_until: 0,
            stalled_until: 0,
            delivers_since: None,
            served: 0,
        }
    }

    pub fn is_up(&self) -> bool {
        self.is_running
    }

    pub fn start(&mut self) {
        self.boot += 1;
        self.process += 1;
        self.is_running = true;
    }

    /// Opens its replica, which begins anew where the disk has none.
    pub fn open(&mut self, now: Millis, settings: Settings) {
        self.has_replica = true;
        let me = Leader { broker: self.number as u64, replica: self.replica_id, boot: self.process };
        let stored = Stored {
            promised: self.disk.promised,
            epochs: self.disk.epochs(),
            end: self.disk.entries.len() as u64,
            high_watermark: self.disk.high_watermark,
        };
        self.replica = Some(Replica::new(me, stored, settings, now));
    }

    /// The process dies, and the machine may forget what was not synced.
    pub fn kill(&mut self, random: &mut Random) {
        let unsynced = self.disk.entries.len() as u64 - self.disk.synced;
        let kept = self.disk.synced + random.below(unsynced + 1);
        self.disk.entries.truncate(kept as usize);
        self.close();
        (self.is_running, self.paused_until) = (false, 0);
    }

    /// Closes its replica: everything is on the disk then.
    pub fn close(&mut self) {
        self.disk.synced = self.disk.entries.len() as u64;
        self.replica = None;
        self.boot += 1;
        self.delivers_since = None;
        self.is_syncing = false;
    }

    /// The process that leads by a record.
    pub fn is_leader(&self, leader: Leader) -> bool {
        let me = Leader { broker: self.number as u64, replica: self.replica_id, boot: self.process };
        self.is_running && leader == me
    }

    /// The disk is lost; a blank one has a new identity.
    pub fn lose_disk(&mut self, new: ReplicaId) {
        self.disk = Disk::default();
        self.replica_id = new;
        self.has_replica = false;
    }

    /// The epoch that it leads.
    pub fn leads(&self) -> Option<u64> {
        match self.replica.as_ref()?.role() {
            Role::Leader { epoch, .. } => Some(epoch),
            _ => None,
        }
    }

    /// The epoch in which it takes publishes.
    pub fn appends_in(&self) -> Option<u64> {
        match self.replica.as_ref()?.role() {
            Role::Leader { epoch, appends: true, .. } => Some(epoch),
            _ => None,
        }
    }

    /// The epoch in which clients publish to it. A host that does not pause them takes publishes during a hand-over, too.
    pub fn serves_in(&mut self, pauses: bool) -> Option<u64> {
        match self.replica.as_ref()?.role() {
            Role::Leader { epoch, appends: true, .. } => self.served = epoch,
            Role::Leader { epoch, .. } if !pauses && epoch == self.served => (),
            _ => return None,
        }
        Some(self.served)
    }
}
