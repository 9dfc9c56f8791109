//! Deliveries as responses: those of a stream, and the one of a Get.

use penstock_engine::{MessageView, Picked, Subscription};
use penstock_wire::grpc::deliveries::{DeliveriesEncoder, DeliveryRef};

use crate::grpc::responses::FramedMessage;
use crate::host::deliveries::{Pending, Recipient, Room};
use crate::host::refusal::{Kind, Refusal};

/// One response carries about this many bytes of deliveries; a larger message goes alone.
const RESPONSE_BYTES: usize = 48 * 1024;

/// The most bytes around a message in a response: lengths, numbers, times.
const FIELDS_BYTES_MAX: usize = 128;

/// Properties take at most so many times more bytes as protobuf than as AMQP: three for a table of the shortest entries.
const PROPERTIES_GROWTH_MAX: usize = 4;

/// About how many bytes a small message takes in a response.
const MESSAGE_BYTES_ABOUT: usize = 128;

/// A guess at the size of a response with the next messages, so that a few small messages do not take a large buffer.
pub(crate) fn bytes_about(count: usize) -> usize {
    count.saturating_mul(MESSAGE_BYTES_ABOUT).min(RESPONSE_BYTES + 4096)
}

/// Appends a message to a stream's response.
pub(crate) fn deliver(
    encoder: &mut DeliveriesEncoder<'_>,
    view: &MessageView<'_>,
    picked: Picked,
) -> Result<Room, Refusal> {
    push_one(encoder, view, picked)?;
    Ok(if encoder.size() < RESPONSE_BYTES { Room::ForMore } else { Room::Full })
}

/// Encodes one response's worth and tells the recipient what went out; `None` when nothing of it could be read.
pub(crate) async fn encode(
    pending: &mut Pending,
    recipient: &mut (impl Recipient + Send),
) -> Result<Option<FramedMessage>, Refusal> {
    let mut out = FramedMessage::begin(bytes_about(pending.next_count()));
    let mut encoder = DeliveriesEncoder::begin(&mut out);
    let is_sent = pending.send(recipient, &mut |view, picked| deliver(&mut encoder, view, picked)).await?;
    encoder.finish();
    Ok(is_sent.then(|| FramedMessage::end(out)))
}

/// The deliveries of an answer to a Get.
pub(crate) struct GetBody(Vec<u8>);

impl GetBody {
    pub fn finish_get(mut self, ready_count: u64) -> FramedMessage {
        DeliveriesEncoder::begin_get(&mut self.0).finish_get(ready_count);
        FramedMessage::end(self.0)
    }
}

/// Encodes what fits into an answer to a Get, at least one message; the rest stays pending.
pub(crate) async fn encode_get(
    pending: &mut Pending,
    mut subscription: &Subscription,
    bytes_max: usize,
) -> Result<GetBody, Refusal> {
    let mut out = FramedMessage::begin(bytes_about(pending.next_count()));
    let mut encoder = DeliveriesEncoder::begin_get(&mut out);
    let mut is_full = false;
    pending.begin();
    while !pending.is_empty() && !is_full {
        pending.warm().await?;
        pending.push((subscription.queue(), subscription.freshness()), &mut |view, picked| {
            is_full = encoder.delivery_count() > 0 && encoder.size() + bytes_at_most(view) > bytes_max;
            if is_full {
                return Ok(Room::NotForThis);
            }
            push_one(&mut encoder, view, picked).map(|()| Room::ForMore)
        })?;
        pending.drop_unsent_in_turn(&mut subscription).await?;
    }
    pending.report(&mut subscription).await?;
    Ok(GetBody(out))
}

/// The most bytes that the next readable message takes in a response; `None` when there is none.
pub(crate) async fn next_bytes(
    pending: &mut Pending,
    recipient: &mut (impl Recipient + Send),
) -> Result<Option<usize>, Refusal> {
    let mut bytes = None;
    while bytes.is_none() && !pending.is_empty() {
        pending.warm().await?;
        pending.push((recipient.queue(), recipient.freshness()), &mut |view, _| {
            bytes = Some(bytes_at_most(view));
            Ok(Room::NotForThis)
        })?;
        pending.drop_unsent_in_turn(recipient).await?;
    }
    Ok(bytes)
}

/// The most bytes that a message takes in a response.
fn bytes_at_most(view: &MessageView<'_>) -> usize {
    let names = view.exchange.len() + view.routing_key.len() + view.key.map_or(0, <[u8]>::len);
    view.body.len() + names + PROPERTIES_GROWTH_MAX * view.properties.len() + FIELDS_BYTES_MAX
}

fn push_one(encoder: &mut DeliveriesEncoder<'_>, view: &MessageView<'_>, picked: Picked) -> Result<(), Refusal> {
    let delivery = DeliveryRef {
        sequence: picked.taken.sequence.0,
        body: view.body,
        exchange: view.exchange,
        routing_key: view.routing_key,
        properties_amqp: view.properties,
        redelivered: picked.taken.redelivered,
        delivery_count: picked.taken.delivery_count,
        stored_at_ms: view.stored_at_ms,
        key: view.key,
    };
    encoder.push(&delivery).map_err(|error| Refusal::new(Kind::Corrupt, error.to_string()))
}
