//! What all logs of a vhost say of a producer: its messages may lie in those of shards, in dedicated ones, or in several.
//!
//! Shard 0 asks the others once, before the first message of a name: from then on it knows all that they store.

use std::sync::Arc;

use penstock_log::Producer;
use rustc_hash::FxHashMap;

use crate::clock::clock_ms;
use crate::error::EngineError;
use crate::log_number::LogNumber;
use crate::producer_logs::{Found, Sequences, joined};
use crate::producers::{ProducerSession, ProducerStanding};
use crate::repetition::BatchStanding;
use crate::shard::Shard;

impl Shard {
    /// How far a producer's messages are stored in the logs of this vhost; `None` when nothing is.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned a shard.
    pub fn sequences_in_family(&self, name: &str) -> Result<Option<Sequences>, EngineError> {
        let (here, owner) = {
            let guard = self.lock()?;
            let owner = guard.producers.id_of(name).and_then(|id| guard.producers.owner(id)).cloned();
            (guard.producers.found(name).unwrap_or_default(), owner)
        };
        let (_, sequences) = joined(&here, &self.found_elsewhere(name, owner.as_deref())?);
        Ok((sequences.highest > 0).then_some(sequences))
    }

    /// The highest sequence of a producer in any log of this vhost.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned a shard.
    pub fn sequence_in_family(&self, name: &str) -> Result<Option<u64>, EngineError> {
        Ok(self.sequences_in_family(name)?.map(|sequences| sequences.highest))
    }

    /// Begin a batch of a producer of this user: return what the logs of this vhost know of it, of which only this session stores
    /// more. Rows of it that were refused before need not come again. Without a session, for a batch without rows, that is so
    /// only when no session has the name.
    ///
    /// # Errors
    /// `ProducerOwned` without a session; `ProducerTaken` with one; `Stopped` when a bug poisoned a shard.
    pub fn begin_batch(
        self: &Arc<Self>,
        name: &str,
        batch: u32,
        user: &str,
        session: Option<&ProducerSession>,
    ) -> Result<BatchStanding, EngineError> {
        let unused = match session {
            Some(_) => None,
            None => self.lock()?.producers.open_unused(name, user, clock_ms())?,
        };
        let mut standing = BatchStanding::default();
        for log in self.family() {
            let mut guard = log.lock()?;
            session.map_or(Ok(()), ProducerSession::check)?;
            // Whoever opened the name meanwhile begins its batches itself.
            if session.or(unused.as_ref()).is_some_and(|session| session.check().is_ok()) {
                guard.producers.batch_begins(name, batch);
            }
            guard.producers.add_batch(name, batch, user, &mut standing);
        }
        Ok(standing)
    }

    /// All names but those of stages, in no order: this shard knows each, and the logs with its messages the sequence.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned a shard.
    pub fn producers_of_family(self: &Arc<Self>) -> Result<Vec<ProducerStanding>, EngineError> {
        let mut all = self.producers()?;
        for (_, home) in self.others.all() {
            let there: FxHashMap<_, _> = home.producers()?.into_iter().map(|one| (one.name, one.sequence)).collect();
            for one in &mut all {
                one.sequence = one.sequence.max(there.get(&one.name).copied().unwrap_or_default());
            }
        }
        Ok(all)
    }

    /// Holds back a producer's higher sequences, after its message with this one was refused outside the engine.
    ///
    /// # Errors
    /// `ProducerTaken`; `Stopped` and `Closed`.
    pub fn refuse(&self, session: &ProducerSession, sequence: u64) -> Result<(), EngineError> {
        self.learn_producer(session)?;
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        session.check()?;
        guard.producers.refused(Producer { id: session.id(), sequence });
        Ok(())
    }

    /// Asks the other logs about a producer, unless that was done.
    pub(crate) fn learn_producer(&self, session: &ProducerSession) -> Result<(), EngineError> {
        if session.is_learned() || self.others.is_empty() {
            return Ok(());
        }
        let found = self.found_elsewhere(session.name(), session.owner())?;
        let mut guard = self.lock()?;
        // A queue that is being deleted takes no more messages of a producer.
        let found: Vec<_> = found.into_iter().filter(|(log, _)| guard.has_log(*log)).collect();
        guard.producers.learn(session.id(), &found);
        Ok(())
    }

    /// Return what each other log knows of a name of this owner.
    fn found_elsewhere(&self, name: &str, owner: Option<&str>) -> Result<Vec<(LogNumber, Found)>, EngineError> {
        let found = self.others.all().into_iter().map(|(log, home)| {
            let producers = &home.lock()?.producers;
            let found = producers.found(name).filter(|_| !producers.is_of_another(name, owner));
            Ok((log, found.unwrap_or_default()))
        });
        found.collect()
    }
}
