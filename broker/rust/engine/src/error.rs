//! Errors of a shard.

use std::io;

use penstock_log::LogError;
use penstock_queue::{QueueError, QueueId, RoutingError};

use crate::gone::Absent;

/// `Log`, `Io`, `Stopped` and `Closed` are faults of the disk or the end of the shard, `NotLeading`, `Replica` and `Paused` of its replicas; the
/// others are refusals, caused by the caller.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{1}")]
    NoQueue(u64, Absent),
    #[error("a queue cannot have the number {0}: numbers are from 1 to {max}", max = QueueId::MAX.0)]
    QueueNumber(u64),
    #[error("vhost '{1}' has no shard {0}")]
    NoShard(u16, String),
    #[error("exchange '{0}' is not in shard '{1}'")]
    NoExchange(String, String),
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error(transparent)]
    Routing(#[from] RoutingError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("cannot {action} {what}: {source}")]
    Io { action: &'static str, what: String, source: io::Error },
    #[error("queue '{0}' is a stream and cannot be consumed; read it with StreamService.Read")]
    IsStream(String),
    #[error("queue '{0}' is not a stream; consume it with MessagingService.Consume")]
    NotStream(String),
    #[error("stream '{stream}' has no offset {offset} yet: its next message gets {next}; use an offset below it")]
    BeyondEnd { stream: String, offset: u64, next: u64 },
    #[error("a group's name has 1 to {bytes_max} bytes, this one has {bytes}; choose another")]
    GroupName { bytes: usize, bytes_max: usize },
    #[error("an owner's name has 1 to {bytes_max} bytes, this one has {bytes}; choose another")]
    LeaseOwner { bytes: usize, bytes_max: usize },
    #[error(
        "owner '{owner}' has had leases of queue '{queue}' up to {last}, and {number} is not one of them; the next new one is {}",
        last.saturating_add(1)
    )]
    LeaseNumber { queue: String, owner: String, number: u64, last: u64 },
    #[error(
        "owner '{owner}' has no lease {number} of queue '{queue}': it was not reserved, or is acknowledged or released"
    )]
    NoLease { queue: String, owner: String, number: u64 },
    #[error("a lease in {parts} parts has no part {part}: parts count from 0")]
    LeasePart { part: u32, parts: u32 },
    #[error("there are {max} {what} already, and there cannot be more; delete some of them")]
    TooMany { what: &'static str, max: usize },
    #[error("users or permissions changed while the producer was opened; open it again")]
    NotAdmitted,
    #[error("another publish stream has opened producer '{0}' since; one at a time may use a name")]
    ProducerTaken(String),
    #[error("producer '{0}' belongs to another user; choose another name, or let an administrator delete this one")]
    ProducerOwned(String),
    #[error(
        "the user has {0} names of producers already, as many as it may have; use one of them, or let an administrator delete some"
    )]
    ProducersOfUser(usize),
    #[error("producer '{0}' is over: its program deleted it, and it is not opened again; choose another name")]
    ProducerEnded(String),
    #[error("{0} users have ended names of producers within the last hour, as many as there may be; call again later")]
    EndingsOfUsers(usize),
    #[error("producers whose names begin with '{0}' are the broker's own; choose another name")]
    ProducerReserved(&'static str),
    #[error(
        "sequence {0} of this producer was refused and did not come again; send it again, or another message with its number, and \
         then what follows"
    )]
    ProducerBehind(u64),
    #[error(
        "batch {batch} of producer '{producer}' is not the one that was stored: {why}; rows that were stored stay as they are. \
         Write them as another producer, which for Spark is a new checkpoint or another option 'producer'"
    )]
    BatchDiffers { producer: String, batch: u32, why: String },
    #[error(
        "batch {batch} of producer '{producer}' is too old to be compared with the one that was stored, and nothing of it was \
         stored now. Write its rows as another producer, which for Spark is a new checkpoint or another option 'producer'"
    )]
    BatchForgotten { producer: String, batch: u32 },
    #[error(
        "producer '{0}' has messages with sequences of its own, so its batches cannot be compared; choose another producer"
    )]
    NoBatches(String),
    #[error("a queue that it goes to is being deleted; publish it again")]
    QueueShut,
    #[error(
        "a queue that it goes to has as many messages as it may have; consume some or raise its limit, and publish it again"
    )]
    QueueLength,
    #[error(
        "a transaction is larger than one record of the log may be, and nothing of it was applied; commit after fewer messages"
    )]
    TransactionTooLarge,
    #[error(
        "a transaction is applied in one log, and queues '{0}' and '{1}' are in different ones, so nothing of it was applied; use \
         queues of one shard, or publisher confirms"
    )]
    TransactionLogs(String, String),
    #[error("exchange '{0}' is not there, and nothing of the transaction was applied; declare it first")]
    TransactionExchange(String),
    #[error("another call decides about this stage; wait until it has ended")]
    StageBusy,
    #[error(
        "the stage has other rows of attempt {attempt} at batch {batch} than were counted: some were discarded, or never \
         staged; stage the batch again"
    )]
    StagedRows { batch: u64, attempt: u64 },
    #[error(
        "batch {batch} of this stage is not the one that was published: {stored} rows were published, {staged} are \
         staged now, and they differ; nothing of it was published now. Stage it under another name, which for Spark is a new \
         checkpoint or another option 'producer'"
    )]
    StagedDiffers { batch: u64, stored: u64, staged: u64 },
    #[error(
        "batch {batch} of this stage is too old to be compared with the one that was published, and nothing of it was published \
         now. Stage its rows under another name, which for Spark is a new checkpoint or another option 'producer'"
    )]
    StagedForgotten { batch: u64 },
    #[error("another broker leads shard '{0}'; connect to that one, or try again")]
    NotLeading(String),
    #[error("the replica of this broker cannot be read: {0}; read at another broker")]
    Replica(String),
    #[error("this broker leads shard '{0}' and does not hear enough of the others; try again later")]
    Paused(String),
    #[error("shard '{0}' stopped: {1}")]
    Stopped(String, String),
    #[error("shard '{0}' is closed")]
    Closed(String),
}

impl EngineError {
    /// Whether the disk was full: nothing was stored, and a later try may succeed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            EngineError::Log(error) => error.is_full(),
            EngineError::Io { source, .. } => penstock_log::is_full(source),
            _ => false,
        }
    }
}
