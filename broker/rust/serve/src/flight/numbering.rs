//! Sequences of the rows of a put for a producer: counted from a first one, or from the beginning of a batch, whose rows must
//! be the same when it comes again.
//!
//! What must stay true: rows of a batch are reported as confirmed only once those that were stored before turned out the same.

use std::sync::Arc;

use penstock_engine::{EngineError, Payload, Producer, ProducerSession, Publication, Repetition, Shard};
use tonic::Status;

use super::asks::Put;
use crate::grpc::status;
use crate::host::rights::Question;
use crate::host::stalls::{at, when_free};

/// See the module.
pub(super) struct Numbering {
    /// None for a batch without rows, whose producer need not exist.
    session: Option<ProducerSession>,
    kind: Kind,
}

enum Kind {
    Sequences {
        next: u64,
        /// The highest that was stored before.
        highest_before: u64,
        repeated: u64,
    },
    Batch(Repetition),
}

impl Numbering {
    /// Open the producer of a put for the admitted user, and look up what is stored of it. None for a put without one.
    pub async fn open(
        question: &mut Question,
        shard: &Arc<Shard>,
        put: &Put,
        (user, vhost): (&str, &str),
    ) -> Result<Option<Numbering>, Status> {
        let name = put.producer.as_str();
        if name.is_empty() {
            return Ok(None);
        }
        let session = match put.is_empty {
            true => None,
            false => Some(question.producer_session(shard, name, (user, vhost)).await?),
        };
        let kind = match put.batch {
            // Within the bound, as the command was checked.
            Some(batch) => {
                let batch = u32::try_from(batch).unwrap_or(u32::MAX);
                let standing = when_free(shard, || shard.begin_batch(name, batch, user, session.as_ref())).await;
                Kind::Batch(standing.and_then(|known| Repetition::begin(name, batch, known)).map_err(refused)?)
            }
            None => {
                let highest = when_free(shard, || shard.sequence_in_family(name)).await.map_err(refused)?;
                let (next, highest_before) = (put.sequence.unwrap_or(0), highest.unwrap_or(0));
                Kind::Sequences { next, highest_before, repeated: 0 }
            }
        };
        Ok(Some(Numbering { session, kind }))
    }

    pub fn session(&self) -> Option<&ProducerSession> {
        self.session.as_ref()
    }

    /// The payload of the next row, with its number.
    pub fn number<'a>(&mut self, payload: Payload<'a>) -> Result<Payload<'a>, Status> {
        let Some(session) = &self.session else {
            return Err(Status::invalid_argument(
                "this batch was said to be empty, and a row came; leave `is_empty` out",
            ));
        };
        match &mut self.kind {
            Kind::Batch(batch) => batch.numbered(payload, session.id()).map_err(refused),
            Kind::Sequences { next, highest_before, repeated } => {
                let sequence = *next;
                *next = next.saturating_add(1);
                *repeated += u64::from(sequence <= *highest_before);
                Ok(payload.with_producer(Producer { id: session.id(), sequence }))
            }
        }
    }

    /// Whether the row that was numbered last is left out: it is behind all that is stored of an old batch, and reaches no
    /// queue, as it may have done then. It is refused when it reaches one.
    pub fn is_left_out(&self, shard: &Arc<Shard>, publication: &Publication<'_>) -> Result<bool, Status> {
        let Kind::Batch(batch) = &self.kind else { return Ok(false) };
        if !batch.is_beyond() {
            return Ok(false);
        }
        if at(shard, || shard.reaches_queue(publication)).map_err(refused)? {
            return Err(refused(batch.beyond()));
        }
        Ok(true)
    }

    /// Hold back what the producer would send behind a row that was not stored, from its next sequence on.
    pub async fn hold_back(&self, shard: &Arc<Shard>, sequence: Option<u64>) {
        let (Some(session), Some(sequence)) = (&self.session, sequence) else { return };
        // A producer that another stream has taken over, and a shard that stopped, have nothing to hold back.
        let _ = when_free(shard, || shard.refuse(session, sequence)).await;
    }

    /// Whether the rows so far may be reported as confirmed.
    pub fn is_sure(&self) -> bool {
        match &self.kind {
            Kind::Batch(batch) => batch.is_sure(),
            Kind::Sequences { .. } => true,
        }
    }

    /// How many rows so far were stored before.
    pub fn repeated(&self) -> u64 {
        match &self.kind {
            Kind::Batch(batch) => batch.repeated(),
            Kind::Sequences { repeated, .. } => *repeated,
        }
    }

    /// The sequence of the last row, if the client counts them.
    pub fn last_sequence(&self) -> Option<u64> {
        match &self.kind {
            Kind::Batch(_) => None,
            Kind::Sequences { next, .. } => Some(next.saturating_sub(1)),
        }
    }

    /// The sequence of the next row.
    pub fn next_sequence(&self) -> Option<u64> {
        match &self.kind {
            Kind::Batch(batch) => batch.next_sequence(),
            Kind::Sequences { next, .. } => Some(*next),
        }
    }

    /// End the put: of a batch that is stored, all rows must have come.
    pub fn end(&self) -> Result<(), Status> {
        match &self.kind {
            Kind::Batch(batch) => batch.end().map_err(refused),
            Kind::Sequences { .. } => Ok(()),
        }
    }
}

fn refused(error: EngineError) -> Status {
    status::of_engine(&error)
}
