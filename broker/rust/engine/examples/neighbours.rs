//! How much a publisher of one virtual host is slowed down by another's load, in process: `cargo run --release -p
//! penstock-engine --example neighbours`, followed by the seconds of each part if not 3.
//!
//! The bystander publishes one message at a time with durability `os`, and each is timed. It runs once alone, and once
//! beside each load: rounds of empty messages, messages for 10,000 queues, a publisher whose disk takes 50 ms for every
//! write, and a consumer of a backlog for which that disk takes 50 ms for every read. The loads run at the lowest
//! priority, as if on another machine: the rest is contention within the engine. Prints p50 and p99 and their ratios to
//! the quiet ones.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_engine::{
    Destination, Engine, EngineError, EngineOptions, ExchangeKind, Filled, Level, LogError, MESSAGES_AT_ONCE, Payload,
    Publication, QueueId, Shard, SubscriptionOptions,
};
use penstock_log::{Disk, RealDisk};

const QUEUES: u64 = 10_000;
const PAUSE: Duration = Duration::from_micros(200);
const SLOW: Duration = Duration::from_millis(50);
/// Of 1 KiB each: sixteen of the smallest segments.
const BACKLOG: usize = 16 << 10;
const TAKEN_AT_ONCE: u32 = 1_000;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
type Done = std::result::Result<(), EngineError>;
type Load<'a> = &'a (dyn Fn(&Arc<Shard>) -> Done + Sync);

/// A disk that is slow for each write and each cold read in one directory.
#[derive(Debug)]
struct SlowDisk(PathBuf);

impl Disk for SlowDisk {
    fn populate(&self, path: &Path, part: Range<u64>, populate: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
        if path.starts_with(&self.0) {
            std::thread::sleep(SLOW);
        }
        RealDisk.populate(path, part, populate)
    }
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?.starts_with(&self.0) {
            std::thread::sleep(SLOW);
        }
        RealDisk.write_at(file, bytes, offset)
    }
}

