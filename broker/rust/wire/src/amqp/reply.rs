//! Reply codes of AMQP 0-9-1, and an exception: why a channel or a connection is closed. Codes, names and the form of texts
//! are RabbitMQ's, because clients match on them.

use super::frame::FrameError;
use super::method::{Method, MethodError, MethodId};
use crate::{Name, WireError};

macro_rules! codes {
    ($($variant:ident $number:literal $name:literal $ends:literal)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ReplyCode {
            $($variant = $number,)*
        }

        impl ReplyCode {
            /// Return its name, which begins the reply text.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(ReplyCode::$variant => $name,)*
                }
            }

            /// Return the code of a number.
            #[must_use]
            pub fn of(number: u16) -> Option<ReplyCode> {
                match number {
                    $($number => Some(ReplyCode::$variant),)*
                    _ => None,
                }
            }

            /// Return whether it closes the connection, not only a channel.
            #[must_use]
            pub fn ends_connection(self) -> bool {
                match self {
                    $(ReplyCode::$variant => $ends,)*
                }
            }
        }
    };
}

codes! {
    Success 200 "OK" false
    ContentTooLarge 311 "CONTENT_TOO_LARGE" false
    NoRoute 312 "NO_ROUTE" false
    NoConsumers 313 "NO_CONSUMERS" false
    ConnectionForced 320 "CONNECTION_FORCED" true
    InvalidPath 402 "INVALID_PATH" true
    AccessRefused 403 "ACCESS_REFUSED" false
    NotFound 404 "NOT_FOUND" false
    ResourceLocked 405 "RESOURCE_LOCKED" false
    PreconditionFailed 406 "PRECONDITION_FAILED" false
    FrameError 501 "FRAME_ERROR" true
    SyntaxError 502 "SYNTAX_ERROR" true
    CommandInvalid 503 "COMMAND_INVALID" true
    ChannelError 504 "CHANNEL_ERROR" true
    UnexpectedFrame 505 "UNEXPECTED_FRAME" true
    ResourceError 506 "RESOURCE_ERROR" true
    NotAllowed 530 "NOT_ALLOWED" true
    NotImplemented 540 "NOT_IMPLEMENTED" true
    InternalError 541 "INTERNAL_ERROR" true
}

impl ReplyCode {
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }
}

/// Why a channel or a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} - {text}", .code.name())]
pub struct Exception {
    pub code: ReplyCode,
    /// The reason, without the name of the code.
    pub text: String,
    /// The method that caused it; zeros when no method did.
    pub method: MethodId,
}

impl Exception {
    #[must_use]
    pub fn new(code: ReplyCode, text: impl Into<String>, method: MethodId) -> Exception {
        Exception { code, text: text.into(), method }
    }

    /// An exception that no method caused.
    #[must_use]
    pub fn of_no_method(code: ReplyCode, text: impl Into<String>) -> Exception {
        Exception::new(code, text, MethodId::default())
    }

    /// Return whether it closes the connection when it happens on a channel.
    #[must_use]
    pub fn ends_connection(&self) -> bool {
        self.code.ends_connection()
    }

    /// Appends the method that closes the connection.
    pub fn put_connection_close(&self, out: &mut Vec<u8>) {
        let (text, MethodId { class, method }) = (self.to_string(), self.method);
        let reply_code = self.code.number();
        Method::ConnectionClose { reply_code, reply_text: Name::cut(&text), class, method }.put(0, out);
    }

    /// Appends the method that closes a channel.
    pub fn put_channel_close(&self, channel: u16, out: &mut Vec<u8>) {
        let (text, MethodId { class, method }) = (self.to_string(), self.method);
        let reply_code = self.code.number();
        Method::ChannelClose { reply_code, reply_text: Name::cut(&text), class, method }.put(channel, out);
    }
}

impl From<FrameError> for Exception {
    fn from(error: FrameError) -> Exception {
        Exception::of_no_method(ReplyCode::FrameError, error.to_string())
    }
}

impl From<MethodError> for Exception {
    fn from(error: MethodError) -> Exception {
        let (code, id) = match error {
            MethodError::Short(_) => (ReplyCode::FrameError, MethodId::default()),
            MethodError::Unknown(id) => (ReplyCode::NotImplemented, id),
            MethodError::Arguments { id, error: WireError::NotUtf8 { .. }, .. } => {
                return Exception::new(ReplyCode::FrameError, "Malformed UTF-8 in shortstr", id);
            }
            MethodError::Arguments { id, .. } => (ReplyCode::SyntaxError, id),
        };
        Exception::new(code, error.to_string(), id)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests {
    use super::{Exception, ReplyCode};
    use crate::Name;
    use crate::amqp::frame::next_frame;
    use crate::amqp::method::{Method, MethodId};

    #[test]
    fn an_exception_closes_with_its_code_name_and_method() {
        let method = MethodId { class: 50, method: 10 };
        let exception = Exception::new(ReplyCode::NotFound, "no queue 'jobs' in vhost '/'", method);
        assert!(!exception.ends_connection());
        let mut out = Vec::new();
        exception.put_channel_close(7, &mut out);

        let (frame, _) = next_frame(&out, 4096).unwrap().unwrap();
        assert_eq!(frame.channel, 7);
        let reply_text = Name::cut("NOT_FOUND - no queue 'jobs' in vhost '/'");
        let close = Method::ChannelClose { reply_code: 404, reply_text, class: 50, method: 10 };
        assert_eq!(Method::read(frame.payload), Ok(close));
    }

    #[test]
    fn a_long_text_is_cut_to_a_short_string() {
        let mut out = Vec::new();
        Exception::of_no_method(ReplyCode::InternalError, "é".repeat(300)).put_connection_close(&mut out);

        let (frame, _) = next_frame(&out, 4096).unwrap().unwrap();
        let Ok(Method::ConnectionClose { reply_text, class: 0, method: 0, .. }) = Method::read(frame.payload) else {
            panic!("{out:?}")
        };
        assert_eq!(reply_text.as_bytes().len(), 255);
        assert!(reply_text.to_text().starts_with("INTERNAL_ERROR - éé"));
    }

    #[test]
    fn a_bad_method_closes_the_connection() {
        let exception = |payload: &[u8]| Exception::from(Method::read(payload).unwrap_err());

        assert_eq!(exception(b"\0\x0a\0").code, ReplyCode::FrameError);
        let unknown = exception(&[0, 10, 0, 99, 1, 2]);
        assert_eq!(unknown.to_string(), "NOT_IMPLEMENTED - unknown method 10, 99 (class, method)");
        assert_eq!(unknown.method, MethodId { class: 10, method: 99 });
        let cut = exception(&[0, 20, 0, 20]);
        assert_eq!(
            cut.to_string(),
            "SYNTAX_ERROR - channel.flow: a method ends early: 1 bytes are announced and 0 are left"
        );
        let longer = exception(&[0, 20, 0, 41, 1]);
        assert_eq!((longer.code, longer.method), (ReplyCode::SyntaxError, MethodId { class: 20, method: 41 }));
        let text = exception(&[0, 60, 0, 21, 1, 0xff]);
        assert_eq!(text.to_string(), "FRAME_ERROR - Malformed UTF-8 in shortstr");
    }
}
