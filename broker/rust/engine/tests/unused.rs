//! Queues that are unused for their time are reported: those without consumers, gets and declarations.
#![allow(clippy::unwrap_used)]

mod house;

use house::{House, STREAM as QUEUE, open_queue, publish};
use penstock_engine::{LeaseLimits, SubscriptionOptions, UnusedQueue};

/// The next reported queue.
fn reported(house: &House) -> UnusedQueue {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(house.engine.unused().wait()).remove(0)
}

fn expire(house: &House, after_ms: u64) {
    house.shard.expire_queues([(QUEUE, Some(after_ms))]).unwrap();
}

#[test]
fn a_queue_is_reported_after_its_time_whether_or_not_it_has_messages() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["it goes with the queue"]);
    expire(&house, 3_600_000);
    assert!(!house.shard.is_unused(QUEUE).unwrap());

    expire(&house, 1);

    assert_eq!(reported(&house), UnusedQueue { vhost: "/".into(), queue: "s".into(), id: QUEUE });
    assert!(house.shard.is_unused(QUEUE).unwrap());
    assert_eq!(reported(&house).id, QUEUE, "until it is deleted");
    house.close();
}

#[test]
fn consumers_and_leases_are_a_use_and_so_are_gets_and_declarations() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["a", "b"]);
    let options = |pull| SubscriptionOptions { prefetch: 10, auto_ack: false, exclusive: false, pull };
    expire(&house, 1);
    let consumer = house.shard.subscribe(QUEUE, options(false)).unwrap();
    look(&house);
    assert!(!house.shard.is_unused(QUEUE).unwrap(), "it has a consumer");
    drop(consumer);
    let limits = LeaseLimits { messages_max: 1, bytes_max: 0 };
    house.shard.reserve_lease(QUEUE, "o", 1, limits, 1).unwrap();
    assert!(!house.shard.is_unused(QUEUE).unwrap(), "messages are reserved");
    house.shard.ack_leases(QUEUE, "o", 1).unwrap();
    while !house.shard.is_unused(QUEUE).unwrap() {}

    expire(&house, 3_600_000);
    expire(&house, 3_599_999);
    let pull = house.shard.subscribe(QUEUE, options(true)).unwrap();
    pull.take_now(1, &mut Vec::new()).unwrap();
    house.shard.use_queue(QUEUE).unwrap();
    assert!(!house.shard.is_unused(QUEUE).unwrap());
    drop(pull);
    house.close();
}

/// Has the thread of expiries look, whatever it finds.
fn look(house: &House) {
    house.shard.expire_due(u64::MAX / 2).unwrap();
}

#[test]
fn a_deleted_queue_and_one_without_a_time_are_not_reported() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    expire(&house, 0);
    house.shard.expire_queues([(QUEUE, None)]).unwrap();
    assert!(!house.shard.is_unused(QUEUE).unwrap());

    expire(&house, 0);
    house.shard.delete_queue(QUEUE).unwrap();

    assert!(!house.shard.is_unused(QUEUE).unwrap());
    house.close();
}
