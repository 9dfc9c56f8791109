//! One replica of a shard behind its lock, and where its outputs go.
//!
//! Invariant: outputs are handed over under the lock, so their order is that of the events. [`Events`] must therefore not call the shard.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use penstock_log::{FoldState, Log, LogError, Position};
use penstock_peers::{Frame, Peers};
use penstock_replica::{BrokerId, Link, ReplicaId, Role, ShardRecord};
use penstock_replication::wire::encode_message;
use penstock_replication::{
    AppendError, Input, LastRead, Now, OpenError, Options, Output, Published, ReplicatedLog, Sent, Token, Work,
};

use crate::copies::Copies;
use crate::disks::DiskWork;
use crate::links::Links;
use crate::lock::lock;
use crate::missed::Missed;
use crate::outbox::Outboxes;
use crate::place::{Led, Place, Term, take_back};
use crate::questions::{Asking, Question, QuestionKind, ShardId};
use crate::readers::Readers;
use crate::working::Working;

/// Records of a frame, unless one record alone is larger.
const SHIPMENT_BYTES: usize = 256 << 10;

/// The broker's side of its replicas. The functions are called under the replica's lock: they are quick, and do not call the shard.
pub trait Events: Send + Sync + 'static {
    /// Everything below is committed and can be read, in a shard of [`Contents::Entries`]. Queues hear it by themselves, so often
    /// that a host would do little else.
    fn committed(&self, shard: &ShardId, below: Position);

    fn ended(&self, shard: &ShardId, publish: Token, how: Published);

    fn role(&self, shard: &ShardId, role: Role);

    /// The log failed, and the replica halts.
    fn failed(&self, shard: &ShardId, error: &LogError);

    /// The log was replaced by a copy of the leader's, with this state of its queues.
    fn replaced(&self, shard: &ShardId, state: FoldState);

    /// A sentence for the log.
    fn noticed(&self, sentence: &str);

    /// A message that another broker sent by [`crate::Node::send`]. It is called under no replica's lock, like the next one.
    fn received(&self, _from: BrokerId, _shard: &ShardId, _content: &[u8]) {}

    /// The connection to a broker is up, or it broke.
    fn linked(&self, _broker: BrokerId, _is_up: bool) {}
}

/// The kind of records in the log of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Messages of queues. Followers fold and compact the log by themselves.
    Queues,
    /// Entries. The host decides which may go, and calls [`Shard::fold_entries`].
    Entries,
}

/// Everything that the replicas of a broker share.
pub(crate) struct Shared {
    pub events: Arc<dyn Events>,
    pub outboxes: Outboxes,
    pub links: Links,
    pub missed: Missed,
    pub disks: DiskWork,
    pub asking: Asking,
    /// Whether the replicas leave it to other brokers to lead, as far as they do so soon. Held while replicas are told.
    pub yields: Mutex<bool>,
    /// Set once the connections have begun.
    pub peers: OnceLock<Peers>,
    pub started: Instant,
}

impl Shared {
    pub fn now(&self) -> Now {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { millis: as_millis(self.started.elapsed()), unix_ms: as_millis(since) }
    }

    pub fn wake(&self, broker: BrokerId) {
        if let Some(peers) = self.peers.get() {
            peers.wake(broker);
        }
    }
}

/// A replica of a shard; see the module.
pub struct Shard {
    pub(crate) id: ShardId,
    pub(crate) directory: PathBuf,
    pub(crate) options: Options,
    pub(crate) contents: Contents,
    /// Held while the log is folded or compacted, and while its queues are opened. It is locked before the place.
    pub(crate) upkeep: Mutex<()>,
    /// The brokers that are to have a replica; none where that is not known. Held while the replica is told, and locked before the place.
    placed: Mutex<BTreeSet<BrokerId>>,
    /// Never locked while another lock is taken, nor while records are read.
    last_read: Mutex<LastRead>,
    /// Absent while a copy takes the place of the log, where it could not be opened, and once the node has ended.
    place: Mutex<Option<Place>>,
    pub(crate) working: Working,
    /// Whether a thread is about to pass on what its queues appended.
    pub(crate) flush_waits: AtomicBool,
    pub(crate) copies: Copies,
    pub(crate) readers: Readers,
    /// Numbers the copies that this replica gives.
    pub(crate) copied: AtomicU64,
    pub(crate) shared: Arc<Shared>,
    /// For work that comes back to it.
    pub(crate) this: Weak<Shard>,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Shard({:02x?})", self.id)
    }
}

