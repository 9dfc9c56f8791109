//! The replica and its log: how events come in and outputs go out.
//!
//! Invariant: before the machine hears of anything, it knows all that was appended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use penstock_log::{CheckedRecords, DecodeError, FoldState, Format, Log, LogError, LogOptions, Position};
use penstock_replica::{
    Boot, BrokerId, ChangeId, Epoch, Epochs, Event, Leader, Link, Message, Millis, Outcome, ReadId, Replica, ReplicaId,
    Role, Settings, ShardRecord, Stored, Version,
};

use crate::error::OpenError;
use crate::install;
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
    /// A message of another replica, with the records that came beside it: see [`ReplicatedLog::check`].
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
}

/// Something for the host to do or to know, in order.
#[derive(Debug)]
pub enum Output {
    Send {
        to: BrokerId,
        message: Message,
    },
    /// Records wait for a replica. Once its connection takes them, [`ReplicatedLog::begin_shipment`] says which.
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

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error("this replica takes no publishes: another one leads the shard, or is about to")]
    NotLeading,
    #[error(transparent)]
    Log(#[from] LogError),
}

/// One replica of a shard; see the crate.
#[derive(Debug)]
pub struct ReplicatedLog {
    pub(crate) log: Log,
    pub(crate) replica: Replica,
    pub(crate) me: Leader,
    pub(crate) now: Now,
    pub(crate) promise_file: PromiseFile,
    pub(crate) is_promising: bool,
    /// To be stored after the one that is being stored.
    pub(crate) next_promise: Option<Epoch>,
    pub(crate) is_syncing: bool,
    /// How far the machine knows that the log is on the disk.
    pub(crate) known_synced: Position,
    has_appended: bool,
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

impl ReplicatedLog {
    /// Opens the replica in a directory; returns it with the state of its queues at the high watermark.
    ///
    /// # Errors
    /// `RecordsLost` where the disk has lost what it had: such a replica may lack committed records, so it has to begin anew.
    pub fn open(directory: &Path, options: Options, now: Now) -> Result<(ReplicatedLog, FoldState), OpenError> {
        let disk = std::sync::Arc::clone(&options.log.disk);
        install::complete(disk.as_ref(), directory)?;
        let log_id = Some(options.log_id);
        let log_options = LogOptions { is_bounded: true, format: Format::Two, log_id, ..options.log };
        let opened = Log::open(directory, log_options)?;
        if let Some(lost) = opened.quarantined.first() {
            let (file, at) = (lost.file.clone(), lost.at);
            return Err(OpenError::RecordsLost { path: directory.to_owned(), file, at });
        }
        let promise_file = PromiseFile::open(directory, disk, options.new_replica)?;
        let (log, state) = (opened.log, opened.state);
        let epochs = Epochs::new(log.epochs().iter().map(|(epoch, first)| (epoch, first.0)));
        let newest = log.epochs().iter().last().map_or(0, |(epoch, _)| epoch);
        let stored = Stored {
            // A replica with a file of its own that was lost has another identity, and its log its epochs.
            promised: promise_file.promised().max(newest),
            epochs,
            end: log.end().0,
            high_watermark: log.bound().0,
        };
        let me = Leader { broker: options.broker, replica: promise_file.replica(), boot: options.boot };
        let replicated = ReplicatedLog {
            known_synced: log.synced(),
            replica: Replica::new(me, stored, options.settings, now.millis),
            log,
            me,
            now,
            promise_file,
            is_promising: false,
            next_promise: None,
            is_syncing: false,
            has_appended: false,
            incoming: None,
            wanted: BTreeMap::new(),
            lacking: BTreeSet::new(),
            publishes: Publishes::default(),
            role: Role::Follower,
            events: VecDeque::new(),
            outputs: Vec::new(),
        };
        Ok((replicated, state))
    }

    /// The log, to read messages below the high watermark, and to fold and compact it.
    pub fn log(&mut self) -> &mut Log {
        &mut self.log
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

    /// The record of the shard, as last read or watched.
    #[must_use]
    pub fn record(&self) -> Option<&ShardRecord> {
        self.replica.record()
    }

    /// Checks the bytes that came beside a message. This needs no lock. `None` where none belong to it.
    ///
    /// # Errors
    /// Why they are not the records that the message names. Drop both then; they are sent again.
    pub fn check(log_id: &[u8; 16], message: &Message, bytes: Vec<u8>) -> Result<Option<CheckedRecords>, DecodeError> {
        let &Message::Append { after, until, of, .. } = message else { return Ok(None) };
        let records = CheckedRecords::check(log_id, of, Position(after), bytes)?;
        if records.until().0 == until { Ok(Some(records)) } else { Err(DecodeError::Length) }
    }

    /// Appends records as the leader. The publish ends by [`Output::Ended`] with its token; [`ReplicatedLog::flush`] sends it on its way, after
    /// one or many.
    ///
    /// # Errors
    /// `NotLeading` where another replica leads; those of the log.
    pub fn append(
        &mut self,
        publish: Token,
        append: impl FnOnce(&mut Log) -> Result<Position, LogError>,
    ) -> Result<Position, AppendError> {
        if !matches!(self.role, Role::Leader { appends: true, .. }) {
            return Err(AppendError::NotLeading);
        }
        let before = self.log.end();
        let appended = append(&mut self.log);
        self.has_appended |= self.log.end() > before;
        let end = appended?;
        self.publishes.wait(end.0, publish);
        Ok(end)
    }

    /// Writes what was appended, and has it synced and sent.
    pub fn flush(&mut self, now: Now) -> Vec<Output> {
        self.now = now;
        self.write_appended();
        self.run();
        std::mem::take(&mut self.outputs)
    }

    /// Takes an event; returns what is to be done, in order.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Output> {
        self.now = now;
        self.write_appended();
        self.run();
        self.take(input);
        self.run();
        std::mem::take(&mut self.outputs)
    }

    fn take(&mut self, input: Input) {
        let event = match input {
            Input::Tick => Event::Tick,
            Input::Link(broker, link) => return self.take_link(broker, link),
            Input::Session { broker, is_alive } => Event::Session { broker, is_alive },
            Input::Message { from, message, records } => return self.take_message(from, message, records),
            Input::Read { read, record } => Event::Read { read, record },
            Input::Answered { change, outcome } => Event::Answered { change, outcome },
            Input::Done(done) => return self.take_done(done),
            Input::HandOver(to) => Event::HandOver(to),
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
    fn write_appended(&mut self) {
        if !std::mem::take(&mut self.has_appended) {
            return;
        }
        match self.log.write() {
            Ok(end) => self.events.push_back(Event::Appended(end.0)),
            Err(error) => self.fail(error),
        }
    }
}
