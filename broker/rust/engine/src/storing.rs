//! Storing a batch in one log: route each message, append one record that names its queues, advance the queues, write
//! once, wake consumers after the lock is released.

use penstock_log::{Position, Target};
use penstock_queue::QueueId;
use penstock_wire::is_same;

use crate::assigned::{assign, assign_all};
use crate::counters::Metric;
use crate::error::EngineError;
use crate::level::{Level, QueueLevels};
use crate::places::{Places, Published};
use crate::producer_logs::{LogNumber, Logs};
use crate::producers::{Before, ProducerSession};
use crate::publication::{Fate, PassedOn, Publication};
use crate::shard::Shard;
use crate::state::State;

/// The most messages stored in one hold of the lock, also bounded by targets, so that others of the vhost do not wait
/// longer.
pub const MESSAGES_AT_ONCE: usize = 1024;
const TARGETS_AT_ONCE: usize = 1024;

/// A batch as passed to a shard.
#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    pub producer: Option<&'a ProducerSession>,
    pub batch: &'a [Publication<'a>],
    pub level: Option<Level>,
    pub now_ms: u64,
    /// Whether the publisher asked for the sequences of its messages.
    pub with_sequences: bool,
}

/// Result of one hold of the lock.
pub(crate) struct Round {
    pub published: Published,
    /// Messages that belong in other logs.
    pub passed: Vec<PassedOn>,
    /// The logs of the producer, when its messages are not in this one alone.
    pub logs: Option<Logs>,
    /// Whether it has messages that all logs of their producer have.
    pub has_repeats: bool,
}

impl Shard {
    /// Stores as many of the first messages as fit one hold of the lock: those with an entry in `fates`, at least one
    /// unless it was refused.
    pub(crate) fn store_round(
        &self,
        Sent { producer, batch, level, now_ms, with_sequences }: Sent<'_>,
        fates: &mut Vec<Fate>,
    ) -> Result<Round, EngineError> {
        let base = fates.len();
        let (round, stored, has_sealed, room) = {
            let mut guard = self.lock()?;
            let state = &mut *guard;
            state.check(self.name())?;
            producer.map_or(Ok(()), ProducerSession::check)?;
            state.stored_at_ms = state.stored_at_ms.max(now_ms);
            let full = self.is_full().then(|| self.full());
            let was_full = full.is_some();
            state.assigned = with_sequences.then(Vec::new);
            let (stored, refused) = state.store_all(batch, level, full, fates)?;
            let ran_out = !was_full && refused.as_ref().is_some_and(EngineError::is_full);
            let room = ran_out.then(|| state.log.room());
            state.write()?;
            state.wake_touched();
            let passed = std::mem::take(&mut state.passed_on);
            let is_all_elsewhere = stored.elsewhere_count > 0 && stored.elsewhere_count == fates.len() - base;
            let end = if is_all_elsewhere { Position(0) } else { state.log.end() };
            let logs = producer.filter(|_| !state.elsewhere.is_empty());
            let logs = logs.and_then(|session| state.producers.logs(session.id())).cloned();
            if let (Some(session), Some(logs)) = (producer, &logs)
                && logs.len() > 1
            {
                state.producers.changed(session.id());
            }
            let assigned = state.assigned.take().unwrap_or_default();
            let published = Published { end, elsewhere: Places::default(), refused, assigned };
            let round = Round { published, passed, logs, has_repeats: state.has_repeats };
            (round, stored, state.has_sealed(), room)
        };
        room.into_iter().for_each(|room| self.ran_out(room));
        self.counters().add(Metric::Published, stored.count);
        self.counters().add(Metric::PublishedBytes, stored.bytes);
        if has_sealed {
            self.request_fold();
        }
        Ok(round)
    }

    /// Stores all of a batch in this log, a queue's own, which has all its messages.
    pub(crate) fn store_rounds(&self, sent: Sent<'_>, fates: &mut Vec<Fate>) -> Result<Published, EngineError> {
        in_rounds(sent.batch, fates, |batch, fates| Ok(self.store_round(Sent { batch, ..sent }, fates)?.published))
    }
}

/// Repeats rounds until the whole batch has its fates, or the first of the rest was refused.
pub(crate) fn in_rounds<'a>(
    batch: &'a [Publication<'a>],
    fates: &mut Vec<Fate>,
    mut round: impl FnMut(&'a [Publication<'a>], &mut Vec<Fate>) -> Result<Published, EngineError>,
) -> Result<Published, EngineError> {
    let mut all = Published::default();
    let mut rest = batch;
    loop {
        let before = fates.len();
        let done = batch.len() - rest.len();
        let published = round(rest, fates)?;
        all.end = all.end.max(published.end);
        all.elsewhere.add_all(&published.elsewhere);
        all.refused = published.refused;
        assign_all(&mut all.assigned, &published.assigned, |index| Some(done + index));
        rest = rest.get(fates.len() - before..).unwrap_or_default();
        if rest.is_empty() || all.refused.is_some() {
            return Ok(all);
        }
    }
}

