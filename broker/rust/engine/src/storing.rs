//! Storing a batch in one log: route each message, append one record that names its queues, advance the queues, write
//! once, wake consumers.

use penstock_log::{Position, Target};
use penstock_queue::QueueId;
use penstock_wire::is_same;

use crate::counters::Metric;
use crate::error::EngineError;
use crate::level::{Level, QueueLevels};
use crate::places::{Places, Published};
use crate::producers::ProducerSession;
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
}

impl Shard {
    /// Stores as many of the first messages as fit one hold of the lock: those with an entry in `fates`, at least one
    /// unless it was refused. Also returns those that belong in other logs.
    pub(crate) fn store_round(
        &self,
        Sent { producer, batch, level, now_ms }: Sent<'_>,
        fates: &mut Vec<Fate>,
    ) -> Result<(Published, Vec<PassedOn>), EngineError> {
        let base = fates.len();
        let (published, stored, passed, has_sealed) = {
            let mut guard = self.lock()?;
            let state = &mut *guard;
            state.check(self.name())?;
            producer.map_or(Ok(()), ProducerSession::check)?;
            state.stored_at_ms = state.stored_at_ms.max(now_ms);
            let full = self.is_full().then(|| self.full());
            let was_full = full.is_some();
            let (stored, refused) = state.store_all(batch, level, full, fates)?;
            if !was_full && refused.as_ref().is_some_and(EngineError::is_full) {
                self.ran_out(state.log.room());
            }
            state.write()?;
            state.ring_touched();
            let passed = std::mem::take(&mut state.passed_on);
            let is_all_elsewhere = stored.elsewhere_count > 0 && stored.elsewhere_count == fates.len() - base;
            let end = if is_all_elsewhere { Position(0) } else { state.log.end() };
            (Published { end, elsewhere: Places::default(), refused }, stored, passed, state.has_sealed())
        };
        self.counters().add(Metric::Published, stored.count);
        self.counters().add(Metric::PublishedBytes, stored.bytes);
        if has_sealed {
            self.request_fold();
        }
        Ok((published, passed))
    }

    /// Stores all of a batch in this log, a queue's own, which has all its messages.
    pub(crate) fn store_rounds(&self, sent: Sent<'_>, fates: &mut Vec<Fate>) -> Result<Published, EngineError> {
        in_rounds(sent.batch, fates, |batch, fates| Ok(self.store_round(Sent { batch, ..sent }, fates)?.0))
    }
}

/// Repeats rounds until the whole batch has its fates, or the first of the rest was refused.
pub(crate) fn in_rounds<'a>(
    batch: &'a [Publication<'a>],
    fates: &mut Vec<Fate>,
    mut round: impl FnMut(&'a [Publication<'a>], &mut Vec<Fate>) -> Result<Published, EngineError>,
) -> Result<Published, EngineError> {
    let mut all = Published { end: Position(0), elsewhere: Places::default(), refused: None };
    let mut rest = batch;
    loop {
        let before = fates.len();
        let published = round(rest, fates)?;
        all.end = all.end.max(published.end);
        all.elsewhere.add_all(&published.elsewhere);
        all.refused = published.refused;
        rest = rest.get(fates.len() - before..).unwrap_or_default();
        if rest.is_empty() || all.refused.is_some() {
            return Ok(all);
        }
    }
}

