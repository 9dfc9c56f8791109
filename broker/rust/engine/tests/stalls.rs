//! A virtual host that stalls on its disk: the one beside it goes on, and queries are answered.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_engine::{Engine, EngineOptions, Fate, Payload, Publication, QueueId, Shard};
use penstock_log::{Disk, RealDisk};

const QUEUE: QueueId = QueueId(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// The next write in a directory is signalled and waits for permission.
#[derive(Debug)]
struct StallingDisk {
    directory: PathBuf,
    stall: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Disk for StallingDisk {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let stall = if path.starts_with(&self.directory) { self.stall.lock().unwrap().take() } else { None };
        if let Some((stalled, go_on)) = stall {
            stalled.send(()).unwrap();
            go_on.recv_timeout(PATIENCE).unwrap();
        }
        RealDisk.write_at(file, bytes, offset)
    }
}

struct House {
    _directory: tempfile::TempDir,
    disk: Arc<StallingDisk>,
    engine: Arc<Engine>,
    calm: Arc<Shard>,
    slow: Arc<Shard>,
}

fn options() -> EngineOptions {
    EngineOptions {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 256 << 10,
        segment_idle: Duration::from_secs(60),
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 4096,
    }
}

fn open() -> House {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path.canonicalize().unwrap()
    };
    let (calm, slow) = (place("calm"), place("slow"));
    let disk = Arc::new(StallingDisk { directory: slow.clone(), stall: Mutex::new(None) });
    let engine = Engine::on_disk(options(), Arc::clone(&disk) as _).unwrap();
    let shard = |name: &str, path: &Path| {
        let shard = engine.open_shard(name, path, false).unwrap();
        shard.put_queue(QUEUE, "jobs", false, None).unwrap();
        shard
    };
    let (calm, slow) = (shard("calm", &calm), shard("slow", &slow));
    House { _directory: directory, disk, engine: Arc::new(engine), calm, slow }
}

fn publish(shard: &Shard) {
    publish_to(shard, "jobs");
}

fn publish_to(shard: &Shard, queue: &str) {
    let key = queue.as_bytes();
    let payload = Payload::new(b"", key, b"", b"body").unwrap();
    let publication = Publication { payload, exchange: b"", key, headers: None, persistent: false, mandatory: true };
    let mut fates = Vec::new();
    shard.publish(&[publication], None, 1, &mut fates).unwrap();
    assert!(matches!(fates.as_slice(), [Fate::Stored(_)]));
}

impl House {
    /// A publish that waits for the disk under its shard's lock, and the means to release it.
    fn stall(&self) -> (JoinHandle<()>, Sender<()>) {
        let (stalled, has_stalled) = channel();
        let (go_on, may_go_on) = channel();
        *self.disk.stall.lock().unwrap() = Some((stalled, may_go_on));
        let shard = Arc::clone(&self.slow);
        let publisher = std::thread::spawn(move || publish(&shard));
        has_stalled.recv_timeout(PATIENCE).unwrap();
        (publisher, go_on)
    }
}

/// The result of a thread that must not wait for the stalled one.
fn soon<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = channel();
    std::thread::spawn(move || done.send(look()).unwrap());
    is_done.recv_timeout(PATIENCE / 2).expect("it waits for the vhost that stalls")
}

/// A query is also answered from memory when the machine is too busy to release the lock.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "it did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn a_vhost_that_stalls_holds_up_no_other_and_nobody_who_looks() {
    let house = open();
    publish(&house.slow);
    wait_until(|| house.slow.totals_seen().unwrap() == (1, 0) && house.slow.log_stats().segments > 0);
    let (publisher, go_on) = house.stall();

    let engine = Arc::clone(&house.engine);
    let found = soon(move || ["slow", "calm"].map(|name| engine.shard(name).is_some()));
    assert_eq!(found, [true, true]);
    let slow = Arc::clone(&house.slow);
    let seen = soon(move || (slow.fault(), slow.totals_seen().unwrap(), slow.log_stats(), slow.corruptions()));
    assert_eq!((seen.0, seen.1), (None, (1, 0)), "what was known last");
    assert!(seen.2.segments > 0 && seen.3.is_empty());
    let engine = Arc::clone(&house.engine);
    assert!(!soon(move || engine.disk()).0);
    let calm = Arc::clone(&house.calm);
    soon(move || publish(&calm));
    let slow = Arc::clone(&house.slow);
    assert_eq!(soon(move || (slow.is_stalled(), slow.is_closed(), slow.is_free())), (true, false, false));

    go_on.send(()).unwrap();
    publisher.join().unwrap();
    wait_until(|| house.slow.totals_seen().unwrap() == (2, 0));
    house.engine.close().unwrap();
    assert!(house.slow.is_closed());
}

/// Calls for counts waited for the lock of such a log, on the event loop of all virtual hosts.
#[test]
fn a_queue_s_own_log_that_stalls_is_seen_in_its_vhost() {
    let house = open();
    let own = QueueId(2);
    house.slow.dedicate(own).unwrap();
    house.slow.put_queue(own, "own", false, None).unwrap();
    wait_until(|| !house.slow.is_family_stalled());
    let (stalled, has_stalled) = channel();
    let (go_on, may_go_on) = channel();
    *house.disk.stall.lock().unwrap() = Some((stalled, may_go_on));
    let shard = Arc::clone(&house.slow);
    let publisher = std::thread::spawn(move || publish_to(&shard, "own"));
    has_stalled.recv_timeout(PATIENCE).unwrap();

    // On a busy machine a lock may be held for long although no disk is slow.
    let slow = Arc::clone(&house.slow);
    soon(move || wait_until(|| !slow.is_stalled() && slow.is_family_stalled()));
    let calm = Arc::clone(&house.calm);
    soon(move || wait_until(|| !calm.is_family_stalled()));

    go_on.send(()).unwrap();
    publisher.join().unwrap();
    wait_until(|| !house.slow.is_family_stalled());
}
