//! Queues with own logs: which messages reach them, which logs a confirm waits for, and their state after a restart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod house;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use house::{House, open, open_on, publish, read_all, settings};
use penstock_engine::{
    Destination, EngineError, ExchangeKind, Fate, Level, Payload, Producer, ProducerSession, Publication, Published,
    QueueId, QueueLevels, QueueSettings, ReadFrom, Shard, StreamSettings,
};
use penstock_log::{Disk, FaultyDisk, RealDisk, marks};

const OWN: QueueId = QueueId(7);
const OTHER: QueueId = QueueId(8);

/// Exchange, key, body, and the producer's sequence.
type Sent = (&'static str, &'static str, &'static str, u64);

fn put(shard: &Shard, id: QueueId, name: &str) {
    shard.dedicate(id).unwrap();
    let stream = Some(StreamSettings::default());
    shard.put_queues([QueueSettings { id, name, auto_delete: false, levels: QueueLevels::default(), stream }]).unwrap();
}

/// The stream "s" in the vhost's log, "own" and "other" in own logs, all three behind "all".
fn opened(directory: &Path) -> House {
    let house = open(directory);
    put(&house.shard, OWN, "own");
    put(&house.shard, OTHER, "other");
    house.shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
    for name in ["s", "own", "other"] {
        house.shard.add_route("all", "", None, Destination::Queue(name)).unwrap();
    }
    house
}

fn send(
    house: &House,
    session: Option<&ProducerSession>,
    sent: &[Sent],
) -> (Vec<Fate>, Result<Published, EngineError>) {
    let publication = |&(exchange, key, body, sequence): &Sent| {
        let mut payload = Payload::new(exchange.as_bytes(), key.as_bytes(), b"", body.as_bytes()).unwrap();
        if let Some(session) = session {
            payload = payload.with_producer(Producer { id: session.id(), sequence });
        }
        let (exchange, key) = (exchange.as_bytes(), key.as_bytes());
        Publication { payload, exchange, key, headers: None, persistent: true, mandatory: false }
    };
    let batch: Vec<_> = sent.iter().map(publication).collect();
    let mut fates = Vec::new();
    let published = house.shard.publish_as(session, &batch, Some(Level::Disk), 1, &mut fates);
    (fates, published)
}

fn bodies(house: &House, id: QueueId) -> Vec<String> {
    let mut reader = house.shard.home_of(id).read(id, settings(ReadFrom::First, None)).unwrap();
    read_all(&mut reader).into_iter().map(|said| said.body).collect()
}

#[test]
fn a_batch_is_parted_among_the_logs_and_each_keeps_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());

    let sent =
        [("all", "", "a", 0), ("", "own", "b", 0), ("", "s", "c", 0), ("", "other", "d", 0), ("all", "", "e", 0)];
    let (fates, published) = send(&house, None, &sent);

    assert_eq!(fates, [Fate::Stored(Level::Disk); 5]);
    assert!(published.unwrap().refused.is_none());
    assert_eq!(bodies(&house, house::STREAM), ["a", "c", "e"]);
    assert_eq!(bodies(&house, OWN), ["a", "b", "e"]);
    assert_eq!(bodies(&house, OTHER), ["a", "d", "e"]);
    house.close();
}

#[test]
fn a_confirm_waits_for_the_logs_that_a_message_went_to_and_for_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    publish(&house, &["not synced"]);
    let synced_before = house.shard.synced();

    let places = send(&house, None, &[("", "own", "b", 0)]).1.unwrap().places(&house.shard);
    assert!(!places.are_synced());
    places.request_sync();
    wait(&places);
    assert!(places.are_synced());
    assert_eq!(house.shard.synced(), synced_before, "nobody asked the vhost's log to be synced");

    let places = send(&house, None, &[("all", "", "a", 0)]).1.unwrap().places(&house.shard);
    places.request_sync();
    wait(&places);
    assert!(house.shard.synced() > synced_before);
    house.close();
}

fn wait(places: &penstock_engine::Places) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(places.wait()).unwrap();
}

#[test]
fn a_start_finds_the_logs_again_and_drops_those_that_no_queue_names() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    send(&house, None, &[("all", "", "a", 0)]).1.unwrap();
    house.close();

    let house = open(directory.path());
    assert_eq!(house.shard.retain_queues(&[house::STREAM, OWN]).unwrap(), 1);
    put(&house.shard, OWN, "own");

    assert_eq!(bodies(&house, OWN), ["a"]);
    assert!(Arc::ptr_eq(&house.shard.home_of(OTHER), &house.shard), "nothing of it is left");
    assert!(!directory.path().join("shards/8").exists());
    let (fates, _) = send(&house, None, &[("", "own", "b", 0), ("", "other", "c", 0)]);
    assert_eq!(fates, [Fate::Stored(Level::Disk), Fate::Unroutable]);
    house.close();
}

