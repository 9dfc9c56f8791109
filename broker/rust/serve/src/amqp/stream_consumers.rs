//! Consumers of streams: what they need, and their deliveries, each with its offset as a header.

use penstock_engine::{MessageView, Picked};
use penstock_wire::amqp::delivery::{DeliveryRef, put_delivery};
use penstock_wire::amqp::header_entry::put_with_header;
use penstock_wire::amqp::unacked::{Delivery, Unacked};

use super::consume_arguments::{ConsumeArguments, Filter};
use super::outgoing::{Ending, Next, Outgoing, Place};
use crate::host::consuming::{ConsumeOptions, Turn};
use crate::host::deliveries::Room;
use crate::host::reading::Reading;
use crate::host::refusal::{Kind, Refusal};

/// How often a consumer of a stream looks for messages that pass its filter before others have their turns.
const LOOKS_MAX: usize = 16;

/// Lets a consumer of a stream deliver: each delivery has its offset as a header.
pub(super) async fn read_turn(
    (number, channel, tag): (u64, u16, &[u8]),
    (reading, filter): (&mut Reading, Option<&Filter>),
    unacked: &mut Unacked,
    outgoing: &mut Outgoing<'_>,
    stopping: bool,
) -> Result<Next, Ending> {
    reading.ring();
    let mut properties = Vec::new();
    for _ in 0..LOOKS_MAX {
        match reading.turn(stopping).await.map_err(|_| Ending::of(reading.shard()))? {
            Turn::Cancelled(_) | Turn::TimedOut(_) => return Err(Ending::of(reading.shard())),
            Turn::Wait(pause) => return Ok(pause.map_or(Next::Rest, Next::After)),
            Turn::Send if outgoing.out.len() >= outgoing.bytes_max => return Ok(Next::More),
            Turn::Send => {}
        }
        let mut has_room = true;
        let mut write = |view: &MessageView<'_>, picked: Picked| {
            has_room = outgoing.has_room(view);
            if !has_room {
                return Ok(Room::NotForThis);
            }
            let sequence = picked.taken.sequence.0;
            properties.clear();
            put_with_header(view.properties, OFFSET_HEADER, sequence, &mut properties);
            let delivery = DeliveryRef {
                consumer_tag: tag,
                delivery_tag: unacked.deliver(Delivery { consumer: number, sequence }),
                redelivered: false,
                exchange: view.exchange,
                routing_key: view.routing_key,
                properties: &properties,
                body: view.body,
            };
            put_delivery(channel, &delivery, outgoing.frame_bytes_max, outgoing.out);
            outgoing.count(view);
            Ok(if outgoing.out.len() < outgoing.bytes_max { Room::ForMore } else { Room::Full })
        };
        let passes = |view: &MessageView<'_>| filter.is_none_or(|filter| filter.passes(view));
        reading.send(&passes, &mut write).await.map_err(|_| Ending::of(reading.shard()))?;
        if !has_room {
            return Ok(Next::More);
        }
    }
    Ok(Next::More)
}

/// The header of a delivery with its offset in the stream.
const OFFSET_HEADER: &str = "x-stream-offset";

/// What a consumer of a stream needs, in RabbitMQ's words.
pub(super) fn check_stream(
    wanted: &ConsumeOptions<'_>,
    arguments: &ConsumeArguments,
    place: &Place<'_>,
) -> Result<(), Refusal> {
    let stream = format!("queue '{}' in vhost '{}'", wanted.queue.to_text(), wanted.vhost.to_text());
    let (kind, text) = if wanted.auto_ack {
        (Kind::Unsupported, format!("automatic acknowledgement not supported by stream {stream}"))
    } else if place.shares_credit {
        (Kind::Unsupported, format!("{stream} does not support global qos"))
    } else if !place.has_prefetch {
        (Kind::PreconditionFailed, format!("consumer prefetch count is not set for stream {stream}"))
    } else if wanted.exclusive {
        (Kind::PreconditionFailed, format!("exclusive consumers are not supported by stream {stream}"))
    } else if let Some(name) = arguments.not_of_streams {
        (Kind::PreconditionFailed, format!("invalid arg '{name}' for a consumer of stream {stream}"))
    } else {
        return Ok(());
    };
    Err(Refusal::new(kind, text))
}
