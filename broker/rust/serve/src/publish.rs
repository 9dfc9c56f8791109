//! A publish stream: read what has arrived, store it as one batch, answer with ranges.
//!
//! The stream of responses drives everything: it is polled only while the client reads confirms, so a client that does not
//! is not read from either. Confirms of level `disk` wait for the shard's sync while reading goes on.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::FutureExt;
use penstock_engine::{
    EngineError, Fate, Level, Metric, Payload, Places, Producer, ProducerSession, Publication, Shard,
};
use penstock_wire::WireError;
use penstock_wire::amqp::properties::{PERSISTENT_ONLY, delivery_mode_of, headers_of, properties_to_amqp};
use penstock_wire::grpc::publish::{MessageRef, PublishFrame, parse_publish};
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::{Status, Streaming};

use crate::calls::Calls;
use crate::connection::Caller;
use crate::outcomes::Outcomes;
use crate::permits::{Asker, Denial, Permits, Verdict, key_denial};
use crate::quotas::Allowance;
use crate::responses::{FramedMessage, Responder};
use crate::rights::Rights;
use crate::server::until_stopped;
use crate::status;

/// One round stores at most this many requests or bytes, so that confirms and other streams get their turn.
const ROUND_FRAMES_MAX: usize = 512;
const ROUND_BYTES_MAX: usize = 1 << 20;

/// AMQP's delivery mode of messages that ask to survive.
const PERSISTENT: u8 = 2;

pub(crate) struct PublishStream {
    input: Streaming<Bytes>,
    calls: Arc<Calls>,
    caller: Caller,
    stopping: watch::Receiver<bool>,
    rights: Rights,
    shard: Arc<Shard>,
    level: Option<Level>,
    producer: Option<ProducerSession>,
    message_bytes_max: usize,
    allowance: Allowance,
    next_number: u64,
    permits: Permits,
    outcomes: Outcomes,
    rounds: Rounds,
    frames: Vec<Bytes>,
    blocks: Blocks,
    /// Whether any message of this stream had properties: then they are converted before the messages are gathered.
    has_properties: bool,
    fates: Vec<Fate>,
    input_ended: bool,
    failed: Option<Status>,
}

/// What was decided when the stream opened.
pub(crate) struct Opened {
    pub rights: Rights,
    pub shard: Arc<Shard>,
    pub allowance: Allowance,
    pub level: Option<Level>,
    pub producer: Option<ProducerSession>,
    pub message_bytes_max: usize,
}

/// What a stream waits for.
enum Event {
    Frame(Result<Option<Bytes>, Status>),
    Synced(Result<(), EngineError>),
    Stopping,
    Refused(Status),
    /// A pause is over.
    Resumed,
}

/// The messages of a round: those to store, and those that are denied by their place among all.
#[derive(Default)]
struct Round<'a> {
    batch: Vec<Publication<'a>>,
    denied: Vec<(usize, Denial)>,
    count: usize,
}

/// The properties of a round's messages as AMQP blocks, in the order of the messages that have any.
#[derive(Default)]
struct Blocks {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Blocks {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let start = index.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.bytes.get(start..*self.ends.get(index)?)
    }
}

/// What has to be asked for.
enum Unknown {
    Exchange(Vec<u8>),
    /// Routing keys of this exchange.
    Keys(Vec<u8>),
}

/// Why a round could not be gathered.
enum Obstacle {
    /// Something that has to be asked for.
    Unknown(Unknown),
    /// A message with properties, on a stream that had none before.
    Properties,
    Malformed(Status),
}

impl From<WireError> for Obstacle {
    fn from(error: WireError) -> Obstacle {
        Obstacle::Malformed(status::of_wire(&error))
    }
}

impl PublishStream {
    pub fn new(
        input: Streaming<Bytes>,
        calls: Arc<Calls>,
        caller: Caller,
        stopping: watch::Receiver<bool>,
        opened: Opened,
    ) -> PublishStream {
        let Opened { rights, shard, allowance, level, producer, message_bytes_max } = opened;
        PublishStream {
            input,
            calls,
            caller,
            stopping,
            rights,
            shard,
            level,
            producer,
            message_bytes_max,
            allowance,
            next_number: 1,
            permits: Permits::default(),
            outcomes: Outcomes::default(),
            rounds: Rounds::default(),
            frames: Vec::new(),
            blocks: Blocks::default(),
            has_properties: false,
            fates: Vec::new(),
            input_ended: false,
            failed: None,
        }
    }
}

