//! Three replicas on real logs, in one thread: a scheduler drawn from a seed decides when messages arrive, when disks have taken what
//! was written, and what the coordinator answers. Messages are lost, repeated and overtaken; processes are killed, and machines lose
//! what was not synced.
//!
//! After each step it checks that a committed record never changes.

mod coordinator;
#[path = "../../../log/tests/support/crashed.rs"]
#[allow(dead_code, reason = "the tests of the log use all of it")]
mod crashed;
#[path = "../../../log/tests/support/dice.rs"]
mod dice;
mod faults;
mod node;
#[path = "../../../log/tests/support/recorder.rs"]
#[allow(dead_code, reason = "the tests of the log use all of it")]
mod recorder;
#[allow(dead_code, reason = "worlds that are drawn have no script")]
mod script;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use penstock_log::{Payload, Position, Target};
use penstock_queue::{QueueId, Sequence};
use penstock_replica::{Link, Message, Role};
use penstock_replication::{Input, Output, Published, ReplicatedLog, Sent, Work};

use coordinator::{Coordinator, Request};
#[allow(unused_imports, reason = "worlds that are drawn have no script")]
pub use crashed::{Crash, Image};
pub use dice::Dice;
use faults::Faults;
use node::Node;

pub const BROKERS: usize = 3;
const TICK: u64 = 50;
const QUEUE: QueueId = QueueId(1);

/// Something that happens at a time, to the process of a boot.
#[derive(Debug)]
enum Due {
    Tick { node: usize, boot: u64 },
    Work { node: usize, boot: u64, work: Option<Work> },
    Arrive { node: usize, from: usize, message: Message, bytes: Vec<u8> },
    Ship { node: usize, boot: u64, to: u128 },
    AtCoordinator(Request),
    Input { node: usize, boot: u64, input: Option<Input> },
    Start { node: usize },
    Publish,
    Fault,
}

pub struct World {
    pub now: u64,
    dice: Dice,
    nodes: Vec<Node>,
    coordinator: Coordinator,
    faults: Faults,
    agenda: BinaryHeap<Reverse<(u64, u64, Boxed)>>,
    number: u64,
    /// Positions and checksums of all that any replica knows to be committed, and how far they go.
    committed: BTreeMap<Position, u32>,
    committed_end: Position,
    is_publishing: bool,
    is_traced: bool,
    next_token: u64,
    confirmed: BTreeSet<u64>,
    pub unknown: u64,
    /// Brokers whose files were changed: their logs may be refused, and they begin anew then.
    damaged: BTreeSet<usize>,
    /// Why logs were refused.
    pub refused: Vec<String>,
}

/// Does not take part in the order of the agenda.
struct Boxed(Due);

impl PartialEq for Boxed {
    fn eq(&self, _: &Boxed) -> bool {
        true
    }
}

impl Eq for Boxed {}

