//! A log with its queues behind one lock. Shard 0 of a vhost also has the routing table and the vhost's other logs, which
//! are of this type too.

mod leading;
mod opening;
mod rounds;
mod stalled;
mod stalls;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::Duration;

use penstock_log::{LogError, LogOptions, LogStats, Position, Recovery, Room};
use penstock_queue::{QueueId, Routing, Sequence};
use tokio::sync::Notify;

pub(crate) use self::stalls::Held;
use self::stalls::Stalls;
use crate::alarms::{Alarm, Alarms};
use crate::corruption::{CorruptFile, Corruption, corruption_line, lost_line};
use crate::counters::{Counters, Metric};
use crate::dead_letters::Moving;
use crate::error::EngineError;
use crate::fold_queue::FoldQueue;
use crate::histories::Giving;
use crate::log_number::LogNumber;
use crate::notices::Notices;
use crate::other_logs::OtherLogs;
use crate::queue_entry::{QueueCounts, QueueEntry};
use crate::space::Space;
use crate::state::State;
use crate::sync_pool::SyncGroup;
use crate::term::Replication;
use crate::unused::UnusedQueues;

/// Queues that are read in one hold of the lock: some 20 us, no noticeable delay for messages.
const QUEUES_AT_ONCE: usize = 256;

/// State that all shards of a process share; `syncs` is of one vhost.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub syncs: SyncGroup<Shard>,
    pub folds: Arc<FoldQueue<Shard>>,
    pub dead_letters: Arc<FoldQueue<Shard>>,
    pub alarms: Arc<Alarms>,
    pub counters: Arc<Counters>,
    pub notices: Arc<Notices>,
    pub space: Arc<Space>,
    pub unused: Arc<UnusedQueues>,
    /// Whether the vhost has its queues and routes: before that no message expires, and no dead letter moves.
    pub is_complete: Arc<AtomicBool>,
    /// How long unused names of producers are kept; zero is for ever.
    pub producer_memory: Duration,
    /// Names of producers that one user may own.
    pub producers_of_user_max: usize,
}

/// Opens the other logs of a vhost.
pub(crate) struct Opener {
    pub options: LogOptions,
    pub around: Surroundings,
    pub shards: Arc<Mutex<Vec<Weak<Shard>>>>,
}

/// How many copies need the folder of a log, and whether it is deleted after the last of them.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub count: usize,
    pub is_deleted: bool,
}

/// A shard; see the module. The lock protects `State`; `synced` is the position of the last sync and only grows. The lock of
/// the routing table is held for a change or to take a copy, and the other one is never taken under it.
pub struct Shard {
    me: Weak<Shard>,
    name: String,
    number: LogNumber,
    directory: PathBuf,
    /// Held by the next waiter for `state`, so that a thread that releases `state` and comes back is behind the
    /// waiters.
    next: Mutex<()>,
    state: Mutex<State>,
    routing: Mutex<Arc<Routing>>,
    /// Set with the state's, and read without the lock.
    closed: AtomicBool,
    /// Mirrors the state's flag.
    deposed: AtomicBool,
    stalls: Stalls,
    synced: AtomicU64,
    sync_done: Notify,
    sync_waits: AtomicBool,
    fold_waits: AtomicBool,
    /// The log's end when space was last freed.
    freed_until: AtomicU64,
    /// The log's end at the last retention check.
    retained_until: AtomicU64,
    /// The state's.
    pub(crate) next_expiry: Arc<Alarm>,
    pub(crate) dead_lettering: Moving,
    pub(crate) giving: Giving,
    /// Held while messages are expired: of two callers at once the slower one would set an earlier time again.
    pub(crate) expiring: Mutex<()>,
    /// The state's.
    pub(crate) source_count: Arc<AtomicUsize>,
    around: Surroundings,
    /// Set for a replicated log: then `synced` is how far the log is committed.
    replication: Option<Arc<dyn Replication>>,
    copies: Mutex<Copies>,
    /// Only in shard 0 of a log that is not replicated.
    pub(crate) opener: Option<Opener>,
    /// Shard 0, in the others.
    of_vhost: OnceLock<Weak<Shard>>,
    pub(crate) others: OtherLogs<Shard>,
    recovery: Recovery,
    recovery_ms: f64,
    highest_queue_id: u64,
}

