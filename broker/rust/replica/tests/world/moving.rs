//! Replicas that move: an operator places them on other brokers, each broker hears of that late, opens its replica or closes it, and
//! deletes one that has left, as the host of the real replicas does.

use std::collections::BTreeSet;

use penstock_replica::{Event, Message, ReplicaId, Role, ShardRecord, minimum_of};

use super::random::Random;
use super::{Due, World};

const LOOK_EVERY: u64 = 300;

pub struct Moving {
    /// Of its own, so that other worlds are as they were.
    random: Random,
    /// In thousandths, each 100 ms.
    rate: u64,
    /// Each placement that there was; the last one counts.
    placements: Vec<BTreeSet<u64>>,
    /// The number of the placement that each broker knows.
    known: Vec<usize>,
    /// Replicas whose disks were deleted because they had left.
    released: BTreeSet<ReplicaId>,
    /// Whether a leader has handed over: one that gives that up may deliver beside the next one.
    has_handed_over: bool,
}

impl World {
    /// Lets replicas move: the shard begins on the first brokers, so many of them.
    pub fn let_replicas_move(&mut self, seed: u64, first: usize) {
        let mut random = Random::new(seed ^ 0x6d6f_7665);
        let rate = 2 + random.below(30);
        let brokers = self.brokers.len();
        let placements = vec![(0..first as u64).collect()];
        let mut record = self.coordinator.record().clone();
        record.replicas.retain(|_, broker| *broker < first as u64);
        record.in_sync.retain(|replica| record.replicas.contains_key(replica));
        self.coordinator.replace(record);
        self.moving = Some(Moving {
            random,
            rate,
            placements,
            known: vec![0; brokers],
            released: BTreeSet::new(),
            has_handed_over: false,
        });
        for broker in 0..brokers {
            self.after(1, Due::Look { broker });
        }
    }

    /// The brokers that are to have a replica.
    pub fn placed(&self) -> BTreeSet<u64> {
        self.moving.as_ref().and_then(|moving| moving.placements.last().cloned()).unwrap_or_default()
    }

    /// How many placements there were, and how many disks were deleted.
    pub fn moved(&self) -> (usize, usize) {
        self.moving.as_ref().map_or((0, 0), |moving| (moving.placements.len(), moving.released.len()))
    }

    /// An operator chooses other brokers now and then.
    pub(super) fn move_replicas(&mut self) {
        let (mut placed, count) = (self.placed(), self.brokers.len() as u64);
        let Some(moving) = &mut self.moving else { return };
        if !moving.random.happens(moving.rate) {
            return;
        }
        for _ in 0..moving.random.below(3) {
            placed.remove(&moving.random.below(count));
        }
        for _ in 0..moving.random.below(3) {
            placed.insert(moving.random.below(count));
        }
        if placed.is_empty() {
            placed.insert(moving.random.below(count));
        }
        self.place(placed);
    }

    /// An operator chooses the brokers that are to have a replica.
    pub fn place(&mut self, placed: BTreeSet<u64>) {
        let Some(moving) = &mut self.moving else { return };
        moving.placements.push(placed);
        let version = moving.placements.len() as u64 - 1;
        for broker in 0..self.brokers.len() {
            let delay = self.moving.as_mut().map_or(0, |moving| moving.random.below(4_000));
            self.after(delay, Due::Placed { broker, version });
        }
    }

    /// A broker hears of a placement; one that is away does so later.
    pub(super) fn hear_placed(&mut self, broker: usize, version: u64) -> Result<(), String> {
        if !self.brokers[broker].is_up() {
            self.after(1_000, Due::Placed { broker, version });
            return Ok(());
        }
        let Some(moving) = &mut self.moving else { return Ok(()) };
        moving.known[broker] = moving.known[broker].max(version as usize);
        self.tell_placed(broker)
    }

    pub(super) fn tell_placed(&mut self, broker: usize) -> Result<(), String> {
        let Some(placed) = self.known_by(broker) else { return Ok(()) };
        self.step(broker, self.brokers[broker].boot, Event::Placed(placed), &[])
    }

    fn known_by(&self, broker: usize) -> Option<BTreeSet<u64>> {
        let moving = self.moving.as_ref()?;
        moving.placements.get(moving.known[broker]).cloned()
    }

    /// Whether a broker has a replica, or is to have one, as far as it knows. Without the coordinator it keeps what it has.
    pub(super) fn has_part(&self, broker: usize) -> bool {
        let Some(placed) = self.known_by(broker) else { return true };
        let node = &self.brokers[broker];
        let is_named = self.coordinator.is_out || self.coordinator.record().replicas.contains_key(&node.replica_id);
        placed.contains(&(broker as u64)) || (node.has_replica && is_named)
    }