impl Responder for PublishStream {
    async fn step(&mut self) -> Option<Result<FramedMessage, Status>> {
        loop {
            let synced = self.rounds.synced();
            self.outcomes.synced(synced);
            self.allowance.synced(synced);
            if let Some((response, confirmed_count)) = self.outcomes.take() {
                self.shard.counters().add(Metric::Confirmed, confirmed_count);
                return Some(Ok(response));
            }
            let waits = self.outcomes.next_round().is_some();
            if !waits {
                if let Some(failed) = self.failed.take() {
                    self.input_ended = true;
                    return Some(Err(failed));
                }
                if self.input_ended {
                    return None;
                }
            }
            if let Err(failed) = self.advance(waits).await {
                self.failed.get_or_insert(failed);
                if waits && self.shard.is_closed() {
                    self.outcomes = Outcomes::default();
                }
            }
        }
    }
}

impl PublishStream {
    /// Waits for the first of: more messages (unless it is paused), a sync, the broker's stop.
    async fn advance(&mut self, waits: bool) -> Result<(), Status> {
        let may_read = !self.input_ended && self.failed.is_none() && !self.outcomes.is_crowded();
        let pause = if may_read { self.allowance.publish_pause() } else { None };
        let reads = may_read && pause.is_none();
        let oldest = self.rounds.oldest().filter(|_| waits).cloned();
        let synced = async {
            match &oldest {
                Some(places) => places.wait().await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            biased;
            frame = self.input.message(), if reads => Event::Frame(frame),
            result = synced => Event::Synced(result),
            () = until_stopped(&mut self.stopping), if may_read => Event::Stopping,
            refused = self.rights.until_refused(), if may_read => Event::Refused(refused),
            () = sleep(pause.unwrap_or_default()), if pause.is_some() => Event::Resumed,
        };
        match event {
            Event::Frame(frame) => self.receive(frame).await,
            Event::Synced(Ok(())) | Event::Resumed => Ok(()),
            Event::Synced(Err(error)) => {
                self.outcomes = Outcomes::default();
                Err(status::of_engine(&error))
            }
            Event::Stopping => Err(status::stopping()),
            Event::Refused(refused) => Err(refused),
        }
    }

    async fn receive(&mut self, first: Result<Option<Bytes>, Status>) -> Result<(), Status> {
        self.frames.clear();
        let mut next = Some(first);
        let mut bytes = 0;
        while let Some(frame) = next {
            match frame {
                Ok(Some(frame)) => {
                    bytes += frame.len();
                    self.frames.push(frame);
                }
                Ok(None) => self.input_ended = true,
                Err(failed) => {
                    self.failed.get_or_insert(failed);
                }
            }
            let full = bytes >= ROUND_BYTES_MAX || self.frames.len() >= ROUND_FRAMES_MAX;
            if full || self.input_ended || self.failed.is_some() {
                break;
            }
            next = self.input.message().now_or_never();
        }
        let frames = std::mem::take(&mut self.frames);
        let stored = self.store_admitted(&frames).await;
        self.frames = frames;
        stored
    }

    /// Stores a round, asking for each exchange that is written for the first time, and for its routing keys.
    async fn store_admitted(&mut self, frames: &[Bytes]) -> Result<(), Status> {
        self.permits.begin_round();
        loop {
            self.permits.refresh(self.calls.generation());
            match self.store(frames) {
                Ok(()) => return Ok(()),
                Err(Obstacle::Malformed(failed)) => return Err(failed),
                Err(Obstacle::Unknown(unknown)) => self.ask(frames, unknown).await?,
                Err(Obstacle::Properties) => self.has_properties = true,
            }
        }
    }

    /// What a round needs to know before it can be gathered.
    async fn ask(&mut self, frames: &[Bytes], unknown: Unknown) -> Result<(), Status> {
        let asker = Asker { calls: &self.calls, caller: &self.caller, vhost: self.shard.name() };
        match unknown {
            Unknown::Exchange(exchange) => asker.exchange(&mut self.permits, exchange).await,
            Unknown::Keys(exchange) => {
                let keys = unknown_keys(frames, &mut self.permits, &exchange)?;
                asker.keys(&mut self.permits, &exchange, &keys).await
            }
        }
    }

    fn store(&mut self, frames: &[Bytes]) -> Result<(), Obstacle> {
        self.blocks.clear();
        if self.has_properties {
            convert_properties(frames, &mut self.blocks)?;
        }
        let blocks = self.has_properties.then_some(&self.blocks);
        let (message_bytes_max, whose) = self.allowance.message_bytes_max(self.message_bytes_max);
        let limits = Limits { message_bytes_max, whose, producer: self.producer.as_ref() };
        let round = gather(frames, &mut self.permits, blocks, limits)?;
        self.fates.clear();
        let producer = self.producer.as_ref();
        let published = self.shard.publish_as(producer, &round.batch, self.level, now_ms(), &mut self.fates);
        let mut published = published.map_err(|error| Obstacle::Malformed(status::of_engine(&error)))?;
        let Round { batch, denied, count } = round;
        let refused = published.refused.take();
        let places = published.places(&self.shard);
        let are_synced = places.are_synced();
        let number_of_round = self.rounds.next();
        let outcomes = &mut self.outcomes;
        let mut waits_for = None;
        let (mut denied, mut fates, mut publications) = (denied.iter().peekable(), self.fates.iter(), batch.iter());
        for (index, number) in (0..count).zip(self.next_number..) {
            if let Some((_, denial)) = denied.next_if(|(at, _)| *at == index) {
                outcomes.reject(number, denial);
                continue;
            }
            let publication = publications.next();
            match fates.next() {
                Some(Fate::Stored(Level::Disk)) if !are_synced => {
                    waits_for = Some(number_of_round);
                    outcomes.wait(number, number_of_round);
                }
                Some(Fate::Stored(_) | Fate::Unroutable) => outcomes.confirm(number),
                Some(Fate::Returned) => outcomes.give_back(number),
                Some(Fate::NoExchange) => outcomes.reject(number, &no_exchange(publication)),
                Some(Fate::SeveralLogs) => outcomes.reject(number, &several_logs()),
                Some(Fate::Behind(refused)) => {
                    outcomes.reject(number, &not_stored(Some(&EngineError::ProducerBehind(*refused))));
                }
                None => outcomes.reject(number, &not_stored(refused.as_ref())),
            }
        }
        self.next_number += count as u64;
        let bytes: usize = frames.iter().map(Bytes::len).sum();
        self.allowance.published(count as u64, bytes as u64, waits_for);
        self.shard.counters().add(Metric::Returned, outcomes.returned_count());
        if outcomes.last_round() == Some(number_of_round) {
            places.request_sync();
            self.rounds.push(places);
        }
        Ok(())
    }
}

/// What rounds wait for that are not on the disk yet, oldest first. A round that does not wait has no place here.
#[derive(Default)]
struct Rounds {
    last: u64,
    waiting: VecDeque<(u64, Places)>,
}

impl Rounds {
    /// The number of the round that is being stored.
    fn next(&self) -> u64 {
        self.last + 1
    }

