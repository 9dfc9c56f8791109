//! Further shards of a vhost: which queues they have, one record in each for a fan-out, their state after a restart and after
//! a kill, and how many there may be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

#[path = "house/crashing.rs"]
mod crashing;
mod house;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crashing::CrashingDisk;
use house::{House, open, open_on, read_all, settings};
use penstock_engine::{
    Choosing, Destination, EngineError, ExchangeKind, Fate, Level, Payload, Producer, Publication, Published, QueueId,
    QueueLevels, QueueSettings, ReadFrom, SHARDS_MAX, StreamSettings, inspect,
};
use penstock_log::{FaultyDisk, Log, LogOptions};
use proptest::prelude::*;

/// Besides the stream "s" in shard 0: queues with their shards, two in each.
const QUEUES: [(QueueId, &str, u16); 5] =
    [(QueueId(2), "a0", 0), (QueueId(3), "a1", 1), (QueueId(4), "b1", 1), (QueueId(5), "a2", 2), (QueueId(6), "b2", 2)];
const STORED: Fate = Fate::Stored(Level::Disk);

fn put(house: &House, (id, name, shard): (QueueId, &str, u16)) {
    house.shard.place_queues([(id, shard)]).unwrap();
    let (levels, stream) = (QueueLevels::default(), Some(StreamSettings::default()));
    house.shard.put_queues([QueueSettings { id, name, auto_delete: false, levels, stream }]).unwrap();
}

/// All queues behind "all".
fn with_queues(house: House) -> House {
    house.shard.grow(3).unwrap();
    house.shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
    for queue in QUEUES {
        put(&house, queue);
        house.shard.add_route("all", "", None, Destination::Queue(queue.1)).unwrap();
    }
    house
}

fn opened(directory: &Path) -> House {
    with_queues(open(directory))
}

/// Publishes messages, each by its exchange, key and body.
fn send(house: &House, sent: &[(&str, &str, &str)]) -> Result<(Vec<Fate>, Published), EngineError> {
    let publication = |&(exchange, key, body)| {
        let (exchange, key): (&str, &str) = (exchange, key);
        let (exchange, key, body): (_, _, &str) = (exchange.as_bytes(), key.as_bytes(), body);
        let payload = Payload::new(exchange, key, b"", body.as_bytes()).unwrap();
        Publication { payload, exchange, key, headers: None, persistent: true, mandatory: false }
    };
    let batch: Vec<_> = sent.iter().map(publication).collect();
    let mut fates = Vec::new();
    let published = house.shard.publish(&batch, Some(Level::Disk), 1, &mut fates)?;
    Ok((fates, published))
}

fn bodies(house: &House, id: QueueId) -> Vec<String> {
    let mut reader = house.shard.home_of(id).read(id, settings(ReadFrom::First, None)).unwrap();
    read_all(&mut reader).into_iter().map(|said| said.body).collect()
}

/// How many records of messages the log in a folder has.
fn records(directory: &Path) -> u64 {
    inspect(directory, false).unwrap().iter().map(|segment| segment.messages).sum()
}

#[test]
fn a_random_exchange_spreads_over_the_queues_of_all_shards() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    house.shard.put_exchange("any", ExchangeKind::Choice(Choosing::Random), None).unwrap();
    for (_, name, _) in QUEUES {
        house.shard.add_route("any", "", None, Destination::Queue(name)).unwrap();
    }

    for _ in 0..500 {
        send(&house, &[("any", "", "x")]).unwrap();
    }

    let counts: Vec<usize> = QUEUES.iter().map(|(id, _, _)| bodies(&house, *id).len()).collect();
    // Each gets a hundred; a queue whose messages are drawn for twice would get a fifth of that.
    assert!(counts.iter().sum::<usize>() == 500 && counts.iter().all(|&count| count > 50), "{counts:?}");
}

#[test]
fn a_message_for_queues_in_several_shards_is_one_record_in_each() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());

    let (fates, published) = send(&house, &[("all", "", "x"), ("", "b1", "y"), ("all", "", "z")]).unwrap();

    assert_eq!(fates, [STORED; 3]);
    assert!(published.refused.is_none());
    for (id, name, _) in QUEUES {
        let expected: &[&str] = if name == "b1" { &["x", "y", "z"] } else { &["x", "z"] };
        assert_eq!(bodies(&house, id), expected, "{name}");
    }
    house.close();
    let counts = [".", "logs/1", "logs/2"].map(|log| records(&directory.path().join(log)));
    assert_eq!(counts, [2, 3, 2]);
}

/// Publishes until the lock of the first shard was not taken meanwhile: threads of the engine take it at times, too.
fn leaves_the_first_shard_alone(house: &House, sent: &[(&str, &str, &str)]) -> bool {
    (0..100).any(|_| {
        let before = house.shard.holds();
        send(house, sent).unwrap();
        house.shard.holds() == before
    })
}

