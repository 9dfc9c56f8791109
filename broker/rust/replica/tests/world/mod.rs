//! A world of brokers with replicas of one shard, drawn from a seed: a virtual clock, a network that loses, repeats,
//! delays and cuts, disks that forget what was not synced or are lost, a coordinator that answers late or not at all, and
//! processes that are killed and paused.
//!
//! The replicas are the real ones. Their logs are lists of entries, so a position is a number of entries. Everything is
//! checked at each step by `checks.rs`.

mod broker;
mod checks;
mod coordinator;
mod faults;
mod moving;
mod network;
mod random;
mod recovery;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use penstock_replica::{Effect, Event, Halt, Leader, Link, Message, Millis, ReplicaId, Role, Settings, ShardRecord};

pub use broker::{Broker, Entry};
use checks::Checks;
use coordinator::{Coordinator, Request};
use faults::Faults;
use moving::Moving;
use network::Network;
use random::Random;

pub const TICK: Millis = 50;

/// How a world is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub brokers: usize,
    pub min_in_sync: usize,
    /// How long faults go on, before everything heals.
    pub troubled_for: Millis,
}

pub struct World {
    pub now: Millis,
    random: Random,
    pub brokers: Vec<Broker>,
    pub coordinator: Coordinator,
    network: Network,
    faults: Faults,
    settings: Settings,
    pub checks: Checks,
    agenda: BinaryHeap<Reverse<(Millis, u64, Due)>>,
    number: u64,
    /// Whether clients are paused during a hand-over.
    pauses: bool,
    /// A broker that is drained.
    drained: Option<usize>,
    /// The epoch of the record by the last recovery.
    recovered: u64,
    /// Where replicas are to be, in worlds in which they move.
    moving: Option<Moving>,
    is_traced: bool,
}

/// Something that happens at a time. `boot` is that of the process that it is for; another one does not get it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Due {
    ToReplica { broker: usize, boot: u64, event: Box<Event>, entries: Vec<Entry> },
    SyncDone { broker: usize, boot: u64, until: u64, cuts: u64 },
    PromiseDone { broker: usize, boot: u64, epoch: u64 },
    TruncateDone { broker: usize, boot: u64, position: u64 },
    AtCoordinator(Request),
    Tick { broker: usize, boot: u64 },
    Start { broker: usize },
    Placed { broker: usize, version: u64 },
    Look { broker: usize },
    Release { broker: usize, boot: u64, epoch: u64, is_read: bool },
    Publish,
    Fault,
}

