//! A queue with a limit drops its oldest messages: those that no consumer has, the oldest of the highest priority first.
#![allow(clippy::unwrap_used)]

mod house;

use std::path::Path;
use std::sync::Arc;

use house::{House, STREAM as QUEUE, open_queue, publish, said};
use penstock_engine::{
    Attributes, LengthLimit, Overflow, Payload, Publication, QueueId, SequenceRange, Settle, Subscription,
    SubscriptionOptions,
};

const HIGHEST: u8 = 9;
const YEAR_3000: u64 = 32_503_680_000_000;

fn limit(house: &House, messages_max: u64, bytes_max: u64) {
    let limit = LengthLimit { messages_max, bytes_max, overflow: Overflow::DropHead };
    house.shard.limit_lengths([(QUEUE, Some(limit))]).unwrap();
    settle_down(house);
}

/// Does the next turn of the expiry thread.
fn settle_down(house: &House) {
    house.shard.expire_due(1).unwrap();
}

fn opened(directory: &Path, messages_max: u64) -> House {
    let house = open_queue(directory);
    limit(&house, messages_max, u64::MAX);
    house
}

fn subscribe(house: &House, prefetch: u32, pull: bool) -> Subscription {
    let options = SubscriptionOptions { prefetch, auto_ack: false, exclusive: false, pull };
    house.shard.subscribe(QUEUE, options).unwrap()
}

/// Takes so many messages and returns their bodies.
fn take(subscription: &Subscription, count: u32) -> Vec<String> {
    let mut runs = Vec::new();
    subscription.take_now(count, &mut runs).unwrap();
    deliver(subscription, &runs)
}

fn fill(subscription: &Subscription, count: u32) -> Vec<String> {
    let mut runs = Vec::new();
    subscription.fill(count, &mut runs).unwrap();
    deliver(subscription, &runs)
}

fn deliver(subscription: &Subscription, runs: &[penstock_engine::Filled]) -> Vec<String> {
    let taken = runs.iter().flat_map(|run| run.picked.iter().map(|one| one.taken.sequence));
    let bodies: Vec<String> = runs.iter().flat_map(said).map(|say| say.body).collect();
    let sizes: Vec<_> = taken.zip(&bodies).map(|(sequence, body)| (sequence, body.len() as u32)).collect();
    subscription.sent(&sizes).unwrap();
    bodies
}

/// The bodies of all ready messages, in the order of their delivery; they stay.
fn ready(house: &House) -> Vec<String> {
    let pull = subscribe(house, 0, true);
    let bodies = take(&pull, 1_000_000);
    pull.put_back(&[SequenceRange::ALL]).unwrap();
    bodies
}

fn dropped(house: &House) -> u64 {
    house.shard.counters().all().find(|(name, _)| *name == "overflow_dropped_total").unwrap().1
}

#[test]
fn the_oldest_go_before_a_publisher_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 3);

    publish(&house, &["a", "b"]);
    assert_eq!(ready(&house), ["a", "b"]);
    publish(&house, &["c", "d", "e"]);
    assert_eq!(house.shard.queue_counts(&[QUEUE]).unwrap()[0].ready_count, 3);

    assert_eq!((ready(&house), dropped(&house)), (vec!["c".into(), "d".into(), "e".into()], 2));
    house.close();
}

#[test]
fn bytes_count_by_the_bodies_and_a_message_larger_than_the_limit_empties_the_queue() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    limit(&house, u64::MAX, 10);

    publish(&house, &["aaaa", "bbbb", "cc"]);
    assert_eq!(ready(&house).len(), 3);
    publish(&house, &["d"]);
    assert_eq!(ready(&house), ["bbbb", "cc", "d"]);
    assert_eq!(house.shard.queue_counts(&[QUEUE]).unwrap()[0].ready_bytes, 7);

    publish(&house, &["a body of more than ten bytes"]);

    assert_eq!((ready(&house), dropped(&house)), (Vec::<String>::new(), 5));
    assert_eq!(house.shard.queue_counts(&[QUEUE]).unwrap()[0].ready_bytes, 0);
    house.close();
}

#[test]
fn unacked_messages_do_not_count_and_come_back_as_the_oldest() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 2);
    publish(&house, &["a", "b"]);
    let consumer = subscribe(&house, 0, true);
    assert_eq!(take(&consumer, 2), ["a", "b"]);

    publish(&house, &["c", "d"]);
    assert_eq!(dropped(&house), 0);
    assert_eq!(consumer.settle(&[SequenceRange::ALL], Settle::Requeue).unwrap(), 2);
    settle_down(&house);

    assert_eq!((ready(&house), dropped(&house)), (vec!["c".into(), "d".into()], 2));
    drop(consumer);
    house.close();
}

#[test]
fn a_limit_counts_for_messages_that_are_there_and_its_end_for_later_ones() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let bodies: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
    publish(&house, &bodies.iter().map(String::as_str).collect::<Vec<_>>());

    limit(&house, 1000, u64::MAX);
    assert_eq!((ready(&house), dropped(&house)), (bodies[2000..].to_vec(), 2000));

    house.shard.limit_lengths([(QUEUE, None)]).unwrap();
    publish(&house, &["more"; 10]);
    settle_down(&house);
    assert_eq!(ready(&house).len(), 1010);
    house.close();
}

