//! A shard through its interface: publish, take, settle, and its state after a restart.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use penstock_engine::{
    Destination, Engine, EngineOptions, ExchangeKind, Fate, Filled, Level, Payload, Publication, QueueId, QueueLevels,
    QueueSettings, Sequence, SequenceRange, Settle, Shard, StreamSettings, Subscription, SubscriptionOptions,
};

const QUEUE: QueueId = QueueId(1);

struct House {
    engine: Engine,
    shard: Arc<Shard>,
}

fn small() -> EngineOptions {
    EngineOptions {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 256 << 10,
        segment_idle: Duration::from_secs(60),
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 64 << 20,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 4096,
    }
}

fn open(directory: &std::path::Path) -> House {
    let engine = Engine::new(small()).unwrap();
    let shard = engine.open_shard("/", directory, false).unwrap();
    shard.put_queue(QUEUE, "jobs", false, None).unwrap();
    House { engine, shard }
}

fn publish_to(shard: &Arc<Shard>, exchange: &str, key: &str, bodies: &[&[u8]]) -> Vec<Fate> {
    let batch: Vec<Publication<'_>> = bodies
        .iter()
        .map(|body| Publication {
            payload: Payload::new(exchange.as_bytes(), key.as_bytes(), b"", body).unwrap(),
            exchange: exchange.as_bytes(),
            key: key.as_bytes(),
            headers: None,
            persistent: false,
            mandatory: false,
        })
        .collect();
    let mut fates = Vec::new();
    shard.publish(&batch, None, 1, &mut fates).unwrap();
    fates
}

fn publish(shard: &Arc<Shard>, bodies: &[&[u8]]) -> Vec<Fate> {
    publish_to(shard, "", "jobs", bodies)
}

/// The answer to a publisher that chose `os` for one message to all queues of `amq.fanout`.
fn carelessly(shard: &Arc<Shard>) -> Fate {
    let payload = Payload::new(b"amq.fanout", b"", b"", b"a").unwrap();
    let publication =
        Publication { payload, exchange: b"amq.fanout", key: b"", headers: None, persistent: true, mandatory: true };
    let mut fates = Vec::new();
    shard.publish(&[publication], Some(Level::Os), 1, &mut fates).unwrap();
    fates[0]
}

fn consumer(shard: &Arc<Shard>, prefetch: u32, auto_ack: bool) -> Subscription {
    shard.subscribe(QUEUE, SubscriptionOptions { prefetch, auto_ack, exclusive: false, pull: false }).unwrap()
}

fn read(filled: &[Filled]) -> Vec<(u64, Vec<u8>, u32)> {
    let mut messages = Vec::new();
    for Filled { segment, picked } in filled {
        for one in picked {
            let view = segment.message(one.offset).unwrap();
            messages.push((one.taken.sequence.0, view.body.to_vec(), one.taken.delivery_count));
        }
    }
    messages
}

fn take(subscription: &Subscription, count_max: u32) -> Vec<(u64, Vec<u8>, u32)> {
    let mut filled = Vec::new();
    subscription.fill(count_max, &mut filled).unwrap();
    let messages = read(&filled);
    let sizes: Vec<(Sequence, u32)> =
        messages.iter().map(|(sequence, body, _)| (Sequence(*sequence), u32::try_from(body.len()).unwrap())).collect();
    subscription.sent(&sizes).unwrap();
    messages
}

fn range(first: u64, last: u64) -> SequenceRange {
    SequenceRange::new(Sequence(first), Sequence(last)).unwrap()
}

#[test]
fn what_was_published_is_taken_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let House { shard, .. } = open(directory.path());

    let fates = publish(&shard, &[b"one", b"two"]);

    assert_eq!(fates, [Fate::Stored(Level::Os), Fate::Stored(Level::Os)]);
    let taken = take(&consumer(&shard, 10, false), 10);
    assert_eq!(taken, [(1, b"one".to_vec(), 0), (2, b"two".to_vec(), 0)]);
}

#[test]
fn a_settled_message_is_gone_after_a_start_and_an_unacked_one_is_ready_again() {
    let directory = tempfile::tempdir().unwrap();
    {
        let House { shard, .. } = open(directory.path());
        publish(&shard, &[b"done", b"open", b"waiting"]);
        let subscription = consumer(&shard, 2, false);
        take(&subscription, 2);
        subscription.settle(&[range(1, 1)], Settle::Ack).unwrap();
        // The process dies here: nothing is closed.
        std::mem::forget(subscription);
        std::mem::forget(shard);
    }

    let House { shard, .. } = open(directory.path());

    assert_eq!(shard.totals().unwrap(), (2, 0));
    let taken = take(&consumer(&shard, 10, false), 10);
    let bodies: Vec<Vec<u8>> = taken.into_iter().map(|(_, body, _)| body).collect();
    assert_eq!(bodies, [b"open".to_vec(), b"waiting".to_vec()]);
}