#[test]
fn messages_for_one_further_shard_alone_do_not_take_the_lock_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());

    assert!(leaves_the_first_shard_alone(&house, &[("", "a1", "x"), ("", "b1", "y"), ("", "a1", "z")]));
    assert_eq!(bodies(&house, QueueId(3))[..2], ["x", "z"]);

    assert!(!leaves_the_first_shard_alone(&house, &[("", "a1", "x"), ("", "a2", "y")]));
    house.close();
}

#[test]
fn a_confirm_waits_for_all_shards_of_its_messages_and_for_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let synced = |id: u64| house.shard.home_of(QueueId(id)).synced();
    let before = [2, 3, 5].map(synced);

    let places = send(&house, &[("", "a1", "x"), ("", "b2", "y")]).unwrap().1.places(&house.shard);
    assert!(!places.are_synced());
    places.request_sync();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(places.wait()).unwrap();

    let after = [2, 3, 5].map(synced);
    assert_eq!(after[0], before[0]);
    assert!(after[1] > before[1] && after[2] > before[2]);
    house.close();
}

#[test]
fn a_queue_stays_in_its_shard_and_is_deleted_there_alone() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    send(&house, &[("all", "", "x")]).unwrap();
    assert_eq!(house.shard.route("all", "", None).unwrap(), ["a0", "a1", "a2", "b1", "b2"]);
    assert_eq!(house.shard.delete_queue(QueueId(3)).unwrap(), 1);
    assert_eq!(send(&house, &[("", "a1", "y"), ("all", "", "z")]).unwrap().0, [Fate::Unroutable, STORED]);
    house.close();

    let house = open(directory.path());
    assert_eq!(house.shard.shard_count().unwrap(), 3);
    assert!(house.shard.highest_queue_id() >= 6, "the highest of all shards");
    // The definitions do not name one of shard 2 any more.
    let ids: Vec<_> = [1, 2, 4, 6].map(QueueId).into();
    assert_eq!(house.shard.retain_queues(&ids).unwrap(), 1);
    for queue in [QUEUES[0], QUEUES[2], QUEUES[4]] {
        put(&house, queue);
        assert_eq!(bodies(&house, queue.0), ["x", "z"]);
    }
    let counts = house.shard.queue_counts(&[2, 3, 4, 5, 6].map(QueueId)).unwrap();
    assert_eq!(counts.iter().map(|counts| counts.ready_count).collect::<Vec<_>>(), [2, 0, 2, 0, 2]);
    assert_eq!(send(&house, &[("", "b1", "y")]).unwrap().0, [STORED]);
    house.close();
}

#[test]
fn shards_are_never_fewer_and_not_too_many() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    assert_eq!(house.shard.shard_count().unwrap(), 1);
    house.shard.grow(3).unwrap();
    house.shard.grow(2).unwrap();
    assert_eq!(house.shard.shard_count().unwrap(), 3);
    assert!(matches!(house.shard.grow(SHARDS_MAX + 1), Err(EngineError::TooMany { .. })));
    let refused = house.shard.place_queues([(QueueId(9), 3)]).unwrap_err();
    assert!(matches!(refused, EngineError::NoShard(3, _)), "{refused}");
    house.shard.grow(4).unwrap();
    put(&house, (QueueId(9), "late", 3));
    send(&house, &[("", "late", "x")]).unwrap();
    house.close();

    let house = open(directory.path());
    assert_eq!(house.shard.shard_count().unwrap(), 4);
    put(&house, (QueueId(9), "late", 3));
    assert_eq!(bodies(&house, QueueId(9)), ["x"]);
    house.close();
}

#[test]
fn a_shard_that_is_gone_is_reported_and_not_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    opened(directory.path()).close();
    let (shard, away) = (directory.path().join("logs/2"), directory.path().join("away"));
    std::fs::rename(&shard, &away).unwrap();
    let open_again = || {
        let engine = house::engine();
        let refused = engine.open_shard("/", directory.path(), false).map(|_| ()).unwrap_err().to_string();
        // A thread of it may be removing a segment that the next start wants to open.
        engine.close().unwrap();
        refused
    };

    assert!(open_again().contains("logs/2"), "{}", open_again());
    std::fs::create_dir(&shard).unwrap();
    assert!(open_again().contains("has no log"), "an empty folder is no log");

    std::fs::remove_dir(&shard).unwrap();
    std::fs::rename(&away, &shard).unwrap();
    opened(directory.path()).close();
}

#[test]
fn a_shard_of_a_growth_that_was_interrupted_is_there_after_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    opened(directory.path()).close();
    let next = directory.path().join("logs/3");
    std::fs::create_dir(&next).unwrap();
    let made = |house: House| (house.shard.shard_count().unwrap(), house.close()).0;
    assert_eq!(made(open(directory.path())), 3, "an empty folder is no shard yet");
    Log::open(&next, LogOptions::default()).unwrap().log.close().unwrap();

    assert_eq!(made(open(directory.path())), 4);
    std::fs::remove_dir_all(&next).unwrap();
    assert!(house::engine().open_shard("/", directory.path(), false).is_err(), "by now it is missed");
}

