//! A publish stream: read what has arrived, store it as one batch, answer with ranges.
//!
//! The stream of responses drives everything: it is polled only while the client reads confirms, so a client that does not
//! is not read from either, and what it sent is not stored either. What came is stored round by round, others get their turn
//! between two rounds, and a few rounds share a response. Confirms of level `disk` wait for the shard's sync while reading goes on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::FutureExt;
use penstock_engine::{EngineError, Fate, Level, Metric, Places, ProducerSession, Publication, Shard};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::sleep;
use tonic::{Status, Streaming};

use crate::grpc::gather::{Blocks, Bounds, Limits, Obstacle, Round, Unknown, convert_properties, gather, unknown_keys};
use crate::grpc::outcomes::Outcomes;
use crate::grpc::requests::Requests;
use crate::grpc::responses::{FramedMessage, Responder};
use crate::grpc::status;
use crate::host::caller::Caller;
use crate::host::calls::Calls;
use crate::host::permits::{Asker, Permits};
use crate::host::quotas::Allowance;
use crate::host::refusal::Refusal;
use crate::host::rights::Rights;
use crate::host::stalls::{at, until_free, when_free};
use crate::host::stopping::until_stopped;

/// At most this many requests or bytes are taken in before they are stored.
const REQUESTS_MAX: usize = 512;
const REQUESTS_BYTES_MAX: usize = 1 << 20;

/// So many rounds share a response while more was sent than they store: one for each wakes the client too often.
const ROUNDS_ANSWERED_AT_ONCE: u32 = 8;

pub(crate) struct PublishStream {
    input: Streaming<Bytes>,
    calls: Arc<Calls>,
    caller: Caller,
    stopping: watch::Receiver<bool>,
    rights: Rights,
    shard: Arc<Shard>,
    level: Option<Level>,
    producer: Option<ProducerSession>,
    user: String,
    message_bytes_max: usize,
    allowance: Allowance,
    next_number: u64,
    permits: Permits,
    outcomes: Outcomes,
    /// Rounds that were stored since the last response.
    unanswered: u32,
    rounds: Rounds,
    /// What came and is not stored yet. More is read once it is empty.
    requests: Requests,
    bounds: Bounds,
    blocks: Blocks,
    /// Whether any message of this stream had properties: then they are converted before the messages are gathered.
    has_properties: bool,
    fates: Vec<Fate>,
    /// The lowest sequence of the last round that its producer may not write: what the producer sends behind it is held back.
    denied: Option<u64>,
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
    /// Who publishes.
    pub user: String,
    pub message_bytes_max: usize,
}

/// What a stream waits for.
enum Event {
    Frame(Result<Option<Bytes>, Status>),
    Synced(Result<(), EngineError>),
    Stopping,
    Refused(Refusal),
    /// A pause is over.
    Resumed,
}

impl PublishStream {
    pub fn new(
        input: Streaming<Bytes>,
        calls: Arc<Calls>,
        caller: Caller,
        stopping: watch::Receiver<bool>,
        opened: Opened,
    ) -> PublishStream {
        let Opened { rights, shard, allowance, level, producer, user, message_bytes_max } = opened;
        PublishStream {
            input,
            calls,
            caller,
            stopping,
            rights,
            shard,
            level,
            producer,
            user,
            message_bytes_max,
            allowance,
            next_number: 1,
            permits: Permits::default(),
            outcomes: Outcomes::default(),
            unanswered: 0,
            rounds: Rounds::default(),
            requests: Requests::default(),
            bounds: Bounds::widest(),
            blocks: Blocks::default(),
            has_properties: false,
            fates: Vec::new(),
            denied: None,
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
            if self.is_answer_due()
                && let Some((response, confirmed_count)) = self.outcomes.take()
            {
                self.unanswered = 0;
                self.shard.counters().add(Metric::Confirmed, confirmed_count);
                return Some(Ok(response));
            }
            let waits = self.outcomes.next_round().is_some();
            if !waits && self.requests.is_empty() {
                if let Some(failed) = self.failed.take() {
                    self.input_ended = true;
                    return Some(Err(failed));
                }
                if self.input_ended {
                    return None;
                }
            }
            let may_store = !self.requests.is_empty() && !self.outcomes.is_crowded();
            let advanced = if may_store { self.store_round().await } else { self.advance(waits).await };
            if let Err(failed) = advanced {
                self.requests.clear();
                self.failed.get_or_insert(failed);
                if waits && self.shard.is_closed() {
                    self.outcomes = Outcomes::default();
                }
            }
        }
    }
}

