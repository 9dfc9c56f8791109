//! Errors about a queue that was deleted name it as its clients do.
#![allow(clippy::unwrap_used)]

mod house;

use house::{open_queue, publish};
use penstock_engine::{ConsumerRules, SequenceRange, Settle, SubscriptionOptions};

const OPTIONS: SubscriptionOptions =
    SubscriptionOptions { prefetch: 10, auto_ack: false, exclusive: false, pull: false };

#[test]
fn a_queue_that_was_deleted_meanwhile_has_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["a"]);
    let consumer = house.shard.subscribe(house::STREAM, OPTIONS).unwrap();
    consumer.fill(10, &mut Vec::new()).unwrap();
    house.shard.delete_queue(house::STREAM).unwrap();

    let refused = [
        consumer.fill(10, &mut Vec::new()).unwrap_err(),
        consumer.settle(&[SequenceRange::ALL], Settle::Ack).unwrap_err(),
        house.shard.subscribe(house::STREAM, OPTIONS).map(drop).unwrap_err(),
        house.shard.purge_queue(house::STREAM).unwrap_err(),
    ];

    assert_eq!(refused.map(|error| error.to_string()), ["no queue 's' in vhost '/'"; 4]);
    assert_eq!(consumer.signal().cancelled(), Some("queue 's' was deleted"));
    drop(consumer);
    house.close();
}

#[test]
fn another_limit_of_unacked_messages_counts_for_consumers_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let consumer = house.shard.subscribe(house::STREAM, OPTIONS).unwrap();
    assert_eq!(consumer.ack_timeout_ms(), None);

    for limit in [Some(700), Some(5), None] {
        house
            .shard
            .rule_consumers([(house::STREAM, ConsumerRules { single_active: false, ack_timeout_ms: limit })])
            .unwrap();
        assert_eq!(consumer.ack_timeout_ms(), limit);
    }
    publish(&house, &["a", "b"]);
    let mut filled = Vec::new();
    consumer.fill(10, &mut filled).unwrap();
    assert_eq!(consumer.delivered().unwrap(), []);
    let first = filled[0].picked[0].taken.sequence;
    consumer.sent(&[(first, 1)]).unwrap();
    assert_eq!(consumer.delivered().unwrap(), [SequenceRange::of(first)]);
    drop(consumer);
    house.close();
}
