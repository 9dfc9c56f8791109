//! A full disk: publishers are refused, consumers go on, and it recovers by itself.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_engine::{
    Attributes, Destination, Engine, EngineOptions, ExchangeKind, ExchangeSettings, Fate, Filled, Payload, Publication,
    QueueId, Sequence, SequenceRange, Settle, Shard, SubscriptionOptions,
};
use penstock_log::{Disk, RealDisk, Space};

const QUEUE: QueueId = QueueId(1);
const LATE: QueueId = QueueId(100);
const YEAR_3000: u64 = 32_503_680_000_000;

fn open(directory: &Path, disk_free_bytes_min: u64) -> (Engine, Arc<Shard>) {
    open_on(directory, disk_free_bytes_min, Arc::new(RealDisk))
}

fn engine_on(disk_free_bytes_min: u64, disk: Arc<dyn Disk>) -> Engine {
    let options = EngineOptions {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 256 << 10,
        segment_idle: Duration::from_secs(60),
        disk_free_bytes_min,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 4096,
    };
    Engine::on_disk(options, disk).unwrap()
}

fn open_on(directory: &Path, disk_free_bytes_min: u64, disk: Arc<dyn Disk>) -> (Engine, Arc<Shard>) {
    let engine = engine_on(disk_free_bytes_min, disk);
    let shard = engine.open_shard("/", directory, false).unwrap();
    shard.put_queue(QUEUE, "jobs", false, None).unwrap();
    (engine, shard)
}

/// The fate of a message; `None` when it was refused for lack of space.
fn publish(shard: &Shard, body: &[u8]) -> Option<Fate> {
    publish_to(shard, "jobs", body, &Attributes::default())
}

fn publish_to(shard: &Shard, queue: &str, body: &[u8], attributes: &Attributes) -> Option<Fate> {
    let key = queue.as_bytes();
    let payload = Payload::new(b"", key, b"", body).unwrap().with_attributes(attributes);
    let publication = Publication { payload, exchange: b"", key, headers: None, persistent: false, mandatory: false };
    let mut fates = Vec::new();
    let published = shard.publish(&[publication], None, 1, &mut fates).unwrap();
    assert_eq!(published.refused.as_ref().is_some_and(|refused| refused.is_full()), fates.is_empty());
    fates.pop()
}

/// Declares an exchange that keeps messages, and a queue for them.
fn declare_late(shard: &Shard) {
    shard.put_queue(LATE, "late", false, None).unwrap();
    shard.put_keeping_exchange("kept", &ExchangeSettings::new(ExchangeKind::Fanout, None), 10).unwrap();
}

fn ready_of_late(shard: &Shard) -> u64 {
    shard.queue_counts(&[LATE]).unwrap()[0].ready_count
}

/// A start of an engine that was closed, with its definitions.
fn started_again(directory: &Path, declare: impl FnOnce(&Shard)) -> (Engine, Arc<Shard>) {
    let engine = engine_on(0, Arc::new(RealDisk));
    let shard = engine.open_incomplete("/", directory, false).unwrap();
    declare(&shard);
    shard.complete();
    (engine, shard)
}

/// Publishes a message to an exchange that keeps it.
fn keep(shard: &Shard, body: &[u8]) {
    let payload = Payload::new(b"kept", b"", b"", body).unwrap();
    let one = Publication { payload, exchange: b"kept", key: b"", headers: None, persistent: false, mandatory: false };
    shard.publish(&[one], None, 1, &mut Vec::new()).unwrap();
}

/// Waits for another thread.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(20), "it did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn below_the_threshold_publishers_are_refused_and_consumers_go_on() {
    let directory = tempfile::tempdir().unwrap();
    {
        let (engine, shard) = open(directory.path(), 0);
        assert!(matches!(publish(&shard, b"before"), Some(Fate::Stored(_))));
        engine.close().unwrap();
    }
    // No disk has that much.
    let (engine, shard) = open(directory.path(), u64::MAX / 2);

    wait_until(|| engine.disk().0);

    assert_eq!(publish(&shard, b"refused"), None);
    assert!(engine.disk().1 > 0);
    let options = SubscriptionOptions { prefetch: 10, auto_ack: false, exclusive: false, pull: false };
    let subscription = shard.subscribe(QUEUE, options).unwrap();
    let mut filled: Vec<Filled> = Vec::new();
    subscription.fill(10, &mut filled).unwrap();
    assert_eq!(filled.len(), 1);
    let range = SequenceRange::new(Sequence(1), Sequence(1)).unwrap();
    assert_eq!(subscription.settle(&[range], Settle::Ack).unwrap(), 1);
    assert_eq!(shard.totals().unwrap(), (0, 0));
    let notices = engine.notices().take();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].is_warning && notices[0].text.contains("publishers are refused"));
}

