//! Streams through a shard's interface: append, read from anywhere, store offsets, retain, and their state after a
//! restart.
#![allow(clippy::unwrap_used)]

mod house;

use house::{House, STREAM, Say, open, open_with, publish, publish_at, read_all, reader};
use penstock_engine::{
    EngineError, Fate, Level, Producer, Progress, QueueId, QueueLevels, QueueSettings, ReadFrom, StreamSettings,
    SubscriptionOptions, Turn,
};

fn offsets(found: &[Say]) -> Vec<u64> {
    found.iter().map(|say| say.offset).collect()
}

#[test]
fn every_reader_reads_everything_and_nothing_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &["one", "two", "three"]);

    let [first, second] = std::array::from_fn(|_| read_all(&mut reader(&house, ReadFrom::First)));

    assert_eq!(first.iter().map(|say| say.body.as_str()).collect::<Vec<_>>(), ["one", "two", "three"]);
    assert_eq!(first, second);
    assert_eq!(house.shard.totals().unwrap(), (0, 0), "messages of a stream wait for no consumer");
}

#[test]
fn a_reader_begins_where_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    for time in [100, 200, 300, 400, 500] {
        publish_at(&house, time, &["x"]);
    }
    let begins = |from| offsets(&read_all(&mut reader(&house, from)));

    assert_eq!(begins(ReadFrom::First), [1, 2, 3, 4, 5]);
    assert_eq!(begins(ReadFrom::Last), [5]);
    assert_eq!(begins(ReadFrom::Next), []);
    assert_eq!(begins(ReadFrom::Offset(0)), [1, 2, 3, 4, 5]);
    assert_eq!(begins(ReadFrom::Offset(4)), [4, 5]);
    assert_eq!(begins(ReadFrom::Timestamp(300)), [3, 4, 5]);
    assert_eq!(begins(ReadFrom::Timestamp(301)), [4, 5]);
    assert_eq!(begins(ReadFrom::Timestamp(501)), []);
    assert_eq!(begins(ReadFrom::LastCount(2)), [4, 5]);
    assert_eq!(begins(ReadFrom::LastCount(9)), [1, 2, 3, 4, 5]);
}

#[test]
fn a_reader_ends_before_its_end_once_the_stream_has_got_there() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &["one", "two"]);
    let mut bounded = house::reader_until(&house, ReadFrom::First, 4);

    assert_eq!(offsets(&read_all(&mut bounded)), [1, 2]);
    assert_eq!(bounded.fill(10, &mut Vec::new()).unwrap(), Progress::Waiting);
    publish(&house, &["three", "four", "five"]);

    assert_eq!(offsets(&read_all(&mut bounded)), [3]);
    assert_eq!(bounded.fill(10, &mut Vec::new()).unwrap(), Progress::Ended);
    assert_eq!(house::reader_until(&house, ReadFrom::First, 0).fill(1, &mut Vec::new()).unwrap(), Progress::Ended);
}

#[tokio::test]
async fn a_reader_that_waits_hears_of_the_next_message() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let mut waiting = reader(&house, ReadFrom::Next);
    assert_eq!(waiting.fill(1, &mut Vec::new()).unwrap(), Progress::Waiting);

    publish(&house, &["one"]);

    waiting.signal().heard().await;
    assert_eq!(offsets(&read_all(&mut waiting)), [1]);
}

#[test]
fn times_never_go_back_also_when_the_clock_does_or_a_new_process_starts() {
    let directory = tempfile::tempdir().unwrap();
    {
        let house = open(directory.path());
        publish_at(&house, 1000, &["a"]);
        publish_at(&house, 400, &["b"]);
        house.close();
    }
    let house = open(directory.path());
    publish_at(&house, 500, &["c"]);
    publish_at(&house, 2000, &["d"]);

    let times: Vec<u64> = read_all(&mut reader(&house, ReadFrom::First)).iter().map(|say| say.stored_at_ms).collect();

    assert_eq!(times, [1000, 1000, 1000, 2000]);
}

