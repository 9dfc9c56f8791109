//! What a connection's bytes go through: TCP or a Unix socket, with or without TLS, and WebSocket on top of it; or a relay of another
//! broker.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use crate::host::relay::{Duplex, Origin, RelayedClient};
use crate::host::web_socket::WebSocket;

/// See the module.
pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
    Web(Box<WebSocket<Socket>>),
    /// Of another broker's client.
    Relayed(Box<dyn Duplex>, RelayedClient),
}

impl Socket {
    /// Ready when there is something to read, or its end.
    pub fn poll_heard(&self, cx: &mut Context<'_>) -> Poll<()> {
        let stream = match self {
            Socket::Plain(stream) => stream,
            Socket::Tls(stream) => {
                let (stream, session) = stream.get_ref();
                if !session.wants_read() {
                    return Poll::Ready(());
                }
                stream
            }
            Socket::Unix(stream) => return stream.poll_read_ready(cx).map(drop),
            // It is opened for what its client has sent.
            Socket::Relayed(..) => return Poll::Ready(()),
            Socket::Web(stream) => return stream.waits_for().map_or(Poll::Ready(()), |socket| socket.poll_heard(cx)),
        };
        // A socket may count as readable when it is new: only a look at its bytes tells.
        stream.poll_peek(cx, &mut ReadBuf::new(&mut [0])).map(drop)
    }

    /// The socket of TCP, when nothing is between it and its client.
    pub fn plain(&self) -> Option<&TcpStream> {
        match self {
            Socket::Plain(stream) => Some(stream),
            Socket::Tls(_) | Socket::Unix(_) | Socket::Web(_) | Socket::Relayed(..) => None,
        }
    }

    /// Whether its client's bytes come in TLS.
    pub fn is_tls(&self) -> bool {
        match self {
            Socket::Plain(_) | Socket::Unix(_) => false,
            Socket::Tls(_) => true,
            Socket::Web(stream) => stream.socket().is_tls(),
            Socket::Relayed(_, client) => client.is_tls,
        }
    }

    /// See [`Origin`].
    pub fn origin(&self) -> Option<Origin> {
        match self {
            Socket::Relayed(_, client) if client.broker > 0 => {
                Some(Origin { broker: client.broker, connection: client.connection })
            }
            _ => None,
        }
    }

    pub fn certificate(&self) -> Option<Arc<[u8]>> {
        match self {
            Socket::Plain(_) | Socket::Unix(_) => None,
            Socket::Tls(stream) => {
                let (_, session) = stream.get_ref();
                session.peer_certificates()?.first().map(|shown| Arc::from(shown.as_ref()))
            }
            Socket::Web(stream) => stream.socket().certificate(),
            Socket::Relayed(_, client) => client.certificate.clone(),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Web(stream) => stream.poll_read(cx, buf),
            Socket::Relayed(stream, _) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Web(stream) => stream.poll_write(cx, buf),
            Socket::Relayed(stream, _) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Socket::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Socket::Web(stream) => stream.poll_write(cx, bufs.first().map_or(&[], |first| first)),
            Socket::Relayed(stream, _) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Socket::Plain(stream) => stream.is_write_vectored(),
            Socket::Tls(stream) => stream.is_write_vectored(),
            Socket::Unix(stream) => stream.is_write_vectored(),
            Socket::Web(_) => false,
            Socket::Relayed(stream, _) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Web(stream) => stream.poll_flush(cx),
            Socket::Relayed(stream, _) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Web(stream) => stream.poll_shutdown(cx),
            Socket::Relayed(stream, _) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
