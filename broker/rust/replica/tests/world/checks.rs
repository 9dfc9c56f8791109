//! Promises that are checked after every step.
//!
//! A committed entry never changes and is on the disk of every replica that is in sync; each leader has all of them; an epoch
//! has one leader; no replica halts; and where clocks and processes behave, two leaders never deliver at once.

use std::collections::BTreeMap;

use penstock_replica::{Millis, Role, ShardRecord};

use super::TICK;
use super::broker::{Broker, Disk, Entry};

#[derive(Default)]
pub struct Checks {
    pub committed: Vec<Entry>,
    /// How much leaders of each epoch have committed: entries of earlier epochs, too.
    committed_by: BTreeMap<u64, usize>,
    leaders: BTreeMap<u64, (usize, u64)>,
    pub expects_one_deliverer: bool,
    /// When each broker stopped delivering last.
    stopped: BTreeMap<usize, Millis>,
}

impl Checks {
    pub fn begin(&mut self, epoch: u64, broker: usize, boot: u64, disk: &Disk) -> Result<(), String> {
        let leader = *self.leaders.entry(epoch).or_insert((broker, boot));
        if leader != (broker, boot) {
            return Err(format!("epoch {epoch} is begun by broker {broker} and by broker {}", leader.0));
        }
        self.is_complete(broker, epoch, disk)
    }

    pub fn commit(
        &mut self,
        broker: usize,
        position: u64,
        leads: Option<u64>,
        brokers: &[Broker],
        record: &ShardRecord,
    ) -> Result<(), String> {
        let entries = &brokers[broker].disk.entries;
        if entries.len() < position as usize {
            return Err(format!("broker {broker} commits {position} with a log of {}", entries.len()));
        }
        let known = self.committed.len().min(position as usize);
        if entries[..known] != self.committed[..known] {
            return Err(format!("broker {broker} has other entries below {position} than are committed"));
        }
        if let Some(epoch) = leads {
            let until = self.committed_by.entry(epoch).or_default();
            *until = (*until).max(position as usize);
        }
        if position as usize <= self.committed.len() {
            return Ok(());
        }
        if leads.is_none() {
            return Err(format!("broker {broker} follows and commits {position} before a leader did"));
        }
        self.committed.extend_from_slice(&entries[known..position as usize]);
        for other in brokers.iter().filter(|other| record.in_sync.contains(&other.replica_id)) {
            let is_there = other.disk.synced >= position && other.disk.entries[..position as usize] == self.committed;
            if !is_there {
                return Err(format!("{position} is committed without the disk of broker {}", other.number));
            }
        }
        Ok(())
    }

    /// What a replica has is committed from now on, and no more; returns how many entries are lost.
    pub fn recover(&mut self, disk: &Disk) -> usize {
        let kept = self.committed.iter().zip(&disk.entries).take_while(|(one, other)| one == other).count();
        let lost = self.committed.len() - kept;
        self.committed.clone_from(&disk.entries);
        self.committed_by.clear();
        lost
    }

    pub fn role(&mut self, now: Millis, broker: usize, role: Role, of: &mut Broker) -> Result<(), String> {
        let delivers = matches!(role, Role::Leader { delivers: true, .. });
        if let Role::Halted(why) = role {
            return Err(format!("broker {broker} halts: {why:?}"));
        }
        if delivers && of.delivers_since.is_none() {
            of.delivers_since = Some(now);
        } else if !delivers && of.delivers_since.take().is_some() {
            self.stopped.insert(broker, now);
        }
        Ok(())
    }

    /// Whether two brokers have delivered at once for longer than it takes to see that time has passed.
    pub fn deliverers(&self, now: Millis, brokers: &[Broker]) -> Result<(), String> {
        let mut since: Vec<(Millis, usize)> =
            brokers.iter().filter_map(|broker| Some((broker.delivers_since?, broker.number))).collect();
        since.sort_unstable();
        match since[..] {
            [(_, one), (second, other), ..] if self.expects_one_deliverer && now > second + TICK => {
                Err(format!("brokers {one} and {other} deliver at once"))
            }
            _ => Ok(()),
        }
    }

    /// A leader has what the leaders before it committed. One that stores its promise slowly begins late: leaders of later epochs may
    /// have committed more by then, also entries that are older than its epoch.
    fn is_complete(&self, broker: usize, epoch: u64, disk: &Disk) -> Result<(), String> {
        let before = self.committed_by.range(..epoch).map(|(_, &until)| until).max().unwrap_or(0);
        if disk.entries.starts_with(&self.committed[..before]) {
            return Ok(());
        }
        Err(format!("broker {broker} leads without all that is committed"))
    }
}