impl Shard {
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn number(&self) -> LogNumber {
        self.number
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notices(&self) -> &Arc<Notices> {
        &self.around.notices
    }

    pub(crate) fn unused(&self) -> &UnusedQueues {
        &self.around.unused
    }

    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// How long reading the log took.
    #[must_use]
    pub fn recovery_ms(&self) -> f64 {
        self.recovery_ms
    }

    /// The highest queue id that this log, or another one of its vhost, has ever named.
    #[must_use]
    pub fn highest_queue_id(&self) -> u64 {
        let others = self.others.all().into_iter().map(|(_, shard)| shard.highest_queue_id);
        others.fold(self.highest_queue_id, u64::max)
    }

    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.around.counters
    }

    /// Which shard of its vhost it is; `None` for the dedicated log of a queue.
    #[must_use]
    pub fn shard_number(&self) -> Option<u16> {
        self.number.shard()
    }

    /// Shard 0 of its vhost, unless that is gone.
    pub(crate) fn vhost(&self) -> Option<Arc<Shard>> {
        if self.is_of_vhost() { self.me.upgrade() } else { self.of_vhost.get()?.upgrade() }
    }

    /// Sets the shard 0 of its virtual host.
    pub(crate) fn belongs_to(&self, vhost: &Shard) {
        // It is told once.
        let _ = self.of_vhost.set(Weak::clone(&vhost.me));
    }

    /// Whether it is shard 0 of its vhost, which routes.
    #[must_use]
    pub fn is_of_vhost(&self) -> bool {
        self.number == LogNumber::VHOST
    }

    /// Whether it is the dedicated log of a queue.
    #[must_use]
    pub fn is_dedicated(&self) -> bool {
        self.number.queue().is_some()
    }

    /// The shard that holds a queue of this vhost.
    #[must_use]
    pub fn home_of(self: &Arc<Self>, id: QueueId) -> Arc<Shard> {
        self.others.home(id).unwrap_or_else(|| Arc::clone(self))
    }

    /// All logs of this vhost: this one, then the others.
    #[must_use]
    pub fn family(self: &Arc<Self>) -> Vec<Arc<Shard>> {
        let others = self.others.all().into_iter().map(|(_, shard)| shard);
        std::iter::once(Arc::clone(self)).chain(others).collect()
    }

    /// The counts of queues.
    ///
    /// # Errors
    /// `NoQueue`.
    pub fn queue_counts(&self, ids: &[QueueId]) -> Result<Vec<QueueCounts>, EngineError> {
        let (mut found, mut elsewhere) = (Vec::with_capacity(ids.len()), false);
        for some in ids.chunks(QUEUES_AT_ONCE) {
            let guard = self.lock()?;
            found.extend(some.iter().map(|id| guard.counts(id)));
            elsewhere |= !guard.elsewhere.is_empty();
        }
        for (id, found) in ids.iter().zip(&mut found).filter(|_| elsewhere) {
            if let Some(home) = self.others.home(*id) {
                *found = home.lock()?.counts(id);
            }
        }
        Ok(found)
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.state.is_poisoned()
    }

    /// Whether its term is over because another broker leads: then its consumers are cancelled, and go there.
    #[must_use]
    pub fn is_deposed(&self) -> bool {
        self.deposed.load(Ordering::Acquire)
    }

