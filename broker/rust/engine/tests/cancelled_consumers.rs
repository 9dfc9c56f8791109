//! Consumers that are cancelled or lost while their queue has leases and remembers ids: what they had comes back once, in its
//! place, flagged as redelivered if it was delivered, and is not taken for a repetition.
#![allow(clippy::unwrap_used)]

#[path = "house/headers.rs"]
mod headers;
mod house;

use std::path::Path;
use std::sync::Arc;

use headers::table_of;
use house::{House, STREAM, open_declared};
use penstock_engine::{
    BackOff, Deduplication, LeaseLimits, Payload, Publication, RetrySchedule, RetryType, Sequence, SequenceRange,
    Settle, Subscription, SubscriptionOptions,
};
use penstock_log::RealDisk;

/// Far in the future, so that the thread that releases messages in the background does nothing by itself.
const YEAR_3000: u64 = 32_503_680_000_000;

fn open(directory: &Path) -> House {
    let by_id = Deduplication { header: b"id".as_slice().into(), size_max: 100, ttl_ms: None };
    let house = open_declared(directory, Arc::new(RealDisk), |shard| {
        shard.deduplicate_queues([(STREAM, Some(by_id))]).unwrap();
    });
    house.shard.expire_due(YEAR_3000).unwrap();
    house
}

/// Publishes messages with the ids of their numbers.
fn send(house: &House, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        let table = table_of(&[("id", &number.to_string())]);
        let payload = Payload::new(b"", b"s", b"", b"body").unwrap();
        let one = Publication {
            payload,
            exchange: b"",
            key: b"s",
            headers: Some(&table),
            persistent: false,
            mandatory: false,
        };
        house.shard.publish(&[one], None, YEAR_3000, &mut Vec::new()).unwrap();
    }
}

fn subscribe(house: &House, prefetch: u32) -> Subscription {
    let options = SubscriptionOptions { prefetch, auto_ack: false, exclusive: false, pull: false };
    house.shard.subscribe(STREAM, options).unwrap()
}

/// Sequences of what it takes, with how often each was delivered and whether it is flagged.
fn take(consumer: &Subscription) -> Vec<(u64, u32, bool)> {
    let mut filled = Vec::new();
    consumer.fill(100, &mut filled).unwrap();
    let taken = filled.iter().flat_map(|run| run.picked.iter().map(|one| one.taken));
    taken.map(|one| (one.sequence.0, one.delivery_count, one.redelivered)).collect()
}

fn deliver(consumer: &Subscription, numbers: &[u64]) {
    let sizes: Vec<_> = numbers.iter().map(|&number| (Sequence(number), 4)).collect();
    consumer.sent(&sizes).unwrap();
}

fn numbers(house: &House) -> (u64, u64) {
    let counts = house.shard.queue_counts(&[STREAM]).unwrap();
    (counts[0].ready_count, counts[0].unacked_count)
}

#[test]
fn messages_of_a_lost_consumer_come_back_once_beside_those_of_a_lease() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    send(&house, 1..=8);
    let limits = LeaseLimits { messages_max: 2, bytes_max: 0 };
    assert_eq!(house.shard.reserve_lease(STREAM, "o", 1, limits, 9).unwrap().lease.count, 2);
    let lost = subscribe(&house, 4);
    assert_eq!(take(&lost), [(3, 0, false), (4, 0, false), (5, 0, false), (6, 0, false)]);
    deliver(&lost, &[3, 4]);

    drop(lost);
    send(&house, 1..=8);

    assert_eq!(numbers(&house), (6, 2));
    let next = subscribe(&house, 100);
    let back = [(3, 1, true), (4, 1, true), (5, 0, false), (6, 0, false), (7, 0, false), (8, 0, false)];
    assert_eq!(take(&next), back);
    assert_eq!(house.shard.release_leases(STREAM, "o", 1).unwrap(), 2);
    assert_eq!(take(&next), [(1, 1, true), (2, 1, true)]);
    assert_eq!(next.settle(&[SequenceRange::ALL], Settle::Ack).unwrap(), 8);
    send(&house, 1..=8);
    assert_eq!(numbers(&house), (0, 0));
    drop(next);
    house.close();
}

#[test]
fn a_cancelled_consumer_settles_what_it_has_and_returns_the_rest_when_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    send(&house, 1..=4);
    let cancelled = subscribe(&house, 100);
    assert_eq!(take(&cancelled).len(), 4);
    deliver(&cancelled, &[1, 2, 3, 4]);

    assert_eq!(cancelled.retire().unwrap(), None);
    send(&house, 1..=5);
    assert_eq!(take(&cancelled), []);
    let range = |number| SequenceRange::of(Sequence(number));
    assert_eq!(cancelled.settle(&[range(1)], Settle::Ack).unwrap(), 1);
    assert_eq!(cancelled.settle(&[range(3)], Settle::Requeue).unwrap(), 1);
    let next = subscribe(&house, 100);
    assert_eq!(take(&next), [(3, 1, true), (5, 0, false)]);
    drop(cancelled);

    assert_eq!(take(&next), [(2, 1, true), (4, 1, true)]);
    assert_eq!(numbers(&house), (0, 4));
    drop(next);
    house.close();
}

#[test]
fn with_retries_what_comes_back_waits_and_is_no_repetition_also_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let schedule = RetrySchedule { of: RetryType::All, back_off: BackOff::Steps(vec![1_000]) };
    house.shard.schedule_retries([(STREAM, Some(schedule))]).unwrap();
    send(&house, 1..=3);
    let lost = subscribe(&house, 2);
    assert_eq!(take(&lost).len(), 2);
    deliver(&lost, &[1, 2]);
    drop(lost);
    assert_eq!(take(&subscribe(&house, 100)), [(3, 0, false)]);
    std::mem::forget(house);

    let house = open(directory.path());
    send(&house, 1..=3);
    let next = subscribe(&house, 100);
    assert_eq!(take(&next), [(3, 0, true)]);
    house.shard.expire_due(YEAR_3000 + 1_000).unwrap();
    assert_eq!(take(&next), [(1, 1, true), (2, 1, true)]);
    drop(next);
    house.close();
}
