//! A client's connection: its number, where it comes from, and the news of its end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use penstock_engine::{Counters, Metric};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::metadata::MetadataMap;
use tonic::transport::server::Connected;

use crate::calls::{Call, Calls, Kind};
use crate::pull::Pulls;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What tonic hands to every request of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub connection: u64,
    pub address: String,
    pub pulls: Arc<Pulls>,
}

/// Who asks: connection, address and credentials as they came.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    pub connection: u64,
    pub peer: String,
    pub authorization: String,
}

impl Caller {
    pub(crate) fn of(peer: &Peer, metadata: &MetadataMap) -> Caller {
        let authorization = metadata.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        Caller { connection: peer.connection, peer: peer.address.clone(), authorization: authorization.to_owned() }
    }
}

/// A TCP connection that tells Python when it ends.
pub(crate) struct Connection {
    stream: TcpStream,
    peer: Peer,
    calls: Arc<Calls>,
    counters: Arc<Counters>,
}

impl Connection {
    pub fn new(stream: TcpStream, calls: Arc<Calls>, counters: Arc<Counters>) -> Connection {
        let address = stream.peer_addr().map(|address| address.to_string()).unwrap_or_default();
        // A connection that cannot be told to send at once is merely slower.
        let _ = stream.set_nodelay(true);
        counters.add(Metric::Connections, 1);
        let connection = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let pulls = Arc::new(Pulls::default());
        Connection { stream, peer: Peer { connection, address, pulls }, calls, counters }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.counters.subtract(Metric::Connections, 1);
        self.peer.pulls.clear();
        let caller =
            Caller { connection: self.peer.connection, peer: self.peer.address.clone(), authorization: String::new() };
        self.calls.tell(Call::new(Kind::Disconnected, &caller));
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
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
