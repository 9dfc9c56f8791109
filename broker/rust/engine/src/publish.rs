//! Publishing a batch to a vhost: it is stored in the vhost's log, and passed on to the own logs of queues.

use crate::error::EngineError;
use crate::level::Level;
use crate::places::Published;
use crate::producer_logs::Logs;
use crate::producers::ProducerSession;
use crate::publication::{Fate, Publication};
use crate::routes::{AtOnce, Routes};
use crate::shard::Shard;
use crate::storing::{Along, Round, Sent, in_rounds};

/// Whether all messages of a round went to one other log.
enum ToOne {
    Stored(Published),
    /// With the routes where they are known. Messages are routed once, since a random exchange draws each time.
    Not(Option<Routes>),
}

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

    /// The same for a named producer. A log does not store a message again whose sequence is not above the highest that it
    /// stored; one above the lowest refused is refused too.
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
        self.send(Sent { producer, batch, level, now_ms, with_sequences: false }, fates)
    }

    /// The same, and also returns the sequences that the messages got in their queues. A batch of up to 4,096 messages for
    /// one log is stored together if all of it can be: nothing comes between its messages, and after a crash all of them
    /// are there or none. Messages of others come between the rounds of a longer one, and a crash may leave the first
    /// rounds; it was not confirmed then, and a named producer that sends it again has the rest stored behind them.
    ///
    /// # Errors
    /// As [`Shard::publish_as`].
    pub fn publish_with_sequences(
        &self,
        producer: Option<&ProducerSession>,
        batch: &[Publication<'_>],
        level: Option<Level>,
        now_ms: u64,
        fates: &mut Vec<Fate>,
    ) -> Result<Published, EngineError> {
        self.send(Sent { producer, batch, level, now_ms, with_sequences: true }, fates)
    }

    /// Whether a message comes through an exchange that delays messages which ask for it. It waits for no lock of the log.
    #[must_use]
    pub fn is_delayed(&self, publication: &Publication<'_>) -> bool {
        let routes = Routes::of(&self.routing(), std::slice::from_ref(publication), AtOnce::USUAL);
        let is_delayed = routes.is_delayed();
        routes.keep();
        is_delayed
    }

    /// Whether a message reaches a queue now.
    ///
    /// # Errors
    /// `Stopped` and `Closed`.
    pub fn reaches_queue(&self, publication: &Publication<'_>) -> Result<bool, EngineError> {
        self.lock()?.check(self.name())?;
        let routes = Routes::of(&self.routing(), std::slice::from_ref(publication), AtOnce::USUAL);
        let is_reached = routes.reaches_queue(0);
        routes.keep();
        Ok(is_reached)
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
        self.send_round(Sent { producer, batch, level, now_ms, with_sequences: false }, fates)
    }

    fn send(&self, sent: Sent<'_>, fates: &mut Vec<Fate>) -> Result<Published, EngineError> {
        in_rounds(sent.batch, fates, |batch, fates| self.send_round(Sent { batch, ..sent }, fates))
    }

    fn send_round(&self, sent: Sent<'_>, fates: &mut Vec<Fate>) -> Result<Published, EngineError> {
        let routes = match self.send_to_one(sent, fates)? {
            ToOne::Stored(published) => return Ok(published),
            ToOne::Not(routes) => routes,
        };
        let base = fates.len();
        sent.producer.map_or(Ok(()), |session| self.learn_producer(session))?;
        let round = self.store_round(sent, routes, fates)?;
        self.end_round(sent, round, fates.get_mut(base..).unwrap_or_default())
    }

    /// Publishes a batch in one step with what comes along; `None` when that was declined, and nothing was stored.
    pub(crate) fn send_whole(
        &self,
        sent: Sent<'_>,
        along: Along<'_>,
        fates: &mut Vec<Fate>,
    ) -> Result<Option<Published>, EngineError> {
        let base = fates.len();
        sent.producer.map_or(Ok(()), |session| self.learn_producer(session))?;
        let Some(round) = self.store_whole(sent, along, fates)? else { return Ok(None) };
        self.end_round(sent, round, fates.get_mut(base..).unwrap_or_default()).map(Some)
    }

    /// Passes on what other logs have to store.
    fn end_round(&self, sent: Sent<'_>, round: Round, fates: &mut [Fate]) -> Result<Published, EngineError> {
        let Sent { producer, batch, .. } = sent;
        let Round { mut published, passed, logs, has_repeats, .. } = round;
        if !passed.is_empty() {
            self.pass_on(passed, sent, logs.as_ref(), fates, &mut published)?;
        }
        if let (Some(session), Some(logs)) = (producer, &logs) {
            if has_repeats {
                self.wait_for_all(logs, &mut published)?;
            }
            complete(batch, fates).into_iter().for_each(|sequence| session.raise(sequence));
        }
        Ok(published)
    }

    /// Stores unnamed messages that all go to one other log there, without the lock of this one, which others may hold.
    fn send_to_one(&self, sent: Sent<'_>, fates: &mut Vec<Fate>) -> Result<ToOne, EngineError> {
        while sent.producer.is_none() && !self.others.is_empty() {
            let mut routes = Routes::of(&self.routing(), sent.batch, sent.at_once());
            let Some(home) = self.others.only_home(routes.reached()) else { return Ok(ToOne::Not(Some(routes))) };
            let round = home.store_routed(sent, &mut routes, fates);
            routes.keep();
            match round {
                // A queue, or the log with its queue, was deleted after the messages were routed.
                Ok(Round { is_stale: true, .. }) => {}
                Err(EngineError::Closed(_)) if self.others.log(home.number()).is_none() => {}
                round => {
                    let mut published = round?.published;
                    let end = std::mem::take(&mut published.end);
                    published.elsewhere.add(&home, end);
                    return Ok(ToOne::Stored(published));
                }
            }
        }
        Ok(ToOne::Not(None))
    }

    /// Makes a confirm of level `disk` wait for all that these logs have.
    fn wait_for_all(&self, logs: &Logs, published: &mut Published) -> Result<(), EngineError> {
        for home in logs.iter().filter_map(|log| self.others.log(*log)) {
            let end = home.lock()?.log.end();
            published.elsewhere.add(&home, end);
        }
        Ok(())
    }
}

/// The highest sequence of the messages before the first one that is not stored in every log that it goes to.
fn complete(batch: &[Publication<'_>], fates: &[Fate]) -> Option<u64> {
    let all = batch.iter().zip(fates);
    let stored = all.take_while(|(_, fate)| matches!(fate, Fate::Stored(_) | Fate::Unroutable));
    stored.filter_map(|(publication, _)| Some(publication.payload.producer()?.sequence)).max()
}
