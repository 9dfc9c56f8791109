//! Removing names of producers: one, those of a user, and those that were unused for long.
//!
//! Invariants: the vhost's shard, which alone knows who owns a name and who holds it, forgets it last, once the own logs of
//! queues have. A name that is left over in one of these would answer for messages that were never stored. A retry, or the
//! next start's, completes a removal that failed or that a crash cut short. No lock is held while another is taken.

use penstock_log::Position;

use crate::clock::clock_ms;
use crate::error::EngineError;
use crate::producers::{Changes, Producers, STAGE_PREFIX};
use crate::shard::Shard;

/// Names that are removed or recorded in one hold of the lock.
const CHANGES_AT_ONCE: usize = 1024;

/// How often a removal begins anew because new sessions were opened for its names. Then it ends them.
const TRIES_MAX: usize = 8;

impl Shard {
    /// Remove a name with its state, here and in the queues' own logs. Return whether it was there, once that is on the disk.
    /// The session that has it ends. Blocks on the disk.
    ///
    /// # Errors
    /// `ProducerReserved`; `Log` when it cannot be written; `Stopped` and `Closed`.
    pub fn delete_producer(&self, name: &str) -> Result<bool, EngineError> {
        if name.starts_with(STAGE_PREFIX) {
            return Err(EngineError::ProducerReserved(STAGE_PREFIX));
        }
        let names = [name.to_owned()];
        for number in 1..=TRIES_MAX {
            if !self.end_session(name)? {
                break;
            }
            self.forget_in_own_logs(&names)?;
            if self.forget_names(&names, |producers, name| number == TRIES_MAX || !producers.has_session(name))? > 0 {
                return Ok(true);
            }
        }
        // An earlier removal may not be on the disk yet.
        self.forget_names(&[], |_, _| true)?;
        Ok(false)
    }

    /// Remove names whose program is over, which a user owns, here and in the queues' own logs. The sessions that have them end,
    /// and the user does not open them again for a while. Return how many were there, once that is on the disk. Blocks on the disk.
    ///
    /// # Errors
    /// `ProducerReserved` and `ProducerOwned` for one of them, and `EndingsOfUsers`, with none removed; `Log` when it cannot be
    /// written; `Stopped` and `Closed`.
    pub fn end_producers(&self, names: &[String], user: &str) -> Result<u64, EngineError> {
        if names.iter().any(|name| name.starts_with(STAGE_PREFIX)) {
            return Err(EngineError::ProducerReserved(STAGE_PREFIX));
        }
        let ended = {
            let mut guard = self.lock()?;
            guard.check(self.name())?;
            guard.producers.end(user, names, clock_ms())?
        };
        if !ended.is_empty() {
            self.forget_in_own_logs(&ended)?;
        }
        // Without names, too: an earlier removal may not be on the disk yet.
        self.forget_names(&ended, |_, _| true)
    }

    fn end_session(&self, name: &str) -> Result<bool, EngineError> {
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        Ok(guard.producers.end_session(name))
    }

    /// Remove all names that a user owns, with their states, here and in the queues' own logs. Return how many there were, once
    /// that is on the disk. The sessions that have the names end. Blocks on the disk.
    ///
    /// # Errors
    /// `Log` when it cannot be written; `Stopped` and `Closed`, unless the user has no names.
    pub fn delete_producers_of(&self, user: &str) -> Result<u64, EngineError> {
        let (mut count, mut tries) = (0, 0);
        loop {
            let names = self.lock()?.producers.end_sessions_of(user, CHANGES_AT_ONCE);
            if !names.is_empty() {
                self.forget_in_own_logs(&names)?;
            }
            // Without names, too: an earlier removal may not be on the disk yet.
            let may = |producers: &Producers, name: &str| tries >= TRIES_MAX || !producers.has_session(name);
            let removed = self.forget_names(&names, may)?;
            if names.is_empty() {
                return Ok(count);
            }
            tries = if removed > 0 { 0 } else { tries + 1 };
            count += removed;
        }
    }

    /// Remove names that were unused for too long, here and in the queues' own logs, and record the use of others. Return how
    /// many were removed. The shard of a vhost does that for its queues' own logs, which do nothing by themselves.
    ///
    /// # Errors
    /// `Log` when that cannot be written; `Stopped` when a bug poisoned the shard.
    pub fn forget_producers(&self, now_ms: u64) -> Result<u64, EngineError> {
        if self.producer_memory().is_zero() || !self.is_of_vhost() {
            return Ok(0);
        }
        let names = self.note_uses(now_ms)?;
        let mut are_gone = true;
        for (_, own) in self.others.all().iter().filter(|(_, own)| !own.is_closed()) {
            let removed = own.forget_as_told(self, &names, now_ms);
            if let Err(error) = &removed
                && !error.is_full()
            {
                own.stop(&error.to_string());
            }
            are_gone &= removed.unwrap_or(false);
        }
        // What an own log still has, or may have again after a power failure, the next round removes.
        if are_gone { self.forget_idle(&names, now_ms) } else { Ok(0) }
    }