#[test]
fn a_requeued_message_returns_to_its_place_with_its_count() {
    let directory = tempfile::tempdir().unwrap();
    let House { shard, .. } = open(directory.path());
    publish(&shard, &[b"a", b"b", b"c"]);
    let subscription = consumer(&shard, 2, false);
    take(&subscription, 2);

    subscription.settle(&[range(1, 1)], Settle::Requeue).unwrap();

    assert_eq!(take(&subscription, 10), [(1, b"a".to_vec(), 1)]);
}

#[test]
fn a_consumer_that_leaves_gives_back_what_it_held() {
    let directory = tempfile::tempdir().unwrap();
    let House { shard, .. } = open(directory.path());
    publish(&shard, &[b"a", b"b"]);
    let subscription = consumer(&shard, 10, false);
    take(&subscription, 10);

    subscription.close();

    assert_eq!(shard.totals().unwrap(), (2, 0));
    assert_eq!(take(&consumer(&shard, 10, false), 10).first().map(|(_, _, count)| *count), Some(1));
}

#[test]
fn auto_ack_settles_what_was_sent() {
    let directory = tempfile::tempdir().unwrap();
    let House { shard, .. } = open(directory.path());
    publish(&shard, &[b"a", b"b"]);

    take(&consumer(&shard, 10, true), 10);

    assert_eq!(shard.totals().unwrap(), (0, 0));
}

#[test]
fn a_message_that_reaches_no_queue_is_not_stored() {
    let directory = tempfile::tempdir().unwrap();
    let House { shard, .. } = open(directory.path());
    let before = shard.log_stats().bytes_written;

    assert_eq!(publish_to(&shard, "", "nobody", &[b"x"]), [Fate::Unroutable]);
    assert_eq!(publish_to(&shard, "nowhere", "jobs", &[b"x"]), [Fate::NoExchange]);

    assert_eq!(shard.log_stats().bytes_written, before);
}

#[test]
fn a_fanout_stores_one_record_for_all_its_queues() {
    let directory = tempfile::tempdir().unwrap();
    let House { shard, .. } = open(directory.path());
    shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
    for id in 2..2_000 {
        let name = format!("q{id}");
        shard.put_queue(QueueId(id), &name, false, None).unwrap();
        shard.add_route("all", "", None, Destination::Queue(&name)).unwrap();
    }

    let fates = publish_to(&shard, "all", "", &[b"to everybody"]);

    assert_eq!(fates, [Fate::Stored(Level::Os)]);
    assert_eq!(shard.totals().unwrap(), (1_998, 0));
    let ids: Vec<QueueId> = (2..2_000).map(QueueId).collect();
    assert!(shard.queue_counts(&ids).unwrap().iter().all(|counts| counts.ready_bytes == 12));
}

#[test]
fn a_full_backlog_survives_a_stop_over_many_segments() {
    let directory = tempfile::tempdir().unwrap();
    let body = [7_u8; 1000];
    {
        let House { engine, shard } = open(directory.path());
        for _ in 0..30 {
            publish(&shard, &[&body[..]; 100]);
        }
        engine.close().unwrap();
    }

    let House { shard, .. } = open(directory.path());

    let subscription = consumer(&shard, 10_000, false);
    let mut sequences = Vec::new();
    loop {
        let taken = take(&subscription, 512);
        if taken.is_empty() {
            break;
        }
        assert!(taken.iter().all(|(_, found, _)| found == &body));
        sequences.extend(taken.into_iter().map(|(sequence, _, _)| sequence));
    }
    assert_eq!(sequences, (1..=3000).collect::<Vec<u64>>());
}

#[test]
fn a_publisher_cannot_choose_less_than_the_least_level_of_any_queue_that_its_message_reaches() {
    let directory = tempfile::tempdir().unwrap();
    let House { engine, shard } = open(directory.path());
    shard.put_exchange("amq.fanout", ExchangeKind::Fanout, None).unwrap();
    let put = |id, name, least| {
        let levels = QueueLevels { chosen: Some(Level::Disk), least };
        shard.put_queues([QueueSettings { id, name, auto_delete: false, levels, stream: None }]).unwrap();
        shard.add_route("amq.fanout", "", None, Destination::Queue(name)).unwrap();
    };
    put(QUEUE, "jobs", None);
    assert_eq!(carelessly(&shard), Fate::Stored(Level::Os));
    shard.dedicate(QueueId(3)).unwrap();
    put(QueueId(3), "alone", Some(Level::Disk));
    assert_eq!(carelessly(&shard), Fate::Stored(Level::Disk), "in a log of its own too");
    put(QueueId(3), "alone", None);
    put(QueueId(2), "safe", Some(Level::Disk));
    assert_eq!(carelessly(&shard), Fate::Stored(Level::Disk));
    put(QueueId(2), "safe", None);
    assert_eq!(carelessly(&shard), Fate::Stored(Level::Os));
    engine.close().unwrap();
}

