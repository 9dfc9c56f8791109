//! JSON objects as Arrow columns of a given schema, without an object per row.
//!
//! Invariants: a body that does not fit costs its own row and nothing else, whatever it is, and the values of all others are
//! those that Spark's `from_json` has. Time and memory grow with the bytes of the bodies. This crate knows no stream.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::panic, clippy::unreachable)]

mod cells;
mod column;
mod decoder;
mod fault;
mod input;
mod ipc;
mod numbers;
mod scalars;
mod times;
mod written;

pub use decoder::{BadRow, Decoded, Decoder};
pub use fault::SchemaFault;
pub use ipc::IpcDecoder;
