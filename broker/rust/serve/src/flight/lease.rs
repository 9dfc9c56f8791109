//! The rows of a lease: a queue's messages that somebody reserved, by ranges of their sequences.

use std::sync::Arc;

use penstock_engine::{EngineError, Filled, LeasePart, LeaseReader, LogError, QueueId, Sequence, Shard};
use tonic::Status;

use super::asks::LeaseTicket;
use super::batches::{FILL_MAX, Rows};
use crate::grpc::status;
use crate::host::caller::Caller;
use crate::host::calls::{Call, CallRequest};
use crate::host::deliveries::Recipient;
use crate::host::stalls::when_free;

/// Who may get a queue's messages may read its leases.
pub(super) fn admission(caller: &Caller, ticket: &LeaseTicket) -> Call {
    Call::new(CallRequest::OpenGet { vhost: ticket.vhost.clone(), queue: ticket.queue.clone() }, caller)
}

pub(super) async fn read(shard: &Arc<Shard>, queue_id: u64, ticket: &LeaseTicket) -> Result<LeaseReader, Status> {
    let &LeaseTicket { ref owner, lease: number, part, parts, .. } = ticket;
    let (queue, home) = (QueueId(queue_id), shard.home_of(QueueId(queue_id)));
    let opened = when_free(&home, || home.read_lease(queue, LeasePart { owner, number, part, parts })).await;
    opened.map_err(|error| status::of_engine(&error))
}

impl Rows for LeaseReader {
    fn highest_priority(&self) -> u8 {
        LeaseReader::highest_priority(self)
    }

    fn fill(&mut self, _at: u64, filled: &mut Vec<Filled>) -> Result<bool, Status> {
        LeaseReader::fill(self, FILL_MAX, filled).map_err(|error| status::of_engine(&error))
    }
}

impl Recipient for LeaseReader {
    fn queue(&self) -> QueueId {
        LeaseReader::queue(self)
    }

    fn shard(&self) -> Option<Arc<Shard>> {
        Some(Arc::clone(LeaseReader::shard(self)))
    }

    fn sent(&mut self, sizes: &[(Sequence, u32)]) -> Result<(), EngineError> {
        LeaseReader::sent(self, sizes);
        Ok(())
    }

    /// What was found behind it is found again.
    fn drop_corrupt(&mut self, sequence: Sequence, error: &LogError) -> Result<bool, EngineError> {
        LeaseReader::drop_corrupt(self, sequence, error).map(|()| true)
    }
}
