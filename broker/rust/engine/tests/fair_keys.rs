//! Queues whose keys take turns: against a list of messages with their states, whatever is published, consumed, requeued,
//! restarted and killed; with more keys than take turns by themselves; and with what else queues have.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod house;
#[path = "house/killing.rs"]
mod killing;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use house::{House, engine};
use killing::copy_of;
use penstock_engine::{
    Attributes, LeaseLimits, LengthLimit, Overflow, Payload, Publication, QueueId, Sequence, SequenceRange, Settle,
    Subscription, SubscriptionOptions,
};
use proptest::prelude::*;

const QUEUE: QueueId = QueueId(3);
const PLAIN: QueueId = QueueId(4 + HIGHEST as u64);
const HIGHEST: u8 = 2;
const HEADER: &[u8] = b"tenant";

fn open(directory: &Path, header: Option<&[u8]>) -> House {
    open_with(directory, header, HIGHEST)
}

/// As the broker does after a start.
fn open_with(directory: &Path, header: Option<&[u8]>, highest: u8) -> House {
    let engine = engine();
    let shard = engine.open_incomplete("/", directory, false).unwrap();
    shard.retain_with_lanes(&[QUEUE, PLAIN], &[(QUEUE, highest)]).unwrap();
    shard.lay_out_queues([(QUEUE, highest, header.is_some()), (PLAIN, 0, false)]).unwrap();
    shard.put_queue(QUEUE, "s", false, None).unwrap();
    shard.put_queue(PLAIN, "plain", false, None).unwrap();
    shard.take_turns([(QUEUE, header), (PLAIN, None)]).unwrap();
    shard.complete();
    House { engine, shard }
}

/// Properties with one header of text.
fn properties(name: &[u8], value: &str) -> Vec<u8> {
    let mut table = vec![name.len() as u8];
    table.extend_from_slice(name);
    table.push(b'S');
    table.extend_from_slice(&(value.len() as u32).to_be_bytes());
    table.extend_from_slice(value.as_bytes());
    let mut all = (1_u16 << 13).to_be_bytes().to_vec();
    all.extend_from_slice(&(table.len() as u32).to_be_bytes());
    all.extend_from_slice(&table);
    all
}

#[derive(Clone, Debug)]
struct Sent {
    key: Option<String>,
    priority: u8,
    body: String,
}

fn sent(key: &str, body: &str) -> Sent {
    Sent { key: Some(key.to_owned()), priority: 0, body: body.to_owned() }
}

fn publish(house: &House, messages: &[Sent]) {
    let properties: Vec<Vec<u8>> =
        messages.iter().map(|one| one.key.as_ref().map_or(Vec::new(), |key| properties(HEADER, key))).collect();
    let attributes: Vec<Attributes> = messages
        .iter()
        .map(|one| Attributes {
            priority: Some(one.priority).filter(|priority| *priority > 0),
            ..Attributes::default()
        })
        .collect();
    let batch: Vec<Publication<'_>> = messages
        .iter()
        .zip(&properties)
        .zip(&attributes)
        .map(|((one, properties), attributes)| {
            let payload = Payload::new(b"", b"s", properties, one.body.as_bytes()).unwrap();
            let payload = if one.priority == 0 { payload } else { payload.with_attributes(attributes) };
            Publication { payload, exchange: b"", key: b"s", headers: None, persistent: false, mandatory: true }
        })
        .collect();
    house.shard.publish(&batch, None, 1, &mut Vec::new()).unwrap();
}

fn subscribe(house: &House) -> Subscription {
    let options = SubscriptionOptions { prefetch: 100_000, auto_ack: false, exclusive: false, pull: false };
    house.shard.subscribe(QUEUE, options).unwrap()
}

