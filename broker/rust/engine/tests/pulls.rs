//! Pulls that fail, whose messages are ready for the next consumer, and messages that no pull gets.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use penstock_engine::{
    Attributes, Engine, EngineOptions, Moment, Payload, Publication, QueueId, Shard, SubscriptionOptions,
};

const QUEUE: QueueId = QueueId(1);
const COUNT: usize = 1000;
const HIDDEN: [&str; 2] = ["msgs.0000000002", "msgs.0000000002.idx"];

fn open(directory: &Path) -> (Engine, Arc<Shard>) {
    let options = EngineOptions {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 256 << 10,
        segment_idle: Duration::from_millis(10),
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 4096,
    };
    let engine = Engine::new(options).unwrap();
    let shard = engine.open_shard("/", directory, false).unwrap();
    shard.put_queue(QUEUE, "jobs", false, None).unwrap();
    (engine, shard)
}

fn rename_all(directory: &Path, from: &str, to: &str) {
    for name in HIDDEN {
        std::fs::rename(directory.join(format!("{name}{from}")), directory.join(format!("{name}{to}"))).unwrap();
    }
}

/// When a file could not be opened, as in a process at its limit of open files, messages found before it stayed with
/// the connection, and its client did not know of them.
#[test]
fn a_pull_that_fails_takes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    {
        let (engine, shard) = open(directory.path());
        let payload = Payload::new(b"", b"jobs", b"", &[7; 500]).unwrap();
        let one =
            Publication { payload, exchange: b"", key: b"jobs", headers: None, persistent: false, mandatory: true };
        shard.publish(&[one; COUNT], None, 1, &mut Vec::new()).unwrap();
        engine.close().unwrap();
    }
    let (engine, shard) = open(directory.path());
    let options = SubscriptionOptions { prefetch: 0, auto_ack: false, exclusive: false, pull: true };
    let pulling = shard.subscribe(QUEUE, options).unwrap();
    let mut filled = Vec::new();
    pulling.take_now(1, &mut filled).unwrap();
    filled.clear();
    let started = Instant::now();
    while shard.log_stats().mapped_bytes > 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "nothing is let go of");
        std::thread::yield_now();
    }
    rename_all(directory.path(), "", ".hidden");

    pulling.take_now(1000, &mut filled).unwrap_err();

    assert_eq!((filled.len(), pulling.unacked_count()), (0, 1), "what it had before");
    rename_all(directory.path(), ".hidden", "");
    assert_eq!(pulling.take_now(1000, &mut filled).unwrap(), 0);
    assert_eq!(filled.iter().map(|filled| filled.picked.len()).sum::<usize>(), COUNT - 1);
    engine.close().unwrap();
}

/// Within the millisecond in which it was published a message with a TTL of 0 could be got; it is for consumers that wait for it.
#[test]
fn a_message_with_no_time_to_wait_is_not_pulled() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, shard) = open(directory.path());
    let options = SubscriptionOptions { prefetch: 0, auto_ack: false, exclusive: false, pull: true };
    let pulling = shard.subscribe(QUEUE, options).unwrap();
    for _ in 0..100 {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        let attributes = Attributes { expires_at_ms: Some(now_ms), ..Attributes::default() };
        let payload = Payload::new(b"", b"jobs", b"", b"late").unwrap().with_attributes(&attributes);
        let one =
            Publication { payload, exchange: b"", key: b"jobs", headers: None, persistent: false, mandatory: true };
        shard.publish(&[one], None, now_ms, &mut Vec::new()).unwrap();
        let mut filled = Vec::new();
        pulling.take_now(1, &mut filled).unwrap();
        for run in &filled {
            let view = run.segment.message(run.picked[0].offset).unwrap();
            assert_eq!(pulling.freshness().moment(&view), Moment::Never);
            pulling.expire(&[(run.picked[0].taken.sequence, 4)]).unwrap();
        }
    }
    engine.close().unwrap();
}