/// The stored part of a batch.
#[derive(Clone, Copy, Default)]
struct Stored {
    count: u64,
    bytes: u64,
    /// Messages whose queues all have own logs.
    elsewhere_count: usize,
    /// Entries of messages in queues, here and elsewhere.
    targets: usize,
}

impl State {
    /// Stores messages until one finds no space, as the first does when the disk is `full`; an error stops the shard,
    /// whose queues are then ahead of its log.
    fn store_all(
        &mut self,
        batch: &[Publication<'_>],
        level: Option<Level>,
        mut full: Option<EngineError>,
        fates: &mut Vec<Fate>,
    ) -> Result<(Stored, Option<EngineError>), EngineError> {
        let mut stored = Stored::default();
        self.passed_on.clear();
        self.has_repeats = false;
        for (place, publication) in batch.iter().enumerate() {
            let found = match self.fate_before(publication, level) {
                Some(fate @ Fate::Behind(_)) => full.take().map_or(Ok(fate), Err),
                Some(fate) => Ok(fate),
                None => self.route_and_store(publication, (place, level), &mut full, &mut stored),
            };
            let fate = match found {
                Ok(fate) => fate,
                Err(error) if self.stopped.is_some() => return Err(error),
                Err(refused) => {
                    self.producers.refuse_all(batch.get(place..).unwrap_or_default());
                    return Ok((stored, Some(refused)));
                }
            };
            if let Some(producer) = publication.payload.producer() {
                self.producers.note(producer, fate);
            }
            fates.push(fate);
            if stored.targets >= TARGETS_AT_ONCE || place + 1 >= MESSAGES_AT_ONCE {
                break;
            }
        }
        Ok((stored, None))
    }

    /// The fate of a producer's message by its sequence alone, wherever it would go.
    fn fate_before(&mut self, publication: &Publication<'_>, level: Option<Level>) -> Option<Fate> {
        match self.producers.before(publication.payload.producer()?) {
            Before::New => None,
            Before::Behind(refused) => Some(Fate::Behind(refused)),
            Before::Stored => {
                let levels =
                    if self.find_targets(publication) { self.matched_levels() } else { QueueLevels::default() };
                Some(Fate::Stored(Level::of(level, levels, publication.persistent)))
            }
            Before::Complete => {
                // Which of the logs have it, and at which level, only they know.
                self.has_repeats = true;
                Some(Fate::Stored(Level::Disk))
            }
        }
    }

    /// An error without `stopped` means that there is no space for it.
    fn route_and_store(
        &mut self,
        publication: &Publication<'_>,
        (place, level): (usize, Option<Level>),
        full: &mut Option<EngineError>,
        stored: &mut Stored,
    ) -> Result<Fate, EngineError> {
        if !self.find_targets(publication) {
            return Ok(Fate::NoExchange);
        }
        if self.matched.queues.is_empty() {
            return Ok(publication.fate_nowhere());
        }
        if !self.shut.is_empty() && self.matched.queues.iter().any(|queue| self.shut.contains(queue)) {
            return Ok(Fate::Shut);
        }
        if !self.length_limits.is_empty() && self.overflows(publication) {
            return Ok(Fate::Overflow);
        }
        stored.targets += self.matched.queues.len();
        if !self.elsewhere.is_empty() {
            if self.set_apart(publication, place)? {
                stored.elsewhere_count += 1;
                // Its own log decides its fate.
                return Ok(Fate::Stored(Level::Os));
            }
            // Another of its logs may not have it yet.
            if publication.payload.producer().is_some_and(|producer| self.producers.has_stored(producer)) {
                return Ok(Fate::Stored(Level::of(level, self.matched_levels(), publication.persistent)));
            }
        }
        full.take().map_or(Ok(()), Err)?;
        self.log.reserve(&publication.payload, self.matched.queues.len())?;
        let fate =
            self.store(publication, (place, level)).inspect_err(|error| self.stopped = Some(error.to_string()))?;
        stored.count += 1;
        stored.bytes += publication.payload.body_bytes();
        Ok(fate)
    }

    fn store(
        &mut self,
        publication: &Publication<'_>,
        (place, level): (usize, Option<Level>),
    ) -> Result<Fate, EngineError> {
        let levels = self.assign_sequences(publication.payload.body_bytes(), place);
        if self.targets.is_empty() {
            return Ok(publication.fate_nowhere());
        }
        self.log.append_message(&publication.payload, self.stored_at_ms, &self.targets)?;
        if let Some(producer) = publication.payload.producer() {
            self.producers.stored(producer, self.stored_at_ms);
            if let Some(digest) = publication.payload.batch_digest() {
                self.producers.batch_stored(producer, digest);
            }
        }
        Ok(Fate::Stored(Level::of(level, levels, publication.persistent)))
    }

    /// Notes which of the matched queues are elsewhere; returns whether all are. This log knows of all logs of a producer
    /// before it has a later message of it.
    fn set_apart(&mut self, publication: &Publication<'_>, place: usize) -> Result<bool, EngineError> {
        let before = self.passed_on.len();
        let elsewhere = self.matched.queues.iter().filter(|queue| self.elsewhere.contains_key(queue));
        self.passed_on.extend(elsewhere.map(|&queue| PassedOn { queue, place, is_all: false }));
        let is_all = self.passed_on.len() - before == self.matched.queues.len();
        self.passed_on.iter_mut().skip(before).for_each(|one| one.is_all = is_all);
        if let Some(producer) = publication.payload.producer() {
            let apart = self.passed_on.iter().skip(before).map(|one| LogNumber::of(one.queue));
            let here = (!is_all).then_some(LogNumber::VHOST);
            if let Some(logs) = self.producers.reaching(producer.id, apart.chain(here)) {
                self.note_logs(producer.id, &logs).inspect_err(|_| self.passed_on.truncate(before))?;
                self.producers.reached(producer.id, logs);
            }
        }
        Ok(is_all)
    }

    /// Fills `matched`; false when there is no such exchange.
    pub(crate) fn find_targets(&mut self, publication: &Publication<'_>) -> bool {
        if self.only.is_some() {
            return true;
        }
        let last = &mut self.last_route;
        let generation = Some(self.routing.generation());
        let own_key = publication.payload.key();
        let is_plain = publication.headers.is_none() && own_key.is_none();
        if last.generation == generation
            && is_plain
            && is_same(&last.exchange, publication.exchange)
            && is_same(&last.key, publication.key)
        {
            return true;
        }
        last.generation = None;
        let Publication { exchange, key, headers, .. } = *publication;
        if self.routing.route_keyed(exchange, key, own_key, headers, &mut self.matched).is_err() {
            return false;
        }
        if is_plain {
            last.exchange.clear();
            last.exchange.extend_from_slice(publication.exchange);
            last.key.clear();
            last.key.extend_from_slice(publication.key);
            last.generation = generation;
        }
        true
    }

    /// Whether a matched queue of this log has as many ready messages as it may, and the message is a new one.
    fn overflows(&self, publication: &Publication<'_>) -> bool {
        if publication.payload.producer().is_some_and(|producer| self.producers.has_stored(producer)) {
            return false;
        }
        let limits = self.matched.queues.iter().filter_map(|queue| Some((self.length_limits.get(queue)?, queue)));
        let mut entries = limits.filter_map(|(limit, queue)| Some((limit, self.queues.get(queue)?)));
        entries.any(|(&limit, entry)| entry.machine.ready_count() >= limit)
    }

    /// The strictest durability that matched queues require.
    fn matched_levels(&self) -> QueueLevels {
        let entries = self.matched.queues.iter().filter_map(|queue| self.queues.get(queue));
        entries.fold(QueueLevels::default(), |all, entry| all.stricter(entry.levels))
    }

    /// Assigns the message its sequence in every matched queue; returns the strictest durability that queues require.
    fn assign_sequences(&mut self, body_bytes: u64, place: usize) -> QueueLevels {
        let mut levels = QueueLevels::default();
        self.targets.clear();
        for &queue in &self.matched.queues {
            let Some(entry) = self.queues.get_mut(&queue) else { continue };
            let sequence = entry.machine.publish(body_bytes);
            self.targets.push(Target { queue, sequence });
            if let Some(assigned) = &mut self.assigned {
                assign(assigned, queue, place, sequence);
            }
            levels = levels.stricter(entry.levels);
            if !entry.is_watched() {
                continue;
            }
            if entry.fresh_count == 0 {
                self.touched.push(queue);
            }
            entry.fresh_count += 1;
        }
        levels
    }

    fn wake_touched(&mut self) {
        let mut touched: Vec<QueueId> = std::mem::take(&mut self.touched);
        for queue in touched.drain(..) {
            if let Some(entry) = self.queues.get_mut(&queue) {
                let fresh_count = std::mem::take(&mut entry.fresh_count);
                entry.wake(fresh_count, &mut self.wakes);
            }
        }
        self.touched = touched;
    }
}