/// Takes messages, all of which are delivered; returns their sequences and bodies.
fn take(subscription: &Subscription, count: u32) -> Vec<(Sequence, String)> {
    let (mut filled, mut found, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    subscription.fill(count, &mut filled).unwrap();
    for run in &filled {
        for picked in &run.picked {
            let view = run.segment.message(picked.offset).unwrap();
            sizes.push((picked.taken.sequence, view.body.len() as u32));
            found.push((picked.taken.sequence, String::from_utf8(view.body.to_vec()).unwrap()));
        }
    }
    subscription.sent(&sizes).unwrap();
    found
}

fn bodies(subscription: &Subscription, count: u32) -> Vec<String> {
    take(subscription, count).into_iter().map(|(_, body)| body).collect()
}

fn settle(subscription: &Subscription, sequence: Sequence, how: Settle) {
    subscription.settle(&[SequenceRange::of(sequence)], how).unwrap();
}

#[test]
fn a_backlog_of_one_key_does_not_delay_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path(), Some(HEADER));
    let flood: Vec<Sent> = (0..1_000).map(|number| sent("a", &format!("a{number}"))).collect();
    publish(&house, &flood);
    publish(&house, &[sent("b", "b0"), sent("c", "c0"), sent("b", "b1")]);
    publish(&house, &[Sent { key: None, priority: 0, body: "none".to_owned() }]);
    let consumer = subscribe(&house);

    assert_eq!(bodies(&consumer, 3), ["a0", "b0", "c0"]);
    assert_eq!(bodies(&consumer, 5), ["none", "a1", "b1", "a2", "a3"]);
    publish(&house, &[sent("c", "c1")]);
    assert_eq!(bodies(&consumer, 1), ["c1"], "its turn comes at once");
}

#[test]
fn one_message_at_a_time_keys_take_turns_too() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path(), Some(HEADER));
    for number in 0..4 {
        publish(&house, &["a", "b", "c"].map(|key| sent(key, &format!("{key}{number}"))));
    }
    let consumer = subscribe(&house);
    let found: Vec<String> = (0..12).flat_map(|_| bodies(&consumer, 1)).collect();
    assert_eq!(found, ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3", "c3"]);
}

#[test]
fn a_returned_message_keeps_its_place_within_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path(), Some(HEADER));
    publish(&house, &["a0", "a1", "a2"].map(|body| sent("a", body)));
    publish(&house, &["b0", "b1"].map(|body| sent("b", body)));
    let consumer = subscribe(&house);
    let taken = take(&consumer, 3);
    assert_eq!(taken.iter().map(|(_, body)| &body[..]).collect::<Vec<_>>(), ["a0", "b0", "a1"]);

    settle(&consumer, taken[0].0, Settle::Requeue);

    assert_eq!(bodies(&consumer, 10), ["b1", "a0", "a2"]);
}

#[test]
fn keys_beyond_those_with_lanes_of_their_own_share_some_and_keep_their_order() {
    const KEYS: usize = 400;
    let directory = tempfile::tempdir().unwrap();
    let mut house = open_with(directory.path(), Some(HEADER), 0);
    let mut number = 0;
    let mut send = |house: &House| {
        number += 1;
        let all: Vec<Sent> = (0..KEYS).map(|key| sent(&format!("key {key}"), &format!("{key} {number}"))).collect();
        all.chunks(50).for_each(|some| publish(house, some));
    };
    send(&house);
    send(&house);
    let consumer = subscribe(&house);
    let first: BTreeSet<String> =
        bodies(&consumer, 192).iter().map(|body| body.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(first.len(), 192, "each of these has a lane of its own");
    drop(consumer);
    house.close();

    house = open_with(directory.path(), Some(HEADER), 0);
    send(&house);
    let found = bodies(&subscribe(&house), 10_000);
    let mut by_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for body in &found {
        let (key, number) = body.split_once(' ').unwrap();
        by_key.entry(key).or_default().push(number);
    }
    assert_eq!(by_key.len(), KEYS);
    assert!(by_key.values().all(|numbers| *numbers == ["1", "2", "3"]), "{by_key:?}");
}

#[test]
fn a_lane_is_given_to_another_key_once_its_messages_are_settled() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_with(directory.path(), Some(HEADER), 0);
    let consumer = subscribe(&house);
    for round in 0..1_000 {
        let key = format!("key {round}");
        publish(&house, &[sent(&key, "first"), sent(&key, "second")]);
        assert_eq!(bodies(&consumer, 10), ["first", "second"]);
        consumer.settle(&[SequenceRange::ALL], Settle::Ack).unwrap();
    }
    publish(&house, &[sent("a", "a0"), sent("a", "a1"), sent("b", "b0")]);
    assert_eq!(bodies(&consumer, 10), ["a0", "b0", "a1"]);
}

