//! Publishing a batch to a vhost: it is stored in the vhost's log, and passed on to the own logs of queues.

use crate::error::EngineError;
use crate::level::Level;
use crate::places::Published;
use crate::producers::ProducerSession;
use crate::publication::{Fate, Publication};
use crate::shard::Shard;
use crate::storing::{Sent, in_rounds};

impl Shard {
    /// Routes and stores a batch, in order and in bounded holds of the lock; `fates` gets one entry per message, up to
    /// the first without space. Everything stored is in the page cache and visible to consumers when this returns.
    ///
    /// # Errors
    /// `Log` when the disk failed, which stops the shard; `Stopped` and `Closed`.
    pub fn publish(
        &self,
        batch: &[Publication<'_>],
        level: Option<Level>,
        now_ms: u64,
        fates: &mut Vec<Fate>,
    ) -> Result<Published, EngineError> {
        self.publish_as(None, batch, level, now_ms, fates)
    }

    /// The same for a named producer. A message whose sequence is not above the highest stored one is not stored again;
    /// one above the lowest refused is refused too.
    ///
    /// # Errors
    /// As [`Shard::publish`]; `ProducerTaken` once another session has the name.
    pub fn publish_as(
        &self,
        producer: Option<&ProducerSession>,
        batch: &[Publication<'_>],
        level: Option<Level>,
        now_ms: u64,
        fates: &mut Vec<Fate>,
    ) -> Result<Published, EngineError> {
        in_rounds(batch, fates, |rest, fates| self.publish_round(producer, rest, level, now_ms, fates))
    }

    /// The same for as many of the first messages as fit one hold of the lock: those with an entry in `fates`, at least
    /// one unless it was refused.
    ///
    /// # Errors
    /// As [`Shard::publish_as`].
    pub fn publish_round(
        &self,
        producer: Option<&ProducerSession>,
        batch: &[Publication<'_>],
        level: Option<Level>,
        now_ms: u64,
        fates: &mut Vec<Fate>,
    ) -> Result<Published, EngineError> {
        let base = fates.len();
        producer.map_or(Ok(()), |session| self.learn_producer_home(session))?;
        let sent = Sent { producer, batch, level, now_ms };
        let (mut published, passed) = self.store_round(sent, fates)?;
        if !passed.is_empty() {
            self.pass_on(passed, sent, fates.get_mut(base..).unwrap_or_default(), &mut published)?;
        }
        Ok(published)
    }
}
