//! The error of this crate: the gRPC status with which a call or a stream ended.

use tonic::{Code, Status};

use crate::following::Wait;

/// The reason in the details of a reached limit.
const LIMIT: &[u8] = b"LIMIT_REACHED";

/// A gRPC status: `code` is its number, `details` a serialised `google.rpc.Status` (often empty).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    pub code: i32,
    pub message: String,
    pub details: Vec<u8>,
    /// How long the owner of a stream that ended with this error waits before it opens another one.
    pub wait: Wait,
}

impl RpcError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code as i32, message: message.into(), details: Vec::new(), wait: Wait::Long }
    }

    /// Whether a limit (of a user's or a virtual host's connections) is the cause.
    pub(crate) fn is_limit(&self) -> bool {
        self.code == Code::ResourceExhausted as i32 && self.details.windows(LIMIT.len()).any(|found| found == LIMIT)
    }

    /// Whether a consumer that was running should retry. The broker may not know yet that its earlier connection is
    /// broken: then that connection holds the queue exclusively, or counts for a limit.
    pub(crate) fn may_be_own_past(&self) -> bool {
        self.code == Code::FailedPrecondition as i32
    }

    /// Whether a retry on a new connection cannot help: the broker refused, or does not understand.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            Code::from_i32(self.code),
            Code::InvalidArgument
                | Code::NotFound
                | Code::AlreadyExists
                | Code::PermissionDenied
                | Code::FailedPrecondition
                | Code::OutOfRange
                | Code::Unimplemented
                | Code::Unauthenticated
        )
    }
}

impl From<Status> for RpcError {
    fn from(status: Status) -> Self {
        // A broken connection is reported by its innermost cause ("connection refused"), not by tonic's "transport
        // error".
        let (mut message, mut code) = (status.message().to_owned(), status.code());
        let mut cause = std::error::Error::source(&status);
        while let Some(error) = cause {
            message = error.to_string();
            // There was no answer, or a part of one, whatever the layers above made of it.
            let is_broken = error.downcast_ref::<h2::Error>().is_some_and(h2::Error::is_io);
            if is_broken || error.is::<std::io::Error>() {
                code = Code::Unavailable;
            }
            cause = error.source();
        }
        Self { code: code as i32, message, details: status.details().to_vec(), wait: Wait::Long }
    }
}