#[test]
fn a_stream_is_not_consumed_and_a_queue_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    house.shard.put_queue(QueueId(7), "jobs", false, None).unwrap();
    let options = SubscriptionOptions { prefetch: 1, auto_ack: false, exclusive: false, pull: false };

    assert!(matches!(house.shard.subscribe(STREAM, options), Err(EngineError::IsStream(_))));
    assert!(matches!(house.shard.offset_at(QueueId(7), 1), Err(EngineError::NotStream(_))));
    let settings = house::settings(ReadFrom::First, None);
    assert!(matches!(house.shard.read(QueueId(7), settings), Err(EngineError::NotStream(_))));
    assert!(matches!(house.shard.read(QueueId(8), settings), Err(EngineError::NoQueue(..))));
}

#[test]
fn a_purge_empties_a_stream_and_a_delete_ends_its_readers() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &["one", "two"]);
    let mut early = reader(&house, ReadFrom::First);
    assert_eq!(house.shard.purge_queue(STREAM).unwrap(), 2);
    publish(&house, &["three"]);

    assert_eq!(offsets(&read_all(&mut early)), [3]);
    let standing = house.shard.stream_states(&[STREAM]).unwrap()[0];
    assert_eq!((standing.first, standing.next, standing.count, standing.bytes, standing.reader_count), (3, 4, 1, 5, 1));
    assert_eq!(house.shard.delete_queue(STREAM).unwrap(), 1);

    assert!(early.signal().cancelled().unwrap().contains("was deleted"));
    assert!(matches!(early.fill(1, &mut Vec::new()), Err(EngineError::NoQueue(..))));
}

#[test]
fn a_group_goes_on_behind_its_stored_offset_also_after_a_start() {
    let directory = tempfile::tempdir().unwrap();
    let body = "x".repeat(1000);
    {
        let house = open(directory.path());
        publish(&house, &["one", "two", "three"]);
        let position = house.shard.store_offset(STREAM, "g", 2).unwrap();
        house.shard.sync_to(position).unwrap();
        assert!(house.shard.synced() >= position);
        house.shard.store_offset(STREAM, "other", 3).unwrap();
        assert!(house.shard.delete_group(STREAM, "other").unwrap());
        assert!(!house.shard.delete_group(STREAM, "other").unwrap());
        // Enough that a checkpoint covers the marks.
        for _ in 0..20 {
            publish(&house, &[body.as_str(); 60]);
        }
        house.close();
    }
    let house = open(directory.path());

    let mut of_group = house.shard.read(STREAM, house::settings(ReadFrom::Next, Some("g"))).unwrap();

    assert_eq!(of_group.range().begin, 3);
    assert_eq!(offsets(&read_all(&mut of_group))[0], 3);
    let groups = house.shard.stream_groups(STREAM).unwrap();
    let groups: Vec<_> = groups.iter().map(|group| (group.name.as_str(), group.offset, group.reader_count)).collect();
    assert_eq!(groups, [("g", Some(2), 1)]);
}

#[test]
fn an_offset_that_is_not_there_yet_and_a_nameless_group_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &["one"]);

    let refused = house.shard.store_offset(STREAM, "g", 2);
    assert!(matches!(refused, Err(EngineError::BeyondEnd { offset: 2, next: 2, .. })));
    assert!(matches!(house.shard.store_offset(STREAM, "", 1), Err(EngineError::GroupName { .. })));
    assert!(matches!(house.shard.store_offset(STREAM, &"g".repeat(256), 1), Err(EngineError::GroupName { .. })));
}

#[test]
fn those_who_wait_learn_what_a_fold_has_synced() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let shard = std::sync::Arc::clone(&house.shard);
    let body = "x".repeat(1_000);
    let (done, waiting) = std::sync::mpsc::channel();
    let mut trimmed = 0;
    for round in 1..20 {
        publish(&house, &[body.as_str(); 300]);
        let offset = round * 200;
        shard.store_offset(STREAM, "g", offset).unwrap();
        trimmed += shard.trim(STREAM, offset).unwrap();

        let position = shard.store_offset(STREAM, "g", offset).unwrap();

        let (shard, done) = (std::sync::Arc::clone(&shard), done.clone());
        std::thread::spawn(move || done.send(shard.sync_to(position)));
        waiting.recv_timeout(std::time::Duration::from_secs(20)).unwrap().unwrap();
    }
    assert!(trimmed > 0);
}