impl Shard {
    pub(crate) fn open(
        directory: &Path,
        options: Options,
        contents: Contents,
        shared: Arc<Shared>,
    ) -> Result<(Arc<Shard>, FoldState), OpenError> {
        let id = options.log_id;
        let (replicated, state) = ReplicatedLog::open(directory, options.clone(), shared.now())?;
        let shard = Arc::new_cyclic(|this| Shard {
            id,
            directory: directory.to_owned(),
            options,
            contents,
            upkeep: Mutex::default(),
            placed: Mutex::default(),
            last_read: Mutex::default(),
            place: Mutex::new(Some(Place::Here(Box::new(replicated)))),
            working: Working::default(),
            flush_waits: AtomicBool::new(false),
            copies: Copies::default(),
            readers: Readers::default(),
            copied: AtomicU64::new(0),
            shared,
            this: Weak::clone(this),
        });
        Ok((shard, state))
    }

    /// Tells a replica that was opened, or opened anew with a copy, what the broker's other replicas know.
    pub(crate) fn tell_all(&self) {
        let yields = lock(&self.shared.yields);
        self.step(Input::Yield(*yields));
        drop(yields);
        let placed = lock(&self.placed);
        self.step(Input::Placed(placed.clone()));
        drop(placed);
        self.shared.links.each(|broker, link| self.linked(broker, link));
    }

    #[must_use]
    pub fn id(&self) -> &ShardId {
        &self.id
    }

    /// The identity of the replica's disk.
    #[must_use]
    pub fn replica(&self) -> Option<ReplicaId> {
        self.lock().as_ref().map(|place| place.replicator().id())
    }

    #[must_use]
    pub fn role(&self) -> Role {
        self.lock().as_ref().map_or(Role::Follower { of: None }, |place| place.replicator().role())
    }

    /// The shard's record, as last read or watched.
    #[must_use]
    pub fn record(&self) -> Option<ShardRecord> {
        self.lock().as_ref().and_then(|place| place.replicator().record().cloned())
    }

    /// Appends as the leader and sends it on its way. [`Events::ended`] says how the publish ended.
    ///
    /// # Errors
    /// `NotLeading` where another replica leads, or the shard has queues, which alone append; those of the log.
    pub fn publish(
        &self,
        publish: Token,
        append: impl FnOnce(&mut Log) -> Result<Position, LogError>,
    ) -> Result<Position, AppendError> {
        let mut guard = self.lock();
        let Some(Place::Here(replicated)) = guard.as_mut() else { return Err(AppendError::NotLeading) };
        let appended = replicated.append(publish, append);
        let outputs = replicated.flush(self.shared.now());
        self.hand_over_outputs(&mut guard, outputs);
        appended
    }

    /// Reads, folds and compacts the log up to the high watermark, under the replica's lock. Absent where the replica is not open.
    pub fn with_log<T>(&self, act: impl FnOnce(&mut Log) -> T) -> Option<T> {
        self.lock().as_mut().and_then(|place| place.act(|_, log| Some(act(log))))
    }

    /// Hands the leadership over to another replica in sync; nothing happens where this one does not lead.
    pub fn hand_over(&self, to: ReplicaId) {
        self.step(Input::HandOver(to));
    }

    /// Says which brokers are to have a replica. While this one leads, it brings in those that lack one, and takes the others out, one at a time.
    /// With none it leaves them as they are.
    pub fn place(&self, brokers: BTreeSet<BrokerId>) {
        let mut placed = lock(&self.placed);
        placed.clone_from(&brokers);
        self.step(Input::Placed(brokers));
    }

    pub(crate) fn step(&self, input: Input) {
        self.step_in(&mut self.lock(), input);
    }

    fn step_in(&self, place: &mut Option<Place>, input: Input) {
        let Some(found) = place.as_mut() else { return };
        let now = self.shared.now();
        let outputs = found.act(|replicator, log| replicator.step(log, now, input));
        self.hand_over_outputs(place, outputs);
    }

    /// Work on the log with a number, as it was when the work was asked for. Blocks.
    fn perform(&self, log: u64, work: Work) {
        let Some(done) = self.working.on(log, || work.perform()) else { return };
        let mut guard = self.lock();
        // A copy may have taken the place of the log since.
        if self.working.log() == log {
            self.step_in(&mut guard, Input::Done(done));
        }
    }

    /// Passes on what was appended.
    pub(crate) fn flush(&self) {
        let mut guard = self.lock();
        let Some(place) = guard.as_mut() else { return };
        let now = self.shared.now();
        let outputs = place.act(|replicator, log| replicator.flush(log, now));
        self.hand_over_outputs(&mut guard, outputs);
    }

