//! The log that holds a producer's messages: the vhost's, or the own log of one of its queues. A
//! message that is stored in either cannot be refused.

use std::sync::Arc;

use penstock_log::Producer;
use rustc_hash::FxHashMap;

use crate::error::EngineError;
use crate::producers::{ProducerSession, ProducerStanding};
use crate::shard::Shard;

impl Shard {
    /// The highest stored sequence of a producer, in whichever log of this vhost its messages are.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned a shard.
    pub fn sequence_in_family(self: &Arc<Self>, name: &str) -> Result<Option<u64>, EngineError> {
        let found: Result<Vec<_>, _> = self.family().iter().map(|one| one.producer_sequence(name)).collect();
        Ok(found?.into_iter().flatten().max())
    }

    /// All names but those of stages, in no order: this shard knows each, and the log with its messages the sequence.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned a shard.
    pub fn producers_of_family(self: &Arc<Self>) -> Result<Vec<ProducerStanding>, EngineError> {
        let mut all = self.producers()?;
        for (_, home) in self.dedicated.all() {
            let there: FxHashMap<_, _> = home.producers()?.into_iter().map(|one| (one.name, one.sequence)).collect();
            for one in &mut all {
                one.sequence = one.sequence.max(there.get(&one.name).copied().unwrap_or_default());
            }
        }
        Ok(all)
    }

    /// The highest sequence of a producer in the own log that holds its messages, if one does.
    pub(crate) fn sequence_elsewhere(&self, session: &ProducerSession) -> Result<Option<u64>, EngineError> {
        self.learn_producer_home(session)?;
        let home = self.lock()?.producer_homes.get(&session.id()).copied().flatten();
        home.and_then(|id| self.dedicated.get(id)).map_or(Ok(None), |home| home.producer_sequence(session.name()))
    }

    /// Holds back a producer's higher sequences, after its message with this one was refused outside the engine.
    ///
    /// # Errors
    /// `ProducerTaken`; `Stopped` and `Closed`.
    pub fn refuse(&self, session: &ProducerSession, sequence: u64) -> Result<(), EngineError> {
        // A message stored in an own log cannot be refused either, which only that log knows.
        let is_stored = self.sequence_elsewhere(session)?.is_some_and(|highest| sequence <= highest);
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        session.check()?;
        if !is_stored {
            guard.producers.refused(Producer { id: session.id(), sequence });
        }
        Ok(())
    }

    /// The own log with a named producer's messages, once it was looked up.
    pub(crate) fn learn_producer_home(&self, session: &ProducerSession) -> Result<(), EngineError> {
        if self.dedicated.count() == 0 || self.lock()?.producer_homes.contains_key(&session.id()) {
            return Ok(());
        }
        let mut found = None;
        for (id, home) in self.dedicated.all() {
            if home.producer_sequence(session.name())?.is_some() {
                found = Some(id);
            }
        }
        let mut guard = self.lock()?;
        // A queue that is being deleted takes no more messages of a producer.
        let found = found.filter(|id| guard.elsewhere.contains_key(id));
        guard.producer_homes.entry(session.id()).or_insert(found);
        Ok(())
    }
}
