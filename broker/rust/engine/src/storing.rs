//! Storing a batch in one log: route each message without the lock, then append one record that names its queues,
//! advance the queues, write once, wake consumers after the lock is released.

mod apart;
mod refusing;
pub mod transactions;
mod whole;

use penstock_log::{Payload, Position, Producer};
use penstock_queue::{QueueId, SequenceRange};

use crate::assigned::{assign, assign_all};
use crate::counters::Metric;
use crate::decision::Decision;
use crate::error::EngineError;
use crate::length::touch;
use crate::level::{Level, QueueLevels};
use crate::places::{Places, Published};
use crate::priorities::target_of;
use crate::producer_logs::Logs;
use crate::producers::{Before, ProducerSession};
use crate::publication::{Fate, PassedOn, Publication};
use crate::routes::{AtOnce, Routes};
use crate::shard::Shard;
use crate::state::State;

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

/// What is stored with messages that were rows of a stage.
pub(crate) struct Along<'a> {
    pub stage: QueueId,
    /// Runs of rows that leave the stage, with the bytes of their bodies.
    pub runs: &'a [(SequenceRange, u64)],
    /// The last decision about the stage, if it is a new one.
    pub decision: Option<Decision>,
}

/// Messages of one hold of the lock, with their queues.
#[derive(Clone, Copy)]
struct Routed<'a> {
    batch: &'a [Publication<'a>],
    routes: &'a Routes,
    producer: Option<&'a ProducerSession>,
    level: Option<Level>,
}

/// Result of one hold of the lock.
#[derive(Default)]
pub(crate) struct Round {
    pub published: Published,
    /// Messages that belong in other logs.
    pub passed: Vec<PassedOn>,
    /// The logs of the producer, when its messages are not in this one alone.
    pub logs: Option<Logs>,
    /// Whether it has messages that all logs of their producer have.
    pub has_repeats: bool,
    /// Whether a queue of this log, which does not route, was deleted after the messages were routed: nothing was stored.
    pub is_stale: bool,
    /// Queues that have too many messages now.
    too_long: Vec<QueueId>,
}

impl Sent<'_> {
    /// A batch whose sequences are told is stored in one envelope, if it fits one, so that nothing comes between its messages
    /// and all of them survive a crash or none.
    pub fn at_once(&self) -> AtOnce {
        if self.with_sequences { AtOnce::WHOLE } else { AtOnce::USUAL }
    }
}

impl Shard {
    /// Stores as many of the first messages as fit one hold of the lock: those with an entry in `fates`, at least one
    /// unless it was refused.
    pub(crate) fn store_round(
        &self,
        sent: Sent<'_>,
        routes: Option<Routes>,
        fates: &mut Vec<Fate>,
    ) -> Result<Round, EngineError> {
        let mut routes = routes.unwrap_or_else(|| Routes::of(&self.routing(), sent.batch, sent.at_once()));
        let round = self.store_routed(sent, &mut routes, fates);
        routes.keep();
        round
    }

    /// The same for messages that have their routes already.
    pub(crate) fn store_routed(
        &self,
        sent: Sent<'_>,
        routes: &mut Routes,
        fates: &mut Vec<Fate>,
    ) -> Result<Round, EngineError> {
        let base = fates.len();
        let (round, stored, has_sealed, room) = {
            let mut guard = self.lock()?;
            let state = &mut *guard;
            if !self.is_of_vhost() && routes.removals < state.removals {
                return Ok(Round { is_stale: true, ..Round::default() });
            }
            self.begin_hold(state, sent, routes, sent.at_once())?;
            let full = self.is_full().then(|| self.full());
            let was_full = full.is_some();
            let (stored, refused) = state.store_hold(sent, routes, full, fates)?;
            let ran_out = !was_full && refused.as_ref().is_some_and(EngineError::is_full);
            let room = ran_out.then(|| state.log.room());
            let is_all_elsewhere = stored.elsewhere_count > 0 && stored.elsewhere_count == fates.len() - base;
            let round = state.end_hold(sent.producer, is_all_elsewhere, refused)?;
            (round, stored, state.has_sealed(), room)
        };
        room.into_iter().for_each(|room| self.ran_out(room));
        self.count_stored(stored, has_sealed);
        if !round.too_long.is_empty() {
            self.shorten_after(&round.too_long)?;
        }
        Ok(round)
    }

