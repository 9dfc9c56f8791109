//! From the listening socket to connections that can be read: accepts, and shakes hands where TLS is served.
//!
//! A handshake has a task and a deadline of its own, so that a client which says nothing delays nobody. Dropping the
//! stream of connections closes the socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::Stream;
use futures_util::stream::unfold;
use penstock_engine::{Engine, Metric};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::calls::Calls;
use crate::connection::{Connection, Socket};
use crate::tls::Tls;

/// How long accepting pauses when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that wait for the server to take them.
const READY_MAX: usize = 64;
/// Failed handshakes are counted; one in so long is told.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What every connection is made with.
#[derive(Clone)]
pub(crate) struct Door {
    pub engine: Arc<Engine>,
    pub calls: Arc<Calls>,
    /// What is served now; nothing is plaintext.
    pub tls: watch::Receiver<Option<Tls>>,
    failures: watch::Sender<Option<Instant>>,
}

impl Door {
    pub fn new(engine: Arc<Engine>, calls: Arc<Calls>, tls: watch::Receiver<Option<Tls>>) -> Door {
        Door { engine, calls, tls, failures: watch::Sender::new(None) }
    }

    fn connection(&self, socket: Socket, peer: SocketAddr) -> Connection {
        Connection::new(socket, peer, Arc::clone(&self.calls), Arc::clone(self.engine.counters()))
    }

    async fn shake_hands(self, tls: Tls, stream: TcpStream, peer: SocketAddr, ready: mpsc::Sender<Connection>) {
        let shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(tls.config).accept(stream)).await;
        match shaken {
            Ok(Ok(stream)) => {
                // Nobody takes it once the server stops.
                let _ = ready.send(self.connection(Socket::Tls(Box::new(stream)), peer)).await;
            }
            Ok(Err(error)) => self.failed(peer, &error.to_string()),
            Err(_) => self.failed(peer, &format!("it took more than {} s", HANDSHAKE_TIMEOUT.as_secs())),
        }
    }

    fn failed(&self, peer: SocketAddr, why: &str) {
        self.engine.counters().add(Metric::TlsFailures, 1);
        let now = Instant::now();
        let tells = self.failures.send_if_modified(|told| {
            let tells = told.is_none_or(|told| now.duration_since(told) >= TELL_EVERY);
            if tells {
                *told = Some(now);
            }
            tells
        });
        if tells {
            self.engine.notices().tell(format!("a TLS handshake with {peer} failed: {why}"));
        }
    }
}

/// The connections that come in, until what this gives is dropped.
pub(crate) fn accept(listener: TcpListener, door: Door) -> impl Stream<Item = std::io::Result<Connection>> {
    let (ready, connections) = mpsc::channel(READY_MAX);
    tokio::spawn(run(listener, door, ready));
    unfold(connections, |mut connections| async move {
        let connection = connections.recv().await?;
        Some((Ok(connection), connections))
    })
}

async fn run(listener: TcpListener, door: Door, ready: mpsc::Sender<Connection>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ready.closed() => return,
        };
        let Ok((stream, peer)) = accepted else {
            // Out of descriptors, or the client is gone already: neither may end the listener.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // A connection that cannot be told to send at once is merely slower.
        let _ = stream.set_nodelay(true);
        let tls = door.tls.borrow().clone();
        match tls {
            Some(tls) => drop(tokio::spawn(door.clone().shake_hands(tls, stream, peer, ready.clone()))),
            None => {
                if ready.send(door.connection(Socket::Plain(stream), peer)).await.is_err() {
                    return;
                }
            }
        }
    }
}