#[test]
fn purged_and_deleted_messages_stay_away_after_a_start() {
    let directory = tempfile::tempdir().unwrap();
    {
        let House { shard, .. } = open(directory.path());
        shard.put_queue(QueueId(2), "other", false, None).unwrap();
        publish(&shard, &[b"a", b"b"]);
        publish_to(&shard, "", "other", &[b"c"]);
        assert_eq!(shard.purge_queue(QUEUE).unwrap(), 2);
        assert_eq!(shard.delete_queue(QueueId(2)).unwrap(), 1);
        std::mem::forget(shard);
    }

    let House { shard, .. } = open(directory.path());

    assert_eq!(shard.totals().unwrap(), (0, 0));
    assert_eq!(shard.highest_queue_id(), 2);
}

#[test]
fn queues_that_the_definitions_do_not_name_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    {
        let House { shard, .. } = open(directory.path());
        shard.put_queue(QueueId(2), "temporary", false, None).unwrap();
        publish_to(&shard, "", "temporary", &[b"c"]);
        std::mem::forget(shard);
    }

    let House { shard, .. } = open(directory.path());

    assert_eq!(shard.retain_queues(&[QUEUE]).unwrap(), 1);
    assert_eq!(shard.totals().unwrap(), (0, 0));
}

#[tokio::test]
async fn a_disk_confirm_waits_for_the_sync_thread() {
    let directory = tempfile::tempdir().unwrap();
    let House { shard, engine } = open(directory.path());
    let payload = Payload::new(b"", b"jobs", b"", b"x").unwrap();
    let publication =
        Publication { payload, exchange: b"", key: b"jobs", headers: None, persistent: true, mandatory: false };
    let mut fates = Vec::new();

    let published = shard.publish(&[publication], None, 1, &mut fates).unwrap();

    assert_eq!(fates, [Fate::Stored(Level::Disk)]);
    shard.request_sync();
    tokio::time::timeout(Duration::from_secs(20), shard.wait_synced(published.end)).await.unwrap().unwrap();
    assert!(shard.synced() >= published.end);
    engine.close().unwrap();
}

#[test]
fn a_closed_shard_opens_without_reading_its_messages_again() {
    let directory = tempfile::tempdir().unwrap();
    {
        let House { engine, shard } = open(directory.path());
        for _ in 0..20 {
            publish(&shard, &[&[1_u8; 1000][..]; 100]);
        }
        engine.close().unwrap();
    }

    let House { shard, .. } = open(directory.path());

    assert_eq!(shard.totals().unwrap(), (2000, 0));
    assert_eq!(shard.recovery().records, 0);
}

#[test]
fn a_queue_made_after_numbers_were_skipped_begins_above_them() {
    let directory = tempfile::tempdir().unwrap();
    {
        let House { engine, shard } = open(directory.path());
        publish(&shard, &[b"before"]);
        engine.close().unwrap();
    }
    let engine = Engine::new(small()).unwrap();

    let shard = engine.open_shard("/", directory.path(), true).unwrap();

    shard.put_queue(QUEUE, "jobs", false, None).unwrap();
    shard.put_queue(QueueId(2), "later", false, None).unwrap();
    publish_to(&shard, "", "later", &[b"after"]);
    let later = SubscriptionOptions { prefetch: 1, auto_ack: false, exclusive: false, pull: false };
    let taken = take(&shard.subscribe(QueueId(2), later).unwrap(), 1);
    assert!(taken.first().is_some_and(|(sequence, _, _)| *sequence > 1 << 32));
    assert_eq!(take(&consumer(&shard, 1, false), 1).first().map(|(sequence, _, _)| *sequence), Some(1));
}

