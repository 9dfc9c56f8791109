//! A message that a consumer has, or had and returned: these are kept one by one, in a few bytes each.

use crate::ids::Sequence;

/// A taken message whose body was not read yet: its bytes still count as ready.
const UNSIZED: u32 = u32::MAX;

/// Set in [`Held`] beside the delivery count once the message was sent to its holder.
const SENT: u32 = 1 << 31;

/// A message on its way or with a consumer, or waiting for redelivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) sequence: Sequence,
    /// The delivery count, and `SENT`: a queue may hold millions of these.
    deliveries: u32,
    bytes: u32,
}

impl Held {
    pub(crate) fn new(sequence: Sequence, delivery_count: u32) -> Held {
        Held { sequence, deliveries: delivery_count.min(SENT - 1), bytes: UNSIZED }
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
        self.deliveries & !SENT
    }

    /// The same message returned to its place, with one more delivery counted when it was sent.
    pub(crate) fn returned(self) -> Held {
        let count = self.delivery_count().saturating_add(u32::from(self.is_sent()));
        Held { deliveries: count.min(SENT - 1), ..self }
    }

    /// The same message returned to its place, as if it had not been taken.
    pub(crate) fn untouched(self) -> Held {
        Held { deliveries: self.delivery_count(), ..self }
    }

    /// `None` while the size is outstanding.
    pub(crate) fn bytes(&self) -> Option<u32> {
        (self.bytes != UNSIZED).then_some(self.bytes)
    }
}
