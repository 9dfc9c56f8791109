//! Named producers: the number of each, its highest sequence, its publish stream, and when it was last used.
//!
//! What must stay true: a sequence counts as stored only once its message is in the log's tail. After a refusal nothing with a
//! higher sequence is stored until the refused one is taken, or else the refused one would pass for stored when it comes again;
//! new sessions of the name do not change that, and a batch that comes again begins anew (`batches`). Of several sessions of a name the last one opened has it; a name that a session
//! holds is not forgotten. When a name was used is written down now and then, not with each message: a start may find it used
//! longer ago than it was. Refusals are not written down: after a start the client must know that what followed a refusal
//! comes after it again.
//!
//! Each log of a vhost knows only what it stored itself. The vhost's shard also knows in which logs a producer's messages are,
//! and up to which sequence all of them have all (`producer_logs`).
//!
//! A name belongs to the user who opened it first, and no other user opens it. The names of stages belong to the broker.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use penstock_log::{Position, Producer, ProducerBatches, marks};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::EngineError;
use crate::producer_endings::Endings;
use crate::producer_groups::{Group, Groups};
use crate::producer_logs::{Logs, decode};
use crate::producer_owners::{FOUND_MAX, Owners};
use crate::publication::{Fate, Publication};

/// The most names of a shard.
pub const PRODUCERS_MAX: usize = 65_536;

/// Prefix of the names that stages publish under.
pub(crate) const STAGE_PREFIX: &str = "amq.stage/";

/// A full table removes names that were unused for this long.
const IDLE_MS_MIN: u64 = 3_600_000;

/// The time of use is recorded at most this often.
const NOTED_MS_MIN: u64 = 86_400_000;

/// The right to publish as a producer, until another session is opened for it.
#[derive(Clone, Debug)]
pub struct ProducerSession {
    name: String,
    id: NonZeroU64,
    /// None for the broker's own.
    owner: Option<Arc<str>>,
    session: u64,
    /// Shared with the table, which thereby sees that a session exists.
    held: Arc<Holder>,
}

/// What the sessions of a name share with the table.
#[derive(Debug, Default)]
struct Holder {
    /// The session that owns a name; 0 once the name is removed. It is set under the lock of the vhost's shard, and checked
    /// under that of the log that stores: a new owner that reads the highest sequence there finds everything stored before,
    /// and nothing is stored after it.
    session: AtomicU64,
    /// All messages up to this sequence are stored in every log that they go to; counts where there are several.
    complete: AtomicU64,
    /// Whether the vhost's shard has asked the own logs of queues.
    is_learned: AtomicBool,
}

impl ProducerSession {
    #[must_use]
    pub fn id(&self) -> NonZeroU64 {
        self.id
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user who owns the name.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Checks that it still owns its name; under the lock of the log that stores.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        if self.held.session.load(Ordering::Acquire) == self.session {
            return Ok(());
        }
        Err(EngineError::ProducerTaken(self.name.clone()))
    }

    /// Whether it is known in which logs its messages are.
    pub(crate) fn is_learned(&self) -> bool {
        self.held.is_learned.load(Ordering::Acquire)
    }

    /// Note that all messages up to this sequence are stored in every log that they go to.
    pub(crate) fn raise(&self, complete: u64) {
        self.held.complete.fetch_max(complete, Ordering::AcqRel);
    }
}

/// A name and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerStanding {
    pub name: String,
    /// The highest stored sequence; 0 when there is none.
    pub sequence: u64,
    /// The approximate time of the last use.
    pub used_at_ms: u64,
    /// Whether a publish stream uses it.
    pub is_open: bool,
    /// The user who owns it; empty when none does yet.
    pub owner: String,
}

#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Of what this log stored.
    pub highest: u64,
    /// The lowest refused sequence that did not come again; always above what is complete.
    refused: Option<NonZeroU64>,
    /// In the vhost's shard: the logs that its messages went to, when these are not this one alone.
    pub logs: Option<Logs>,
    /// The logs as a mark in this log has them, and what it says to be complete.
    pub noted: Option<Logs>,
    pub complete_written: u64,
    /// 0 while unknown: an older broker did not record it.
    used_at_ms: u64,
    noted_at_ms: u64,
    held: Arc<Holder>,
    owner: Option<Arc<str>>,
    /// Of an owner's name that ends with a task's number.
    group: Option<Arc<Group>>,
}

