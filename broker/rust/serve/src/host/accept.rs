//! From the listening socket to connections that can be read: accepts as many as may be open, and shakes hands where TLS is
//! served.
//!
//! A handshake has a task and a deadline of its own, and so has the header of a trusted proxy: a silent client delays no
//! other one. A listener gets a connection once its client has sent something: until then it has none of the buffers of its
//! protocol. One that is closed without a byte, as a load balancer's check of a port is, counts for nothing and is not logged.
//! Dropping the stream of connections closes the socket.

use std::fmt::Display;
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::Stream;
use futures_util::stream::unfold;
use penstock_engine::Metric;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::host::broker::Broker;
use crate::host::connection::Connection;
use crate::host::news::{News, Told};
use crate::host::places::{Place, Places};
use crate::host::proxy::{self, Network};
use crate::host::relay::{Duplex, RelayedClient};
use crate::host::socket::Socket;
use crate::host::tls::Tls;
use crate::host::unix;
use crate::host::web_handshake;

/// How long accepting pauses when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that wait for the server to take them.
const READY_MAX: usize = 64;

/// The facts about a protocol that the host needs to hand connections to its listener.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Its name among the listeners' protocols: Python decides for each in its own words.
    pub name: &'static str,
    /// Its names in TLS (ALPN); clients that name none are served too.
    pub alpn: &'static [&'static [u8]],
    /// The answer to a client on a plaintext connection for which there is no place: the reason, in the protocol's form.
    pub refusal: fn(reason: &str) -> Vec<u8>,
    /// Its name among WebSocket's subprotocols, when it is served in one.
    pub web: Option<&'static str>,
}

/// The parts that each connection of a listener is made with.
#[derive(Clone)]
pub(crate) struct Door {
    pub broker: Broker,
    pub protocol: Protocol,
    /// The certificate that is served now; `None` is plaintext.
    pub tls: watch::Receiver<Option<Tls>>,
    pub places: Places,
    /// Whose connections begin with a header of the PROXY protocol.
    pub proxies: Arc<[Network]>,
    /// Of pages that may open a WebSocket though they are of another host.
    pub web_origins: Arc<[String]>,
    pub told: Told,
}

/// Clients on Unix sockets count together, like those of an address.
const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A socket that was accepted, and its place among those that may be open.
type Accepted = (TcpStream, SocketAddr, Place);

impl Door {
    /// What is served now, by the names of the protocol.
    fn served(&mut self) -> Option<Tls> {
        let alpn = self.protocol.alpn;
        self.tls.borrow_and_update().as_ref().map(|tls| tls.named(alpn))
    }

    fn connection(&self, socket: Socket, address: String, place: Place) -> Connection {
        Connection::new((socket, address), self.protocol.name, &self.broker, place)
    }

    /// Waits for a client's first bytes. False says that the connection is over: it was closed without a byte, or it begins with
    /// a header of the PROXY protocol although it is no trusted proxy's.
    async fn has_begun(&self, stream: &TcpStream, peer: SocketAddr, is_plain: bool) -> bool {
        let mut first = [0; proxy::SIGNATURE_BYTES];
        let Ok(count @ 1..) = stream.peek(&mut first).await else { return false };
        let is_header = first.get(..count).is_some_and(proxy::begins_header);
        if is_header {
            let reason = "it begins with a PROXY protocol header, and the address is not among proxy_addresses";
            self.turn_away(stream, (peer, is_plain), News::Header, reason);
        }
        !is_header
    }

    /// Goes on with a socket whose bytes can be read, where they are those of a WebSocket after its handshake.
    async fn begin(self, socket: Socket, peer: SocketAddr, place: Place, ready: mpsc::Sender<Connection>) {
        let socket = match self.protocol.web {
            None => socket,
            Some(name) => {
                let shaken = async {
                    let has_begun = match socket.plain() {
                        Some(stream) => self.has_begun(stream, peer, false).await,
                        None => true,
                    };
                    if has_begun { web_handshake::upgrade(socket, name, &self.web_origins).await } else { Ok(None) }
                };
                match tokio::time::timeout(self.broker.first_request, shaken).await {
                    Ok(Ok(Some(web))) => Socket::Web(Box::new(web)),
                    Ok(Ok(None)) => return,
                    Ok(Err(error)) => {
                        return self.note_refused(&peer, News::Refused, &format!("no WebSocket: {error}"));
                    }
                    Err(_) => return self.note_refused(&peer, News::Refused, "no WebSocket was asked for in time"),
                }
            }
        };
        let connection = self.connection(socket, peer.to_string(), place);
        self.hand_over(connection, Some(peer), ready).await;
    }

