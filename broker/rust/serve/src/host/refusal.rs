//! Why a client does not get what it asks for, in no protocol's words: a kind, and a text for whoever reads it.
//!
//! Each protocol turns kinds into its own codes, in one file. The texts are the same for all. The engine's and the codecs'
//! errors become refusals here, so that every protocol refuses the same thing for the same reason.

use penstock_engine::{EngineError, LogError, QueueError};
use penstock_wire::WireError;

/// What a refusal is about, as far as a client acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The credentials are missing or wrong.
    Unauthenticated,
    /// The user has no permission.
    AccessRefused,
    NotFound,
    /// The request is right in itself, and does not fit what is there.
    PreconditionFailed,
    /// Others consume the queue, and one of them, or this one, wants to be alone.
    InUse,
    InvalidArgument,
    /// A limit is reached, or a disk is full.
    LimitReached,
    Unsupported,
    /// Another request is doing the same at this moment.
    Conflict,
    /// The broker, or a server that it asks, does not answer now; the same request may succeed later.
    Unavailable,
    /// Another broker serves what is asked for.
    LedElsewhere,
    /// What was stored cannot be read or written.
    Corrupt,
    /// A fault of the broker.
    Bug,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: Kind,
    pub text: String,
    /// What the front end that decided adds, in the form that its own protocol sends; empty for none.
    pub details: Vec<u8>,
}

impl Refusal {
    pub fn new(kind: Kind, text: impl Into<String>) -> Refusal {
        Refusal { kind, text: text.into(), details: Vec::new() }
    }

    pub(crate) fn bug(text: impl Into<String>) -> Refusal {
        Refusal::new(Kind::Bug, text)
    }

    pub(crate) fn not_found(text: impl Into<String>) -> Refusal {
        Refusal::new(Kind::NotFound, text)
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Refusal {
        Refusal::new(Kind::InvalidArgument, text)
    }

    pub(crate) fn limit_reached(text: impl Into<String>) -> Refusal {
        Refusal::new(Kind::LimitReached, text)
    }

    /// What a client is told when the broker stops: it connects again elsewhere or later.
    pub(crate) fn stopping() -> Refusal {
        Refusal::new(Kind::Unavailable, "the broker is stopping; connect again")
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Refusal {
        Refusal::from(&error)
    }
}

impl From<&EngineError> for Refusal {
    fn from(error: &EngineError) -> Refusal {
        let kind = kind_of(error);
        let text = if kind == Kind::LimitReached && error.is_full() { full(error) } else { error.to_string() };
        Refusal::new(kind, text)
    }
}

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Refusal {
        Refusal::invalid(error.to_string())
    }
}

fn kind_of(error: &EngineError) -> Kind {
    match error {
        EngineError::NoQueue(..)
        | EngineError::NoShard(..)
        | EngineError::NoExchange(..)
        | EngineError::TransactionExchange(_)
        | EngineError::NoLease { .. } => Kind::NotFound,
        EngineError::Queue(QueueError::TooManyPriorities) => Kind::LimitReached,
        EngineError::Queue(_) => Kind::InUse,
        EngineError::StagedRows { .. } | EngineError::StagedDiffers { .. } | EngineError::StagedForgotten { .. } => {
            Kind::PreconditionFailed
        }
        EngineError::StageBusy => Kind::Conflict,
        EngineError::Routing(_)
        | EngineError::IsStream(_)
        | EngineError::NotStream(_)
        | EngineError::BeyondEnd { .. }
        | EngineError::GroupName { .. }
        | EngineError::LeaseOwner { .. }
        | EngineError::LeasePart { .. }
        | EngineError::ProducerReserved(_) => Kind::InvalidArgument,
        EngineError::ProducerOwned(_) => Kind::AccessRefused,
        EngineError::QueueNumber(_)
        | EngineError::TooMany { .. }
        | EngineError::EndingsOfUsers(_)
        | EngineError::QueueLength => Kind::LimitReached,
        EngineError::ProducerTaken(_)
        | EngineError::ProducersOfUser(_)
        | EngineError::ProducerEnded(_)
        | EngineError::ProducerBehind(_)
        | EngineError::BatchDiffers { .. }
        | EngineError::BatchForgotten { .. }
        | EngineError::NoBatches(_)
        | EngineError::QueueShut
        | EngineError::TransactionTooLarge
        | EngineError::TransactionLogs(..)
        | EngineError::LeaseNumber { .. } => Kind::PreconditionFailed,
        _ if error.is_full() => Kind::LimitReached,
        EngineError::Log(_) | EngineError::Io { .. } => Kind::Corrupt,
        EngineError::Stopped(..)
        | EngineError::Closed(_)
        | EngineError::NotLeading(_)
        | EngineError::Replica(_)
        | EngineError::Paused(_)
        | EngineError::NotAdmitted => Kind::Unavailable,
    }
}

/// Without the directory, which is the operators' business: it stands in the broker's log and metrics.
fn full(error: &EngineError) -> String {
    let room = match error {
        EngineError::Log(LogError::Full { free, needed, .. }) => {
            format!(" is almost full: {free} bytes free, {needed} reserved")
        }
        _ => " is full".to_owned(),
    };
    format!("the broker's disk{room}; consume or delete messages, or make the disk larger")
}