/// What is known of a message by its producer's sequence alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    New,
    /// It is in this log.
    Stored,
    /// It is in every log that it goes to.
    Complete,
    /// This sequence was refused and has to come first.
    Behind(u64),
}

impl Standing {
    /// What was raised: it counts where there are several logs.
    pub fn complete_noted(&self) -> u64 {
        self.held.complete.load(Ordering::Acquire)
    }

    /// All messages up to here are stored, in every log that they go to.
    fn complete(&self) -> u64 {
        if self.logs.is_some() { self.complete_noted() } else { self.highest }
    }

    pub fn set_complete(&self, complete: u64) {
        self.held.complete.store(complete, Ordering::Release);
    }

    pub fn set_learned(&self, is_learned: bool) {
        self.held.is_learned.store(is_learned, Ordering::Release);
    }

    fn is_open(&self) -> bool {
        Arc::strong_count(&self.held) > 1
    }

    /// Whether no session holds it, and it was unused for too long. The recorded time may be older than the use.
    fn is_idle(&self, now_ms: u64, memory: Duration) -> bool {
        let idle_ms_max = millis(memory).saturating_add(noted_every_ms(memory));
        !self.is_open() && now_ms.saturating_sub(self.used_at_ms) > idle_ms_max
    }
}

fn millis(memory: Duration) -> u64 {
    u64::try_from(memory.as_millis()).unwrap_or(u64::MAX)
}

/// How often the use of a name is recorded.
fn noted_every_ms(memory: Duration) -> u64 {
    (millis(memory) / 8).min(NOTED_MS_MIN)
}

/// All producers of a shard.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    ids: FxHashMap<String, NonZeroU64>,
    standing: FxHashMap<NonZeroU64, Standing>,
    owners: Owners,
    groups: Groups,
    endings: Endings,
    /// The last batches of those that number them, as the log's fold has them.
    batches: ProducerBatches,
    /// Those of several logs whose messages came since their complete sequences were written.
    pub changed: FxHashSet<NonZeroU64>,
    highest_id: u64,
    last_session: u64,
    /// The end of the log behind the last removal of a name.
    removed_end: Position,
}

/// Changes to write: names whose time is recorded, and names to remove.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub noted: Vec<String>,
    pub forgotten: Vec<String>,
}

impl Producers {
    pub fn of_start(
        named: &BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>,
        highest: &FxHashMap<u64, u64>,
        batches: ProducerBatches,
    ) -> Producers {
        let mut producers = Producers { batches, ..Producers::default() };
        for ((owner, name), value) in named {
            let id = value.first_chunk().and_then(|id| NonZeroU64::new(u64::from_le_bytes(*id)));
            if owner == marks::PRODUCER_NAMES
                && let Some(id) = id
            {
                let used_at_ms =
                    value.get(8..).and_then(<[u8]>::first_chunk).map_or(0, |time| u64::from_le_bytes(*time));
                let owner = value.get(16..).filter(|owner| !owner.is_empty()).map(String::from_utf8_lossy);
                let name = String::from_utf8_lossy(name).into_owned();
                let standing = Standing { used_at_ms, noted_at_ms: used_at_ms, ..Standing::default() };
                producers.standing.insert(id, standing);
                owner.iter().for_each(|owner| producers.own(&name, id, owner));
                producers.ids.insert(name, id);
                producers.highest_id = producers.highest_id.max(id.get());
            }
        }
        for ((owner, _), value) in named {
            let id = marks::producer_of_logs(owner).and_then(NonZeroU64::new);
            if let (Some(id), Some((complete, logs))) = (id, decode(value)) {
                let standing = producers.standing.entry(id).or_default();
                standing.set_complete(complete);
                (standing.noted, standing.complete_written) = (Some(logs), complete);
            }
        }
        for (&id, &sequence) in highest {
            producers.highest_id = producers.highest_id.max(id);
            if let Some(id) = NonZeroU64::new(id) {
                producers.standing.entry(id).or_default().highest = sequence;
            }
        }
        producers
    }

    pub fn count(&self) -> usize {
        self.ids.len()
    }

