//! Sans-I/O codecs of the message path: hand-written protobuf for gRPC, AMQP 0-9-1, and frames of WebSocket. They read
//! from byte slices and append to byte vectors; they know no socket, no clock and no queue. Untrusted bytes never cause
//! a panic, an allocation beyond their length, or nesting deeper than a fixed bound.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::panic, clippy::unreachable)]

pub mod amqp;
mod error;
pub mod grpc;
mod names;
pub mod protobuf;
pub mod websocket;

pub use error::WireError;
pub use names::{NAME_BYTES_MAX, Name, is_same};
