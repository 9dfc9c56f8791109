//! A disk without room: publishers are told, consumers go on, and it passes by itself.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_engine::{
    Engine, EngineOptions, Fate, Filled, Payload, Publication, QueueId, Sequence, SequenceRange, Settle, Shard,
    SubscriptionOptions,
};

const QUEUE: QueueId = QueueId(1);

fn open(directory: &Path, disk_free_bytes_min: u64) -> (Engine, Arc<Shard>) {
    let options = EngineOptions {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 256 << 10,
        segment_idle: Duration::from_secs(60),
        disk_free_bytes_min,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
    };
    let engine = Engine::new(options).unwrap();
    let shard = engine.open_shard("/", directory, false).unwrap();
    shard.put_queue(QUEUE, "jobs", false, None).unwrap();
    (engine, shard)
}

/// What became of a message; `None` when it was refused for want of room.
fn publish(shard: &Shard, body: &[u8]) -> Option<Fate> {
    let payload = Payload::new(b"", b"jobs", b"", body).unwrap();
    let publication =
        Publication { payload, exchange: b"", key: b"jobs", headers: None, persistent: false, mandatory: false };
    let mut fates = Vec::new();
    let published = shard.publish(&[publication], None, 1, &mut fates).unwrap();
    assert_eq!(published.refused.as_ref().is_some_and(|refused| refused.is_full()), fates.is_empty());
    fates.pop()
}

/// Waits for what another thread does.
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