#[test]
fn an_emptied_shard_gives_its_segments_back_without_new_messages() {
    let directory = tempfile::tempdir().unwrap();
    let options = EngineOptions { segment_idle: Duration::from_millis(50), ..small() };
    let engine = Engine::new(options).unwrap();
    let shard = engine.open_shard("/", directory.path(), false).unwrap();
    shard.put_queue(QUEUE, "jobs", false, None).unwrap();
    for _ in 0..30 {
        publish(&shard, &[&[7_u8; 1000][..]; 100]);
    }

    let subscription = consumer(&shard, 10_000, true);
    while !take(&subscription, 512).is_empty() {}

    let freed = (0..1_000).any(|_| {
        std::thread::park_timeout(Duration::from_millis(10));
        shard.log_stats().segments <= 3
    });
    assert!(freed, "{} segments are left of nothing", shard.log_stats().segments);
    engine.close().unwrap();
}

/// The messages of streams did not count, so each pause sealed a segment with the few messages since the last one.
#[test]
fn a_shard_with_messages_of_a_stream_is_not_empty_and_seals_no_segment_in_a_pause() {
    let directory = tempfile::tempdir().unwrap();
    let options = EngineOptions { segment_idle: Duration::from_millis(10), ..small() };
    let engine = Engine::new(options).unwrap();
    let shard = engine.open_shard("/", directory.path(), false).unwrap();
    let stream = Some(StreamSettings::default());
    let levels = QueueLevels::default();
    shard.put_queues([QueueSettings { id: QUEUE, name: "jobs", auto_delete: false, levels, stream }]).unwrap();
    for _ in 0..10 {
        publish(&shard, &[&[7_u8; 1000][..]; 100]);
    }
    let before = shard.log_stats().segments;

    for _ in 0..20 {
        publish(&shard, &[b"one"]);
        std::thread::park_timeout(Duration::from_millis(30));
    }

    assert_eq!(shard.log_stats().segments, before);
    engine.close().unwrap();
}

/// State after a restart: sequences, flags and counts, in order.
fn flags(shard: &Arc<Shard>) -> Vec<(u64, bool, u32)> {
    let mut filled = Vec::new();
    consumer(shard, 100_000, false).fill(100_000, &mut filled).unwrap();
    let picked = filled.iter().flat_map(|filled| &filled.picked);
    picked.map(|one| (one.taken.sequence.0, one.taken.redelivered, one.taken.delivery_count)).collect()
}

#[test]
fn what_was_with_a_consumer_when_the_process_died_is_flagged_and_not_counted() {
    let directory = tempfile::tempdir().unwrap();
    {
        let House { shard, .. } = open(directory.path());
        publish(&shard, &[b"x".as_slice(); 100]);
        let subscription = consumer(&shard, 40, false);
        take(&subscription, 40);
        subscription.settle(&[range(1, 1)], Settle::Requeue).unwrap();
        // The process dies here: nothing is closed.
        std::mem::forget(subscription);
        std::mem::forget(shard);
    }

    let House { shard, .. } = open(directory.path());
    publish(&shard, &[b"new"]);

    let found = flags(&shard);
    assert_eq!(found.len(), 101);
    let right = |&(number, redelivered, count): &(u64, bool, u32)| {
        redelivered == (number <= 40) && count == u32::from(number == 1)
    };
    assert!(found.iter().all(right), "{found:?}");
}

#[test]
fn no_more_is_flagged_after_a_crash_than_went_out_again() {
    let directory = tempfile::tempdir().unwrap();
    {
        let House { shard, .. } = open(directory.path());
        publish(&shard, &[b"x".as_slice(); 3000]);
        let subscription = consumer(&shard, 3000, true);
        for _ in 0..200 {
            take(&subscription, 1);
        }
        std::mem::forget(subscription);
        std::mem::forget(shard);
    }

    let House { shard, .. } = open(directory.path());

    let flagged = flags(&shard).into_iter().filter(|one| one.1).count();
    assert!(flagged <= 200, "{flagged} are flagged that no consumer had");
}

/// Only messages below the first one not taken yet were flagged.
#[test]
fn a_stop_while_a_consumer_holds_messages_keeps_the_flags_of_a_crash_before_it() {
    let directory = tempfile::tempdir().unwrap();
    {
        let House { shard, .. } = open(directory.path());
        publish(&shard, &[b"x".as_slice(); 100]);
        let subscription = consumer(&shard, 50, false);
        take(&subscription, 50);
        std::mem::forget(subscription);
        std::mem::forget(shard);
    }
    {
        let House { shard, engine } = open(directory.path());
        let subscription = consumer(&shard, 5, false);
        assert_eq!(take(&subscription, 5).len(), 5);
        engine.close().unwrap();
    }

    let House { shard, .. } = open(directory.path());

    let found = flags(&shard);
    assert!(found.iter().all(|&(number, redelivered, _)| redelivered == (number <= 50)), "{found:?}");
}

