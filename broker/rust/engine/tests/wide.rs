//! Messages that go together into the log: one for many queues, and a batch whose publisher asks for sequences. A process that
//! dies at any write leaves all of it or nothing.
#![allow(clippy::unwrap_used)]

#[path = "house/crashing.rs"]
mod crashing;
mod house;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crashing::DyingDisk;
use house::{House, open_on};
use penstock_engine::{
    Destination, EngineError, ExchangeKind, Fate, LengthLimit, Overflow, Payload, Producer, ProducerSession,
    Publication, QueueId, QueueLevels, QueueSettings,
};
use penstock_log::Disk;

/// More than a record of format 1 names.
const QUEUES: u64 = 3_000;
/// More than one hold of the lock stores of other batches.
const MESSAGES: u64 = 2_500;

fn ids() -> Vec<QueueId> {
    (0..QUEUES).map(|number| QueueId(10 + number)).collect()
}

/// An exchange that has all queues.
fn opened(directory: &Path, disk: Arc<dyn Disk>) -> House {
    let house = open_on(directory, disk);
    house.shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
    for id in ids() {
        let name = id.0.to_string();
        let levels = QueueLevels::default();
        house.shard.put_queues([QueueSettings { id, name: &name, auto_delete: false, levels, stream: None }]).unwrap();
        house.shard.add_route("all", "", None, Destination::Queue(&name)).unwrap();
    }
    house
}

fn counts(house: &House) -> Vec<u64> {
    house.shard.queue_counts(&ids()).unwrap().iter().map(|counts| counts.ready_count).collect()
}

fn publication<'a>(exchange: &'a str, key: &'a str, producer: Option<Producer>) -> Publication<'a> {
    let (exchange, key) = (exchange.as_bytes(), key.as_bytes());
    let mut payload = Payload::new(exchange, key, b"", b"body").unwrap();
    if let Some(producer) = producer {
        payload = payload.with_producer(producer);
    }
    Publication { payload, exchange, key, headers: None, persistent: true, mandatory: false }
}

fn publish_to_all(house: &House, session: &ProducerSession) -> Result<Fate, EngineError> {
    let one = publication("all", "", Some(Producer { id: session.id(), sequence: 1 }));
    let mut fates = Vec::new();
    house.shard.publish_as(Some(session), &[one], None, 1, &mut fates)?;
    Ok(fates[0])
}

/// Runs a step on a disk that dies at each write of it in turn, until it has enough; `check` sees what the next process has.
fn dying(
    open: impl Fn(&Path, Arc<dyn Disk>) -> House,
    step: impl Fn(&House) -> Result<(), EngineError>,
    check: impl Fn(&House, bool),
) {
    for writes in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(DyingDisk::default());
        let house = open(directory.path(), Arc::clone(&disk) as Arc<dyn Disk>);
        disk.writes_left.store(writes, Ordering::SeqCst);
        let was_enough = step(&house).is_ok();
        // Closing a stopped shard fails as it should.
        let _ = house.engine.close();
        drop(house);

        let house = open(directory.path(), Arc::new(DyingDisk::default()));
        check(&house, was_enough);
        house.close();
        if was_enough {
            break;
        }
    }
}

/// It was several records, and the queues of the first ones had a message that the others never got.
#[test]
fn a_message_for_many_queues_is_in_all_of_them_or_in_none() {
    let published = |house: &House| {
        let session = house.shard.open_producer("p", "anna")?;
        publish_to_all(house, &session).map(|_| ())
    };
    dying(opened, published, |house, was_enough| {
        let first = counts(house);
        assert!(first.iter().all(|count| *count == first[0]), "{} of {QUEUES} have it", first.iter().sum::<u64>());
        assert!(!was_enough || first[0] == 1);

        let session = house.shard.open_producer("p", "anna").unwrap();
        assert!(matches!(publish_to_all(house, &session), Ok(Fate::Stored(_))));
        assert!(counts(house).iter().all(|count| *count == 1), "once, as its producer has it");
    });
}

fn with_sequences(house: &House) -> Result<(), EngineError> {
    let session = house.shard.open_producer("p", "anna")?;
    let one = |sequence| publication("", "s", Some(Producer { id: session.id(), sequence }));
    let batch: Vec<Publication<'_>> = (1..=MESSAGES).map(one).collect();
    house.shard.publish_with_sequences(Some(&session), &batch, None, 1, &mut Vec::new()).map(|_| ())
}

fn stored(house: &House) -> u64 {
    house.shard.queue_counts(&[house::STREAM]).unwrap()[0].ready_count
}

#[test]
fn a_batch_with_sequences_is_there_as_a_whole_or_not_at_all() {
    dying(open_on, with_sequences, |house, was_enough| {
        assert!(
            [if was_enough { MESSAGES } else { 0 }, MESSAGES].contains(&stored(house)),
            "{} of {MESSAGES}",
            stored(house)
        );

        with_sequences(house).unwrap();
        assert_eq!(stored(house), MESSAGES);
    });
}

/// Rows of others came between two holds of the lock.
#[test]
fn nothing_comes_between_the_messages_of_a_batch_with_sequences() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_on(directory.path(), Arc::new(DyingDisk::default()));
    let batch = vec![publication("", "s", None); MESSAGES as usize];
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let published = house.shard.publish_with_sequences(None, &batch, None, 1, &mut Vec::new()).unwrap();
                    let runs: Vec<_> = published.assigned.iter().map(|run| (run.place, run.count)).collect();
                    assert_eq!(runs, [(0, MESSAGES as usize)]);
                }
            });
        }
    });
    assert_eq!(stored(&house), 40 * MESSAGES);
    house.close();
}

/// A batch of which a message is refused is not held up as a whole.
#[test]
fn a_batch_with_sequences_of_which_one_is_refused_is_stored_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), Arc::new(DyingDisk::default()));
    house.shard.limit_lengths([(QueueId(10), Some(LengthLimit::of_messages(1, Overflow::RejectPublish)))]).unwrap();
    let batch = ["s", "10", "10", "s"].map(|key| publication("", key, None));
    let mut fates = Vec::new();

    let published = house.shard.publish_with_sequences(None, &batch, None, 1, &mut fates).unwrap();

    assert!(matches!(fates[..], [Fate::Stored(_), Fate::Stored(_), Fate::Overflow, Fate::Stored(_)]), "{fates:?}");
    let runs: Vec<_> = published.assigned.iter().map(|run| (run.queue, run.place, run.first.0)).collect();
    assert_eq!(runs, [(house::STREAM, 0, 1), (QueueId(10), 1, 1), (house::STREAM, 3, 2)]);
    house.close();
}

#[test]
fn queues_that_the_definitions_do_not_name_are_deleted_some_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), Arc::new(DyingDisk::default()));
    let before = house.shard.holds();

    assert_eq!(house.shard.retain_queues(&[house::STREAM]).unwrap(), QUEUES as usize);

    assert!(house.shard.holds() - before > QUEUES.div_ceil(1024));
    house.close();
    let house = opened(directory.path(), Arc::new(DyingDisk::default()));
    assert_eq!(house.shard.totals().unwrap(), (0, 0));
    house.close();
}
