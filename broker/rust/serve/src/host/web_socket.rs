//! A stream of bytes in the binary messages of a WebSocket, over any socket.
//!
//! What must stay true: what is held is bounded, whatever sizes a client announces: one read, one write, and answers to the pings of
//! one read. A client that does not read the answers to its pings is not read. Reads do not wait for writes otherwise.

use std::io::{Error, ErrorKind, Result};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use penstock_wire::websocket::{Decoded, Decoder, HEAD_BYTES_MAX, WebSocketError, put_binary_head, put_close};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// So much is read of the socket at a time.
const READ_BYTES: usize = 16 << 10;

/// So much is written in one message.
const WRITE_BYTES: usize = 64 << 10;

/// Nothing is read while more is not written than one message.
const UNWRITTEN_BYTES_MAX: usize = WRITE_BYTES + HEAD_BYTES_MAX;

/// The end of a connection as it should be.
const NORMAL: u16 = 1000;

/// See the module.
pub(crate) struct WebSocket<S> {
    socket: S,
    decoder: Decoder,
    /// What came and is not decoded yet.
    input: BytesMut,
    /// Frames for the client, and how much of them was written.
    out: Vec<u8>,
    written: usize,
    /// Whether the client has said that it ends.
    has_ended: bool,
    /// Whether the client was told of the end.
    is_closed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// Goes on with a socket after its handshake; `input` is what has come behind that.
    pub fn new(socket: S, input: BytesMut) -> WebSocket<S> {
        let (decoder, out) = (Decoder::default(), Vec::new());
        WebSocket { socket, decoder, input, out, written: 0, has_ended: false, is_closed: false }
    }

    /// The socket below, once there is nothing to read but what comes from it.
    pub fn waits_for(&self) -> Option<&S> {
        self.input.is_empty().then_some(&self.socket)
    }

    /// The socket below.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// Reads data as a socket does; an end of the client is the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        loop {
            let before = buf.filled().len();
            let decoded = self.decode(buf);
            if let Err(error) = decoded {
                self.say_close(error.close_code());
            }
            let is_written = self.poll_answered(cx)?.is_ready();
            decoded.map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
            if self.has_ended || buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
            if !is_written && self.out.len() - self.written > UNWRITTEN_BYTES_MAX {
                return Poll::Pending;
            }
            let mut space = [MaybeUninit::uninit(); READ_BYTES];
            let mut came = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut came))?;
            if came.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.input.extend_from_slice(came.filled());
        }
    }

    fn decode(&mut self, buf: &mut ReadBuf<'_>) -> std::result::Result<(), WebSocketError> {
        while buf.remaining() > 0 && !self.has_ended {
            let most = if self.decoder.is_in_payload() { buf.remaining() } else { usize::MAX };
            let length = most.min(self.input.len());
            let part = self.input.get_mut(..length).unwrap_or_default();
            let (decoded, taken) = self.decoder.take(part)?;
            match decoded {
                Decoded::Nothing if taken == 0 => break,
                Decoded::Nothing => {}
                Decoded::Data(count) => buf.put_slice(part.get(taken - count..taken).unwrap_or_default()),
                Decoded::Ping => self.decoder.put_pong(&mut self.out),
                Decoded::Close => {
                    self.has_ended = true;
                    self.say_close(NORMAL);
                }
            }
            self.input.advance(taken);
        }
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        Ok(())
    }

    fn say_close(&mut self, code: u16) {
        if !std::mem::replace(&mut self.is_closed, true) {
            put_close(code, &mut self.out);
        }
    }

    /// Takes what there is room for in one message.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        if self.is_closed {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        ready!(self.poll_written(cx))?;
        let part = buf.get(..WRITE_BYTES).unwrap_or(buf);
        put_binary_head(part.len(), &mut self.out);
        self.out.extend_from_slice(part);
        // Whatever the socket does not take now is written by the next write, or by a flush.
        let _ = self.poll_written(cx)?;
        Poll::Ready(Ok(part.len()))
    }

    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.poll_written(cx))?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.say_close(NORMAL);
        ready!(self.poll_flush(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    /// Writes answers that a read has made; whoever reads does not flush.
    fn poll_answered(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.out.is_empty() { Poll::Ready(Ok(())) } else { self.poll_flush(cx) }
    }

    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.socket).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        (self.out, self.written) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }
}
