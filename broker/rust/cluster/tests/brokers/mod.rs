//! Three brokers in one process, over connections on the loopback address, each with an engine and a replica of one shard.
//!
//! A thread for each of them carries out its questions to the coordinator, which is a record behind a lock.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_cluster::{Contents, Events, Node, Published, QuestionKind, Shard, ShardId, Token};
use penstock_engine::{Engine, EngineOptions, QueueId, Shard as Queues};
use penstock_log::{FoldState, LogError, Position};
use penstock_replica::{BrokerId, Leader, Outcome, Role, Settings, ShardRecord, Version};
use tempfile::TempDir;

use crate::node;

pub const QUEUE: QueueId = QueueId(1);
const SHARD: ShardId = [7; 16];
const BROKERS: u64 = 3;
/// Only ends a test that would otherwise never end.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < limit, "it did not come to this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The coordinator: the record and its version.
type Coordinator = Arc<Mutex<(ShardRecord, u64)>>;

#[derive(Default)]
struct Heard {
    faults: Mutex<Vec<String>>,
}

impl Heard {
    fn fault(&self, fault: String) {
        self.faults.lock().unwrap().push(fault);
    }
}

impl Events for Heard {
    fn committed(&self, _: &ShardId, _: Position) {}

    fn ended(&self, _: &ShardId, _: Token, _: Published) {}

    fn role(&self, _: &ShardId, role: Role) {
        if let Role::Halted(why) = role {
            self.fault(format!("halted: {why:?}"));
        }
    }

    fn failed(&self, _: &ShardId, error: &LogError) {
        self.fault(error.to_string());
    }

    fn replaced(&self, _: &ShardId, _: FoldState) {}

    /// Connections break in these tests all the time.
    fn noticed(&self, _: &str) {}
}

/// A broker that runs.
pub struct Broker {
    pub number: BrokerId,
    pub shard: Arc<Shard>,
    engine: Engine,
    node: Option<Arc<Node>>,
    heard: Arc<Heard>,
    is_over: Arc<AtomicBool>,
    questions: Option<JoinHandle<()>>,
}

impl Broker {
    fn start(number: BrokerId, directory: PathBuf, coordinator: &Coordinator) -> Broker {
        std::fs::create_dir_all(&directory).unwrap();
        let heard = Arc::new(Heard::default());
        let node = Arc::new(node::start(number, node::micros(), Settings::default(), Arc::clone(&heard) as _));
        let identity = u128::from(number) + 100;
        let (shard, _) = node.open(SHARD, &directory, node::log_options(), Contents::Queues, identity, 0).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let questions = {
            let (node, coordinator, is_over) = (Arc::clone(&node), Arc::clone(coordinator), Arc::clone(&is_over));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    answer(&node, &coordinator);
                }
            })
        };
        let engine = Engine::new(engine_options()).unwrap();
        Broker { number, shard, engine, node: Some(node), heard, is_over, questions: Some(questions) }
    }

    fn port(&self) -> u16 {
        self.node.as_ref().unwrap().address().unwrap().port()
    }

    fn set_peer(&self, number: BrokerId, port: u16) {
        self.node.as_ref().unwrap().set_peer(number, &format!("127.0.0.1:{port}"));
    }

    /// Waits until it leads and has opened its queues, with definitions as after a start.
    pub fn lead(&self) -> Arc<Queues> {
        let mut queues = None;
        until("a broker opens the queues that it leads", || {
            if let Role::Leader { epoch, .. } = self.shard.role() {
                queues = self.shard.lead(&self.engine, "/", epoch).unwrap();
            }
            queues.is_some()
        });
        let queues = queues.unwrap();
        queues.put_queue(QUEUE, "jobs", false, None).unwrap();
        queues.complete();
        queues
    }

    pub fn delivers(&self) -> bool {
        matches!(self.shard.role(), Role::Leader { delivers: true, .. })
    }

    pub fn leads(&self) -> bool {
        matches!(self.shard.role(), Role::Leader { appends: true, .. })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(questions) = self.questions.take() {
            let _ = questions.join();
        }
        // The last one: its connections and threads end here.
        self.node = None;
        let faults = self.heard.faults.lock().unwrap();
        assert!(std::thread::panicking() || faults.is_empty(), "a replica halted: {faults:?}");
    }
}