#[test]
fn a_policy_gives_keys_turns_and_takes_them_and_no_message_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path(), None);
    publish(&house, &["a0", "a1"].map(|body| sent("a", body)));
    house.shard.take_turns([(QUEUE, Some(HEADER))]).unwrap();
    publish(&house, &["a2", "a3"].map(|body| sent("a", body)));
    publish(&house, &[sent("b", "b0")]);
    house.shard.take_turns([(QUEUE, None)]).unwrap();
    publish(&house, &[sent("b", "b1")]);
    house.close();

    // A start finds the lanes, though no key has turns any more.
    let house = open(directory.path(), None);
    let found = bodies(&subscribe(&house), 10);
    assert_eq!(
        found.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        BTreeSet::from(["a0", "a1", "a2", "a3", "b0", "b1"])
    );
    assert_eq!(found.len(), 6);
    assert_eq!(house.shard.delete_queue(QUEUE).unwrap(), 6);
    house.close();
    let house = open(directory.path(), Some(HEADER));
    assert_eq!(house.shard.queue_counts(&[QUEUE]).unwrap()[0].ready_count, 0);
}

#[test]
fn a_full_queue_drops_messages_of_the_key_with_the_most() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_with(directory.path(), Some(HEADER), 0);
    house.shard.limit_lengths([(QUEUE, Some(LengthLimit::of_messages(5, Overflow::DropHead)))]).unwrap();
    publish(&house, &[sent("b", "b0"), sent("b", "b1")]);
    for number in 0..20 {
        publish(&house, &[sent("a", &format!("a{number}"))]);
    }
    assert_eq!(bodies(&subscribe(&house), 10), ["b0", "a17", "b1", "a18", "a19"]);
}

/// The first five keys lost all of theirs, and the others none.
#[test]
fn a_queue_that_is_shortened_drops_as_many_messages_of_keys_that_have_as_many() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_with(directory.path(), Some(HEADER), 0);
    for key in 0..10 {
        let key = key.to_string();
        publish(&house, &(0..10).map(|number| sent(&key, &format!("{key} {number}"))).collect::<Vec<_>>());
    }

    house.shard.limit_lengths([(QUEUE, Some(LengthLimit::of_messages(50, Overflow::DropHead)))]).unwrap();
    house.shard.expire_due(1).unwrap();

    let found = bodies(&subscribe(&house), 100);
    let of_key =
        |key: u8| -> Vec<&str> { found.iter().filter_map(|body| body.strip_prefix(&format!("{key} "))).collect() };
    (0..10).for_each(|key| assert_eq!(of_key(key), ["5", "6", "7", "8", "9"], "{key}"));
}

/// Without keys new messages are before those of keys, and were dropped at once: the queue kept its oldest messages.
#[test]
fn a_full_queue_whose_keys_take_no_turns_any_more_keeps_the_newest_messages() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_with(directory.path(), Some(HEADER), 0);
    house.shard.limit_lengths([(QUEUE, Some(LengthLimit::of_messages(5, Overflow::DropHead)))]).unwrap();
    publish(&house, &["a0", "a1", "a2"].map(|body| sent("a", body)));
    publish(&house, &["b0", "b1"].map(|body| sent("b", body)));
    house.shard.take_turns([(QUEUE, None)]).unwrap();

    for number in 2..20 {
        publish(&house, &[sent("b", &format!("b{number}"))]);
    }

    assert_eq!(bodies(&subscribe(&house), 10), ["b15", "b16", "b17", "b18", "b19"]);
}