#[tokio::test]
async fn a_reader_whose_place_was_given_up_gets_nothing_and_the_next_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &["one", "two"]);
    let settings = penstock_engine::ReadSettings { single_active: true, ..house::settings(ReadFrom::First, Some("g")) };
    let mut active = house.shard.read(STREAM, settings).unwrap();
    let mut waiting = house.shard.read(STREAM, settings).unwrap();
    assert_eq!(active.turn().unwrap(), Some(Turn { active: true, begin: 1 }));
    active.store(1).unwrap();

    active.place().leave();

    waiting.signal().heard().await;
    assert_eq!(waiting.turn().unwrap(), Some(Turn { active: true, begin: 2 }));
    active.store(2).unwrap();
    assert_eq!(offsets(&read_all(&mut active)), []);
    assert_eq!(offsets(&read_all(&mut waiting)), [2]);
    assert_eq!(house.shard.queue_counts(&[STREAM]).unwrap()[0].consumer_count, 1);
}

#[tokio::test]
async fn of_a_groups_single_active_readers_the_next_goes_on_behind_what_was_stored() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &["one", "two", "three"]);
    let settings = penstock_engine::ReadSettings { single_active: true, ..house::settings(ReadFrom::First, Some("g")) };
    let mut active = house.shard.read(STREAM, settings).unwrap();
    let mut waiting = house.shard.read(STREAM, settings).unwrap();
    assert_eq!(active.turn().unwrap(), Some(Turn { active: true, begin: 1 }));
    assert_eq!(waiting.turn().unwrap(), Some(Turn { active: false, begin: 1 }));
    assert_eq!(offsets(&read_all(&mut active)), [1, 2, 3]);
    assert_eq!(offsets(&read_all(&mut waiting)), []);
    active.store(2).unwrap();
    assert_eq!(waiting.turn().unwrap(), None);

    drop(active);

    waiting.signal().heard().await;
    assert_eq!(waiting.turn().unwrap(), Some(Turn { active: true, begin: 3 }));
    assert_eq!(offsets(&read_all(&mut waiting)), [3]);
}

/// A time in the far future: the fold thread uses the real clock, and finds nothing too old.
const LATER: u64 = 1 << 42;

fn fill_segments(house: &House, now_ms: u64) {
    let body = "x".repeat(1000);
    for _ in 0..10 {
        publish_at(house, now_ms, &[body.as_str(); 60]);
    }
}

#[test]
fn a_stream_over_its_size_loses_what_its_oldest_segments_hold() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_with(directory.path(), StreamSettings { max_age_ms: 0, max_bytes: 300_000 });
    fill_segments(&house, 1);

    house.shard.retain(2).unwrap();

    let standing = house.shard.stream_states(&[STREAM]).unwrap()[0];
    assert!(standing.bytes <= 300_000 + 256_000, "{standing:?}");
    assert!(standing.first > 1, "{standing:?}");
    assert_eq!(standing.bytes, standing.count * 1000);
    assert_eq!(standing.next - standing.first, standing.count);
    let found = read_all(&mut reader(&house, ReadFrom::First));
    assert_eq!(found.len() as u64, standing.count);
    assert_eq!(found[0].offset, standing.first);
}

#[test]
fn what_is_too_old_goes_with_its_segment_and_what_is_not_stays() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_with(directory.path(), StreamSettings { max_age_ms: 1000, max_bytes: 0 });
    fill_segments(&house, LATER + 10_000);
    fill_segments(&house, LATER + 20_000);

    assert_eq!(house.shard.retain(LATER + 10_999).unwrap(), 0);
    let expired = house.shard.retain(LATER + 11_000).unwrap();

    assert!(expired > 300, "{expired}");
    let standing = house.shard.stream_states(&[STREAM]).unwrap()[0];
    assert_eq!((standing.first, standing.count), (expired + 1, 1200 - expired));
    assert_eq!(standing.bytes, standing.count * 1000);
    assert!(standing.first <= 601, "nothing young is gone");
    assert_eq!(standing.last_timestamp_ms, LATER + 20_000);
}

