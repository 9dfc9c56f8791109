//! A leader whose followers say nothing: a process that stands still, or a cut cable, keeps its connection up.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use penstock_replica::{
    Effect, Epochs, Event, Leader, Link, Message, Outcome, Replica, Role, Settings, ShardRecord, Stored, Version,
};

const ME: Leader = Leader { broker: 0, replica: 100, boot: 7 };
/// The broker that leads at first, and the third one, with their replicas.
const BEFORE: (u64, u128) = (1, 101);
const OTHER: (u64, u128) = (2, 102);
const STEP: u64 = 50;

fn record() -> ShardRecord {
    let leader = Leader { broker: BEFORE.0, replica: BEFORE.1, boot: 3 };
    let replicas = BTreeMap::from([(ME.replica, ME.broker), (BEFORE.1, BEFORE.0), (OTHER.1, OTHER.0)]);
    ShardRecord { epoch: 5, leader, in_sync: BTreeSet::from([100, 101, 102]), replicas, min_in_sync: 2 }
}

/// A replica with a disk and a coordinator that answer at once, and what it asked the coordinator to change, with the time.
struct World {
    replica: Replica,
    now: u64,
    version: u64,
    record: ShardRecord,
    changes: Vec<(u64, ShardRecord)>,
    /// Whether a watch shows a change before its answer comes.
    watches: bool,
    /// The brokers that answer.
    alive: BTreeSet<u64>,
    /// Whether the coordinator answers nothing.
    is_coordinator_gone: bool,
    /// Whether their disks take nothing.
    are_stalled: bool,
    end: u64,
}

impl World {
    fn new(alive: &[u64]) -> World {
        let stored = Stored { promised: 5, epochs: Epochs::new([(5, 0)]), end: 9, high_watermark: 9 };
        let replica = Replica::new(ME, stored, Settings::default(), 0);
        let alive = alive.iter().copied().collect();
        let (record, changes) = (record(), Vec::new());
        let mut world = World {
            replica,
            now: 1,
            version: 1,
            record,
            changes,
            watches: false,
            alive,
            is_coordinator_gone: false,
            are_stalled: false,
            end: 9,
        };
        for broker in [BEFORE.0, OTHER.0] {
            world.step(Event::Link(broker, Link::Up));
        }
        world
    }

    /// The leader before handed over to this replica, and follows.
    fn handed_over() -> World {
        let mut world = World::new(&[OTHER.0, BEFORE.0]);
        world.beat_of_the_leader_before();
        world.step(Event::Received { from: BEFORE.0, message: Message::TakeOver { epoch: 5 } });
        assert_eq!(world.record.leader, ME);
        world.tick();
        assert_eq!(world.replica.high_watermark(), world.end);
        world
    }

    fn beat_of_the_leader_before(&mut self) {
        let message = Message::Beat { epoch: 5, high_watermark: 9, sent: self.now, session: 0 };
        self.step(Event::Received { from: BEFORE.0, message });
    }

    fn step(&mut self, event: Event) {
        let mut waiting = VecDeque::from([event]);
        while let Some(event) = waiting.pop_front() {
            for effect in self.replica.step(self.now, event) {
                waiting.extend(self.answer(effect));
            }
        }
    }

    fn answer(&mut self, effect: Effect) -> Vec<Event> {
        match effect {
            Effect::Read(_) | Effect::Change { .. } if self.is_coordinator_gone => Vec::new(),
            Effect::Read(read) => {
                let record = Some((self.record.clone(), Version(self.version)));
                vec![Event::Read { read: Some(read), record }]
            }
            Effect::Change { change, record, .. } => {
                self.version += 1;
                self.record = record.clone();
                self.changes.push((self.now, record.clone()));
                let watched = Event::Read { read: None, record: Some((record, Version(self.version))) };
                let answered = Event::Answered { change, outcome: Outcome::Changed(Version(self.version)) };
                self.watches.then_some(watched).into_iter().chain([answered]).collect()
            }
            Effect::Promise(epoch) => vec![Event::Promised(epoch)],
            Effect::Begin(_) => self.append(),
            Effect::Send { to, message } if self.alive.contains(&to) => self.answer_of(to, message),
            Effect::Replicate { to, until, .. } => {
                let broker = self.record.replicas[&to];
                let mut events = vec![Event::Sent { to, until }];
                if self.alive.contains(&broker) && !self.are_stalled {
                    let acknowledged =
                        Message::Acknowledge { epoch: self.record.epoch, replica: to, session: 1, position: until };
                    events.push(Event::Received { from: broker, message: acknowledged });
                }
                events
            }
            _ => Vec::new(),
        }
    }

    /// The answers of a follower that has all records of the epoch before.
    fn answer_of(&self, from: u64, message: Message) -> Vec<Event> {
        let (replica, session) = (self.record.replicas.iter().find(|(_, broker)| **broker == from).unwrap().0, 1);
        let messages = match message {
            Message::PreVote { epoch, question } => vec![Message::PreVoteAnswer { epoch, question, agrees: true }],
            Message::Beat { epoch, sent, session: 0, .. } => vec![
                Message::BeatAnswer { epoch, sent },
                Message::Hello { epoch, replica: *replica, session, epochs: Epochs::new([(5, 0)]), end: 9 },
            ],
            Message::Beat { epoch, sent, .. } => vec![Message::BeatAnswer { epoch, sent }],
            Message::Welcome { epoch, session, equal_until, .. } => {
                vec![Message::Acknowledge { epoch, replica: *replica, session, position: equal_until }]
            }
            _ => Vec::new(),
        };
        messages.into_iter().map(|message| Event::Received { from, message }).collect()
    }

