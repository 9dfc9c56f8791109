//! The table from the broker's refusals to exceptions of AMQP 0-9-1.

use penstock_wire::amqp::method::MethodId;
use penstock_wire::amqp::reply::{Exception, ReplyCode};

use crate::host::connection::Ended;
use crate::host::refusal::{Kind, Refusal};

const SHUTDOWN: &str = "broker forced connection closure with reason 'shutdown'";
const CLOSED: &str = "an administrator closed the connection";
const OTHERS_WAIT: &str = "the broker's memory for requests is used up, and others wait for the rest of this message";

/// What clients hear when the broker stops, in RabbitMQ's words.
pub(super) fn shutdown() -> Exception {
    Exception::of_no_method(ReplyCode::ConnectionForced, SHUTDOWN)
}

/// What a client hears that keeps others waiting for memory.
pub(super) fn others_wait() -> Exception {
    Exception::of_no_method(ReplyCode::ResourceError, OTHERS_WAIT)
}

/// The reason for a client whose connection was relayed to a broker that does not answer any more.
pub(super) fn leader_gone(leader: &str, vhost: &str) -> Exception {
    let text = format!("the broker '{leader}' that led vhost '{vhost}' is gone; connect again");
    Exception::of_no_method(ReplyCode::ConnectionForced, text)
}

/// The reason for a client whose virtual host another broker leads from now on.
pub(super) fn led_elsewhere(vhost: &str) -> Exception {
    let text = format!("another broker leads vhost '{vhost}' now; connect again");
    Exception::of_no_method(ReplyCode::ConnectionForced, text)
}

/// What a client hears of an end that came from outside: nothing when it has not logged in.
pub(super) fn of_end(ended: Ended) -> Option<Exception> {
    match ended {
        Ended::ByAdministrator => Some(Exception::of_no_method(ReplyCode::ConnectionForced, CLOSED)),
        Ended::ForMemory => Some(others_wait()),
        Ended::TooSlow | Ended::FailedTooOften => None,
    }
}

/// The refusal of a channel beyond the user's limit, in RabbitMQ's words.
pub(super) fn too_many_channels(user: &str, max: u64) -> Exception {
    let text =
        format!("number of channels opened for user '{user}' has reached the maximum allowed user limit of ({max})");
    Exception::of_no_method(ReplyCode::NotAllowed, text)
}

/// What a client hears whose user may not be here any more.
pub(super) fn of_user(refused: &Refusal) -> Exception {
    Exception::of_no_method(ReplyCode::ConnectionForced, refused.text.as_str())
}

/// The exception for a refused method. Python says the reply code in the details, where it decided.
pub(super) fn exception_of(refused: &Refusal, method: MethodId) -> Exception {
    let decided = <[u8; 2]>::try_from(refused.details.as_slice()).ok();
    let decided = decided.and_then(|number| ReplyCode::of(u16::from_be_bytes(number)));
    Exception::new(decided.unwrap_or_else(|| code_of(refused.kind)), refused.text.as_str(), method)
}

/// The exception for a refused consumer, or a refused get: when others consume the queue, RabbitMQ's text.
pub(super) fn of_queue(refused: &Refusal, queue: &str, vhost: &str, method: MethodId) -> Exception {
    let mut exception = exception_of(refused, method);
    if refused.kind == Kind::InUse {
        exception.text = format!("queue '{queue}' in vhost '{vhost}' in exclusive use");
    }
    exception
}

fn code_of(kind: Kind) -> ReplyCode {
    match kind {
        Kind::Unauthenticated | Kind::AccessRefused | Kind::InUse => ReplyCode::AccessRefused,
        Kind::NotFound => ReplyCode::NotFound,
        Kind::PreconditionFailed | Kind::InvalidArgument | Kind::LimitReached => ReplyCode::PreconditionFailed,
        Kind::Conflict => ReplyCode::ResourceLocked,
        Kind::Unsupported => ReplyCode::NotImplemented,
        Kind::Unavailable | Kind::LedElsewhere => ReplyCode::ConnectionForced,
        Kind::Corrupt | Kind::Bug => ReplyCode::InternalError,
    }
}

/// Whether a refused publish is the client's doing, or another broker's part, which closes its channel, or the connection; any other is
/// answered by a nack, or not at all.
pub(super) fn closes_channel(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Unauthenticated
            | Kind::AccessRefused
            | Kind::NotFound
            | Kind::PreconditionFailed
            | Kind::InvalidArgument
            | Kind::Unsupported
            | Kind::LedElsewhere
    )
}

#[cfg(test)]
mod tests {
    use penstock_wire::amqp::method::MethodId;
    use penstock_wire::amqp::reply::ReplyCode;

    use super::exception_of;
    use crate::host::refusal::{Kind, Refusal};

    #[test]
    fn a_code_that_was_decided_counts_more_than_the_kind() {
        let mut refused = Refusal::new(Kind::PreconditionFailed, "cannot obtain exclusive access");
        let id = MethodId { class: 50, method: 10 };
        assert_eq!(exception_of(&refused, id).code, ReplyCode::PreconditionFailed);

        refused.details = 405_u16.to_be_bytes().to_vec();
        assert_eq!(exception_of(&refused, id).code, ReplyCode::ResourceLocked);
        refused.details = b"status".to_vec();
        assert_eq!(exception_of(&refused, id).code, ReplyCode::PreconditionFailed);
    }
}