#[test]
fn while_the_disk_is_full_what_was_settled_is_given_back_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let segments = || {
        let names = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.len() == "msgs.0000000001".len() && name.to_string_lossy().starts_with("msgs")).count()
    };
    {
        let (engine, shard) = open(directory.path(), 0);
        (0..2000).for_each(|_| assert!(publish(&shard, &[1; 1000]).is_some()));
        engine.close().unwrap();
    }
    let full = segments();
    assert!(full > 8, "{full}");
    let (engine, shard) = open(directory.path(), u64::MAX / 2);
    wait_until(|| engine.disk().0);

    shard.purge_queue(QUEUE).unwrap();

    wait_until(|| segments() < 5);
    assert_eq!(shard.totals().unwrap(), (0, 0));
}

/// The real disk, without any space once it is full.
#[derive(Debug, Default)]
struct NoRoom(AtomicBool);

impl NoRoom {
    fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Disk for NoRoom {
    fn create(&self, path: &Path, bytes: u64) -> io::Result<File> {
        self.check()?;
        RealDisk.create(path, bytes)
    }

    fn reserve(&self, file: &File, from: u64, bytes: u64) -> io::Result<()> {
        self.check()?;
        RealDisk.reserve(file, from, bytes)
    }
}

/// Requeues the first message more often than the rest of the segment has room for.
fn fill_segment(shard: &Arc<Shard>) {
    let options = SubscriptionOptions { prefetch: 10, auto_ack: false, exclusive: false, pull: false };
    for _ in 0..2000 {
        let subscription = shard.subscribe(QUEUE, options).unwrap();
        subscription.fill(10, &mut Vec::new()).unwrap();
        subscription.sent(&[(Sequence(1), 4)]).unwrap();
    }
}

/// There was no space to record that messages were requeued, and the virtual host stopped for good.
#[test]
fn a_consumer_that_leaves_while_there_is_no_room_at_all_stops_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(NoRoom::default());
    let (_engine, shard) = open_on(directory.path(), 0, Arc::clone(&disk) as _);
    assert!(publish(&shard, b"body").is_some());
    disk.0.store(true, Ordering::SeqCst);

    fill_segment(&shard);

    assert_eq!(shard.fault(), None);
    disk.0.store(false, Ordering::SeqCst);
    assert!(publish(&shard, b"body").is_some());
    assert_eq!(shard.totals().unwrap(), (2, 0));
}

/// All queues whose messages were due together with one that could not be recorded kept theirs for good.
#[test]
fn messages_that_expire_while_there_is_no_room_at_all_go_once_there_is_some() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(NoRoom::default());
    let (_engine, shard) = open_on(directory.path(), 0, Arc::clone(&disk) as _);
    assert!(publish(&shard, b"body").is_some());
    let queues = [100, 200, 300].map(QueueId);
    // A lane has a number of its own in the log.
    shard.prioritize_queues([(queues[2], 5)]).unwrap();
    for queue in queues {
        let name = queue.0.to_string();
        shard.put_queue(queue, &name, false, None).unwrap();
        for priority in [Some(0), Some(3)] {
            let attributes = Attributes { expires_at_ms: Some(YEAR_3000), priority, ..Attributes::default() };
            assert!(publish_to(&shard, &name, b"body", &attributes).is_some());
        }
    }
    disk.0.store(true, Ordering::SeqCst);
    fill_segment(&shard);
    let ready = || shard.queue_counts(&queues).unwrap().iter().map(|counts| counts.ready_count).sum::<u64>();

    assert!(matches!(shard.expire_due(YEAR_3000), Err(error) if error.is_full()));

    assert!(ready() > 0);
    disk.0.store(false, Ordering::SeqCst);
    assert!(publish(&shard, b"body").is_some());
    shard.expire_due(YEAR_3000 + 1000).unwrap();
    assert_eq!(ready_of_late(&shard), 0);
    assert_eq!(shard.fault(), None);
}

/// Messages whose time was over and that could not be recorded held up the times of all others.
#[test]
fn delays_end_also_while_there_is_no_room_for_expired_messages() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(NoRoom::default());
    let (_engine, shard) = open_on(directory.path(), 0, Arc::clone(&disk) as _);
    assert!(publish(&shard, b"body").is_some());
    let delayed = QueueId(100);
    shard.put_queue(delayed, "delayed", false, None).unwrap();
    let expires = Attributes { expires_at_ms: Some(YEAR_3000), ..Attributes::default() };
    let due = Attributes { due_at_ms: Some(YEAR_3000 + 10), ..Attributes::default() };
    for queue in [200, 300, 400, 500, 600].map(QueueId) {
        let name = queue.0.to_string();
        shard.put_queue(queue, &name, false, None).unwrap();
        assert!(publish_to(&shard, &name, b"body", &expires).is_some());
    }
    assert!(publish_to(&shard, "delayed", b"body", &due).is_some());
    disk.0.store(true, Ordering::SeqCst);
    fill_segment(&shard);
    assert!(matches!(shard.expire_due(YEAR_3000), Err(error) if error.is_full()));

    assert!(matches!(shard.expire_due(YEAR_3000 + 20), Err(error) if error.is_full()));

    assert_eq!(shard.queue_counts(&[delayed]).unwrap()[0].delayed_count, 0);
}