#[test]
fn a_stop_leaves_flags_only_on_what_was_delivered() {
    let directory = tempfile::tempdir().unwrap();
    {
        let House { shard, engine } = open(directory.path());
        publish(&shard, &[b"x".as_slice(); 100]);
        let subscription = consumer(&shard, 100, false);
        (0..5).for_each(|_| drop(take(&subscription, 1)));
        subscription.fill(10, &mut Vec::new()).unwrap();
        drop(subscription);
        engine.close().unwrap();
    }

    let House { shard, .. } = open(directory.path());

    let flagged: Vec<_> = flags(&shard).into_iter().filter(|one| one.1).collect();
    assert_eq!(flagged, [1, 2, 3, 4, 5].map(|number| (number, true, 1)));
}

#[test]
fn what_never_went_out_is_returned_as_if_nobody_had_had_it() {
    let directory = tempfile::tempdir().unwrap();
    let House { shard, .. } = open(directory.path());
    publish(&shard, &[b"a", b"b"]);
    let subscription = consumer(&shard, 2, false);
    subscription.fill(2, &mut Vec::new()).unwrap();
    subscription.sent(&[(Sequence(1), 1)]).unwrap();

    drop(subscription);

    assert_eq!(flags(&shard), [(1, true, 1), (2, false, 0)]);
}

#[test]
fn a_consumer_that_held_much_returns_all_of_it_to_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let House { shard, .. } = open(directory.path());
    publish(&shard, &[b"x".as_slice(); 20_000]);
    let subscription = consumer(&shard, 20_000, false);
    take(&subscription, 20_000);
    assert_eq!(subscription.settle(&[range(1, 15_000)], Settle::Ack).unwrap(), 15_000);
    assert_eq!(subscription.settle(&[range(15_001, 20_000)], Settle::Requeue).unwrap(), 5_000);
    take(&subscription, 20_000);

    drop(subscription);

    let expected: Vec<_> = (15_001..=20_000).map(|number| (number, true, 2)).collect();
    assert_eq!(flags(&shard), expected);
}

#[test]
fn a_consumer_that_held_much_returns_it_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    let House { shard, .. } = open(directory.path());
    publish(&shard, &[b"x".as_slice(); 20_000]);
    let subscription = consumer(&shard, 20_000, false);
    take(&subscription, 20_000);
    let before = shard.holds();

    drop(subscription);

    let holds = shard.holds() - before;
    assert!(holds > 20_000 / 4096, "all of it went back under {holds} holds of the lock");
    assert_eq!(shard.totals().unwrap(), (20_000, 0));
}

#[test]
fn nothing_is_stored_in_a_queue_that_is_about_to_be_deleted_as_an_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let held = |house: &House| house.shard.queue_counts(&[QUEUE]).unwrap()[0].ready_count;

    assert_eq!(house.shard.shut_empty_queue(QUEUE).unwrap().ready_count, 0);
    assert_eq!(publish(&house.shard, &[b"a"]), [Fate::Shut]);
    assert_eq!(held(&house), 0);

    house.shard.reopen_queue(QUEUE).unwrap();
    assert!(matches!(publish(&house.shard, &[b"b"])[..], [Fate::Stored(_)]));
    assert_eq!(house.shard.shut_empty_queue(QUEUE).unwrap().ready_count, 1);
    assert!(matches!(publish(&house.shard, &[b"c"])[..], [Fate::Stored(_)]), "one that holds messages takes more");
    assert_eq!(held(&house), 2);
    house.engine.close().unwrap();
}

#[test]
fn a_queue_with_unacked_messages_only_counts_as_empty() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    assert!(matches!(publish(&house.shard, &[b"a"])[..], [Fate::Stored(_)]));
    let subscription = consumer(&house.shard, 1, false);
    take(&subscription, 1);

    let counts = house.shard.shut_empty_queue(QUEUE).unwrap();

    assert_eq!((counts.ready_count, counts.unacked_count), (0, 1));
    assert_eq!(publish(&house.shard, &[b"b"]), [Fate::Shut]);
}

#[test]
fn nothing_more_is_stored_in_a_queue_that_the_next_start_may_delete() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    assert!(matches!(publish(&house.shard, &[b"a"])[..], [Fate::Stored(_)]));

    house.shard.shut_queue(QUEUE).unwrap();

    assert_eq!(publish(&house.shard, &[b"b"]), [Fate::Shut]);
    let subscription = consumer(&house.shard, 1, false);
    assert_eq!(take(&subscription, 1).len(), 1, "consumers go on");
    house.shard.shut_queue(QueueId(99)).unwrap();
    house.engine.close().unwrap();
}
