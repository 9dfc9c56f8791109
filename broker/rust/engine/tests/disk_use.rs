//! One slow queue among many fast ones: the disk use of a running shard's log under load.
//!
//! `cargo test --release -p penstock-engine --test disk_use -- --ignored --nocapture` measures it with a broker's
//! segment sizes.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_engine::{
    Engine, EngineOptions, Fate, Payload, Publication, QueueId, Sequence, SequenceRange, Settle, Shard, Subscription,
    SubscriptionOptions,
};

const SLOW: QueueId = QueueId(1);
const FAST_COUNT: u64 = 20;
const BATCH: usize = 100;
/// Header, head with one target, the queue's name as the key, and the body.
const RECORD_BYTES: u64 = 46 + 4 + 100;

struct Load {
    shard: Arc<Shard>,
    fast: Vec<Subscription>,
    /// Percentage of messages for the slow queue.
    slow_share: usize,
    slow_count: u64,
    published_count: u64,
}

fn engine(segment_bytes_min: u64, segment_bytes_max: u64, compaction_bytes_per_second: u64) -> Engine {
    let segment_idle = Duration::from_secs(1);
    Engine::new(EngineOptions {
        segment_bytes_min,
        segment_bytes_max,
        segment_idle,
        disk_free_bytes_min: 0,
        compaction_bytes_per_second,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 4096,
    })
    .unwrap()
}

impl Load {
    fn new(engine: &Engine, directory: &Path, slow_share: usize) -> Load {
        let shard = engine.open_shard("/", directory, false).unwrap();
        shard.put_queue(SLOW, "slow", false, None).unwrap();
        let options = SubscriptionOptions { prefetch: 10_000, auto_ack: false, exclusive: false, pull: false };
        let mut fast = Vec::new();
        for id in 0..FAST_COUNT {
            shard.put_queue(QueueId(10 + id), &format!("q{id:03}"), false, None).unwrap();
            fast.push(shard.subscribe(QueueId(10 + id), options).unwrap());
        }
        Load { shard, fast, slow_share, slow_count: 0, published_count: 0 }
    }

    /// Publishes a hundred messages for each fast queue in turn and settles all but the slow queue's.
    fn round(&mut self) {
        let body = [7; 100];
        for (id, subscription) in self.fast.iter().enumerate() {
            let name = format!("q{id:03}");
            let publication = |index: usize| {
                let key = if index < self.slow_share { b"slow" } else { name.as_bytes() };
                let payload = Payload::new(b"", key, b"", &body).unwrap();
                Publication { payload, exchange: b"", key, headers: None, persistent: false, mandatory: false }
            };
            let batch: Vec<_> = (0..BATCH).map(publication).collect();
            let mut fates: Vec<Fate> = Vec::new();
            self.shard.publish(&batch, None, 1, &mut fates).unwrap();
            let mut filled = Vec::new();
            subscription.fill(u32::MAX, &mut filled).unwrap();
            let picked: Vec<_> = filled.iter().flat_map(|filled| &filled.picked).collect();
            let sizes: Vec<(Sequence, u32)> = picked.iter().map(|picked| (picked.taken.sequence, 100)).collect();
            subscription.sent(&sizes).unwrap();
            if let (Some(first), Some(last)) = (sizes.first(), sizes.last()) {
                subscription.settle(&[SequenceRange::new(first.0, last.0).unwrap()], Settle::Ack).unwrap();
            }
            self.slow_count += self.slow_share as u64;
            self.published_count += BATCH as u64;
        }
    }

    fn compacted(&self) -> u64 {
        let found = self.shard.counters().all().find(|(name, _)| *name == "compaction_bytes_total");
        found.map_or(0, |(_, bytes)| bytes)
    }
}

/// Disk use of the directory's files, including reserved space.
fn disk_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap();
    // A file may go between the listing and the query.
    entries.filter_map(|entry| entry.unwrap().metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}

#[test]
fn a_running_shard_compacts_in_its_pauses_and_delivers_what_was_moved() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(64 << 10, 256 << 10, 64 << 20);
    let mut load = Load::new(&engine, directory.path(), 5);
    // Compaction gets the processor time that the load leaves.
    let deadline = Instant::now() + Duration::from_secs(300);
    while load.compacted() < 200_000 {
        assert!(Instant::now() < deadline, "nothing was compacted");
        load.round();
        // When publishing outruns the folds there are no pauses.
        std::thread::sleep(Duration::from_millis(2));
    }
    let given_up = load.shard.counters().all().find(|(name, _)| *name == "compactions_given_up_total");
    assert_eq!(given_up, Some(("compactions_given_up_total", 0)));

    let options = SubscriptionOptions { prefetch: 1000, auto_ack: true, exclusive: false, pull: false };
    let slow = load.shard.subscribe(SLOW, options).unwrap();
    let mut next = 1;
    while next <= load.slow_count {
        let mut filled = Vec::new();
        slow.fill(1000, &mut filled).unwrap();
        let mut sizes = Vec::new();
        for one in &filled {
            for picked in &one.picked {
                let message = one.segment.message(picked.offset).unwrap();
                message.verify().unwrap();
                assert_eq!((picked.taken.sequence, message.routing_key), (Sequence(next), &b"slow"[..]));
                next += 1;
                sizes.push((picked.taken.sequence, 100));
            }
        }
        assert!(!sizes.is_empty(), "message {next} of {} is there", load.slow_count);
        slow.sent(&sizes).unwrap();
    }
    drop(load);
    engine.close().unwrap();
}

#[test]
#[ignore = "takes a minute and gigabytes; measures"]
fn disk_use_stays_below_twice_what_lives_and_three_segments() {
    const SEGMENT: u64 = 64 << 20;
    let number = |name: &str, default| std::env::var(name).ok().and_then(|set| set.parse().ok()).unwrap_or(default);
    let (rate, slow_share) = (number("MESSAGES_PER_SECOND", 400_000), number("SLOW_SHARE", 2));
    let (seconds, pace) = (number("SECONDS", 40), number("COMPACTION_BYTES_PER_SECOND", 64 << 20));
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(1 << 20, SEGMENT, pace);
    let mut load = Load::new(&engine, directory.path(), slow_share as usize);
    let started = Instant::now();
    let (mut worst, mut slowest, mut printed) = (0_i64, Duration::ZERO, 0);
    while started.elapsed() < Duration::from_secs(seconds) {
        let due = (started.elapsed().as_secs_f64() * rate as f64) as u64;
        if load.published_count >= due {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let round = Instant::now();
        load.round();
        slowest = slowest.max(round.elapsed());
        let (disk, live) = (disk_bytes(directory.path()), load.slow_count * RECORD_BYTES);
        let above = (disk as i64 - 2 * live as i64) / (1 << 20);
        worst = worst.max(above);
        if started.elapsed().as_secs() >= printed {
            println!(
                "{printed:3} s: {:6.2} M published, disk {:5} MiB, live {:5} MiB, above twice {above:5} MiB, rewritten {:5} MiB",
                load.published_count as f64 / 1e6,
                disk >> 20,
                live >> 20,
                load.compacted() >> 20
            );
            printed += 2;
        }
    }
    let stats = load.shard.log_stats();
    println!(
        "worst {worst} MiB above twice what lives; slowest round of {} messages {slowest:?}; log {} MiB, rewritten {} MiB",
        BATCH * FAST_COUNT as usize,
        stats.bytes_written >> 20,
        stats.bytes_rewritten >> 20
    );
    drop(load);
    engine.close().unwrap();
    assert!(worst as u64 <= 3 * (SEGMENT >> 20), "{worst} MiB");
}