fn main() -> Result<()> {
    let seconds = std::env::args().nth(1).map_or(Ok(3), |text| text.parse())?;
    let directory = std::env::temp_dir().join(format!("penstock-neighbours-{}", std::process::id()));
    let slow = directory.join("slow");
    std::fs::create_dir_all(&slow)?;
    let options = EngineOptions {
        segment_bytes_min: 1 << 20,
        segment_bytes_max: 64 << 20,
        segment_idle: Duration::from_secs(60),
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 4096,
    };
    let disk = Arc::new(SlowDisk(slow));
    let engine = Engine::on_disk(options, Arc::clone(&disk) as Arc<dyn Disk>)?;
    let (calm, loud) = (open(&engine, &directory, "calm")?, open(&engine, &directory, "loud")?);
    let slow = open(&engine, &directory, "slow")?;
    put_wide(&loud)?;
    publish(&slow, b"", b"jobs", &[1; 1 << 10], BACKLOG)?;
    let quiet = measure(&engine, seconds, None)?;
    tell("quiet", quiet, quiet);
    let parts: [(&str, &Arc<Shard>, Load<'_>); 4] = [
        ("empty messages", &loud, &|shard| empty(shard)),
        ("10,000 queues", &loud, &|shard| wide(shard)),
        ("slow writes", &slow, &|shard| one(shard)),
        ("a cold backlog", &slow, &|shard| cold(shard, &disk)),
    ];
    for (name, shard, load) in parts {
        tell(name, measure(&engine, seconds, Some((shard, load)))?, quiet);
    }
    for shard in [calm, loud, slow] {
        shard.close(true)?;
    }
    engine.close()?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

fn open(engine: &Engine, directory: &Path, name: &str) -> Result<Arc<Shard>> {
    let path = directory.join(name);
    std::fs::create_dir_all(&path)?;
    let shard = engine.open_shard(name, &path, false)?;
    shard.put_queue(QueueId(1), "jobs", false, None)?;
    Ok(shard)
}

fn put_wide(shard: &Shard) -> Result<()> {
    shard.put_exchange("all", ExchangeKind::Fanout, None)?;
    for id in 2..2 + QUEUES {
        let name = id.to_string();
        shard.put_queue(QueueId(id), &name, false, None)?;
        shard.add_route("all", "", None, Destination::Queue(&name))?;
    }
    Ok(())
}

/// Time of one publish beside a load: the median, and the 99th percentile.
fn measure(engine: &Engine, seconds: u64, beside: Option<(&Arc<Shard>, Load<'_>)>) -> Result<(Duration, Duration)> {
    let over = AtomicBool::new(false);
    let mut took = Vec::new();
    std::thread::scope(|scope| {
        if let Some((shard, load)) = beside {
            let over = &over;
            scope.spawn(move || {
                lowest_priority();
                while !over.load(Ordering::Relaxed) && load(shard).is_ok() {}
            });
        }
        let ends = Instant::now() + Duration::from_secs(seconds);
        let mut published = Ok(());
        while published.is_ok() && Instant::now() < ends {
            let began = Instant::now();
            // By its name, as an opening stream looks it up.
            published = engine.shard("calm").map_or(Ok(()), |shard| one(&shard));
            took.push(began.elapsed());
            std::thread::sleep(PAUSE);
        }
        over.store(true, Ordering::Relaxed);
        published
    })?;
    took.sort_unstable();
    let at = |part: usize| took.get(took.len() * part / 100).copied().unwrap_or_default();
    Ok((at(50), at(99)))
}

/// Lowers the calling thread's priority, by Linux's own file for it.
fn lowest_priority() {
    // Without it the figures depend more on the machine, but are still valid.
    let _ = std::process::Command::new("renice").args(["-n", "19", "-p", &thread_id()]).output();
}

fn thread_id() -> String {
    let link = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    link.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn tell(name: &str, (p50, p99): (Duration, Duration), quiet: (Duration, Duration)) {
    let times = |now: Duration, before: Duration| now.as_secs_f64() / before.as_secs_f64();
    println!(
        "{name:>16}: p50 {p50:>10.1?} ({:.1} x), p99 {p99:>10.1?} ({:.1} x)",
        times(p50, quiet.0),
        times(p99, quiet.1)
    );
}

fn one(shard: &Shard) -> Done {
    publish(shard, b"", b"jobs", b"a message", 1)
}

fn empty(shard: &Shard) -> Done {
    publish(shard, b"", b"jobs", b"", MESSAGES_AT_ONCE)
}

fn wide(shard: &Shard) -> Done {
    publish(shard, b"all", b"", b"for all", 16)
}

/// Takes the first messages of the backlog, reads them outside the lock as the listener does, and requeues them.
fn cold(shard: &Arc<Shard>, disk: &SlowDisk) -> Done {
    let options = SubscriptionOptions { prefetch: TAKEN_AT_ONCE, auto_ack: false, exclusive: false, pull: false };
    let subscription = shard.subscribe(QueueId(1), options)?;
    let mut filled = Vec::new();
    subscription.fill(TAKEN_AT_ONCE, &mut filled)?;
    for Filled { segment, picked } in &filled {
        let (Some(first), Some(last)) = (picked.first(), picked.last()) else { continue };
        let read = || segment.populate(first.offset, last.offset).map_err(io::Error::other);
        let part = u64::from(first.offset)..u64::from(last.offset);
        let read = disk.populate(segment.path(), part, &read);
        read.map_err(|source| LogError::Io { action: "read", path: segment.path().to_owned(), source })?;
    }
    Ok(())
}

fn publish(shard: &Shard, exchange: &[u8], key: &[u8], body: &[u8], count: usize) -> Done {
    let payload = Payload::new(exchange, key, b"", body)?;
    let publication = Publication { payload, exchange, key, headers: None, persistent: false, mandatory: false };
    let mut fates = Vec::with_capacity(count);
    shard.publish(&vec![publication; count], Some(Level::Os), 1, &mut fates).map(|_| ())
}
