//! AMQP 0-9-1 as bytes, big-endian as on the wire: field tables and properties, which messages are stored with; and what its
//! connections need without their sockets: frames, methods and contents.
//!
//! No listener uses the connections' part yet.

pub mod argument;
mod block;
pub mod checked;
pub mod content;
pub mod delivery;
pub mod frame;
pub mod method;
pub mod properties;
pub mod sasl;
pub mod table;
pub mod table_writer;
pub mod view;
