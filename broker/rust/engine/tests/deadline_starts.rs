//! Starts after a kill of a process, with a deadline in each message and without any: all deadlines are there, none is kept in
//! memory, and the start takes as long as without. `make long-deadlines` does it with a million.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_engine::{Attributes, Engine, EngineOptions, Payload, Publication, QueueId, Shard};

const QUEUE: QueueId = QueueId(1);
const YEAR_3000: u64 = 32_503_680_000_000;
/// The directory that a child of this test fills before it is killed.
const FILLS: &str = "DEADLINE_STARTS_FILLS";
/// So many messages are enough to compare times.
const COUNT_TO_COMPARE: u64 = 1_000_000;

fn count() -> u64 {
    std::env::var("DEADLINES").map_or(20_000, |count| count.parse().expect("a number of messages"))
}

fn open(directory: &Path) -> (Engine, Arc<Shard>) {
    let options = EngineOptions {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: if count() < COUNT_TO_COMPARE { 256 << 10 } else { 4 << 20 },
        segment_idle: Duration::from_secs(60),
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 16,
    };
    let engine = Engine::new(options).unwrap();
    let shard = engine.open_shard("/", directory, false).unwrap();
    shard.put_queue(QUEUE, "jobs", false, None).unwrap();
    (engine, shard)
}

/// Times all over a fortnight.
fn attributes(number: u64) -> Attributes {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34;
    Attributes { expires_at_ms: Some(YEAR_3000 + scattered), ..Attributes::default() }
}

/// Fills a log and waits to be killed.
fn fill(directory: &Path) -> ! {
    let (_engine, shard) = open(&directory.join("log"));
    let has_deadlines = directory.ends_with("with");
    for first in (0..count()).step_by(1000) {
        let times: Vec<_> = (first..first + 1000).map(attributes).collect();
        let publication = |times| {
            // Records of one size, so that both logs end at the same place of a segment.
            let body: &[u8] = if has_deadlines { b"a body" } else { b"a longer one" };
            let payload = Payload::new(b"", b"jobs", b"", body).unwrap();
            let payload = if has_deadlines { payload.with_attributes(times) } else { payload };
            Publication { payload, exchange: b"", key: b"jobs", headers: None, persistent: false, mandatory: false }
        };
        shard.publish(&times.iter().map(publication).collect::<Vec<_>>(), None, 1, &mut Vec::new()).unwrap();
    }
    // What a start reads again is not to depend on how fast folds are.
    until("the folds", || shard.log_stats().unfolded_segments <= 1);
    std::fs::write(directory.join("is_filled"), "").unwrap();
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(240), "{what} takes too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Lets a child fill a directory and kills it.
fn fill_and_kill(directory: &Path) {
    std::fs::create_dir_all(directory.join("log")).unwrap();
    let mut child =
        Command::new(std::env::current_exe().unwrap()).env(FILLS, directory).stdout(Stdio::null()).spawn().unwrap();
    until("filling a log", || directory.join("is_filled").exists());
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The milliseconds of a start, and the records that it read. It is on a copy: threads of the engine before may still be at
/// work on theirs. The copy is on the disk, so that the start waits for its own writes alone.
fn start(directory: &Path) -> (f64, u64) {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_type().unwrap().is_file() {
            let to = copy.path().join(entry.file_name());
            std::fs::copy(entry.path(), &to).unwrap();
            std::fs::File::open(to).unwrap().sync_all().unwrap();
        }
    }
    let (engine, shard) = open(copy.path());
    let took = (shard.recovery_ms(), shard.recovery().records);
    engine.close().unwrap();
    took
}

/// Some starts of a log in ms, ascending, and the records that each read.
struct Starts {
    took_ms: Vec<f64>,
    records: u64,
}

impl Starts {
    fn shortest_ms(&self) -> f64 {
        self.took_ms[0]
    }

    fn median_ms(&self) -> f64 {
        self.took_ms[self.took_ms.len() / 2]
    }
}

/// Starts of two logs in turn, after one of each that warms the caches.
fn starts(directories: [&Path; 2]) -> [Starts; 2] {
    let logs = directories.map(|directory| directory.join("log"));
    let mut all = logs.each_ref().map(|log| Starts { took_ms: Vec::new(), records: start(log).1 });
    for _ in 0..if count() < COUNT_TO_COMPARE { 3 } else { 15 } {
        for (starts, log) in all.iter_mut().zip(&logs) {
            let (took_ms, records) = start(log);
            assert_eq!(records, starts.records);
            starts.took_ms.push(took_ms);
        }
    }
    all.iter_mut().for_each(|starts| starts.took_ms.sort_by(f64::total_cmp));
    all
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn deadlines_survive_a_kill_cost_a_start_nothing_and_come_all() {
    if let Some(directory) = std::env::var_os(FILLS) {
        fill(Path::new(&directory));
    }
    let root = tempfile::tempdir().unwrap();
    let [with, without] = ["with", "without"].map(|name| root.path().join(name));
    fill_and_kill(&with);
    fill_and_kill(&without);

    let [of_with, of_without] = starts([&with, &without]);
    println!("{} messages; starts in ms, the median of {} and the shortest:", count(), of_with.took_ms.len());
    for (name, starts) in [("with deadlines", &of_with), ("without", &of_without)] {
        println!("{:.2} {:.2} {name} ({} records read)", starts.median_ms(), starts.shortest_ms(), starts.records);
    }
    let ratio = |of: fn(&Starts) -> f64| of(&of_with) / of(&of_without);
    println!("{:.3} {:.3} times as long", ratio(Starts::median_ms), ratio(Starts::shortest_ms));
    // Other work on the machine makes starts longer, and no start shorter.
    assert!(count() < COUNT_TO_COMPARE || ratio(Starts::shortest_ms) <= 1.1);

    let before_kb = resident_kb();
    let (engine, shard) = open(&with.join("log"));
    let counts = || shard.queue_counts(&[QUEUE]).unwrap()[0];
    assert_eq!(counts().ready_count, count());
    until("the fold", || shard.log_stats().deadlines_in_memory == 0);
    println!("memory: {} kB more", resident_kb().saturating_sub(before_kb));
    let half = YEAR_3000 + (1 << 29);
    let due = (0..count()).filter(|&number| attributes(number).expires_at_ms.unwrap() <= half).count() as u64;
    let began = Instant::now();
    assert_eq!(shard.expire_due(half).unwrap(), due);
    println!(
        "{due} messages expire in {:?}; memory: {} kB more",
        began.elapsed(),
        resident_kb().saturating_sub(before_kb)
    );
    assert_eq!(counts().ready_count, count() - due);
    assert_eq!(shard.expire_due(half + (1 << 30)).unwrap(), count() - due);
    assert_eq!(counts().ready_count, 0);
    engine.close().unwrap();
}