    fn append(&mut self) -> Vec<Event> {
        self.end += 3;
        vec![Event::Appended(self.end), Event::Synced(self.end)]
    }

    fn publish(&mut self) {
        for event in self.append() {
            self.step(event);
        }
    }

    fn tick(&mut self) {
        self.now += STEP;
        self.step(Event::Tick);
    }

    /// Lets time pass until the set has no more than so many replicas in sync; returns the time that it took.
    fn until_in_sync(&mut self, count: usize) -> u64 {
        let began = self.now;
        while self.record.in_sync.len() > count {
            assert!(self.now < began + 20_000, "the in-sync set is {:?}", self.record.in_sync);
            self.now += STEP;
            self.step(Event::Tick);
        }
        self.now - began
    }

    /// Lets the leader before be missed, and this replica be elected.
    fn until_elected(&mut self) -> u64 {
        let began = self.now;
        while self.record.leader != ME {
            assert!(self.now < began + 20_000, "not elected");
            self.now += STEP;
            self.step(Event::Tick);
        }
        self.now - began
    }
}

/// It waited five seconds more for the replica of the leader that it had missed for three.
#[test]
fn a_new_leader_waits_no_longer_for_the_one_that_it_missed() {
    let mut world = World::new(&[OTHER.0]);
    let missed = world.until_elected();
    assert!(missed < 4_000, "{missed} ms");

    let waited = world.until_in_sync(2);

    assert!(waited <= 2 * STEP, "{waited} ms after it was elected");
    assert_eq!(world.record.in_sync, BTreeSet::from([ME.replica, OTHER.1]));
    assert_eq!(world.replica.high_watermark(), world.end);
}

/// The record that a watch showed was not taken for its own election, and nothing was known of the leader before.
#[test]
fn a_new_leader_that_hears_of_its_election_by_a_watch_waits_no_longer_either() {
    let mut world = World::new(&[OTHER.0]);
    world.watches = true;
    world.until_elected();

    let waited = world.until_in_sync(2);

    assert!(waited <= 2 * STEP, "{waited} ms after it was elected");
    assert_eq!(world.replica.high_watermark(), world.end);
}

#[test]
fn a_follower_that_answers_nothing_leaves_the_set_as_soon_as_a_leader_would_be_suspected() {
    let mut world = World::handed_over();

    world.alive.remove(&BEFORE.0);
    world.publish();
    let waited = world.until_in_sync(2);

    let within = Settings::default().suspect_after;
    assert!(waited + 300 >= within && waited <= within + 2 * STEP, "{waited} ms");
    assert_eq!(world.replica.high_watermark(), world.end);
}

#[test]
fn a_follower_that_answers_nothing_and_lacks_nothing_stays() {
    let mut world = World::new(&[OTHER.0]);
    world.until_elected();
    world.until_in_sync(2);
    world.alive.remove(&OTHER.0);

    for _ in 0..400 {
        world.now += STEP;
        world.step(Event::Tick);
    }

    assert_eq!(world.record.in_sync, BTreeSet::from([ME.replica, OTHER.1]));
    assert_eq!(world.changes.len(), 2, "{:?}", world.changes);
}

/// It joins again once it answers.
#[test]
fn a_replica_that_answers_again_is_in_sync_again() {
    let mut world = World::new(&[OTHER.0]);
    world.until_elected();
    world.until_in_sync(2);

    world.alive.insert(BEFORE.0);
    for _ in 0..20 {
        world.now += STEP;
        world.step(Event::Tick);
    }

    assert_eq!(world.record.in_sync.len(), 3);
}

/// One of them left, and joined again at the next tick, because the other one left: ten changes of the record a second.
#[test]
fn followers_that_all_lag_take_no_turns_in_the_in_sync_set() {
    let mut world = World::handed_over();
    let before = world.changes.len();

    world.are_stalled = true;
    for _ in 0..300 {
        world.publish();
        world.tick();
    }

    assert_eq!(world.changes.len(), before + 1, "{:?}", &world.changes[before..]);
}

/// A leader that had once asked this replica to take over was believed to be gone for as long as it led.
#[test]
fn a_new_leader_waits_for_one_that_went_on_after_a_hand_over_was_given_up() {
    let mut world = World::new(&[OTHER.0]);
    world.beat_of_the_leader_before();
    world.is_coordinator_gone = true;
    world.step(Event::Received { from: BEFORE.0, message: Message::TakeOver { epoch: 5 } });
    for _ in 0..400 {
        world.tick();
        world.beat_of_the_leader_before();
    }
    world.is_coordinator_gone = false;
    world.until_elected();

    let elected = world.now;
    while !matches!(world.replica.role(), Role::Leader { delivers: true, .. }) {
        assert!(world.now < elected + 20_000, "it delivers nothing");
        world.tick();
    }

    let within = Settings::default().deliver_within;
    assert!(world.now >= elected + within, "{} ms after it was elected", world.now - elected);
}
