//! The one table from what the engine and the codecs say to gRPC status codes.

use penstock_engine::{EngineError, LogError};
use penstock_wire::WireError;
use tonic::Status;

pub(crate) fn of_engine(error: &EngineError) -> Status {
    let text = error.to_string();
    match error {
        EngineError::NoQueue(..) | EngineError::NoExchange(..) | EngineError::NoLease { .. } => Status::not_found(text),
        EngineError::Queue(_)
        | EngineError::StagedRows { .. }
        | EngineError::StagedDiffers { .. }
        | EngineError::StagedForgotten { .. } => Status::failed_precondition(text),
        EngineError::StageBusy => Status::aborted(text),
        EngineError::Routing(_)
        | EngineError::IsStream(_)
        | EngineError::NotStream(_)
        | EngineError::BeyondEnd { .. }
        | EngineError::GroupName { .. }
        | EngineError::LeaseOwner { .. }
        | EngineError::LeasePart { .. }
        | EngineError::ProducerReserved(_) => Status::invalid_argument(text),
        EngineError::ProducerOwned(_) => Status::permission_denied(text),
        EngineError::TooMany { .. } | EngineError::EndingsOfUsers(_) => Status::resource_exhausted(text),
        EngineError::ProducerTaken(_)
        | EngineError::ProducersOfUser(_)
        | EngineError::ProducerEnded(_)
        | EngineError::ProducerBehind(_)
        | EngineError::BatchDiffers { .. }
        | EngineError::BatchForgotten { .. }
        | EngineError::NoBatches(_)
        | EngineError::QueueShut
        | EngineError::LeaseNumber { .. } => Status::failed_precondition(text),
        _ if error.is_full() => Status::resource_exhausted(full(error)),
        EngineError::Log(_) | EngineError::Io { .. } => Status::data_loss(text),
        EngineError::Stopped(..) | EngineError::Closed(_) | EngineError::NotAdmitted => Status::unavailable(text),
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

pub(crate) fn of_wire(error: &WireError) -> Status {
    Status::invalid_argument(error.to_string())
}

/// The first message of a stream has to open it.
pub(crate) fn not_opened() -> Status {
    Status::failed_precondition("the first message of a stream must be `open`")
}

pub(crate) fn opened_twice() -> Status {
    Status::failed_precondition("`open` is only the first message of a stream; start another stream")
}

/// What a stream ends with when the broker stops: clients connect again elsewhere or later.
pub(crate) fn stopping() -> Status {
    Status::unavailable("the broker is stopping; connect again")
}