    /// Stores all of a batch in one hold and one envelope, with what comes along; `None` when that was declined, and
    /// nothing is stored.
    pub(crate) fn store_whole(
        &self,
        sent: Sent<'_>,
        along: Along<'_>,
        fates: &mut Vec<Fate>,
    ) -> Result<Option<Round>, EngineError> {
        let mut routes = Routes::of(&self.routing(), sent.batch, AtOnce::WHOLE);
        let (round, stored, has_sealed) = {
            let mut guard = self.lock()?;
            let state = &mut *guard;
            self.begin_hold(state, sent, &mut routes, AtOnce::WHOLE)?;
            let routed = Routed { batch: sent.batch, routes: &routes, producer: sent.producer, level: sent.level };
            let is_whole = routes.count() == sent.batch.len();
            if !is_whole || self.is_full() || !state.makes_room(routed, Some(&along)) {
                return Ok(None);
            }
            let stored = state.append_whole(routed, Some(along), fates);
            let stored = stored.inspect_err(|error| state.stopped = Some(error.to_string()))?;
            (state.end_hold(sent.producer, false, None)?, stored, state.has_sealed())
        };
        routes.keep();
        self.count_stored(stored, has_sealed);
        if !round.too_long.is_empty() {
            self.shorten_after(&round.too_long)?;
        }
        Ok(Some(round))
    }

    fn begin_hold(
        &self,
        state: &mut State,
        sent: Sent<'_>,
        routes: &mut Routes,
        at_once: AtOnce,
    ) -> Result<(), EngineError> {
        state.check(self.name())?;
        sent.producer.map_or(Ok(()), ProducerSession::check)?;
        state.stored_at_ms = state.stored_at_ms.max(sent.now_ms);
        if routes.removals < state.removals {
            routes.find(&self.routing(), sent.batch, at_once);
        }
        state.assigned = sent.with_sequences.then(Vec::new);
        state.passed_on.clear();
        state.has_repeats = false;
        Ok(())
    }

    fn count_stored(&self, stored: Stored, has_sealed: bool) {
        self.counters().add(Metric::Published, stored.count);
        self.counters().add(Metric::PublishedBytes, stored.bytes);
        self.counters().add(Metric::OverflowRefused, stored.refused_count);
        self.counters().add(Metric::Deduplicated, stored.deduplicated_count);
        if has_sealed {
            self.request_fold();
        }
        if stored.refused_waiting > 0 {
            self.refused_added(stored.refused_waiting);
        }
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
    /// Messages whose queues are all in other logs.
    elsewhere_count: usize,
    /// Messages that a full queue refused.
    refused_count: u64,
    /// The most letters of a queue that wait after one of them was refused; 0 when none was.
    refused_waiting: u64,
    /// Messages that a queue or their exchange had seen.
    deduplicated_count: u64,
}

impl State {
    /// Stores the messages of a hold: in one envelope those that are to be together and can be, else one by one.
    fn store_hold(
        &mut self,
        sent: Sent<'_>,
        routes: &Routes,
        full: Option<EngineError>,
        fates: &mut Vec<Fate>,
    ) -> Result<(Stored, Option<EngineError>), EngineError> {
        let Sent { producer, batch, level, .. } = sent;
        let count = routes.count();
        if sent.with_sequences && full.is_none() {
            let routed = Routed { batch: batch.get(..count).unwrap_or(batch), routes, producer, level };
            if self.makes_room(routed, None) {
                let stored = self.append_whole(routed, None, fates);
                return Ok((stored.inspect_err(|error| self.stopped = Some(error.to_string()))?, None));
            }
        }
        self.store_all((batch, routes), level, full, fates)
    }

    /// Writes what a hold stored, and wakes its consumers.
    fn end_hold(
        &mut self,
        producer: Option<&ProducerSession>,
        is_all_elsewhere: bool,
        refused: Option<EngineError>,
    ) -> Result<Round, EngineError> {
        self.write()?;
        self.wake_touched();
        let passed = std::mem::take(&mut self.passed_on);
        let end = if is_all_elsewhere { Position(0) } else { self.log.end() };
        let logs = producer.filter(|_| !self.elsewhere.is_empty());
        let logs = logs.and_then(|session| self.producers.logs(session.id())).cloned();
        if let (Some(session), Some(logs)) = (producer, &logs)
            && logs.len() > 1
        {
            self.producers.changed(session.id());
        }
        let assigned = self.assigned.take().unwrap_or_default();
        let published = Published { end, elsewhere: Places::default(), refused, assigned };
        let too_long = if self.limited.is_empty() { Vec::new() } else { self.take_touched_long() };
        Ok(Round { published, passed, logs, has_repeats: self.has_repeats, is_stale: false, too_long })
    }

