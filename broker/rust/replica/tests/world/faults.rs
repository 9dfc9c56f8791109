//! Faults, drawn from the seed: each world has its own mix, so that some are calm in most respects.

use penstock_replica::{Event, Link, Millis, Settings};

use super::random::Random;
use super::{Due, World};

pub struct Faults {
    until: Millis,
    /// In thousandths, each 100 ms.
    kill: u64,
    lose_disk: u64,
    pub pause: u64,
    cut: u64,
    reconnect: u64,
    outage: u64,
    pub hand_over: u64,
    slow_disk: u64,
    stall: u64,
    loss: u64,
    repeats: u64,
    delay: Millis,
    coordinator_loss: u64,
    coordinator_delay: Millis,
    next_replica: u128,
}

const EVERY: Millis = 100;

impl Faults {
    pub fn new(random: &mut Random, until: Millis) -> Faults {
        let mut rate = |highest: u64| if random.happens(500) { random.below(highest + 1) } else { 0 };
        Faults {
            until,
            kill: rate(60),
            lose_disk: rate(200),
            pause: rate(40),
            cut: rate(80),
            reconnect: 5 + rate(200),
            outage: rate(30),
            hand_over: rate(60),
            slow_disk: rate(100),
            loss: rate(100),
            repeats: rate(100),
            delay: 2 + rate(300),
            coordinator_loss: rate(400),
            coordinator_delay: 10 + rate(1_500),
            stall: rate(5),
            next_replica: 1_000,
        }
    }

    pub fn sync_delay(&self, random: &mut Random) -> Millis {
        if random.happens(self.stall) {
            return 4_000 + random.below(8_000);
        }
        if random.happens(self.slow_disk) { random.below(3_000) } else { random.below(5) }
    }

    /// Times that are wrong in some worlds: no promise depends on them.
    pub fn settings(random: &mut Random) -> Settings {
        let suspect_after = random.one_of(&[200, 600, 3_000, 3_000]);
        let (shrink_after, tells_at_once) = random.one_of(&[(500, false), (500, true), (5_000, false), (5_000, true)]);
        Settings { suspect_after, shrink_after, window: 64, tells_at_once, ..Settings::default() }
    }

    /// Whether clocks and processes behave so well that two leaders never deliver at once.
    pub fn are_mild(&self) -> bool {
        self.pause == 0 && self.hand_over == 0
    }
}

impl World {
    pub(super) fn fault(&mut self) -> Result<(), String> {
        if self.now >= self.faults.until {
            return self.heal();
        }
        self.checks.expects_one_deliverer = self.faults.are_mild() && !self.has_handed_over();
        (self.network.loss, self.network.repeats) = (self.faults.loss, self.faults.repeats);
        (self.network.delay, self.coordinator.loss) = (self.faults.delay, self.faults.coordinator_loss);
        self.coordinator.delay = self.faults.coordinator_delay;
        let count = self.brokers.len();
        let one = self.random.below(count as u64) as usize;
        if self.random.happens(self.faults.kill) {
            self.kill(one);
        }
        if self.random.happens(self.faults.pause) && self.brokers[one].is_up() {
            self.brokers[one].paused_until = self.now + self.random.below(8_000);
        }
        if self.random.happens(self.faults.cut) {
            self.cut(one);
        }
        if self.random.happens(self.faults.reconnect) {
            self.network.heal();
            self.tell_links();
        }
        if self.random.happens(100) {
            self.end_session(one);
        }
        if self.random.happens(self.faults.outage) {
            self.coordinator.is_out = true;
        } else if self.random.happens(50) {
            self.coordinator.is_out = false;
        }
        if self.random.happens(self.faults.hand_over) {
            let to = self.random.below(count as u64) as usize;
            self.hand_over(one, to)?;
        }
        self.move_replicas();
        self.after(EVERY, Due::Fault);
        Ok(())
    }

    /// A broker's machine dies for good, and no other broker is told so.
    pub fn lose_machine(&mut self, broker: usize) {
        self.brokers[broker].kill(&mut self.random);
    }

    /// The disk of a broker that is down is lost.
    pub fn lose_disk(&mut self, broker: usize) {
        self.faults.next_replica += 1;
        self.brokers[broker].lose_disk(self.faults.next_replica);
    }