#[test]
fn a_shard_that_finds_no_room_is_made_later() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let house = open_on(directory.path(), Arc::clone(&disk) as _);
    disk.free_bytes.store(1, Ordering::SeqCst);

    assert!(house.shard.grow(3).unwrap_err().is_full());

    assert_eq!(house.shard.shard_count().unwrap(), 1);
    disk.free_bytes.store(0, Ordering::SeqCst);
    let house = with_queues(house);
    send(&house, &[("all", "", "x")]).unwrap();
    assert_eq!(bodies(&house, QueueId(6)), ["x"]);
    house.close();
}

/// One life of a broker: how many messages go into a batch, after how many writes it is killed, and which share of what
/// was not synced each log keeps: all of it after a kill alone.
type Life = (usize, i64, [u8; 3]);

/// Publishes until the disk fails; returns the bodies that were confirmed.
fn live(house: &House, next: &mut u32, in_batch: usize) -> Vec<String> {
    let mut confirmed = Vec::new();
    for _ in 0..12 {
        let bodies: Vec<_> = (0..in_batch).map(|_| std::mem::replace(next, *next + 1).to_string()).collect();
        let batch: Vec<_> = bodies.iter().map(|body| ("all", "", body.as_str())).collect();
        let Ok((fates, published)) = send(house, &batch) else { return confirmed };
        assert!(fates.iter().all(|fate| *fate == STORED));
        let places = published.places(&house.shard);
        places.request_sync();
        if tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(places.wait()).is_err() {
            return confirmed;
        }
        confirmed.extend(bodies);
    }
    confirmed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// What was not confirmed may be there or not: here it does not come again.
    #[test]
    fn a_fan_out_over_shards_loses_nothing_that_was_confirmed(
        lives in prop::collection::vec((1..6_usize, 0..40_i64, any::<bool>(), any::<[u8; 3]>()), 1..4),
    ) {
        let mut directory = tempfile::tempdir().unwrap();
        let (mut next, mut confirmed) = (0, Vec::new());
        for (in_batch, writes, is_kill, kept) in lives {
            let (in_batch, writes, kept): Life = (in_batch, writes, if is_kill { [255; 3] } else { kept });
            let disk = Arc::new(CrashingDisk::default());
            let house = with_queues(open_on(directory.path(), Arc::clone(&disk) as _));
            disk.writes_left.store(writes, Ordering::SeqCst);
            confirmed.extend(live(&house, &mut next, in_batch));
            let after = tempfile::tempdir().unwrap();
            disk.image(directory.path(), after.path(), &kept);
            // A stopped log cannot be closed.
            let _ = house.engine.close();
            directory = after;
        }
        let house = opened(directory.path());
        for (id, name, _) in QUEUES {
            let mut times = BTreeMap::new();
            bodies(&house, id).into_iter().for_each(|body| *times.entry(body).or_insert(0) += 1);
            for body in &confirmed {
                prop_assert_eq!(times.get(body), Some(&1), "'{}' in {}", body, name);
            }
            prop_assert!(times.values().all(|times| *times == 1), "each was sent once");
        }
        house.close();
    }
}

/// The other log took a name for one in use for an hour after each message, and anew whenever it asked for it.
#[test]
fn a_name_that_is_kept_for_seconds_is_forgotten_in_a_further_shard_too() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_queues(house::open_forgetting(directory.path(), Duration::from_secs(2)));
    let session = house.shard.open_producer("p", "anna").unwrap();
    let payload = Payload::new(b"", b"a1", b"", b"x").unwrap();
    let payload = payload.with_producer(Producer { id: session.id(), sequence: 7 });
    let one = Publication { payload, exchange: b"", key: b"a1", headers: None, persistent: true, mandatory: false };
    house.shard.publish_as(Some(&session), &[one], Some(Level::Disk), 1, &mut Vec::new()).unwrap();
    let now_ms = house.shard.producers().unwrap()[0].used_at_ms;
    assert_eq!(house.shard.sequence_in_family("p").unwrap(), Some(7));
    // The further shard asks for a name that was idle there, and that a session holds.
    assert_eq!(house.shard.forget_producers(now_ms + 3000).unwrap(), 0);
    drop(session);
    let idle_ms = now_ms + 6000;

    let forgotten = (0..10_000).find(|_| {
        std::thread::yield_now();
        house.shard.forget_producers(idle_ms).unwrap() > 0
    });

    assert!(forgotten.is_some(), "it is kept for ever");
    assert_eq!(house.shard.sequence_in_family("p").unwrap(), None);
    house.close();
}
