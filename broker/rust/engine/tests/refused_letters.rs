//! Full queues that have the messages which they refuse dead-lettered: each such message is refused and moves once, whatever
//! fails, and no consumer of the full queue gets it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "house/crashing.rs"]
mod crashing;
mod house;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crashing::CrashingDisk;
use house::{House, engine, open_declared, said};
use penstock_engine::{
    Attributes, DeadLetters, Destination, ExchangeKind, Fate, LengthLimit, Overflow, Payload, Producer, Publication,
    QueueId, SequenceRange, Settle, Shard, Subscription, SubscriptionOptions,
};
use penstock_log::{Disk, RealDisk};
use proptest::prelude::*;

/// The queue "s", whose refused messages go to "dead".
const FULL: QueueId = house::STREAM;
const OTHER: QueueId = QueueId(100);
const DEAD: QueueId = QueueId(200);

fn limit(messages_max: u64) -> LengthLimit {
    LengthLimit::of_messages(messages_max, Overflow::RejectPublishDlx)
}

/// "all" leads to "s" and "other"; "s" takes two messages.
fn declare(shard: &Shard) {
    shard.put_queue(OTHER, "other", false, None).unwrap();
    shard.put_queue(DEAD, "dead", false, None).unwrap();
    shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
    for queue in ["s", "other"] {
        shard.add_route("all", "", None, Destination::Queue(queue)).unwrap();
    }
    let to_dead = DeadLetters { exchange: String::new(), routing_key: Some("dead".into()), at_least_once: false };
    shard.route_dead_letters([(FULL, Some(to_dead))]).unwrap();
    shard.limit_lengths([(FULL, Some(limit(2)))]).unwrap();
}

fn open(directory: &Path) -> House {
    open_declared(directory, Arc::new(RealDisk), declare)
}

/// One whose dead letters do not move, as if the broker died before they do.
fn open_stuck(directory: &Path) -> House {
    let engine = engine();
    let shard = engine.open_incomplete("/", directory, false).unwrap();
    shard.put_queue(FULL, "s", false, None).unwrap();
    declare(&shard);
    House { engine, shard }
}

fn publication<'a>(exchange: &'a str, body: &'a str, attributes: &'a Attributes) -> Publication<'a> {
    let (exchange, key) = (exchange.as_bytes(), b"s".as_slice());
    let payload = Payload::new(exchange, key, b"", body.as_bytes()).unwrap().with_attributes(attributes);
    Publication { payload, exchange, key, headers: None, persistent: true, mandatory: false }
}

/// Publishes messages one by one; returns which were refused.
fn publish(house: &House, exchange: &str, bodies: &[&str], attributes: Attributes) -> Vec<bool> {
    let batch: Vec<_> = bodies.iter().map(|body| publication(exchange, body, &attributes)).collect();
    let mut fates = Vec::new();
    house.shard.publish(&batch, None, 1, &mut fates).unwrap();
    fates.iter().map(|fate| *fate == Fate::Overflow).collect()
}

fn send(house: &House, exchange: &str, bodies: &[&str]) -> Vec<bool> {
    publish(house, exchange, bodies, Attributes::default())
}

fn subscribe(house: &House, queue: QueueId) -> Subscription {
    let options = SubscriptionOptions { prefetch: 1_000, auto_ack: false, exclusive: false, pull: false };
    house.shard.subscribe(queue, options).unwrap()
}

fn deliver(subscription: &Subscription) -> Vec<String> {
    let mut filled = Vec::new();
    subscription.fill(1_000, &mut filled).unwrap();
    let sequences = filled.iter().flat_map(|run| run.picked.iter().map(|one| one.taken.sequence));
    let bodies: Vec<String> = filled.iter().flat_map(said).map(|say| say.body).collect();
    let sizes: Vec<_> = sequences.zip(&bodies).map(|(sequence, body)| (sequence, body.len() as u32)).collect();
    subscription.sent(&sizes).unwrap();
    bodies
}

/// The bodies of the messages in a queue, which stay there.
fn bodies(house: &House, queue: QueueId) -> Vec<String> {
    deliver(&subscribe(house, queue))
}

fn ready(house: &House, queue: QueueId) -> u64 {
    house.shard.queue_counts(&[queue]).unwrap()[0].ready_count
}

fn until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "it takes too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_refused_message_is_a_dead_letter_and_the_other_queues_have_it() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());

    let refused = send(&house, "all", &["a", "b", "c", "d"]);

    assert_eq!(refused, [false, false, true, true]);
    until(|| ready(&house, DEAD) == 2 && ready(&house, FULL) == 2);
    assert_eq!(bodies(&house, DEAD), ["c", "d"]);
    assert_eq!((bodies(&house, FULL), bodies(&house, OTHER).len()), (vec!["a".into(), "b".into()], 4));
    let counted = |name: &str| house.engine.counters().all().find(|(found, _)| *found == name).unwrap().1;
    // The letters are counted after they were stored.
    until(|| (counted("overflow_refused_total"), counted("dead_lettered_maxlen_total")) == (2, 2));
    house.close();
}

#[test]
fn letters_that_wait_do_not_count_for_the_length_and_no_consumer_gets_them() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_stuck(directory.path());
    assert_eq!(send(&house, "", &["a", "b", "c"]), [false, false, true]);
    let consumer = subscribe(&house, FULL);

    assert_eq!(deliver(&consumer), ["a", "b"]);
    consumer.settle(&[SequenceRange::ALL], Settle::Ack).unwrap();
    assert_eq!(send(&house, "", &["d", "e", "f"]), [false, false, true]);

    assert_eq!(deliver(&consumer), ["d", "e"]);
    assert_eq!(ready(&house, DEAD), 0);
    std::mem::forget((consumer, house));
}

