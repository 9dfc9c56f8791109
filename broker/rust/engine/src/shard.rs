//! One vhost's log with its queues and routing tables, and the changes of topology that Python decided.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use penstock_log::{Log, LogOptions, LogStats, Outcome, Position, Recovery};
use penstock_queue::{AckSet, Destination, ExchangeKind, Matched, Queue, QueueId, Sequence};
use tokio::sync::Notify;

use crate::background::Background;
use crate::counters::{Counters, Metric};
use crate::error::EngineError;
use crate::level::Level;
use crate::state::{QueueEntry, State};

/// What a queue holds, in messages and bytes of their bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    pub ready_count: u64,
    pub unsettled_count: u64,
    pub ready_bytes: u64,
    pub unsettled_bytes: u64,
    pub consumer_count: u64,
}

/// See the module. The lock protects `State`; `synced` is what the sync thread reached and only grows.
pub struct Shard {
    me: Weak<Shard>,
    name: String,
    directory: PathBuf,
    state: Mutex<State>,
    synced: AtomicU64,
    sync_done: Notify,
    sync_waits: AtomicBool,
    fold_waits: AtomicBool,
    background: Arc<Background>,
    counters: Arc<Counters>,
    recovery: Recovery,
    recovery_ms: f64,
    highest_queue_id: u32,
}