impl PartialOrd for Boxed {
    fn partial_cmp(&self, other: &Boxed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Boxed {
    fn cmp(&self, _: &Boxed) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl World {
    pub fn new(seed: u64, troubled_for: u64) -> World {
        let mut dice = Dice::new(seed);
        let faults = Faults::new(&mut dice, troubled_for);
        let nodes: Vec<Node> = (0..BROKERS).map(|number| Node::blank(number, &mut dice)).collect();
        let mut world = World {
            now: 0,
            coordinator: Coordinator::new(nodes.iter().map(|node| (node.replica, node.number as u64)).collect()),
            dice,
            nodes,
            faults,
            agenda: BinaryHeap::new(),
            number: 0,
            committed: BTreeMap::new(),
            committed_end: Position(0),
            is_publishing: true,
            is_traced: std::env::var_os("WORLD_TRACE").is_some(),
            next_token: 1,
            confirmed: BTreeSet::new(),
            unknown: 0,
            damaged: BTreeSet::new(),
            refused: Vec::new(),
        };
        (0..BROKERS).for_each(|node| world.after(0, Due::Start { node }));
        world.after(1, Due::Publish);
        world.after(1, Due::Fault);
        world
    }

    pub fn run_until(&mut self, end: u64) {
        while let Some(Reverse((at, ..))) = self.agenda.peek()
            && *at <= end
        {
            let Reverse((at, _, Boxed(due))) = self.agenda.pop().unwrap();
            self.now = at;
            self.happen(due);
        }
        self.now = end;
    }

    pub fn confirmed_count(&self) -> usize {
        self.confirmed.len()
    }

    fn after(&mut self, delay: u64, due: Due) {
        self.number += 1;
        self.agenda.push(Reverse((self.now + delay, self.number, Boxed(due))));
    }

    fn below(&mut self, count: u64) -> u64 {
        self.dice.below(count.max(1) as usize) as u64
    }

    fn happens(&mut self, per_thousand: u64) -> bool {
        self.below(1000) < per_thousand
    }

    fn happen(&mut self, due: Due) {
        // A process that stands still gets everything later.
        if let Some(until) = self.paused_until(&due) {
            self.number += 1;
            return self.agenda.push(Reverse((until, self.number, Boxed(due))));
        }
        match due {
            Due::Tick { node, boot } => {
                if self.nodes[node].runs(boot) {
                    self.step(node, Input::Tick);
                    self.after(TICK, Due::Tick { node, boot });
                }
            }
            Due::Work { node, boot, work } => {
                if self.nodes[node].runs(boot) {
                    let done = work.unwrap().perform();
                    self.step(node, Input::Done(done));
                }
            }
            Due::Arrive { node, from, message, bytes } => self.arrive(node, from, message, bytes),
            Due::Ship { node, boot, to } => self.ship(node, boot, to),
            Due::AtCoordinator(request) => self.answer(request),
            Due::Input { node, boot, input } => {
                if self.nodes[node].runs(boot) {
                    self.step(node, input.unwrap());
                }
            }
            Due::Start { node } => self.start(node),
            Due::Publish => self.publish(),
            Due::Fault => self.fault(),
        }
    }

    fn paused_until(&self, due: &Due) -> Option<u64> {
        let (Due::Tick { node, .. }
        | Due::Work { node, .. }
        | Due::Arrive { node, .. }
        | Due::Ship { node, .. }
        | Due::Input { node, .. }) = due
        else {
            return None;
        };
        let until = self.nodes[*node].paused_until;
        (until > self.now).then_some(until)
    }

    fn start(&mut self, node: usize) {
        let now = self.now;
        if let Err(error) = self.nodes[node].start(now) {
            assert!(self.damaged.remove(&node), "the log of broker {node} is refused: {error}");
            self.refused.push(error.to_string());
            self.nodes[node].begin_anew();
            self.nodes[node].start(now).unwrap();
        }
        let boot = self.nodes[node].boot;
        let first = self.below(TICK);
        self.after(first, Due::Tick { node, boot });
        self.tell(node, Link::Up);
    }

    /// Reports to the others how their connection to a broker is.
    fn tell(&mut self, about: usize, link: Link) {
        for node in (0..BROKERS).filter(|node| *node != about) {
            let boot = self.nodes[node].boot;
            let input = Some(Input::Link(about as u64, link));
            self.after(5, Due::Input { node, boot, input });
        }
    }

    fn arrive(&mut self, node: usize, from: usize, message: Message, mut bytes: Vec<u8>) {
        if self.nodes[node].replicated.is_none() {
            return;
        }
        // A bit may flip on the way: neither the records nor their message count then.
        let flips = !bytes.is_empty() && self.happens(self.faults.flips);
        if flips {
            let at = self.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.below(8);
        }
        let records = match ReplicatedLog::check(&node::LOG_ID, &message, bytes.into()) {
            Ok(records) => records,
            Err(error) => {
                assert!(flips, "records that were read from a log are refused: {error}");
                return;
            }
        };
        assert!(!flips, "a flipped bit is not noticed");
        self.step(node, Input::Message { from: from as u64, message, records });
    }

    fn ship(&mut self, node: usize, boot: u64, to: u128) {
        if !self.nodes[node].runs(boot) {
            return;
        }
        let now = self.nodes[node].time(self.now);
        let bytes_max = 1 + self.below(3000) as usize;
        let sender = &mut self.nodes[node];
        let Some(replicated) = &mut sender.replicated else { return };
        let (shipment, mut outputs) = replicated.begin_shipment(to);
        let mut sent = None;
        if let Some(shipment) = shipment {
            let shipped = shipment.found(&sender.last_read).unwrap_or_else(|| {
                let shipped = shipment.perform(bytes_max);
                sender.last_read.keep(&shipped);
                shipped
            });
            let (message, more) = replicated.finish_shipment(now, shipped);
            outputs.extend(more);
            sent = message;
        }
        if let Some(Sent { to, message, bytes }) = sent {
            self.send(node, to as usize, message, bytes.to_vec());
        }
        self.carry_out(node, outputs);
    }

    fn step(&mut self, node: usize, input: Input) {
        let now = self.nodes[node].time(self.now);
        let Some(replicated) = &mut self.nodes[node].replicated else { return };
        let said = if self.is_traced { format!("{input:?}") } else { String::new() };
        let outputs = replicated.step(now, input);
        self.trace(node, &said, &outputs);
        self.carry_out(node, outputs);
    }

    /// Prints the steps of a world with `WORLD_TRACE`.
    fn trace(&self, node: usize, said: &str, outputs: &[Output]) {
        if self.is_traced && !(said == "Tick" && outputs.is_empty()) {
            let cut = |text: String| text.chars().take(300).collect::<String>();
            println!("{} broker {node}.{}: {}", self.now, self.nodes[node].boot, cut(said.to_owned()));
            outputs.iter().for_each(|output| println!("    {}", cut(format!("{output:?}"))));
        }
    }

    fn carry_out(&mut self, node: usize, outputs: Vec<Output>) {
        let boot = self.nodes[node].boot;
        for output in outputs {
            match output {
                Output::Send { to, message } => self.send(node, to as usize, message, Vec::new()),
                // The connection takes them some time later.
                Output::Records { to, .. } => {
                    let delay = if self.happens(100) { self.below(300) } else { 0 };
                    self.after(delay, Due::Ship { node, boot, to });
                }
                Output::Lacks { .. } => panic!("no record was removed"),
                Output::Work(work) => {
                    let delay = 1 + self.faults.disk_delay(&mut self.dice);
                    self.after(delay, Due::Work { node, boot, work: Some(work) });
                }
                Output::Read(read) => self.ask(Request::Read { node, boot, read }),
                Output::Change { change, base, record } => {
                    self.ask(Request::Change { node, boot, change, base, record });
                }
                Output::Committed(position) => self.check_committed(node, position),
                Output::Ended { publish, how: Published::Committed } => {
                    assert!(self.confirmed.insert(publish), "publish {publish} ends twice");
                }
                Output::Ended { publish, how: Published::Unknown } => {
                    assert!(!self.confirmed.contains(&publish), "publish {publish} ends twice");
                    self.unknown += 1;
                }
                Output::Role(Role::Halted(why)) => panic!("at {}: broker {node} halts: {why:?}", self.now),
                Output::Role(_) => {}
                Output::Failed(error) => panic!("at {}: broker {node}: {error}", self.now),
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Message, bytes: Vec<u8>) {
        if self.faults.is_cut(from, to) || self.happens(self.faults.loss) {
            return;
        }
        let copies = 1 + u64::from(self.happens(self.faults.repeats));
        for _ in 0..copies {
            let delay = 1 + self.below(self.faults.delay);
            let (message, bytes) = (message.clone(), bytes.clone());
            self.after(delay, Due::Arrive { node: to, from, message, bytes });
        }
    }

    /// A client publishes to each broker that takes it.
    fn publish(&mut self) {
        if !self.is_publishing {
            return;
        }
        for node in 0..BROKERS {
            if self.nodes[node].paused_until > self.now {
                continue;
            }
            let count = 1 + self.below(4);
            let now = self.nodes[node].time(self.now);
            let mut ends = Vec::new();
            for _ in 0..count {
                let token = self.next_token;
                let body = vec![token as u8; self.dice.below(400)];
                let Some(replicated) = &mut self.nodes[node].replicated else { continue };
                let payload = Payload::new(b"", b"", b"", &body).unwrap();
                let targets = [Target { queue: QUEUE, sequence: Sequence(token) }];
                let appended = replicated.append(token, |log| log.append_message(&payload, 1, &targets));
                if let Ok(end) = appended {
                    self.next_token += 1;
                    ends.push((token, end));
                }
            }
            if let Some(replicated) = &mut self.nodes[node].replicated {
                let outputs = replicated.flush(now);
                self.carry_out(node, outputs);
            }
            for (token, end) in ends {
                let log = self.nodes[node].replicated.as_mut().unwrap().log();
                let is_found = log.locate(QUEUE, Sequence(token), 1).unwrap().is_some();
                assert_eq!(is_found, end <= log.bound(), "message {token}");
            }
        }
        let delay = 1 + self.below(150);
        self.after(delay, Due::Publish);
    }

    /// A broker knows that everything below a position is committed.
    fn check_committed(&mut self, node: usize, position: Position) {
        let from = std::mem::replace(&mut self.nodes[node].checked, position);
        let listed = self.nodes[node].list(from..position);
        if position > self.committed_end {
            let new = listed.iter().copied().filter(|&(at, _)| at >= self.committed_end);
            self.committed.extend(new);
            self.committed_end = position;
        }
        let committed = self.committed.range(from..position).map(|(&at, &checksum)| (at, checksum));
        assert!(committed.eq(listed), "at {}: broker {node} has other records from {from:?} to {position:?}", self.now);
    }

    /// Ends publishing, and checks that all replicas are in sync, have the same records, and have every publish that was confirmed.
    pub fn check_healed(&mut self) {
        self.is_publishing = false;
        self.run_until(self.now + 3_000);
        let record = self.coordinator.record();
        assert_eq!(record.in_sync.len(), BROKERS, "{record:?}");
        let committed: Vec<(Position, u32)> = self.committed.iter().map(|(&at, &checksum)| (at, checksum)).collect();
        for node in 0..BROKERS {
            assert_eq!(self.nodes[node].list(Position(0)..Position(u64::MAX)), committed, "broker {node}");
            let log = self.nodes[node].replicated.as_mut().unwrap().log();
            assert_eq!((log.bound(), log.end()), (self.committed_end, self.committed_end), "broker {node}");
            let is_there = |&token: &u64| log.locate(QUEUE, Sequence(token), 1).unwrap().is_some();
            assert_eq!(self.confirmed.iter().find(|&token| !is_there(token)), None, "broker {node} lacks a publish");
        }
    }
}
