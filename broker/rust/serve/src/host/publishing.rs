//! A publisher's session: what came is stored round by round, and what became of it is told by the numbers that the publisher
//! counts, from 1 on.
//!
//! What must stay true: a message is confirmed once it is stored at its durability, never before; each number is told once.
//! Others get their turn between two rounds. A caller that polls nothing while its client does not read what it is told bounds
//! what a slow client costs. Messages of durability `disk` wait for the shard's sync while more is stored.

pub(crate) mod committing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_engine::{Attributes, EngineError, Fate, Level, Metric, Places, ProducerSession, Publication, Shard};
use penstock_wire::Name;
use tokio::task::yield_now;

use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::{Call, CallRequest, Calls};
use crate::host::gather::{Bounds, Limits, Obstacle, Round, Source, Unknown, gather, unknown_keys};
use crate::host::outcomes::{Decided, Outcomes};
use crate::host::permits::{Asker, Permits};
use crate::host::quotas::Allowance;
use crate::host::refusal::{Kind, Refusal};
use crate::host::rights::{Question, Rights};
use crate::host::stalls::{at, until_free, when_free};

/// See the module.
pub struct Publishing {
    calls: Arc<Calls>,
    caller: Caller,
    rights: Rights,
    shard: Arc<Shard>,
    level: Option<Level>,
    producer: Option<ProducerSession>,
    /// Who publishes.
    user: String,
    message_bytes_max: usize,
    allowance: Allowance,
    next_number: u64,
    permits: Permits,
    outcomes: Outcomes,
    rounds: Rounds,
    bounds: Bounds,
    /// Whether any message had properties that have to be converted: then they are, before messages are gathered.
    converts: bool,
    fates: Vec<Fate>,
    /// The lowest sequence of the last round that its producer may not write: what the producer sends behind it is held back.
    denied: Option<u64>,
}

impl Publishing {
    /// Asks whether the caller may publish in a virtual host. The durability of messages is that of their properties and queues
    /// when `level` is none; `producer` is a name, or empty.
    ///
    /// # Errors
    /// Why the caller may not.
    pub async fn open(
        broker: &Broker,
        caller: Caller,
        vhost: Name<'_>,
        level: Option<Level>,
        producer: Name<'_>,
    ) -> Result<Publishing, Refusal> {
        let call = Call::new(CallRequest::OpenPublish { vhost: vhost.to_text() }, &caller);
        let mut question = Question::of(&broker.calls, &call);
        let admitted = broker.calls.admit(call).await?;
        let (shard, allowance) = broker.enter(&admitted)?;
        let producer = match producer.to_text().as_str() {
            "" => None,
            name => Some(question.producer_session(&shard, name, (&admitted.user, &admitted.vhost)).await?),
        };
        Ok(Publishing {
            calls: Arc::clone(&broker.calls),
            rights: question.watch(&admitted.user, &admitted.vhost, || ()),
            caller,
            shard,
            level,
            producer,
            user: admitted.user,
            message_bytes_max: broker.message_bytes_max,
            allowance,
            next_number: 1,
            permits: Permits::default(),
            outcomes: Outcomes::default(),
            rounds: Rounds::default(),
            bounds: Bounds::widest(),
            converts: false,
            fates: Vec::new(),
            denied: None,
        })
    }

    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    /// Fails where a confirm says nothing about other disks than the broker's own.
    pub fn require_replicas(&self) -> Result<(), Refusal> {
        require_replicas(&self.shard)
    }

    /// Takes note of what is on the disk by now.
    pub fn note_synced(&mut self) {
        let synced = self.rounds.synced();
        self.outcomes.synced(synced);
        self.allowance.synced(synced);
    }

    /// Hands over what the publisher is to be told, when there is anything.
    pub fn tell<T>(&mut self, tell: impl FnOnce(&Decided) -> T) -> Option<T> {
        let (told, confirmed_count) = self.outcomes.take(tell)?;
        self.shard.counters().add(Metric::Confirmed, confirmed_count);
        Some(told)
    }