impl Ord for Due {
    fn cmp(&self, _: &Due) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl World {
    pub fn new(seed: u64, shape: Shape) -> World {
        let mut random = Random::new(seed);
        let brokers: Vec<Broker> = (0..shape.brokers).map(Broker::blank).collect();
        let replicas = brokers.iter().map(|broker| (broker.replica_id, broker.number as u64)).collect();
        let record = ShardRecord {
            epoch: 0,
            leader: Leader { broker: 0, replica: brokers[0].replica_id, boot: 0 },
            in_sync: brokers.iter().map(|broker| broker.replica_id).collect(),
            replicas,
            min_in_sync: shape.min_in_sync,
        };
        let faults = Faults::new(&mut random, shape.troubled_for);
        let drawn = Faults::settings(&mut random);
        let settings = if shape.troubled_for > 0 { drawn } else { Settings { window: 64, ..Settings::default() } };
        let mut world = World {
            now: 0,
            random,
            coordinator: Coordinator::new(record),
            network: Network::new(shape.brokers),
            brokers,
            faults,
            settings,
            checks: Checks::default(),
            agenda: BinaryHeap::new(),
            number: 0,
            pauses: (seed / 4).is_multiple_of(2),
            drained: (shape.troubled_for > 0 && (seed / 8).is_multiple_of(2)).then_some(seed as usize % shape.brokers),
            recovered: 0,
            moving: None,
            is_traced: std::env::var_os("SIM_TRACE").is_some(),
        };
        for broker in 0..shape.brokers {
            world.at(0, Due::Start { broker });
        }
        world.at(1, Due::Publish);
        world.at(1, Due::Fault);
        world
    }

    /// Lets time pass. Returns the first promise that was broken.
    pub fn run_until(&mut self, end: Millis) -> Result<(), String> {
        while let Some(Reverse((at, _, _))) = self.agenda.peek()
            && *at <= end
        {
            let Some(Reverse((at, _, due))) = self.agenda.pop() else { break };
            self.now = at;
            self.happen(due).map_err(|broken| format!("at {at} ms: {broken}"))?;
        }
        self.now = end;
        Ok(())
    }

    /// The broker that takes publishes.
    pub fn leader(&self) -> Option<usize> {
        self.brokers.iter().position(|broker| broker.appends_in().is_some())
    }

    pub fn hand_over(&mut self, from: usize, to: usize) -> Result<(), String> {
        let (boot, to) = (self.brokers[from].boot, self.brokers[to].replica_id);
        self.step(from, boot, Event::HandOver(to), &[])
    }

    /// Has a broker leave it to others to lead.
    pub fn drain(&mut self, broker: usize) -> Result<(), String> {
        self.drained = Some(broker);
        self.step(broker, self.brokers[broker].boot, Event::Yield(true), &[])
    }

    fn at(&mut self, time: Millis, due: Due) {
        self.number += 1;
        self.agenda.push(Reverse((time, self.number, due)));
    }

    fn after(&mut self, delay: Millis, due: Due) {
        self.at(self.now + delay, due);
    }

    fn happen(&mut self, due: Due) -> Result<(), String> {
        // A process that is paused gets everything later.
        if let Some(until) = self.paused_until(&due) {
            self.at(until, due);
            return Ok(());
        }
        match due {
            Due::ToReplica { broker, boot, event, entries } => self.step(broker, boot, *event, &entries),
            Due::SyncDone { broker, boot, until, cuts } => {
                if self.brokers[broker].boot != boot {
                    return Ok(());
                }
                self.brokers[broker].is_syncing = false;
                // A sync from before the log was cut says nothing about what was written since.
                if self.brokers[broker].disk.cuts == cuts {
                    self.brokers[broker].disk.synced = until;
                    self.step(broker, boot, Event::Synced(until), &[])?;
                }
                self.sync_soon(broker);
                Ok(())
            }
            Due::PromiseDone { broker, boot, epoch } => {
                if self.brokers[broker].boot == boot {
                    self.brokers[broker].disk.promised = epoch.max(self.brokers[broker].disk.promised);
                }
                self.step(broker, boot, Event::Promised(epoch), &[])
            }
            Due::TruncateDone { broker, boot, position } => {
                if self.brokers[broker].boot == boot {
                    self.brokers[broker].disk.truncate(position);
                }
                self.step(broker, boot, Event::Truncated(position), &[])
            }
            Due::AtCoordinator(request) => self.answer(request),
            Due::Tick { broker, boot } => {
                if self.brokers[broker].boot == boot && self.brokers[broker].replica.is_some() {
                    self.step(broker, boot, Event::Tick, &[])?;
                    self.after(TICK, Due::Tick { broker, boot });
                }
                Ok(())
            }
            Due::Start { broker } => self.start(broker),
            Due::Placed { broker, version } => self.hear_placed(broker, version),
            Due::Look { broker } => self.look(broker),
            Due::Release { broker, boot, epoch, is_read } => self.go_on_releasing(broker, boot, epoch, is_read),
            Due::Publish => self.publish(),
            Due::Fault => self.fault(),
        }
    }

    fn paused_until(&self, due: &Due) -> Option<Millis> {
        let (Due::ToReplica { broker, .. } | Due::SyncDone { broker, .. } | Due::Tick { broker, .. }) = due else {
            return None;
        };
        let until = self.brokers[*broker].paused_until;
        (until > self.now).then_some(until)
    }

    fn start(&mut self, broker: usize) -> Result<(), String> {
        self.brokers[broker].start();
        if self.has_part(broker) {
            self.open(broker)?;
        }
        for other in 0..self.brokers.len() {
            if other != broker && self.brokers[other].is_up() {
                let boot = self.brokers[other].boot;
                let event = Box::new(Event::Link(broker as u64, Link::Up));
                self.after(5, Due::ToReplica { broker: other, boot, event, entries: Vec::new() });
            }
        }
        Ok(())
    }

    fn open(&mut self, broker: usize) -> Result<(), String> {
        self.brokers[broker].open(self.now, self.settings);
        let boot = self.brokers[broker].boot;
        self.step(broker, boot, Event::Yield(self.drained == Some(broker)), &[])?;
        let first = self.random_below(TICK);
        self.after(first, Due::Tick { broker, boot });
        self.tell_placed(broker)
    }

    /// A client publishes to each broker that takes it.
    fn publish(&mut self) -> Result<(), String> {
        for broker in 0..self.brokers.len() {
            let is_paused = self.brokers[broker].paused_until > self.now;
            if let Some(epoch) = self.brokers[broker].serves_in(self.pauses)
                && !is_paused
            {
                self.append(broker, epoch)?;
            }
        }
        let delay = 1 + self.random_below(200);
        self.after(delay, Due::Publish);
        Ok(())
    }

    fn append(&mut self, broker: usize, epoch: u64) -> Result<(), String> {
        self.number += 1;
        let (boot, value) = (self.brokers[broker].boot, self.number);
        self.brokers[broker].disk.entries.push(Entry { epoch, value });
        let end = self.brokers[broker].disk.entries.len() as u64;
        self.sync_soon(broker);
        self.step(broker, boot, Event::Appended(end), &[])
    }

    fn sync_soon(&mut self, broker: usize) {
        let until = self.brokers[broker].disk.entries.len() as u64;
        let disk = &self.brokers[broker];
        if !disk.is_syncing && until > disk.disk.synced {
            let (boot, cuts) = (disk.boot, disk.disk.cuts);
            let stalled = self.brokers[broker].stalled_until.saturating_sub(self.now);
            let delay = 1 + self.faults.sync_delay(&mut self.random).max(stalled);
            self.brokers[broker].is_syncing = true;
            self.after(delay, Due::SyncDone { broker, boot, until, cuts });
        }
    }

    /// Passes an event to a replica and carries out its effects.
    fn step(&mut self, broker: usize, boot: u64, event: Event, entries: &[Entry]) -> Result<(), String> {
        if self.brokers[broker].boot != boot {
            return Ok(());
        }
        let now = self.now;
        let Some(replica) = self.brokers[broker].replica.as_mut() else { return Ok(()) };
        let is_tick = event == Event::Tick;
        let said = if self.is_traced && !is_tick { format!("{event:?} {entries:?}") } else { String::new() };
        let effects = replica.step(now, event);
        if self.is_traced && !(is_tick && effects.is_empty()) {
            println!("{now} broker {broker}.{boot}: {said}");
            effects.iter().for_each(|effect| println!("    {effect:?}"));
        }
        for effect in effects {
            self.carry_out(broker, boot, effect, entries)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, broker: usize, boot: u64, effect: Effect, entries: &[Entry]) -> Result<(), String> {
        match effect {
            Effect::Send { to, message } => self.send(broker, to as usize, message, Vec::new()),
            Effect::Replicate { to, broker: receiver, epoch, after, until, of } => {
                let until = until.min(after + 1 + self.random_below(8));
                let node = &self.brokers[broker];
                let sent = node.disk.entries[after as usize..until as usize].to_vec();
                let Some(replica) = &node.replica else { return Ok(()) };
                let message = replica.append_message(epoch, after, until, of);
                message.into_iter().for_each(|message| self.send(broker, receiver as usize, message, sent.clone()));
                return self.step(broker, boot, Event::Sent { to, until }, &[]);
            }
            Effect::Promise(epoch) => {
                let delay = 1 + self.faults.sync_delay(&mut self.random);
                self.after(delay, Due::PromiseDone { broker, boot, epoch });
            }
            Effect::Begin(epoch) => {
                self.checks.begin(epoch, broker, boot, &self.brokers[broker].disk)?;
                return self.append(broker, epoch);
            }
            Effect::Write { after, until, begins } => {
                self.brokers[broker].disk.write(after, until, begins, entries)?;
                self.sync_soon(broker);
            }
            Effect::Truncate(position) => {
                let delay = 1 + self.faults.sync_delay(&mut self.random);
                self.after(delay, Due::TruncateDone { broker, boot, position });
            }
            Effect::Read(read) => self.ask(Request::Read { broker, boot, read }),
            Effect::Change { change, base, record } => {
                self.ask(Request::Change { broker, boot, change, base, record });
            }
            Effect::Commit(position) => {
                let leads = self.brokers[broker].leads();
                self.checks.commit(broker, position, leads, &self.brokers, self.coordinator.record())?;
                self.brokers[broker].disk.store_high_watermark(position, &mut self.random);
            }
            Effect::Role(Role::Halted(Halt::CommittedWouldBeCut)) if self.is_from_before(broker) => {
                self.begin_anew(broker);
            }
            Effect::Role(role) => self.checks.role(self.now, broker, role, &mut self.brokers[broker])?,
        }
        Ok(())
    }

    fn send(&mut self, from: usize, to: usize, message: Message, entries: Vec<Entry>) {
        let boot = self.brokers[to].boot;
        for delay in self.network.deliveries(from, to, &mut self.random) {
            let event = Box::new(Event::Received { from: from as u64, message: message.clone() });
            self.after(delay, Due::ToReplica { broker: to, boot, event, entries: entries.clone() });
        }
    }

    fn random_below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// The replicas whose disks still exist.
    pub fn disks(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.brokers.iter().map(|broker| broker.replica_id)
    }
}
