//! The term of a shard of a replicated log: what is confirmed and delivered in it, and how it ends.
#![allow(clippy::unwrap_used)]

mod replica;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use penstock_engine::{
    EngineError, LengthLimit, Overflow, Places, Position, Progress, QueueId, QueueLevels, QueueSettings, ReadFrom,
    ReadSettings, Sequence, SequenceRange, Settle, StreamSettings, SubscriptionOptions,
};
use replica::*;

#[test]
fn messages_are_confirmed_and_delivered_once_they_are_committed() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    let consumer = consumer(&shard);
    assert_eq!(take(&consumer), fresh(&[]));
    assert!(!is_rung(&consumer));

    let places = [publish(&shard, "one"), publish(&shard, "two")];

    assert!(house.replica.0.load(Ordering::SeqCst) >= 2, "the replica hears of what was appended");
    assert!(!places.iter().any(Places::are_synced) && !is_rung(&consumer));
    assert_eq!(take(&consumer), fresh(&[]));
    commit(&shard);
    assert!(places.iter().all(Places::are_synced) && is_rung(&consumer));
    publish(&shard, "three");
    assert_eq!(take(&consumer), fresh(&["one", "two"]));
    assert_eq!(take(&consumer), fresh(&[]));
    assert!(!is_rung(&consumer));
    commit(&shard);
    assert!(is_rung(&consumer));
    assert_eq!(take(&consumer), fresh(&["three"]));
    assert_eq!(shard.queue_counts(&[QUEUE]).unwrap()[0].unacked_count, 3);
}

#[test]
fn a_pull_gets_committed_messages_only_and_keeps_their_order() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    let options = SubscriptionOptions { prefetch: 0, auto_ack: false, exclusive: false, pull: true };
    let pull = shard.subscribe(QUEUE, options).unwrap();
    let get = || {
        let mut filled = Vec::new();
        pull.take_now(10, &mut filled).unwrap();
        bodies(&filled)
    };
    publish(&shard, "one");
    commit(&shard);
    publish(&shard, "two");
    publish(&shard, "three");

    assert_eq!(get(), fresh(&["one"]));
    assert_eq!(get(), fresh(&[]));
    commit(&shard);
    assert_eq!(get(), fresh(&["two", "three"]));
}

#[test]
fn nothing_is_delivered_before_the_term_has_begun_or_while_it_is_paused() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    publish(&shard, "one");
    commit(&shard);
    publish(&shard, "two");
    let log = end(&shard);

    let shard = house.lead(log);
    let consumer = consumer(&shard);
    assert_eq!(take(&consumer), fresh(&[]), "neither the committed one nor the other");
    publish(&shard, "three");
    commit(&shard);
    assert!(!is_rung(&consumer));
    shard.set_delivers(true);

    assert!(is_rung(&consumer));
    let found = take(&consumer);
    assert_eq!(found, [again(&["one", "two"]), fresh(&["three"])].concat());
    shard.set_delivers(false);
    publish(&shard, "four");
    commit(&shard);
    assert!(!is_rung(&consumer));
    assert_eq!(take(&consumer), fresh(&[]));
    shard.set_delivers(true);
    assert!(is_rung(&consumer));
    assert_eq!(take(&consumer), fresh(&["four"]));
}

#[test]
fn the_end_of_a_term_cancels_consumers_and_refuses_everything() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    let confirmed = publish(&shard, "one");
    commit(&shard);
    let consumer = consumer(&shard);
    assert_eq!(take(&consumer), fresh(&["one"]));
    let unknown = publish(&shard, "two");

    assert!(!shard.is_deposed());
    shard.end_term();

    assert!(consumer.signal().cancelled().unwrap().contains("another broker leads") && shard.is_deposed());
    assert!(confirmed.are_synced() && !unknown.are_synced());
    let end = shard.with_log(|log| log.end()).unwrap();
    assert!(shard.sync_to(end).is_err(), "its outcome is unknown");
    assert!(is_not_leading(try_publish(&shard, "jobs", "three")));
    assert!(is_not_leading(shard.put_queue(QueueId(9), "nine", false, None)));
    let one = SequenceRange::new(Sequence(1), Sequence(1)).unwrap();
    assert!(is_not_leading(consumer.settle(&[one], Settle::Ack)));
    assert_eq!(shard.with_log(|log| log.end()).unwrap(), end, "nothing is appended");
    // Another leader commits other records at these positions.
    shard.committed(Position(end.0 + 1000));
    assert!(!unknown.are_synced());
    assert!(shard.take_log().is_some() && shard.take_log().is_none() && shard.with_log(|_| ()).is_none());
    drop(consumer);
    assert!(shard.is_closed() && house.engine.shard("/").is_none());
}