    /// Whether messages are stored that are not confirmed yet.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.outcomes.next_round().is_some()
    }

    /// Whether so much waits to be confirmed that nothing more may be stored.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.outcomes.is_crowded()
    }

    /// How long nothing may be read from the publisher; nothing when it may be now.
    pub fn pause(&mut self) -> Option<Duration> {
        self.allowance.publish_pause()
    }

    /// What the oldest message that waits for the disk waits for. When that fails, [`Publishing::forget_waiting`].
    #[must_use]
    pub fn oldest_waiting(&self) -> Option<Places> {
        self.rounds.oldest().filter(|_| self.waits()).cloned()
    }

    /// Tells nothing more of what was stored: it will never be confirmed.
    pub fn forget_waiting(&mut self) {
        self.outcomes = Outcomes::default();
    }

    /// Whether nothing is written any more, so that nothing that waits is confirmed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shard.is_closed()
    }

    /// Counts a message that is not to be stored: it was taken otherwise, or returns to its publisher.
    pub fn pass(&mut self, is_taken: bool) {
        let number = self.next_number;
        self.next_number += 1;
        if is_taken { self.outcomes.confirm(number) } else { self.outcomes.give_back(number) }
    }

    /// Waits until the publisher may not go on.
    pub async fn until_refused(&mut self) -> Refusal {
        self.rights.until_refused().await
    }

    /// Stores a round of what came, asking for each exchange that is written for the first time, and for its routing keys.
    ///
    /// # Errors
    /// What ends the session. What was stored before is still confirmed.
    pub async fn store<S: Source>(&mut self, source: &mut S) -> Result<(), Refusal> {
        if let Some(refused) = self.rights.refused() {
            return Err(refused);
        }
        self.permits.begin_round();
        loop {
            until_free(&self.shard).await;
            let last_change = self.calls.last_change(&self.caller);
            let generation = || self.calls.generation(&self.caller, &self.user, self.shard.name());
            self.permits.refresh(last_change, generation);
            match self.store_round(source) {
                Ok(()) => break,
                Err(Obstacle::Malformed(refused)) => return Err(refused),
                Err(Obstacle::Unknown(unknown)) => self.ask(source, self.bounds, unknown).await?,
                Err(Obstacle::Properties) => self.converts = true,
            }
        }
        if let (Some(sequence), Some(producer)) = (self.denied.take(), &self.producer) {
            when_free(&self.shard, || self.shard.refuse(producer, sequence)).await?;
        }
        if !source.is_empty() {
            yield_now().await;
        }
        Ok(())
    }

    /// What a round needs to know before it can be gathered.
    async fn ask<S: Source>(&mut self, source: &S, bounds: Bounds, unknown: Unknown) -> Result<(), Refusal> {
        let asker = Asker { calls: &self.calls, caller: &self.caller, user: &self.user, vhost: self.shard.name() };
        match unknown {
            Unknown::Exchange(exchange) => asker.exchange(&mut self.permits, exchange).await,
            Unknown::Impersonation => asker.impersonation(&mut self.permits).await,
            Unknown::Keys(exchange) => {
                let keys = unknown_keys(source, bounds, &mut self.permits, &exchange)?;
                asker.keys(&mut self.permits, &exchange, &keys).await
            }
        }
    }

    /// Reads the messages of a round, as they are stored at this time.
    fn gather_round<'a, S: Source>(
        &mut self,
        source: &'a S,
        bounds: Bounds,
        beside: &'a mut Beside,
        now_ms: u64,
    ) -> Result<Round<'a, S::End>, Obstacle> {
        let (message_bytes_max, whose) = self.allowance.message_bytes_max(self.message_bytes_max);
        let limits = Limits { message_bytes_max, whose, producer: self.producer.as_ref(), user: self.user.as_bytes() };
        let mut round = gather(source, bounds, &mut self.permits, limits)?;
        for (place, delay_ms) in std::mem::take(&mut round.delays) {
            if round.batch.get(place).is_some_and(|publication| self.shard.is_delayed(publication)) {
                round.delay(place, delay_ms)?;
            }
        }
        *beside = Beside { rewritten: std::mem::take(&mut round.rewritten), attributes: round.attributes(now_ms) };
        round.set_properties(&beside.rewritten)?;
        round.set_times(&beside.attributes);
        Ok(round)
    }

    fn store_round<S: Source>(&mut self, source: &mut S) -> Result<(), Obstacle> {
        if self.converts {
            source.convert_properties(self.bounds.messages)?;
        }
        let (now_ms, mut beside) = (now_ms(), Beside::default());
        let round = self.gather_round(source, self.bounds, &mut beside, now_ms)?;
        self.fates.clear();
        let producer = self.producer.as_ref();
        let (shard, level, fates) = (&self.shard, self.level, &mut self.fates);
        let published = at(shard, || shard.publish_round(producer, &round.batch, level, now_ms, fates));
        let mut published = published.map_err(Refusal::from)?;
        let refused = published.refused.take();
        let stored = if refused.is_some() { round.batch.len() } else { self.fates.len() };
        self.bounds.follow(stored, round.batch.len());
        let (count, end) = round.until(stored, source);
        self.denied = round.lowest_denied(count);
        let places = published.places(&self.shard);
        let number_of_round = self.rounds.next();
        let waits_on = (!places.are_synced()).then_some(number_of_round);
        let answers = Answers { first_number: self.next_number, waits_on, refused };
        let returned_before = self.outcomes.returned_count();
        answers.give(&mut self.outcomes, &round, count, &self.fates);
        self.next_number += count as u64;
        let bytes = source.advance(end);
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

/// Values of a round's messages that did not come with them.
#[derive(Default)]
struct Beside {
    rewritten: Vec<(usize, Vec<u8>)>,
    attributes: Vec<Attributes>,
}

/// What became of a round's messages, by the numbers that the publisher counts.
struct Answers {
    first_number: u64,
    /// The number of the round, unless all of it is on the disk.
    waits_on: Option<u64>,
    /// Why messages that found no room were not stored.
    refused: Option<EngineError>,
}

impl Answers {
    fn give<End>(&self, outcomes: &mut Outcomes, round: &Round<'_, End>, count: usize, fates: &[Fate]) {
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
                (Some(fate @ (Fate::Behind(_) | Fate::Shut | Fate::Overflow)), _) => {
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

/// Fails where a virtual host has no replicas.
pub(crate) fn require_replicas(shard: &Shard) -> Result<(), Refusal> {
    if shard.is_replicated() {
        return Ok(());
    }
    let text = "the durability `replicated` is for virtual hosts of a cluster; use `disk`";
    Err(Refusal::new(Kind::PreconditionFailed, text))
}