    /// Return how many names a user owns.
    pub fn name_count_of(&self, user: &str) -> usize {
        self.owners.name_count(user)
    }

    pub fn id_of(&self, name: &str) -> Option<NonZeroU64> {
        self.ids.get(name).copied()
    }

    /// Return the number for the next new name.
    pub fn next_id(&self) -> NonZeroU64 {
        NonZeroU64::MIN.saturating_add(self.highest_id)
    }

    /// Return all names but those of stages, in no order.
    pub fn all(&self) -> Vec<ProducerStanding> {
        let told = |(name, id): (&String, &NonZeroU64)| {
            let found = self.standing.get(id)?;
            let (sequence, used_at_ms) = (found.highest, found.used_at_ms);
            let owner = found.owner.as_deref().unwrap_or_default().to_owned();
            Some(ProducerStanding { name: name.clone(), sequence, used_at_ms, is_open: found.is_open(), owner })
        };
        self.ids.iter().filter(|(name, _)| !name.starts_with(STAGE_PREFIX)).filter_map(told).collect()
    }

    /// Open a name that was written down with its number and perhaps an owner.
    pub fn open_noted(&mut self, name: &str, id: NonZeroU64, now_ms: u64, user: Option<&str>) -> ProducerSession {
        self.highest_id = self.highest_id.max(id.get());
        self.ids.insert(name.to_owned(), id);
        let standing = self.standing.entry(id).or_default();
        standing.noted_at_ms = now_ms;
        user.into_iter().for_each(|user| self.own(name, id, user));
        self.open(name, id, now_ms)
    }

    /// Return when a name was used.
    pub fn used_at_ms(&self, id: NonZeroU64) -> Option<u64> {
        self.standing.get(&id).map(|standing| standing.used_at_ms)
    }

    /// Note that the time of use was written down.
    pub fn noted(&mut self, id: NonZeroU64, used_at_ms: u64) {
        if let Some(standing) = self.standing.get_mut(&id) {
            standing.noted_at_ms = used_at_ms;
        }
    }

    /// Whether this log has a message.
    pub fn has_stored(&self, producer: Producer) -> bool {
        producer.sequence <= self.highest(producer.id)
    }

    /// What is known before a message is routed.
    pub fn before(&self, Producer { id, sequence }: Producer) -> Before {
        let Some(standing) = self.standing.get(&id) else { return Before::New };
        if sequence <= standing.complete() {
            return if standing.logs.is_some() { Before::Complete } else { Before::Stored };
        }
        match standing.refused {
            Some(refused) if refused.get() < sequence => Before::Behind(refused.get()),
            _ => Before::New,
        }
    }

    /// Nothing above it is stored until it comes again. A stored message can no longer be refused.
    pub fn refused(&mut self, producer: Producer) {
        let standing = self.standing.entry(producer.id).or_default();
        if let Some(sequence) = NonZeroU64::new(producer.sequence).filter(|one| one.get() > standing.complete()) {
            standing.refused = Some(standing.refused.map_or(sequence, |before| before.min(sequence)));
        }
    }

    /// A message is stored, goes to another log that decides, or has no queue: later ones may come.
    fn taken(&mut self, producer: Producer) {
        let Some(standing) = self.standing.get_mut(&producer.id) else { return };
        standing.refused = standing.refused.filter(|refused| refused.get() != producer.sequence);
    }

    /// Notes the fate of a message.
    pub fn note(&mut self, producer: Producer, fate: Fate) {
        match fate {
            Fate::Stored(_) | Fate::Unroutable => self.taken(producer),
            Fate::Returned | Fate::NoExchange | Fate::Shut | Fate::Full | Fate::Overflow => self.refused(producer),
            Fate::Behind(_) => {}
        }
    }

