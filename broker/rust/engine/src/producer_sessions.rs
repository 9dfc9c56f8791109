//! Opening names of producers, and reading them, under the lock of a shard.

use std::num::NonZeroU64;

use penstock_log::marks;

use crate::clock::clock_ms;
use crate::error::EngineError;
use crate::producer_logs::{Logs, encode};
use crate::producers::{PRODUCERS_MAX, ProducerSession, ProducerStanding, STAGE_PREFIX};
use crate::shard::Shard;
use crate::state::State;

impl Shard {
    /// Open a producer's name for a user, and take it over from the user's session that had it. A name without an owner is
    /// the user's from now on; new names and owners are written down.
    ///
    /// # Errors
    /// `ProducerReserved`; `ProducerOwned`; `ProducerEnded`; `ProducersOfUser`; `TooMany`; `Log` when the name cannot be written; `Stopped` and `Closed`.
    pub fn open_producer(&self, name: &str, user: &str) -> Result<ProducerSession, EngineError> {
        self.open_producer_while(name, user, || true)
    }

    /// As [`Shard::open_producer`], unless the user is not admitted any more. That is asked under the shard's lock: a user that
    /// is being deleted opens no name after [`Shard::delete_producers_of`].
    ///
    /// # Errors
    /// As `open_producer`; `NotAdmitted`.
    pub fn open_producer_while(
        &self,
        name: &str,
        user: &str,
        is_admitted: impl Fn() -> bool,
    ) -> Result<ProducerSession, EngineError> {
        if name.starts_with(STAGE_PREFIX) {
            return Err(EngineError::ProducerReserved(STAGE_PREFIX));
        }
        self.open_after(name, Some(user), || if is_admitted() { Ok(()) } else { Err(EngineError::NotAdmitted) })
    }

    /// Open a name of the broker's own.
    pub(crate) fn open_any_producer(&self, name: &str) -> Result<ProducerSession, EngineError> {
        self.open_after(name, None, || Ok(()))
    }

    /// The number that a producer of the vhost has in this log of a queue's own, which knows all its logs from now on.
    pub(crate) fn id_of_passed(
        &self,
        session: &ProducerSession,
        logs: Option<&Logs>,
    ) -> Result<NonZeroU64, EngineError> {
        let id = self.open_after(session.name(), session.owner(), || session.check())?.id();
        if let Some(logs) = logs.filter(|logs| logs.len() > 1) {
            let mut guard = self.lock()?;
            guard.check(self.name())?;
            session.check()?;
            guard.note_logs(id, logs)?;
            guard.write()?;
        }
        Ok(id)
    }

    fn open_after(
        &self,
        name: &str,
        user: Option<&str>,
        check: impl Fn() -> Result<(), EngineError>,
    ) -> Result<ProducerSession, EngineError> {
        let now_ms = clock_ms();
        loop {
            let mut guard = self.lock()?;
            guard.check(self.name())?;
            check()?;
            let state = &mut *guard;
            if !self.is_of_vhost() && state.producers.is_of_another(name, user) {
                state.forget_producer(name)?;
            }
            if user.is_some_and(|user| state.producers.is_ended(user, name, now_ms)) {
                return Err(EngineError::ProducerEnded(name.to_owned()));
            }
            let known = state.producers.id_of(name);
            let owner =
                known.and_then(|id| state.producers.owner(id)).map(|owner| user.is_none_or(|user| **owner == *user));
            match (known, owner) {
                (Some(_), Some(false)) => return Err(EngineError::ProducerOwned(name.to_owned())),
                (Some(id), Some(true)) => return Ok(state.producers.open(name, id, now_ms)),
                (Some(id), None) if user.is_none() => return Ok(state.producers.open(name, id, now_ms)),
                _ => {}
            }
            let Some(idle) = self.name_in_the_way(state, user, known.is_none(), now_ms)? else {
                let id = known.unwrap_or(state.producers.next_id());
                state.note_producer(name, id, now_ms, user)?;
                state.write()?;
                return Ok(state.producers.open_noted(name, id, now_ms, user));
            };
            drop(guard);
            self.give_up(&idle)?;
        }
    }

