//! The rows of a range that the log holds.
//!
//! What must stay true: where retention took some away while they were read, the rows end before that place rather than behind
//! it: an archive may have what is gone.

use std::sync::Arc;

use penstock_engine::{EngineError, Filled, LogError, Progress, QueueId, Sequence, Shard, StreamReader};
use tonic::Status;

use super::batches::{FILL_MAX, Rows};
use crate::grpc::status;
use crate::host::deliveries::Recipient;
use crate::host::stalls::Later;

/// See the module.
pub(super) struct Live {
    reader: Later<StreamReader>,
    is_gone: bool,
}

impl Live {
    pub fn new(reader: Later<StreamReader>) -> Live {
        Live { reader, is_gone: false }
    }

    /// Whether the rows ended because retention took what comes next.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }
}

impl Rows for Live {
    /// A range ends where the partition ended when it was opened: there is nothing to wait for.
    fn fill(&mut self, at: u64, filled: &mut Vec<Filled>) -> Result<bool, Status> {
        if self.is_gone {
            return Ok(false);
        }
        let mut fresh: Vec<Filled> = Vec::new();
        let progress = self.reader.fill(FILL_MAX, &mut fresh).map_err(|error| status::of_engine(&error))?;
        let found = fresh.first().and_then(|filled| filled.picked.first()).map(|picked| picked.taken.sequence.0);
        if found.is_none_or(|found| found > at) {
            // Numbers are skipped, or messages were dropped; or all below is gone.
            let first = self.reader.first().map_err(|error| status::of_engine(&error))?;
            self.is_gone = first > at && (found.is_some() || progress == Progress::Ended);
        }
        if self.is_gone {
            return Ok(false);
        }
        filled.append(&mut fresh);
        Ok(progress == Progress::Found)
    }
}

impl Recipient for Live {
    fn queue(&self) -> QueueId {
        self.reader.queue()
    }

    fn shard(&self) -> Option<Arc<Shard>> {
        Some(Arc::clone(self.reader.shard()))
    }

    fn sent(&mut self, sizes: &[(Sequence, u32)]) -> Result<(), EngineError> {
        Recipient::sent(&mut self.reader, sizes)
    }

    fn drop_corrupt(&mut self, sequence: Sequence, error: &LogError) -> Result<bool, EngineError> {
        Recipient::drop_corrupt(&mut self.reader, sequence, error)
    }
}