    /// Notes that these messages were not stored.
    pub fn refuse_all(&mut self, batch: &[Publication<'_>]) {
        batch.iter().filter_map(|publication| publication.payload.producer()).for_each(|one| self.refused(one));
    }

    pub fn highest(&self, id: NonZeroU64) -> u64 {
        self.standing.get(&id).map_or(0, |standing| standing.highest)
    }

    pub fn stored(&mut self, producer: Producer, now_ms: u64) {
        let standing = self.standing.entry(producer.id).or_default();
        standing.highest = producer.sequence.max(standing.highest);
        standing.used_at_ms = now_ms.max(standing.used_at_ms);
    }

    pub fn open(&mut self, name: &str, id: NonZeroU64, now_ms: u64) -> ProducerSession {
        self.last_session += 1;
        let standing = self.standing.entry(id).or_default();
        standing.held.session.store(self.last_session, Ordering::Release);
        standing.used_at_ms = now_ms;
        if name.starts_with(STAGE_PREFIX) {
            // Rows of a stage come in order from the first remaining one, whatever was refused before.
            standing.refused = None;
        }
        let (owner, held) = (standing.owner.clone(), Arc::clone(&standing.held));
        ProducerSession { name: name.to_owned(), id, owner, session: self.last_session, held }
    }

    pub fn forget(&mut self, name: &str) -> Option<NonZeroU64> {
        let id = self.ids.remove(name)?;
        // Its messages that are on their way to logs of their own are not stored there.
        if let Some(Standing { held, owner, group, .. }) = self.standing.remove(&id) {
            held.session.store(0, Ordering::Release);
            drop(group);
            owner.iter().for_each(|owner| {
                self.owners.remove(owner);
                self.groups.left(owner, name);
            });
        }
        self.batches.remove(id.get());
        Some(id)
    }

    /// Result of a check of all names, limited in number. The owner of a name uses it.
    pub fn look(&mut self, now_ms: u64, memory: Duration, count_max: usize) -> Changes {
        let noted_every_ms = noted_every_ms(memory);
        let mut changes = Changes::default();
        for (name, id) in self.ids.iter().filter(|(name, _)| !name.starts_with(STAGE_PREFIX)) {
            let Some(standing) = self.standing.get_mut(id) else { continue };
            if standing.is_open() || standing.used_at_ms == 0 {
                standing.used_at_ms = now_ms;
            }
            if standing.is_idle(now_ms, memory) {
                changes.forgotten.push(name.clone());
            } else if standing.used_at_ms.saturating_sub(standing.noted_at_ms) > noted_every_ms {
                changes.noted.push(name.clone());
            }
            if changes.noted.len() + changes.forgotten.len() >= count_max {
                break;
            }
        }
        changes
    }

    pub fn standing(&self, id: NonZeroU64) -> Option<&Standing> {
        self.standing.get(&id)
    }

    pub fn standing_mut(&mut self, id: NonZeroU64) -> Option<&mut Standing> {
        self.standing.get_mut(&id)
    }

    pub fn all_standing(&mut self) -> impl Iterator<Item = (NonZeroU64, &mut Standing)> {
        self.standing.iter_mut().map(|(id, standing)| (*id, standing))
    }

    fn standing_of(&self, name: &str) -> Option<&Standing> {
        self.ids.get(name).and_then(|id| self.standing.get(id))
    }

    /// Say whether a session of a name is there.
    pub fn is_open(&self, name: &str) -> bool {
        self.standing_of(name).is_some_and(Standing::is_open)
    }

    /// Say whether a name was used a short time ago, which names that are kept for a shorter one outlive by their own: a log
    /// beside the vhost's shard knows of no session, and a publish may be on its way.
    pub fn is_in_use(&self, name: &str, now_ms: u64, memory: Duration) -> bool {
        let in_use_ms = IDLE_MS_MIN.min(millis(memory));
        self.standing_of(name).is_some_and(|standing| now_ms.saturating_sub(standing.used_at_ms) < in_use_ms)
    }

    /// Return when a name was used last: now while a session has it. `None` for one that is not there.
    pub fn last_use_ms(&self, name: &str, now_ms: u64) -> Option<u64> {
        self.standing_of(name).map(|standing| if standing.is_open() { now_ms } else { standing.used_at_ms })
    }

    /// Say whether a name was unused for too long.
    pub fn is_idle(&self, name: &str, now_ms: u64, memory: Duration) -> bool {
        self.standing_of(name).is_some_and(|standing| standing.is_idle(now_ms, memory))
    }

    /// Note that a name is in use.
    pub fn used(&mut self, name: &str, now_ms: u64) {
        let standing = self.ids.get(name).and_then(|id| self.standing.get_mut(id));
        standing.into_iter().for_each(|standing| standing.used_at_ms = now_ms.max(standing.used_at_ms));
    }

    pub fn has_one_of(&self, names: &[String]) -> bool {
        names.iter().any(|name| self.ids.contains_key(name))
    }

    pub fn removed_end(&self) -> Position {
        self.removed_end
    }

    /// Note the end of the log behind a removal.
    pub fn removed_up_to(&mut self, end: Position) {
        self.removed_end = end;
    }

    pub fn owner(&self, id: NonZeroU64) -> Option<&Arc<str>> {
        self.standing.get(&id)?.owner.as_ref()
    }

    /// End names that a user owns or that are not there: no session has them, and the user opens them no more. Return those that
    /// are there. When one has another owner, or none, all stay as they are.
    pub fn end(&mut self, user: &str, names: &[String], now_ms: u64) -> Result<Vec<String>, EngineError> {
        let is_owned = |id| self.owner(id).is_some_and(|owner| **owner == *user);
        if let Some(other) = names.iter().find(|name| self.id_of(name).is_some_and(|id| !is_owned(id))) {
            return Err(EngineError::ProducerOwned(other.clone()));
        }
        self.endings.check_user(user, now_ms)?;
        names.iter().for_each(|name| self.endings.add(user, name, now_ms));
        Ok(names.iter().filter(|name| self.end_session(name)).cloned().collect())
    }

    /// Say whether a user has ended a name.
    pub fn is_ended(&mut self, user: &str, name: &str, now_ms: u64) -> bool {
        self.endings.has(user, name, now_ms)
    }

    /// End the session that has a name, and say whether the name is there.
    pub fn end_session(&mut self, name: &str) -> bool {
        self.standing_of(name).inspect(|standing| standing.held.session.store(0, Ordering::Release)).is_some()
    }

    /// Say whether a session was opened for a name since the last one was ended, if one was.
    pub fn has_session(&self, name: &str) -> bool {
        self.standing_of(name).is_some_and(|standing| standing.held.session.load(Ordering::Acquire) != 0)
    }

    /// End the sessions of a user's names, at most so many, and return these names.
    pub fn end_sessions_of(&mut self, user: &str, count_max: usize) -> Vec<String> {
        if self.owners.name_count(user) == 0 {
            return Vec::new();
        }
        let standing = &self.standing;
        let owned = self.ids.iter().filter_map(|(name, id)| Some((name, standing.get(id)?)));
        let owned = owned.filter(|(_, standing)| standing.owner.as_deref() == Some(user)).take(count_max);
        owned
            .inspect(|(_, standing)| standing.held.session.store(0, Ordering::Release))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// A name that was not used for a long time, and for a while at least; of one user or of all. A search looks at all names,
    /// and serves the next calls, too.
    pub fn longest_idle(&mut self, user: Option<&str>, now_ms: u64) -> Option<String> {
        while let Some(name) = self.owners.next_found(user) {
            if self.idle_since(&name, user, now_ms).is_some() {
                return Some(name);
            }
        }
        if !self.owners.may_search(user, now_ms) {
            return None;
        }
        let idle = self.ids.keys().filter_map(|name| Some((self.idle_since(name, user, now_ms)?, name)));
        let mut idle: Vec<_> = idle.collect();
        if idle.len() > FOUND_MAX {
            idle.select_nth_unstable(FOUND_MAX);
            idle.truncate(FOUND_MAX);
        }
        idle.sort_unstable();
        let names = idle.into_iter().map(|(_, name)| name.clone()).collect();
        self.owners.found(user, names, now_ms);
        self.owners.next_found(user)
    }

    /// When a name was used last, if that was a while ago and it may be given up for this user.
    fn idle_since(&self, name: &str, user: Option<&str>, now_ms: u64) -> Option<u64> {
        let standing = self.standing_of(name)?;
        let is_idle = !standing.is_open() && now_ms.saturating_sub(standing.used_at_ms) >= IDLE_MS_MIN;
        let is_asked_for = user.is_none() || standing.owner.as_deref() == user;
        (is_idle && is_asked_for && !name.starts_with(STAGE_PREFIX)).then_some(standing.used_at_ms)
    }
}

mod batches;
#[cfg(test)]
mod tests;
