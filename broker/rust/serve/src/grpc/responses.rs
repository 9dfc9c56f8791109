//! A stream's responses as an HTTP/2 body: every response is framed where it was encoded and goes to the socket from there.
//!
//! A stream's [`Responder`] is asked for the next response once the client had room for the one before, which is what drives it.
//! hyper takes one frame ahead of the client's window; so that this is not a whole response, the last byte of one goes in a frame
//! of its own.
//!
//! A response holds its part of the memory until the socket has taken its last byte.
//!
//! Limits: a response of at most 256 bytes is one frame, so that much is asked for beyond the window. It is not counted: it is
//! one for each stream, which costs more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt};
use http::header::CONTENT_TYPE;
use http_body::Frame;
use tonic::body::Body;
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::{Code, Status};

use crate::host::memory::{Account, Part};

/// The head of a gRPC message: not compressed, and its length.
const HEAD_BYTES: usize = 5;

/// A response that is no larger goes in one frame; a second one would cost more than it is worth.
const ONE_FRAME_BYTES_MAX: usize = 256;

/// A stream that gives one response after another, each in a [`FramedMessage`].
pub(crate) trait Responder: Send + 'static {
    /// The next response, or the stream's end.
    fn step(&mut self) -> impl Future<Output = Option<Result<FramedMessage, Status>>> + Send;
}

/// A gRPC message with its head, encoded in place.
#[derive(Debug)]
pub(crate) struct FramedMessage {
    bytes: Vec<u8>,
    /// What follows without being copied.
    tail: Vec<Bytes>,
    /// The next response is asked for only when the client had room for this one, however small it is.
    waits_for_room: bool,
    /// What it holds of the memory, when that was taken before it was encoded.
    part: Option<Part>,
}

impl FramedMessage {
    /// Room for a message of about that many bytes; `encode` appends it.
    pub fn new<E>(bytes_about: usize, encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<FramedMessage, E> {
        let mut bytes = FramedMessage::begin(bytes_about);
        encode(&mut bytes)?;
        Ok(FramedMessage::end(bytes))
    }

    /// What a message of about that many bytes is appended to, for [`FramedMessage::end`].
    pub fn begin(bytes_about: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + bytes_about);
        bytes.extend_from_slice(&[0; HEAD_BYTES]);
        bytes
    }

    pub fn end(bytes: Vec<u8>) -> FramedMessage {
        FramedMessage { bytes, tail: Vec::new(), waits_for_room: false, part: None }.with_length()
    }

    /// The same message with more bytes behind what was encoded.
    #[cfg(feature = "flight")]
    pub fn with_tail(self, tail: Vec<Bytes>) -> FramedMessage {
        FramedMessage { tail, ..self }.with_length()
    }

    /// See the field.
    pub fn holding(self, part: Option<Part>) -> FramedMessage {
        FramedMessage { part, ..self }
    }

    /// See the field.
    pub fn waiting_for_room(self) -> FramedMessage {
        FramedMessage { waits_for_room: true, ..self }
    }

    /// The frames that it goes in. The last of them holds its part of the memory.
    fn into_frames(self, account: &Arc<Account>) -> Vec<Bytes> {
        let size = self.bytes.len() + self.tail.iter().map(Bytes::len).sum::<usize>();
        let is_parted = self.waits_for_room || self.bytes.len() > ONE_FRAME_BYTES_MAX;
        let part = (size > ONE_FRAME_BYTES_MAX).then(|| match self.part {
            Some(mut part) => {
                part.resize(size);
                part
            }
            None => Part::take(account, size),
        });
        let mut frames = self.tail;
        let mut first = match (frames.pop(), part) {
            (None, None) => Bytes::from(self.bytes),
            (None, Some(part)) => Bytes::from_owner(Held { bytes: self.bytes, _part: part }),
            (Some(last), None) => {
                frames.push(last);
                Bytes::from(self.bytes)
            }
            (Some(last), Some(part)) => {
                frames.push(Bytes::from_owner(Held { bytes: last, _part: part }));
                Bytes::from(self.bytes)
            }
        };
        if frames.is_empty() && is_parted {
            frames.push(first.split_off(first.len() - 1));
        }
        frames.insert(0, first);
        frames
    }

    fn with_length(mut self) -> FramedMessage {
        let length = self.bytes.len() - HEAD_BYTES + self.tail.iter().map(Bytes::len).sum::<usize>();
        // No response comes near 4 GiB: the largest holds one message and what little surrounds it.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        if let Some(head) = self.bytes.get_mut(1..HEAD_BYTES) {
            head.copy_from_slice(&length.to_be_bytes());
        }
        self
    }

    /// The same for a message that cannot fail to encode.
    pub fn of(bytes_about: usize, encode: impl FnOnce(&mut Vec<u8>)) -> FramedMessage {
        let encoded = FramedMessage::new(bytes_about, |bytes| {
            encode(bytes);
            Ok::<(), std::convert::Infallible>(())
        });
        match encoded {
            Ok(message) => message,
            Err(never) => match never {},
        }
    }
}

