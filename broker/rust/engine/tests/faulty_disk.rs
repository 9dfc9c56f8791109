//! A shard whose disk fails at some step: it refuses or stops, the shard beside it goes on, and a start serves
//! everything that was confirmed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use penstock_engine::{
    Engine, EngineError, EngineOptions, Filled, Level, Payload, Position, Publication, QueueId, SequenceRange, Settle,
    Shard, SubscriptionOptions,
};
use penstock_log::{Disk, RealDisk};

const QUEUE: QueueId = QueueId(1);
const ROUNDS: u64 = 12;
const BATCH: u64 = 10;

/// Errors of a disk: EIO, ENOSPC, and EINTR from a partial write.
const ERRORS: [i32; 3] = [5, 28, 4];

/// A fault in one directory: from the step at `after` on, `times` steps fail.
#[derive(Debug)]
struct Fault {
    after: usize,
    times: usize,
    error: i32,
    met: BTreeSet<&'static str>,
}

#[derive(Debug)]
struct FailingDisk {
    directory: PathBuf,
    fault: Mutex<Fault>,
}

impl FailingDisk {
    fn step(&self, path: &Path, what: &'static str) -> io::Result<()> {
        let mut fault = self.fault.lock().unwrap();
        if !path.starts_with(&self.directory) {
            return Ok(());
        }
        if fault.after > 0 {
            fault.after -= 1;
            return Ok(());
        }
        if fault.times == 0 {
            return Ok(());
        }
        fault.times -= 1;
        fault.met.insert(what);
        Err(io::Error::from_raw_os_error(fault.error))
    }

    fn step_of(&self, file: &File, what: &'static str) -> io::Result<()> {
        self.step(&std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?, what)
    }
}

impl Disk for FailingDisk {
    fn create(&self, path: &Path, bytes: u64) -> io::Result<File> {
        self.step(path, "create")?;
        RealDisk.create(path, bytes)
    }