    /// Stores messages until one finds no space, as the first does when the disk is `full`; an error stops the shard,
    /// whose queues are then ahead of its log.
    fn store_all(
        &mut self,
        (batch, routes): (&[Publication<'_>], &Routes),
        level: Option<Level>,
        mut full: Option<EngineError>,
        fates: &mut Vec<Fate>,
    ) -> Result<(Stored, Option<EngineError>), EngineError> {
        let mut stored = Stored::default();
        for (place, publication) in batch.iter().enumerate().take(routes.count()) {
            let queues = routes.queues(place);
            let found = match self.fate_before(publication, queues, level) {
                Some(fate @ Fate::Behind(_)) => full.take().map_or(Ok(fate), Err),
                Some(fate) => Ok(fate),
                None => self.store_in(queues, publication, (place, level), &mut full, &mut stored),
            };
            let fate = match found {
                // Only the history of its exchange has it.
                Ok(Fate::Stored(_)) if routes.reaches_history_alone(place) => publication.fate_nowhere(),
                Ok(Fate::Stored(level)) => Fate::Stored(level),
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
        }
        Ok((stored, None))
    }

    /// The fate of a producer's message by its sequence alone, wherever it would go.
    fn fate_before(
        &mut self,
        publication: &Publication<'_>,
        queues: Option<&[QueueId]>,
        level: Option<Level>,
    ) -> Option<Fate> {
        match self.producers.before(publication.payload.producer()?) {
            Before::New => None,
            Before::Behind(refused) => Some(Fate::Behind(refused)),
            Before::Stored => {
                let levels = self.levels_of(queues.unwrap_or_default());
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
    fn store_in(
        &mut self,
        queues: Option<&[QueueId]>,
        publication: &Publication<'_>,
        (place, level): (usize, Option<Level>),
        full: &mut Option<EngineError>,
        stored: &mut Stored,
    ) -> Result<Fate, EngineError> {
        let Some(queues) = queues else { return Ok(Fate::NoExchange) };
        if queues.is_empty() {
            return Ok(publication.fate_nowhere());
        }
        if !self.shut.is_empty() && queues.iter().any(|queue| self.shut.contains(queue)) {
            return Ok(Fate::Shut);
        }
        let fresh = self.fresh_among(queues, publication);
        if fresh.as_ref().is_some_and(|fresh| fresh.len() < queues.len()) {
            stored.deduplicated_count += 1;
            if fresh.as_ref().is_some_and(Vec::is_empty) {
                return Ok(Fate::Stored(Level::of(level, self.levels_of(queues), publication.persistent)));
            }
        }
        let queues = fresh.as_deref().unwrap_or(queues);
        if !self.rejecting.is_empty() {
            let full_queues = self.full_among(queues, publication);
            if !full_queues.is_empty() {
                return self.store_in_others(queues, &full_queues, publication, (place, level), full, stored);
            }
        }
        self.store_in_all(queues, publication, (place, level), full, stored)
    }

    fn store_in_all(
        &mut self,
        queues: &[QueueId],
        publication: &Publication<'_>,
        (place, level): (usize, Option<Level>),
        full: &mut Option<EngineError>,
        stored: &mut Stored,
    ) -> Result<Fate, EngineError> {
        if !self.elsewhere.is_empty() {
            if self.set_apart(queues, publication, place)? {
                stored.elsewhere_count += 1;
                // Its own log decides its fate.
                return Ok(Fate::Stored(Level::Os));
            }
            // Another of its logs may not have it yet.
            if publication.payload.producer().is_some_and(|producer| self.producers.has_stored(producer)) {
                return Ok(Fate::Stored(Level::of(level, self.levels_of(queues), publication.persistent)));
            }
        }
        if self.has_copy(&publication.payload) {
            return Ok(Fate::Stored(Level::of(level, self.levels_of(queues), publication.persistent)));
        }
        full.take().map_or(Ok(()), Err)?;
        self.assign_keys(queues, &publication.payload);
        self.reserve_message(&publication.payload, queues.len())?;
        let level = self.store(queues, publication, (place, level));
        let level = level.inspect_err(|error| self.stopped = Some(error.to_string()))?;
        stored.count += 1;
        stored.bytes += publication.payload.body_bytes();
        Ok(level.map_or_else(|| publication.fate_nowhere(), Fate::Stored))
    }

    /// Stores it, and returns the durability that its confirm waits for; `None` when all of its queues are gone.
    fn store(
        &mut self,
        queues: &[QueueId],
        publication: &Publication<'_>,
        (place, level): (usize, Option<Level>),
    ) -> Result<Option<Level>, EngineError> {
        let levels = self.assign_sequences(queues, &publication.payload, place);
        if self.targets.is_empty() {
            return Ok(None);
        }
        if self.windows.has_new() {
            self.append_remembered(&publication.payload)?;
        } else {
            self.log.append_message(&publication.payload, self.stored_at_ms, &self.targets)?;
        }
        self.note_copy(&publication.payload);
        if let Some(producer) = publication.payload.producer() {
            self.note_stored(&publication.payload, producer);
        }
        Ok(Some(Level::of(level, levels, publication.persistent)))
    }

    fn note_stored(&mut self, payload: &Payload<'_>, producer: Producer) {
        self.producers.stored(producer, self.stored_at_ms);
        if let Some(digest) = payload.batch_digest() {
            self.producers.batch_stored(producer, digest);
        }
    }

    /// The strictest durability that queues require.
    fn levels_of(&self, queues: &[QueueId]) -> QueueLevels {
        let entries = queues.iter().filter_map(|queue| self.queues.get(queue));
        entries.fold(QueueLevels::default(), |all, entry| all.stricter(entry.levels))
    }

    /// Assigns the message its sequence in each of its queues; returns the strictest durability that they require.
    pub(crate) fn assign_sequences(&mut self, queues: &[QueueId], payload: &Payload<'_>, place: usize) -> QueueLevels {
        let body_bytes = payload.body_bytes();
        let is_delayed = payload.due_at_ms().is_some_and(|due_at_ms| due_at_ms > self.stored_at_ms);
        if let Some(next_ms) = payload.first_deadline() {
            self.next_expiry.lower(next_ms);
        }
        let mut levels = QueueLevels::default();
        let has_priority = payload.priority() > 0;
        self.targets.clear();
        for &queue in queues {
            let Some(entry) = self.queues.get_mut(&queue) else { continue };
            let is_delayed = is_delayed && entry.stream.is_none() && !entry.is_history;
            let is_laned = has_priority || entry.keys.is_some();
            let lane = if is_laned { entry.lane_for(payload, self.first_sequence) } else { 0 };
            let sequence = if lane > 0 {
                entry.machine.publish_in(lane, self.first_sequence, body_bytes, is_delayed)
            } else if is_delayed {
                entry.machine.publish_delayed(body_bytes)
            } else {
                entry.machine.publish(body_bytes)
            };
            self.targets.push(target_of(queue, sequence));
            if let Some(assigned) = &mut self.assigned {
                assign(assigned, queue, place, sequence);
            }
            levels = levels.stricter(entry.levels);
            touch(&mut self.limited, queue, &mut entry.head_limit);
            if is_delayed || !entry.is_watched() {
                continue;
            }
            if entry.fresh_count == 0 {
                self.touched.push(queue);
            }
            entry.fresh_count += 1;
        }
        levels
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use penstock_queue::{Destination, ExchangeKind};

    use super::*;
    use crate::engine::{Engine, EngineOptions};

    const STAYS: QueueId = QueueId(1);
    const GOES: QueueId = QueueId(2);

    fn open(directory: &Path) -> (Engine, Arc<Shard>) {
        let options = EngineOptions {
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 256 << 10,
            segment_idle: Duration::from_secs(60),
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
            producers_of_user_max: 16,
        };
        let engine = Engine::new(options).unwrap();
        let shard = engine.open_shard("/", directory, false).unwrap();
        shard.put_queue(STAYS, "stays", false, None).unwrap();
        shard.put_queue(GOES, "goes", false, None).unwrap();
        (engine, shard)
    }

    fn publication<'a>(exchange: &'a str, key: &'a str) -> Publication<'a> {
        let (exchange, key) = (exchange.as_bytes(), key.as_bytes());
        let payload = Payload::new(exchange, key, b"", b"body").unwrap();
        Publication { payload, exchange, key, headers: None, persistent: false, mandatory: true }
    }

    /// Publishes a message, and changes the topology after it was routed and before it is stored.
    fn publish_across(shard: &Shard, one: Publication<'_>, change: impl FnOnce()) -> Fate {
        let sent = Sent { producer: None, batch: &[one], level: None, now_ms: 1, with_sequences: false };
        let mut routes = Routes::of(&shard.routing(), sent.batch, AtOnce::USUAL);
        change();
        let mut fates = Vec::new();
        shard.store_routed(sent, &mut routes, &mut fates).unwrap();
        assert_eq!(fates.len(), 1);
        fates.remove(0)
    }

    fn ready(shard: &Shard, ids: &[QueueId]) -> Vec<u64> {
        shard.queue_counts(ids).unwrap().iter().map(|counts| counts.ready_count).collect()
    }

    #[test]
    fn a_queue_that_is_deleted_before_the_message_is_stored_gets_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, shard) = open(directory.path());
        shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
        shard.add_route("all", "", None, Destination::Queue("stays")).unwrap();
        shard.add_route("all", "", None, Destination::Queue("goes")).unwrap();

        let fate = publish_across(&shard, publication("all", ""), || {
            shard.remove_route("all", "", None, Destination::Queue("goes")).unwrap();
            assert_eq!(shard.delete_queue(GOES).unwrap(), 0);
        });

        assert_eq!(fate, Fate::Stored(Level::Os));
        assert_eq!(ready(&shard, &[STAYS, GOES]), [1, 0]);
        engine.close().unwrap();
        let (_engine, shard) = open(directory.path());
        assert_eq!(ready(&shard, &[STAYS, GOES]), [1, 0], "its log does not name the deleted queue");
    }

    #[test]
    fn a_message_without_a_queue_after_a_deletion_is_routed_as_if_it_came_later() {
        let directory = tempfile::tempdir().unwrap();
        let (_engine, shard) = open(directory.path());
        shard.put_exchange("first", ExchangeKind::Direct, Some("second")).unwrap();
        shard.put_exchange("second", ExchangeKind::Direct, None).unwrap();
        shard.add_route("first", "k", None, Destination::Queue("goes")).unwrap();
        shard.add_route("second", "k", None, Destination::Queue("stays")).unwrap();
        let delete = |id| {
            shard.remove_route("first", "k", None, Destination::Queue("goes")).unwrap();
            shard.delete_queue(id).unwrap();
        };

        assert_eq!(publish_across(&shard, publication("first", "k"), || delete(GOES)), Fate::Stored(Level::Os));
        assert_eq!(ready(&shard, &[STAYS]), [1], "by the alternate exchange");

        let again = QueueId(3);
        shard.put_queue(again, "goes", false, None).unwrap();
        assert_eq!(publish_across(&shard, publication("", "goes"), || delete(again)), Fate::Returned);

        shard.put_queue(QueueId(4), "goes", false, None).unwrap();
        let fate = publish_across(&shard, publication("", "goes"), || {
            delete(QueueId(4));
            shard.put_queue(QueueId(5), "goes", false, None).unwrap();
        });
        assert_eq!(fate, Fate::Stored(Level::Os));
        assert_eq!(ready(&shard, &[QueueId(4), QueueId(5)]), [0, 1]);
    }

    #[test]
    fn other_changes_come_after_a_message_that_was_routed() {
        let directory = tempfile::tempdir().unwrap();
        let (_engine, shard) = open(directory.path());
        shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
        shard.add_route("all", "", None, Destination::Queue("stays")).unwrap();

        let bind = || shard.add_route("all", "", None, Destination::Queue("goes")).unwrap();
        assert_eq!(publish_across(&shard, publication("all", ""), bind), Fate::Stored(Level::Os));
        assert_eq!(ready(&shard, &[STAYS, GOES]), [1, 0]);
        let delete = || shard.delete_exchange("all").unwrap();
        assert_eq!(publish_across(&shard, publication("all", ""), delete), Fate::Stored(Level::Os));

        assert_eq!(ready(&shard, &[STAYS, GOES]), [2, 1]);
        let late = publish_across(&shard, publication("all", ""), || ());
        assert_eq!(late, Fate::NoExchange);
    }
}