    /// A broker opens or closes its replica, and as the leader it hands over where it is not to have one.
    pub(super) fn look(&mut self, broker: usize) -> Result<(), String> {
        self.after(LOOK_EVERY, Due::Look { broker });
        let node = &self.brokers[broker];
        if !node.is_up() || node.paused_until > self.now {
            return Ok(());
        }
        match (self.has_part(broker), node.replica.is_some(), node.has_replica) {
            (true, false, _) => return self.open(broker),
            (false, true, _) => {
                self.checks.role(self.now, broker, Role::Follower { of: None }, &mut self.brokers[broker])?;
                self.brokers[broker].close();
            }
            (false, false, true) => self.begin_release(broker),
            _ => (),
        }
        self.ask_for_majority(broker);
        self.leave_lead(broker)
    }

    pub(super) fn has_handed_over(&self) -> bool {
        self.moving.as_ref().is_some_and(|moving| moving.has_handed_over)
    }

    /// As the host does whose broker leads.
    fn ask_for_majority(&mut self, broker: usize) {
        let mut record = self.coordinator.record().clone();
        let minimum = minimum_of(record.brokers().len());
        let is_due = record.min_in_sync < minimum && record.in_sync.len() >= minimum;
        if is_due && !self.coordinator.is_out && self.brokers[broker].is_leader(record.leader) {
            record.min_in_sync = minimum;
            self.coordinator.replace(record);
        }
    }

    fn leave_lead(&mut self, broker: usize) -> Result<(), String> {
        let Some(placed) = self.known_by(broker) else { return Ok(()) };
        let node = &self.brokers[broker];
        let Some(record) = node.replica.as_ref().and_then(|replica| replica.record()) else { return Ok(()) };
        if node.leads().is_none() || !is_last_to_leave(record, &placed, broker as u64) {
            return Ok(());
        }
        let heirs: Vec<ReplicaId> = record.in_sync.iter().copied().filter(|&each| each != node.replica_id).collect();
        self.moving.iter_mut().for_each(|moving| moving.has_handed_over = true);
        self.checks.expects_one_deliverer = false;
        let node = &self.brokers[broker];
        let (boot, to) = (node.boot, heirs[self.random_below(heirs.len() as u64) as usize]);
        self.step(broker, boot, Event::HandOver(to), &[])
    }

    /// A broker asks the leader whether it has an acknowledgement of a replica that is closed, after all that were sent before.
    fn begin_release(&mut self, broker: usize) {
        let replica = self.brokers[broker].replica_id;
        let Some((leader, epoch)) = self.brokers.iter().find_map(|each| Some((each, each.leads()?))) else { return };
        let has_acknowledged = |each: &super::Broker| {
            each.replica.iter().flat_map(|each| each.acknowledged()).any(|(acknowledged, _)| acknowledged == replica)
        };
        let is_on_its_way = self.agenda.iter().any(|std::cmp::Reverse((_, _, due))| match due {
            Due::ToReplica { broker: to, boot, event, .. } if *to == leader.number && *boot == leader.boot => {
                matches!(**event, Event::Received { message: Message::Acknowledge { replica: of, .. }, .. } if of == replica)
            }
            _ => false,
        });
        if !has_acknowledged(leader) && !is_on_its_way {
            let boot = self.brokers[broker].boot;
            self.after(10, Due::Release { broker, boot, epoch, is_read: false });
        }
    }

    /// It reads the record after that, and deletes the disk if that leader still leads and the record does not name the replica.
    pub(super) fn go_on_releasing(
        &mut self,
        broker: usize,
        boot: u64,
        epoch: u64,
        is_read: bool,
    ) -> Result<(), String> {
        let (node, record) = (&self.brokers[broker], self.coordinator.record());
        if node.boot != boot || node.replica.is_some() {
            return Ok(());
        }
        let released = node.replica_id;
        let is_gone = record.epoch == epoch && !record.replicas.contains_key(&released);
        if !is_read && is_gone && !self.coordinator.is_out {
            self.after(10, Due::Release { broker, boot, epoch, is_read: true });
        }
        if is_read {
            self.lose_disk(broker);
            self.moving.iter_mut().for_each(|moving| _ = moving.released.insert(released));
            return self.check_disks_of(&self.coordinator.record().clone());
        }
        Ok(())
    }

    /// No disk that was deleted on purpose is in sync.
    pub(super) fn check_disks_of(&self, record: &ShardRecord) -> Result<(), String> {
        match self.moving.as_ref().and_then(|moving| record.in_sync.iter().find(|each| moving.released.contains(each)))
        {
            Some(replica) => Err(format!("replica {replica} is in sync, and its disk was deleted")),
            None => Ok(()),
        }
    }
}

/// Whether all replicas are where they are to be, but for that of a broker.
fn is_last_to_leave(record: &ShardRecord, placed: &BTreeSet<u64>, broker: u64) -> bool {
    let mut brokers = record.brokers();
    let are_in_sync = record.in_sync.len() == record.replicas.len();
    brokers.remove(&broker) && are_in_sync && !placed.contains(&broker) && brokers == *placed
}
