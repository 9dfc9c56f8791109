//! For tests: a replica that hears its leader from the test, and logs of leaders.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use penstock_log::{Begun, FoldState, Log, LogError, LogOptions, Payload, Position, Target};
use penstock_queue::{QueueId, Sequence};
use penstock_replica::{BrokerId, Message, Role, Settings};
use penstock_replication::wire::{Frame, decode};
use penstock_replication::{CopySource, Options, Published, Token};

use crate::disks::Disks;
use crate::outbox::Next;
use crate::questions::{Questions, ShardId};
use crate::shard::{Contents, Events, Shard, Shared};

/// The queue of the messages in leaders' logs.
pub(crate) const QUEUE: QueueId = QueueId(1);
pub(crate) const ID: ShardId = [9; 16];
pub(crate) const LEADER: BrokerId = 2;
pub(crate) const EPOCH: u64 = 3;
/// Of the messages of [`leader`].
pub(crate) const BODY: &[u8] = b"the body of a message";
/// Only ends a test that would otherwise never end.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The sentences that it noticed, failures of the log included.
#[derive(Default)]
pub(crate) struct Heard(pub Mutex<Vec<String>>);

impl Events for Heard {
    fn committed(&self, _: &ShardId, _: Position) {}
    fn ended(&self, _: &ShardId, _: Token, _: Published) {}
    fn role(&self, _: &ShardId, _: Role) {}
    fn failed(&self, _: &ShardId, error: &LogError) {
        self.noticed(&error.to_string());
    }
    fn replaced(&self, _: &ShardId, _: FoldState) {}
    fn noticed(&self, sentence: &str) {
        self.0.lock().unwrap().push(sentence.to_owned());
    }
}

/// A replica that hears its leader from the test.
pub(crate) struct Follower {
    pub shard: Arc<Shard>,
    pub shared: Arc<Shared>,
    pub heard: Arc<Heard>,
    /// Its thread performs syncs and promises.
    _disks: Disks,
}

impl Follower {
    pub fn open(directory: &Path) -> Follower {
        let (disks, heard) = (Disks::start(1).unwrap(), Arc::new(Heard::default()));
        let (asking, _) = Questions::new();
        let shared = Arc::new(Shared {
            events: Arc::clone(&heard) as _,
            outboxes: crate::outbox::Outboxes::default(),
            links: crate::links::Links::default(),
            missed: crate::missed::Missed::default(),
            disks: disks.work(),
            asking,
            yields: Mutex::new(false),
            peers: OnceLock::new(),
            started: Instant::now(),
        });
        shared.outboxes.connected(LEADER, 1);
        let options = Options {
            broker: 1,
            boot: 5,
            new_replica: 101,
            log_id: ID,
            log: LogOptions::default(),
            settings: Settings::default(),
        };
        let (shard, _) = Shard::open(directory, options, Contents::Queues, Arc::clone(&shared)).unwrap();
        Follower { shard, shared, heard, _disks: disks }
    }

    fn hear(&self, message: Message, records: &[u8]) {
        self.shard.receive(LEADER, message, bytes::Bytes::copy_from_slice(records));
    }

    /// The next frame to the leader of which something is found.
    pub fn said<T>(&self, find: impl Fn(Frame<'_>) -> Option<T>) -> T {
        let limit = Instant::now() + LIMIT;
        loop {
            match self.shared.outboxes.next(LEADER) {
                Some(Next::Message(frame)) => {
                    if let Some(found) = find(decode(&frame).unwrap()) {
                        return found;
                    }
                }
                Some(Next::Records(..)) => {}
                None => std::thread::sleep(Duration::from_millis(5)),
            }
            assert!(Instant::now() < limit, "the replica does not say it");
        }
    }

    /// Hears of a leader, and that the logs have nothing in common; returns once it streams.
    pub fn follow(&self) {
        self.follow_from(EPOCH, Position(0));
    }

    /// Hears of the leader of an epoch, whose log is the same up to a position; returns the session once it streams.
    pub fn follow_from(&self, epoch: u64, equal_until: Position) -> u64 {
        self.hear(Message::Beat { epoch, high_watermark: 0, sent: 1, session: 0 }, &[]);
        let session = self.said(|frame| match frame {
            Frame::Message { message: Message::Hello { session, epoch: of, .. }, .. } => {
                (of == epoch).then_some(session)
            }
            _ => None,
        });
        let equal_until = equal_until.0;
        self.hear(Message::Welcome { epoch, session, equal_until, high_watermark: 0 }, &[]);
        session
    }

    /// Takes all records of a leader's log.
    pub fn take(&self, log: &mut Log) {
        self.take_after(EPOCH, log, Position(0), Position(0));
    }

    /// Takes the records of an epoch after a position, and hears how far they are committed.
    pub fn take_after(&self, epoch: u64, log: &mut Log, after: Position, high_watermark: Position) {
        let until = log.end();
        let records = log.begin_records(after, until).unwrap().unwrap().perform(1 << 20).unwrap().unwrap();
        let (after, until, high_watermark) = (after.0, until.0, high_watermark.0);
        self.hear(Message::Append { epoch, after, until, of: epoch, high_watermark }, &records.bytes);
        self.said(|frame| match frame {
            Frame::Message { message: Message::Acknowledge { position, .. }, .. } => (position == until).then_some(()),
            _ => None,
        });
    }

    /// Hears how far the log is committed.
    pub fn hear_committed(&self, epoch: u64, session: u64, high_watermark: Position) {
        self.hear(Message::Beat { epoch, high_watermark: high_watermark.0, sent: 1, session }, &[]);
    }

    pub fn fetch(&self, source: &mut CopySource) {
        self.shard.copy(LEADER, &source.offer()).unwrap();
        while let Some(Next::Message(frame)) = self.shared.outboxes.next(LEADER) {
            if let Frame::Copy { message, .. } = decode(&frame).unwrap()
                && let Some(part) = source.read(&message).unwrap()
            {
                self.shard.copy(LEADER, &part).unwrap();
            }
        }
    }

    pub fn end(&self) -> Position {
        self.shard.standing().unwrap().end
    }
}

/// The log of a leader of an epoch, with its first record.
pub(crate) fn log_of(directory: &Path) -> Log {
    let options = LogOptions { log_id: Some(ID), is_bounded: true, ..LogOptions::default() };
    let mut log = Log::open(directory, options).unwrap().log;
    log.follow_epoch(EPOCH, 0, Begun::default()).unwrap();
    log.write().unwrap();
    log
}

/// A leader's log, and a copy of it as it was before its last message.
pub(crate) fn leader(directory: &Path) -> (Log, CopySource) {
    let mut log = log_of(directory);
    append(&mut log, 1, BODY);
    let source = CopySource::open(7, log.begin_backup().unwrap()).unwrap();
    append(&mut log, 2, BODY);
    (log, source)
}

/// Appends a message of a queue; returns the position after it.
pub(crate) fn append(log: &mut Log, sequence: u64, body: &[u8]) -> Position {
    let payload = Payload::new(b"", b"", b"", body).unwrap();
    log.append_message(&payload, sequence, &[Target { queue: QUEUE, sequence: Sequence(sequence) }]).unwrap();
    let end = log.write().unwrap();
    log.set_bound(end).unwrap();
    end
}