    /// Remove names from this own log: these, and those that the vhost's shard does not know. Say whether these are gone for
    /// good. Waits for no disk.
    fn forget_as_told(&self, vhost: &Shard, names: &[String], now_ms: u64) -> Result<bool, EngineError> {
        let memory = self.producer_memory();
        let (_, end) = self.write_forgotten(names, |producers, name| !producers.is_in_use(name, now_ms, memory))?;
        self.forget_unknown(vhost, now_ms)?;
        let is_synced = self.synced() >= end;
        if !is_synced {
            self.request_sync();
        }
        Ok(is_synced && !self.lock()?.producers.has_one_of(names))
    }

    /// Record the use of names, and return some that were unused for too long.
    fn note_uses(&self, now_ms: u64) -> Result<Vec<String>, EngineError> {
        let mut guard = self.lock()?;
        if guard.closed || guard.stopped.is_some() {
            return Ok(Vec::new());
        }
        let state = &mut *guard;
        let Changes { noted, forgotten } = state.producers.look(now_ms, self.producer_memory(), CHANGES_AT_ONCE);
        for name in &noted {
            let Some(id) = state.producers.id_of(name) else { continue };
            let Some(used_at_ms) = state.producers.used_at_ms(id) else { continue };
            let owner = state.producers.owner(id).cloned();
            state.note_producer(name, id, used_at_ms, owner.as_deref())?;
            state.producers.noted(id, used_at_ms);
        }
        state.write()?;
        Ok(forgotten)
    }

    /// Remove those of these names that are still unused.
    fn forget_idle(&self, names: &[String], now_ms: u64) -> Result<u64, EngineError> {
        if names.is_empty() {
            return Ok(0);
        }
        let mut guard = self.lock()?;
        if guard.closed || guard.stopped.is_some() {
            return Ok(0);
        }
        let mut count = 0;
        for name in names {
            if guard.producers.is_idle(name, now_ms, self.producer_memory()) {
                count += u64::from(guard.forget_producer(name)?);
            }
        }
        guard.write()?;
        Ok(count)
    }

    /// Remove names from this own log that were unused for long and that the vhost's shard does not know any more: a failure
    /// of power may have brought them back.
    fn forget_unknown(&self, vhost: &Shard, now_ms: u64) -> Result<(), EngineError> {
        let names = self.note_uses(now_ms)?;
        if names.is_empty() {
            return Ok(());
        }
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        {
            let guard = vhost.lock()?;
            for name in names {
                match guard.producers.last_use_ms(&name, now_ms) {
                    Some(used_at_ms) => known.push((name, used_at_ms)),
                    None => unknown.push(name),
                }
            }
        }
        {
            let mut guard = self.lock()?;
            known.iter().for_each(|(name, used_at_ms)| guard.producers.used(name, *used_at_ms));
        }
        self.forget_idle(&unknown, now_ms).map(|_| ())
    }

    /// Remove an idle name, here and in the queues' own logs, for one that needs its place. Waits for no disk.
    pub(crate) fn give_up(&self, name: &str) -> Result<(), EngineError> {
        let names = [name.to_owned()];
        self.in_own_logs(|own| own.write_forgotten(&names, |_, _| true).map(|_| ()))?;
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        if !guard.producers.is_open(name) {
            guard.forget_producer(name)?;
            guard.write()?;
        }
        Ok(())
    }

    /// Remove these names from all own logs, once that is on the disk.
    fn forget_in_own_logs(&self, names: &[String]) -> Result<(), EngineError> {
        self.in_own_logs(|own| own.forget_names(names, |_, _| true).map(|_| ()))
    }

    /// Remove names from all own logs, but for those of queues that are deleted meanwhile.
    fn in_own_logs(&self, remove: impl Fn(&Shard) -> Result<(), EngineError>) -> Result<(), EngineError> {
        for (number, own) in self.others.all() {
            match remove(&own) {
                Err(EngineError::Closed(_)) if self.others.log(number).is_none() => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    /// As `write_forgotten`; return how many were removed, once that is on the disk.
    fn forget_names(&self, names: &[String], may: impl Fn(&Producers, &str) -> bool) -> Result<u64, EngineError> {
        let (mut count, mut end) = self.write_forgotten(&[], &may)?;
        for some in names.chunks(CHANGES_AT_ONCE) {
            let (removed, removed_end) = self.write_forgotten(some, &may)?;
            (count, end) = (count + removed, end.max(removed_end));
        }
        if self.synced() < end {
            self.sync_to(end)?;
        }
        Ok(count)
    }

    /// Remove those of these names that may go.
    fn write_forgotten(
        &self,
        names: &[String],
        may: impl Fn(&Producers, &str) -> bool,
    ) -> Result<(u64, Position), EngineError> {
        let mut state = self.lock()?;
        if state.producers.has_one_of(names) {
            state.check(self.name())?;
        }
        let mut count = 0;
        for name in names {
            if may(&state.producers, name) {
                count += u64::from(state.forget_producer(name)?);
            }
        }
        if count > 0 {
            state.write()?;
        }
        Ok((count, state.producers.removed_end()))
    }
}