/// The real disk, which says that nothing is free while it is set.
#[derive(Debug, Default)]
struct Scarce(AtomicBool);

impl Disk for Scarce {
    fn space(&self, path: &Path) -> io::Result<Space> {
        let space = RealDisk.space(path)?;
        Ok(if self.0.load(Ordering::SeqCst) { Space { free: 0, ..space } } else { space })
    }
}

/// Publishers that are blocked without a question each time wait for the change itself.
#[tokio::test]
async fn a_watcher_of_the_space_learns_that_it_is_full_and_that_it_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Scarce::default());
    let (engine, shard) = open_on(directory.path(), 0, Arc::clone(&disk) as _);
    let mut space = engine.watch_space();
    assert!(!*space.borrow_and_update());
    disk.0.store(true, Ordering::SeqCst);
    while publish(&shard, &[1; 1000]).is_some() {}

    assert!(space.has_changed().unwrap() && *space.borrow_and_update());

    disk.0.store(false, Ordering::SeqCst);
    let changed = tokio::time::timeout(Duration::from_secs(120), space.changed()).await;
    assert!(changed.is_ok_and(|changed| changed.is_ok()), "the space came back unnoticed");
    assert!(!*space.borrow_and_update());
    assert!(publish(&shard, b"after").is_some());
    engine.close().unwrap();
}

/// That it was bound before was not noted, and the next start copied all that it had got by its route.
#[test]
fn a_queue_that_is_bound_while_there_is_no_room_gets_each_message_once() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(NoRoom::default());
    let (engine, shard) = open_on(directory.path(), 0, Arc::clone(&disk) as _);
    let bind = |shard: &Shard| shard.add_route("kept", "", None, Destination::Queue("late")).unwrap();
    declare_late(&shard);
    assert!(publish(&shard, b"body").is_some());
    disk.0.store(true, Ordering::SeqCst);
    fill_segment(&shard);
    bind(&shard);
    disk.0.store(false, Ordering::SeqCst);
    keep(&shard, b"1");
    engine.close().unwrap();

    let (_engine, shard) = started_again(directory.path(), |shard| {
        declare_late(shard);
        bind(shard);
    });

    assert_eq!(ready_of_late(&shard), 1);
}

/// The mark that says so was dropped, and with it the one that a receiver waits.
#[test]
fn a_receiver_without_queues_is_noted_as_done_once_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(NoRoom::default());
    let (engine, shard) = open_on(directory.path(), 0, Arc::clone(&disk) as _);
    let declare = |shard: &Shard| {
        declare_late(shard);
        shard.put_exchange("behind", ExchangeKind::Fanout, None).unwrap();
    };
    let bind = |shard: &Shard| shard.add_route("kept", "", None, Destination::Exchange("behind")).unwrap();
    let lead_on = |shard: &Shard| shard.add_route("behind", "", None, Destination::Queue("late")).unwrap();
    declare(&shard);
    keep(&shard, b"0");
    assert!(publish(&shard, b"body").is_some());
    disk.0.store(true, Ordering::SeqCst);
    fill_segment(&shard);
    bind(&shard);
    disk.0.store(false, Ordering::SeqCst);
    lead_on(&shard);
    keep(&shard, b"1");
    assert_eq!(ready_of_late(&shard), 1);
    engine.close().unwrap();

    let (_engine, shard) = started_again(directory.path(), |shard| {
        declare(shard);
        lead_on(shard);
        bind(shard);
    });

    assert_eq!(ready_of_late(&shard), 1);
}

#[test]
fn a_queue_that_is_bound_on_a_full_disk_gets_the_kept_messages_once_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Scarce::default());
    let (_engine, shard) = open_on(directory.path(), 0, Arc::clone(&disk) as _);
    declare_late(&shard);
    [b"1", b"2"].into_iter().for_each(|body| keep(&shard, body));
    disk.0.store(true, Ordering::SeqCst);
    while publish(&shard, &[1; 1000]).is_some() {}

    shard.add_route("kept", "", None, Destination::Queue("late")).unwrap();

    assert_eq!(ready_of_late(&shard), 0);
    disk.0.store(false, Ordering::SeqCst);
    wait_until(|| ready_of_late(&shard) == 2);
}
