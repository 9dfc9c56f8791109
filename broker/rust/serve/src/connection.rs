//! A client's connection: its number, where it comes from, and the news of its end. One that brings no request within its time
//! is closed, whether it says nothing or a byte now and then.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use penstock_engine::{Counters, Metric};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tonic::metadata::MetadataMap;
use tonic::transport::server::Connected;

use crate::calls::{Call, CallRequest, Calls};
use crate::listing::Closing;
use crate::pull::Pulls;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What tonic hands to every request of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub connection: u64,
    pub address: String,
    pub certificate: Option<Arc<[u8]>>,
    pub pulls: Arc<Pulls>,
    /// Calls of this connection that wait for a decision.
    pub calls: Arc<AtomicUsize>,
    has_asked: Arc<AtomicBool>,
}

impl Peer {
    /// A request came.
    pub fn asks(&self) {
        if !self.has_asked.load(Ordering::Relaxed) {
            self.has_asked.store(true, Ordering::Relaxed);
        }
    }
}

/// Who asks: connection, address and credentials as they came.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    pub connection: u64,
    pub peer: String,
    pub authorization: String,
    /// What the client showed at the handshake, DER; an authority that we trust signed it.
    pub certificate: Option<Arc<[u8]>>,
    /// Calls of the same connection that wait for a decision.
    pub(crate) calls: Arc<AtomicUsize>,
}

impl Caller {
    pub(crate) fn of(peer: &Peer, metadata: &MetadataMap) -> Caller {
        let authorization = metadata.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        Caller::with(peer, authorization)
    }

    pub(crate) fn of_headers(peer: &Peer, headers: &HeaderMap) -> Caller {
        let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        Caller::with(peer, authorization)
    }

    fn with(peer: &Peer, authorization: &str) -> Caller {
        Caller {
            connection: peer.connection,
            peer: peer.address.clone(),
            authorization: authorization.to_owned(),
            certificate: peer.certificate.clone(),
            calls: Arc::clone(&peer.calls),
        }
    }
}

/// What a connection's bytes go through.
pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    fn certificate(&self) -> Option<Arc<[u8]>> {
        let Socket::Tls(stream) = self else { return None };
        let (_, session) = stream.get_ref();
        session.peer_certificates()?.first().map(|shown| Arc::from(shown.as_ref()))
    }
}

/// A connection that tells Python when it ends.
pub(crate) struct Connection {
    socket: Socket,
    peer: Peer,
    calls: Arc<Calls>,
    counters: Arc<Counters>,
    /// Until the first request.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Whether an administrator closes it.
    closing: Arc<Closing>,
    /// Its place among those that may be open.
    _place: OwnedSemaphorePermit,
}

impl Connection {
    /// It has `patience` for its first request.
    pub fn new(
        (socket, peer): (Socket, SocketAddr),
        calls: Arc<Calls>,
        counters: Arc<Counters>,
        place: OwnedSemaphorePermit,
        patience: Duration,
    ) -> Connection {
        counters.add(Metric::Connections, 1);
        let peer = Peer {
            connection: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            address: peer.to_string(),
            certificate: socket.certificate(),
            pulls: Arc::default(),
            calls: Arc::default(),
            has_asked: Arc::default(),
        };
        let closing = calls.listing().connected(peer.connection);
        let deadline = Some(Box::pin(sleep(patience)));
        Connection { socket, peer, calls, counters, deadline, closing, _place: place }
    }

    /// Whether the time for a first request is over.
    fn is_too_late(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.deadline.as_mut() else { return false };
        if self.peer.has_asked.load(Ordering::Relaxed) {
            self.deadline = None;
            return false;
        }
        let is_over = deadline.as_mut().poll(cx).is_ready();
        if is_over {
            self.deadline = None;
            self.counters.add(Metric::ConnectionsTooSlow, 1);
        }
        is_over
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.counters.subtract(Metric::Connections, 1);
        self.peer.pulls.clear();
        self.calls.listing().disconnected(self.peer.connection);
        if !self.peer.has_asked.load(Ordering::Relaxed) {
            return;
        }
        let (connection, peer) = (self.peer.connection, self.peer.address.clone());
        let caller = Caller { connection, peer, ..Caller::default() };
        self.calls.tell(Call::new(CallRequest::Disconnected, &caller));
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if self.closing.poll(cx) {
            let text = "an administrator closed the connection";
            return Poll::Ready(Err(std::io::Error::new(std::io::ErrorKind::ConnectionAborted, text)));
        }
        if self.is_too_late(cx) {
            let text = "no request came in the time that a connection has for its first";
            return Poll::Ready(Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text)));
        }
        match &mut self.socket {
            Socket::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        match &mut self.socket {
            Socket::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        match &mut self.socket {
            Socket::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Socket::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Plain(stream) => stream.is_write_vectored(),
            Socket::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
