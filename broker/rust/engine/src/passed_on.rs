//! How messages that the vhost's shard has routed to queues with own logs reach these logs.
//!
//! Invariants: a publisher gets the answer of those logs, for the queue or its log may be gone by now; a refusal of a
//! named producer's message also holds back later ones in the vhost's log; a session that lost its name while its
//! messages were on their way stores nothing. No lock is held while another is taken.

use std::sync::Arc;

use penstock_log::Producer;
use penstock_queue::QueueId;

use crate::assigned::assign_all;
use crate::error::EngineError;
use crate::places::Published;
use crate::producer_logs::Logs;
use crate::producers::ProducerSession;
use crate::publication::{Fate, PassedOn, Publication};
use crate::shard::Shard;
use crate::storing::Sent;

impl Shard {
    /// Stores messages in other logs, as routed. One that finds no space in one of them is `Full`, even if others
    /// stored it.
    pub(crate) fn pass_on(
        &self,
        passed: Vec<PassedOn>,
        sent: Sent<'_>,
        logs: Option<&Logs>,
        fates: &mut [Fate],
        published: &mut Published,
    ) -> Result<(), EngineError> {
        // Until a log has them.
        for one in passed.iter().filter(|one| one.is_all) {
            if let (Some(fate), Some(publication)) = (fates.get_mut(one.place), sent.batch.get(one.place)) {
                *fate = publication.fate_nowhere();
            }
        }
        for (queue, places) in grouped(passed) {
            let mut found = Vec::with_capacity(places.len());
            let refused = self.store_elsewhere(queue, &places, (sent, logs), &mut found, published)?;
            if let Some(refused) = refused {
                found.resize(places.len(), Fate::Full);
                published.refused = Some(refused);
            }
            for (&place, &fate) in places.iter().zip(&found) {
                fates.get_mut(place).into_iter().for_each(|known| *known = known.and(fate));
            }
            if let Some(session) = sent.producer {
                let told = places.iter().map(|&place| (sent.batch.get(place), fates.get(place)));
                self.hold_back(session, told)?;
            }
        }
        Ok(())
    }

    /// Stores messages in the log of one queue; returns why it refused those without a fate in `found`. None has one
    /// when the queue was deleted.
    fn store_elsewhere(
        &self,
        queue: QueueId,
        places: &[usize],
        sent: (Sent<'_>, Option<&Logs>),
        found: &mut Vec<Fate>,
        published: &mut Published,
    ) -> Result<Option<EngineError>, EngineError> {
        let Some(home) = self.dedicated.get(queue) else { return Ok(None) };
        match home.store_passed(places, sent, found) {
            Err(EngineError::Closed(_)) if self.dedicated.get(queue).is_none() => Ok(None),
            // It has no space to write who the producer is.
            Err(error) if error.is_full() => Ok(Some(error)),
            stored => {
                let stored = stored?;
                published.elsewhere.add(&home, stored.end);
                assign_all(&mut published.assigned, &stored.assigned, |index| places.get(index).copied());
                Ok(stored.refused)
            }
        }
    }

    /// Stores in a queue's own log, where a producer has another number than in the vhost's.
    fn store_passed(
        self: &Arc<Self>,
        places: &[usize],
        (sent, logs): (Sent<'_>, Option<&Logs>),
        found: &mut Vec<Fate>,
    ) -> Result<Published, EngineError> {
        let Sent { producer, batch, .. } = sent;
        let id = producer.map(|session| self.id_of_passed(session, logs)).transpose()?;
        if places.len() == batch.len() && id.is_none() {
            return self.store_rounds(sent, found);
        }
        let picked = places.iter().filter_map(|&place| batch.get(place)).copied();
        let with_id = picked.map(|mut publication| {
            if let (Some(id), Some(producer)) = (id, publication.payload.producer()) {
                publication.payload = publication.payload.with_producer(Producer { id, ..producer });
            }
            publication
        });
        let some: Vec<Publication<'_>> = with_id.collect();
        self.store_rounds(Sent { batch: &some, ..sent }, found)
    }

    /// Also refuses later messages in the vhost's log after a queue's own log refused one: the next queue of that name
    /// may be here.
    fn hold_back<'a>(
        &self,
        session: &ProducerSession,
        told: impl Iterator<Item = (Option<&'a Publication<'a>>, Option<&'a Fate>)>,
    ) -> Result<(), EngineError> {
        let refused = told.filter(|(_, fate)| !matches!(fate, Some(Fate::Stored(_) | Fate::Unroutable)));
        let sequences = refused.filter_map(|(publication, _)| Some(publication?.payload.producer()?.sequence));
        sequences.min().map_or(Ok(()), |lowest| self.refuse(session, lowest))
    }
}

/// The messages of each queue, in their order.
fn grouped(mut passed: Vec<PassedOn>) -> Vec<(QueueId, Vec<usize>)> {
    passed.sort_by_key(|one| one.queue);
    let groups = passed.chunk_by(|one, other| one.queue == other.queue);
    groups.filter_map(|group| Some((group.first()?.queue, group.iter().map(|one| one.place).collect()))).collect()
}