#[test]
fn leases_and_peeks_find_the_messages_of_all_keys() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_with(directory.path(), Some(HEADER), 0);
    publish(&house, &["a0", "a1", "a2"].map(|body| sent("a", body)));
    publish(&house, &[sent("b", "b0"), sent("c", "c0")]);

    let peek = |from: Sequence, count: u64| {
        let peeked = house.shard.peek(QUEUE, from, count).unwrap();
        let bodies: Vec<String> = peeked.filled.iter().flat_map(house::said).map(|said| said.body).collect();
        (bodies, peeked.next)
    };
    let (first, next) = peek(Sequence(0), 2);
    assert_eq!(first, ["a0", "a1"]);
    assert_eq!(peek(next.unwrap(), 10).0, ["a2", "b0", "c0"]);

    let limits = LeaseLimits { messages_max: 3, bytes_max: 0 };
    let reserved = house.shard.reserve_lease(QUEUE, "owner", 1, limits, 1).unwrap();
    assert_eq!((reserved.lease.count, reserved.ready_count), (3, 2));
    house.close();
    let house = open_with(directory.path(), Some(HEADER), 0);
    let consumer = subscribe(&house);
    assert_eq!(bodies(&consumer, 10), ["a1", "a2"], "the lease has one of each key");
    assert_eq!(house.shard.release_leases(QUEUE, "owner", 1).unwrap(), 3);
    assert_eq!(bodies(&consumer, 10), ["b0", "c0", "a0"]);
}

