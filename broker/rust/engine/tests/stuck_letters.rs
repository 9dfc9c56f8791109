//! Dead letters that stay, because no queue or a full one does not take them, hinder nothing else: not the limits of their queue, not
//! those of other queues, and not the queues beside a full one.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod house;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use house::{House, open_queue};
use penstock_engine::{
    DeadLetters, Destination, ExchangeKind, LengthLimit, Overflow, Payload, Publication, QueueId, Sequence,
    SequenceRange, Settle, Shard, Subscription, SubscriptionOptions,
};

/// The queue "s".
const JOBS: QueueId = house::STREAM;
const OTHER: QueueId = QueueId(2);
const ROOMY: QueueId = QueueId(5);
const FULL: QueueId = QueueId(6);

fn to(exchange: &str, key: &str, at_least_once: bool) -> Option<DeadLetters> {
    Some(DeadLetters { exchange: exchange.into(), routing_key: Some(key.into()), at_least_once })
}

fn publish(shard: &Arc<Shard>, queue: &str, count: usize, body: &[u8]) {
    let payload = Payload::new(b"", queue.as_bytes(), b"", body).unwrap();
    let key = queue.as_bytes();
    let one = Publication { payload, exchange: b"", key, headers: None, persistent: false, mandatory: false };
    for part in vec![one; count].chunks(4096) {
        shard.publish(part, None, 1, &mut Vec::new()).unwrap();
    }
}

/// A consumer that has so many of the first messages of a queue.
fn take(shard: &Arc<Shard>, queue: QueueId, count: u32) -> Subscription {
    let options = SubscriptionOptions { prefetch: count, auto_ack: false, exclusive: false, pull: false };
    let consumer = shard.home_of(queue).subscribe(queue, options).unwrap();
    while consumer.unacked_count() < count {
        let mut filled = Vec::new();
        consumer.fill(count, &mut filled).unwrap();
        for picked in filled.iter().flat_map(|run| run.picked.iter().map(move |one| (one, &run.segment))) {
            let bytes = picked.1.message(picked.0.offset).unwrap().body.len();
            consumer.sent(&[(picked.0.taken.sequence, bytes as u32)]).unwrap();
        }
    }
    consumer
}

/// Rejects some of the first messages of a queue, of which a consumer takes so many.
fn reject(shard: &Arc<Shard>, queue: QueueId, count: u32, ranges: &[SequenceRange]) {
    take(shard, queue, count).settle(ranges, Settle::Reject).unwrap();
}

fn ready(shard: &Arc<Shard>, queue: QueueId) -> u64 {
    shard.queue_counts(&[queue]).unwrap()[0].ready_count
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Only the number counted while a queue had letters that stay.
#[test]
fn the_bytes_of_a_queue_are_limited_beside_letters_that_stay() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    house.shard.route_dead_letters([(JOBS, to("", "none", true))]).unwrap();
    let limit = LengthLimit { messages_max: u64::MAX, bytes_max: 100, overflow: Overflow::DropHead };
    house.shard.limit_lengths([(JOBS, Some(limit))]).unwrap();
    publish(&house.shard, "s", 2, &[b'x'; 50]);
    reject(&house.shard, JOBS, 2, &[SequenceRange::ALL]);

    publish(&house.shard, "s", 5, &[b'x'; 40]);

    until("it is shortened", || ready(&house.shard, JOBS) == 4);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(ready(&house.shard, JOBS), 4, "two letters and 80 bytes");
    house.close();
}

/// No queue with dead letters was shortened once so many letters of any queue could not leave.
#[test]
fn queues_are_shortened_however_many_letters_of_others_stay() {
    const RUNS: usize = (1 << 16) + 8;
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    house.shard.put_queue(OTHER, "other", false, None).unwrap();
    house.shard.route_dead_letters([(JOBS, to("", "none", true)), (OTHER, to("", "none", false))]).unwrap();
    publish(&house.shard, "s", 2 * RUNS, b"x");
    let every_other: Vec<_> = (0..RUNS as u64).map(|at| SequenceRange::of(Sequence(2 * at + 1))).collect();
    reject(&house.shard, JOBS, 2 * RUNS as u32, &every_other);

    house.shard.limit_lengths([(OTHER, Some(LengthLimit::of_messages(3, Overflow::DropHead)))]).unwrap();
    publish(&house.shard, "other", 10, b"x");

    until("it is shortened", || ready(&house.shard, OTHER) == 3);
    assert_eq!(ready(&house.shard, JOBS), 2 * RUNS as u64);
    std::mem::forget(house);
}

/// The copy was refused for all queues of the log, because the log would have recognized it.
#[test]
fn a_full_queue_keeps_letters_from_no_other_queue_of_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    house.shard.grow(2).unwrap();
    house.shard.put_exchange("dlx", ExchangeKind::Fanout, None).unwrap();
    for (id, name) in [(ROOMY, "roomy"), (FULL, "full")] {
        house.shard.place_queues([(id, 1)]).unwrap();
        house.shard.put_queue(id, name, false, None).unwrap();
        house.shard.add_route("dlx", "", None, Destination::Queue(name)).unwrap();
    }
    house.shard.limit_lengths([(FULL, Some(LengthLimit::of_messages(2, Overflow::RejectPublish)))]).unwrap();
    house.shard.route_dead_letters([(JOBS, to("dlx", "", false))]).unwrap();
    publish(&house.shard, "s", 5, b"x");

    reject(&house.shard, JOBS, 5, &[SequenceRange::ALL]);

    until("all have left", || ready(&house.shard, JOBS) == 0);
    assert_eq!((ready(&house.shard, ROOMY), ready(&house.shard, FULL)), (5, 2));
    house.close();
}

/// Another virtual host, whose letters leave.
fn open_beside(house: &House, directory: &Path) -> Arc<Shard> {
    let other = house.engine.open_shard("other", directory, false).unwrap();
    other.put_queue(JOBS, "s", false, None).unwrap();
    other.put_queue(ROOMY, "roomy", false, None).unwrap();
    other.route_dead_letters([(JOBS, to("", "roomy", true))]).unwrap();
    other
}

/// Each rejection while letters were tried was a further turn of its virtual host, before each turn of the others.
#[test]
fn a_virtual_host_whose_letters_stay_has_one_turn_however_many_more_there_are() {
    const COUNT: u32 = 10_000;
    const STUCK: u64 = 9_000;
    let (directory, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let house = open_queue(directory.path());
    house.shard.route_dead_letters([(JOBS, to("", "none", true))]).unwrap();
    let other = open_beside(&house, beside.path());
    publish(&house.shard, "s", COUNT as usize, b"x");
    publish(&other, "s", 1, b"x");
    let consumer = take(&house.shard, JOBS, COUNT);
    let rejects = |first: u64, last: u64| {
        let range = SequenceRange::new(Sequence(first), Sequence(last)).unwrap();
        consumer.settle(&[range], Settle::Reject).unwrap();
    };
    let began = Instant::now();
    rejects(1, STUCK);
    for sequence in STUCK + 1..=u64::from(COUNT) {
        rejects(sequence, sequence);
        std::thread::sleep(Duration::from_millis(2));
    }
    let rejecting = began.elapsed();

    let began = Instant::now();
    reject(&other, JOBS, 1, &[SequenceRange::ALL]);
    until("it moves", || ready(&other, ROOMY) == 1);

    // Turns that had multiplied took about as long as the rejections.
    assert!(began.elapsed() < rejecting / 2, "{:?} after {rejecting:?}", began.elapsed());
    drop(consumer);
    house.close();
}
