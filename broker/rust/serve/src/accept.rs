//! From the listening socket to connections that can be read: accepts as many as may be open, and shakes hands where TLS is
//! served.
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
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::addresses::{Addresses, Place};
use crate::calls::Calls;
use crate::connection::{Connection, Socket};
use crate::tls::Tls;

/// How long accepting pauses when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that wait for the server to take them.
const READY_MAX: usize = 64;
/// Failed handshakes and refused connections are counted; one in so long is told.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What every connection is made with.
#[derive(Clone)]
pub(crate) struct Door {
    pub engine: Arc<Engine>,
    pub calls: Arc<Calls>,
    /// What is served now; nothing is plaintext.
    pub tls: watch::Receiver<Option<Tls>>,
    places: Arc<Semaphore>,
    addresses: Arc<Addresses>,
    connections_max: usize,
    /// What a handshake may take, and a log-in after it.
    patience: Duration,
    told: watch::Sender<Option<Instant>>,
}

/// A socket that was accepted, and its place among those that may be open.
type Accepted = (TcpStream, SocketAddr, Place);

impl Door {
    pub fn new(
        engine: Arc<Engine>,
        calls: Arc<Calls>,
        tls: watch::Receiver<Option<Tls>>,
        connections_max: usize,
        patience: Duration,
    ) -> Door {
        let connections_max = connections_max.clamp(1, Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(connections_max));
        let addresses = Addresses::new(connections_max);
        Door { engine, calls, tls, places, addresses, connections_max, patience, told: watch::Sender::new(None) }
    }

    fn connection(&self, socket: Socket, peer: SocketAddr, place: Place) -> Connection {
        let counters = Arc::clone(self.engine.counters());
        Connection::new((socket, peer), Arc::clone(&self.calls), counters, place, self.patience)
    }

    /// A place for one more, or word to its client that there is none.
    fn place(&self, stream: &TcpStream, peer: SocketAddr, is_plain: bool) -> Option<Place> {
        let of_address = self.addresses.place(peer.ip());
        let of_all = Arc::clone(&self.places).try_acquire_owned();
        let reason = match (of_address, of_all) {
            (Some(of_address), Ok(of_all)) => return Some(Place { of_address: Some(of_address), _of_all: of_all }),
            (_, Err(_)) => format!("{} connections are open, as many as connections_max allows", self.connections_max),
            (None, Ok(_)) => {
                let max = self.addresses.each_max();
                format!(
                    "{max} connections from this address wait for a log-in, three quarters of connections_max; log in on them"
                )
            }
        };
        self.engine.counters().add(Metric::ConnectionsRefused, 1);
        if is_plain {
            // Its buffer is empty, so this fits; a client that is gone needs no word.
            let _ = stream.try_write(&go_away(&reason));
        }
        self.tell(format!("a connection from {peer} was refused: {reason}"));
        None
    }

    async fn shake_hands(self, tls: Tls, (stream, peer, place): Accepted, ready: mpsc::Sender<Connection>) {
        let shaken = tokio::time::timeout(self.patience, TlsAcceptor::from(tls.config).accept(stream)).await;
        match shaken {
            Ok(Ok(stream)) => {
                // Nobody takes it once the server stops.
                let _ = ready.send(self.connection(Socket::Tls(Box::new(stream)), peer, place)).await;
            }
            Ok(Err(error)) => self.failed(peer, &error.to_string()),
            Err(_) => self.failed(peer, &format!("it took more than {} s", self.patience.as_secs())),
        }
    }

    fn failed(&self, peer: SocketAddr, why: &str) {
        self.engine.counters().add(Metric::TlsFailures, 1);
        self.tell(format!("a TLS handshake with {peer} failed: {why}"));
    }

    fn tell(&self, news: String) {
        let now = Instant::now();
        let tells = self.told.send_if_modified(|told| {
            let tells = told.is_none_or(|told| now.duration_since(told) >= TELL_EVERY);
            if tells {
                *told = Some(now);
            }
            tells
        });
        if tells {
            self.engine.notices().tell(news);
        }
    }
}

/// What HTTP/2 says to a client that is not served: empty settings, then GOAWAY with a reason.
fn go_away(reason: &str) -> Vec<u8> {
    const ENHANCE_YOUR_CALM: u32 = 11;
    let length = u32::try_from(8 + reason.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut frames = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    frames.extend_from_slice(&length[1..]);
    frames.extend_from_slice(&[7, 0, 0, 0, 0, 0]);
    frames.extend_from_slice(&0_u32.to_be_bytes());
    frames.extend_from_slice(&ENHANCE_YOUR_CALM.to_be_bytes());
    frames.extend_from_slice(reason.as_bytes());
    frames
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
        let Some(place) = door.place(&stream, peer, tls.is_none()) else { continue };
        match tls {
            Some(tls) => drop(tokio::spawn(door.clone().shake_hands(tls, (stream, peer, place), ready.clone()))),
            None => {
                if ready.send(door.connection(Socket::Plain(stream), peer, place)).await.is_err() {
                    return;
                }
            }
        }
    }
}
