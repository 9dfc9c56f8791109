//! What can go wrong in a shard.

use std::io;

use penstock_log::LogError;
use penstock_queue::{QueueError, RoutingError};

/// Refusals (`NoQueue`, `NoExchange`, `Queue`, `Routing`) are the caller's doing; the others are faults of the disk or the end of the shard.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("queue {0} is not in shard '{1}'")]
    NoQueue(u32, String),
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
    #[error("shard '{0}' stopped: {1}")]
    Stopped(String, String),
    #[error("shard '{0}' is closed")]
    Closed(String),
}

impl EngineError {
    /// Whether the disk had no room: nothing was stored, and a later try may succeed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, EngineError::Log(error) if error.is_full())
    }
}
