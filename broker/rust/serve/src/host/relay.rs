//! Clients of a broker that does not lead their virtual host: it relays their connections to the broker that does.
//!
//! One side [opens](Relays) a stream of bytes to the leader, and speaks the protocol of the listener there. The other side serves the
//! stream like a connection that was accepted: see `entrance`. What must stay true: a relayed client logs in at the leader, and has the
//! limits of its own address there; and a connection that was relayed is not relayed again.

use std::io::Result;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream of bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}

/// The client of a connection that is relayed, as the broker that it is connected to knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayedClient {
    /// The name of the listener's protocol.
    pub protocol: String,
    /// The number of its connection at that broker.
    pub connection: u64,
    /// The number of the broker where the client declares its exclusive queues, if that is not the one that serves it; else 0.
    pub broker: u64,
    /// `None` on a Unix socket: it counts as that broker.
    pub address: Option<SocketAddr>,
    /// The certificate that it showed in the TLS handshake, DER; an authority that the broker trusts signed it.
    pub certificate: Option<Arc<[u8]>>,
    /// Whether its own connection has TLS.
    pub is_tls: bool,
}

/// A connection at the broker that relays it, whose exclusive queues it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub broker: u64,
    pub connection: u64,
}

/// A relay that is being made.
pub type RelayOpening = BoxFuture<'static, Result<Box<dyn Duplex>>>;

/// The way to the other brokers of a cluster.
pub trait Relays: Send + Sync + 'static {
    /// Begins a relay to a broker by its name. It ends when the stream is dropped, or the connection between the brokers breaks.
    ///
    /// The future fails when the broker is not connected, does not know relays or has no place for one more.
    fn open(&self, leader: &str, client: RelayedClient) -> RelayOpening;
}

/// The way to other brokers, once there is one: a broker without a cluster has none.
#[derive(Clone, Default)]
pub(crate) struct Way(Arc<OnceLock<Arc<dyn Relays>>>);

impl Way {
    pub fn get(&self) -> Option<&Arc<dyn Relays>> {
        self.0.get()
    }

    /// It is set once.
    pub fn set(&self, relays: Arc<dyn Relays>) {
        let _ = self.0.set(relays);
    }
}