#[test]
fn limits_that_change_count_at_the_next_look() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_with(directory.path(), StreamSettings { max_age_ms: 1_000_000, max_bytes: 0 });
    fill_segments(&house, LATER);
    assert_eq!(house.shard.retain(LATER + 5000).unwrap(), 0);

    let limits = StreamSettings { max_age_ms: 1000, max_bytes: 0 };
    let settings = QueueSettings {
        id: STREAM,
        name: "s",
        auto_delete: false,
        levels: QueueLevels::default(),
        stream: Some(limits),
    };
    house.shard.put_queues([settings]).unwrap();

    assert!(house.shard.retain(LATER + 5000).unwrap() > 300);
}

#[test]
fn a_trim_takes_whole_sealed_segments_below_an_offset_and_nothing_above() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    fill_segments(&house, 1);

    assert_eq!(house.shard.trim(STREAM, 1).unwrap(), 0);
    let expired = house.shard.trim(STREAM, 400).unwrap();

    assert!(expired > 0 && expired < 400, "{expired}");
    let standing = house.shard.stream_states(&[STREAM]).unwrap()[0];
    assert_eq!((standing.first, standing.count), (expired + 1, 600 - expired));
    assert_eq!(standing.bytes, standing.count * 1000);
    assert_eq!(house.shard.trim(STREAM, 400).unwrap(), 0);
    let reader = reader(&house, ReadFrom::First);
    house.shard.trim(STREAM, u64::MAX).unwrap();
    assert_eq!(reader.first().unwrap(), house.shard.stream_states(&[STREAM]).unwrap()[0].first);
    assert!(matches!(house.shard.trim(QueueId(99), 1), Err(EngineError::NoQueue(..))));
}

#[test]
fn retention_counts_what_is_left_of_a_segment_that_was_purged() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_with(directory.path(), StreamSettings { max_age_ms: 1000, max_bytes: 0 });
    publish_at(&house, LATER, &["x"; 10]);
    house.shard.purge_queue(STREAM).unwrap();
    fill_segments(&house, LATER);
    publish_at(&house, LATER + 5000, &["yz"]);

    house.shard.retain(LATER + 4000).unwrap();

    let standing = house.shard.stream_states(&[STREAM]).unwrap()[0];
    assert_eq!(standing.bytes, (standing.count - 1) * 1000 + 2);
}

#[test]
fn a_start_finds_what_retention_left() {
    let directory = tempfile::tempdir().unwrap();
    let limits = StreamSettings { max_age_ms: 0, max_bytes: 300_000 };
    let before = {
        let house = open_with(directory.path(), limits);
        fill_segments(&house, 1);
        house.shard.retain(2).unwrap();
        let standing = house.shard.stream_states(&[STREAM]).unwrap()[0];
        house.close();
        standing
    };

    let house = open_with(directory.path(), limits);

    assert_eq!(house.shard.stream_states(&[STREAM]).unwrap()[0], before);
    assert_eq!(offsets(&read_all(&mut reader(&house, ReadFrom::First)))[0], before.first);
}

fn publish_as(house: &House, session: &penstock_engine::ProducerSession, sequences: &[u64]) -> Vec<Fate> {
    let producers = sequences.iter().map(|&sequence| Some(Producer { id: session.id(), sequence }));
    house::publish_all(house, Some(session), producers.map(|producer| ("x", None, producer)), 1).unwrap()
}

