//! Messages of one channel as they come: the method, the header and the bodies of a publish become one message.
//!
//! All bytes of the messages that are complete, and of the one that is not, stand in one buffer, so that a message is copied
//! once and memory is used again. Bounded are the announced size of a body and the properties; whoever reads from the socket
//! bounds the rest by [`Assembly::held_bytes`]. It knows no exchange and no queue.

use std::collections::VecDeque;

use super::checked::Properties;
use super::content::{BASIC, ContentHeader};
use super::frame::{Frame, FrameKind};
use super::method::MethodId;
use super::properties::PROPERTIES_BYTES_MAX;
use super::replies;
use super::reply::{Exception, ReplyCode};
use crate::Name;

/// `basic.publish`, the only method that clients send with a content.
const PUBLISH: MethodId = MethodId { class: BASIC, method: 40 };

/// A message that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    pub exchange: Name<'a>,
    pub routing_key: Name<'a>,
    pub mandatory: bool,
    pub properties: Properties<'a>,
    pub body: &'a [u8],
}

/// How long the parts of a message are, which stand one behind the other.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    exchange: usize,
    routing_key: usize,
    properties: usize,
    body: usize,
    mandatory: bool,
    is_reply: bool,
    has_routing_headers: bool,
}

impl Parts {
    fn bytes(&self) -> usize {
        self.exchange + self.routing_key + self.properties + self.body
    }

    fn mandatory_bytes(&self) -> usize {
        if self.mandatory { self.bytes() } else { 0 }
    }
}

/// The frame that has to come next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expected {
    #[default]
    Method,
    Header,
    /// So many bytes of the body are missing.
    Body(u64),
}

/// See the module. Invariant: `bytes` has `start` bytes that are done with, then the complete messages, then the one that is not.
#[derive(Debug)]
pub struct Assembly {
    body_bytes_max: u64,
    expected: Expected,
    bytes: Vec<u8>,
    start: usize,
    complete: VecDeque<Parts>,
    /// Of complete messages that return to their publisher when they find no queue.
    mandatory_bytes: usize,
    /// How many complete messages are direct replies.
    reply_count: usize,
    /// What stands for the name of direct replies in messages that ask for one; empty where nobody waits for any.
    reply_name: Vec<u8>,
    incomplete: Parts,
}

impl Assembly {
    #[must_use]
    pub fn new(body_bytes_max: u64) -> Assembly {
        let (expected, bytes, complete) = (Expected::Method, Vec::new(), VecDeque::new());
        Assembly {
            body_bytes_max,
            expected,
            bytes,
            start: 0,
            complete,
            mandatory_bytes: 0,
            reply_count: 0,
            reply_name: Vec::new(),
            incomplete: Parts::default(),
        }
    }

    /// Return whether a header or a body has to come, and no method.
    #[inline]
    #[must_use]
    pub fn expects_content(&self) -> bool {
        self.expected != Expected::Method
    }

    /// Begins a message. The caller has checked that no other one is incomplete.
    #[inline]
    pub fn begin(&mut self, exchange: Name<'_>, routing_key: Name<'_>, mandatory: bool) {
        debug_assert!(!self.expects_content());
        self.bytes.extend_from_slice(exchange.as_bytes());
        self.bytes.extend_from_slice(routing_key.as_bytes());
        let is_reply = replies::is_reply(exchange.as_bytes(), routing_key.as_bytes());
        let (exchange, routing_key) = (exchange.as_bytes().len(), routing_key.as_bytes().len());
        self.incomplete = Parts { exchange, routing_key, mandatory, is_reply, ..Parts::default() };
        self.expected = Expected::Header;
    }

    /// Takes the next frame of the message that was begun, and says whether it is complete now.
    ///
    /// # Errors
    /// When another frame had to come, or a limit is exceeded. Nothing more may be read then.
    #[inline]
    pub fn take(&mut self, frame: Frame<'_>) -> Result<bool, Exception> {
        let left = match (self.expected, frame.kind) {
            (Expected::Header, FrameKind::Header) => self.take_header(frame.payload)?,
            (Expected::Body(left), FrameKind::Body) => {
                let left = left.checked_sub(frame.payload.len() as u64).ok_or_else(|| {
                    Exception::new(ReplyCode::FrameError, "content body frame exceeds remaining content size", PUBLISH)
                })?;
                self.bytes.extend_from_slice(frame.payload);
                self.incomplete.body += frame.payload.len();
                left
            }
            _ => return Err(self.unexpected()),
        };
        if left > 0 {
            self.expected = Expected::Body(left);
            return Ok(false);
        }
        self.expected = Expected::Method;
        self.mandatory_bytes += self.incomplete.mandatory_bytes();
        self.reply_count += usize::from(self.incomplete.is_reply);
        self.complete.push_back(std::mem::take(&mut self.incomplete));
        Ok(true)
    }

