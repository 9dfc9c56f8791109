//! Measures the threads behind logs that have nothing to do. `IDLE_LOGS=10000` prints the figures for so many.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod house;

use std::time::Duration;

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
    let engine = house::engine();
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
