//! Messages as Arrow: record batches built column by column from a stream's records, their IPC form, and rows read back
//! from batches to publish.
//!
//! Invariants: every buffer is built once and goes to the socket unchanged, and untrusted bytes are checked before use.
//! This crate knows no socket, no segment and no clock.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::panic, clippy::unreachable)]

mod batch;
mod cells;
mod columns;
mod error;
mod filter;
mod header_cells;
mod headers;
mod ipc;
mod json;
mod layout;
mod properties;
mod rows;
mod text;

pub use arrow_array::RecordBatch;
pub use batch::{BatchBuilder, MessageRow};
pub use columns::{Column, Projection};
pub use error::ArrowFault;
pub use filter::Filter;
pub use ipc::{Encoder, IpcMessage, PutDecoder};
pub use rows::{PutRow, PutRows};