#[test]
fn a_deleted_queue_takes_its_log_along_and_its_readers_hear_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    send(&house, None, &[("all", "", "a", 0), ("", "own", "b", 0)]).1.unwrap();
    let mut reader = house.shard.home_of(OWN).read(OWN, settings(ReadFrom::First, None)).unwrap();

    assert_eq!(house.shard.delete_queue(OWN).unwrap(), 2);

    assert_eq!(reader.signal().cancelled(), Some("queue 'own' was deleted"));
    assert!(matches!(reader.fill(1, &mut Vec::new()), Err(EngineError::NoQueue(7, _))));
    let (fates, _) = send(&house, None, &[("all", "", "c", 0), ("", "own", "d", 0)]);
    assert_eq!(fates, [Fate::Stored(Level::Disk), Fate::Unroutable]);
    assert_eq!(bodies(&house, OTHER), ["a", "c"]);
    assert!(!directory.path().join("shards/7").exists());
    house.close();
}

#[test]
fn a_copy_has_the_logs_where_a_start_looks_for_them() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    send(&house, None, &[("all", "", "a", 0)]).1.unwrap();

    house.shard.begin_backup().unwrap().write(copy.path()).unwrap();
    send(&house, None, &[("all", "", "later", 0)]).1.unwrap();
    house.close();

    let house = opened(copy.path());
    for id in [house::STREAM, OWN, OTHER] {
        assert_eq!(bodies(&house, id), ["a"]);
    }
    house.close();
}

#[test]
fn a_copy_has_the_log_of_a_queue_that_is_deleted_while_it_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let large: &'static str = Box::leak("x".repeat(50_000).into_boxed_str());
    let sent = [("", "own", large, 0); 20];
    send(&house, None, &sent).1.unwrap();
    assert!(directory.path().join("shards/7/msgs.0000000003").exists(), "some segments are sealed");
    let backup = house.shard.begin_backup().unwrap();

    assert_eq!(house.shard.delete_queue(OWN).unwrap(), 20);

    backup.write(copy.path()).unwrap();
    assert!(!directory.path().join("shards/7").exists(), "it goes when the copy is made");
    house.close();
    let house = opened(copy.path());
    assert_eq!(bodies(&house, OWN), [large; 20]);
    house.close();
}

#[test]
fn the_log_of_a_deleted_queue_stays_until_the_last_copy_is_made_or_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().join("shards/7");
    let house = opened(directory.path());
    let (first, second) = (house.shard.begin_backup().unwrap(), house.shard.begin_backup().unwrap());
    house.shard.delete_queue(OWN).unwrap();

    drop(first);
    assert!(own.exists());
    drop(second);

    assert!(!own.exists());
    house.close();
}

/// The broker dies during a copy that keeps the log of a deleted queue: the only sign that the folder is garbage is
/// that no queue has its number.
#[test]
fn a_start_removes_what_a_copy_that_was_cut_short_kept() {
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().join("shards/7");
    let house = opened(directory.path());
    let backup = house.shard.begin_backup().unwrap();
    house.shard.delete_queue(OWN).unwrap();
    house.engine.close().unwrap();
    std::mem::forget(backup);
    assert!(own.exists());

    let house = open(directory.path());
    assert_eq!(house.shard.retain_queues(&[house::STREAM, OTHER]).unwrap(), 1);

    assert!(!own.exists());
    house.close();
}

#[test]
fn a_log_that_vanished_is_not_begun_anew_unless_somebody_makes_its_folder() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    send(&house, None, &[("all", "", "a", 0)]).1.unwrap();
    house.close();
    let (own, away) = (directory.path().join("shards/7"), directory.path().join("away"));
    std::fs::rename(&own, &away).unwrap();

    for _ in 0..2 {
        let house = open(directory.path());
        let refused = house.shard.dedicate(OWN).unwrap_err();
        assert!(refused.to_string().contains("its folder is gone"), "{refused}");
        house.shard.dedicate(OTHER).unwrap();
        house.close();
    }

    std::fs::rename(&away, &own).unwrap();
    let house = opened(directory.path());
    assert_eq!(bodies(&house, OWN), ["a"]);
    house.close();

    std::fs::remove_dir_all(&own).unwrap();
    std::fs::create_dir(&own).unwrap();
    let house = opened(directory.path());
    assert_eq!(bodies(&house, OWN), [""; 0]);
    // Deleted messages are not reported as missing.
    assert_eq!(house.shard.delete_queue(OWN).unwrap(), 0);
    house.shard.dedicate(OWN).unwrap();
    house.close();
}

