//! A client's connection: its number, where it comes from, and the news of its end. One whose client does not log in within its
//! time is closed, whether it says nothing, a byte now and then, or asks what needs no credentials. So is one whose log-ins fail
//! again and again.
//!
//! Until its client has logged in, a connection reads [`UNAUTHENTICATED_BYTES_MAX`] at most, and what is above
//! [`UNAUTHENTICATED_BYTES_FREE`] only while the pool of all such connections has room. Then it reads on.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use penstock_engine::{Counters, Metric};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::{Call, CallRequest, Calls};
use crate::host::connection_state::ConnectionState;
use crate::host::listing::Closing;
use crate::host::memory::Memory;
use crate::host::peer::Peer;
use crate::host::places::Place;
use crate::host::pool::Seat;
use crate::host::socket::Socket;

/// How long a connection goes on at a time while a decision about its client is under way.
const DECISION_PAUSE: Duration = Duration::from_millis(100);

/// What the last answer has to reach a client whose log-ins failed too often.
const LAST_ANSWER: Duration = Duration::from_millis(100);

/// What a connection may send before its log-in without room in the pool of all such connections: enough for a log-in.
const UNAUTHENTICATED_BYTES_FREE: usize = 16 << 10;

/// What it may send in all: larger requests are read only after a log-in.
const UNAUTHENTICATED_BYTES_MAX: usize = 256 << 10;

/// Before a log-in so much is read at a time.
const UNAUTHENTICATED_READ_BYTES: usize = 4 << 10;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Why a connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    ByAdministrator,
    /// Others wait for the memory that it holds.
    ForMemory,
    /// Its client did not log in in time.
    TooSlow,
    FailedTooOften,
}

impl Ended {
    fn text(self) -> &'static str {
        match self {
            Ended::ByAdministrator => "an administrator closed the connection",
            Ended::ForMemory => "others wait for the memory that the connection holds",
            Ended::TooSlow => "its client did not log in within the time that it has for that",
            Ended::FailedTooOften => "log-ins failed again and again",
        }
    }
}

impl From<Ended> for std::io::Error {
    fn from(ended: Ended) -> std::io::Error {
        let kind = match ended {
            Ended::ByAdministrator | Ended::ForMemory => std::io::ErrorKind::ConnectionAborted,
            Ended::TooSlow | Ended::FailedTooOften => std::io::ErrorKind::TimedOut,
        };
        std::io::Error::new(kind, ended.text())
    }
}

/// What a connection without a log-in has sent.
struct Unauthenticated {
    memory: Arc<Memory>,
    came: usize,
    seat: Seat,
}

impl Unauthenticated {
    /// Ready when it may send more.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.came {
            ..UNAUTHENTICATED_BYTES_FREE => Poll::Ready(()),
            UNAUTHENTICATED_BYTES_FREE..UNAUTHENTICATED_BYTES_MAX => {
                self.memory.unauthenticated().poll_room(&mut self.seat, false, cx)
            }
            _ => Poll::Pending,
        }
    }

    fn take(&mut self, bytes: usize) {
        let before = self.counted();
        self.came += bytes;
        self.memory.unauthenticated().take(self.counted() - before);
    }

    /// What is above its own part.
    fn counted(&self) -> usize {
        self.came.saturating_sub(UNAUTHENTICATED_BYTES_FREE)
    }
}

impl Drop for Unauthenticated {
    fn drop(&mut self) {
        self.memory.unauthenticated().withdraw(&mut self.seat);
        self.memory.unauthenticated().give_back(self.counted());
    }
}

/// A connection that tells Python when it ends. Its bytes are read and written in the clear, whatever it goes through.
pub struct Connection {
    socket: Socket,
    peer: Peer,
    calls: Arc<Calls>,
    counters: Arc<Counters>,
    /// Until its client has logged in, or the last answer has gone to a client whose log-ins failed too often.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Whether an administrator closes it.
    closing: Arc<Closing>,
    is_closing: bool,
    /// Whether its last bytes are being written.
    says_last: bool,
    /// Its place among those that may be open.
    place: Place,
    /// What has come before the log-in; `None` after it.
    unauthenticated: Option<Unauthenticated>,
}

impl Connection {
    pub(crate) fn new(
        (socket, address): (Socket, String),
        protocol: &'static str,
        broker: &Broker,
        place: Place,
    ) -> Connection {
        let (calls, counters) = (Arc::clone(&broker.calls), Arc::clone(broker.engine.counters()));
        let (memory, patience) = (&broker.memory, broker.first_request);
        counters.add(Metric::Connections, 1);
        let peer = Peer {
            protocol,
            connection: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            address,
            certificate: socket.certificate(),
            is_tls: socket.is_tls(),
            is_relayed: matches!(socket, Socket::Relayed(..)),
            pulls: Arc::default(),
            state: Arc::new(ConnectionState::new(memory).from(socket.origin())),
        };
        calls.connected(peer.connection, &peer.state);
        let closing = calls.listing().connected(peer.connection);
        let deadline = Some(Box::pin(sleep(patience)));
        let unauthenticated = Some(Unauthenticated { memory: Arc::clone(memory), came: 0, seat: Seat::default() });
        Connection {
            socket,
            peer,
            calls,
            counters,
            deadline,
            closing,
            is_closing: false,
            says_last: false,
            place,
            unauthenticated,
        }
    }