    /// Return how many bytes of a body have to come.
    fn take_header(&mut self, payload: &[u8]) -> Result<u64, Exception> {
        let header = ContentHeader::read(payload).ok_or_else(|| {
            Exception::new(ReplyCode::FrameError, "a header frame ends before its properties", PUBLISH)
        })?;
        if header.class != BASIC {
            let text = format!("expected content header for class {BASIC}, got one for class {} instead", header.class);
            return Err(Exception::new(ReplyCode::UnexpectedFrame, text, PUBLISH));
        }
        if header.weight != 0 {
            let text = format!("expected content header for class {BASIC} of weight 0, got {}", header.weight);
            return Err(Exception::new(ReplyCode::UnexpectedFrame, text, PUBLISH));
        }
        if header.body_bytes > self.body_bytes_max {
            let (size, max) = (header.body_bytes, self.body_bytes_max);
            let text = format!("message size {size} is larger than configured max size {max}");
            return Err(Exception::new(ReplyCode::PreconditionFailed, text, PUBLISH));
        }
        let properties = Properties::check(header.properties)
            .map_err(|error| Exception::new(ReplyCode::SyntaxError, error.to_string(), PUBLISH))?;
        let before = self.bytes.len();
        match replies::place_of_name(properties) {
            None => self.bytes.extend_from_slice(properties.as_bytes()),
            Some(at) => self.put_named(properties, at)?,
        }
        self.incomplete.properties = self.bytes.len() - before;
        self.incomplete.has_routing_headers = properties.has_routing_headers();
        Ok(header.body_bytes)
    }

    /// Appends the properties of a message that asks for a direct reply.
    #[cold]
    fn put_named(&mut self, properties: Properties<'_>, at: usize) -> Result<(), Exception> {
        let is_too_long = properties.as_bytes().len() + self.reply_name.len() > PROPERTIES_BYTES_MAX;
        if self.reply_name.is_empty() || is_too_long {
            let text = if is_too_long { "the properties are too long" } else { "fast reply consumer does not exist" };
            return Err(Exception::new(ReplyCode::PreconditionFailed, text, PUBLISH));
        }
        replies::put_named(properties, at, &self.reply_name, &mut self.bytes);
        Ok(())
    }

    /// The exception for a frame, a method for instance, that comes in the middle of a content.
    #[cold]
    #[must_use]
    pub fn unexpected(&self) -> Exception {
        let text = match self.expected {
            Expected::Method => {
                let text = "expected method frame, got non method frame instead";
                return Exception::of_no_method(ReplyCode::UnexpectedFrame, text);
            }
            Expected::Header => "expected content header for class 60, got non content header frame instead",
            Expected::Body(_) => "expected content body, got non content body frame instead",
        };
        Exception::new(ReplyCode::UnexpectedFrame, text, PUBLISH)
    }

    #[must_use]
    pub fn complete_count(&self) -> usize {
        self.complete.len()
    }

    /// Return how many bytes of complete messages may return to their publisher.
    #[must_use]
    pub fn mandatory_bytes(&self) -> usize {
        self.mandatory_bytes
    }

    /// Return whether a message is complete, or begun, that returns to its publisher when it finds no queue.
    #[inline]
    #[must_use]
    pub fn may_return(&self) -> bool {
        self.mandatory_bytes > 0 || self.incomplete.mandatory
    }

    /// Names what direct replies are sent to, of messages that come from now on; nothing when it is empty.
    pub fn set_reply_name(&mut self, name: &[u8]) {
        name.clone_into(&mut self.reply_name);
    }

    /// Return how many complete messages stand before the first one that is a direct reply.
    #[must_use]
    pub fn before_reply(&self) -> Option<usize> {
        if self.reply_count == 0 { None } else { self.complete.iter().position(|parts| parts.is_reply) }
    }