#[test]
fn the_names_of_a_user_are_deleted_from_the_logs_of_queues_too() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();
    assert_eq!(send(&house, Some(&session), &[("", "own", "a", 7)]).0, [Fate::Stored(Level::Disk)]);

    assert_eq!(house.shard.delete_producers_of("anna").unwrap(), 1);

    house.close();
    let house = opened(directory.path());
    assert_eq!(house.shard.sequence_in_family("p").unwrap(), None);
    let session = house.shard.open_producer("p", "anna").unwrap();
    assert_eq!(send(&house, Some(&session), &[("", "own", "b", 1)]).0, [Fate::Stored(Level::Disk)]);
    assert_eq!(bodies(&house, OWN), ["a", "b"]);
    house.close();
}

/// The log of the queue forgot it by itself: it does not know who holds a name.
#[test]
fn a_name_that_is_held_is_not_forgotten_in_the_log_of_a_queue() {
    const DAY_MS: u64 = 86_400_000;
    let directory = tempfile::tempdir().unwrap();
    let house = house::open_forgetting(directory.path(), Duration::from_secs(7 * 86_400));
    put(&house.shard, OWN, "own");
    let session = house.shard.open_producer("p", "anna").unwrap();
    assert_eq!(send(&house, Some(&session), &[("", "own", "a", 7)]).0, [Fate::Stored(Level::Disk)]);
    let now_ms = house.shard.producers().unwrap()[0].used_at_ms;
    let forgotten_after = |days: u64| {
        let all = house.shard.family();
        all.iter().map(|shard| shard.forget_producers(now_ms + days * DAY_MS).unwrap()).sum::<u64>()
    };

    assert_eq!(forgotten_after(30), 0);
    assert_eq!(house.shard.sequence_in_family("p").unwrap(), Some(7));

    drop(session);
    // Not before the log of the queue has forgotten it for good.
    assert_eq!(forgotten_after(60), 0);
    while forgotten_after(60) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(house.shard.sequence_in_family("p").unwrap(), None);
    let again = house.shard.open_producer("p", "ben").unwrap();
    assert_eq!(send(&house, Some(&again), &[("", "own", "b", 1)]).0, [Fate::Stored(Level::Disk)]);
    assert_eq!(bodies(&house, OWN), ["a", "b"]);
    house.close();
}

/// The log of the queue still had it, and confirmed messages of the next owner as stored before.
#[test]
fn a_name_that_another_one_replaces_is_not_left_in_the_log_of_a_queue() {
    let directory = tempfile::tempdir().unwrap();
    let house = house::open_with_one_name(directory.path());
    put(&house.shard, OWN, "own");
    let session = house.shard.open_producer("p", "anna").unwrap();
    assert_eq!(send(&house, Some(&session), &[("", "own", "a", 7)]).0, [Fate::Stored(Level::Disk)]);
    let used_at_ms = house.shard.producers().unwrap()[0].used_at_ms;
    house.close();
    let mut log = house::open_log(directory.path());
    let two_days_ago = (used_at_ms - 2 * 86_400_000).to_le_bytes();
    let standing = [&session.id().get().to_le_bytes()[..], &two_days_ago, b"anna"].concat();
    log.append_mark(marks::PRODUCER_NAMES, b"p", &standing).unwrap();
    log.write().unwrap();
    log.close().unwrap();
    let house = house::open_with_one_name(directory.path());
    put(&house.shard, OWN, "own");

    house.shard.open_producer("q", "anna").unwrap();

    assert_eq!(house.shard.sequence_in_family("p").unwrap(), None);
    let session = house.shard.open_producer("p", "ben").unwrap();
    assert_eq!(send(&house, Some(&session), &[("", "own", "b", 1)]).0, [Fate::Stored(Level::Disk)]);
    assert_eq!(bodies(&house, OWN), ["a", "b"]);
    house.close();
}

