//! A message to publish, and its fate.

use penstock_log::{Attributes, Payload};
use penstock_queue::QueueId;

use crate::error::EngineError;
use crate::level::Level;
use crate::log_number::LogNumber;

/// One incoming message. The payload's CRC was computed before any lock.
#[derive(Clone, Copy)]
pub struct Publication<'a> {
    pub payload: Payload<'a>,
    pub exchange: &'a [u8],
    pub key: &'a [u8],
    /// The header table of its properties, for headers exchanges.
    pub headers: Option<&'a [u8]>,
    pub persistent: bool,
    /// Returned, not confirmed, when it reaches no queue.
    pub mandatory: bool,
}

impl<'a> Publication<'a> {
    /// The same with these attributes. With a source it is a copy, and a log that has it does not store it again.
    #[must_use]
    pub fn with_attributes(self, attributes: &'a Attributes) -> Publication<'a> {
        Publication { payload: self.payload.with_attributes(attributes), ..self }
    }

    /// Its fate when it reaches no queue.
    pub(crate) fn fate_nowhere(&self) -> Fate {
        if self.mandatory { Fate::Returned } else { Fate::Unroutable }
    }
}

/// Result of publishing one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// In its queues, perhaps since an earlier publish; the confirm waits for this durability.
    Stored(Level),
    /// It reached no queue and is not mandatory: nothing was stored.
    Unroutable,
    /// The same for a mandatory message.
    Returned,
    /// The exchange does not exist: nothing was stored.
    NoExchange,
    /// This lower sequence of its producer was refused and did not come again: nothing was stored.
    Behind(u64),
    /// One of its queues is about to be deleted as empty: nothing was stored, and a retry may be routed elsewhere.
    Shut,
    /// The own log of one of its queues had no space. Other logs may have it.
    Full,
    /// One of its queues has as many ready messages as it may: no queue of the same log got it. Other logs may have it.
    Overflow,
}

impl Fate {
    /// Why it was not stored, when the cause is temporary or an earlier refused message, and not the disk.
    #[must_use]
    pub fn held_back(&self) -> Option<EngineError> {
        match self {
            Fate::Behind(refused) => Some(EngineError::ProducerBehind(*refused)),
            Fate::Shut => Some(EngineError::QueueShut),
            Fate::Overflow => Some(EngineError::QueueLength),
            _ => None,
        }
    }

    /// The combined fate after one more log answered.
    pub(crate) fn and(self, other: Fate) -> Fate {
        match (self, other) {
            (Fate::Stored(one), Fate::Stored(other)) => Fate::Stored(one.max(other)),
            (Fate::Unroutable | Fate::Returned, Fate::Stored(_)) => other,
            (
                Fate::Stored(_) | Fate::Unroutable | Fate::Returned,
                Fate::Behind(_) | Fate::Shut | Fate::Full | Fate::Overflow,
            ) => other,
            _ => self,
        }
    }
}

/// A message by its index in the batch, and its target queue in another log.
#[derive(Clone, Copy)]
pub(crate) struct PassedOn {
    pub log: LogNumber,
    pub queue: QueueId,
    pub place: usize,
    /// Whether all queues of the message are elsewhere.
    pub is_all: bool,
}
