//! What a request may send before it is known who sends it, how long its first message may take, and what it holds of the memory.
//!
//! What must stay true: of a caller who was not asked for yet, no more than [`STRANGE_BYTES_MAX`] and one frame are held, however
//! large the message that was announced. Whoever sends more is looked up first, by the credentials of the request. A first
//! message has a time that grows with its length, so that no client keeps a request open a byte at a time. What has passed is the
//! request's [`Share`] of the memory until whoever reads it is done with it; nothing passes while there is no room, and HTTP/2
//! opens no window for it. A request that exceeds the bound while others wait has to come at [`EXCEEDING_BYTES_PER_SECOND_MIN`].

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
use crate::host::connection_state::ConnectionState;
use crate::host::memory::Share;
use crate::host::peer::Peer;
use crate::host::refusal::Refusal;

/// Enough for every message that opens a stream, and for every administrative call but an import.
const STRANGE_BYTES_MAX: usize = 16 << 10;

/// How fast a large first message has to come, at least.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// How fast a request has to come that goes on beyond the bound while others wait for room.
const EXCEEDING_BYTES_PER_SECOND_MIN: u64 = 1 << 20;

/// See the module.
pub(crate) struct Gate {
    body: Body,
    standing: Standing,
    first: FirstMessage,
    opened: Instant,
    patience: Duration,
    /// Until the first message is there.
    deadline: Option<Pin<Box<Sleep>>>,
    share: Arc<Share>,
    state: Arc<ConnectionState>,
    /// Whether it waited for room since it was read last.
    has_waited: bool,
    /// While it exceeds the bound: until then it has to send more.
    exceeding: Option<Pin<Box<Sleep>>>,
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
    let (mut parts, body) = request.into_parts();
    let Some(peer) = parts.extensions.get::<Peer>() else { return http::Request::from_parts(parts, body) };
    let caller = Box::new(known_as(caller_of_headers(peer, &parts.headers)));
    let state = Arc::clone(&peer.state);
    let share = Arc::new(Share::new(&state.account));
    parts.extensions.insert(Arc::clone(&share));
    let opened = Instant::now();
    let gate = Gate {
        body,
        standing: Standing::Strange { calls: Arc::clone(calls), caller, received: 0 },
        first: FirstMessage::default(),
        opened,
        patience,
        deadline: Some(Box::pin(sleep_until(opened + patience))),
        share,
        state,
        has_waited: false,
        exceeding: None,
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
            ready!(self.poll_room(cx));
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx)? else {
                self.share.rest();
                if self.poll_exceeding(cx).is_ready() {
                    return Poll::Ready(Some(Err(too_slow_for_others())));
                }
                let Some(deadline) = self.deadline.as_mut() else { return Poll::Pending };
                ready!(deadline.as_mut().poll(cx));
                let text = format!("the request's first message took more than {} s; send it at once", self.seconds());
                return Poll::Ready(Some(Err(Status::deadline_exceeded(text))));
            };
            let Some(frame) = frame else { return Poll::Ready(None) };
            if let Some(data) = frame.data_ref() {
                self.note(data);
                self.share.take(data.len(), self.state.is_known());
                if let Some(exceeding) = self.exceeding.as_mut() {
                    let more = Duration::from_micros(data.len() as u64 * 1_000_000 / EXCEEDING_BYTES_PER_SECOND_MIN);
                    let deadline = exceeding.deadline() + more;
                    exceeding.as_mut().reset(deadline);
                }
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

    /// Ready when there is room in the memory. What comes before a log-in is bounded by its connection.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.state.is_known() {
            return Poll::Ready(());
        }
        if self.share.poll_room(cx).is_pending() {
            self.has_waited = true;
            return Poll::Pending;
        }
        if std::mem::take(&mut self.has_waited)
            && let Some(deadline) = self.deadline.as_mut()
        {
            // The time that it waited is not its client's.
            let more = self.first.length().unwrap_or(0) / BYTES_PER_SECOND_MIN;
            deadline.as_mut().reset(Instant::now() + self.patience + Duration::from_secs(more));
        }
        Poll::Ready(())
    }

    /// Ready when it exceeds the bound and comes too slowly for those that wait.
    fn poll_exceeding(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.share.exceeds() || self.share.has_given_back() {
            self.exceeding = None;
        }
        if !self.share.exceeds() {
            return Poll::Pending;
        }
        let patience = self.patience;
        let exceeding = self.exceeding.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + patience)));
        loop {
            ready!(exceeding.as_mut().poll(cx));
            if self.share.is_waited_for() {
                return Poll::Ready(());
            }
            exceeding.as_mut().reset(Instant::now() + patience);
        }
    }
}

fn too_slow_for_others() -> Status {
    Status::resource_exhausted(
        "the broker's memory for requests is used up, and others wait for the rest of this message; send it again, at once",
    )
}

/// How much of the first message is still to come: five bytes announce it, the last four of them its length.
#[derive(Debug, Default)]
pub(crate) struct FirstMessage {
    head: [u8; 5],
    head_count: usize,
    body_count: u64,
}

impl FirstMessage {
    pub fn take(&mut self, data: &[u8]) {
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

    pub fn is_whole(&self) -> bool {
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
