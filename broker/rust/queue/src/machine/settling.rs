//! Settling in parts, so that no user of the queue waits for a long settlement of another.
//!
//! Removing a message from the middle of a subscription's messages moves those on its shorter side. A part is limited
//! by that, too: single messages out of tens of thousands may cost thousands of moves each.

use crate::ids::{Sequence, SequenceRange};
use crate::machine::Queue;
use crate::settled::{Settle, Settled};
use crate::subscription::SubscriptionId;

/// The most messages that one part moves, except for its last range: 4 MiB.
const MOVED_AT_ONCE: usize = 1 << 18;

/// The rest of a settlement. Messages that came back meanwhile and were taken again are not settled again.
#[derive(Clone, Copy, Debug)]
pub struct Settling<'a> {
    ranges: &'a [SequenceRange],
    /// The part of the first range below this is done.
    from: Sequence,
}

impl<'a> Settling<'a> {
    #[must_use]
    pub fn of(ranges: &'a [SequenceRange]) -> Settling<'a> {
        Settling { ranges, from: Sequence(0) }
    }

    #[must_use]
    pub fn is_done(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl Queue {
    /// Settles the next part of the messages in some ranges that a subscription holds: at most so many messages and
    /// ranges, none after [`MOVED_AT_ONCE`] moves, and those of one lane.
    pub fn settle_some(
        &mut self,
        id: SubscriptionId,
        settling: &mut Settling<'_>,
        how: Settle,
        steps_max: usize,
    ) -> Settled {
        let mut part = Vec::new();
        let (mut steps, mut moves) = (steps_max, MOVED_AT_ONCE);
        let Some(subscription) = self.slots.get(id) else {
            settling.ranges = &[];
            return Settled::default();
        };
        let mut lane = None;
        while let Some((&range, rest)) = settling.ranges.split_first().filter(|_| steps > 0 && moves > 0) {
            let range = SequenceRange { first: range.first.max(settling.from), ..range };
            let in_lane = subscription.in_one_lane(range);
            if *lane.get_or_insert(in_lane.first.lane()) != in_lane.first.lane() {
                break;
            }
            let (clipped, count, is_all) = subscription.clip(in_lane, steps);
            steps = steps.saturating_sub(count.max(1));
            moves = moves.saturating_sub(subscription.moves(clipped));
            part.push(clipped);
            let is_done = is_all && clipped.last == range.last;
            *settling = if is_done { Settling::of(rest) } else { Settling { from: clipped.last.next(), ..*settling } };
        }
        self.settle(id, &part, how)
    }
}
