//! A replica that is alone in sync, in one thread, and a broker that asks it for records.
#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use penstock_log::{Log, LogError, LogOptions, Outcome as LogOutcome, Payload, Position, Target};
use penstock_queue::{QueueId, Sequence, SequenceRange};
use penstock_replica::{Epochs, Leader, Message, Outcome, Role, Settings, ShardRecord, Version};
use penstock_replication::{Input, Now, OpenError, Options, Output, ReplicatedLog};

const LOG_ID: [u8; 16] = [9; 16];
pub const ME: (u64, u128) = (1, 77);
pub const OTHER: (u64, u128) = (2, 88);
const BYTES_MAX: usize = 256 << 10;
const SESSION: u64 = 1;

/// A replica that is alone in sync, with a disk and a coordinator that answer at once.
pub struct Alone {
    pub replicated: ReplicatedLog,
    pub record: ShardRecord,
    pub version: u64,
    pub now: Now,
    /// The outputs so far, among them the messages to the other broker.
    pub seen: Vec<Output>,
}

pub fn record() -> ShardRecord {
    ShardRecord {
        epoch: 0,
        leader: Leader { broker: ME.0, replica: ME.1, boot: 0 },
        in_sync: BTreeSet::from([ME.1]),
        replicas: BTreeMap::from([(ME.1, ME.0), (OTHER.1, OTHER.0)]),
        min_in_sync: 1,
    }
}

impl Alone {
    /// Opens it.
    pub fn open(directory: &Path, boot: u64, record: ShardRecord, version: u64) -> Result<Alone, OpenError> {
        let log = LogOptions { segment_bytes_min: 4096, segment_bytes_max: 8192, ..LogOptions::default() };
        let (broker, new_replica) = ME;
        let options = Options { broker, boot, new_replica, log_id: LOG_ID, log, settings: Settings::default() };
        let now = Now { millis: 1, unix_ms: 1 };
        let (replicated, _) = ReplicatedLog::open(directory, options, now)?;
        Ok(Alone { replicated, record, version, now, seen: Vec::new() })
    }

    /// Opens it and lets it lead.
    pub fn start(directory: &Path, boot: u64, record: ShardRecord, version: u64) -> Alone {
        let mut alone = Alone::open(directory, boot, record, version).unwrap();
        for _ in 0..200 {
            alone.now.millis += 100;
            alone.step(Input::Tick);
            if matches!(alone.replicated.role(), Role::Leader { appends: true, .. }) {
                return alone;
            }
        }
        panic!("it does not lead: {:?}", alone.replicated.role());
    }

    fn step(&mut self, input: Input) {
        let mut waiting = VecDeque::from([input]);
        while let Some(input) = waiting.pop_front() {
            let outputs = self.replicated.step(self.now, input);
            self.take(outputs, &mut waiting);
        }
    }

    fn take(&mut self, outputs: Vec<Output>, waiting: &mut VecDeque<Input>) {
        for output in outputs {
            match output {
                Output::Work(work) => waiting.push_back(Input::Done(work.perform())),
                Output::Read(read) => {
                    let record = Some((self.record.clone(), Version(self.version)));
                    waiting.push_back(Input::Read { read: Some(read), record });
                }
                Output::Change { change, record, .. } => {
                    (self.record, self.version) = (record, self.version + 1);
                    waiting.push_back(Input::Answered { change, outcome: Outcome::Changed(Version(self.version)) });
                }
                Output::Failed(error) => panic!("{error}"),
                other => self.seen.push(other),
            }
        }
    }

    /// Appends a message for a queue, whose sequence follows from its position.
    pub fn append(&mut self, body: &[u8], queue: u64) {
        self.append_by(|log| {
            let target = Target { queue: QueueId(queue), sequence: Sequence(log.end().0 + 1) };
            log.append_message(&Payload::new(b"", b"", b"", body)?, 1, &[target])
        });
    }

    /// Settles all messages of a queue.
    pub fn settle(&mut self, queue: u64) {
        self.append_by(|log| {
            let ranges: Vec<_> = SequenceRange::new(Sequence::FIRST, Sequence(log.end().0)).into_iter().collect();
            log.append_settle(QueueId(queue), LogOutcome::Ack, 0, 0, &ranges)
        });
    }

    pub fn append_by(&mut self, append: impl FnOnce(&mut Log) -> Result<Position, LogError>) {
        self.replicated.append(1, append).unwrap();
        let outputs = self.replicated.flush(self.now);
        let mut waiting = VecDeque::new();
        self.take(outputs, &mut waiting);
        waiting.into_iter().for_each(|input| self.step(input));
    }

    pub fn fold(&mut self) {
        while let Some(ticket) = self.replicated.log().begin_fold() {
            let folded = ticket.perform().unwrap();
            self.replicated.log().finish_fold(folded).perform().unwrap();
        }
    }

    pub fn hear(&mut self, message: Message) {
        self.step(Input::Message { from: OTHER.0, message, records: None });
    }

    /// Sends records to the other replica as often as some are asked for; returns up to where it got them, and whether it lacks some.
    pub fn ship(&mut self) -> (u64, bool) {
        let epoch = self.record.epoch;
        self.hear(Message::Hello { epoch, replica: OTHER.1, session: SESSION, epochs: Epochs::default(), end: 0 });
        self.hear(Message::Acknowledge { epoch, replica: OTHER.1, session: SESSION, position: 0 });
        let mut reached = 0;
        loop {
            let outputs = std::mem::take(&mut self.seen);
            if outputs.iter().any(|output| matches!(output, Output::Lacks { .. })) {
                return (reached, true);
            }
            if !outputs.iter().any(|output| matches!(output, Output::Records { .. })) {
                return (reached, false);
            }
            let mut waiting = VecDeque::new();
            let (shipment, outputs) = self.replicated.begin_shipment(OTHER.1);
            self.take(outputs, &mut waiting);
            if let Some(shipment) = shipment {
                let (sent, outputs) = self.replicated.finish_shipment(self.now, shipment.perform(BYTES_MAX));
                self.take(outputs, &mut waiting);
                if let Some(Message::Append { after, until, .. }) = sent.map(|sent| sent.message) {
                    assert_eq!(after, reached, "in order");
                    reached = until;
                }
            }
            waiting.into_iter().for_each(|input| self.step(input));
        }
    }
}
