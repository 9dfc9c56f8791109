//! Peek: looks at ready messages of a queue and takes none of them.
//!
//! What must stay true: one call looks at a bounded number of messages, however many match, and its response takes about as
//! many bytes as that of Get; a larger message goes alone.

use std::sync::Arc;

use penstock_engine::{EngineError, Freshness, LogError, MessageView, Picked, QueueId, Sequence, Shard};
use penstock_wire::amqp::properties::headers_of;
use penstock_wire::amqp::table::{ValueRef, entries};
use penstock_wire::grpc::deliveries::DeliveriesEncoder;
use penstock_wire::grpc::peek::{PeekRequest, parse_peek_request};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use crate::grpc::deliveries::{bytes_at_most, push_one};
use crate::grpc::input::Input;
use crate::grpc::pull::{PullContext, RESPONSE_BYTES_MAX};
use crate::grpc::responses::{FramedMessage, Responder};
use crate::grpc::status;
use crate::host::calls::{Call, CallRequest};
use crate::host::deliveries::{Pending, Recipient, Room};
use crate::host::memory::Outgoing;
use crate::host::refusal::Refusal;
use crate::host::stalls::when_free;

/// One Peek gives at most this many messages.
const COUNT_MAX: u32 = 1000;

/// It looks at no more than this many.
const LOOKED_MAX: u64 = 10_000;

/// Messages found under one hold of the shard's lock.
const FOUND_MAX: u64 = 256;

/// Whoever looks and takes nothing.
struct Peeking {
    shard: Arc<Shard>,
    queue: QueueId,
}

impl Recipient for Peeking {
    fn queue(&self) -> QueueId {
        self.queue
    }

    fn shard(&self) -> Option<Arc<Shard>> {
        Some(Arc::clone(&self.shard))
    }

    fn sent(&mut self, _: &[(Sequence, u32)]) -> Result<(), EngineError> {
        Ok(())
    }

    /// A consumer finds it too, and drops it.
    fn drop_corrupt(&mut self, _: Sequence, _: &LogError) -> Result<bool, EngineError> {
        Ok(false)
    }
}

/// Why no more messages fit.
#[derive(Clone, Copy)]
enum Full {
    /// The response goes on with this message another time.
    At(Sequence),
    /// The first message takes so many bytes.
    Alone(usize),
}

impl PullContext {
    /// Reads the request; nothing is looked at before the client has room for an answer.
    pub async fn peek(self, mut input: Input) -> Result<PeekAnswer, Status> {
        let payload = input.message().await?.ok_or_else(|| Status::internal("Missing request message."))?;
        let request = parse_peek_request(&payload).map_err(|error| status::of_wire(&error))?;
        let mut room = self.pulls.room_for(RESPONSE_BYTES_MAX).await?;
        // What it holds of the memory is known once it is encoded.
        Outgoing::new(&self.caller.state.account).until_room().await;
        let (vhost, queue) = (request.vhost.to_owned(), request.queue.to_owned());
        let admitted = self.broker.calls.admit(Call::new(CallRequest::OpenGet { vhost, queue }, &self.caller)).await?;
        let queue = QueueId(admitted.queue_id);
        let shard = self.broker.shard(&admitted.vhost)?.home_of(queue);
        let mut recipient = Peeking { shard, queue };
        let mut out = FramedMessage::begin(1024);
        let mut encoder = DeliveriesEncoder::begin_get(&mut out);
        let (mut from, mut looked, mut bytes_max) = (Sequence(request.position), 0, RESPONSE_BYTES_MAX);
        let next = loop {
            let found_max = FOUND_MAX.min(LOOKED_MAX - looked);
            let shard = &recipient.shard;
            let peeked = when_free(shard, || shard.peek(queue, from, found_max)).await;
            let peeked = peeked.map_err(|error| status::of_engine(&error))?;
            looked += found_max;
            let mut pending = Pending::default();
            pending.extend(peeked.filled);
            match encode(&mut pending, &mut recipient, &request, (&mut encoder, bytes_max)).await? {
                Some(Full::At(sequence)) => break Some(sequence),
                Some(Full::Alone(bytes)) => {
                    // It goes alone; whoever holds nothing waits for room.
                    drop(room);
                    room = self.pulls.room_for(bytes).await?;
                    bytes_max = bytes;
                    looked -= found_max;
                    continue;
                }
                None => {}
            }
            match peeked.next {
                Some(next) if looked < LOOKED_MAX => from = next,
                next => break next,
            }
        };
        encoder.finish_get(next.map_or(0, |sequence| sequence.0));
        Ok(PeekAnswer { response: Some(FramedMessage::end(out).waiting_for_room()), _room: room })
    }
}

/// Encodes the messages that match, as long as they fit.
async fn encode(
    pending: &mut Pending,
    recipient: &mut Peeking,
    request: &PeekRequest<'_>,
    (encoder, bytes_max): (&mut DeliveriesEncoder<'_>, usize),
) -> Result<Option<Full>, Refusal> {
    let count_max = request.count_max.clamp(1, COUNT_MAX) as usize;
    let mut full = None;
    pending.begin();
    while !pending.is_empty() && full.is_none() {
        pending.warm().await?;
        pending.push((recipient.queue, Freshness::ANY), &mut |view: &MessageView<'_>, picked: Picked| {
            if !matches(request, view) {
                return Ok(Room::ForMore);
            }
            let (count, bytes) = (encoder.delivery_count(), bytes_at_most(view));
            if count >= count_max || encoder.size() + bytes > bytes_max && count > 0 {
                full = Some(Full::At(picked.taken.sequence));
                return Ok(Room::NotForThis);
            }
            if bytes > bytes_max {
                full = Some(Full::Alone(bytes));
                return Ok(Room::NotForThis);
            }
            push_one(encoder, view, picked).map(|()| Room::ForMore)
        })?;
        pending.drop_unsent_in_turn(recipient).await?;
    }
    Ok(full)
}

fn matches(request: &PeekRequest<'_>, view: &MessageView<'_>) -> bool {
    let is_key = request.routing_key.is_none_or(|key| view.routing_key == key.as_bytes());
    is_key && (request.header.is_empty() || has_header(view.properties, request.header, request.header_value))
}

/// Whether a message has a header with this value: a text, or a number or truth value as it is written.
fn has_header(properties: &[u8], name: &str, wanted: &str) -> bool {
    let Ok(Some(headers)) = headers_of(properties) else { return false };
    entries(headers).filter_map(Result::ok).any(|(found, value)| found == name.as_bytes() && is_value(value, wanted))
}

fn is_value(value: ValueRef<'_>, wanted: &str) -> bool {
    match value {
        ValueRef::Text(text) => text == wanted.as_bytes(),
        ValueRef::Bool(value) => wanted == if value { "true" } else { "false" },
        ValueRef::I8(number) => wanted.parse() == Ok(number),
        ValueRef::U8(number) => wanted.parse() == Ok(number),
        ValueRef::I16(number) => wanted.parse() == Ok(number),
        ValueRef::U16(number) => wanted.parse() == Ok(number),
        ValueRef::I32(number) => wanted.parse() == Ok(number),
        ValueRef::U32(number) => wanted.parse() == Ok(number),
        ValueRef::I64(number) => wanted.parse() == Ok(number),
        _ => false,
    }
}

/// The answer to a Peek.
pub(crate) struct PeekAnswer {
    response: Option<FramedMessage>,
    _room: OwnedSemaphorePermit,
}

impl Responder for PeekAnswer {
    async fn step(&mut self) -> Option<Result<FramedMessage, Status>> {
        self.response.take().map(Ok)
    }
}