/// As after a failure of power, which brings back what was not on the disk.
#[test]
fn a_name_that_only_the_log_of_a_queue_has_left_is_forgotten_after_its_time() {
    const DAY_MS: u64 = 86_400_000;
    let directory = tempfile::tempdir().unwrap();
    let house = house::open_forgetting(directory.path(), Duration::from_secs(7 * 86_400));
    put(&house.shard, OWN, "own");
    let own = house.shard.home_of(OWN);
    own.open_producer("p", "anna").unwrap();
    let now_ms = own.producers().unwrap()[0].used_at_ms;

    house.shard.forget_producers(now_ms + 7 * DAY_MS).unwrap();
    assert_eq!(own.producers().unwrap().len(), 1);
    house.shard.forget_producers(now_ms + 8 * DAY_MS).unwrap();

    assert_eq!(own.producers().unwrap(), []);
    house.close();
}

#[test]
fn what_a_log_of_its_own_refused_holds_back_what_goes_to_the_next_queue_of_that_name() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();
    let fates = |sent: &[Sent]| send(&house, Some(&session), sent).0;
    house.shard.shut_empty_queue(OWN).unwrap();
    assert_eq!(fates(&[("", "own", "a", 1)]), [Fate::Shut]);

    house.shard.delete_queue(OWN).unwrap();
    let (id, stream) = (QueueId(9), Some(StreamSettings::default()));
    house
        .shard
        .put_queues([QueueSettings { id, name: "own", auto_delete: false, levels: QueueLevels::default(), stream }])
        .unwrap();

    assert_eq!(fates(&[("", "own", "b", 2)]), [Fate::Behind(1)]);
    assert_eq!(fates(&[("", "own", "a", 1), ("", "own", "b", 2)]), [Fate::Stored(Level::Disk); 2]);
    assert_eq!(bodies(&house, id), ["a", "b"]);
    house.close();
}

/// The real disk; it records whose names were synced.
#[derive(Debug, Default)]
struct SyncsOfNames(Mutex<Vec<PathBuf>>);

impl Disk for SyncsOfNames {
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.0.lock().unwrap().push(path.to_owned());
        RealDisk.sync_directory(path)
    }
}

#[test]
fn a_log_that_finds_no_room_leaves_nothing_and_can_be_made_later() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let house = open_on(directory.path(), Arc::clone(&disk) as _);
    disk.free_bytes.store(1, Ordering::SeqCst);

    let refused = house.shard.dedicate(OWN).unwrap_err();

    assert!(refused.is_full(), "{refused}");
    assert!(!directory.path().join("shards/7").exists());
    assert!(Arc::ptr_eq(&house.shard.home_of(OWN), &house.shard));
    disk.free_bytes.store(0, Ordering::SeqCst);
    put(&house.shard, OWN, "own");
    send(&house, None, &[("", "own", "a", 0)]).1.unwrap();
    assert_eq!(bodies(&house, OWN), ["a"]);
    house.close();
}

/// A log of a queue that was never recorded: its number may be another's after a restart.
#[test]
fn a_log_whose_queue_was_not_put_is_not_missed() {
    for is_taken_back in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let house = open(directory.path());
        house.shard.dedicate(OWN).unwrap();
        if is_taken_back {
            assert_eq!(house.shard.delete_queue(OWN).unwrap(), 0);
            assert!(!directory.path().join("shards/7").exists());
        }
        house.close();
        // It vanishes without a trace in the vhost's log.
        let _ = std::fs::remove_dir_all(directory.path().join("shards"));

        let house = open(directory.path());
        put(&house.shard, OWN, "own");

        assert_eq!(bodies(&house, OWN), [""; 0]);
        house.close();
    }
}

/// A folder whose name was not synced before the broker died was found by the next start, which left the sync out: a
/// confirmed message was lost with the folder when the power failed.
#[test]
fn the_names_of_folders_that_are_there_already_are_synced_too() {
    for is_found_by_a_start in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("shards");
        let make = || std::fs::create_dir_all(folder.join("7")).unwrap();
        let disk = Arc::new(SyncsOfNames::default());
        if is_found_by_a_start {
            make();
        }
        let house = open_on(directory.path(), Arc::clone(&disk) as _);
        if !is_found_by_a_start {
            make();
        }

        put(&house.shard, OWN, "own");

        let synced = disk.0.lock().unwrap().clone();
        let before_its_log = synced.split(|path| *path == folder.join("7")).next().unwrap();
        assert!(before_its_log.ends_with(&[directory.path().to_owned(), folder]), "{synced:?}");
        house.close();
    }
}