#[derive(Clone, Debug)]
enum Step {
    /// Keys and priorities of messages that come together.
    Publish(Vec<(Option<u8>, u8)>),
    Take(u32),
    /// Settles the first so many of what the consumer has.
    Settle(usize, Settle),
    /// With a clean stop, or by a kill.
    Restart(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = prop::option::weighted(0.9, prop_oneof![3 => Just(0_u8), 5 => 0..8_u8]);
    let how = prop_oneof![4 => Just(Settle::Ack), 1 => Just(Settle::Reject), 3 => Just(Settle::Requeue)];
    let step = prop_oneof![
        8 => prop::collection::vec((key, prop_oneof![3 => Just(0), 2 => 0..4_u8]), 1..12).prop_map(Step::Publish),
        9 => (1..9_u32).prop_map(Step::Take),
        8 => (1..9_usize, how).prop_map(|(count, how)| Step::Settle(count, how)),
        2 => any::<bool>().prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ready,
    Held,
    Settled,
}

struct Pair {
    directories: Vec<tempfile::TempDir>,
    house: Option<House>,
    consumer: Option<Subscription>,
    /// Key, priority and place of each message; its body is its index.
    messages: Vec<(Option<u8>, u8, Place)>,
    held: Vec<(Sequence, usize)>,
    /// Of each priority, the keys that had no turn since this one had its last, while they had ready messages.
    waiting: BTreeMap<(u8, Option<u8>), BTreeSet<Option<u8>>>,
}

impl Pair {
    fn new() -> Pair {
        let directory = tempfile::tempdir().unwrap();
        let house = open(directory.path(), Some(HEADER));
        let consumer = Some(subscribe(&house));
        let (messages, held, waiting) = (Vec::new(), Vec::new(), BTreeMap::new());
        Pair { directories: vec![directory], house: Some(house), consumer, messages, held, waiting }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Publish(messages) => {
                let begin = self.messages.len();
                let all: Vec<Sent> = messages
                    .iter()
                    .zip(begin..)
                    .map(|((key, priority), index)| Sent {
                        key: key.map(|key| format!("key {key}")),
                        priority: *priority,
                        body: index.to_string(),
                    })
                    .collect();
                publish(self.house.as_ref().unwrap(), &all);
                self.messages
                    .extend(messages.into_iter().map(|(key, priority)| (key, priority.min(HIGHEST), Place::Ready)));
            }
            Step::Take(count) => self.take(count),
            Step::Settle(count, how) => {
                for (sequence, index) in self.held.drain(..count.min(self.held.len())) {
                    settle(self.consumer.as_ref().unwrap(), sequence, how);
                    self.messages[index].2 = if how == Settle::Requeue { Place::Ready } else { Place::Settled };
                }
            }
            Step::Restart(is_clean) => self.restart(is_clean),
        }
    }

    fn take(&mut self, count: u32) {
        let found = take(self.consumer.as_ref().unwrap(), count);
        let ready = self.messages.iter().filter(|(.., place)| *place == Place::Ready).count();
        assert_eq!(found.len(), ready.min(count as usize));
        for (sequence, body) in found {
            let index: usize = body.parse().unwrap();
            let (key, priority, place) = self.messages[index];
            assert_eq!(place, Place::Ready);
            let first = |wanted: Option<u8>, of: u8| {
                self.messages
                    .iter()
                    .position(|&(key, priority, place)| (key, priority, place) == (wanted, of, Place::Ready))
            };
            assert_eq!(first(key, priority), Some(index), "the oldest of its key");
            let highest = self
                .messages
                .iter()
                .filter(|(.., place)| *place == Place::Ready)
                .map(|(_, priority, _)| *priority)
                .max();
            assert_eq!(highest, Some(priority));
            let waiting = self.waiting.remove(&(priority, key)).unwrap_or_default();
            let passed_over = waiting.into_iter().find(|other| first(*other, priority).is_some());
            assert_eq!(passed_over, None, "a key that waits since before the last turn of {key:?}");
            self.messages[index].2 = Place::Held;
            self.held.push((sequence, index));
            let others: BTreeSet<Option<u8>> = self
                .messages
                .iter()
                .filter(|(other, of, place)| *other != key && *of == priority && *place == Place::Ready)
                .map(|(other, ..)| *other)
                .collect();
            let of_priority = self.waiting.iter_mut().filter(|((of, _), _)| *of == priority);
            of_priority.for_each(|(_, waiting)| {
                waiting.remove(&key);
            });
            self.waiting.insert((priority, key), others);
        }
        self.held.sort_unstable_by_key(|(sequence, _)| *sequence);
    }

    fn restart(&mut self, is_clean: bool) {
        let house = self.house.take().unwrap();
        let is_returned = |place: Place| if place == Place::Held { Place::Ready } else { place };
        if is_clean {
            drop(self.consumer.take());
            house.close();
            self.house = Some(open(self.directories.last().unwrap().path(), Some(HEADER)));
        } else {
            let copy = copy_of(self.directories.last().unwrap().path());
            drop(self.consumer.take());
            drop(house);
            self.house = Some(open(copy.path(), Some(HEADER)));
            self.directories.push(copy);
        }
        self.messages.iter_mut().for_each(|(.., place)| *place = is_returned(*place));
        self.held.clear();
        self.waiting.clear();
        self.consumer = self.house.as_ref().map(subscribe);
    }

    fn check(&self) {
        let counts = self.house.as_ref().unwrap().shard.queue_counts(&[QUEUE]).unwrap()[0];
        let count = |wanted: Place| self.messages.iter().filter(|(.., place)| *place == wanted).count() as u64;
        assert_eq!((counts.ready_count, counts.unacked_count), (count(Place::Ready), count(Place::Held)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn keys_take_turns_and_keep_their_order_also_after_restarts_and_kills(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
            pair.check();
        }
    }
}
