//! The replica beside its log: how events come in and outputs go out.
//!
//! The log is passed to each call, so that its owner may also append to it and read it, under a lock of its own.
//!
//! Invariants: before the machine hears of anything, it knows all that was appended; the log of each call is the one that the replica was
//! opened with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use penstock_log::{CheckedRecords, Log, LogError, LogOptions, Position};
use penstock_replica::{
    Boot, BrokerId, ChangeId, Epoch, Epochs, Event, Leader, Link, Message, Millis, Outcome, ReadId, Replica, ReplicaId,
    Role, Settings, ShardRecord, Stored, Version,
};

use crate::promise_file::PromiseFile;
use crate::publishes::{Published, Publishes, Token};
use crate::wanted::Wanted;
use crate::work::{Work, WorkDone};

/// The time of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// On a monotonic clock.
    pub millis: Millis,
    /// Since 1970, for the records that begin epochs.
    pub unix_ms: u64,
}

/// How a replica is opened.
#[derive(Clone, Debug)]
pub struct Options {
    pub broker: BrokerId,
    /// Drawn for each time that a replica is opened.
    pub boot: Boot,
    /// Drawn, too: the identity of the disk, if it has none yet.
    pub new_replica: ReplicaId,
    /// The id that the logs of all replicas of the shard have.
    pub log_id: [u8; 16],
    pub log: LogOptions,
    pub settings: Settings,
}

/// An event from outside.
#[derive(Debug)]
pub enum Input {
    /// Time has passed. Comes at least every 100 ms.
    Tick,
    Link(BrokerId, Link),
    Session {
        broker: BrokerId,
        is_alive: bool,
    },
    /// A message of another replica, with the records that came beside it: see [`crate::ReplicatedLog::check`].
    Message {
        from: BrokerId,
        message: Message,
        records: Option<CheckedRecords>,
    },
    Read {
        read: Option<ReadId>,
        record: Option<(ShardRecord, Version)>,
    },
    Answered {
        change: ChangeId,
        outcome: Outcome,
    },
    Done(WorkDone),
    HandOver(ReplicaId),
    Yield(bool),
    /// The brokers that are to have a replica.
    Placed(BTreeSet<BrokerId>),
    /// The owner of the log stopped after a write that failed: the replica halts.
    Stopped,
}

/// Something for the host to do or to know, in order.
#[derive(Debug)]
pub enum Output {
    Send {
        to: BrokerId,
        message: Message,
    },
    /// Records wait for a replica. Once its connection takes them, [`Replicator::begin_shipment`] says which.
    Records {
        to: ReplicaId,
        broker: BrokerId,
    },
    /// A replica needs records that the log does not have any more.
    Lacks {
        to: ReplicaId,
        broker: BrokerId,
    },
    Work(Work),
    Read(ReadId),
    Change {
        change: ChangeId,
        base: Version,
        record: ShardRecord,
    },
    /// Everything below is committed and can be read.
    Committed(Position),
    Ended {
        publish: Token,
        how: Published,
    },
    Role(Role),
    /// The log failed, and the replica halts.
    Failed(LogError),
}

/// The state of a replica, without its log; see the module.
#[derive(Debug)]
pub struct Replicator {
    pub(crate) replica: Replica,
    pub(crate) me: Leader,
    pub(crate) now: Now,
    pub(crate) promise_file: PromiseFile,
    pub(crate) is_promising: bool,
    /// To be stored after the one that is being stored.
    pub(crate) next_promise: Option<Epoch>,
    pub(crate) is_syncing: bool,
    /// How far the machine knows the log.
    pub(crate) known_end: Position,
    /// How far the machine knows that the log is on the disk.
    pub(crate) known_synced: Position,
    /// The records that came with the message of this step.
    pub(crate) incoming: Option<CheckedRecords>,
    pub(crate) wanted: BTreeMap<ReplicaId, Wanted>,
    /// Replicas that wait for records which the log does not have.
    pub(crate) lacking: BTreeSet<ReplicaId>,
    pub(crate) publishes: Publishes,
    pub(crate) role: Role,
    pub(crate) events: VecDeque<Event>,
    pub(crate) outputs: Vec<Output>,
}

impl Replicator {
    pub(crate) fn new(
        log: &Log,
        promise_file: PromiseFile,
        (broker, boot): (BrokerId, Boot),
        settings: Settings,
        now: Now,
    ) -> Replicator {
        let epochs = Epochs::new(log.epochs().iter().map(|(epoch, first)| (epoch, first.0)));
        let newest = log.epochs().iter().last().map_or(0, |(epoch, _)| epoch);
        let stored = Stored {
            // A replica with a file of its own that was lost has another identity, and its log its epochs.
            promised: promise_file.promised().max(newest),
            epochs,
            end: log.end().0,
            high_watermark: log.bound().0,
        };
        let me = Leader { broker, replica: promise_file.replica(), boot };
        Replicator {
            known_end: log.end(),
            known_synced: log.synced(),
            replica: Replica::new(me, stored, settings, now.millis),
            me,
            now,
            promise_file,
            is_promising: false,
            next_promise: None,
            is_syncing: false,
            incoming: None,
            wanted: BTreeMap::new(),
            lacking: BTreeSet::new(),
            publishes: Publishes::default(),
            role: Role::Follower { of: None },
            events: VecDeque::new(),
            outputs: Vec::new(),
        }
    }

