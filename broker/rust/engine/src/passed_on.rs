//! How messages that shard 0 has routed to queues in other logs reach these logs.
//!
//! Invariants: a publisher gets the answer of those logs, for the queue or its log may be gone by now; a refusal of a
//! named producer's message also holds back later ones in the vhost's log; a session that lost its name while its
//! messages were on their way stores nothing. No lock is held while another is taken.

use std::sync::Arc;

use penstock_log::Producer;

use crate::assigned::assign_all;
use crate::error::EngineError;
use crate::log_number::LogNumber;
use crate::places::Published;
use crate::producer_logs::Logs;
use crate::producers::ProducerSession;
use crate::publication::{Fate, PassedOn, Publication};
use crate::routes::Routes;
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
        for Group { log, places, mut routes } in grouped(passed) {
            let mut found = Vec::with_capacity(places.len());
            let refused = self.store_elsewhere(log, (&places, &mut routes), (sent, logs), &mut found, published)?;
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

    /// Stores messages in one log; returns why it refused those without a fate in `found`. None has one when the log was
    /// deleted with its queue.
    fn store_elsewhere(
        &self,
        log: LogNumber,
        (places, routes): (&[usize], &mut Routes),
        sent: (Sent<'_>, Option<&Logs>),
        found: &mut Vec<Fate>,
        published: &mut Published,
    ) -> Result<Option<EngineError>, EngineError> {
        let Some(home) = self.others.log(log) else { return Ok(None) };
        match home.store_passed((places, routes), sent, found) {
            Err(EngineError::Closed(_)) if self.others.log(log).is_none() => Ok(None),
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

    /// Stores in this other log, where a producer has another number than in shard 0.
    fn store_passed(
        self: &Arc<Self>,
        (places, routes): (&[usize], &mut Routes),
        (sent, logs): (Sent<'_>, Option<&Logs>),
        found: &mut Vec<Fate>,
    ) -> Result<Published, EngineError> {
        let Sent { producer, batch, .. } = sent;
        let id = producer.map(|session| self.id_of_passed(session, logs)).transpose()?;
        if places.len() == batch.len() && id.is_none() {
            return Ok(self.store_routed(sent, routes, found)?.published);
        }
        let picked = places.iter().filter_map(|&place| batch.get(place)).copied();
        let with_id = picked.map(|mut publication| {
            if let (Some(id), Some(producer)) = (id, publication.payload.producer()) {
                publication.payload = publication.payload.with_producer(Producer { id, ..producer });
            }
            publication
        });
        let some: Vec<Publication<'_>> = with_id.collect();
        Ok(self.store_routed(Sent { batch: &some, ..sent }, routes, found)?.published)
    }

    /// Also refuses later messages in shard 0 after another log refused one: the next queue of that name may be here.
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

/// Messages for one log, by their indexes in the batch, and their queues there.
struct Group {
    log: LogNumber,
    places: Vec<usize>,
    routes: Routes,
}

/// The messages of each log, in their order.
fn grouped(mut passed: Vec<PassedOn>) -> Vec<Group> {
    passed.sort_by_key(|one| (one.log, one.place));
    let groups = passed.chunk_by(|one, other| one.log == other.log);
    let group = |group: &[PassedOn]| {
        let (routes, places) = Routes::of_passed(group);
        Some(Group { log: group.first()?.log, places, routes })
    };
    groups.filter_map(group).collect()
}
