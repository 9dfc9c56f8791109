//! The parts of a published message beside its body, and the batch that collects messages until it is sent. A batch
//! states once what is mandatory and the sequence of its first message, so a difference there starts another one.

use penstock_wire::grpc::publish::KEY_BYTES_MAX;
use penstock_wire::grpc::{BatchEncoder, MessageNames};
use penstock_wire::{NAME_BYTES_MAX, is_same};
use tonic::Code;

use crate::error::RpcError;
use crate::in_flight::Batch;

const BATCH_BYTES_MAX: usize = 256 * 1024;
/// Field keys and lengths around one message's parts.
const MESSAGE_BYTES_EXTRA: usize = 64;

/// All of a message but its body.
#[derive(Debug, Clone, Copy, Default)]
pub struct Message<'a> {
    pub exchange: &'a str,
    pub routing_key: &'a str,
    /// A serialised `penstock.v1.Properties`.
    pub properties: Option<&'a [u8]>,
    pub mandatory: bool,
    /// Selects the partition, and is visible to readers.
    pub key: Option<&'a [u8]>,
    /// The producer's sequence; 0 for none.
    pub sequence: u64,
}

impl Message<'_> {
    /// Refuses messages for which the broker would end the stream.
    pub(crate) fn check(&self, body: &[u8], bytes_max: usize) -> Result<(), RpcError> {
        let invalid = |text| Err(RpcError::new(Code::InvalidArgument, text));
        for (what, name) in [("an exchange's name", self.exchange), ("a routing key", self.routing_key)] {
            if name.len() > NAME_BYTES_MAX {
                return invalid(format!("{what} has {} bytes; at most {NAME_BYTES_MAX} are allowed", name.len()));
            }
        }
        let key_bytes = self.key.map_or(0, <[u8]>::len);
        if key_bytes > KEY_BYTES_MAX {
            return invalid(format!("a message's key has {key_bytes} bytes; at most {KEY_BYTES_MAX} are allowed"));
        }
        let size = body.len() + self.properties.map_or(0, <[u8]>::len) + key_bytes;
        if size > bytes_max {
            let text = format!("a message has {size} bytes; at most {bytes_max} are allowed (message_bytes_max)");
            return Err(RpcError::new(Code::ResourceExhausted, text));
        }
        Ok(())
    }

    /// The sequence of the next message. The highest number stays, and is stored once.
    pub(crate) fn sequence_after(&self) -> u64 {
        if self.sequence == 0 { 0 } else { self.sequence.saturating_add(1) }
    }
}

/// The batch that messages are still added to, and the number of its first one.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    first: u64,
    exchange: String,
    routing_key: String,
    mandatory: bool,
    /// That of its first message; 0 where they have none.
    sequence: u64,
    /// The required sequence of the next message; 0 where they have none.
    sequence_next: u64,
    encoder: BatchEncoder,
}

impl OpenBatch {
    pub(crate) fn begin(first: u64, message: &Message<'_>) -> Self {
        let (exchange, routing_key) = (message.exchange.to_owned(), message.routing_key.to_owned());
        let mut encoder = BatchEncoder::begin(Vec::new(), &exchange, &routing_key, message.mandatory);
        if message.sequence > 0 {
            encoder.put_producer_sequence(message.sequence);
        }
        let (mandatory, sequence) = (message.mandatory, message.sequence);
        Self { first, exchange, routing_key, mandatory, sequence, sequence_next: sequence, encoder }
    }

    pub(crate) fn has_room(&self, body: &[u8], message: &Message<'_>, batch_max: usize) -> bool {
        let beside = message.properties.map_or(0, <[u8]>::len) + message.key.map_or(0, <[u8]>::len);
        self.mandatory == message.mandatory
            && self.sequence_next == message.sequence
            && self.encoder.message_count() < batch_max
            && self.encoder.size() + body.len() + beside + MESSAGE_BYTES_EXTRA <= BATCH_BYTES_MAX
    }

    pub(crate) fn push(&mut self, body: &[u8], message: &Message<'_>) {
        let differs = |one: &str, other: &str| !is_same(one.as_bytes(), other.as_bytes());
        let names = MessageNames {
            exchange: differs(&self.exchange, message.exchange).then_some(message.exchange),
            routing_key: differs(&self.routing_key, message.routing_key).then_some(message.routing_key),
            properties: message.properties,
            key: message.key,
        };
        self.encoder.push_message(body, &names);
        self.sequence_next = message.sequence_after();
    }

    /// The finished batch, ready to send.
    pub(crate) fn finish(self) -> Batch {
        let (first, count, sequence) = (self.first, self.encoder.message_count() as u64, self.sequence);
        Batch::new((first, count), sequence, self.encoder.finish().into())
    }
}
