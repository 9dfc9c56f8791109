//! Deadlines of single messages, in the order in which they come.
//!
//! Invariant: a deadline says when to look at a message, not that the message is still there: its queue decides.

use penstock_queue::{QueueId, Sequence};

use crate::record::Attributes;

/// The effect of a deadline on its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeadlineKind {
    /// From then on it may be delivered.
    Due,
    /// From then on it is not delivered any more.
    Expires,
}

/// A time at which something happens to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    pub at_ms: u64,
    pub queue: QueueId,
    pub sequence: Sequence,
    pub kind: DeadlineKind,
}

/// The times of a message at which something happens to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) due_at_ms: Option<u64>,
    pub(crate) expires_at_ms: Option<u64>,
}

impl From<&Attributes> for Times {
    fn from(attributes: &Attributes) -> Times {
        Times { due_at_ms: attributes.due_at_ms, expires_at_ms: attributes.expires_at_ms }
    }
}

/// Times in index files have 47 bits: they reach the year 6429.
pub const DEADLINE_MS_MAX: u64 = (1 << 47) - 1;

/// The time of a returned message that its queue refused: it is a dead letter that has not moved. No message waits so long.
pub const REFUSED_AT_MS: u64 = (1 << 48) - 1;
