//! What a request may send before it is known who sends it, and how long its first message may take.
//!
//! What must stay true: of a caller who was not asked for yet, no more than [`STRANGE_BYTES_MAX`] and one frame are held, however
//! large the message that was announced. Whoever sends more is looked up first, by the credentials of the request. A first
//! message has a time that grows with its length, so that nobody keeps a request open a byte at a time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;
use tonic::body::Body;

use crate::grpc::peer::caller_of_headers;
use crate::host::caller::Caller;
use crate::host::calls::{Call, CallRequest, Calls};
use crate::host::peer::Peer;
use crate::host::refusal::Refusal;

/// Enough for every message that opens a stream, and for every administrative call but an import.
const STRANGE_BYTES_MAX: usize = 16 << 10;

/// How fast a large first message has to come, at least.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// See the module.
pub(crate) struct Gate {
    body: Body,
    standing: Standing,
    first: FirstMessage,
    opened: Instant,
    patience: Duration,
    /// Until the first message is there.
    deadline: Option<Pin<Box<Sleep>>>,
}

/// Whether it is known who calls.
enum Standing {
    Strange { calls: Arc<Calls>, caller: Box<Caller>, received: usize },
    Asking { asking: BoxFuture<'static, Result<(), Refusal>>, held: Option<Frame<Bytes>> },
    Known,
}

/// The same request with its body behind a gate. `patience` is what a small first message has.
pub(crate) fn guard(request: http::Request<Body>, calls: &Arc<Calls>, patience: Duration) -> http::Request<Body> {
    guard_as(request, calls, patience, |caller| caller)
}

/// The same for a service that takes credentials in a way of its own.
pub(crate) fn guard_as(
    request: http::Request<Body>,
    calls: &Arc<Calls>,
    patience: Duration,
    known_as: fn(Caller) -> Caller,
) -> http::Request<Body> {
    let (parts, body) = request.into_parts();
    let Some(peer) = parts.extensions.get::<Peer>() else { return http::Request::from_parts(parts, body) };
    let caller = Box::new(known_as(caller_of_headers(peer, &parts.headers)));
    let opened = Instant::now();
    let gate = Gate {
        body,
        standing: Standing::Strange { calls: Arc::clone(calls), caller, received: 0 },
        first: FirstMessage::default(),
        opened,
        patience,
        deadline: Some(Box::pin(sleep_until(opened + patience))),
    };
    http::Request::from_parts(parts, Body::new(gate))
}

impl Gate {
    /// Takes note of bytes that came.
    fn note(&mut self, data: &[u8]) {
        let Some(deadline) = self.deadline.as_mut() else { return };
        let knew_length = self.first.length().is_some();
        self.first.take(data);
        match self.first.length() {
            _ if self.first.is_whole() => self.deadline = None,
            Some(length) if !knew_length => {
                let more = Duration::from_secs(length / BYTES_PER_SECOND_MIN);
                deadline.as_mut().reset(self.opened + self.patience + more);
            }
            _ => {}
        }
    }

    /// Whether the frame goes on, or its sender has to be looked up first.
    fn admit(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let size = frame.data_ref().map_or(0, Bytes::len);
        let Standing::Strange { calls, caller, received } = &mut self.standing else { return Some(frame) };
        *received += size;
        if *received <= STRANGE_BYTES_MAX {
            return Some(frame);
        }
        let (calls, call) = (Arc::clone(calls), Call::new(CallRequest::Enter, caller));
        let asking = Box::pin(async move { calls.admit(call).await.map(|_| ()) });
        self.standing = Standing::Asking { asking, held: Some(frame) };
        None
    }
}

impl http_body::Body for Gate {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Standing::Asking { asking, held } = &mut self.standing {
                let known = ready!(asking.as_mut().poll(cx));
                let held = held.take();
                if let Err(refused) = known {
                    return Poll::Ready(Some(Err(refused.into())));
                }
                self.standing = Standing::Known;
                return Poll::Ready(held.map(Ok));
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx)? else {
                let Some(deadline) = self.deadline.as_mut() else { return Poll::Pending };
                ready!(deadline.as_mut().poll(cx));
                let text = format!("the request's first message took more than {} s; send it at once", self.seconds());
                return Poll::Ready(Some(Err(Status::deadline_exceeded(text))));
            };
            let Some(frame) = frame else { return Poll::Ready(None) };
            if let Some(data) = frame.data_ref() {
                self.note(data);
            }
            if let Some(frame) = self.admit(frame) {
                return Poll::Ready(Some(Ok(frame)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        !matches!(self.standing, Standing::Asking { .. }) && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Gate {
    fn seconds(&self) -> u64 {
        self.opened.elapsed().as_secs()
    }
}

/// How much of the first message is still to come: five bytes announce it, the last four of them its length.
#[derive(Debug, Default)]
struct FirstMessage {
    head: [u8; 5],
    head_count: usize,
    body_count: u64,
}

impl FirstMessage {
    fn take(&mut self, data: &[u8]) {
        let rest = data.len().min(self.head.len() - self.head_count);
        for (place, byte) in self.head.iter_mut().skip(self.head_count).zip(data) {
            *place = *byte;
        }
        self.head_count += rest;
        self.body_count += (data.len() - rest) as u64;
    }

    fn length(&self) -> Option<u64> {
        let [_, length @ ..] = self.head;
        (self.head_count == self.head.len()).then(|| u64::from(u32::from_be_bytes(length)))
    }

    fn is_whole(&self) -> bool {
        self.length().is_some_and(|length| self.body_count >= length)
    }
}

#[cfg(test)]
mod tests {
    use super::FirstMessage;

    #[test]
    fn a_first_message_is_whole_once_all_it_announced_has_come() {
        let mut first = FirstMessage::default();
        first.take(&[0, 0, 0]);
        assert_eq!((first.length(), first.is_whole()), (None, false));

        first.take(&[0, 2, 7]);
        assert_eq!((first.length(), first.is_whole()), (Some(2), false));

        first.take(&[7]);
        assert!(first.is_whole());
    }

    #[test]
    fn a_message_that_announces_four_gigabytes_is_not_whole() {
        let mut first = FirstMessage::default();
        first.take(&[0, 255, 255, 255, 255, 1]);

        assert_eq!((first.length(), first.is_whole()), (Some(u64::from(u32::MAX)), false));
    }
}