    /// What its requests have in common.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The socket of TCP, when nothing is between it and its client.
    pub(crate) fn plain(&self) -> Option<&TcpStream> {
        self.socket.plain()
    }

    /// Reads what a client may send that has not logged in. The socket's buffer is the client's own.
    fn poll_read_unauthenticated(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let Some(unauthenticated) = self.unauthenticated.as_mut() else {
            return Pin::new(&mut self.socket).poll_read(cx, buf);
        };
        let state = &self.peer.state;
        state.reader.register(cx.waker());
        if !state.is_known() {
            ready!(unauthenticated.poll_room(cx));
        }
        let mut bytes = [0; UNAUTHENTICATED_READ_BYTES];
        let length = bytes.len().min(buf.remaining());
        let mut part = ReadBuf::new(bytes.get_mut(..length).unwrap_or_default());
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut part))?;
        unauthenticated.take(part.filled().len());
        buf.put_slice(part.filled());
        Poll::Ready(Ok(()))
    }

    /// Waits until the client has sent something; returns false once the connection has to be closed before.
    pub(crate) async fn is_heard(&mut self) -> bool {
        poll_fn(|cx| {
            if self.poll_ended(cx).is_ready() {
                return Poll::Ready(false);
            }
            self.socket.poll_heard(cx).map(|()| true)
        })
        .await
    }

    /// Ready once the connection has to be closed, also while nothing is read from it.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        if self.says_last {
            return Poll::Pending;
        }
        self.closing.register(cx);
        self.end(cx).map_or(Poll::Pending, Poll::Ready)
    }

    /// Waits until the connection has to be closed.
    pub(crate) async fn until_ended(&mut self) -> Ended {
        poll_fn(|cx| self.poll_ended(cx)).await
    }

    /// Writes the last bytes to a client whose connection has to be closed, and waits that long until it closes it, too: what
    /// has come and was not read would take them from it.
    pub(crate) async fn say_last(&mut self, bytes: &[u8], patience: Duration) {
        self.says_last = true;
        let said = async {
            self.write_all(bytes).await?;
            self.shutdown().await?;
            // On the heap: in the state of a task it would take that space from the beginning.
            let mut rest = vec![0; UNAUTHENTICATED_READ_BYTES];
            while self.read(&mut rest).await? > 0 {}
            std::io::Result::Ok(())
        };
        // A client that does not read learns nothing.
        let _ = timeout(patience, said).await;
    }

    /// Fail once the connection has to be closed.
    fn check(&mut self, cx: &mut Context<'_>) -> std::io::Result<()> {
        if self.says_last {
            return Ok(());
        }
        self.end(cx).map_or(Ok(()), |ended| Err(ended.into()))
    }

    /// Return why the connection has to be closed, once it has to.
    fn end(&mut self, cx: &mut Context<'_>) -> Option<Ended> {
        let state = &self.peer.state;
        if !self.is_closing && state.has_failed_too_often() {
            self.is_closing = true;
            self.deadline = Some(Box::pin(sleep(LAST_ANSWER)));
        }
        if let Some(for_memory) = self.closing.asked() {
            return Some(if for_memory { Ended::ForMemory } else { Ended::ByAdministrator });
        }
        let deadline = self.deadline.as_mut()?;
        if !self.is_closing && state.is_known() {
            self.deadline = None;
            self.place.leave_address();
            self.unauthenticated = None;
            return None;
        }
        while deadline.as_mut().poll(cx).is_ready() {
            if self.is_closing {
                return Some(Ended::FailedTooOften);
            }
            if !state.is_deciding() {
                self.counters.add(Metric::ConnectionsTooSlow, 1);
                return Some(Ended::TooSlow);
            }
            // Each decision comes to its end, and so many failures close the connection.
            deadline.as_mut().reset(Instant::now() + DECISION_PAUSE);
        }
        None
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.counters.subtract(Metric::Connections, 1);
        self.peer.pulls.clear();
        self.peer.state.end();
        self.calls.listing().disconnected(self.peer.connection);
        self.calls.disconnected(self.peer.connection);
        if !self.peer.state.has_asked() {
            return;
        }
        let Peer { protocol, connection, address, .. } = &self.peer;
        let (protocol, connection, peer) = (*protocol, *connection, address.clone());
        let caller = Caller { protocol, connection, peer, ..Caller::default() };
        self.calls.tell(Call::new(CallRequest::Disconnected, &caller));
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        self.closing.register(cx);
        self.check(cx)?;
        if self.unauthenticated.is_some() {
            return self.poll_read_unauthenticated(cx, buf);
        }
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
