//! Starts on a full disk with many logs: each opens, is drained, frees its space and stores again.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use penstock_engine::{
    Engine, EngineError, EngineOptions, Fate, Filled, Payload, Publication, QueueId, SequenceRange, Settle, Shard,
    SubscriptionOptions,
};
use penstock_log::{Disk, RealDisk, Space};

const LOGS: u64 = 24;
const PAGE_BYTES: u64 = 4 << 10;
const DISK_BYTES: u64 = 24 << 20;

/// A disk with so many bytes for the files under a directory.
#[derive(Debug)]
struct SmallDisk {
    root: PathBuf,
    bytes: AtomicU64,
}

impl SmallDisk {
    fn free(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst).saturating_sub(used(&self.root))
    }

    fn check(&self, bytes: u64) -> io::Result<()> {
        if bytes > self.free() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

/// Disk use of the files below a directory. Files may be removed meanwhile.
fn used(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => used(&entry.path()),
        found => found.map_or(0, |found| found.blocks() * 512),
    });
    bytes.sum()
}

impl Disk for SmallDisk {
    fn reserve(&self, file: &File, from: u64, bytes: u64) -> io::Result<()> {
        self.check((from + bytes).next_multiple_of(PAGE_BYTES) - from.next_multiple_of(PAGE_BYTES))?;
        RealDisk.reserve(file, from, bytes)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt;
        let before = file.metadata()?.blocks();
        RealDisk.write_at(file, bytes, offset)?;
        let is_over = file.metadata()?.blocks() > before && used(&self.root) > self.bytes.load(Ordering::SeqCst);
        if is_over { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn space(&self, _: &Path) -> io::Result<Space> {
        Ok(Space { total: self.bytes.load(Ordering::SeqCst), free: self.free() })
    }
}

/// Whether each virtual host or each queue has its own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Each {
    Vhost,
    Queue,
}

/// A broker's configured sizes, in bytes.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    segment_min: u64,
    segment_max: u64,
    kept: u64,
}

const GENEROUS: Sizes = Sizes { segment_min: 256 << 10, segment_max: 1 << 20, kept: 4 << 20 };
const SPARING: Sizes = Sizes { segment_min: 64 << 10, segment_max: 64 << 10, kept: 0 };

/// A queue, the shard that publishers use, and the one that holds it.
struct Lane {
    id: QueueId,
    vhost: Arc<Shard>,
    home: Arc<Shard>,
}

struct House {
    engine: Engine,
    lanes: Vec<Lane>,
}

fn open(disk: &Arc<SmallDisk>, each: Each, sizes: Sizes) -> Result<House, EngineError> {
    let options = EngineOptions {
        segment_bytes_min: sizes.segment_min,
        segment_bytes_max: sizes.segment_max,
        segment_idle: Duration::from_millis(200),
        disk_free_bytes_min: sizes.kept,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 4096,
    };
    let engine = Engine::on_disk(options, Arc::clone(disk) as Arc<dyn Disk>).unwrap();
    let mut lanes: Vec<Lane> = Vec::new();
    for number in 1..=LOGS {
        let id = QueueId(number);
        let vhost = match lanes.first() {
            Some(first) if each == Each::Queue => Arc::clone(&first.vhost),
            _ => engine.open_shard(&format!("v{number}"), &disk.root.join(format!("v{number}")), false)?,
        };
        if each == Each::Queue {
            vhost.dedicate(id)?;
        }
        vhost.put_queue(id, &number.to_string(), false, None)?;
        let home = vhost.home_of(id);
        lanes.push(Lane { id, vhost, home });
    }
    Ok(House { engine, lanes })
}

impl House {
    /// As if the process died: nothing is closed, and its threads have ended before the next start.
    fn kill(self) {
        let homes = self.lanes.iter().flat_map(|lane| [&lane.vhost, &lane.home]);
        let left: Vec<_> = homes.map(Arc::downgrade).collect();
        drop(self);
        wait_until(|| left.iter().all(|shard| shard.strong_count() == 0));
    }