    /// Gives a connection to the listener once its client has sent something, unless it is closed before.
    async fn hand_over(self, mut connection: Connection, peer: Option<SocketAddr>, ready: mpsc::Sender<Connection>) {
        let is_heard = tokio::select! {
            is_heard = connection.is_heard() => is_heard,
            () = ready.closed() => false,
        };
        let is_served = match connection.plain().zip(peer) {
            Some((stream, peer)) if is_heard => self.has_begun(stream, peer, true).await,
            _ => is_heard,
        };
        if is_served {
            // It fails only once the server has stopped, and the connection is closed then.
            let _ = ready.send(connection).await;
        }
    }

    /// A connection that another broker relays, which names its client as a trusted proxy does.
    ///
    /// # Errors
    /// When there is no place for one more.
    pub fn relayed(
        &self,
        client: RelayedClient,
        via: SocketAddr,
        stream: Box<dyn Duplex>,
    ) -> std::io::Result<Connection> {
        let address = proxy::origin(client.address, via);
        let place = self.places.take(address.ip()).map_err(|reason| {
            self.note_refused(&address, News::Refused, &reason);
            Error::new(ErrorKind::ConnectionRefused, reason)
        })?;
        Ok(self.connection(Socket::Relayed(stream, client), address.to_string(), place))
    }

    /// A place for one more, or word to its client that there is none.
    fn place(&self, stream: &TcpStream, peer: SocketAddr, is_plain: bool) -> Option<Place> {
        let taken = self.places.take(peer.ip());
        taken.map_err(|reason| self.turn_away(stream, (peer, is_plain), News::Refused, &reason)).ok()
    }

    fn turn_away(&self, stream: &TcpStream, (peer, is_plain): (SocketAddr, bool), news: News, reason: &str) {
        if is_plain {
            // Its buffer is empty, so this fits; a client that is gone needs no word.
            let _ = stream.try_write(&(self.protocol.refusal)(reason));
        }
        self.note_refused(&peer, news, reason);
    }

    /// Counts a connection that was refused, and reports the reason.
    fn note_refused(&self, peer: &dyn Display, news: News, reason: &str) {
        self.broker.engine.counters().add(Metric::ConnectionsRefused, 1);
        self.tell(news, format!("a connection from {peer} was refused: {reason}"));
    }

    fn is_proxy(&self, peer: SocketAddr) -> bool {
        self.proxies.iter().any(|network| network.contains(peer.ip()))
    }

    /// Goes on with the connection of a client that a proxy names. Until then it has a place of all only.
    async fn introduce(
        self,
        tls: Option<Tls>,
        mut stream: TcpStream,
        proxy: SocketAddr,
        ready: mpsc::Sender<Connection>,
    ) {
        let is_plain = tls.is_none();
        let turn_away = |stream: &TcpStream, peer: SocketAddr, reason: &str| {
            self.turn_away(stream, (peer, is_plain), News::Refused, reason);
        };
        let mut place = match self.places.take_of_all() {
            Ok(place) => place,
            Err(reason) => return turn_away(&stream, proxy, &reason),
        };
        let named = async {
            match stream.peek(&mut [0]).await {
                Ok(1..) => proxy::read(&mut stream).await.map(Some),
                _ => Ok(None),
            }
        };
        let client = match tokio::time::timeout(self.broker.first_request, named).await {
            Ok(Ok(Some(client))) => proxy::origin(client, proxy),
            Ok(Ok(None)) => return,
            Ok(Err(error)) => return turn_away(&stream, proxy, &error.to_string()),
            Err(_) => return turn_away(&stream, proxy, "no PROXY protocol header came in time"),
        };
        if let Err(reason) = self.places.count(&mut place, client.ip()) {
            return turn_away(&stream, client, &reason);
        }
        match tls {
            Some(tls) => self.shake_hands(tls, (stream, client, place), ready).await,
            None => self.begin(Socket::Plain(stream), client, place, ready).await,
        }
    }

