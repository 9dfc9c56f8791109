//! The body of a request that may have to be sent to the leader: whatever its service has read is kept until it is known who serves it.
//!
//! A service reads no more than the message that opens a call before that is decided, so that is what is kept: bytes that are shared
//! with the service, not copied. A body of which more than its bound was read is not kept, and its call cannot be relayed.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use crate::grpc::gate::FirstMessage;

/// What both sides share until it is decided.
struct Record {
    /// Gone once one of the sides has it for itself.
    body: Option<Body>,
    read: VecDeque<Bytes>,
    read_bytes: usize,
    bytes_max: usize,
    first: FirstMessage,
    has_ended: bool,
    /// Whether the service goes on alone.
    is_settled: bool,
}

type Shared = Arc<Mutex<Record>>;

/// The body, for the service.
pub(crate) struct Recorded {
    shared: Shared,
    own: Option<Body>,
}

/// What the service has read, and the rest.
pub(crate) struct Recording(Shared);

/// The two sides of a body, of which at most so many bytes are kept.
pub(crate) fn record(body: Body, bytes_max: usize) -> (Recorded, Recording) {
    let record = Record {
        body: Some(body),
        read: VecDeque::new(),
        read_bytes: 0,
        bytes_max,
        first: FirstMessage::default(),
        has_ended: false,
        is_settled: false,
    };
    let shared = Arc::new(Mutex::new(record));
    (Recorded { shared: Arc::clone(&shared), own: None }, Recording(shared))
}

impl Record {
    fn settle(&mut self) {
        self.is_settled = true;
        self.read = VecDeque::new();
    }

    fn note(&mut self, data: &Bytes) {
        self.first.take(data);
        self.read_bytes += data.len();
        if self.read_bytes > self.bytes_max {
            self.settle();
        } else {
            self.read.push_back(data.clone());
        }
    }
}

impl Recording {
    /// The service goes on alone: nothing is kept any more.
    pub fn settle(&self) {
        lock(&self.0).settle();
    }

    /// Whether the client has not sent the message yet that opens the call.
    pub fn waits(&self) -> bool {
        let record = lock(&self.0);
        !record.first.is_whole() && !record.has_ended
    }

    /// The whole body, from its beginning; `None` where the service has read more than was kept.
    pub fn replay(&self) -> Option<Replay> {
        let mut record = lock(&self.0);
        if record.is_settled {
            return None;
        }
        let (body, read) = (record.body.take()?, std::mem::take(&mut record.read));
        record.is_settled = true;
        Some(Replay { read, body, has_ended: record.has_ended })
    }
}

impl http_body::Body for Recorded {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(body) = self.own.as_mut() {
            return Pin::new(body).poll_frame(cx);
        }
        let mut record = lock(&self.shared);
        let Some(body) = record.body.as_mut() else { return Poll::Ready(None) };
        let frame = std::task::ready!(Pin::new(body).poll_frame(cx)?);
        match &frame {
            None => record.has_ended = true,
            Some(frame) if !record.is_settled => frame.data_ref().into_iter().for_each(|data| record.note(data)),
            Some(_) => {}
        }
        let own = if record.is_settled { record.body.take() } else { None };
        drop(record);
        self.own = own;
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        match &self.own {
            Some(body) => body.is_end_stream(),
            None => lock(&self.shared).body.as_ref().is_none_or(http_body::Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// What was read, and then the rest of the body.
pub(crate) struct Replay {
    read: VecDeque<Bytes>,
    body: Body,
    has_ended: bool,
}

impl http_body::Body for Replay {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(read) = self.read.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(read))));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && (self.has_ended || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

fn lock(shared: &Mutex<Record>) -> MutexGuard<'_, Record> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::FutureExt;
    use http_body::Body as _;

    use super::*;

    /// A body of these parts.
    struct Parts(VecDeque<&'static [u8]>);

    impl http_body::Body for Parts {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(Bytes::from_static(part)))))
        }
    }

    fn parts() -> Body {
        Body::new(Parts([&b"\0\0\0\0\x03ab"[..], b"c", b"\0\0\0\0\x01d", b"e"].into()))
    }

    fn next(body: &mut (impl http_body::Body<Data = Bytes, Error = Status> + Unpin)) -> Option<Bytes> {
        let polled = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).now_or_never().unwrap();
        polled.map(|frame| frame.unwrap().into_data().ok().unwrap())
    }

    fn rest(body: &mut (impl http_body::Body<Data = Bytes, Error = Status> + Unpin)) -> Vec<u8> {
        std::iter::from_fn(|| next(body)).flatten().collect()
    }

    #[test]
    fn a_body_is_replayed_from_its_beginning() {
        let (mut recorded, recording) = record(parts(), 100);
        next(&mut recorded).unwrap();
        assert!(recording.waits());
        next(&mut recorded).unwrap();
        assert!(!recording.waits());

        let mut replay = recording.replay().unwrap();

        assert_eq!(rest(&mut replay), b"\0\0\0\0\x03abc\0\0\0\0\x01de");
        assert_eq!(next(&mut recorded), None);
    }

    #[test]
    fn a_body_that_has_ended_ends_again() {
        let (mut recorded, recording) = record(parts(), 100);
        rest(&mut recorded);

        let mut replay = recording.replay().unwrap();

        assert!(!replay.is_end_stream());
        assert_eq!(rest(&mut replay).len(), 15);
        assert!(replay.is_end_stream());
    }

    #[test]
    fn nothing_is_kept_of_a_body_that_is_served_here() {
        let (mut recorded, recording) = record(parts(), 100);
        next(&mut recorded).unwrap();

        recording.settle();

        assert_eq!(rest(&mut recorded), b"c\0\0\0\0\x01de");
        assert!(recording.replay().is_none());
    }

    #[test]
    fn a_body_of_which_too_much_was_read_is_not_replayed() {
        let (mut recorded, recording) = record(parts(), 10);
        assert_eq!(rest(&mut recorded).len(), 15);

        assert!(recording.replay().is_none());
    }
}