#[test]
fn what_consumers_are_about_to_take_does_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 1);
    let waiting = subscribe(&house, 3, false);
    assert_eq!(fill(&waiting, 10), [""; 0]);

    publish(&house, &["a", "b", "c", "d", "e"]);
    settle_down(&house);

    assert_eq!(dropped(&house), 1, "it takes three and one is left");
    assert_eq!(fill(&waiting, 10), ["b", "c", "d"]);
    publish(&house, &["f"]);
    assert_eq!((ready(&house), dropped(&house)), (vec!["f".into()], 2), "it takes no more");
    drop(waiting);
    settle_down(&house);
    assert_eq!(ready(&house), ["f"], "what it had was older");
    house.close();
}

#[test]
fn a_consumer_that_is_paused_gets_no_room() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 1);
    let consumer = subscribe(&house, 10, false);
    assert_eq!(fill(&consumer, 10), [""; 0]);
    publish(&house, &["a", "b", "c"]);
    settle_down(&house);
    assert_eq!(dropped(&house), 0);

    consumer.pause().unwrap();
    settle_down(&house);

    assert_eq!(dropped(&house), 2);
    drop(consumer);
    house.close();
}

fn prioritized(directory: &Path) -> House {
    let engine = house::engine();
    let shard = engine.open_shard("/", directory, false).unwrap();
    shard.prioritize_queues([(QUEUE, HIGHEST)]).unwrap();
    shard.put_queue(QUEUE, "s", false, None).unwrap();
    House { engine, shard }
}

fn publish_with(house: &House, body: &str, attributes: Attributes) {
    let payload = Payload::new(b"", b"s", b"", body.as_bytes()).unwrap().with_attributes(&attributes);
    let one = Publication { payload, exchange: b"", key: b"s", headers: None, persistent: false, mandatory: false };
    house.shard.publish(&[one], None, 1, &mut Vec::new()).unwrap();
}

#[test]
fn the_oldest_of_the_highest_priority_goes_first() {
    let directory = tempfile::tempdir().unwrap();
    let house = prioritized(directory.path());
    limit(&house, 4, u64::MAX);

    for (priority, body) in [(0, "a0"), (5, "b5"), (5, "c5"), (1, "d1"), (0, "e0"), (7, "f7")] {
        publish_with(&house, body, Attributes { priority: Some(priority), ..Attributes::default() });
    }

    assert_eq!(ready(&house), ["c5", "d1", "a0", "e0"], "b5 made room for e0, and f7 was the head itself");
    house.close();
    let house = prioritized(directory.path());
    limit(&house, 4, u64::MAX);
    assert_eq!((ready(&house).len(), dropped(&house)), (4, 0), "a start drops nothing more");
    house.close();
}

#[test]
fn delayed_messages_count_and_stay_also_over_a_start() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 3);
    let later = || Attributes { due_at_ms: Some(YEAR_3000), ..Attributes::default() };

    publish(&house, &["a"]);
    (0..4).for_each(|_| publish_with(&house, "later", later()));
    publish(&house, &["b"]);

    assert_eq!((ready(&house), dropped(&house)), (vec![], 2));
    house.close();
    let house = opened(directory.path(), 3);
    settle_down(&house);
    assert_eq!(house.shard.queue_counts(&[QUEUE]).unwrap()[0].ready_count, 4);
    assert_eq!(dropped(&house), 0, "the start did not know that they wait, and looked");
    house.close();
}

#[test]
fn a_queue_with_its_own_log_and_one_of_many_publishers_keeps_its_limit() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let own = QueueId(7);
    house.shard.dedicate(own).unwrap();
    house.shard.put_queue(own, "own", false, None).unwrap();
    let limited = LengthLimit::of_messages(10, Overflow::DropHead);
    house.shard.limit_lengths([(own, Some(limited)), (QUEUE, Some(limited))]).unwrap();

    std::thread::scope(|scope| {
        for _ in 0..4 {
            let shard = Arc::clone(&house.shard);
            scope.spawn(move || {
                for _ in 0..50 {
                    let of = |key: &'static str| Publication {
                        payload: Payload::new(b"", key.as_bytes(), b"", b"body").unwrap(),
                        exchange: b"",
                        key: key.as_bytes(),
                        headers: None,
                        persistent: false,
                        mandatory: false,
                    };
                    shard.publish(&["own", "s", "s"].map(of), None, 1, &mut Vec::new()).unwrap();
                }
            });
        }
    });

    let counts = house.shard.queue_counts(&[own, QUEUE]).unwrap();
    assert_eq!(counts.iter().map(|one| (one.ready_count, one.ready_bytes)).collect::<Vec<_>>(), [(10, 40), (10, 40)]);
    assert_eq!(dropped(&house), 200 + 400 - 20, "none was dropped that had not to be");
    house.close();
}