#[test]
fn unsettled_messages_are_flagged_in_the_next_term_and_cut_ones_are_gone() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    let consumer_before = consumer(&shard);
    ["one", "two", "three"].iter().for_each(|body| drop(publish(&shard, body)));
    commit(&shard);
    assert_eq!(take(&consumer_before).len(), 3);
    consumer_before.settle(&[SequenceRange::of(Sequence(2))], Settle::Ack).unwrap();
    commit(&shard);
    publish(&shard, "cut");
    let mut log = end(&shard);
    let bound = log.bound();
    log.truncate_to(bound).unwrap();

    let shard = house.lead_on(log);
    let consumer_after = consumer(&shard);

    assert_eq!(take(&consumer_after), again(&["one", "three"]));
    publish(&shard, "four");
    commit(&shard);
    assert_eq!(take(&consumer_after), fresh(&["four"]));
    drop((consumer_before, consumer_after));
    let log = end(&shard);
    drop(log);
    let log = house.open();
    let shard = house.lead_on(log);
    assert_eq!(take(&consumer(&shard)), again(&["one", "three", "four"]), "after a start");
}

#[test]
fn readers_of_streams_wait_for_the_commit() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    let stream = StreamSettings::default();
    let settings = QueueSettings {
        id: STREAM,
        name: "events",
        auto_delete: false,
        levels: QueueLevels::default(),
        stream: Some(stream),
    };
    shard.put_queues([settings]).unwrap();
    let settings = ReadSettings { from: ReadFrom::First, end: None, group: None, single_active: false };
    let mut reader = shard.read(STREAM, settings).unwrap();
    let mut read = || {
        let mut filled = Vec::new();
        let progress = reader.fill(100, &mut filled).unwrap();
        (progress, bodies(&filled))
    };
    try_publish(&shard, "events", "one").unwrap();
    assert_eq!(read(), (Progress::Waiting, fresh(&[])));

    commit(&shard);
    try_publish(&shard, "events", "two").unwrap();

    assert_eq!(read(), (Progress::Found, fresh(&["one"])));
    assert_eq!(read(), (Progress::Waiting, fresh(&[])));
    commit(&shard);
    assert_eq!(read(), (Progress::Found, fresh(&["two"])));
}

#[test]
fn a_queue_that_drops_its_oldest_messages_drops_committed_ones() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    shard.limit_lengths([(QUEUE, Some(LengthLimit::of_messages(1, Overflow::DropHead)))]).unwrap();
    let length = || {
        let counts = shard.queue_counts(&[QUEUE]).unwrap()[0];
        (counts.ready_count, counts.ready_bytes)
    };
    publish(&shard, "one");
    publish(&shard, "three");
    assert_eq!(length(), (2, 8));

    commit(&shard);

    let limit = Instant::now() + Duration::from_secs(60);
    while length() != (1, 5) && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(length(), (1, 5));
}

#[test]
fn an_engine_that_closes_leaves_the_log_to_its_replica() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    publish(&shard, "one");

    house.engine.close().unwrap();

    assert!(matches!(try_publish(&shard, "jobs", "two"), Err(EngineError::Closed(_))));
    commit(&shard);
    let mut log = end(&shard);
    log.append_mark(b"x", b"key", b"value").unwrap();
}

#[test]
fn a_message_is_confirmed_where_the_log_of_its_queue_is_committed() {
    let mut house = House::new();
    let (first, second) = (house.open(), house.open_further(1));
    let [shard, further] = house.lead_two(first, second);
    let (here, there) = (try_publish(&shard, "jobs", "here").unwrap(), try_publish(&shard, "more", "there").unwrap());

    commit(&shard);

    assert!(here.are_synced() && !there.are_synced());
    assert_eq!((drain(&shard, QUEUE), drain(&shard, STREAM)), (fresh(&["here"]), vec![]));
    commit(&further);
    assert!(there.are_synced());
    assert_eq!(drain(&shard, STREAM), fresh(&["there"]));
    assert_eq!(shard.shard_count().unwrap(), 2);
}

#[test]
fn the_term_of_all_shards_ends_with_that_of_one_and_another_one_may_begin() {
    let mut house = House::new();
    let (first, second) = (house.open(), house.open_further(1));
    let [shard, further] = house.lead_two(first, second);
    drop(try_publish(&shard, "jobs", "here").unwrap());
    drop(try_publish(&shard, "more", "there").unwrap());
    [&shard, &further].into_iter().for_each(|each| commit(each));

    let second = end(&further);

    assert!(shard.is_deposed() && house.engine.shard("/").is_none());
    assert!(is_not_leading(try_publish(&shard, "jobs", "late")) && is_not_leading(try_publish(&shard, "more", "late")));
    assert!(is_not_leading(shard.stream_states(&[STREAM])), "it would say an offset of 0");
    let first = end(&shard);
    let [again_first, _further] = house.lead_two(first, second);
    assert_eq!((drain(&again_first, QUEUE), drain(&again_first, STREAM)), (again(&["here"]), again(&["there"])));
}

#[test]
fn a_shard_that_is_missing_is_not_counted_and_one_is_not_opened_after_the_end() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);

    assert!(matches!(shard.count_shards(2), Err(EngineError::NoShard(1, _))));
    shard.end_term();

    let led = house.begun(house.open_further(1));
    let refused = house.engine.lead_further(&shard, 1, &house.further(1), led).err().unwrap();
    assert!(matches!(refused.error, EngineError::NotLeading(_)), "{:?}", refused.error);
}
