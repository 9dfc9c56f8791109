//! A stream's responses as an HTTP/2 body: every response is framed where it was encoded and goes to the socket from there.
//!
//! The body is polled only while the client has room for more, which is what drives a stream's [`Responder`].

use std::pin::Pin;
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

/// The head of a gRPC message: not compressed, and its length.
const HEAD_BYTES: usize = 5;

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
}

impl FramedMessage {
    /// Room for a message of about that many bytes; `encode` appends it.
    pub fn new<E>(bytes_about: usize, encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<FramedMessage, E> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + bytes_about);
        bytes.extend_from_slice(&[0; HEAD_BYTES]);
        encode(&mut bytes)?;
        Ok(FramedMessage { bytes, tail: Vec::new() }.with_length())
    }

    /// The same message with more bytes behind what was encoded.
    #[cfg(feature = "flight")]
    pub fn with_tail(self, tail: Vec<Bytes>) -> FramedMessage {
        FramedMessage { tail, ..self }.with_length()
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

/// Where a stream stands.
enum Phase<T> {
    Opening(BoxFuture<'static, Result<T, Status>>),
    Open(Box<T>),
    Ended,
}

/// The answer to a streaming call. Its opening is read and decided inside the body, so that its headers go at once.
pub(crate) fn respond<T: Responder>(
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
    let body = ResponseBody { messages: Some(Box::pin(messages)), tail: Vec::new().into_iter() };
    let mut response = http::Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
    response
}

type Messages = Pin<Box<dyn Stream<Item = Result<FramedMessage, Status>> + Send>>;

/// Invariant: the trailers are the last frame, and there is exactly one of them.
struct ResponseBody {
    messages: Option<Messages>,
    /// The rest of a message that has begun.
    tail: std::vec::IntoIter<Bytes>,
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(part) = self.tail.next() {
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        let Some(messages) = self.messages.as_mut() else { return Poll::Ready(None) };
        let status = match messages.poll_next_unpin(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(message))) => {
                self.tail = message.tail.into_iter();
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from(message.bytes)))));
            }
            Poll::Ready(Some(Err(status))) => status,
            Poll::Ready(None) => Status::new(Code::Ok, ""),
        };
        self.messages = None;
        let mut trailers = http::HeaderMap::new();
        let written = status.add_header(&mut trailers);
        Poll::Ready(Some(written.map(|()| Frame::trailers(trailers))))
    }
}

#[cfg(test)]
mod tests {
    use super::FramedMessage;

    #[test]
    fn a_message_carries_its_length_before_it() {
        let message = FramedMessage::of(3, |bytes| bytes.extend_from_slice(b"abc"));

        assert_eq!(message.bytes, [0, 0, 0, 0, 3, b'a', b'b', b'c']);
    }
}
