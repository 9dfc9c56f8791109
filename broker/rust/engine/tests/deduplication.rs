//! Messages that were seen before: what is remembered after a power failure, by several logs, and by exchanges that are
//! deleted.
#![allow(clippy::unwrap_used)]

#[path = "house/crashing.rs"]
mod crashing;
#[path = "house/headers.rs"]
mod headers;
mod house;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crashing::CrashingDisk;
use headers::table_of;
use house::{House, STREAM, open_declared, open_queue};
use penstock_engine::{Deduplication, Destination, ExchangeKind, Fate, Level, Payload, Publication, QueueId, Shard};
use penstock_log::{Disk, RealDisk};
use proptest::prelude::*;

const OTHER: QueueId = QueueId(2);

fn by_id() -> Deduplication {
    Deduplication { header: b"x-deduplication-header".as_slice().into(), size_max: 1_000, ttl_ms: None }
}

fn send(house: &House, exchange: &str, key: &str, ids: &[u32], is_mandatory: bool) -> Vec<Fate> {
    let tables: Vec<_> = ids.iter().map(|id| table_of(&[("x-deduplication-header", &id.to_string())])).collect();
    let (exchange, key) = (exchange.as_bytes(), key.as_bytes());
    let publication = |table: &'_ Vec<u8>| {
        let payload = Payload::new(exchange, key, b"", b"body").unwrap();
        (payload, table.clone())
    };
    let payloads: Vec<_> = tables.iter().map(publication).collect();
    let batch: Vec<_> = payloads
        .iter()
        .map(|(payload, table)| Publication {
            payload: *payload,
            exchange,
            key,
            headers: Some(table),
            persistent: false,
            mandatory: is_mandatory,
        })
        .collect();
    let mut fates = Vec::new();
    // Once the disk is dead.
    let _ = house.shard.publish(&batch, None, 1, &mut fates);
    fates
}

fn ready(house: &House, ids: &[QueueId]) -> Vec<u64> {
    house.shard.queue_counts(ids).unwrap().iter().map(|counts| counts.ready_count).collect()
}

fn declare(shard: &Shard) {
    shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
    shard.deduplicate_exchange("all", Some(&by_id())).unwrap();
    shard.add_route("all", "", None, Destination::Queue("s")).unwrap();
}

fn open_on(directory: &Path, disk: Arc<dyn Disk>) -> House {
    open_declared(directory, disk, |shard| shard.deduplicate_queues([(STREAM, Some(by_id()))]).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// A message without its id would be there twice after it is sent again, and an id without its message not at all.
    #[test]
    fn after_a_power_failure_a_message_is_there_with_its_id_or_not_at_all(
        batches in prop::collection::vec(prop::collection::vec(0..60_u32, 1..6), 1..40), dies_after in 1..40_i64, kept in any::<u8>(),
    ) {
        let (directory, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disk = Arc::new(CrashingDisk::default());
        let house = open_on(directory.path(), Arc::clone(&disk) as Arc<dyn Disk>);
        disk.writes_left.store(dies_after, Ordering::SeqCst);
        batches.iter().for_each(|ids| drop(send(&house, "", "s", ids, false)));
        disk.image(directory.path(), after.path(), &[kept]);

        let house = open_on(after.path(), Arc::new(CrashingDisk::default()));
        let ids: Vec<u32> = (0..60).collect();
        let fates = send(&house, "", "s", &ids, false);

        prop_assert_eq!(fates, vec![Fate::Stored(Level::Os); 60]);
        prop_assert_eq!(ready(&house, &[STREAM]), [60]);
    }
}

#[test]
fn a_repetition_is_confirmed_and_counted_and_does_not_return() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    house.shard.deduplicate_queues([(STREAM, Some(by_id()))]).unwrap();

    let fates = send(&house, "", "s", &[1, 1, 2, 1], true);

    assert_eq!(fates, [Fate::Stored(Level::Os); 4]);
    let counts = house.shard.queue_counts(&[STREAM]).unwrap();
    assert_eq!((counts[0].ready_count, counts[0].published_count, counts[0].deduplicated_count), (2, 2, 2));
    let total = house.shard.counters().all().find(|(name, _)| *name == "deduplicated_total").unwrap();
    assert_eq!(total.1, 2);
}

#[test]
fn an_exchange_recognizes_what_was_published_to_it_also_in_a_queue_with_its_own_log() {
    let directory = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        open_declared(path, Arc::new(RealDisk), |shard| {
            declare(shard);
            shard.dedicate(OTHER).unwrap();
            shard.put_queue(OTHER, "own", false, None).unwrap();
            shard.add_route("all", "", None, Destination::Queue("own")).unwrap();
        })
    };
    let house = open(directory.path());
    send(&house, "all", "", &[1, 2, 1], false);
    assert_eq!(ready(&house, &[STREAM, OTHER]), [2, 2]);
    assert_eq!(house.shard.deduplicated_at_exchange("all").unwrap(), 2, "each log has recognized one");
    house.close();

    let house = open(directory.path());
    send(&house, "all", "", &[2, 3, 1], false);
    assert_eq!(ready(&house, &[STREAM, OTHER]), [3, 3]);
    send(&house, "", "own", &[3], false);
    assert_eq!(ready(&house, &[STREAM, OTHER]), [3, 4], "by way of another exchange");
}

#[test]
fn an_exchange_that_is_declared_again_has_seen_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_declared(directory.path(), Arc::new(RealDisk), declare);
    send(&house, "all", "", &[1], false);
    house.shard.delete_exchange("all").unwrap();
    declare(&house.shard);
    send(&house, "all", "", &[1, 1], false);
    assert_eq!(ready(&house, &[STREAM]), [2]);
    house.close();

    // The definitions do not have it any more.
    open_declared(directory.path(), Arc::new(RealDisk), |_| ()).close();
    let house = open_declared(directory.path(), Arc::new(RealDisk), declare);
    send(&house, "all", "", &[1], false);
    assert_eq!(ready(&house, &[STREAM]), [3]);
}

#[test]
fn messages_without_the_header_and_messages_that_no_queue_takes_are_not_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    declare(&house.shard);
    house.shard.remove_route("all", "", None, Destination::Queue("s")).unwrap();
    assert_eq!(send(&house, "all", "", &[1], false), [Fate::Unroutable]);
    house.shard.add_route("all", "", None, Destination::Queue("s")).unwrap();

    send(&house, "all", "", &[1], false);
    house::publish_to(&house, "all", [("body", None, None), ("body", None, None)]).unwrap();

    assert_eq!(ready(&house, &[STREAM]), [3]);
}
