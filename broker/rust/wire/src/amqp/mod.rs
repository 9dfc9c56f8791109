//! AMQP 0-9-1 as bytes: field tables and what is built of them. Big-endian, as on the wire.

mod block;
pub mod checked;
pub mod properties;
pub mod table;
pub mod view;
