//! Logs whose syncs hang: the logs beside them are synced.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use penstock_engine::{
    DeadLetters, Engine, EngineOptions, Fate, Payload, Places, Publication, QueueId, SequenceRange, Settle, Shard,
    Subscription, SubscriptionOptions,
};
use penstock_log::{Disk, RealDisk};

const QUEUE: QueueId = QueueId(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// A sync in one of the `slow` directories waits until there are none; `hanging` counts these.
#[derive(Debug, Default)]
struct HangingDisk {
    slow: Mutex<Vec<PathBuf>>,
    hanging: Mutex<usize>,
    changed: Condvar,
}

impl Disk for HangingDisk {
    fn sync(&self, file: &File) -> io::Result<()> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let mut slow = self.slow.lock().unwrap();
        if slow.iter().any(|directory| path.parent() == Some(directory)) {
            *self.hanging.lock().unwrap() += 1;
            while !slow.is_empty() {
                slow = self.changed.wait(slow).unwrap();
            }
        }
        drop(slow);
        RealDisk.sync(file)
    }
}

impl HangingDisk {
    fn end(&self) {
        self.slow.lock().unwrap().clear();
        self.changed.notify_all();
    }
}

struct House {
    directory: tempfile::TempDir,
    disk: Arc<HangingDisk>,
    engine: Engine,
}

impl House {
    fn new() -> House {
        let options = EngineOptions {
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 256 << 10,
            segment_idle: Duration::from_secs(60),
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
            producers_of_user_max: 4096,
        };
        let disk = Arc::new(HangingDisk::default());
        let engine = Engine::on_disk(options, Arc::clone(&disk) as _).unwrap();
        House { directory: tempfile::tempdir().unwrap(), disk, engine }
    }

    fn place(&self, vhost: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(vhost)
    }

    fn open(&self, vhost: &str) -> Arc<Shard> {
        std::fs::create_dir(self.place(vhost)).unwrap();
        let shard = self.engine.open_shard(vhost, &self.place(vhost), false).unwrap();
        shard.put_queue(QUEUE, "jobs", false, None).unwrap();
        shard
    }

    /// A queue with a log of its own, and the name of the queue.
    fn open_own(&self, shard: &Shard, id: u64) -> String {
        let name = format!("own {id}");
        shard.dedicate(QueueId(id)).unwrap();
        shard.put_queue(QueueId(id), &name, false, None).unwrap();
        name
    }

    fn slow_down(&self, place: &str) {
        self.disk.slow.lock().unwrap().push(self.place(place));
    }

    fn wait_for_hanging(&self, count: usize) {
        wait_until(|| *self.disk.hanging.lock().unwrap() == count);
    }
}

/// A published message that has to be synced, and its sync requested.
fn publish(shard: &Arc<Shard>, queue: &str) -> Places {
    let key = queue.as_bytes();
    let payload = Payload::new(b"", key, b"", b"body").unwrap();
    let publication = Publication { payload, exchange: b"", key, headers: None, persistent: true, mandatory: true };
    let mut fates = Vec::new();
    let places = shard.publish(&[publication], None, 1, &mut fates).unwrap().places(shard);
    assert!(matches!(fates.as_slice(), [Fate::Stored(_)]));
    places.request_sync();
    places
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "it did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn a_sync_that_hangs_holds_up_no_other_virtual_host() {
    let house = House::new();
    let (slow, calm) = (house.open("slow"), house.open("calm"));
    house.slow_down("slow");
    let hanging = publish(&slow, "jobs");
    house.wait_for_hanging(1);

    for _ in 0..10 {
        let places = publish(&calm, "jobs");
        wait_until(|| places.are_synced());
    }

    assert!(!hanging.are_synced());
    house.disk.end();
    wait_until(|| hanging.are_synced());
    house.engine.close().unwrap();
}

#[test]
fn many_logs_of_one_virtual_host_that_hang_hold_up_no_other_one() {
    let house = House::new();
    let (slow, calm) = (house.open("slow"), house.open("calm"));
    let own: Vec<String> = (2..8).map(|id| house.open_own(&slow, id)).collect();
    house.slow_down("slow");
    (2..8).for_each(|id| house.slow_down(&format!("slow/shards/{id}")));
    let mut hanging: Vec<Places> = own.iter().map(|queue| publish(&slow, queue)).collect();
    hanging.push(publish(&slow, "jobs"));
    house.wait_for_hanging(3);

    for _ in 0..10 {
        let places = publish(&calm, "jobs");
        wait_until(|| places.are_synced());
    }

    house.disk.end();
    wait_until(|| hanging.iter().all(Places::are_synced));
    house.engine.close().unwrap();
}

#[test]
fn a_queue_s_own_log_whose_sync_hangs_holds_up_no_other_log_of_its_virtual_host() {
    let house = House::new();
    let shard = house.open("vhost");
    let (slow, calm) = (house.open_own(&shard, 2), house.open_own(&shard, 3));
    house.slow_down("vhost/shards/2");
    let hanging = publish(&shard, &slow);
    house.wait_for_hanging(1);

    for queue in [&calm, "jobs", &calm] {
        let places = publish(&shard, queue);
        wait_until(|| places.are_synced());
    }

    house.disk.end();
    wait_until(|| hanging.are_synced());
    house.engine.close().unwrap();
}

/// The message is written while a sync runs that does not cover it.
#[test]
fn what_is_written_during_a_sync_is_synced_after_it() {
    let house = House::new();
    let shard = house.open("vhost");
    house.slow_down("vhost");
    let first = publish(&shard, "jobs");
    house.wait_for_hanging(1);
    let second = publish(&shard, "jobs");

    house.disk.end();

    wait_until(|| first.are_synced() && second.are_synced());
    house.engine.close().unwrap();
}

fn pull_from(shard: &Arc<Shard>, queue: QueueId) -> Subscription {
    let options = SubscriptionOptions { prefetch: 0, auto_ack: false, exclusive: false, pull: true };
    shard.home_of(queue).subscribe(queue, options).unwrap()
}

fn pulls_one(subscription: &Subscription) -> bool {
    let mut filled = Vec::new();
    subscription.take_now(1, &mut filled).unwrap();
    !filled.is_empty()
}

/// A client that looked at the count of the first queue found nothing there, which is so: whoever waits for a letter has to get until
/// there is one.
#[test]
fn a_letter_counts_in_both_queues_until_its_copy_is_synced_and_is_delivered_from_the_second_alone() {
    let house = House::new();
    let shard = house.open("vhost");
    let (dead, name) = (QueueId(2), house.open_own(&shard, 2));
    let letters = DeadLetters { exchange: String::new(), routing_key: Some(name), at_least_once: false };
    shard.route_dead_letters([(QUEUE, Some(letters))]).unwrap();
    let ready = |id| shard.queue_counts(&[id]).unwrap()[0].ready_count;
    publish(&shard, "jobs");
    let (jobs, letters) = (pull_from(&shard, QUEUE), pull_from(&shard, dead));
    assert!(pulls_one(&jobs));
    house.slow_down("vhost/shards/2");

    jobs.settle(&[SequenceRange::ALL], Settle::Reject).unwrap();
    house.wait_for_hanging(1);

    assert_eq!([ready(QUEUE), ready(dead)], [1, 1]);
    assert_eq!([pulls_one(&jobs), pulls_one(&letters)], [false, true]);
    house.disk.end();
    wait_until(|| ready(QUEUE) == 0);
    assert!(!pulls_one(&jobs));
    house.engine.close().unwrap();
}