    fn push(&mut self, places: Places) {
        self.last += 1;
        self.waiting.push_back((self.last, places));
    }

    fn oldest(&self) -> Option<&Places> {
        self.waiting.front().map(|(_, places)| places)
    }

    /// Every round up to this one is on the disk.
    fn synced(&mut self) -> u64 {
        while let Some((round, places)) = self.waiting.front() {
            if !places.are_synced() {
                return round - 1;
            }
            self.waiting.pop_front();
        }
        self.last
    }
}

/// What a stream's messages may be.
#[derive(Clone, Copy)]
struct Limits<'a> {
    message_bytes_max: usize,
    /// Whom that limit was set for, unless it is everybody's.
    whose: Option<&'a str>,
    /// There for messages with sequences.
    producer: Option<&'a ProducerSession>,
}

impl Limits<'_> {
    /// Who published the message at that place of a batch.
    fn producer_of(&self, first_sequence: u64, at: usize) -> Result<Option<Producer>, Obstacle> {
        let malformed = |text: &str| Obstacle::Malformed(Status::invalid_argument(text));
        if first_sequence == 0 {
            return Ok(None);
        }
        let session = self.producer.ok_or_else(|| malformed(UNNAMED))?;
        let sequence =
            first_sequence.checked_add(at as u64).ok_or_else(|| malformed("no sequence is above 2^64 - 1"))?;
        Ok(Some(Producer { id: session.id(), sequence }))
    }
}

const UNNAMED: &str = "a batch with producer_sequence on a stream without a producer; name one in `open`";