#[test]
fn a_limit_of_bytes_counts_without_letters_that_wait() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_stuck(directory.path());
    let of_bytes = LengthLimit { messages_max: u64::MAX, bytes_max: 10, overflow: Overflow::RejectPublishDlx };
    house.shard.limit_lengths([(FULL, Some(of_bytes))]).unwrap();

    let refused = send(&house, "", &["12345678", "too long", "9", "0", "x"]);

    assert_eq!(refused, [false, true, false, false, true]);
    assert_eq!(bodies(&house, FULL), ["12345678", "9", "0"]);
    std::mem::forget(house);
}

#[test]
fn a_letter_moves_after_a_start_that_the_broker_died_before_and_once() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_stuck(directory.path());
    assert_eq!(send(&house, "all", &["a", "b", "c", "d"]), [false, false, true, true]);
    // There is room again, and the letters are letters nevertheless.
    let consumer = subscribe(&house, FULL);
    assert_eq!(deliver(&consumer), ["a", "b"]);
    consumer.settle(&[SequenceRange::ALL], Settle::Ack).unwrap();
    std::mem::forget((consumer, house));

    for _ in 0..2 {
        let house = open(directory.path());
        until(|| ready(&house, DEAD) == 2 && ready(&house, FULL) == 0);
        assert_eq!((bodies(&house, DEAD), bodies(&house, OTHER).len()), (vec!["c".into(), "d".into()], 4));
        house.close();
    }
}

#[test]
fn letters_have_no_times_of_their_own_and_keep_their_priority() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_stuck(directory.path());
    house.shard.prioritize_queues([(FULL, 9), (DEAD, 9)]).unwrap();
    send(&house, "", &["a", "b"]);
    let times = Attributes { due_at_ms: Some(2), expires_at_ms: Some(3), ..Attributes::default() };
    assert_eq!(publish(&house, "", &["low"], Attributes { priority: Some(1), ..times }), [true]);
    assert_eq!(publish(&house, "", &["high"], Attributes { priority: Some(9), ..times }), [true]);
    house.shard.expire_due(1_000).unwrap();
    assert_eq!(bodies(&house, FULL), ["a", "b"]);
    std::mem::forget(house);

    let house = open_declared(directory.path(), Arc::new(RealDisk), |shard| {
        shard.prioritize_queues([(FULL, 9), (DEAD, 9)]).unwrap();
        declare(shard);
    });

    until(|| ready(&house, DEAD) == 2);
    assert_eq!(bodies(&house, DEAD), ["high", "low"]);
    house.close();
}

#[test]
fn without_a_dead_letter_exchange_messages_are_only_refused() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    house.shard.route_dead_letters([(FULL, None)]).unwrap();

    assert_eq!(send(&house, "", &["a", "b", "c"]), [false, false, true]);

    assert_eq!(house.shard.queue_counts(&[FULL]).unwrap()[0].published_count, 2);
    house.close();
}

#[test]
fn a_letter_does_not_come_back_to_the_queue_that_refused_it() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let back = DeadLetters { exchange: String::new(), routing_key: Some("s".into()), at_least_once: true };
    house.shard.route_dead_letters([(FULL, Some(back))]).unwrap();

    assert_eq!(send(&house, "", &["a", "b", "c"]), [false, false, true]);

    until(|| ready(&house, FULL) == 2);
    assert_eq!(bodies(&house, FULL), ["a", "b"]);
    house.close();
}

/// It sends the message again, which would be a letter each time.
#[test]
fn a_named_producer_is_refused_and_its_message_is_no_letter() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    send(&house, "", &["a", "b"]);
    let session = house.shard.open_producer("p", "u").unwrap();
    let producer = Producer { id: session.id(), sequence: 1 };
    let payload = Payload::new(b"", b"s", b"", b"c").unwrap().with_producer(producer);
    let one = Publication { payload, exchange: b"", key: b"s", headers: None, persistent: true, mandatory: false };
    let mut fates = Vec::new();

    house.shard.publish_as(Some(&session), &[one], None, 1, &mut fates).unwrap();

    assert_eq!(fates, [Fate::Overflow]);
    assert_eq!(house.shard.queue_counts(&[FULL, DEAD]).unwrap().iter().map(|one| one.published_count).sum::<u64>(), 2);
    drop(session);
    house.close();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever of the last writes is lost, a message is in the full queue or a letter, and in one of them once.
    #[test]
    fn after_a_failure_of_power_each_message_is_in_one_place(
        writes in 0..24_i64, kept: [u8; 3], count in 1..6_usize,
    ) {
        let (directory, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disk = Arc::new(CrashingDisk::default());
        let house = open_declared(directory.path(), Arc::clone(&disk) as Arc<dyn Disk>, declare);
        disk.writes_left.store(writes, Ordering::SeqCst);
        let sent: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        for body in &sent {
            let attributes = Attributes::default();
            let _ = house.shard.publish(&[publication("", body, &attributes)], None, 1, &mut Vec::new());
        }
        disk.image(directory.path(), after.path(), &kept);
        let _ = house.engine.close();

        let house = open(after.path());
        // Letters on their way count as ready.
        until(|| ready(&house, FULL) <= 2);
        let mut found = [bodies(&house, FULL), bodies(&house, DEAD)].concat();
        found.sort_unstable();
        prop_assert_eq!(&found[..], &sent[..found.len()]);
        house.close();
    }
}
