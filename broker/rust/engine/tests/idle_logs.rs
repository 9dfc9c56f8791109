//! What logs without work cost the threads behind them. `IDLE_LOGS=10000` prints it for so many.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use penstock_engine::{Engine, EngineOptions};

/// The system counts a thread's time in these.
const TICK_MS: u64 = 10;

fn log_count() -> usize {
    std::env::var("IDLE_LOGS").map_or(100, |count| count.parse().expect("a number of logs"))
}

/// How often a thread of this process has waited, and its time in milliseconds.
fn thread(name: &str) -> (u64, u64) {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let read = |task: &std::path::Path, file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
    // The system keeps 15 bytes of a name.
    let task = tasks.into_iter().find(|task| read(task, "comm").trim() == &name[..name.len().min(15)]).unwrap();
    let (status, stat) = (read(&task, "status"), read(&task, "stat"));
    let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    let times: Vec<u64> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse().unwrap())
        .collect();
    (waits.trim().parse().unwrap(), times.iter().sum::<u64>() * TICK_MS)
}

/// The thread that expires messages looked at every log 20 times a second.
#[test]
fn the_thread_that_expires_messages_waits_while_nothing_expires() {
    const SECONDS: u64 = 4;
    let directory = tempfile::tempdir().unwrap();
    let options = EngineOptions {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 256 << 10,
        segment_idle: Duration::from_secs(60),
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::from_secs(7 * 86_400),
        producers_of_user_max: 16,
    };
    let engine = Engine::new(options).unwrap();
    let open = |number: usize| {
        let name = format!("vhost-{number}");
        engine.open_shard(&name, &directory.path().join(&name), false).unwrap()
    };
    let shards: Vec<_> = (0..log_count()).map(open).collect();
    while shards.iter().any(|shard| shard.next_expiry_ms() < u64::MAX) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let threads = ["penstock-expire", "penstock-fold"];
    let before = threads.map(thread);

    std::thread::sleep(Duration::from_secs(SECONDS));

    let after = threads.map(thread);
    for ((name, before), after) in threads.iter().zip(before).zip(after) {
        println!("{name}: {} waits and {} ms in {SECONDS} s", after.0 - before.0, after.1 - before.1);
    }
    let waits = after[0].0 - before[0].0;
    assert!(waits <= 3 * SECONDS, "it woke up {waits} times in {SECONDS} s");
    engine.close().unwrap();
}
