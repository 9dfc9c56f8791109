//! AMQP 0-9-1 as bytes, big-endian as on the wire: field tables and properties, which messages are stored with; and what its
//! connections need without their sockets: frames, methods and contents, and the states of connections and channels.

pub mod argument;
pub mod assembly;
mod block;
pub mod channel;
pub mod checked;
pub mod confirms;
pub mod connection;
pub mod content;
pub mod deaths;
pub mod delivery;
pub mod frame;
pub mod frame_ends;
pub mod header_entry;
pub mod heartbeat;
pub mod method;
pub mod properties;
pub mod replay;
pub mod replies;
pub mod reply;
pub mod routing_headers;
pub mod sasl;
pub mod table;
pub mod table_writer;
pub mod transaction;
pub mod unacked;
pub mod view;
