//! Deliveries as responses: those of a stream, and the one of a Get.

use std::sync::Arc;

use penstock_engine::{MessageView, Picked, Subscription};
use penstock_wire::grpc::deliveries::{DeliveriesEncoder, DeliveryRef};

use crate::grpc::responses::FramedMessage;
use crate::host::deliveries::{Pending, Recipient, Room};
use crate::host::memory::{Account, Outgoing, Part};
use crate::host::refusal::{Kind, Refusal};

/// One response carries about this many bytes of deliveries; a larger message goes alone.
const RESPONSE_BYTES: usize = 48 * 1024;

/// A response of about so many bytes goes also where there is no room in the memory.
const SMALL_BYTES: usize = 4 << 10;

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

/// The responses of one stream, as the memory has room for them.
///
/// A response of about [`SMALL_BYTES`] may always go, so that a stream of small messages never waits for other clients. A larger
/// message waits until there is room for all of it.
pub(crate) struct Responses {
    outgoing: Outgoing,
    /// The size of the next message, when there was no room for it.
    wanted: usize,
}

impl Responses {
    pub fn new(account: &Arc<Account>) -> Responses {
        Responses { outgoing: Outgoing::new(account), wanted: 0 }
    }

    /// Begins the next response, of about so many messages.
    pub fn begin(&mut self, count: usize) -> Response {
        let bytes = RESPONSE_BYTES.max(std::mem::take(&mut self.wanted));
        let part = self.outgoing.part(bytes);
        let bytes_max = if part.is_some() { bytes } else { SMALL_BYTES };
        let out = FramedMessage::begin(bytes_about(count).min(bytes_max + FIELDS_BYTES_MAX));
        Response { out, part, bytes_max, wanted: 0 }
    }

    /// Ends it; `None` when it holds no message.
    pub fn end(&mut self, response: Response, is_sent: bool) -> Option<FramedMessage> {
        self.wanted = response.wanted;
        is_sent.then(|| FramedMessage::end(response.out).holding(response.part))
    }

    /// Whether the next message waits for room.
    pub fn waits(&self) -> bool {
        self.wanted > 0 && !self.outgoing.has_room()
    }

    pub async fn until_room(&mut self) {
        self.outgoing.until_room().await;
    }

    /// Encodes one response's worth and tells the recipient what went out; `None` when nothing of it could be read, or sent now.
    pub async fn encode(
        &mut self,
        pending: &mut Pending,
        recipient: &mut (impl Recipient + Send),
    ) -> Result<Option<FramedMessage>, Refusal> {
        let mut response = self.begin(pending.next_count());
        let mut filling = response.fill();
        let is_sent = pending.send(recipient, &mut |view, picked| filling.deliver(view, picked)).await?;
        filling.finish();
        Ok(self.end(response, is_sent))
    }
}

/// A response that is being encoded.
pub(crate) struct Response {
    out: Vec<u8>,
    part: Option<Part>,
    bytes_max: usize,
    wanted: usize,
}

impl Response {
    pub fn fill(&mut self) -> Filling<'_> {
        let encoder = DeliveriesEncoder::begin(&mut self.out);
        Filling { encoder, bytes_max: self.bytes_max, wanted: &mut self.wanted }
    }
}

/// The same with its encoder.
pub(crate) struct Filling<'a> {
    encoder: DeliveriesEncoder<'a>,
    bytes_max: usize,
    wanted: &'a mut usize,
}

impl Filling<'_> {
    /// Appends a message, unless it is too large for what there is room for.
    pub fn deliver(&mut self, view: &MessageView<'_>, picked: Picked) -> Result<Room, Refusal> {
        if bytes_at_most(view) > self.bytes_max {
            *self.wanted = bytes_at_most(view);
            return Ok(Room::NotForThis);
        }
        push_one(&mut self.encoder, view, picked)?;
        Ok(if self.encoder.size() < self.bytes_max.min(RESPONSE_BYTES) { Room::ForMore } else { Room::Full })
    }

    pub fn finish(self) {
        self.encoder.finish();
    }
}

/// The deliveries of an answer to a Get.
pub(crate) struct GetBody {
    out: Vec<u8>,
    delivery_count: usize,
}

impl GetBody {
    pub fn is_empty(&self) -> bool {
        self.delivery_count == 0
    }

    pub fn finish_get(mut self, ready_count: u64) -> FramedMessage {
        DeliveriesEncoder::begin_get(&mut self.out).finish_get(ready_count);
        FramedMessage::end(self.out)
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
    let delivery_count = encoder.delivery_count();
    pending.report(&mut subscription).await?;
    Ok(GetBody { out, delivery_count })
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
pub(crate) fn bytes_at_most(view: &MessageView<'_>) -> usize {
    let names = view.exchange.len() + view.routing_key.len() + view.key.map_or(0, <[u8]>::len);
    view.body.len() + names + PROPERTIES_GROWTH_MAX * view.properties.len() + FIELDS_BYTES_MAX
}

pub(crate) fn push_one(
    encoder: &mut DeliveriesEncoder<'_>,
    view: &MessageView<'_>,
    picked: Picked,
) -> Result<(), Refusal> {
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
