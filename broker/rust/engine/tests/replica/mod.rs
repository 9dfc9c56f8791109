//! A shard of a replicated log, whose replica is the test: it says what is committed, and when the term is over.
#![allow(dead_code, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use penstock_engine::{
    Engine, EngineError, EngineOptions, Filled, Led, Level, Payload, Places, Publication, QueueId, Replication, Shard,
    Subscription, SubscriptionOptions,
};
use penstock_log::{Begun, Log, LogOptions};
use tempfile::TempDir;

pub const QUEUE: QueueId = QueueId(1);
pub const STREAM: QueueId = QueueId(2);
pub const THIRD: QueueId = QueueId(3);
pub const DEAD: QueueId = QueueId(9);

/// Counts how often it hears that the log has grown.
#[derive(Debug, Default)]
pub struct Replica(pub AtomicUsize);

impl Replication for Replica {
    fn appended(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub struct House {
    pub directory: TempDir,
    pub engine: Engine,
    pub replica: Arc<Replica>,
    pub epoch: u64,
}

impl House {
    pub fn new() -> House {
        let options = EngineOptions {
            segment_bytes_min: 4 << 10,
            segment_bytes_max: 64 << 10,
            segment_idle: Duration::from_secs(60),
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
            producers_of_user_max: 16,
        };
        let directory = tempfile::tempdir().unwrap();
        House { directory, engine: Engine::new(options).unwrap(), replica: Arc::default(), epoch: 0 }
    }

    pub fn open(&self) -> Log {
        self.open_at(self.directory.path())
    }

    /// The log of a further shard.
    pub fn open_further(&self, number: u16) -> Log {
        let directory = self.further(number);
        std::fs::create_dir_all(&directory).unwrap();
        self.open_at(&directory)
    }

    pub fn further(&self, number: u16) -> PathBuf {
        self.directory.path().join("logs").join(number.to_string())
    }

    pub fn open_at(&self, directory: &Path) -> Log {
        let options = LogOptions {
            segment_bytes_min: 4 << 10,
            segment_bytes_max: 64 << 10,
            is_bounded: true,
            ..LogOptions::default()
        };
        Log::open(directory, options).unwrap().log
    }

    /// The log and the state that a replica passes to its queues when its epoch has begun.
    pub fn begun(&self, mut log: Log) -> Led {
        log.follow_epoch(self.epoch, 0, Begun::default()).unwrap();
        log.write().unwrap();
        let state = log.begin_state().unwrap().perform().unwrap();
        assert_eq!(state.position, log.end());
        let stored_at_ms = log.newest_time().unwrap();
        Led { log, state, stored_at_ms, replication: Arc::clone(&self.replica) as Arc<dyn Replication> }
    }

    /// Begins a term over two logs, everything of it committed, with a queue in each.
    pub fn lead_two(&mut self, first: Log, second: Log) -> [Arc<Shard>; 2] {
        self.epoch += 1 << 32;
        let Ok(shard) = self.engine.lead("/", self.directory.path(), self.begun(first)) else { panic!("it ended") };
        let further = self.engine.lead_further(&shard, 1, &self.further(1), self.begun(second)).unwrap();
        shard.count_shards(2).unwrap();
        shard.place_queues([(STREAM, 1)]).unwrap();
        shard.put_queue(QUEUE, "jobs", false, None).unwrap();
        shard.put_queue(STREAM, "more", false, None).unwrap();
        shard.complete();
        [&shard, &further].into_iter().for_each(|each| {
            commit(each);
            each.set_delivers(true);
        });
        [shard, further]
    }

    /// Begins a term over three logs, everything of it committed, with a queue in each.
    pub fn lead_three(&mut self) -> [Arc<Shard>; 3] {
        let (first, second, third) = (self.open(), self.open_further(1), self.open_further(2));
        self.epoch += 1 << 32;
        let Ok(shard) = self.engine.lead("/", self.directory.path(), self.begun(first)) else { panic!("it ended") };
        let one = self.engine.lead_further(&shard, 1, &self.further(1), self.begun(second)).unwrap();
        let two = self.engine.lead_further(&shard, 2, &self.further(2), self.begun(third)).unwrap();
        shard.count_shards(3).unwrap();
        shard.place_queues([(STREAM, 1), (THIRD, 2)]).unwrap();
        for (id, name) in [(QUEUE, "jobs"), (STREAM, "more"), (THIRD, "third")] {
            shard.put_queue(id, name, false, None).unwrap();
        }
        shard.complete();
        [&shard, &one, &two].into_iter().for_each(|each| {
            commit(each);
            each.set_delivers(true);
        });
        [shard, one, two]
    }

    /// Begins a term: the first record of its epoch is not committed yet.
    pub fn lead(&mut self, log: Log) -> Arc<Shard> {
        self.lead_declared(log, |_| ())
    }

    /// The same, with more declared than one queue.
    pub fn lead_declared(&mut self, log: Log, declare: impl FnOnce(&Shard)) -> Arc<Shard> {
        self.epoch += 1 << 32;
        let led = self.begun(log);
        let Ok(shard) = self.engine.lead("/", self.directory.path(), led) else { panic!("the engine has ended") };
        shard.put_queue(QUEUE, "jobs", false, None).unwrap();
        declare(&shard);
        shard.complete();
        shard
    }

    /// The same, with everything committed.
    pub fn lead_on(&mut self, log: Log) -> Arc<Shard> {
        let shard = self.lead(log);
        commit(&shard);
        shard.set_delivers(true);
        shard
    }
}

pub fn commit(shard: &Shard) {
    let end = shard.with_log(|log| {
        let end = log.write().unwrap();
        log.set_bound(end).unwrap();
        end
    });
    shard.committed(end.unwrap());
}

pub fn end(shard: &Shard) -> Log {
    shard.end_term();
    loop {
        if let Some(log) = shard.take_log() {
            return log;
        }
        // A fold is under way.
        std::thread::yield_now();
    }
}

pub fn try_publish(shard: &Arc<Shard>, queue: &str, body: &str) -> Result<Places, EngineError> {
    let publication = Publication {
        payload: Payload::new(b"", queue.as_bytes(), b"", body.as_bytes()).unwrap(),
        exchange: b"",
        key: queue.as_bytes(),
        headers: None,
        persistent: true,
        mandatory: true,
    };
    shard.publish(&[publication], Some(Level::Disk), 1, &mut Vec::new()).map(|published| published.places(shard))
}

pub fn publish(shard: &Arc<Shard>, body: &str) -> Places {
    try_publish(shard, "jobs", body).unwrap()
}

pub fn consumer(shard: &Arc<Shard>) -> Subscription {
    let options = SubscriptionOptions { prefetch: 100, auto_ack: false, exclusive: false, pull: false };
    shard.subscribe(QUEUE, options).unwrap()
}

pub fn bodies(filled: &[Filled]) -> Vec<(String, bool)> {
    let picked = filled.iter().flat_map(|Filled { segment, picked }| picked.iter().map(move |one| (segment, one)));
    picked
        .map(|(segment, one)| {
            let body = segment.message(one.offset).unwrap().body.to_vec();
            (String::from_utf8(body).unwrap(), one.taken.redelivered)
        })
        .collect()
}

pub fn take(subscription: &Subscription) -> Vec<(String, bool)> {
    let mut filled = Vec::new();
    subscription.fill(100, &mut filled).unwrap();
    bodies(&filled)
}

pub fn fresh(bodies: &[&str]) -> Vec<(String, bool)> {
    bodies.iter().map(|body| ((*body).to_owned(), false)).collect()
}

pub fn again(bodies: &[&str]) -> Vec<(String, bool)> {
    bodies.iter().map(|body| ((*body).to_owned(), true)).collect()
}

pub fn is_rung(subscription: &Subscription) -> bool {
    let heard = std::pin::pin!(subscription.signal().heard());
    heard.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
}

pub fn is_not_leading<T>(result: Result<T, EngineError>) -> bool {
    matches!(result, Err(EngineError::NotLeading(_)))
}

pub fn drain(shard: &Arc<Shard>, queue: QueueId) -> Vec<(String, bool)> {
    let options = SubscriptionOptions { prefetch: 100, auto_ack: false, exclusive: false, pull: false };
    take(&shard.home_of(queue).subscribe(queue, options).unwrap())
}

pub fn ready(shard: &Shard, queue: QueueId) -> u64 {
    shard.queue_counts(&[queue]).unwrap()[0].ready_count
}

/// Whether it happens within a time that is far longer than it needs.
pub fn happens(mut is_so: impl FnMut() -> bool) -> bool {
    let limit = Instant::now() + Duration::from_secs(20);
    while !is_so() && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(5));
    }
    is_so()
}
