//! The node: opens replicas, and passes answers of the coordinator and changes of connections to them.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use penstock_log::{FoldState, Format, LogOptions};
use penstock_peers::{
    Peers, Relayed, RelayedClient, RelaysUse, Settings as PeerSettings, StartError, Tunnel, Used, Versions,
};
use penstock_replica::{Boot, BrokerId, ChangeId, Outcome, ReadId, ReplicaId, Settings, ShardRecord, Version};
use penstock_replication::wire::{PROTOCOL, PROTOCOL_OLDEST, encode_host};
use penstock_replication::{Input, OpenError, Options};
use tokio::runtime::Runtime;

use crate::disks::Disks;
use crate::links::Links;
use crate::lock::lock;
use crate::missed::Missed;
use crate::outbox::Outboxes;
use crate::questions::{Question, Questions, ShardId};
use crate::scrubbing::Scrubbing;
use crate::shard::{Contents, Events, Shard, Shared};
use crate::shards::Shards;
use crate::timer::Timer;
use crate::traffic::NodeTraffic;
use crate::upkeep::Upkeep;

/// Checking and reading records takes time on these threads, so there are a few.
const NETWORK_THREADS: usize = 2;

/// How a node is started.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub peers: PeerSettings,
    /// Another number after each start of the process.
    pub boot: Boot,
    pub replication: Settings,
    /// Threads that wait for disks.
    pub disk_threads: usize,
    /// How often what lies on the disks is checked; never without.
    pub scrub_every: Option<Duration>,
}

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot start threads for replication: {0}")]
    Threads(#[from] std::io::Error),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("a replica of this shard is open already")]
    IsOpen,
}

/// See the module. Dropping it ends connections and threads; logs keep all that was confirmed.
pub struct Node {
    // Dropped in this order: no tick and no work comes after the replicas are gone.
    scrubbing: Option<Scrubbing>,
    upkeep: Option<Upkeep>,
    timer: Option<Timer>,
    disks: Option<Disks>,
    runtime: Option<Runtime>,
    shards: Arc<Shards>,
    shared: Arc<Shared>,
    questions: Questions,
    options: NodeOptions,
}

impl Node {
    /// Starts threads, and takes connections of other brokers at `listener`.
    ///
    /// # Errors
    /// `Start` for settings that cannot be used with this listener; `Threads`.
    pub fn start(options: NodeOptions, listener: TcpListener, events: Arc<dyn Events>) -> Result<Self, NodeError> {
        let disks = Disks::start(options.disk_threads)?;
        let (asking, questions) = Questions::new();
        let shared = Arc::new(Shared {
            events,
            outboxes: Outboxes::default(),
            links: Links::default(),
            missed: Missed::default(),
            disks: disks.work(),
            asking,
            yields: Mutex::new(false),
            peers: OnceLock::new(),
            started: Instant::now(),
        });
        let shards = Arc::new(Shards::default());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(NETWORK_THREADS)
            .thread_name("replica-network")
            .enable_all()
            .build()?;
        let traffic = NodeTraffic { shards: Arc::clone(&shards), shared: Arc::clone(&shared) };
        let peers = Peers::start(options.peers.clone(), options.boot, listener, Arc::new(traffic), runtime.handle())?;
        // It is set here alone.
        let _ = shared.peers.set(peers);
        let timer = Some(Timer::start(Arc::clone(&shards))?);
        let upkeep = Some(Upkeep::start(Arc::clone(&shards))?);
        let scrubbing = options.scrub_every.map(|every| Scrubbing::start(Arc::clone(&shards), every)).transpose()?;
        let (disks, runtime) = (Some(disks), Some(runtime));
        Ok(Self { scrubbing, upkeep, timer, disks, runtime, shards, shared, questions, options })
    }

    /// The versions that this version of the broker knows.
    #[must_use]
    pub fn versions() -> Versions {
        Versions {
            protocol_lowest: PROTOCOL_OLDEST.into(),
            protocol_highest: PROTOCOL.into(),
            // Formats are few.
            format: Format::NEWEST.number() as u16,
        }
    }

    /// The versions that the cluster uses: see [`penstock_peers::used`]. Present once the node has started.
    #[must_use]
    pub fn used(&self) -> Option<Used> {
        self.shared.peers.get().map(Peers::used)
    }

