//! A message that a consumer has, or had and returned: these are kept one by one, in a few bytes each.

use crate::ids::Sequence;

/// A taken message whose body was not read yet: its bytes still count as ready.
const UNSIZED: u32 = u32::MAX;

/// Set in [`Held`] beside the delivery count once the message was sent to its holder.
const SENT: u32 = 1 << 31;

/// Set there once it was with a consumer, whether that counts as a delivery or not.
const DELIVERED: u32 = 1 << 30;

const COUNT_MAX: u32 = DELIVERED - 1;

/// A message on its way or with a consumer, or waiting for redelivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) sequence: Sequence,
    /// The delivery count, `SENT` and `DELIVERED`: a queue may hold millions of these.
    deliveries: u32,
    bytes: u32,
}

impl Held {
    pub(crate) fn new(sequence: Sequence, delivery_count: u32) -> Held {
        Held { sequence, deliveries: delivery_count.min(COUNT_MAX), bytes: UNSIZED }
    }

    /// The same message, of a known size.
    pub(crate) fn with_bytes(self, bytes: u32) -> Held {
        Held { bytes: bytes.min(UNSIZED - 1), ..self }
    }

    /// The same message, sent to its holder.
    pub(crate) fn sent(self) -> Held {
        Held { deliveries: self.deliveries | SENT, ..self }
    }

    /// The same message in a lane.
    pub(crate) fn in_lane(self, lane: u16) -> Held {
        Held { sequence: self.sequence.in_lane(lane), ..self }
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.deliveries & SENT != 0
    }

    pub(crate) fn delivery_count(&self) -> u32 {
        self.deliveries & COUNT_MAX
    }

    /// Whether it was with a consumer before its holder.
    pub(crate) fn is_redelivered(&self) -> bool {
        self.deliveries & !SENT != 0
    }

    /// The same message returned to its place, with one more delivery counted when it was sent.
    pub(crate) fn returned(self) -> Held {
        let count = self.delivery_count().saturating_add(u32::from(self.is_sent())).min(COUNT_MAX);
        let uncounted = self.uncounted();
        Held { deliveries: uncounted.deliveries & DELIVERED | count, ..self }
    }

    /// The same message returned to its place, delivered when it was sent, with the delivery count that it had.
    pub(crate) fn uncounted(self) -> Held {
        let delivered = if self.is_sent() { DELIVERED } else { 0 };
        Held { deliveries: self.deliveries & !SENT | delivered, ..self }
    }

    /// The same message returned to its place, as if it had not been taken.
    pub(crate) fn untouched(self) -> Held {
        Held { deliveries: self.deliveries & !SENT, ..self }
    }

    /// `None` while the size is outstanding.
    pub(crate) fn bytes(&self) -> Option<u32> {
        (self.bytes != UNSIZED).then_some(self.bytes)
    }
}
