//! The bodies of a call that is relayed, as they go on: bytes that wait count in the connection's part of the memory, and nothing more is
//! read while there is no room or the one before has not been taken.
//!
//! Once the broker stops, the client's side of a call ends, so that the leader ends the call in its way. The client hears why.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Frame, SizeHint};
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;

use crate::grpc::relay::recorded::Replay;
use crate::grpc::responses::{Place, hold};
use crate::grpc::status::stopping;
use crate::host::memory::{Account, Outgoing, Share};
use crate::host::stopping::until_stopped;

/// The header or trailer with the code of a status.
pub(crate) const STATUS: &str = "grpc-status";

/// The client's side of a call, on its way to the leader.
pub(crate) struct Upwards {
    body: Replay,
    share: Arc<Share>,
    stops: BoxFuture<'static, ()>,
    is_cut: Cut,
}

/// Whether a call's requests were ended by the broker's stop.
pub(crate) type Cut = Arc<AtomicBool>;

/// Bytes of a request, which count until they are sent.
struct Counted {
    bytes: Bytes,
    share: Arc<Share>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.share.give_back(self.bytes.len());
    }
}

impl Upwards {
    pub fn new(body: Replay, account: &Arc<Account>, mut stopping: watch::Receiver<bool>, is_cut: &Cut) -> Upwards {
        let stops = Box::pin(async move { until_stopped(&mut stopping).await });
        Upwards { body, share: Arc::new(Share::new(account)), stops, is_cut: Arc::clone(is_cut) }
    }
}

impl http_body::Body for Upwards {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.stops.as_mut().poll(cx).is_ready() {
            self.is_cut.store(true, Ordering::Release);
            return Poll::Ready(None);
        }
        ready!(self.share.poll_room(cx));
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx)? else {
            self.share.rest();
            return Poll::Pending;
        };
        Poll::Ready(frame.map(|frame| {
            let share = &self.share;
            Ok(frame.map_data(|bytes| {
                // Only who has logged in is relayed.
                share.take(bytes.len(), true);
                Bytes::from_owner(Counted { bytes, share: Arc::clone(share) })
            }))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// The leader's side of a call, on its way to the client.
///
/// Invariant: the call ends with a status, also where the way to the leader breaks.
pub(crate) struct Downwards {
    body: Option<hyper::body::Incoming>,
    /// Whether the headers or trailers with the status have come.
    has_status: bool,
    is_cut: Cut,
    leader: String,
    room: Outgoing,
    /// Whether it waits for room, or has just got some.
    waits: bool,
    place: Arc<Place>,
}

impl Downwards {
    /// `has_status` says that the headers have it, so that no trailers come.
    pub fn new(
        body: hyper::body::Incoming,
        has_status: bool,
        is_cut: Cut,
        leader: &str,
        account: &Arc<Account>,
    ) -> Downwards {
        let (leader, room) = (leader.to_owned(), Outgoing::new(account));
        Downwards { body: Some(body), has_status, is_cut, leader, room, waits: false, place: Arc::default() }
    }

    /// The last frame of a call whose way to the leader broke.
    fn broken(&mut self, error: &dyn std::fmt::Display) -> Result<Frame<Bytes>, Status> {
        self.body = None;
        trailers(&broken(&self.leader, error))
    }

    /// Whether the leader has ended the call well because its requests were ended here.
    fn is_stopped(&self, frame: &Frame<Bytes>) -> bool {
        let status = frame.trailers_ref().and_then(|trailers| trailers.get(STATUS));
        status.is_some_and(|status| status == "0") && self.is_cut.load(Ordering::Acquire)
    }
}

/// The last frame of a call.
pub(crate) fn trailers(status: &Status) -> Result<Frame<Bytes>, Status> {
    let mut headers = http::HeaderMap::new();
    status.add_header(&mut headers)?;
    Ok(Frame::trailers(headers))
}

/// The status of a call whose way to the leader breaks: the leader may have done what it asked for.
pub(crate) fn broken(leader: &str, error: &dyn std::fmt::Display) -> Status {
    Status::unavailable(format!(
        "the connection to broker '{leader}', which led the virtual host, broke: {error}; what was not confirmed may have been \
         done or not; try again"
    ))
}

impl http_body::Body for Downwards {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.place.poll_free(cx).is_pending() {
            return Poll::Pending;
        }
        if self.waits || !self.room.has_room() {
            self.waits = true;
            ready!(self.room.poll_room(cx));
        }
        let Some(body) = self.body.as_mut() else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        if std::mem::take(&mut self.waits) && frame.is_pending() {
            // Others have their turn until something comes.
            self.room.leave();
        }
        match ready!(frame) {
            Some(Ok(frame)) if self.is_stopped(&frame) => {
                self.has_status = true;
                Poll::Ready(Some(trailers(&stopping())))
            }
            Some(Ok(frame)) => {
                self.has_status |= frame.is_trailers();
                let Downwards { room, place, .. } = &mut *self;
                Poll::Ready(Some(Ok(frame.map_data(|bytes| {
                    let part = room.part(bytes.len());
                    hold(bytes, part, place)
                }))))
            }
            Some(Err(error)) => Poll::Ready(Some(self.broken(&error))),
            None if !self.has_status => Poll::Ready(Some(self.broken(&"it ended without a status"))),
            None => {
                self.body = None;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.has_status && self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// A body of which the first frame was looked at.
pub(crate) struct Begun {
    pub first: Option<Frame<Bytes>>,
    pub body: Body,
}

impl http_body::Body for Begun {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