    /// Where other brokers connect. Present once the node has started.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.shared.peers.get().map(Peers::address)
    }

    /// Says where a broker is, as host:port.
    pub fn set_peer(&self, broker: BrokerId, address: &str) {
        if let Some(peers) = self.shared.peers.get() {
            peers.set(broker, address);
        }
    }

    /// The broker is not of the cluster any more.
    pub fn forget_peer(&self, broker: BrokerId) {
        if let Some(peers) = self.shared.peers.get() {
            peers.forget(broker);
        }
    }

    /// Begins a relay of a client to a broker: see [`Peers::relay`]. `None` before the node has started.
    pub fn relay(
        &self,
        broker: BrokerId,
        client: RelayedClient,
    ) -> Option<impl Future<Output = std::io::Result<Tunnel>> + Send + use<>> {
        let (shared, opening) = (Arc::clone(&self.shared), self.shared.peers.get()?.relay(broker, client));
        Some(async move {
            let opened = opening.await;
            opened.inspect_err(|error| {
                let sentence = shared.missed.sentence(broker, error);
                sentence.into_iter().for_each(|sentence| shared.events.noticed(&sentence));
            })
        })
    }

    /// Says who serves the clients that other brokers relay. It is said once.
    pub fn set_relayed(&self, relayed: Arc<dyn Relayed>) {
        if let Some(peers) = self.shared.peers.get() {
            peers.set_relayed(relayed);
        }
    }

    /// The relays from and to this broker.
    #[must_use]
    pub fn relays(&self) -> RelaysUse {
        self.shared.peers.get().map(Peers::relays).unwrap_or_default()
    }

    /// Sends a message of this broker to another one, about a shard. It is lost where the result says so, and may be lost with the
    /// connection later: [`Events::linked`] says that it broke.
    pub fn send(&self, to: BrokerId, shard: &ShardId, content: &[u8]) -> bool {
        let is_waiting = self.shared.outboxes.put_large(to, encode_host(shard, content));
        self.shared.wake(to);
        is_waiting
    }

    /// Opens a replica; returns it with the state of its queues at the high watermark. `new_replica` is drawn: it becomes the identity of a
    /// disk that has none. Shards with the same `order` are led by one broker, as far as elections can choose.
    ///
    /// # Errors
    /// `Open`; `IsOpen`.
    pub fn open(
        &self,
        id: ShardId,
        directory: &Path,
        log: LogOptions,
        contents: Contents,
        new_replica: ReplicaId,
        order: u64,
    ) -> Result<(Arc<Shard>, FoldState), NodeError> {
        if self.shards.get(&id).is_some() {
            return Err(NodeError::IsOpen);
        }
        // Brokers wait until they have applied the entries of a command; see `Metadata.submit`.
        let settings = Settings { tells_at_once: contents == Contents::Entries, order, ..self.options.replication };
        let options = Options {
            broker: self.options.peers.broker,
            boot: self.options.boot,
            new_replica,
            log_id: id,
            log,
            settings,
        };
        let (shard, state) = Shard::open(directory, options, contents, Arc::clone(&self.shared))?;
        self.shards.add(&shard);
        shard.tell_all();
        Ok((shard, state))
    }

    /// Closes the replica of a shard for good, and the queues of its term; its files may be deleted then. Nothing happens where there is none.
    /// May wait for a disk.
    pub fn close(&self, id: &ShardId) {
        if let Some(shard) = self.shards.remove(id) {
            shard.close();
        }
    }

    /// The next question to the coordinator; none if there is none within this time.
    #[must_use]
    pub fn next_question(&self, within: Duration) -> Option<Question> {
        self.questions.next(within)
    }

    /// The answer to [`crate::QuestionKind::Read`]; without a number a record that was watched.
    pub fn read(&self, shard: &ShardId, read: Option<ReadId>, record: Option<(ShardRecord, Version)>) {
        self.step(shard, Input::Read { read, record });
    }

    /// The answer to [`crate::QuestionKind::Change`].
    pub fn changed(&self, shard: &ShardId, change: ChangeId, outcome: Outcome) {
        self.step(shard, Input::Answered { change, outcome });
    }

    /// The coordinator says that a broker's session has ended, or that it is alive again.
    pub fn session(&self, broker: BrokerId, is_alive: bool) {
        for shard in self.shards.all() {
            shard.step(Input::Session { broker, is_alive });
        }
    }

    /// Whether the replicas leave it to other brokers to lead, as far as they do so soon, also those that are opened later.
    pub fn set_yields(&self, yields: bool) {
        let mut told = lock(&self.shared.yields);
        *told = yields;
        for shard in self.shards.all() {
            shard.step(Input::Yield(yields));
        }
    }

    fn step(&self, shard: &ShardId, input: Input) {
        if let Some(shard) = self.shards.get(shard) {
            shard.step(input);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.scrubbing = None;
        self.upkeep = None;
        self.timer = None;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
        self.disks = None;
        // Whoever has a replica still finds it closed.
        self.shards.all().iter().for_each(|shard| shard.close());
        // Replicas and what they share hold each other.
        self.shards.clear();
    }
}