    async fn shake_hands(self, tls: Tls, (stream, peer, place): Accepted, ready: mpsc::Sender<Connection>) {
        let shaken = async {
            let has_begun = self.has_begun(&stream, peer, false).await;
            if has_begun { Some(TlsAcceptor::from(tls.config).accept(stream).await) } else { None }
        };
        match tokio::time::timeout(self.broker.first_request, shaken).await {
            Ok(Some(Ok(stream))) => self.begin(Socket::Tls(Box::new(stream)), peer, place, ready).await,
            Ok(Some(Err(error))) => self.failed(peer, &error.to_string()),
            Ok(None) => {}
            Err(_) => self.failed(peer, &format!("it took more than {} s", self.broker.first_request.as_secs())),
        }
    }

    fn failed(&self, peer: SocketAddr, why: &str) {
        self.broker.engine.counters().add(Metric::TlsFailures, 1);
        self.tell(News::Handshake, format!("a TLS handshake with {peer} failed: {why}"));
    }

    fn tell(&self, news: News, text: String) {
        if self.told.may_tell(news, Instant::now()) {
            self.broker.engine.notices().tell(text);
        }
    }
}

/// The connections that come in, until what this gives is dropped; and where those come in that other brokers relay.
pub(crate) fn accept(
    listener: TcpListener,
    door: Door,
) -> (mpsc::WeakSender<Connection>, impl Stream<Item = std::io::Result<Connection>> + use<>) {
    let (ready, connections) = mpsc::channel(READY_MAX);
    let others = ready.downgrade();
    tokio::spawn(run(listener, door, ready));
    (others, handed_over(connections))
}

/// The same of a Unix socket.
pub(crate) fn accept_unix(
    listener: unix::Listener,
    door: Door,
) -> (mpsc::WeakSender<Connection>, impl Stream<Item = std::io::Result<Connection>> + use<>) {
    let (ready, connections) = mpsc::channel(READY_MAX);
    let others = ready.downgrade();
    tokio::spawn(run_unix(listener, door, ready));
    (others, handed_over(connections))
}

fn handed_over(connections: mpsc::Receiver<Connection>) -> impl Stream<Item = std::io::Result<Connection>> + use<> {
    unfold(connections, |mut connections| async move {
        let connection = connections.recv().await?;
        Some((Ok(connection), connections))
    })
}

async fn run(listener: TcpListener, mut door: Door, ready: mpsc::Sender<Connection>) {
    let mut served = door.served();
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
        // An error means that nothing changes any more.
        if door.tls.has_changed().unwrap_or(false) {
            served = door.served();
        }
        if door.is_proxy(peer) {
            tokio::spawn(door.clone().introduce(served.clone(), stream, peer, ready.clone()));
            continue;
        }
        let Some(place) = door.place(&stream, peer, served.is_none()) else { continue };
        match served.clone() {
            Some(tls) => drop(tokio::spawn(door.clone().shake_hands(tls, (stream, peer, place), ready.clone()))),
            None => drop(tokio::spawn(door.clone().begin(Socket::Plain(stream), peer, place, ready.clone()))),
        }
    }
}

/// The same for a Unix socket, whose file goes at the end.
async fn run_unix(listener: unix::Listener, door: Door, ready: mpsc::Sender<Connection>) {
    let address = format!("unix:{}", listener.path().display());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ready.closed() => return,
        };
        let Ok(stream) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        match door.places.take(NEAR) {
            Ok(place) => {
                let connection = door.connection(Socket::Unix(stream), address.clone(), place);
                tokio::spawn(door.clone().hand_over(connection, None, ready.clone()));
            }
            Err(reason) => door.note_refused(&address, News::Refused, &reason),
        }
    }
}