    /// The idle name to forget first, when a user or the shard has as many as there may be.
    fn name_in_the_way(
        &self,
        state: &mut State,
        user: Option<&str>,
        is_new: bool,
        now_ms: u64,
    ) -> Result<Option<String>, EngineError> {
        let may_forget = !self.producer_memory().is_zero();
        let of_user_max = self.producers_of_user_max();
        let count_of_user = user.map_or(0, |user| state.producers.name_count_of(user));
        // A queue's own log has only names that the vhost's log let in.
        if self.is_of_vhost() && user.is_some() && count_of_user >= of_user_max {
            let idle = if may_forget { state.producers.longest_idle(user, now_ms) } else { None };
            return idle.ok_or(EngineError::ProducersOfUser(of_user_max)).map(Some);
        }
        if is_new && state.producers.count() >= PRODUCERS_MAX {
            let idle = if may_forget { state.producers.longest_idle(None, now_ms) } else { None };
            return idle.ok_or(EngineError::TooMany { what: "names of producers", max: PRODUCERS_MAX }).map(Some);
        }
        Ok(None)
    }

    /// Return the user who owns a producer's name; `None` for a name that is not there or that has no owner.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn producer_owner(&self, name: &str) -> Result<Option<String>, EngineError> {
        let guard = self.lock()?;
        let owner = guard.producers.id_of(name).and_then(|id| guard.producers.owner(id));
        Ok(owner.map(|owner| owner.to_string()))
    }

    /// The highest sequence stored of a producer; `None` when nothing is.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn producer_sequence(&self, name: &str) -> Result<Option<u64>, EngineError> {
        let guard = self.lock()?;
        let highest = guard.producers.id_of(name).map(|id| guard.producers.highest(id));
        Ok(highest.filter(|&highest| highest > 0))
    }

    /// All names but those of stages, in no order.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn producers(&self) -> Result<Vec<ProducerStanding>, EngineError> {
        Ok(self.lock()?.producers.all())
    }
}

impl State {
    /// Write a producer's number, when it was used, and who owns it.
    pub(crate) fn note_producer(
        &mut self,
        name: &str,
        id: NonZeroU64,
        used_at_ms: u64,
        owner: Option<&str>,
    ) -> Result<(), EngineError> {
        let mut value = id.get().to_le_bytes().to_vec();
        value.extend_from_slice(&used_at_ms.to_le_bytes());
        value.extend_from_slice(owner.unwrap_or_default().as_bytes());
        self.log.append_mark(marks::PRODUCER_NAMES, name.as_bytes(), &value)?;
        Ok(())
    }

    /// Removes the mark of the name, and the checkpoint's state of its number. The caller writes.
    pub(crate) fn forget_producer(&mut self, name: &str) -> Result<bool, EngineError> {
        let Some(id) = self.producers.id_of(name) else { return Ok(false) };
        self.log.append_mark(marks::PRODUCER_NAMES, name.as_bytes(), &[])?;
        self.log.append_mark(&marks::owner_of_producer(id.get()), &[], &[])?;
        if self.producers.standing(id).is_some_and(|standing| standing.noted.is_some()) {
            self.log.append_mark(&marks::owner_of_producer_logs(id.get()), &[], &[])?;
        }
        self.producers.removed_up_to(self.log.end());
        self.producers.forget(name);
        Ok(true)
    }

    /// Write the logs that a producer's messages went to, unless that is one alone. The caller writes. An error without
    /// `stopped` means that there is no space.
    pub(crate) fn note_logs(&mut self, id: NonZeroU64, logs: &Logs) -> Result<(), EngineError> {
        let known = self.producers.standing(id).and_then(|standing| standing.noted.as_ref());
        if logs.len() < 2 || known == Some(logs) {
            return Ok(());
        }
        let complete = self.producers.standing(id).map_or(0, |standing| standing.complete_written);
        self.put_logs(id, complete, logs)
    }

    /// The caller writes.
    pub(crate) fn put_logs(&mut self, id: NonZeroU64, complete: u64, logs: &Logs) -> Result<(), EngineError> {
        match self.log.append_mark(&marks::owner_of_producer_logs(id.get()), &[], &encode(complete, logs)) {
            Err(error) if error.is_full() => return Err(error.into()),
            noted => noted.inspect_err(|error| self.stopped = Some(error.to_string()))?,
        };
        self.producers.noted_logs(id, complete, logs);
        Ok(())
    }
}
