//! Faults of a script, in a world that has none of its own: who leads, and what happens to which broker.

use std::cmp::Reverse;

use penstock_log::Target;
use penstock_queue::Sequence;
use penstock_replica::{Link, Role};

use super::crashed::Crash;
use super::dice::Dice;
use super::{BROKERS, Due, Image, QUEUE, World};

/// No broker leads for this time at most.
const LEADS_WITHIN: u64 = 20_000;

impl World {
    /// A world without faults in which a broker leads, and publishes are confirmed.
    pub fn calm(seed: u64) -> World {
        let mut world = World::new(seed, 0);
        world.run_until(3_000);
        world.leader();
        assert!(world.confirmed_count() > 0, "nothing is confirmed");
        world
    }

    pub fn run_for(&mut self, time: u64) {
        self.run_until(self.now + time);
    }

    /// The broker that takes publishes, once one does.
    pub fn leader(&mut self) -> usize {
        let began = self.now;
        loop {
            if let Some(leader) = (0..BROKERS).find(|&node| self.leads(node)) {
                return leader;
            }
            assert!(self.now < began + LEADS_WITHIN, "no broker leads");
            self.run_for(50);
        }
    }

    pub fn leads(&self, node: usize) -> bool {
        let replicated = self.nodes[node].replicated.as_ref().filter(|_| self.nodes[node].paused_until <= self.now);
        replicated.is_some_and(|found| matches!(found.role(), Role::Leader { appends: true, .. }))
    }

    /// The two brokers that do not lead.
    pub fn followers(&mut self) -> (usize, usize) {
        let leader = self.leader();
        ((leader + 1) % BROKERS, (leader + 2) % BROKERS)
    }

    /// Ends a process, and perhaps the power of its machine. The others hear that its port refuses connections, as after a kill.
    pub fn crash(&mut self, node: usize, crash: Crash) {
        self.nodes[node].crash(crash, &mut self.dice);
        self.tell(node, Link::Refused);
    }

    /// Ends a process, and changes one of its files.
    pub fn damage(&mut self, node: usize, damage: impl FnOnce(&mut Image, &mut Dice)) {
        self.nodes[node].damage(damage, &mut self.dice);
        self.damaged.insert(node);
        self.tell(node, Link::Refused);
    }

    /// Whether syncs take long from now on, so that much is written and not synced.
    pub fn slow_disks(&mut self, are_slow: bool) {
        self.faults.slow_disks(are_slow);
    }

    /// Starts a broker with the files that it has.
    pub fn restart(&mut self, node: usize) {
        self.after(1, Due::Start { node });
    }

    /// Lets a process stand still; it is told nothing meanwhile, and everything later.
    pub fn pause(&mut self, node: usize) {
        self.nodes[node].paused_until = u64::MAX;
    }

    pub fn go_on(&mut self, node: usize) {
        self.nodes[node].paused_until = self.now;
        for Reverse((at, number, due)) in std::mem::take(&mut self.agenda).into_vec() {
            let at = if at == u64::MAX { self.now } else { at };
            self.agenda.push(Reverse((at, number, due)));
        }
    }

    /// Cuts a broker off from the others, in both directions.
    pub fn isolate(&mut self, node: usize) {
        for other in (0..BROKERS).filter(|other| *other != node) {
            self.faults.cut(node, other);
            self.faults.cut(other, node);
        }
    }

    pub fn reconnect(&mut self) {
        self.faults.reconnect();
        self.tell_up();
    }

    pub fn in_sync(&self) -> Vec<usize> {
        let record = self.coordinator.record();
        record.in_sync.iter().map(|replica| record.replicas[replica] as usize).collect()
    }

    /// Reads all confirmed messages at a broker, as a leader does before it delivers them. Returns how many of them its disk has changed;
    /// none is read with other bytes than were published.
    pub fn changed_at(&mut self, node: usize) -> usize {
        let log = self.nodes[node].replicated.as_mut().unwrap().log();
        let mut changed = 0;
        for &token in &self.confirmed {
            let located = log.locate(QUEUE, Sequence(token), 1).unwrap().unwrap();
            let target = Target { queue: QUEUE, sequence: Sequence(token) };
            match located.segment.message_for(located.offsets[0], target) {
                Ok(message) => assert!(message.body.iter().all(|&byte| byte == token as u8), "broker {node}: {token}"),
                Err(_) => changed += 1,
            }
        }
        changed
    }
}