#[test]
fn what_a_producer_sends_again_is_confirmed_and_not_stored_again_also_after_a_start() {
    let directory = tempfile::tempdir().unwrap();
    {
        let house = open(directory.path());
        let session = house.shard.open_producer("p", "anna").unwrap();
        publish_as(&house, &session, &[1, 2, 5]);
        assert_eq!(publish_as(&house, &session, &[2, 5, 6]), [Fate::Stored(Level::Os); 3]);
        assert_eq!(house.shard.producer_sequence("p").unwrap(), Some(6));
        house.close();
    }
    let house = open(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();

    publish_as(&house, &session, &[5, 6, 7]);

    assert_eq!(house.shard.producer_sequence("p").unwrap(), Some(7));
    assert_eq!(house.shard.producer_sequence("q").unwrap(), None);
    assert_eq!(read_all(&mut reader(&house, ReadFrom::First)).len(), 5);
}

#[test]
fn a_producers_name_belongs_to_who_opened_it_last() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let first = house.shard.open_producer("p", "anna").unwrap();
    let second = house.shard.open_producer("p", "anna").unwrap();
    let other = house.shard.open_producer("q", "anna").unwrap();
    assert_eq!(first.id(), second.id());
    assert_ne!(first.id(), other.id());

    let taken = house::publish_all(&house, Some(&first), [("x", None, None)], 1);

    assert!(matches!(taken, Err(EngineError::ProducerTaken(name)) if name == "p"));
    publish_as(&house, &second, &[1]);
}

#[test]
fn a_producer_that_nobody_used_for_long_is_forgotten_for_good() {
    const DAY_MS: u64 = 86_400_000;
    let week = std::time::Duration::from_secs(7 * 86_400);
    let directory = tempfile::tempdir().unwrap();
    let long_ago = {
        let house = house::open_forgetting(directory.path(), week);
        let (idle, held) =
            (house.shard.open_producer("idle", "anna").unwrap(), house.shard.open_producer("held", "anna").unwrap());
        publish_as(&house, &idle, &[1, 2]);
        publish_as(&house, &held, &[1]);
        drop(idle);
        let now_ms = house.shard.producers().unwrap()[0].used_at_ms;
        assert_eq!(house.shard.forget_producers(now_ms + 7 * DAY_MS).unwrap(), 0);
        assert_eq!(house.shard.forget_producers(now_ms + 8 * DAY_MS).unwrap(), 1);
        house.close();
        now_ms
    };
    let house = house::open_forgetting(directory.path(), week);

    assert_eq!(house.shard.producer_sequence("idle").unwrap(), None);
    assert_eq!(house.shard.producer_sequence("held").unwrap(), Some(1));
    // The one that was held was noted eight days later.
    assert_eq!(house.shard.forget_producers(long_ago + 15 * DAY_MS).unwrap(), 0);
    let again = house.shard.open_producer("idle", "anna").unwrap();
    publish_as(&house, &again, &[1]);
    assert_eq!(read_all(&mut reader(&house, ReadFrom::First)).len(), 4);
    assert!(house.shard.delete_producer("held").unwrap() && !house.shard.delete_producer("held").unwrap());
    assert_eq!(house.shard.producer_sequence("held").unwrap(), None);
}

#[test]
fn a_message_keeps_its_key_and_a_partitioned_stream_goes_by_it() {
    use penstock_engine::{Destination, ExchangeKind};
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    house.shard.put_exchange("parts", ExchangeKind::Partitions, None).unwrap();
    for number in 0..3_u64 {
        let (id, name) = (QueueId(10 + number), format!("parts-{number}"));
        let stream = Some(StreamSettings::default());
        house
            .shard
            .put_queues([QueueSettings { id, name: &name, auto_delete: false, levels: QueueLevels::default(), stream }])
            .unwrap();
        house.shard.add_route("parts", &number.to_string(), None, Destination::Queue(&name)).unwrap();
    }

    let keys: Vec<String> = (0..30).map(|number| format!("key-{number}")).collect();
    for _ in 0..2 {
        house::publish_to(&house, "parts", keys.iter().map(|key| ("x", Some(key.as_bytes()), None))).unwrap();
    }

    let mut seen = Vec::new();
    for number in 0..3 {
        let settings = house::settings(ReadFrom::First, None);
        let own = read_all(&mut house.shard.read(QueueId(10 + number), settings).unwrap());
        let own: Vec<String> = own.into_iter().map(|say| String::from_utf8(say.key.unwrap()).unwrap()).collect();
        assert!(own.len() >= 6 && own.len().is_multiple_of(2), "{own:?}");
        let (once, again) = own.split_at(own.len() / 2);
        assert_eq!(once, again, "the same keys go to the same partition");
        seen.extend_from_slice(once);
    }
    seen.sort();
    let mut expected = keys.clone();
    expected.sort();
    assert_eq!(seen, expected);
}