    /// The identity of the replica's disk.
    #[must_use]
    pub fn id(&self) -> ReplicaId {
        self.me.replica
    }

    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The highest epoch that the replica has promised.
    #[must_use]
    pub fn promised(&self) -> Epoch {
        self.replica.promised()
    }

    /// The record of the shard, as last read or watched.
    #[must_use]
    pub fn record(&self) -> Option<&ShardRecord> {
        self.replica.record()
    }

    /// Up to where the log equals the leader's for certain; see [`Replica::verified`].
    #[must_use]
    pub fn verified(&self) -> Option<Position> {
        self.replica.verified().map(Position)
    }

    /// Up to where each other replica has acknowledged this leader's log; see [`Replica::acknowledged`].
    #[must_use]
    pub fn acknowledged(&self) -> Vec<(ReplicaId, Position)> {
        let acknowledged = self.replica.acknowledged().into_iter();
        acknowledged.map(|(replica, position)| (replica, Position(position))).collect()
    }

    /// Whether a broker's replica waits for records which this leader's log does not have.
    #[must_use]
    pub fn lacks(&self, broker: BrokerId) -> bool {
        let waits = |replica: &ReplicaId| self.wanted.get(replica).is_some_and(|wanted| wanted.broker == broker);
        self.lacking.iter().any(waits)
    }

    /// Has [`Output::Ended`] say how a publish ended whose records end there.
    pub(crate) fn await_outcome(&mut self, end: Position, publish: Token) {
        self.publishes.wait(end.0, publish);
    }

    /// Writes what was appended to the log, and has it synced and sent.
    pub fn flush(&mut self, log: &mut Log, now: Now) -> Vec<Output> {
        self.now = now;
        self.write_appended(log);
        self.run(log);
        std::mem::take(&mut self.outputs)
    }

    /// Takes an event; returns what is to be done, in order.
    pub fn step(&mut self, log: &mut Log, now: Now, input: Input) -> Vec<Output> {
        self.now = now;
        self.write_appended(log);
        self.run(log);
        self.take(log, input);
        self.run(log);
        std::mem::take(&mut self.outputs)
    }

    fn take(&mut self, log: &mut Log, input: Input) {
        let event = match input {
            Input::Tick => Event::Tick,
            Input::Link(broker, link) => return self.take_link(broker, link),
            Input::Session { broker, is_alive } => Event::Session { broker, is_alive },
            Input::Message { from, message, records } => return self.take_message(from, message, records),
            Input::Read { read, record } => Event::Read { read, record },
            Input::Answered { change, outcome } => Event::Answered { change, outcome },
            Input::Done(done) => return self.take_done(log, done),
            Input::HandOver(to) => Event::HandOver(to),
            Input::Yield(yields) => Event::Yield(yields),
            Input::Placed(brokers) => Event::Placed(brokers),
            Input::Stopped => Event::DiskFailed,
        };
        self.events.push_back(event);
    }

    fn take_link(&mut self, broker: BrokerId, link: Link) {
        self.events.push_back(Event::Link(broker, link));
        if link != Link::Up {
            self.forget_wanted(broker);
        }
    }

    /// A message with records counts only if they are those that it names.
    fn take_message(&mut self, from: BrokerId, message: Message, records: Option<CheckedRecords>) {
        if let Message::Append { after, until, of, .. } = message {
            let named = (of, Position(after), Position(until));
            let is_named = |records: &CheckedRecords| (records.epoch(), records.after(), records.until()) == named;
            if !records.as_ref().is_some_and(is_named) {
                return;
            }
            self.incoming = records;
        }
        let asks = if let Message::Hello { replica, .. } = message { Some(replica) } else { None };
        self.events.push_back(Event::Received { from, message });
        if let Some(replica) = asks {
            self.try_again(replica);
        }
    }

    /// Writes what was appended since the last event.
    fn write_appended(&mut self, log: &mut Log) {
        if log.end() <= self.known_end || matches!(self.role, Role::Halted(_)) {
            return;
        }
        match log.write() {
            Ok(end) => {
                self.known_end = end;
                self.events.push_back(Event::Appended(end.0));
            }
            Err(error) => self.fail(error),
        }
    }
}