impl Shard {
    pub(crate) fn open(
        name: &str,
        directory: &Path,
        options: LogOptions,
        background: Arc<Background>,
        counters: Arc<Counters>,
    ) -> Result<Arc<Shard>, EngineError> {
        let started = Instant::now();
        let opened = Log::open(directory, options)?;
        let recovery_ms = started.elapsed().as_secs_f64() * 1e3;
        let synced = opened.log.synced();
        let mut state = State::new(opened.log, opened.state.first_sequence);
        let highest_queue_id = opened.state.highest_queue_id.0;
        for (id, folded) in opened.state.queues {
            let machine =
                Queue::recovered(folded.next, folded.settled, folded.count, folded.bytes, folded.delivery_counts);
            state.queues.insert(id, QueueEntry::new("", machine, false, None));
        }
        let shard = Arc::new_cyclic(|me| Shard {
            me: Weak::clone(me),
            name: name.to_owned(),
            directory: directory.to_owned(),
            state: Mutex::new(state),
            synced: AtomicU64::new(synced.0),
            sync_done: Notify::new(),
            sync_waits: AtomicBool::new(false),
            fold_waits: AtomicBool::new(false),
            background,
            counters,
            recovery: opened.recovery,
            recovery_ms,
            highest_queue_id,
        });
        // What was recovered is held in memory until it is folded.
        shard.request_fold();
        Ok(shard)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
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

    /// The highest queue id that the log has ever named.
    #[must_use]
    pub fn highest_queue_id(&self) -> u32 {
        self.highest_queue_id
    }

    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Once, after the definitions are read: deletes the queues of the log that they do not name; gives their number.
    ///
    /// # Errors
    /// `Log` when the deletions cannot be written.
    pub fn retain_queues(&self, ids: &[QueueId]) -> Result<usize, EngineError> {
        let known: rustc_hash::FxHashSet<QueueId> = ids.iter().copied().collect();
        let mut guard = self.lock()?;
        let gone: Vec<QueueId> = guard.queues.keys().filter(|id| !known.contains(id)).copied().collect();
        for &id in &gone {
            guard.queues.remove(&id);
            guard.log.append_delete(id)?;
        }
        guard.write()?;
        Ok(gone.len())
    }

    /// Adds a queue, or gives a recovered one its name.
    ///
    /// # Errors
    /// `Stopped` and `Closed`.
    pub fn put_queue(
        &self,
        id: QueueId,
        name: &str,
        auto_delete: bool,
        level: Option<Level>,
    ) -> Result<(), EngineError> {
        let mut guard = self.lock()?;
        guard.check(&self.name)?;
        guard.routing.put_queue(name, id);
        let first = guard.first_sequence;
        let new = || Queue::recovered(first, AckSet::starting_at(first), 0, 0, BTreeMap::new());
        let entry = guard.queues.entry(id).or_insert_with(|| QueueEntry::new("", new(), false, None));
        entry.name = name.to_owned();
        entry.auto_delete = auto_delete;
        entry.level = level;
        Ok(())
    }

    /// Ends the queue's consumers and drops its messages; gives their number, unsettled ones included.
    ///
    /// # Errors
    /// `NoQueue`; `Log` when the deletion cannot be written.
    pub fn delete_queue(&self, id: QueueId) -> Result<u64, EngineError> {
        let mut guard = self.lock()?;
        let entry = guard.queues.remove(&id).ok_or_else(|| EngineError::NoQueue(id.0, self.name.clone()))?;
        guard.routing.remove_queue(&entry.name);
        for signal in entry.signals.values() {
            signal.cancel(&format!("queue '{}' was deleted", entry.name));
        }
        guard.log.append_delete(id)?;
        guard.write()?;
        Ok(entry.machine.ready_count() + entry.machine.unsettled_count())
    }

    /// Drops the ready messages of a queue; gives their number.
    ///
    /// # Errors
    /// `NoQueue`; `Log` when the purge cannot be written.
    pub fn purge_queue(&self, id: QueueId) -> Result<u64, EngineError> {
        let mut guard = self.lock()?;
        let settled = self.entry(&mut guard, id)?.machine.purge();
        guard.log_settled(id, Outcome::Drop, &settled)?;
        Ok(settled.count)
    }

    /// Adds an exchange, or changes its alternate.
    ///
    /// # Errors
    /// `Stopped` and `Closed`.
    pub fn put_exchange(&self, name: &str, kind: ExchangeKind, alternate: Option<&str>) -> Result<(), EngineError> {
        self.lock()?.routing.put_exchange(name, kind, alternate);
        Ok(())
    }

    /// # Errors
    /// `Stopped` and `Closed`.
    pub fn delete_exchange(&self, name: &str) -> Result<(), EngineError> {
        self.lock()?.routing.remove_exchange(name);
        Ok(())
    }

    /// # Errors
    /// `Routing` when the exchange is not there or `matching` is no field table.
    pub fn add_route(
        &self,
        exchange: &str,
        key: &str,
        matching: Option<&[u8]>,
        destination: Destination<'_>,
    ) -> Result<(), EngineError> {
        Ok(self.lock()?.routing.add_route(exchange, key, matching, destination)?)
    }

    /// # Errors
    /// `Routing` when `matching` is no field table.
    pub fn remove_route(
        &self,
        exchange: &str,
        key: &str,
        matching: Option<&[u8]>,
        destination: Destination<'_>,
    ) -> Result<(), EngineError> {
        Ok(self.lock()?.routing.remove_route(exchange, key, matching, destination)?)
    }

    /// The names of the queues that a message would reach, sorted.
    ///
    /// # Errors
    /// `NoExchange`.
    pub fn route(&self, exchange: &str, key: &str, headers: Option<&[u8]>) -> Result<Vec<String>, EngineError> {
        let guard = self.lock()?;
        let mut matched = Matched::default();
        guard
            .routing
            .route(exchange.as_bytes(), key.as_bytes(), headers, &mut matched)
            .map_err(|_| EngineError::NoExchange(exchange.to_owned(), self.name.clone()))?;
        let entries = matched.queues.iter().filter_map(|id| guard.queues.get(id));
        let mut names: Vec<String> = entries.map(|entry| entry.name.clone()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// What one queue holds.
    ///
    /// # Errors
    /// `NoQueue`.
    pub fn queue_counts(&self, ids: &[QueueId]) -> Result<Vec<QueueCounts>, EngineError> {
        let guard = self.lock()?;
        Ok(ids.iter().map(|id| guard.queues.get(id).map_or_else(QueueCounts::default, counts_of)).collect())
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lock().map_or(true, |guard| guard.closed)
    }

    /// Ready and unsettled messages over all queues.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn totals(&self) -> Result<(u64, u64), EngineError> {
        let guard = self.lock()?;
        let machines = guard.queues.values().map(|entry| &entry.machine);
        Ok(machines.fold((0, 0), |(ready, unsettled), machine| {
            (ready + machine.ready_count(), unsettled + machine.unsettled_count())
        }))
    }

    #[must_use]
    pub fn log_stats(&self) -> LogStats {
        self.lock().map(|guard| guard.log.stats()).unwrap_or_default()
    }

    /// Ends consumers and refuses publishers; what was written is synced. With `delete` the files go too.
    ///
    /// # Errors
    /// `Log` when the disk refused.
    pub fn close(&self, delete: bool) -> Result<(), EngineError> {
        let mut guard = self.lock()?;
        if std::mem::replace(&mut guard.closed, true) {
            return Ok(());
        }
        for entry in guard.queues.values() {
            for signal in entry.signals.values() {
                signal.cancel(&format!("virtual host '{}' was closed", self.name));
            }
        }
        let result = if delete { Ok(()) } else { guard.log.close() };
        let end = guard.log.end();
        drop(guard);
        if result.is_ok() {
            self.publish_synced(end);
        }
        if delete {
            let removed = std::fs::remove_dir_all(&self.directory);
            removed.map_err(|source| EngineError::Io {
                action: "remove",
                what: self.directory.display().to_string(),
                source,
            })?;
        }
        Ok(result?)
    }

    // ---- durability

    /// Everything below it is on the disk.
    #[must_use]
    pub fn synced(&self) -> Position {
        Position(self.synced.load(Ordering::Acquire))
    }

    /// Asks the sync thread; what has been written by now is covered by its next round.
    pub fn request_sync(&self) {
        if !self.sync_waits.swap(true, Ordering::AcqRel) {
            self.background.sync(Weak::clone(&self.me));
        }
    }

    /// Asks the fold thread, which looks at the log's sealed segments.
    pub(crate) fn request_fold(&self) {
        if !self.fold_waits.swap(true, Ordering::AcqRel) {
            self.background.fold(Weak::clone(&self.me));
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
            self.lock()?.check(&self.name)?;
            done.await;
        }
    }

    pub(crate) fn publish_synced(&self, position: Position) {
        self.synced.fetch_max(position.0, Ordering::AcqRel);
        self.sync_done.notify_waiters();
    }

    /// One round of the sync thread.
    pub(crate) fn sync_once(&self) -> Result<(), EngineError> {
        self.sync_waits.store(false, Ordering::Release);
        let ticket = {
            let mut guard = self.lock()?;
            if guard.closed {
                return Ok(());
            }
            guard.check(&self.name)?;
            guard.log.begin_sync()
        };
        let Some(ticket) = ticket else { return Ok(()) };
        let started = Instant::now();
        let position = ticket.perform()?;
        self.counters.add(Metric::Syncs, 1);
        self.counters.add(Metric::SyncMicros, u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX));
        self.lock()?.log.finish_sync(position);
        self.publish_synced(position);
        Ok(())
    }

    /// One round of the fold thread; says whether it found something to fold.
    pub(crate) fn fold_once(&self) -> Result<bool, EngineError> {
        self.fold_waits.store(false, Ordering::Release);
        let ticket = {
            let mut guard = self.lock()?;
            if guard.closed || guard.stopped.is_some() {
                return Ok(false);
            }
            guard.log.begin_fold()
        };
        let Some(ticket) = ticket else { return Ok(false) };
        let folded = ticket.perform()?;
        let retired = self.lock()?.log.finish_fold(folded);
        retired.perform()?;
        Ok(true)
    }

    /// A slice of compaction; says how many bytes it wrote and whether there is more to do.
    pub(crate) fn compact_once(&self, bytes_max: u64) -> Result<(u64, bool), EngineError> {
        let ticket = {
            let mut guard = self.lock()?;
            if guard.closed || guard.stopped.is_some() {
                return Ok((0, false));
            }
            guard.log.begin_compaction()
        };
        let Some(ticket) = ticket else { return Ok((0, false)) };
        let compacted = ticket.perform(bytes_max)?;
        let (bytes, more) = (compacted.bytes, compacted.more);
        self.counters.add(Metric::Compacted, bytes);
        if compacted.given_up.is_some() {
            self.counters.add(Metric::CompactionsGivenUp, 1);
        }
        let retired = self.lock()?.log.finish_compaction(compacted);
        retired.perform()?;
        Ok((bytes, more))
    }

    /// Lets go of maps that nobody read since the last call.
    pub(crate) fn unmap_idle(&self) {
        // Unmapping takes its time: what is retired goes after the lock.
        let retired = self.lock().map(|mut guard| guard.log.unmap_idle());
        drop(retired);
    }

    pub(crate) fn stop(&self, reason: &str) {
        if let Ok(mut guard) = self.lock() {
            guard.stopped.get_or_insert_with(|| reason.to_owned());
        }
        self.sync_done.notify_waiters();
    }

    // ---- inside

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State>, EngineError> {
        self.state
            .lock()
            .map_err(|_| EngineError::Stopped(self.name.clone(), "a bug ended an operation half way".to_owned()))
    }

    pub(crate) fn entry<'a>(&self, state: &'a mut State, queue: QueueId) -> Result<&'a mut QueueEntry, EngineError> {
        state.queues.get_mut(&queue).ok_or_else(|| EngineError::NoQueue(queue.0, self.name.clone()))
    }

    pub(crate) fn missing(&self, queue: QueueId, sequence: Sequence) -> EngineError {
        let text = format!("message {} of queue {} has no record in any segment", sequence.0, queue.0);
        EngineError::Stopped(self.name.clone(), text)
    }
}

fn counts_of(entry: &QueueEntry) -> QueueCounts {
    QueueCounts {
        ready_count: entry.machine.ready_count(),
        unsettled_count: entry.machine.unsettled_count(),
        ready_bytes: entry.machine.ready_bytes(),
        unsettled_bytes: entry.machine.unsettled_bytes(),
        consumer_count: entry.consumer_count() as u64,
    }
}
