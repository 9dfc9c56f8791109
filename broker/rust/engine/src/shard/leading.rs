//! A shard of a replicated log: it is opened for a term of this broker, and ends with it.
//!
//! Invariants: nothing is appended once the term is over, though records that were appended may be committed by the next leader; the
//! log leaves the shard only when no fold, whose result belongs to it, is under way. The shard's lock is taken by the replica while it has
//! its own, never the other way round. The shards of a virtual host have one term: it ends for all when it ends for one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_log::{Log, Position, marks};

use super::Shard;
use crate::error::EngineError;
use crate::log_number::LogNumber;
use crate::state::State;
use crate::term::{Led, Waiting};

impl Shard {
    /// Whether its log is replicated, and it exists for a term.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.replication.is_some()
    }

    /// Acts on the log of a replicated shard: its replica syncs, sends and commits it. `None` once the log has left, or after a bug.
    pub fn with_log<T>(&self, act: impl FnOnce(&mut Log) -> T) -> Option<T> {
        let mut guard = self.lock().ok()?;
        let is_there = guard.term.is_some();
        is_there.then(|| act(&mut guard.log))
    }

    /// Everything below is committed: it is confirmed, and delivered. Once the term is over, nothing is: the records of another leader may
    /// be in the place of those that it appended.
    pub fn committed(&self, below: Position) {
        let Ok(mut guard) = self.lock() else { return };
        if guard.committed(below) {
            self.publish_synced(below);
            if guard.waited_for_commit(Waiting::Letters) {
                self.request_moves();
            }
            if guard.waited_for_commit(Waiting::Kept) {
                self.give_soon();
            }
        }
    }

    /// Begins or ends deliveries: not before the term's first record is committed, nor while too few brokers are heard.
    pub fn set_delivers(&self, delivers: bool) {
        if let Ok(mut guard) = self.lock() {
            guard.set_delivers(delivers);
        }
    }

    /// Opens a further shard of the virtual host for the term of this one, which is shard 0.
    pub(crate) fn open_further(self: &Arc<Self>, number: u16, directory: &Path, led: Led) -> Arc<Shard> {
        let number = LogNumber::of_shard(number);
        let shard = Shard::of_term((self.name(), number), directory, led, self.around.clone());
        shard.belongs_to(self);
        self.others.put_log(number, Arc::clone(&shard));
        // A bug in shard 0 shows with the next call.
        let _ = self.pass_exchange_windows(&shard);
        if let Ok(mut guard) = self.lock() {
            guard.producers.unlearn_all();
        }
        if self.is_deposed() {
            shard.end_term();
        }
        shard
    }

    /// Fails where the term is over, or the shard has stopped.
    pub(crate) fn check_term(&self) -> Result<(), EngineError> {
        self.lock()?.check(self.name())
    }

    /// Says how many shards the virtual host has, once all of them are open for a term: shard 0 notes it.
    ///
    /// # Errors
    /// `NoShard` where one of them is not open, or shard 0 has noted more; `Log` when it cannot be noted; `Stopped` and `NotLeading`.
    pub fn count_shards(&self, count: u16) -> Result<(), EngineError> {
        let absent = (1..count).find(|&number| self.others.log(LogNumber::of_shard(number)).is_none());
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        if let Some(number) = absent.or((guard.shard_count > count).then_some(count)) {
            return Err(EngineError::NoShard(number, self.name().to_owned()));
        }
        if guard.shard_count < count {
            guard.log.append_mark(marks::SHARD_COUNT, &[], &count.to_le_bytes())?;
            guard.write()?;
            guard.shard_count = count;
        }
        Ok(())
    }

    /// Ends the term of all shards of the virtual host: consumers are cancelled, and publishes that are not committed have an unknown
    /// outcome. The logs stay here until [`Shard::take_log`].
    pub fn end_term(&self) {
        self.end_own_term();
        for shard in self.vhost().iter().flat_map(Shard::family) {
            shard.end_own_term();
        }
    }

    fn end_own_term(&self) {
        let Ok(mut guard) = self.lock() else { return };
        let state = &mut *guard;
        let Some(term) = &mut state.term else { return };
        if term.is_over() {
            return;
        }
        term.end();
        (state.closed, state.is_deposed) = (true, true);
        self.deposed.store(true, Ordering::Release);
        self.note_closed();
        let State { queues, wakes, .. } = state;
        let reason = format!("another broker leads shard '{}' now", self.name);
        queues.values_mut().for_each(|entry| entry.cancel(&reason, wakes));
        queues.clear();
        drop(guard);
        self.sync_done.notify_waiters();
    }

    /// Takes the log of a term that is over; `None` while a fold is under way, and when it was taken before.
    pub fn take_log(&self) -> Option<Log> {
        let mut guard = self.lock().ok()?;
        if !guard.term.as_ref()?.is_over() {
            return None;
        }
        let log = guard.log.hand_on()?;
        guard.term = None;
        Some(log)
    }
}
