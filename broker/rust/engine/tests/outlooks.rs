//! Streams as a reader plans with them: offsets that have messages, how many messages there were, ids, and the signal for the
//! next message.
#![allow(clippy::unwrap_used)]

mod house;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use house::{House, STREAM, open, open_raised, publish};
use penstock_engine::{QueueId, QueueLevels, QueueSettings, Signal, StreamOutlook, StreamSettings};

const RAISE: u64 = 1 << 32;
const OWN: QueueId = QueueId(7);

fn outlook_of(house: &House, id: QueueId) -> StreamOutlook {
    house.shard.home_of(id).stream_outlook(id, 100).unwrap().unwrap()
}

fn outlook(house: &House) -> StreamOutlook {
    outlook_of(house, STREAM)
}

fn counts(house: &House) -> (u64, u64, u64, Vec<(u64, u64)>) {
    let StreamOutlook { first, next, received_count, runs, .. } = outlook(house);
    (first, next, received_count, runs)
}

fn stream(id: QueueId, name: &str) -> QueueSettings<'_> {
    let stream = Some(StreamSettings::default());
    QueueSettings { id, name, auto_delete: false, levels: QueueLevels::default(), stream }
}

fn put_dedicated(house: &House) {
    house.shard.dedicate(OWN).unwrap();
    house.shard.put_queues([stream(OWN, "own")]).unwrap();
}

/// Closes it without a last sync, as a kill does: a start finds what was written.
fn reopened(house: House, directory: &Path, raise: bool) -> House {
    house.close();
    if raise { open_raised(directory) } else { open(directory) }
}

async fn is_rung(signal: &Signal) -> bool {
    tokio::time::timeout(Duration::from_millis(20), signal.heard()).await.is_ok()
}

#[test]
fn sequences_that_a_start_skips_are_a_gap_and_no_messages() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    assert_eq!(counts(&house), (1, 1, 0, vec![]));
    publish(&house, &["a", "b", "c"]);
    assert_eq!(counts(&house), (1, 4, 3, vec![(1, 4)]));

    let house = reopened(house, directory.path(), true);
    assert_eq!(counts(&house), (1, 4 + RAISE, 3, vec![(1, 4)]));
    publish(&house, &["d", "e"]);
    let expected = (1, 6 + RAISE, 5, vec![(1, 4), (4 + RAISE, 6 + RAISE)]);
    assert_eq!(counts(&house), expected);

    let house = reopened(house, directory.path(), false);
    assert_eq!(counts(&house), expected);
    assert_eq!(outlook(&house).bytes, 5);
    let counts = house.shard.queue_counts(&[STREAM]).unwrap()[0];
    assert_eq!((counts.published_count, counts.settled_count), (5, 0), "nor are they published");
    house.close();
}

#[test]
fn a_stream_that_is_declared_after_a_raise_has_received_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let house = reopened(open(directory.path()), directory.path(), true);
    house.shard.put_queues([stream(QueueId(2), "new")]).unwrap();

    let found = outlook_of(&house, QueueId(2));

    assert_eq!((found.first, found.next, found.received_count), (1 + RAISE, 1 + RAISE, 0));
    house.close();
}

#[test]
fn messages_that_are_gone_were_received_and_are_in_no_run() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let body = "x".repeat(20_000);
    for _ in 0..40 {
        publish(&house, &[&body]);
    }

    let dropped = house.shard.trim(STREAM, 30).unwrap();

    assert!(dropped > 0);
    assert_eq!(counts(&house), (1 + dropped, 41, 40, vec![(1 + dropped, 41)]));
    let house = reopened(house, directory.path(), false);
    assert_eq!(counts(&house), (1 + dropped, 41, 40, vec![(1 + dropped, 41)]));
    house.close();
}

#[test]
fn a_stream_keeps_its_id_and_no_other_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    put_dedicated(&house);
    house.shard.put_queues([stream(QueueId(2), "two")]).unwrap();
    let ids = |house: &House| [STREAM, OWN, QueueId(2)].map(|id| outlook_of(house, id).id);
    let before = ids(&house);
    assert!(before[0] != before[1] && before[1] != before[2] && before[0] != before[2]);
    assert_eq!(before[0].to_string().len(), 32);

    let house = reopened(house, directory.path(), true);
    put_dedicated(&house);
    house.shard.put_queues([stream(QueueId(2), "two")]).unwrap();
    assert_eq!(ids(&house), before);

    house.shard.delete_queue(OWN).unwrap();
    house.shard.delete_queue(QueueId(2)).unwrap();
    assert_eq!(house.shard.stream_outlook(QueueId(2), 1).unwrap(), None);
    house.shard.put_queues([stream(QueueId(3), "two")]).unwrap();
    assert!(!before.contains(&outlook_of(&house, QueueId(3)).id));
    house.close();
}

#[test]
fn an_id_is_on_the_disk_before_a_message() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let known_at = outlook(&house).known_at;
    assert!(known_at.0 > 0);
    house.shard.sync_to(known_at).unwrap();
    assert!(house.shard.synced() >= known_at);

    let house = reopened(house, directory.path(), false);
    assert_eq!(outlook(&house).known_at.0, 0);
    house.close();
}

#[test]
fn a_deleted_stream_leaves_no_id_behind() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    house.shard.put_queues([stream(QueueId(2), "two")]).unwrap();
    let id = outlook_of(&house, QueueId(2)).id;

    // The definitions do not name it: its declaration was not answered.
    let house = reopened(house, directory.path(), false);
    assert_eq!(house.shard.retain_queues(&[STREAM]).unwrap(), 1);
    let house = reopened(house, directory.path(), false);

    house.shard.put_queues([stream(QueueId(2), "two")]).unwrap();
    assert_ne!(outlook_of(&house, QueueId(2)).id, id);
    house.close();
}

#[tokio::test]
async fn a_watcher_hears_of_the_next_message_once_and_is_no_reader() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let signal = Arc::<Signal>::default();

    assert_eq!(house.shard.watch_stream(STREAM, &signal).unwrap(), Some(1));
    assert_eq!(house.shard.stream_extents(&[STREAM]).unwrap()[0].reader_count, 0);
    assert!(!is_rung(&signal).await);
    publish(&house, &["a"]);
    assert!(is_rung(&signal).await);
    publish(&house, &["b"]);
    assert!(!is_rung(&signal).await);

    assert_eq!(house.shard.watch_stream(STREAM, &signal).unwrap(), Some(3));
    house.close();
}

#[tokio::test]
async fn a_watcher_hears_of_the_end_of_its_stream_and_of_the_broker() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    put_dedicated(&house);
    let [deleted, closed] = std::array::from_fn(|_| Arc::<Signal>::default());
    let own = house.shard.home_of(OWN);
    own.watch_stream(OWN, &deleted).unwrap();
    house.shard.watch_stream(STREAM, &closed).unwrap();

    house.shard.delete_queue(OWN).unwrap();
    assert!(is_rung(&deleted).await && !is_rung(&closed).await);
    assert_eq!(own.watch_stream(OWN, &deleted).unwrap(), None);

    house.shard.close(false).unwrap();
    assert!(is_rung(&closed).await);
    assert_eq!(house.shard.watch_stream(STREAM, &closed).unwrap(), None);
}