    /// Loses so many of a thousand messages from now on.
    pub fn lose_messages(&mut self, per_thousand: u64) {
        self.network.loss = per_thousand;
    }

    /// Leaves to each broker the connections to the one before and the one after it: of five, each reaches another majority.
    pub fn cut_to_ring(&mut self) {
        let count = self.brokers.len();
        for one in 0..count {
            for other in (0..count).filter(|other| *other != one) {
                if (one + 1) % count != other && (other + 1) % count != one {
                    self.network.cut(one, other);
                }
            }
        }
    }

    /// All connections work again.
    pub fn reconnect(&mut self) {
        self.network.heal();
        self.tell_links();
    }

    /// The disk of a broker takes nothing for a while.
    pub fn stall_disk(&mut self, broker: usize, until: Millis) {
        self.brokers[broker].stalled_until = until;
    }

    fn kill(&mut self, broker: usize) {
        if !self.brokers[broker].is_up() {
            return;
        }
        self.brokers[broker].kill(&mut self.random);
        if self.random.happens(self.faults.lose_disk) && self.may_lose_disk(broker) {
            self.lose_disk(broker);
        }
        self.tell(broker, Link::Refused);
        let delay = 10 + self.random.below(6_000);
        self.after(delay, Due::Start { broker });
    }

    /// The coordinator ends the session of a broker that it has not heard.
    fn end_session(&mut self, of: usize) {
        let is_alive = self.brokers[of].is_up() && self.brokers[of].paused_until <= self.now;
        for broker in (0..self.brokers.len()).filter(|broker| *broker != of) {
            let (boot, event) = (self.brokers[broker].boot, Event::Session { broker: of as u64, is_alive });
            self.after(5, Due::ToReplica { broker, boot, event: Box::new(event), entries: Vec::new() });
        }
    }

    /// Each set that counts, or may soon, keeps another disk.
    fn may_lose_disk(&self, broker: usize) -> bool {
        let lost = self.brokers[broker].replica_id;
        let sets = self.coordinator.on_their_way.iter().chain([self.coordinator.record()]);
        sets.into_iter().all(|record| self.disks().any(|disk| disk != lost && record.in_sync.contains(&disk)))
    }

    /// Cuts a broker off, from all or from some of the others, in both directions or in one.
    fn cut(&mut self, one: usize) {
        let (is_one_way, share) = (self.random.happens(300), self.random.one_of(&[300, 1_000]));
        for other in (0..self.brokers.len()).filter(|other| *other != one) {
            if self.random.happens(share) {
                self.network.cut(one, other);
                if !is_one_way {
                    self.network.cut(other, one);
                }
            }
        }
        if self.random.happens(500) {
            self.tell_links();
        }
    }

    /// Reports to processes which of their connections are broken.
    fn tell_links(&mut self) {
        for broker in 0..self.brokers.len() {
            for other in 0..self.brokers.len() {
                if broker != other && self.brokers[broker].is_up() {
                    let is_cut = self.network.is_cut(broker, other) || self.network.is_cut(other, broker);
                    let is_up = self.brokers[other].is_up();
                    let link = if is_cut {
                        Link::Down
                    } else if is_up {
                        Link::Up
                    } else {
                        Link::Refused
                    };
                    self.link(broker, other, link);
                }
            }
        }
    }

    fn tell(&mut self, about: usize, link: Link) {
        for broker in (0..self.brokers.len()).filter(|broker| *broker != about) {
            if self.brokers[broker].is_up() && !self.network.is_cut(broker, about) {
                self.link(broker, about, link);
            }
        }
    }

    fn link(&mut self, broker: usize, other: usize, link: Link) {
        let boot = self.brokers[broker].boot;
        let event = Box::new(Event::Link(other as u64, link));
        self.after(5, Due::ToReplica { broker, boot, event, entries: Vec::new() });
    }

    /// From now on there are no faults, and every broker runs.
    fn heal(&mut self) -> Result<(), String> {
        self.network.heal();
        (self.network.loss, self.network.repeats, self.network.delay) = (0, 0, 2);
        (self.coordinator.is_out, self.coordinator.loss, self.coordinator.delay) = (false, 0, 10);
        (self.faults.slow_disk, self.faults.stall) = (0, 0);
        for broker in &mut self.brokers {
            broker.paused_until = 0;
        }
        self.tell_links();
        Ok(())
    }
}
