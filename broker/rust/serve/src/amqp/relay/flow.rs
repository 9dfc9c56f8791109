//! Bytes on their way in one direction, from a socket to another one: one read at most is held, and what is read next waits until that is
//! written.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use penstock_wire::amqp::frame_ends::FrameEnds;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// So often a flow reads before others have their turns.
const READS_MAX: usize = 16;

/// See the module.
#[derive(Default)]
pub(super) struct Flow {
    bytes: BytesMut,
    needs_flush: bool,
}

/// Which end of a flow has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Nothing more comes.
    Source,
    /// Nothing more is taken.
    Sink,
}

/// Sees the bytes of a flow before they are written.
pub(super) trait Watch {
    /// Bytes came, behind those that are not written.
    fn came(&mut self, unwritten: usize, bytes: &[u8]);

    /// So many bytes were written.
    fn went(&mut self, count: usize);
}

impl Watch for () {
    fn came(&mut self, _: usize, _: &[u8]) {}

    fn went(&mut self, _: usize) {}
}

impl Flow {
    /// A flow that begins with bytes.
    pub fn new(bytes: BytesMut) -> Flow {
        Flow { bytes, needs_flush: true }
    }

    /// The bytes that are not written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Passes on what comes, as long as both ends take part; ready once one of them does not any more.
    pub fn poll(
        &mut self,
        (from, to): (&mut (impl AsyncRead + Unpin), &mut (impl AsyncWrite + Unpin)),
        read_bytes: usize,
        watch: &mut impl Watch,
        cx: &mut Context<'_>,
    ) -> Poll<Side> {
        for _ in 0..READS_MAX {
            while !self.bytes.is_empty() {
                match Pin::new(&mut *to).poll_write(cx, &self.bytes) {
                    Poll::Ready(Ok(count @ 1..)) => {
                        self.bytes.advance(count);
                        self.needs_flush = true;
                        watch.went(count);
                    }
                    Poll::Ready(_) => return Poll::Ready(Side::Sink),
                    Poll::Pending => return Poll::Pending,
                }
            }
            self.bytes.reserve(read_bytes);
            let mut part = (&mut *from).take(read_bytes as u64);
            let read = pin!(part.read_buf(&mut self.bytes)).poll(cx);
            match read {
                Poll::Ready(Ok(1..)) => watch.came(0, &self.bytes),
                Poll::Ready(_) => return Poll::Ready(Side::Source),
                Poll::Pending => {
                    // One that waits for its source has no buffer.
                    self.bytes = BytesMut::new();
                    return self.poll_flush(to, cx);
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes what the sink has kept. It waits for more to come, whatever becomes of that.
    fn poll_flush(&mut self, to: &mut (impl AsyncWrite + Unpin), cx: &mut Context<'_>) -> Poll<Side> {
        if !self.needs_flush {
            return Poll::Pending;
        }
        match Pin::new(to).poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                self.needs_flush = false;
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(Side::Sink),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Where whole frames end among the bytes that are not written.
#[derive(Default)]
pub(super) struct Cut {
    ends: FrameEnds,
    /// `None` while a frame is written in part.
    at: Option<usize>,
}

impl Cut {
    /// So many of the bytes that are not written may be sent before frames of another origin; nothing when the sink was sent a part of a frame.
    pub fn at(&self) -> Option<usize> {
        self.at
    }

    /// Whether the source has ended the connection, or agreed to its end.
    pub fn has_closed(&self) -> bool {
        self.ends.has_closed()
    }
}

impl Watch for Cut {
    fn came(&mut self, unwritten: usize, bytes: &[u8]) {
        if let Some(end) = self.ends.take(bytes) {
            self.at = Some(unwritten + end);
        }
    }

    fn went(&mut self, count: usize) {
        self.at = self.at.and_then(|at| at.checked_sub(count));
    }
}
