//! A shard of a replicated log: it is opened for a term of this broker, and ends with it.
//!
//! Invariants: nothing is appended once the term is over, though records that were appended may be committed by the next leader; the
//! log leaves the shard only when no fold, whose result belongs to it, is under way. The shard's lock is taken by the replica while it has
//! its own, never the other way round.

use std::sync::atomic::Ordering;

use penstock_log::{Log, Position};

use super::Shard;
use crate::state::State;

impl Shard {
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
        }
    }

    /// Begins or ends deliveries: not before the term's first record is committed, nor while too few brokers are heard.
    pub fn set_delivers(&self, delivers: bool) {
        if let Ok(mut guard) = self.lock() {
            guard.set_delivers(delivers);
        }
    }

    /// Ends the term: consumers are cancelled, and publishes that are not committed have an unknown outcome. The log stays here until
    /// [`Shard::take_log`].
    pub fn end_term(&self) {
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