    /// A frame of a broker for this shard. Records are checked without the lock.
    pub(crate) fn receive(&self, from: BrokerId, message: penstock_replica::Message, records: Bytes) {
        match ReplicatedLog::check(&self.id, &message, records) {
            Ok(records) => self.step(Input::Message { from, message, records }),
            Err(error) => {
                self.shared
                    .events
                    .noticed(&format!("broker {from} sent records that do not pass their check: {error}"));
            }
        }
    }

    /// The records that a replica waits for, as a frame. Blocks while they are read.
    pub(crate) fn ship(&self, to: ReplicaId) -> Option<Frame> {
        let shipment = {
            let mut guard = self.lock();
            let (shipment, outputs) = guard.as_mut()?.act(|replicator, log| replicator.begin_shipment(log, to));
            self.hand_over_outputs(&mut guard, outputs);
            shipment?
        };
        let found = shipment.found(&lock(&self.last_read));
        let shipped = found.unwrap_or_else(|| {
            let shipped = shipment.perform(SHIPMENT_BYTES);
            lock(&self.last_read).keep(&shipped);
            shipped
        });
        let mut guard = self.lock();
        let now = self.shared.now();
        let (sent, outputs) = guard.as_mut()?.act(|replicator, log| replicator.finish_shipment(log, now, shipped));
        self.hand_over_outputs(&mut guard, outputs);
        let Sent { message, bytes, .. } = sent?;
        let head = encode_message(&self.id, &message, bytes.len());
        Some(Frame { head: head.into(), body: bytes })
    }

    /// Time has passed.
    pub(crate) fn tick(&self) {
        self.check_queues();
        // Followers that keep up have them by now, and thousands of shards would hold much.
        lock(&self.last_read).forget();
        self.step(Input::Tick);
        self.look_after_readers();
        self.tick_copies();
    }

    pub(crate) fn linked(&self, broker: BrokerId, link: Link) {
        if link != Link::Up {
            self.copies.disconnected(broker);
        }
        self.step(Input::Link(broker, link));
    }

    /// A thread for disks does this, unless the node ends before.
    pub(crate) fn soon(&self, act: impl FnOnce(&Shard) + Send + 'static) {
        let this = Weak::clone(&self.this);
        self.shared.disks.give(Box::new(move || {
            if let Some(this) = this.upgrade() {
                this.guard(act);
            }
        }));
    }

    /// Called under the lock. Ends the term of queues if another broker leads now.
    pub(crate) fn hand_over_outputs(&self, place: &mut Option<Place>, outputs: Vec<Output>) {
        let term = place.as_ref().and_then(Place::led).map(Led::term);
        for output in outputs {
            self.hand_over_output(output, term.as_ref());
        }
        take_back(place, false);
    }

    fn hand_over_output(&self, output: Output, term: Option<&Term>) {
        let shared = &self.shared;
        match output {
            Output::Send { to, message } => {
                shared.outboxes.put_message(to, encode_message(&self.id, &message, 0));
                shared.wake(to);
            }
            Output::Records { to, broker } => {
                shared.outboxes.put_records(broker, self.id, to);
                shared.wake(broker);
            }
            Output::Lacks { broker, .. } => self.soon(move |shard| shard.offer_copy(broker)),
            Output::Work(work) => {
                let log = self.working.log();
                self.soon(move |shard| shard.perform(log, work));
            }
            Output::Read(read) => self.ask(QuestionKind::Read(read)),
            Output::Change { change, base, record } => self.ask(QuestionKind::Change { change, base, record }),
            Output::Committed(below) => {
                term.into_iter().for_each(|term| term.hear_committed(below));
                self.readers.wake();
                if self.contents == Contents::Entries {
                    shared.events.committed(&self.id, below);
                }
            }
            Output::Ended { publish, how } => shared.events.ended(&self.id, publish, how),
            Output::Role(role) => {
                term.into_iter().for_each(|term| term.hear_role(role));
                if let Role::Halted(_) = role {
                    self.readers.end_all("the replica of this broker has halted");
                }
                shared.events.role(&self.id, role);
            }
            Output::Failed(error) => {
                shared.events.failed(&self.id, &error);
                self.mark_soon(&error);
            }
        }
    }

    fn ask(&self, kind: QuestionKind) {
        self.shared.asking.ask(Question { shard: self.id, kind });
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Place>> {
        lock(&self.place)
    }

    /// Ends the term of its queues and closes the log, as at the end of the process.
    pub(crate) fn close(&self) {
        let mut guard = self.lock();
        take_back(&mut guard, true);
        let closed = guard.take();
        drop(guard);
        drop(closed);
        self.readers.close("the replica of this broker is closed");
    }
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
