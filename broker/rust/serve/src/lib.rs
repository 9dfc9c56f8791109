//! The gRPC listener: connections on tokio, HTTP/2 by tonic, hot calls answered by the engine, everything else by Python.
//!
//! A stream's task holds no lock while it waits, and waits for Python only when something has to be decided: an opening, an
//! exchange it has not written before, an administrative call. Nothing here knows users, policies or topology rules.
//!
//! Files use each other without a circle, in this order: who asks (`caller`) and what is asked (`calls`, `rights`, `permits`);
//! sockets (`peer`, `connection`, `accept`); streams (`publish`, `consume`, `read`, `pull`); the services that open them
//! (`admin`, `messaging`, `staging`, `streams`, `flight`); `server`.
#![forbid(unsafe_code)]

mod accept;
mod addresses;
mod admin;
mod bucket;
mod caller;
mod calls;
mod changes;
mod codec;
mod connection;
mod connection_state;
mod consume;
mod deliveries;
#[cfg(feature = "flight")]
mod flight;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod gate;
mod gather;
mod listing;
mod messaging;
mod outcomes;
mod peer;
mod permits;
mod public;
mod publish;
mod pull;
mod pulls;
mod quotas;
mod read;
mod refusal;
mod requests;
mod responses;
mod rights;
mod server;
mod staging;
mod stalls;
mod status;
mod stopping;
mod streams;
mod tls;
mod workers;

pub use caller::Caller;
pub use calls::{
    Admitted, Answer, ArchiveRows, ArchivedRuns, Call, CallRequest, Calls, FoundPartition, FoundStreams, Reply,
    StagePlace,
};
pub use listing::{Listing, OpenConsumer};
pub use quotas::{Holder, QuotaLimits, Quotas};
pub use refusal::{Kind, Refusal};
pub use server::{Server, ServerOptions};
pub use status::kind_of_code;
pub use tls::{Certificate, ClientCertificates, Tls, TlsError, TlsOptions};
