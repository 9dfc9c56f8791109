//! What listeners of every protocol are served with. See [`Host`].
//!
//! Files use each other without a circle, in this order: refusals; memory (`pool`, `memory`); who asks (`caller`) and what is asked (`calls`, `rights`,
//! `permits`); limits (`quotas`) and what all of them have in common (`broker`); sessions (`publishing`, `consuming`); sockets
//! (`relay`, `peer`, `places`, `connection`, `proxy`, `news`, `unix`, `accept`, `entrance`); `serving`.

pub(crate) mod accept;
mod ack_timer;
pub(crate) mod broker;
mod bucket;
pub(crate) mod caller;
pub(crate) mod calls;
mod changes;
pub(crate) mod connection;
pub(crate) mod connection_state;
pub(crate) mod consuming;
pub(crate) mod deliveries;
pub(crate) mod entrance;
pub(crate) mod gather;
pub(crate) mod getting;
pub(crate) mod listing;
pub(crate) mod memory;
mod news;
pub(crate) mod outcomes;
pub(crate) mod peer;
pub(crate) mod permits;
mod places;
mod pool;
mod proxy;
pub(crate) mod publishing;
pub(crate) mod pulls;
pub(crate) mod quotas;
pub(crate) mod reading;
pub(crate) mod refusal;
pub(crate) mod relay;
pub(crate) mod replies;
pub(crate) mod rights;
mod ring;
pub(crate) mod serving;
mod socket;
pub(crate) mod stalls;
pub(crate) mod stopping;
pub(crate) mod stream_source;
pub(crate) mod tls;
pub(crate) mod topology;
mod unix;
mod watch;
mod web_handshake;
mod web_socket;
mod workers;

pub use accept::Protocol;
pub use broker::Broker;
pub use caller::Caller;
pub use calls::{
    Admitted, Answer, ArchiveRows, ArchivedRuns, Call, CallRequest, Calls, FoundPartition, FoundStreams, Reply,
    StagePlace,
};
pub use connection::Connection;
pub use consuming::{ConsumeOptions, Consuming, PREFETCH_MAX, Turn};
pub use deliveries::Room;
pub use entrance::Entrance;
pub use gather::{Message, Obstacle, Source, Unknown};
pub use listing::{Listing, OpenConsumer};
pub use memory::{Memory, MemoryUse};
pub use outcomes::Decided;
pub use peer::Peer;
pub use proxy::Network;
pub use publishing::Publishing;
pub use quotas::{Holder, QuotaLimits, Quotas};
pub use refusal::{Kind, Refusal};
pub use relay::{Duplex, Origin, RelayOpening, RelayedClient, Relays};
pub use ring::Ring;
pub use serving::{Bound, Host, HostOptions};
pub use tls::{Certificate, ClientCertificates, Tls, TlsError, TlsOptions};
pub use topology::{BindingChange, Outcome, TopologyRequest};
