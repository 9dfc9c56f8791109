//! Streams that are read from a replica whose broker does not lead: what the replica offers to those who serve clients.
//!
//! What must stay true: only what is committed is found, in order and without a gap. A reader that cannot go on ends, and its client goes
//! on at another broker, at the next offset.

use std::fmt;
use std::sync::Arc;

use penstock_log::LogError;
use penstock_queue::{QueueId, Sequence};

use crate::cursor::ReadFrom;
use crate::error::EngineError;
use crate::reader::{Progress, ReadRange};
use crate::signal::Signal;
use crate::subscription::Filled;

/// A replica whose streams can be read.
pub trait StreamReplica: fmt::Debug + Send + Sync {
    /// Adds a reader of a stream, which ends before `end`. Reads records where it starts at a time: it may block on the disk.
    ///
    /// # Errors
    /// `Replica` when the replica cannot be read; `Log` when a record cannot be read.
    fn read(
        self: Arc<Self>,
        queue: QueueId,
        from: ReadFrom,
        end: Option<u64>,
    ) -> Result<Box<dyn ReplicaRead>, EngineError>;
}

/// A reader at a replica. Its functions may block on the disk.
pub trait ReplicaRead: fmt::Debug + Send {
    fn queue(&self) -> QueueId;

    /// The stream as the replica knew it when the reader was opened.
    fn range(&self) -> ReadRange;

    /// It rings when there may be more to find, and is cancelled when the reader has ended.
    fn signal(&self) -> &Arc<Signal>;

    /// Whether a reader whose signal is cancelled can go on at another broker: the stream is there, and this replica is not.
    fn goes_on_elsewhere(&self) -> bool;

    /// Finds the next messages, at most `count_max`.
    ///
    /// # Errors
    /// `Replica` when the replica cannot be read any more.
    fn fill(&mut self, count_max: u32, filled: &mut Vec<Filled>) -> Result<Progress, EngineError>;

    /// Reports that the record of a message which was found cannot be read. The reader goes on only where that is repaired at once.
    ///
    /// # Errors
    /// `Replica` where it is not.
    fn report_corrupt(&mut self, sequence: Sequence, error: &LogError) -> Result<(), EngineError>;
}