impl PublishStream {
    fn is_answer_due(&self) -> bool {
        let is_long_ago = self.unanswered >= ROUNDS_ANSWERED_AT_ONCE;
        is_long_ago || self.requests.is_empty() || self.outcomes.is_crowded()
    }

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
            Event::Refused(refused) => Err(refused.into()),
        }
    }

    async fn receive(&mut self, first: Result<Option<Bytes>, Status>) -> Result<(), Status> {
        let mut next = Some(first);
        let (mut count, mut bytes) = (0, 0);
        while let Some(frame) = next {
            match frame {
                Ok(Some(frame)) => {
                    count += 1;
                    bytes += frame.len();
                    if let Err(failed) = self.requests.push(frame) {
                        self.failed.get_or_insert(failed);
                    }
                }
                Ok(None) => self.input_ended = true,
                Err(failed) => {
                    self.failed.get_or_insert(failed);
                }
            }
            let full = bytes >= REQUESTS_BYTES_MAX || count >= REQUESTS_MAX;
            if full || self.input_ended || self.failed.is_some() {
                break;
            }
            next = self.input.message().now_or_never();
        }
        Ok(())
    }

    /// Stores a round of what came, asking for each exchange that is written for the first time, and for its routing keys.
    async fn store_round(&mut self) -> Result<(), Status> {
        if let Some(refused) = self.rights.refused() {
            return Err(refused.into());
        }
        self.permits.begin_round();
        loop {
            until_free(&self.shard).await;
            let last_change = self.calls.last_change(&self.caller);
            let generation = || self.calls.generation(&self.caller, &self.user, self.shard.name());
            self.permits.refresh(last_change, generation);
            match self.store() {
                Ok(()) => break,
                Err(Obstacle::Malformed(failed)) => return Err(failed.into()),
                Err(Obstacle::Unknown(unknown)) => self.ask(unknown).await?,
                Err(Obstacle::Properties) => self.has_properties = true,
            }
        }
        if let (Some(sequence), Some(producer)) = (self.denied.take(), &self.producer) {
            let told = when_free(&self.shard, || self.shard.refuse(producer, sequence)).await;
            told.map_err(|error| status::of_engine(&error))?;
        }
        if !self.requests.is_empty() {
            yield_now().await;
        }
        Ok(())
    }

    /// What a round needs to know before it can be gathered.
    async fn ask(&mut self, unknown: Unknown) -> Result<(), Refusal> {
        let asker = Asker { calls: &self.calls, caller: &self.caller, user: &self.user, vhost: self.shard.name() };
        match unknown {
            Unknown::Exchange(exchange) => asker.exchange(&mut self.permits, exchange).await,
            Unknown::Impersonation => asker.impersonation(&mut self.permits).await,
            Unknown::Keys(exchange) => {
                let keys = unknown_keys(&self.requests, self.bounds, &mut self.permits, &exchange)?;
                asker.keys(&mut self.permits, &exchange, &keys).await
            }
        }
    }

    fn store(&mut self) -> Result<(), Obstacle> {
        if self.has_properties {
            convert_properties(&self.requests, self.bounds, &mut self.blocks)?;
        }
        let blocks = self.has_properties.then_some(&self.blocks);
        let (message_bytes_max, whose) = self.allowance.message_bytes_max(self.message_bytes_max);
        let limits = Limits { message_bytes_max, whose, producer: self.producer.as_ref(), user: self.user.as_bytes() };
        let round = gather(&self.requests, self.bounds, &mut self.permits, blocks, limits)?;
        self.fates.clear();
        let producer = self.producer.as_ref();
        let (shard, level, fates) = (&self.shard, self.level, &mut self.fates);
        let published = at(shard, || shard.publish_round(producer, &round.batch, level, now_ms(), fates));
        let mut published = published.map_err(Refusal::from)?;
        let refused = published.refused.take();
        let stored = if refused.is_some() { round.batch.len() } else { self.fates.len() };
        self.bounds.follow(stored, round.batch.len());
        let (count, end) = round.until(stored, &self.requests);
        self.denied = round.lowest_denied(count);
        let places = published.places(&self.shard);
        let number_of_round = self.rounds.next();
        let waits_on = (!places.are_synced()).then_some(number_of_round);
        let answers = Answers { first_number: self.next_number, waits_on, refused };
        let returned_before = self.outcomes.returned_count();
        answers.give(&mut self.outcomes, &round, count, &self.fates);
        self.unanswered = self.unanswered.saturating_add(1);
        self.next_number += count as u64;
        let bytes = self.requests.advance(end);
        let waits_for = (self.outcomes.last_round() == Some(number_of_round)).then_some(number_of_round);
        self.allowance.published(count as u64, bytes as u64, waits_for);
        self.shard.counters().add(Metric::Returned, self.outcomes.returned_count() - returned_before);
        if waits_for.is_some() {
            places.request_sync();
            self.rounds.push(places);
        }
        Ok(())
    }
}

/// What became of a round's messages, by the numbers that the client counts.
struct Answers {
    first_number: u64,
    /// The number of the round, unless all of it is on the disk.
    waits_on: Option<u64>,
    /// Why messages that found no room were not stored.
    refused: Option<EngineError>,
}

impl Answers {
    fn give(&self, outcomes: &mut Outcomes, round: &Round<'_>, count: usize, fates: &[Fate]) {
        let (mut denied, mut fates) = (round.denied.iter().peekable(), fates.iter());
        let mut publications = round.batch.iter();
        for (index, number) in (0..count).zip(self.first_number..) {
            if let Some((_, _, denial)) = denied.next_if(|(at, _, _)| *at == index) {
                outcomes.reject(number, denial);
                continue;
            }
            let publication = publications.next();
            match (fates.next(), self.waits_on) {
                (Some(Fate::Stored(Level::Disk)), Some(waits_on)) => outcomes.wait(number, waits_on),
                (Some(Fate::Stored(_) | Fate::Unroutable), _) => outcomes.confirm(number),
                (Some(Fate::Returned), _) => outcomes.give_back(number),
                (Some(Fate::NoExchange), _) => outcomes.reject(number, &no_exchange(publication)),
                (Some(fate @ (Fate::Behind(_) | Fate::Shut)), _) => {
                    outcomes.reject(number, &not_stored(fate.held_back().as_ref()));
                }
                (Some(Fate::Full) | None, _) => outcomes.reject(number, &not_stored(self.refused.as_ref())),
            }
        }
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

fn not_stored(refused: Option<&EngineError>) -> Refusal {
    refused.map_or_else(|| Refusal::bug("the message was not stored"), Refusal::from)
}

fn no_exchange(publication: Option<&Publication<'_>>) -> Refusal {
    let name = String::from_utf8_lossy(publication.map_or(b"", |publication| publication.exchange));
    Refusal::not_found(format!("exchange '{name}' is not there; declare it first"))
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
