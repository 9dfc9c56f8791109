//! What a connection does with its socket in a turn: it reads, as far as the memory budget has room, and writes.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWrite};

use crate::host::connection::Connection;
use crate::host::memory::Share;

/// So much is read at a time.
pub(super) const READ_BYTES: usize = 64 << 10;

pub(super) enum Read {
    Came(std::io::Result<usize>),
    /// It goes on beyond the bound of the memory budget from now on.
    Exceeds,
    /// It waits for room in the budget from now on.
    Waits,
}

/// Reads what comes, once there is room for it.
pub(super) struct Reading<'a> {
    pub input: &'a mut BytesMut,
    /// Nothing before the log-in: what comes before is bounded by the socket.
    pub share: Option<&'a Share>,
    /// Whether it was noted that it exceeds the bound of the memory budget, if it does.
    pub is_noted: bool,
    /// Whether it was noted that it waits for room, if it does.
    pub is_waiting: bool,
    /// Whether the socket was asked.
    pub has_read: bool,
}

impl Reading<'_> {
    /// Ready with what came, or when it is to be noted that it exceeds the bound.
    pub fn poll(&mut self, socket: &mut Connection, cx: &mut Context<'_>) -> Poll<Read> {
        if let Some(share) = self.share
            && share.poll_room(cx).is_pending()
        {
            return if self.is_waiting { Poll::Pending } else { Poll::Ready(Read::Waits) };
        }
        self.has_read = true;
        self.input.reserve(READ_BYTES);
        if let Poll::Ready(read) = pin!(socket.read_buf(self.input)).poll(cx) {
            return Poll::Ready(Read::Came(read));
        }
        if self.input.is_empty() {
            // One that waits for its client has no buffer.
            *self.input = BytesMut::new();
        }
        let Some(share) = self.share else { return Poll::Pending };
        // One that holds nothing keeps nobody waiting.
        share.rest();
        if share.exceeds() && !self.is_noted { Poll::Ready(Read::Exceeds) } else { Poll::Pending }
    }
}

/// Writes what there is, and then what the socket has kept.
pub(super) fn poll_write(
    socket: &mut Connection,
    unwritten: &[u8],
    needs_flush: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<std::io::Result<usize>> {
    if !unwritten.is_empty() {
        return Pin::new(socket).poll_write(cx, unwritten);
    }
    if *needs_flush {
        ready!(Pin::new(socket).poll_flush(cx))?;
        *needs_flush = false;
    }
    Poll::Pending
}
