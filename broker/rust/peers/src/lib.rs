//! Connections between the brokers of a cluster: one for each pair, for all shards, in both directions.
//!
//! A connection is a stream of gRPC over mutual TLS. It begins with a [`Hello`] of each side, which proves that both are of
//! one cluster and finds the version of the protocol that both know; a secret of the cluster comes with the first. After that it
//! carries frames: bytes that this crate does not look into.
//!
//! Of each pair the broker with the lower id connects, again and again after a connection broke. The other one only knows
//! whether a connection breaks; it then dials once itself, to tell a process that is gone from a network that is cut.
//!
//! Invariants: frames of one connection arrive in the order in which they were sent, each once; none arrives after
//! [`Traffic::link`] said that the connection is down. What is lost with a connection is lost: those who send have to
//! know it from the answers that they miss.
//!
//! A broker that does not lead relays its clients to the leader: [`Peers::relay`] opens a [`Tunnel`], and [`Relayed`] serves it there. Relays
//! have connections of their own.
//!
//! Limits: frames of at most [`Settings::frame_bytes_max`] bytes. Nothing is queued here: a frame is asked for when the
//! connection can take it.

mod arriving;
mod callers;
mod codec;
mod dialing;
mod frame;
mod hello;
mod links;
mod peers;
mod relaying;
mod serving;
mod session;
mod settings;
mod versions;

pub use callers::Relayed;
pub use frame::Frame;
pub use hello::{Hello, HelloError, Refused};
pub use peers::{Peers, StartError};
pub use relaying::codec::RelayedClient;
pub use relaying::seats::RelaysUse;
pub use relaying::tunnel::Tunnel;
pub use settings::{BrokerId, ClusterId, Secrets, Settings, Timeouts, Tls, Versions};
pub use versions::{FORMAT_OLDEST, Used, used};

use bytes::Bytes;

/// The state of the connection to a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Both sides have said hello; this is the version of the protocol that both know.
    Up { protocol: u16 },
    /// It broke, and dialling again was not answered yet.
    Down,
    /// It broke, and dialling again is refused: the process is gone.
    Refused,
}

/// The broker's side of the connections. Its functions are called by the threads of the runtime, those of one broker
/// one after the other, and must not block.
pub trait Traffic: Send + Sync + 'static {
    /// The next frame for a broker, or none; [`Peers::wake`] says that there is one again.
    fn next(&self, to: BrokerId) -> Option<Frame>;

    /// A frame came, as one piece.
    fn received(&self, from: BrokerId, frame: Bytes);

    fn link(&self, broker: BrokerId, link: Link);

    /// A connection could not be made, or was refused by one of the sides: a sentence for the log. It comes once for each
    /// different reason until the connection is up.
    fn failed(&self, broker: BrokerId, reason: &str);
}
