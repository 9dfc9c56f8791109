//! What a client is greeted with: limits, mechanisms, and the broker's properties.

use penstock_wire::amqp::connection::Limits;
use penstock_wire::amqp::table_writer::TableWriter;

/// The limits that the broker offers in `connection.tune`, the same as RabbitMQ's.
pub(super) const OFFERED: Limits = Limits { channels_max: 2047, frame_bytes_max: 131_072, heartbeat_seconds: 60 };
pub(super) const MECHANISMS: &str = "PLAIN AMQPLAIN";
pub(super) const MECHANISMS_WITH_CERTIFICATE: &str = "PLAIN AMQPLAIN EXTERNAL";

/// Capabilities that the broker has. Clients rely on each of them.
const CAPABILITIES: &[&str] = &[
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "consumer_priorities",
    "connection.blocked",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
];

pub(super) fn server_properties() -> Vec<u8> {
    TableWriter::entries(|table| {
        table.table("capabilities", |inner| CAPABILITIES.iter().for_each(|name| inner.bool(name, true)));
        table.text("product", "Penstock");
        table.text("version", env!("CARGO_PKG_VERSION"));
        table.text("platform", "Rust");
    })
}
