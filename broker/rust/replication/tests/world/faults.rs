//! Faults, drawn from the seed: each world has its own mix.

use penstock_replica::Link;

use super::dice::Dice;
use super::{BROKERS, Due, Input, World};

pub struct Faults {
    until: u64,
    /// In thousandths, each 100 ms.
    kill: u64,
    cut: u64,
    hand_over: u64,
    slow_disk: u64,
    /// In thousandths, of messages.
    pub loss: u64,
    pub repeats: u64,
    pub flips: u64,
    pub delay: u64,
    cuts: [bool; BROKERS * BROKERS],
}

const EVERY: u64 = 100;

impl Faults {
    pub fn new(dice: &mut Dice, until: u64) -> Faults {
        let mut rate = |highest: usize| if dice.once_in(2) { dice.below(highest + 1) as u64 } else { 0 };
        Faults {
            until,
            kill: 10 + rate(60),
            cut: rate(80),
            hand_over: rate(60),
            slow_disk: rate(100),
            loss: rate(100),
            repeats: rate(100),
            flips: rate(50),
            delay: 2 + rate(200),
            cuts: [false; BROKERS * BROKERS],
        }
    }

    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts[from * BROKERS + to]
    }

    pub fn cut(&mut self, from: usize, to: usize) {
        self.cuts[from * BROKERS + to] = true;
    }

    /// Whether each sync takes up to two seconds from now on.
    pub fn slow_disks(&mut self, are_slow: bool) {
        self.slow_disk = if are_slow { 1_000 } else { 0 };
    }

    pub fn reconnect(&mut self) {
        self.cuts.fill(false);
    }

    pub fn disk_delay(&self, dice: &mut Dice) -> u64 {
        let slowest = if (dice.below(1000) as u64) < self.slow_disk { 2_000 } else { 5 };
        dice.below(slowest) as u64
    }
}

impl World {
    pub(super) fn fault(&mut self) {
        if self.now >= self.faults.until {
            return self.heal();
        }
        let node = self.below(BROKERS as u64) as usize;
        if self.happens(self.faults.kill) && self.nodes[node].replicated.is_some() {
            self.nodes[node].kill(&mut self.dice);
            self.tell(node, Link::Refused);
            let delay = 10 + self.below(3_000);
            self.after(delay, Due::Start { node });
        }
        if self.happens(self.faults.cut) {
            let other = self.below(BROKERS as u64) as usize;
            let is_one_way = self.happens(300);
            self.faults.cut(node, other);
            if !is_one_way {
                self.faults.cut(other, node);
            }
        }
        if self.happens(100) {
            self.faults.reconnect();
            self.tell_up();
        }
        if self.happens(self.faults.hand_over) {
            let to = self.nodes[self.dice.below(BROKERS)].replica;
            self.step(node, Input::HandOver(to));
        }
        self.coordinator.loss = self.faults.loss;
        self.after(EVERY, Due::Fault);
    }

    /// From now on there are no faults.
    fn heal(&mut self) {
        self.faults.reconnect();
        (self.faults.loss, self.faults.repeats, self.faults.flips) = (0, 0, 0);
        // Messages arrive in order then, as on a connection.
        (self.faults.delay, self.faults.slow_disk, self.coordinator.loss) = (1, 0, 0);
        self.tell_up();
    }

    pub(super) fn tell_up(&mut self) {
        for node in 0..BROKERS {
            if self.nodes[node].replicated.is_some() {
                self.tell(node, Link::Up);
            }
        }
    }
}