/// Reads the messages of a round and looks up their permits. `blocks` has the properties of those that have any.
fn gather<'a>(
    frames: &'a [Bytes],
    permits: &mut Permits,
    blocks: Option<&'a Blocks>,
    limits: Limits<'_>,
) -> Result<Round<'a>, Obstacle> {
    let mut round = Round::default();
    let mut block_index = 0;
    for frame in frames {
        let PublishFrame::Batch(batch) = parse_publish(frame)? else {
            return Err(Obstacle::Malformed(status::opened_twice()));
        };
        round.batch.reserve(batch.message_count);
        for (at, message) in batch.messages().enumerate() {
            let message = message?;
            let block = match message.properties {
                None => None,
                Some(_) => {
                    block_index += 1;
                    Some(blocks.and_then(|blocks| blocks.get(block_index - 1)).ok_or(Obstacle::Properties)?)
                }
            };
            let denial = match permits.look_up(message.exchange, message.routing_key) {
                Verdict::Admitted => too_large(message.body.len(), limits),
                Verdict::Denied(denial) => Some(denial.clone()),
                Verdict::KeyDenied => Some(key_denial(message.exchange, message.routing_key)),
                Verdict::UnknownExchange => {
                    return Err(Obstacle::Unknown(Unknown::Exchange(message.exchange.to_vec())));
                }
                Verdict::UnknownKey => return Err(Obstacle::Unknown(Unknown::Keys(message.exchange.to_vec()))),
            };
            match denial {
                None => {
                    let mut publication = publication(&message, block, batch.mandatory)?;
                    if let Some(producer) = limits.producer_of(batch.producer_sequence, at)? {
                        publication.payload = publication.payload.with_producer(producer);
                    }
                    round.batch.push(publication);
                }
                Some(denial) => round.denied.push((round.count, denial)),
            }
            round.count += 1;
        }
    }
    Ok(round)
}

/// The routing keys that a round's messages have for an exchange and that were not asked for yet, once each.
fn unknown_keys(frames: &[Bytes], permits: &mut Permits, exchange: &[u8]) -> Result<Vec<Vec<u8>>, Status> {
    let mut keys = HashSet::new();
    for frame in frames {
        let parsed = parse_publish(frame).map_err(|error| status::of_wire(&error))?;
        let PublishFrame::Batch(batch) = parsed else { continue };
        for message in batch.messages() {
            let message = message.map_err(|error| status::of_wire(&error))?;
            let (is_here, key) = (message.exchange == exchange, message.routing_key);
            if is_here && !keys.contains(key) && permits.look_up(exchange, key) == Verdict::UnknownKey {
                keys.insert(key.to_vec());
            }
        }
    }
    Ok(keys.into_iter().collect())
}

fn convert_properties(frames: &[Bytes], blocks: &mut Blocks) -> Result<(), Obstacle> {
    for frame in frames {
        let PublishFrame::Batch(batch) = parse_publish(frame)? else { continue };
        for message in batch.messages() {
            if let Some(properties) = message?.properties {
                properties_to_amqp(Some(properties), &mut blocks.bytes)?;
                blocks.ends.push(blocks.bytes.len());
            }
        }
    }
    Ok(())
}

fn publication<'a>(
    message: &MessageRef<'a>,
    block: Option<&'a [u8]>,
    mandatory: bool,
) -> Result<Publication<'a>, Obstacle> {
    let (headers, persistent) = match block {
        Some(block) => (headers_of(block)?, delivery_mode_of(block)? == PERSISTENT),
        None => (None, true),
    };
    let (exchange, key) = (message.exchange, message.routing_key);
    let payload = Payload::new(exchange, key, block.unwrap_or(&PERSISTENT_ONLY), message.body)
        .and_then(|payload| message.key.map_or(Ok(payload), |key| payload.with_key(key)))
        .map_err(|error| Obstacle::Malformed(Status::invalid_argument(error.to_string())))?;
    Ok(Publication { payload, exchange, key, headers, persistent, mandatory })
}

fn too_large(size: usize, limits: Limits<'_>) -> Option<Denial> {
    let max = limits.message_bytes_max;
    let limit = || limits.whose.map_or("message_bytes_max".to_owned(), |whose| format!("max-message-bytes of {whose}"));
    (size > max).then(|| Denial {
        code: tonic::Code::ResourceExhausted as i32,
        reason: format!("a message of {size} bytes is larger than {}, {max}; split it", limit()),
    })
}

fn not_stored(refused: Option<&EngineError>) -> Denial {
    match refused.map(status::of_engine) {
        Some(refused) => Denial { code: refused.code() as i32, reason: refused.message().to_owned() },
        None => Denial { code: tonic::Code::Internal as i32, reason: "the message was not stored".to_owned() },
    }
}

/// Why a named producer's message is refused.
pub(crate) const SEVERAL_LOGS: &str = "a producer's messages must all lie in one log, and this one goes to a queue with a log of \
    its own beside others; use a producer for each such queue";

fn several_logs() -> Denial {
    Denial { code: tonic::Code::FailedPrecondition as i32, reason: SEVERAL_LOGS.to_owned() }
}

fn no_exchange(publication: Option<&Publication<'_>>) -> Denial {
    let name = String::from_utf8_lossy(publication.map_or(b"", |publication| publication.exchange));
    Denial { code: tonic::Code::NotFound as i32, reason: format!("exchange '{name}' is not there; declare it first") }
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
