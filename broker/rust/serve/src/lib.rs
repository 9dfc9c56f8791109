//! Serves clients: a host with threads, connections, limits and decisions, and on it one module for each protocol.
//!
//! Hot calls are answered by the engine, everything else by Python. A stream's task holds no lock while it waits, and waits for
//! Python only when something has to be decided: an opening, an exchange it has not written before, an administrative call.
//! Nothing here knows users, policies or topology rules.
//!
//! Files use each other without a circle. [`host`] knows no protocol and no other module, `grpc` is HTTP/2 by tonic on it, `flight` is
//! Arrow Flight as a service of `grpc`, and `amqp` is AMQP 0-9-1.
#![forbid(unsafe_code)]

mod amqp;
#[cfg(feature = "flight")]
mod flight;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod grpc;
pub mod host;
mod server;

pub use amqp::listener::AmqpOptions;
pub use grpc::listener::{GrpcOptions, request_bytes_max};
pub use grpc::status::kind_of_code;
pub use server::{Server, ServerOptions};
