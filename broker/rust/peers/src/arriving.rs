//! Connections that come to the port for other brokers.
//!
//! Invariant: at most [`UNGREETED_MAX`] of them are without a greeting, so that a machine without the secret or a certificate takes neither
//! the file descriptors that logs need nor memory. When one more comes, the one that has waited longest ends: a broker greets within
//! milliseconds, and is let in also while others fill the places again and again.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tonic::transport::server::Connected;

use crate::links::lock;

pub(crate) const UNGREETED_MAX: usize = 64;
/// After this time connections are taken again when there was no file descriptor for one.
const RETRY: Duration = Duration::from_millis(100);

/// Connections that have not greeted yet; the oldest is at the front.
type Ungreeted = Arc<Mutex<VecDeque<Arc<Place>>>>;

/// The state of a connection, which its requests have, too.
#[derive(Debug)]
pub(crate) struct Place {
    address: SocketAddr,
    is_greeted: AtomicBool,
    is_over: AtomicBool,
    reader: AtomicWaker,
}

/// A connection that came.
pub(crate) struct Arrived {
    stream: TcpStream,
    place: Arc<Place>,
    ungreeted: Ungreeted,
}

impl Place {
    fn of(address: SocketAddr) -> Place {
        Place {
            address,
            is_greeted: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            reader: AtomicWaker::new(),
        }
    }

    /// The other side's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The other side has shown that it is a broker of the cluster.
    pub fn greet(&self) {
        self.is_greeted.store(true, Ordering::Release);
    }

    fn is_greeted(&self) -> bool {
        self.is_greeted.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.reader.wake();
    }

    /// An error once another connection has taken the place.
    fn check(&self, context: &Context<'_>) -> io::Result<()> {
        if self.is_greeted() {
            return Ok(());
        }
        // Registered first: an end that comes between the two is not missed.
        self.reader.register(context.waker());
        if self.is_over.load(Ordering::Acquire) { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

/// The connections that come, without end.
pub(crate) fn arriving(listener: TcpListener) -> impl Stream<Item = io::Result<Arrived>> {
    unfold((listener, Ungreeted::default()), |(listener, ungreeted)| async {
        loop {
            let Ok((stream, address)) = listener.accept().await else {
                sleep(RETRY).await;
                continue;
            };
            // Without it an acknowledgement waits up to 40 ms, and no more.
            let _ = stream.set_nodelay(true);
            let place = Arc::new(Place::of(address));
            let before = enter(&mut lock(&ungreeted), &place);
            before.into_iter().for_each(|longest| longest.end());
            let arrived = Arrived { stream, place, ungreeted: Arc::clone(&ungreeted) };
            return Some((Ok(arrived), (listener, ungreeted)));
        }
    })
}

/// Enters a connection; returns the one that has to end for it.
fn enter(ungreeted: &mut VecDeque<Arc<Place>>, place: &Arc<Place>) -> Option<Arc<Place>> {
    ungreeted.retain(|other| !other.is_greeted());
    ungreeted.push_back(Arc::clone(place));
    if ungreeted.len() > UNGREETED_MAX { ungreeted.pop_front() } else { None }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        lock(&self.ungreeted).retain(|other| !Arc::ptr_eq(other, &self.place));
    }
}

impl Connected for Arrived {
    type ConnectInfo = Arc<Place>;

    fn connect_info(&self) -> Arc<Place> {
        Arc::clone(&self.place)
    }
}

impl AsyncRead for Arrived {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.place.check(context)?;
        Pin::new(&mut this.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Arrived {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, parts)
    }
}
