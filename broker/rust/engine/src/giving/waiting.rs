//! When kept messages are copied that could not be copied at once.
//!
//! Those that are not committed are copied after a commit, and the others, which wait for space or for another log, a second later.
//! The thread that moves dead letters does it in rounds over all receivers, a part of them in each turn. Invariants: one thread at
//! a time copies. It waits for each log in which it stored copies, once in a part: a log that has copies, and is not behind, has
//! synced them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use penstock_queue::QueueId;

use super::Gave;
use crate::clock::clock_ms;
use crate::dead_lettering::Next;
use crate::error::EngineError;
use crate::histories::Receiver;
use crate::log_number::LogNumber;
use crate::shard::Shard;
use crate::state::State;

/// Receivers that get their copies in one go.
const AT_ONCE: usize = 64;

const TRY_AGAIN_MS: u64 = 1000;

impl Shard {
    /// Has kept messages copied soon: some that were waited for are committed.
    pub(crate) fn give_soon(&self) {
        self.giving.next_ms.store(0, Ordering::Release);
        self.request_moves();
    }

    /// Copies kept messages at once, as far as that is possible, and later what is left.
    pub(super) fn give_first(&self, receivers: &[(QueueId, Receiver)]) -> Result<(), EngineError> {
        for part in receivers.chunks(AT_ONCE) {
            if self.give_to(part)? {
                self.give_later();
                self.request_moves();
            }
        }
        Ok(())
    }

    /// Has the marks appended later for which the disk was full.
    pub(super) fn note_later(&self, state: &State) {
        if !state.unnoted.is_empty() {
            self.give_later();
            self.request_moves();
        }
    }

    /// Appends these marks before the log is closed. A disk that is still full shows when it is.
    pub(crate) fn end_notes(&self) {
        if let Ok(mut guard) = self.lock()
            && !guard.closed
            && guard.stopped.is_none()
        {
            let _ = guard.note_again();
        }
    }

    fn give_later(&self) {
        self.giving.next_ms.fetch_min(clock_ms() + TRY_AGAIN_MS, Ordering::AcqRel);
    }

    /// Copies kept messages to some of those that wait for them, once it is time.
    pub(crate) fn give_some(&self) -> Result<Next, EngineError> {
        let mut round = self.giving.round.lock().unwrap_or_else(PoisonError::into_inner);
        if round.after.is_none() {
            let next = self.next_round();
            if next != Next::More {
                return Ok(next);
            }
            // A commit that comes from now on begins another round.
            self.giving.next_ms.store(u64::MAX, Ordering::Release);
            round.is_left = false;
        }
        let part = {
            let mut guard = self.lock()?;
            if guard.closed || guard.stopped.is_some() {
                return Ok(Next::Nothing);
            }
            round.is_left |= guard.note_again()?;
            guard.histories.pending_after(round.after.as_ref(), AT_ONCE)
        };
        round.is_left |= self.give_to(&part)?;
        round.after = part.last().filter(|_| part.len() == AT_ONCE).cloned();
        if round.after.is_some() {
            return Ok(Next::More);
        }
        if round.is_left {
            self.give_later();
        }
        Ok(self.next_round())
    }

    fn next_round(&self) -> Next {
        match self.giving.next_ms.load(Ordering::Acquire) {
            u64::MAX => Next::Nothing,
            next_ms if next_ms > clock_ms() => Next::Later,
            _ => Next::More,
        }
    }

    /// Returns whether some are left for which nothing but time helps.
    fn give_to(&self, receivers: &[(QueueId, Receiver)]) -> Result<bool, EngineError> {
        let Some(vhost) = self.vhost().filter(|_| self.is_complete()) else { return Ok(false) };
        let _alone = self.giving.alone.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_left = false;
        let (mut unsynced, mut waiting) = (BTreeMap::<LogNumber, Arc<Shard>>::new(), Vec::new());
        let mut failed = Ok(());
        for (history, receiver) in receivers {
            match vhost.give(*history, receiver) {
                Ok(Gave::AllThatIsThere) => {}
                Ok(Gave::Nothing) => is_left = true,
                Ok(Gave::ToOthers(logs)) => {
                    unsynced.extend(logs.into_iter().map(|log| (log.number(), log)));
                    waiting.push((*history, receiver));
                }
                Err(error) => failed = Err(error),
            }
        }
        unsynced.values().for_each(|log| log.sync_copies());
        failed?;
        for (history, receiver) in waiting {
            match vhost.give(history, receiver)? {
                Gave::AllThatIsThere => {}
                Gave::Nothing => is_left = true,
                Gave::ToOthers(logs) => {
                    logs.iter().for_each(|log| log.sync_copies());
                    is_left = true;
                }
            }
        }
        Ok(is_left)
    }

    /// One that is not synced in time is behind.
    fn sync_copies(&self) {
        // One that a bug poisoned has no end any more.
        if let Ok(end) = self.lock().map(|guard| guard.log.end()) {
            let _ = self.syncs_in_time(end);
        }
    }
}
