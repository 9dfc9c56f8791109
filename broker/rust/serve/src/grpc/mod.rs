//! gRPC on the host: HTTP/2 by tonic, streams as thin translations over the host's sessions.
//!
//! Files use each other without a circle, in this order: what tonic is handed (`status`, `codec`, `peer`, `gate`, `input`, `service`, `responses`);
//! streams (`publish`, `consume`, `read`, `pull`); the services that open them (`admin`, `messaging`, `staging`, `streams`); calls for the
//! leader (`recorded`, `forwarded`, `late`, `leaders`, `relay`); `listener`.

pub(crate) mod admin;
pub(crate) mod arrived;
pub(crate) mod codec;
pub(crate) mod consume;
pub(crate) mod deliveries;
pub(crate) mod gate;
pub(crate) mod input;
pub(crate) mod listener;
pub(crate) mod messaging;
mod peek;
pub(crate) mod peer;
pub(crate) mod public;
pub(crate) mod publish;
pub(crate) mod pull;
pub(crate) mod read;
mod relay;
pub(crate) mod requests;
pub(crate) mod responses;
pub(crate) mod service;
pub(crate) mod staging;
pub(crate) mod status;
pub(crate) mod streams;