    /// The complete messages, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = Publish<'_>> {
        let mut rest = self.bytes.get(self.start..).unwrap_or_default();
        self.complete.iter().map_while(move |parts| {
            let mut part = |length: usize| {
                let (part, after) = rest.split_at_checked(length)?;
                rest = after;
                Some(part)
            };
            let (exchange, routing_key) =
                (Name::checked(part(parts.exchange)?), Name::checked(part(parts.routing_key)?));
            let properties = Properties::checked(part(parts.properties)?, parts.has_routing_headers);
            let body = part(parts.body)?;
            Some(Publish { exchange, routing_key, mandatory: parts.mandatory, properties, body })
        })
    }

    /// Removes the oldest `count` complete messages. Returns the bytes of their bodies.
    pub fn advance(&mut self, count: usize) -> usize {
        let taken = self.complete.drain(..count.min(self.complete.len()));
        let (mut bytes, mut body_bytes) = (0, 0);
        for parts in taken {
            bytes += parts.bytes();
            body_bytes += parts.body;
            self.mandatory_bytes -= parts.mandatory_bytes();
            self.reply_count -= usize::from(parts.is_reply);
        }
        self.start += bytes;
        // Fewer bytes are moved than were removed, or only those of the incomplete message after all others.
        if self.complete.is_empty() || self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        body_bytes
    }

    /// Frees the buffer when it holds nothing: an idle channel shall cost little.
    pub fn release(&mut self) {
        if self.held_bytes() == 0 {
            (self.bytes, self.complete, self.start) = (Vec::new(), VecDeque::new(), 0);
        }
    }

    /// Return how many bytes the messages have that are complete, or begun.
    #[must_use]
    pub fn message_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Return how many bytes of memory they take: messages may have no bytes, and there may be many.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.message_bytes() + self.complete.len() * size_of::<Parts>()
    }

    /// Return how many bytes of memory the messages take at most when `frame` is kept too, which may complete one.
    #[inline]
    #[must_use]
    pub fn held_bytes_with(&self, frame: &Frame<'_>) -> usize {
        self.held_bytes() + frame.payload.len() + self.reply_name.len() + size_of::<Parts>()
    }

    /// Frees all messages.
    pub fn clear(&mut self) {
        *self = Assembly::new(self.body_bytes_max);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests {
    use proptest::prelude::*;

    use super::{Assembly, PUBLISH, Parts};
    use crate::Name;
    use crate::amqp::content::put_content;
    use crate::amqp::frame::{Frame, FrameKind, next_frame};
    use crate::amqp::reply::{Exception, ReplyCode};

    const BODY_MAX: u64 = 100;

    fn begun() -> Assembly {
        let mut assembly = Assembly::new(BODY_MAX);
        assembly.begin(Name::cut("logs"), Name::cut("a.b"), true);
        assembly
    }

    fn header(class: u16, weight: u16, size: u64, properties: &[u8]) -> Vec<u8> {
        [&class.to_be_bytes()[..], &weight.to_be_bytes(), &size.to_be_bytes(), properties].concat()
    }

    fn frame(kind: FrameKind, payload: &[u8]) -> Frame<'_> {
        Frame { kind, channel: 1, payload }
    }

    fn refused(assembly: &mut Assembly, frame: Frame<'_>) -> (ReplyCode, String) {
        let Exception { code, text, method } = assembly.take(frame).unwrap_err();
        assert_eq!(method, PUBLISH);
        (code, text)
    }

    #[test]
    fn a_message_comes_in_several_frames() {
        let mut assembly = begun();
        assert!(assembly.expects_content());
        assert_eq!(assembly.take(frame(FrameKind::Header, &header(60, 0, 5, &[0x10, 0, 2]))), Ok(false));
        assert_eq!(assembly.take(frame(FrameKind::Body, b"hel")), Ok(false));
        assert_eq!(assembly.take(frame(FrameKind::Body, b"")), Ok(false));
        assert_eq!(assembly.take(frame(FrameKind::Body, b"lo")), Ok(true));

        assert!(!assembly.expects_content());
        let message = assembly.messages().next().unwrap();
        assert_eq!(
            (message.exchange, message.routing_key, message.mandatory),
            (Name::cut("logs"), Name::cut("a.b"), true)
        );
        assert_eq!((message.properties.as_bytes(), message.body), (&[0x10, 0, 2][..], &b"hello"[..]));
        assert_eq!((assembly.advance(1), assembly.held_bytes()), (5, 0));
    }

    #[test]
    fn an_empty_body_has_no_frame() {
        let mut assembly = begun();
        assert_eq!(assembly.take(frame(FrameKind::Header, &header(60, 0, 0, &[0, 0]))), Ok(true));
        assert_eq!(assembly.messages().map(|message| message.body.len()).collect::<Vec<_>>(), [0]);
    }

    /// 4,096 messages without a body on each channel took megabytes, and counted as some kilobytes.
    #[test]
    fn messages_without_bytes_count_with_their_places() {
        let mut assembly = Assembly::new(100);
        for _ in 0..1000 {
            assembly.begin(Name::EMPTY, Name::EMPTY, false);
            assert_eq!(assembly.take(frame(FrameKind::Header, &header(60, 0, 0, &[0, 0]))), Ok(true));
        }
        assert_eq!(assembly.message_bytes(), 2000);
        assert!(assembly.held_bytes() >= 2000 + 1000 * size_of::<Parts>(), "{}", assembly.held_bytes());

        assembly.advance(1000);

        assert_eq!((assembly.message_bytes(), assembly.held_bytes()), (0, 0));
    }

    #[test]
    fn a_frame_that_does_not_fit_is_refused() {
        let body = frame(FrameKind::Body, b"x");
        let text = "expected content header for class 60, got non content header frame instead";
        assert_eq!(refused(&mut begun(), body), (ReplyCode::UnexpectedFrame, text.to_owned()));
        let other = header(50, 0, 1, &[0, 0]);
        let text = "expected content header for class 60, got one for class 50 instead";
        let other = refused(&mut begun(), frame(FrameKind::Header, &other));
        assert_eq!(other, (ReplyCode::UnexpectedFrame, text.to_owned()));
        let weight = refused(&mut begun(), frame(FrameKind::Header, &header(60, 1, 1, &[0, 0])));
        assert_eq!(weight.0, ReplyCode::UnexpectedFrame);
        let short = refused(&mut begun(), frame(FrameKind::Header, &[0, 60, 0]));
        assert_eq!(short.0, ReplyCode::FrameError);
        let properties = refused(&mut begun(), frame(FrameKind::Header, &header(60, 0, 1, &[0x80, 0, 9])));
        assert_eq!(properties.0, ReplyCode::SyntaxError);

        let mut assembly = begun();
        assembly.take(frame(FrameKind::Header, &header(60, 0, 2, &[0, 0]))).unwrap();
        let text = "expected content body, got non content body frame instead";
        let method = refused(&mut assembly, frame(FrameKind::Method, b""));
        assert_eq!(method, (ReplyCode::UnexpectedFrame, text.to_owned()));
        let long = refused(&mut assembly, frame(FrameKind::Body, b"xyz"));
        let text = "content body frame exceeds remaining content size";
        assert_eq!(long, (ReplyCode::FrameError, text.to_owned()));
    }

    #[test]
    fn a_body_above_the_limit_is_refused_before_it_comes() {
        let large = refused(&mut begun(), frame(FrameKind::Header, &header(60, 0, 101, &[0, 0])));

        let text = "message size 101 is larger than configured max size 100";
        assert_eq!(large, (ReplyCode::PreconditionFailed, text.to_owned()));
    }

    type Sent = (String, String, bool, Vec<u8>);

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(
            sent in prop::collection::vec(("[a-zé]{0,5}", ".{0,9}", any::<bool>(), prop::collection::vec(any::<u8>(), 0..100)), 0..20),
            take_at in prop::collection::vec(0..4usize, 20),
            payload_max in 15..60u32,
        ) {
            let (mut assembly, mut got): (_, Vec<Sent>) = (Assembly::new(BODY_MAX), Vec::new());
            for ((exchange, key, mandatory, body), taken) in sent.iter().zip(take_at) {
                assembly.begin(Name::cut(exchange), Name::cut(key), *mandatory);
                let mut bytes = Vec::new();
                put_content(1, &[0x10, 0, 1], body, payload_max + 8, &mut bytes);
                let mut rest = &bytes[..];
                while let Some((frame, length)) = next_frame(rest, 200).unwrap() {
                    rest = &rest[length..];
                    prop_assert_eq!(assembly.take(frame).unwrap(), rest.is_empty());
                    // Now and then some are taken in the middle of the next.
                    if taken == 1 {
                        take_all(&mut assembly, 1, &mut got);
                    }
                }
                take_all(&mut assembly, taken, &mut got);
            }
            take_all(&mut assembly, usize::MAX, &mut got);
            prop_assert_eq!(got, sent);
            prop_assert_eq!(assembly.held_bytes(), 0);
        }
    }

    fn take_all(assembly: &mut Assembly, count: usize, got: &mut Vec<Sent>) {
        let count = count.min(assembly.complete_count());
        got.extend(assembly.messages().take(count).map(|message| {
            let (exchange, key) = (message.exchange.to_text(), message.routing_key.to_text());
            (exchange, key, message.mandatory, message.body.to_vec())
        }));
        assembly.advance(count);
    }
}
