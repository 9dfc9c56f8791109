//! What deliveries of all kinds of consumers share: the buffer that they are written to, and when a consumer goes on.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use penstock_engine::{Credit, MessageView, Picked, Shard};
use penstock_wire::Name;
use penstock_wire::amqp::content::put_content;
use penstock_wire::amqp::deaths::with_delivery_count;
use penstock_wire::amqp::method::Method;
use penstock_wire::amqp::reply::Exception;

use super::errors::led_elsewhere;
use super::space::Space;

/// Messages of fewer bytes are counted with what is written together.
const COUNTED_BYTES: usize = 4 << 10;

/// How a consumer is opened on a channel.
pub(super) struct Place<'a> {
    pub channel: u16,
    pub credit: &'a Arc<Credit>,
    /// Whether its channel has a limit that its consumers share.
    pub shares_credit: bool,
    /// Whether its channel has a limit for each consumer.
    pub has_prefetch: bool,
}

/// The buffer for deliveries, with its limits.
pub(super) struct Outgoing<'a> {
    pub out: &'a mut Vec<u8>,
    /// Nothing is delivered beyond so many bytes; the message that reaches them is written whole.
    pub bytes_max: usize,
    pub frame_bytes_max: u32,
    pub space: &'a mut Space,
}

impl Outgoing<'_> {
    /// Whether there is room for a message. A small one is left to the bound of all.
    pub(super) fn has_room(&self, view: &MessageView<'_>) -> bool {
        let bytes = bytes_of(view);
        bytes < COUNTED_BYTES || self.space.allows(self.out.len(), bytes)
    }

    /// Counts a message that was written.
    pub(super) fn count(&mut self, view: &MessageView<'_>) {
        if bytes_of(view) >= COUNTED_BYTES {
            self.space.count(self.out.len());
        }
    }

    pub(super) fn put_got(
        &mut self,
        channel: u16,
        (view, properties): (&MessageView<'_>, &[u8]),
        (tag, redelivered, ready_count): (u64, bool, u64),
    ) {
        let name = |bytes| Name::new("a stored name", bytes).unwrap_or(Name::EMPTY);
        let (exchange, routing_key) = (name(view.exchange), name(view.routing_key));
        let (delivery_tag, message_count) = (tag, u32::try_from(ready_count).unwrap_or(u32::MAX));
        Method::BasicGetOk { delivery_tag, redelivered, exchange, routing_key, message_count }.put(channel, self.out);
        put_content(channel, properties, view.body, self.frame_bytes_max, self.out);
        self.count(view);
    }
}

fn bytes_of(view: &MessageView<'_>) -> usize {
    view.properties.len() + view.body.len()
}

/// When a consumer has its next turn.
pub(super) enum Next {
    /// When it is woken.
    Rest,
    /// As soon as there is space.
    More,
    After(Duration),
}

/// Why a consumer goes on no more.
pub(super) enum Ending {
    /// Its queue is deleted, or its user may not consume any more.
    Cancelled,
    /// It kept a message for longer than so many milliseconds, which ends its channel.
    Overdue(u64),
    /// Another broker leads the virtual host, which ends the connection: clients open cancelled consumers again less often than lost
    /// connections.
    OfConnection(Exception),
}

impl Ending {
    /// Why a consumer ends whose turn failed, or that was cancelled.
    pub fn of(shard: &Shard) -> Ending {
        if shard.is_deposed() { Ending::OfConnection(led_elsewhere(shard.name())) } else { Ending::Cancelled }
    }
}

/// The properties of a delivery: where deliveries are limited, one after the first says in a header how many came before.
pub(super) fn properties_of<'a>(view: &MessageView<'a>, picked: Picked, counts: bool) -> Cow<'a, [u8]> {
    if !counts || picked.taken.delivery_count == 0 {
        return Cow::Borrowed(view.properties);
    }
    with_delivery_count(view.properties, picked.taken.delivery_count).map_or(Cow::Borrowed(view.properties), Cow::Owned)
}