/// Carries out the next question of a broker.
fn answer(node: &Node, coordinator: &Coordinator) {
    let Some(question) = node.next_question(Duration::from_millis(20)) else { return };
    match question.kind {
        QuestionKind::Read(read) => {
            let (record, version) = coordinator.lock().unwrap().clone();
            node.read(&SHARD, Some(read), Some((record, Version(version))));
        }
        QuestionKind::Change { change, base, record } => {
            let outcome = {
                let mut stored = coordinator.lock().unwrap();
                if Version(stored.1) == base {
                    *stored = (record, stored.1 + 1);
                    Outcome::Changed(Version(stored.1))
                } else {
                    Outcome::Conflict
                }
            };
            node.changed(&SHARD, change, outcome);
        }
    }
}

pub struct Cluster {
    coordinator: Coordinator,
    pub brokers: BTreeMap<BrokerId, Broker>,
    // The last field: brokers write until they are dropped.
    folder: TempDir,
}

impl Cluster {
    pub fn start() -> Cluster {
        let replicas: BTreeMap<u128, BrokerId> =
            (1..=BROKERS).map(|broker| (u128::from(broker) + 100, broker)).collect();
        let record = ShardRecord {
            epoch: 0,
            leader: Leader { broker: 1, replica: 101, boot: 0 },
            in_sync: replicas.keys().copied().collect(),
            replicas,
            min_in_sync: 2,
        };
        let coordinator = Arc::new(Mutex::new((record, 1)));
        let mut cluster = Cluster { folder: tempfile::tempdir().unwrap(), coordinator, brokers: BTreeMap::new() };
        (1..=BROKERS).for_each(|number| cluster.run(number));
        cluster
    }

    /// The bytes of the files in a broker's folder.
    pub fn bytes_of(&self, number: BrokerId) -> u64 {
        let files = std::fs::read_dir(self.directory(number)).unwrap();
        // One that was removed meanwhile has none.
        files.map(|file| file.unwrap().metadata().map_or(0, |found| found.len())).sum()
    }

    fn directory(&self, number: BrokerId) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    /// Starts a broker.
    pub fn run(&mut self, number: BrokerId) {
        let broker = Broker::start(number, self.directory(number), &self.coordinator);
        for other in self.brokers.values() {
            other.set_peer(number, broker.port());
            broker.set_peer(other.number, other.port());
        }
        self.brokers.insert(number, broker);
    }

    /// Ends a broker as if its process were killed: nothing is handed over.
    pub fn kill(&mut self, number: BrokerId) {
        drop(self.brokers.remove(&number).unwrap());
    }

    /// The broker that leads, once one does.
    pub fn leader(&self) -> &Broker {
        let leading = || self.brokers.values().find(|broker| broker.leads());
        until("a broker leads", || leading().is_some());
        leading().unwrap()
    }

    /// Waits until the coordinator knows that all replicas are in sync.
    pub fn until_in_sync(&self) {
        until("all replicas are in sync", || {
            let (record, _) = self.coordinator.lock().unwrap().clone();
            // A follower learns it from the record.
            for broker in self.brokers.values() {
                let (record, version) = self.coordinator.lock().unwrap().clone();
                broker.node.as_ref().unwrap().read(&SHARD, None, Some((record, Version(version))));
            }
            record.in_sync.len() == record.replicas.len()
        });
    }
}

fn engine_options() -> EngineOptions {
    EngineOptions {
        segment_bytes_min: 4096,
        segment_bytes_max: 32 << 10,
        segment_idle: Duration::from_secs(60),
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 16,
    }
}
