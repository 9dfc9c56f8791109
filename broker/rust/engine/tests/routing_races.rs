//! Queues and routes that come and go while messages are published: nothing confirmed is lost, and a deleted queue gets
//! nothing.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_engine::{Destination, ExchangeKind, Fate, Payload, Publication, QueueId, Shard};

mod house;

use house::{House, STREAM, open_queue};

const PUBLISHERS: usize = 2;
const ROUNDS: u64 = 150;
const BATCH: usize = 20;

fn publish(shard: &Shard, exchange: &str, key: &str) -> Vec<Fate> {
    let payload = Payload::new(exchange.as_bytes(), key.as_bytes(), b"", b"body").unwrap();
    let (exchange, key) = (exchange.as_bytes(), key.as_bytes());
    let one = Publication { payload, exchange, key, headers: None, persistent: false, mandatory: true };
    let mut fates = Vec::new();
    shard.publish(&[one; BATCH], None, 1, &mut fates).unwrap();
    fates
}

/// Publishes until told to stop; returns how many messages were confirmed, and how many came back.
fn publish_until(shard: &Arc<Shard>, exchange: &'static str, is_over: &AtomicBool) -> (u64, u64) {
    let (mut stored, mut returned) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        for fate in publish(shard, exchange, "here") {
            match fate {
                Fate::Stored(_) => stored += 1,
                Fate::Returned => returned += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    (stored, returned)
}

/// Runs changes while others publish; returns the sums of `publish_until`.
fn publish_beside(house: &House, exchange: &'static str, mut change: impl FnMut(u64)) -> (u64, u64) {
    let is_over = Arc::new(AtomicBool::new(false));
    let publisher = || {
        let (shard, is_over) = (Arc::clone(&house.shard), Arc::clone(&is_over));
        std::thread::spawn(move || publish_until(&shard, exchange, &is_over))
    };
    let publishers: Vec<_> = (0..PUBLISHERS).map(|_| publisher()).collect();
    (0..ROUNDS).for_each(&mut change);
    is_over.store(true, Ordering::Relaxed);
    let sums = publishers.into_iter().map(|publisher| publisher.join().unwrap());
    sums.fold((0, 0), |(stored, returned), (more_stored, more_returned)| {
        (stored + more_stored, returned + more_returned)
    })
}

fn shard_of(round: u64, shards: u16) -> u16 {
    u16::try_from(round).unwrap() % shards
}

fn ready(shard: &Shard, id: QueueId) -> u64 {
    shard.queue_counts(&[id]).unwrap()[0].ready_count
}

#[test]
fn queues_that_come_and_go_take_no_message_from_one_that_stays() {
    [1, 3].into_iter().for_each(come_and_go);
}

/// They are in so many shards, in turn.
fn come_and_go(shards: u16) {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let shard = &house.shard;
    shard.grow(shards).unwrap();
    shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
    shard.add_route("all", "", None, Destination::Queue("s")).unwrap();

    let mut went = 0;
    let (stored, returned) = publish_beside(&house, "all", |round| {
        let id = QueueId(10 + round);
        shard.place_queues([(id, shard_of(round, shards))]).unwrap();
        shard.put_queue(id, "passing", false, None).unwrap();
        shard.add_route("all", "", None, Destination::Queue("passing")).unwrap();
        publish(shard, "all", "");
        shard.remove_route("all", "", None, Destination::Queue("passing")).unwrap();
        went += shard.delete_queue(id).unwrap();
    });

    let own = ROUNDS * BATCH as u64;
    assert_eq!(returned, 0);
    assert_eq!(ready(shard, STREAM), stored + own);
    assert!(went >= own, "the passing queues had the messages of this thread at least");
    house.close();
    let house = open_queue(directory.path());
    assert_eq!(ready(&house.shard, STREAM), stored + own);
    let gone: Vec<QueueId> = (0..ROUNDS).map(|round| QueueId(10 + round)).collect();
    assert_eq!(house.shard.retain_queues(&[STREAM]).unwrap(), 0, "the log has no queue but the one that stays");
    assert!(house.shard.queue_counts(&gone).unwrap().iter().all(|counts| counts.ready_count == 0));
    house.close();
}

/// Each message is in a queue, or its publisher got it back.
#[test]
fn a_message_is_confirmed_only_when_it_reached_a_queue_that_was_there() {
    [1, 3].into_iter().for_each(reach_or_come_back);
}

fn reach_or_come_back(shards: u16) {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let shard = &house.shard;
    shard.grow(shards).unwrap();
    shard.put_exchange("one", ExchangeKind::Topic, Some("others")).unwrap();
    shard.put_exchange("others", ExchangeKind::Direct, None).unwrap();

    let mut went = 0;
    let (stored, returned) = publish_beside(&house, "one", |round| {
        let id = QueueId(10 + round);
        shard.place_queues([(id, shard_of(round, shards))]).unwrap();
        shard.put_queue(id, "passing", false, None).unwrap();
        shard.add_route("one", "#", None, Destination::Queue("passing")).unwrap();
        if round % 3 == 0 {
            shard.add_route("others", "here", None, Destination::Queue("s")).unwrap();
        }
        std::thread::yield_now();
        if round % 3 == 2 {
            shard.remove_route("others", "here", None, Destination::Queue("s")).unwrap();
        }
        shard.remove_route("one", "#", None, Destination::Queue("passing")).unwrap();
        went += shard.delete_queue(id).unwrap();
    });

    assert_eq!(ready(shard, STREAM) + went, stored);
    assert!(stored + returned > 0);
    house.close();
}