    /// Publishes to each queue in turn until all are refused; returns how many messages each took.
    fn fill(&self) -> Vec<u64> {
        let mut stored = vec![0; self.lanes.len()];
        loop {
            let before = stored.clone();
            for (lane, count) in self.lanes.iter().zip(&mut stored) {
                *count += u64::from(lane.publish());
            }
            if stored == before {
                return stored;
            }
        }
    }
}

impl Lane {
    /// Returns whether it was stored.
    fn publish(&self) -> bool {
        let key = self.id.0.to_string();
        let payload = Payload::new(b"", key.as_bytes(), b"", &[7; 10_000]).unwrap();
        let key = key.as_bytes();
        let publication =
            Publication { payload, exchange: b"", key, headers: None, persistent: false, mandatory: false };
        let mut fates = Vec::new();
        let published = self.vhost.publish(&[publication], None, 1, &mut fates).unwrap();
        // A vhost's log refuses the batch, a queue's own log its messages.
        let is_refused = published.refused.as_ref().is_some_and(|refused| refused.is_full());
        let is_stored = matches!(fates.as_slice(), [Fate::Stored(_)]);
        assert!(is_stored != (is_refused || fates == [Fate::Full]), "{:?}, {fates:?}", published.refused);
        is_stored
    }

    /// Takes and settles all messages, one by one; returns how many.
    fn drain(&self) -> u64 {
        let options = SubscriptionOptions { prefetch: 10, auto_ack: false, exclusive: false, pull: false };
        let subscription = self.home.subscribe(self.id, options).unwrap();
        let mut count = 0;
        loop {
            let mut filled: Vec<Filled> = Vec::new();
            subscription.fill(10, &mut filled).unwrap();
            if filled.is_empty() {
                return count;
            }
            for one in filled.iter().flat_map(|filled| &filled.picked) {
                let range = SequenceRange::new(one.taken.sequence, one.taken.sequence).unwrap();
                count += subscription.settle(&[range], Settle::Ack).unwrap();
            }
        }
    }
}

/// Waits for another thread.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(20), "it did not happen");
        std::thread::yield_now();
    }
}

/// In memory where possible: these tests do not depend on the machine's disk.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn small_disk(root: &Path) -> Arc<SmallDisk> {
    Arc::new(SmallDisk { root: root.to_owned(), bytes: AtomicU64::new(DISK_BYTES) })
}

fn filled_disk_is_started_and_drained(each: Each, sizes: Sizes) {
    let root = directory();
    let disk = small_disk(root.path());
    let house = open(&disk, each, sizes).unwrap();
    let stored = house.fill();
    assert!(stored.iter().all(|&count| count > 0) && house.engine.disk().0, "{stored:?}");
    house.kill();

    for _ in 0..3 {
        open(&disk, each, sizes).expect("a full disk has room for a start").kill();
    }
    let house = open(&disk, each, sizes).expect("a full disk has room for a start");

    let drained: Vec<_> = house.lanes.iter().map(Lane::drain).collect();
    assert_eq!(drained, stored);
    wait_until(|| !house.engine.disk().0 && disk.free() > DISK_BYTES / 2);
    assert!(house.lanes.iter().all(Lane::publish));
    assert!(house.lanes.iter().all(|lane| lane.drain() == 1));
    house.engine.close().unwrap();
}

#[test]
fn all_vhosts_start_on_a_full_disk_and_give_its_room_back_when_they_are_drained() {
    filled_disk_is_started_and_drained(Each::Vhost, GENEROUS);
}

#[test]
fn all_logs_of_queues_start_on_a_full_disk_and_give_its_room_back_when_they_are_drained() {
    filled_disk_is_started_and_drained(Each::Queue, GENEROUS);
}

#[test]
fn each_log_has_its_share_of_what_is_kept_free() {
    filled_disk_is_started_and_drained(Each::Vhost, SPARING);
}