    /// Mirrors the state's flag.
    pub(crate) fn note_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Why nothing is stored or confirmed any more: a failed write or sync. Does not wait for the lock.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let told = self.stalls.fault.get().cloned();
        told.or_else(|| self.state.is_poisoned().then(|| self.poisoned().to_string()))
    }

    /// How long threads have waited for its lock, all of them together, in nanoseconds.
    #[must_use]
    pub fn lock_wait_ns(&self) -> u64 {
        self.stalls.waited_ns.load(Ordering::Relaxed)
    }

    /// Ready and unacked messages over all queues; the last known ones while the lock is held for long.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn totals_seen(&self) -> Result<(u64, u64), EngineError> {
        if self.is_stalled() {
            return Ok(stalls::known(&self.stalls.totals));
        }
        Ok(stalls::keep(&self.stalls.totals, self.totals()?))
    }

    /// Ready and unacked messages over all queues but streams and histories, whose messages wait for no consumer, summed in slices that
    /// let messages through in between.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn totals(&self) -> Result<(u64, u64), EngineError> {
        let ids: Vec<QueueId> = self.lock()?.queues.keys().copied().collect();
        let (mut ready, mut unacked) = (0, 0);
        for some in ids.chunks(QUEUES_AT_ONCE) {
            let guard = self.lock()?;
            let queues = some.iter().filter_map(|id| guard.queues.get(id));
            let queues = queues.filter(|entry| entry.stream.is_none() && !entry.is_history);
            for machine in queues.map(|entry| &entry.machine) {
                ready += machine.free_count();
                unacked += machine.unacked_count();
            }
        }
        Ok((ready, unacked))
    }

    /// Whether neither queues nor streams have messages.
    pub(crate) fn has_no_messages(&self) -> Result<bool, EngineError> {
        let ids: Vec<QueueId> = self.lock()?.queues.keys().copied().collect();
        for some in ids.chunks(QUEUES_AT_ONCE) {
            let guard = self.lock()?;
            let mut machines = some.iter().filter_map(|id| guard.queues.get(id)).map(|entry| &entry.machine);
            if machines.any(|machine| machine.free_count() + machine.unacked_count() > 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Corruption found since the shard was opened, by file; the last known one while the lock is held for long.
    #[must_use]
    pub fn corruptions(&self) -> Vec<Corruption> {
        let Some(guard) = self.glance() else { return stalls::known(&self.stalls.corruptions) };
        let name = |id: &QueueId| match guard.queues.get(&guard.queue_of(*id).0) {
            Some(entry) if !entry.name.is_empty() => entry.name.clone(),
            _ => format!("queue {} (deleted)", id.0),
        };
        let of = |found: &CorruptFile| Corruption {
            file: self.number.place_of(&found.file),
            at: found.at,
            records: found.records,
            queues: found.queues.iter().map(name).collect(),
        };
        stalls::keep(&self.stalls.corruptions, guard.corruptions.files().map(of).collect())
    }

    pub(crate) fn producer_memory(&self) -> Duration {
        self.around.producer_memory
    }

    pub(crate) fn producers_of_user_max(&self) -> usize {
        self.around.producers_of_user_max
    }

    /// Takes note of messages that were dropped because their records are bad or gone.
    pub(crate) fn tell_corruption(&self, state: &State, file: &str, count: u64, is_first: bool) {
        self.around.counters.add(Metric::CorruptRecords, count);
        if is_first && let Some(found) = state.corruptions.files().find(|found| found.file == file) {
            let place = self.number.place_of(&found.file);
            self.around.notices.warn(corruption_line(&self.name, &place, found));
        }
    }

    /// Reports messages that were dropped because no segment holds them, except those that the start counted.
    pub(crate) fn tell_lost(&self, state: &mut State, queue: QueueId, count: u64) {
        let (count, is_first) = state.corruptions.note_lost(queue, count);
        self.around.counters.add(Metric::CorruptRecords, count);
        if is_first {
            let queue = state.queues.get(&queue).map_or("", |entry| &entry.name);
            self.around.notices.warn(lost_line(&self.name, queue, count));
        }
    }

    /// Counters of the log; the last known ones while the lock is held for long.
    #[must_use]
    pub fn log_stats(&self) -> LogStats {
        match self.glance() {
            Some(guard) => stalls::keep(&self.stalls.stats, guard.log.stats()),
            None => stalls::known(&self.stalls.stats),
        }
    }

    /// Ends consumers and refuses publishers; all writes are synced. With `delete` the files are removed too.
    ///
    /// # Errors
    /// `Log` when the disk failed.
    pub fn close(&self, delete: bool) -> Result<(), EngineError> {
        if !delete {
            self.end_dead_letters();
            self.end_notes();
        }
        let others = self.others.all().into_iter().map(|(_, shard)| shard.close(false));
        let others = others.fold(Ok(()), Result::and);
        if others.is_ok() && !delete && !self.is_replicated() {
            let mut guard = self.lock()?;
            if !guard.closed && guard.stopped.is_none() {
                // Without it the next start asks the logs. Of a replicated log the end may still be cut.
                let _ = guard.write_all_complete();
            }
        }
        self.close_alone(delete).and(others)
    }

    fn close_alone(&self, delete: bool) -> Result<(), EngineError> {
        let mut guard = self.lock()?;
        if std::mem::replace(&mut guard.closed, true) {
            return Ok(());
        }
        self.note_closed();
        let State { queues, wakes, term, .. } = &mut *guard;
        let reason = format!("virtual host '{}' was closed", self.name);
        queues.values_mut().for_each(|entry| entry.cancel(&reason, wakes));
        if term.is_some() {
            // The log is the replica's, which goes on.
            drop(guard);
            self.sync_done.notify_waiters();
            return Ok(());
        }
        let marked = if delete { Ok(()) } else { guard.end_delivery_marks() };
        let result = if delete { Ok(()) } else { guard.log.close() };
        let end = guard.log.end();
        drop(guard);
        if result.is_ok() {
            self.publish_synced(end);
        }
        // Waiters are woken even when nothing more is synced.
        self.sync_done.notify_waiters();
        if delete {
            let removed = std::fs::remove_dir_all(&self.directory);
            removed.map_err(|source| EngineError::Io {
                action: "remove",
                what: self.directory.display().to_string(),
                source,
            })?;
        }
        Ok(result?).and(marked)
    }

    // ---- durability

    /// Everything below it is on the disk, and in a replicated log committed.
    #[must_use]
    pub fn synced(&self) -> Position {
        Position(self.synced.load(Ordering::Acquire))
    }

    /// Wakes a sync thread; its round covers everything written by now.
    pub fn request_sync(&self) {
        if let Some(replication) = &self.replication {
            return replication.appended();
        }
        if !self.sync_waits.swap(true, Ordering::AcqRel) {
            self.around.syncs.sync(Weak::clone(&self.me));
        }
    }

    /// Wakes the fold thread, which checks the log's sealed segments.
    pub(crate) fn request_fold(&self) {
        if !self.fold_waits.swap(true, Ordering::AcqRel) {
            self.around.folds.fold(Weak::clone(&self.me));
        }
    }

    /// Says that a vhost that was opened before its definitions were read has its queues and routes. Messages expire, and dead
    /// letters move, from now on.
    pub fn complete(self: &Arc<Self>) {
        // An error of the log shows with the next message.
        let _ = self.forget_unbound();
        self.around.is_complete.store(true, Ordering::Release);
        for shard in self.family() {
            let _ = shard.forget_unknown_windows();
            let _ = shard.find_refused();
            shard.next_expiry.lower(0);
            shard.request_moves();
        }
        let _ = self.complete_histories();
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.around.is_complete.load(Ordering::Acquire)
    }

    /// Wakes the thread that moves dead letters, and copies kept messages that waited.
    pub(crate) fn request_moves(&self) {
        if !self.dead_lettering.waits.swap(true, Ordering::AcqRel) {
            self.around.dead_letters.fold(Weak::clone(&self.me));
        }
    }

    /// Completes when `position` is on the disk, or the shard has stopped.
    ///
    /// # Errors
    /// `Stopped` after a failed sync: nothing more will be confirmed.
    pub async fn wait_synced(&self, position: Position) -> Result<(), EngineError> {
        loop {
            let done = self.sync_done.notified();
            tokio::pin!(done);
            done.as_mut().enable();
            if self.synced() >= position {
                return Ok(());
            }
            self.check_at_a_look()?;
            done.await;
        }
    }

    /// Fails when nothing more is synced. It waits for no lock: a stop of the shard wakes all waiters, and while
    /// another thread holds the lock its report suffices.
    fn check_at_a_look(&self) -> Result<(), EngineError> {
        match self.state.try_lock() {
            Ok(state) => state.check(&self.name),
            Err(TryLockError::Poisoned(_)) => Err(self.poisoned()),
            Err(TryLockError::WouldBlock) => match self.stalls.fault.get() {
                Some(reason) => Err(EngineError::Stopped(self.name.clone(), reason.clone())),
                None if self.is_closed() => Err(EngineError::Closed(self.name.clone())),
                None => Ok(()),
            },
        }
    }

    pub(crate) fn publish_synced(&self, position: Position) {
        self.synced.fetch_max(position.0, Ordering::AcqRel);
        self.sync_done.notify_waiters();
    }

    pub(crate) fn stop(&self, reason: &str) {
        if let Ok(mut guard) = self.lock() {
            guard.stopped.get_or_insert_with(|| reason.to_owned());
        }
        self.sync_done.notify_waiters();
    }

    // ---- disk space

    pub(crate) fn is_full(&self) -> bool {
        self.around.space.is_full()
    }

    /// Why publishers are refused.
    pub(crate) fn full(&self) -> EngineError {
        let (free, needed) = (self.around.space.free(), self.around.space.needed());
        EngineError::Log(LogError::Full { path: self.directory.clone(), free, needed })
    }

    /// Notes that the log found no space. It wakes tasks: call it without the lock.
    pub(crate) fn ran_out(&self, room: Room) {
        if !self.is_full() {
            self.around.space.ran_out(room, &self.around.notices);
        }
    }

    /// Free and needed space of its log; `None` once it is closed, or while the lock is held for long.
    pub(crate) fn room(&self) -> Option<Room> {
        let guard = self.glance()?;
        guard.check(&self.name).is_ok().then(|| guard.log.room())
    }

    // ---- inside

    pub(crate) fn lock(&self) -> Result<Held<'_>, EngineError> {
        let _next = self.stalls.locked(&self.next).unwrap_or_else(PoisonError::into_inner);
        let state = self.stalls.locked(&self.state).map_err(|_| self.poisoned())?;
        Ok(self.stalls.taken(state))
    }

    /// The present routing table. It is changed in place while no copy is in use, so give it back soon.
    pub(crate) fn routing(&self) -> Arc<Routing> {
        Arc::clone(&self.routing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn change_routing<T>(&self, change: impl FnOnce(&mut Routing) -> T) -> T {
        change(Arc::make_mut(&mut self.routing.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Removes a queue that is deleted; returns how many were removed so far.
    pub(crate) fn remove_from_routing(&self, queue: &str) -> u64 {
        self.change_routing(|routing| {
            routing.remove_queue(queue);
            routing.removals()
        })
    }

    fn poisoned(&self) -> EngineError {
        EngineError::Stopped(self.name.clone(), "a bug ended an operation half way".to_owned())
    }

    pub(crate) fn entry<'a>(&self, state: &'a mut State, queue: QueueId) -> Result<&'a mut QueueEntry, EngineError> {
        let State { queues, gone, is_deposed, .. } = state;
        queues.get_mut(&queue).ok_or_else(|| match is_deposed {
            true => EngineError::NotLeading(self.name.clone()),
            false => EngineError::NoQueue(queue.0, gone.absent(queue, &self.name)),
        })
    }

    /// Stops a shard whose log is replicated, at a record that its own disk has changed or lost: other replicas have it, so nothing is
    /// dropped. The replica halts for that, and another one leads. Nothing happens where the log has no replicas.
    ///
    /// # Errors
    /// `Stopped`.
    pub(crate) fn keep_replicated(&self, state: &mut State, why: &dyn std::fmt::Display) -> Result<(), EngineError> {
        if state.term.is_none() {
            return Ok(());
        }
        let reason = state.stopped.get_or_insert_with(|| why.to_string()).clone();
        Err(EngineError::Stopped(self.name.clone(), reason))
    }

    /// The same at a corrupt record, which the next start reports, too.
    pub(crate) fn keep_corrupt(
        &self,
        state: &mut State,
        (file, at): (&str, u64),
        why: &LogError,
    ) -> Result<(), EngineError> {
        if state.term.is_some() {
            state.log.quarantine(file, at);
        }
        self.keep_replicated(state, why)
    }

    pub(crate) fn missing(&self, queue: QueueId, sequence: Sequence) -> EngineError {
        let text = format!("message {} of queue {} has no record in any segment", sequence.0, queue.0);
        EngineError::Stopped(self.name.clone(), text)
    }
}