/// Which of a message's queues have an own log.
enum Apart {
    /// None, or not all: it is stored here too.
    Nothing,
    All,
    /// It must be in one log, and would not be.
    Refused,
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
        let producer = publication.payload.producer()?;
        if self.producers.has_stored(producer) {
            let levels = if self.find_targets(publication) { self.matched_levels() } else { QueueLevels::default() };
            return Some(Fate::Stored(Level::of(level, levels, publication.persistent)));
        }
        self.producers.behind(producer).map(Fate::Behind)
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
        stored.targets += self.matched.queues.len();
        if !self.elsewhere.is_empty() {
            match self.set_apart(publication, place) {
                Apart::Nothing => {}
                Apart::All => {
                    stored.elsewhere_count += 1;
                    // Its own log decides its fate.
                    return Ok(Fate::Stored(Level::Os));
                }
                Apart::Refused => return Ok(Fate::SeveralLogs),
            }
        }
        full.take().map_or(Ok(()), Err)?;
        self.log.reserve(&publication.payload, self.matched.queues.len())?;
        let fate = self.store(publication, level).inspect_err(|error| self.stopped = Some(error.to_string()))?;
        stored.count += 1;
        stored.bytes += publication.payload.body_bytes();
        Ok(fate)
    }

    fn store(&mut self, publication: &Publication<'_>, level: Option<Level>) -> Result<Fate, EngineError> {
        let levels = self.assign_sequences(publication.payload.body_bytes());
        if self.targets.is_empty() {
            return Ok(publication.fate_nowhere());
        }
        self.log.append_message(&publication.payload, self.stored_at_ms, &self.targets)?;
        if let Some(producer) = publication.payload.producer() {
            self.producers.stored(producer, self.stored_at_ms);
        }
        Ok(Fate::Stored(Level::of(level, levels, publication.persistent)))
    }

    /// Notes which of the matched queues are elsewhere.
    fn set_apart(&mut self, publication: &Publication<'_>, place: usize) -> Apart {
        let before = self.passed_on.len();
        let elsewhere = self.matched.queues.iter().filter(|queue| self.elsewhere.contains_key(queue));
        self.passed_on.extend(elsewhere.map(|&queue| PassedOn { queue, place, is_all: false }));
        let count = self.passed_on.len() - before;
        let is_all = count == self.matched.queues.len();
        self.passed_on.iter_mut().skip(before).for_each(|one| one.is_all = is_all);
        if let Some(producer) = publication.payload.producer() {
            let home = self.producer_homes.get(&producer.id).copied().flatten();
            let is_one_log = match self.passed_on.last() {
                Some(&PassedOn { queue, .. }) if count == 1 && is_all => {
                    let is_free = !self.producers.has_any(producer.id) && home.is_none_or(|home| home == queue);
                    self.producer_homes.insert(producer.id, if is_free { Some(queue) } else { home });
                    is_free
                }
                _ => count == 0 && home.is_none(),
            };
            if !is_one_log {
                self.passed_on.truncate(before);
                return Apart::Refused;
            }
        }
        if is_all { Apart::All } else { Apart::Nothing }
    }

    /// Fills `matched`; false when there is no such exchange.
    fn find_targets(&mut self, publication: &Publication<'_>) -> bool {
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

    /// The strictest durability that matched queues require.
    fn matched_levels(&self) -> QueueLevels {
        let entries = self.matched.queues.iter().filter_map(|queue| self.queues.get(queue));
        entries.fold(QueueLevels::default(), |all, entry| all.stricter(entry.levels))
    }

    /// Assigns the message its sequence in every matched queue; returns the strictest durability that queues require.
    fn assign_sequences(&mut self, body_bytes: u64) -> QueueLevels {
        let mut levels = QueueLevels::default();
        self.targets.clear();
        for &queue in &self.matched.queues {
            let Some(entry) = self.queues.get_mut(&queue) else { continue };
            let sequence = entry.machine.publish(body_bytes);
            self.targets.push(Target { queue, sequence });
            levels = levels.stricter(entry.levels);
            if entry.fresh_count == 0 {
                self.touched.push(queue);
            }
            entry.fresh_count += 1;
        }
        levels
    }

    fn ring_touched(&mut self) {
        let mut touched: Vec<QueueId> = std::mem::take(&mut self.touched);
        for queue in touched.drain(..) {
            if let Some(entry) = self.queues.get_mut(&queue) {
                let fresh_count = std::mem::take(&mut entry.fresh_count);
                entry.wake(fresh_count);
            }
        }
        self.touched = touched;
    }
}