    fn reserve(&self, file: &File, from: u64, bytes: u64) -> io::Result<()> {
        self.step_of(file, "reserve")?;
        RealDisk.reserve(file, from, bytes)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        self.step(path, "open")?;
        RealDisk.open(path)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let result = self.step_of(file, "write");
        let part = if result.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        RealDisk.write_at(file, part, offset)?;
        result
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.step_of(file, "sync")?;
        RealDisk.sync(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(from, "rename")?;
        RealDisk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.step(path, "unlink")?;
        RealDisk.unlink(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.step(path, "sync of the directory")?;
        RealDisk.sync_directory(path)
    }
}

fn options() -> EngineOptions {
    EngineOptions {
        segment_bytes_min: 4 << 10,
        segment_bytes_max: 16 << 10,
        segment_idle: Duration::from_secs(60),
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 64 << 20,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 4096,
    }
}

/// Known state of the messages of one shard.
#[derive(Default)]
struct Ledger {
    published: u64,
    confirmed: HashSet<u64>,
    /// Settlements that were tried, and the accepted ones.
    tried: HashSet<u64>,
    settled: HashSet<u64>,
}

/// Publishes a batch and waits for the disk; refused messages stay unconfirmed.
async fn publish(shard: &Shard, ledger: &mut Ledger) -> Result<(), EngineError> {
    let numbers: Vec<u64> = (ledger.published..ledger.published + BATCH).collect();
    ledger.published += BATCH;
    let bodies: Vec<String> = numbers.iter().map(|number| format!("{number} {}", "x".repeat(300))).collect();
    let batch: Vec<Publication<'_>> = bodies
        .iter()
        .map(|body| Publication {
            payload: Payload::new(b"", b"jobs", b"", body.as_bytes()).unwrap(),
            exchange: b"",
            key: b"jobs",
            headers: None,
            persistent: true,
            mandatory: false,
        })
        .collect();
    let mut fates = Vec::new();
    let published = shard.publish(&batch, Some(Level::Disk), 1, &mut fates)?;
    shard.request_sync();
    // A shard that neither confirms nor stops fails the test.
    let waited = tokio::time::timeout(Duration::from_secs(20), shard.wait_synced(published.end));
    waited.await.expect("the shard answers")?;
    ledger.confirmed.extend(numbers.into_iter().take(fates.len()));
    Ok(())
}

fn number_of(body: &[u8]) -> u64 {
    std::str::from_utf8(body).unwrap().split(' ').next().unwrap().parse().unwrap()
}

/// Takes the ready messages in order; settles every other one.
fn consume(shard: &Arc<Shard>, ledger: &mut Ledger) -> Result<Vec<u64>, EngineError> {
    let options = SubscriptionOptions { prefetch: 10_000, auto_ack: false, exclusive: false, pull: false };
    let subscription = shard.subscribe(QUEUE, options)?;
    let mut filled: Vec<Filled> = Vec::new();
    subscription.fill(10_000, &mut filled)?;
    let mut taken = Vec::new();
    for Filled { segment, picked } in &filled {
        for one in picked {
            taken.push((one.taken.sequence, number_of(segment.message(one.offset)?.body)));
        }
    }
    for (sequence, number) in taken.iter().filter(|(sequence, _)| sequence.0 % 2 == 0) {
        ledger.tried.insert(*number);
        subscription.settle(&[SequenceRange::new(*sequence, *sequence).unwrap()], Settle::Ack)?;
        ledger.settled.insert(*number);
    }
    Ok(taken.into_iter().map(|(_, number)| number).collect())
}

/// In memory where possible: these tests do not depend on the machine's disk.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// One fault in the first of two shards; returns the failed steps, and whether the shard refused its last message.
async fn run(after: usize, times: usize, error: i32) -> (BTreeSet<&'static str>, bool) {
    let root = directory();
    let (first, second) = (root.path().join("first"), root.path().join("second"));
    let fault = Mutex::new(Fault { after, times, error, met: BTreeSet::new() });
    let disk = Arc::new(FailingDisk { directory: first.clone(), fault });
    let engine = Engine::on_disk(options(), Arc::clone(&disk) as Arc<dyn Disk>).unwrap();
    let beside = engine.open_shard("second", &second, false).unwrap();
    beside.put_queue(QUEUE, "jobs", false, None).unwrap();
    let (mut ledger, mut ledger_beside) = (Ledger::default(), Ledger::default());
    let opened = engine.open_shard("first", &first, false);
    let mut refused = opened.is_err();
    for _ in 0..ROUNDS {
        if let Ok(shard) = &opened {
            // Each may be refused while the next one is not.
            let _ = shard.put_queue(QUEUE, "jobs", false, None);
            refused = publish(shard, &mut ledger).await.is_err();
            let _ = consume(shard, &mut ledger);
        }
        publish(&beside, &mut ledger_beside).await.unwrap();
        consume(&beside, &mut ledger_beside).unwrap();
    }
    // As if the process died: nothing is closed, and its threads have ended before the start.
    let left: Vec<_> = opened.iter().chain([&beside]).map(Arc::downgrade).collect();
    drop((opened, beside, engine));
    while left.iter().any(|shard| shard.strong_count() > 0) {
        std::thread::yield_now();
    }
    let met = disk.fault.lock().unwrap().met.clone();

    let engine = Engine::new(options()).unwrap();
    for (path, ledger) in [(&first, &mut ledger), (&second, &mut ledger_beside)] {
        let shard = engine.open_shard("again", path, false).unwrap();
        shard.put_queue(QUEUE, "jobs", false, None).unwrap();
        let (tried, settled) = (ledger.tried.clone(), ledger.settled.clone());
        let got = consume(&shard, ledger).unwrap();
        assert!(got.is_sorted_by(|one, next| one < next), "out of order or twice: {got:?}");
        assert!(got.iter().all(|&number| number < ledger.published), "never published");
        let got: HashSet<u64> = got.into_iter().collect();
        let lost: Vec<_> = ledger.confirmed.iter().filter(|n| !got.contains(n) && !tried.contains(n)).collect();
        assert!(lost.is_empty(), "confirmed and lost: {lost:?}");
        assert!(got.is_disjoint(&settled), "settled and back");
        publish(&shard, ledger).await.unwrap();
        assert_eq!(shard.corruptions(), []);
    }
    engine.close().unwrap();
    (met, refused)
}

#[tokio::test]
async fn whichever_step_fails_everything_confirmed_is_served_after_a_start() {
    let mut met = BTreeSet::new();
    for after in 0..90 {
        for error in ERRORS {
            met.extend(run(after, 1, error).await.0);
        }
    }

    let all = ["create", "open", "rename", "reserve", "sync", "sync of the directory", "unlink", "write"];
    assert_eq!(met.into_iter().collect::<Vec<_>>(), all, "each kind of step was met");
}

#[tokio::test]
async fn a_disk_that_fails_for_good_stops_its_shard_and_no_other() {
    for after in (0..60).step_by(4) {
        for error in ERRORS {
            let (met, refused) = run(after, usize::MAX, error).await;
            assert!(refused || met.is_empty(), "step {after} with error {error}: {met:?}");
        }
    }
}

#[tokio::test]
async fn a_close_whose_sync_fails_tells_those_who_wait_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let fault = Fault { after: usize::MAX, times: usize::MAX, error: 5, met: BTreeSet::new() };
    let disk = Arc::new(FailingDisk { directory: directory.path().to_owned(), fault: Mutex::new(fault) });
    let engine = Engine::on_disk(options(), Arc::<FailingDisk>::clone(&disk)).unwrap();
    let shard = engine.open_shard("/", directory.path(), false).unwrap();
    shard.put_queue(QUEUE, "jobs", false, None).unwrap();
    let waiting = tokio::spawn({
        let shard = Arc::clone(&shard);
        async move { shard.wait_synced(Position(u64::MAX)).await }
    });
    tokio::task::yield_now().await;

    disk.fault.lock().unwrap().after = 0;
    shard.close(false).unwrap_err();

    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("whoever waits is told");
    assert!(matches!(waited.unwrap(), Err(EngineError::Closed(_))));
}
