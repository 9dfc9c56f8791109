//! Refusals as gRPC statuses: the one table from kinds to codes.

use penstock_engine::EngineError;
use penstock_wire::WireError;
use tonic::{Code, Status};

use crate::host::refusal::{Kind, Refusal};

const TABLE: [(Kind, Code); 13] = [
    (Kind::Unauthenticated, Code::Unauthenticated),
    (Kind::AccessRefused, Code::PermissionDenied),
    (Kind::NotFound, Code::NotFound),
    (Kind::PreconditionFailed, Code::FailedPrecondition),
    (Kind::InUse, Code::FailedPrecondition),
    (Kind::InvalidArgument, Code::InvalidArgument),
    (Kind::LimitReached, Code::ResourceExhausted),
    (Kind::Unsupported, Code::Unimplemented),
    (Kind::Conflict, Code::Aborted),
    (Kind::Unavailable, Code::Unavailable),
    (Kind::LedElsewhere, Code::Unavailable),
    (Kind::Corrupt, Code::DataLoss),
    (Kind::Bug, Code::Internal),
];

/// The kind that a code stands for. Python's front end for gRPC uses those of the table, and others only by a bug.
#[must_use]
pub fn kind_of_code(code: i32) -> Kind {
    let code = Code::from_i32(code);
    TABLE.iter().find(|(_, of_kind)| *of_kind == code).map_or(Kind::Bug, |(kind, _)| *kind)
}

pub(crate) fn code_of(kind: Kind) -> Code {
    TABLE.iter().find(|(of_code, _)| *of_code == kind).map_or(Code::Internal, |(_, code)| *code)
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        let code = code_of(refusal.kind);
        if refusal.details.is_empty() {
            return Status::new(code, refusal.text);
        }
        Status::with_details(code, refusal.text, refusal.details.into())
    }
}

pub(crate) fn of_engine(error: &EngineError) -> Status {
    Refusal::from(error).into()
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

/// The status of streams that end because the broker stops: clients connect again elsewhere or later.
pub(crate) fn stopping() -> Status {
    Refusal::stopping().into()
}

/// The status of consumers and readers whose virtual host another broker leads now: clients open them again, there.
pub(crate) fn led_elsewhere(reason: impl Into<String>) -> Status {
    Refusal::new(Kind::Unavailable, reason).into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Code, Kind, TABLE, code_of, kind_of_code};

    #[test]
    fn every_kind_has_one_code() {
        let kinds: HashSet<_> = TABLE.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds.len(), TABLE.len());
        assert!(TABLE.iter().all(|&(kind, code)| code_of(kind) == code && code_of(kind_of_code(code as i32)) == code));
        // Other protocols tell these apart.
        assert_eq!(kind_of_code(Code::FailedPrecondition as i32), Kind::PreconditionFailed);
    }

    #[test]
    fn a_code_that_no_kind_has_is_a_bug() {
        assert_eq!(kind_of_code(Code::Ok as i32), Kind::Bug);
        assert_eq!(kind_of_code(-1), Kind::Bug);
    }
}