/// Bytes with the part of the memory that they hold.
struct Held<B> {
    bytes: B,
    _part: Part,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Held<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Where a stream stands.
enum Phase<T> {
    Opening(BoxFuture<'static, Result<T, Status>>),
    Open(Box<T>),
    Ended,
}

/// The answer to a streaming call. Its opening is read and decided inside the body, so that its headers go at once.
pub(crate) fn respond<T: Responder>(
    account: &Arc<Account>,
    opening: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> http::Response<Body> {
    let opening: BoxFuture<'static, Result<T, Status>> = Box::pin(opening);
    let messages = unfold(Phase::Opening(opening), |phase| async move {
        let mut stream = match phase {
            Phase::Opening(opening) => match opening.await {
                Ok(stream) => Box::new(stream),
                Err(refused) => return Some((Err(refused), Phase::Ended)),
            },
            Phase::Open(stream) => stream,
            Phase::Ended => return None,
        };
        let response = stream.step().await?;
        Some((response, Phase::Open(stream)))
    });
    let account = Arc::clone(account);
    let body = ResponseBody { messages: Some(Box::pin(messages)), frames: Vec::new().into_iter(), account };
    let mut response = http::Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
    response
}

type Messages = Pin<Box<dyn Stream<Item = Result<FramedMessage, Status>> + Send>>;

/// Invariant: the trailers are the last frame, and there is exactly one of them.
struct ResponseBody {
    messages: Option<Messages>,
    /// The rest of a message that has begun.
    frames: std::vec::IntoIter<Bytes>,
    account: Arc<Account>,
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let status = loop {
            if let Some(part) = self.frames.next() {
                return Poll::Ready(Some(Ok(Frame::data(part))));
            }
            let Some(messages) = self.messages.as_mut() else { return Poll::Ready(None) };
            match messages.poll_next_unpin(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(message))) => self.frames = message.into_frames(&self.account).into_iter(),
                Poll::Ready(Some(Err(status))) => break status,
                Poll::Ready(None) => break Status::new(Code::Ok, ""),
            }
        };
        self.messages = None;
        let mut trailers = http::HeaderMap::new();
        let written = status.add_header(&mut trailers);
        Poll::Ready(Some(written.map(|()| Frame::trailers(trailers))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Account, FramedMessage, ONE_FRAME_BYTES_MAX};
    use crate::host::memory::{Memory, Outgoing};

    fn account(memory: &Arc<Memory>) -> Arc<Account> {
        Arc::new(Account::new(memory))
    }

    #[test]
    fn the_last_byte_of_a_large_message_has_a_frame_of_its_own() {
        let account = account(&Arc::default());
        let frames = |size: usize| FramedMessage::of(size, |bytes| bytes.resize(size, b'x')).into_frames(&account);
        let lengths = |frames: Vec<bytes::Bytes>| frames.iter().map(bytes::Bytes::len).collect::<Vec<_>>();

        assert_eq!(lengths(frames(ONE_FRAME_BYTES_MAX)), [ONE_FRAME_BYTES_MAX]);
        assert_eq!(lengths(frames(ONE_FRAME_BYTES_MAX + 1)), [ONE_FRAME_BYTES_MAX, 1]);
        let small = FramedMessage::of(3, |bytes| bytes.extend_from_slice(b"abc")).waiting_for_room();
        assert_eq!(lengths(small.into_frames(&account)), [7, 1]);
    }

    #[test]
    fn a_message_carries_its_length_before_it() {
        let message = FramedMessage::of(3, |bytes| bytes.extend_from_slice(b"abc"));

        assert_eq!(message.bytes, [0, 0, 0, 0, 3, b'a', b'b', b'c']);
    }

    #[test]
    fn a_response_holds_its_part_of_the_memory_until_its_last_frame_is_gone() {
        let memory = Arc::new(Memory::new(1 << 20, 0));
        let account = account(&memory);
        let part = Outgoing::new(&account).part(48 << 10);
        let message = FramedMessage::of(1000, |bytes| bytes.resize(1000, b'x')).holding(part);
        assert_eq!(memory.used().response_bytes, 48 << 10);

        let mut frames = message.into_frames(&account);

        assert_eq!(memory.used().response_bytes, 1000);
        frames.remove(0);
        assert_eq!(memory.used().response_bytes, 1000);
        drop(frames);
        assert_eq!(memory.used().response_bytes, 0);
    }

    #[test]
    fn a_small_response_is_not_counted() {
        let memory = Arc::new(Memory::new(1 << 20, 0));

        let frames = FramedMessage::of(100, |bytes| bytes.resize(100, b'x')).into_frames(&account(&memory));

        assert_eq!((frames.len(), memory.used().response_bytes), (1, 0));
    }
}
