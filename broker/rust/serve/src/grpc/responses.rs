//! A stream's responses as an HTTP/2 body: every response is framed where it was encoded and goes to the socket from there.
//!
//! A stream's [`Responder`] is asked for the next response once the socket has taken the one before, for which the client had
//! room; this is what drives it. hyper would ask for one frame ahead of the client's window.
//!
//! A response holds its part of the memory until the socket has taken its last byte.
//!
//! Limits: nothing waits for a response of at most 256 bytes, so that much is asked for beyond the window. It is not counted: it
//! is one for each stream, which costs more.

use std::iter::Chain;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::unfold;
use futures_util::task::AtomicWaker;
use futures_util::{Stream, StreamExt};
use http::header::CONTENT_TYPE;
use http_body::Frame;
use tonic::body::Body;
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::{Code, Status};

use crate::host::memory::{Account, Part};

/// The head of a gRPC message: not compressed, and its length.
const HEAD_BYTES: usize = 5;

/// Nothing waits until a response that is no larger was taken: that would cost more than it is worth.
const SMALL_BYTES_MAX: usize = 256;

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

    /// The frames that it goes in. The last of them holds its part of the memory, and its place in the socket.
    fn into_frames(self, account: &Arc<Account>, place: &Arc<Place>) -> Frames {
        let size = self.bytes.len() + self.tail.iter().map(Bytes::len).sum::<usize>();
        let part = (size > SMALL_BYTES_MAX).then(|| match self.part {
            Some(mut part) => {
                part.resize(size);
                part
            }
            None => Part::take(account, size),
        });
        let taken = (part.is_some() || self.waits_for_room).then(|| Place::take(place));
        let (mut first, mut tail) = (Bytes::from(self.bytes), self.tail);
        if let Some(taken) = taken {
            let last = tail.last_mut().unwrap_or(&mut first);
            *last = Bytes::from_owner(Held { bytes: std::mem::take(last), _part: part, _taken: taken });
        }
        Some(first).into_iter().chain(tail)
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

/// Bytes with what they hold until the socket has taken them.
struct Held {
    bytes: Bytes,
    _part: Option<Part>,
    /// Given back last: the next response may need what the part gives back.
    _taken: Taken,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes that are no message of this broker's own, which hold their part of the memory and the place until the socket has taken them.
pub(crate) fn hold(bytes: Bytes, part: Option<Part>, place: &Arc<Place>) -> Bytes {
    Bytes::from_owner(Held { bytes, _part: part, _taken: Place::take(place) })
}

/// The place of a stream's responses on their way to the socket: one at a time.
#[derive(Debug, Default)]
pub(crate) struct Place {
    is_taken: AtomicBool,
    waits: AtomicWaker,
}

impl Place {
    fn take(place: &Arc<Place>) -> Taken {
        place.is_taken.store(true, Ordering::Release);
        Taken(Arc::clone(place))
    }

    pub fn poll_free(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.is_taken.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        self.waits.register(cx.waker());
        // It may have become free before the waker was there.
        if self.is_taken.load(Ordering::Acquire) { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// A place that is taken.
struct Taken(Arc<Place>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
        self.0.waits.wake();
    }
}

/// Where a stream stands.
enum Phase<T> {
    Opening(BoxFuture<'static, Result<T, Status>>),
    Open(Box<T>),
    Ended,
}

/// Whether a streaming call was opened; it is among the extensions of the answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opened(Arc<AtomicBool>);

impl Opened {
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The answer to a streaming call. Its opening is read and decided inside the body, so that its headers go at once.
pub(crate) fn respond<T: Responder>(
    account: &Arc<Account>,
    opening: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> http::Response<Body> {
    let opened = Opened::default();
    let noted = opened.clone();
    let opening: BoxFuture<'static, Result<T, Status>> = Box::pin(async move {
        let stream = opening.await?;
        noted.0.store(true, Ordering::Release);
        Ok(stream)
    });
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
    let (frames, place) = (None.into_iter().chain(Vec::new()), Arc::default());
    let body = ResponseBody { messages: Some(Box::pin(messages)), frames, place, account };
    let mut response = http::Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
    response.extensions_mut().insert(opened);
    response
}

type Frames = Chain<std::option::IntoIter<Bytes>, std::vec::IntoIter<Bytes>>;
type Messages = Pin<Box<dyn Stream<Item = Result<FramedMessage, Status>> + Send>>;

/// Invariant: the trailers are the last frame, and there is exactly one of them.
struct ResponseBody {
    messages: Option<Messages>,
    /// The rest of a message that has begun.
    frames: Frames,
    place: Arc<Place>,
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
            if self.place.poll_free(cx).is_pending() {
                return Poll::Pending;
            }
            let Some(messages) = self.messages.as_mut() else { return Poll::Ready(None) };
            match messages.poll_next_unpin(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(message))) => self.frames = message.into_frames(&self.account, &self.place),
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

    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;

    use super::{Account, FramedMessage, Place, SMALL_BYTES_MAX};
    use crate::host::memory::{Memory, Outgoing};

    fn account(memory: &Arc<Memory>) -> Arc<Account> {
        Arc::new(Account::new(memory))
    }

    fn is_free(place: &Place) -> bool {
        place.poll_free(&Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn the_next_response_waits_until_a_large_one_is_gone() {
        let (account, place) = (account(&Arc::default()), Arc::default());
        let frames = |size: usize| {
            let message = FramedMessage::of(size, |bytes| bytes.resize(size, b'x'));
            message.into_frames(&account, &place).collect::<Vec<Bytes>>()
        };

        let small = frames(SMALL_BYTES_MAX);
        assert!(is_free(&place));
        drop(small);

        let large = frames(SMALL_BYTES_MAX + 1);
        assert_eq!(large.iter().map(Bytes::len).collect::<Vec<_>>(), [SMALL_BYTES_MAX + 1]);
        let half = large[0].slice(..9);
        drop(large);
        assert!(!is_free(&place));
        drop(half);
        assert!(is_free(&place));
    }

    #[test]
    fn the_next_response_waits_for_a_small_one_that_says_so() {
        let (account, place) = (account(&Arc::default()), Arc::default());
        let small = FramedMessage::of(3, |bytes| bytes.extend_from_slice(b"abc")).waiting_for_room();

        let frames: Vec<Bytes> = small.into_frames(&account, &place).collect();

        assert_eq!(frames, [Bytes::from_static(b"\0\0\0\0\x03abc")]);
        assert!(!is_free(&place));
        drop(frames);
        assert!(is_free(&place));
    }

    #[test]
    fn a_message_carries_its_length_before_it() {
        let message = FramedMessage::of(3, |bytes| bytes.extend_from_slice(b"abc"));

        assert_eq!(message.bytes, [0, 0, 0, 0, 3, b'a', b'b', b'c']);
    }

    #[test]
    fn a_response_holds_its_part_of_the_memory_until_it_is_gone() {
        let memory = Arc::new(Memory::new(1 << 20, 0));
        let account = account(&memory);
        let part = Outgoing::new(&account).part(48 << 10);
        let message = FramedMessage::of(1000, |bytes| bytes.resize(1000, b'x')).holding(part);
        assert_eq!(memory.used().response_bytes, 48 << 10);

        let frames = message.into_frames(&account, &Arc::default());

        assert_eq!(memory.used().response_bytes, 1000);
        drop(frames);
        assert_eq!(memory.used().response_bytes, 0);
    }

    #[test]
    fn a_small_response_is_not_counted() {
        let memory = Arc::new(Memory::new(1 << 20, 0));
        let message = FramedMessage::of(100, |bytes| bytes.resize(100, b'x'));

        let frames = message.into_frames(&account(&memory), &Arc::default());

        assert_eq!((frames.count(), memory.used().response_bytes), (1, 0));
    }
}
