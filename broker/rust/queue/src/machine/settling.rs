//! Settling in parts, so that nobody who shares the queue waits for more than so much of somebody else's.
//!
//! A message that leaves the middle of what its subscription holds makes room by moving those on its shorter side. A part is
//! bounded by that, too: single messages out of tens of thousands may cost thousands of moves each.

use crate::ids::{Sequence, SequenceRange};
use crate::machine::{Queue, Settle, Settled};
use crate::subscription::SubscriptionId;

/// Held messages that one part moves at most, but for its last range: 4 MiB.
const MOVED_AT_ONCE: usize = 1 << 18;

/// What of a settlement is still to be done. What came back meanwhile and was taken again is not settled again.
#[derive(Clone, Copy, Debug)]
pub struct Settling<'a> {
    ranges: &'a [SequenceRange],
    /// What of the first range lies below was done.
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
    /// Settles the next part of what a subscription holds of some ranges: at most so many messages and ranges, and none after
    /// [`MOVED_AT_ONCE`] moves.
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
        while let Some((&range, rest)) = settling.ranges.split_first().filter(|_| steps > 0 && moves > 0) {
            let range = SequenceRange { first: range.first.max(settling.from), ..range };
            let (clipped, count, is_all) = subscription.clip(range, steps);
            steps = steps.saturating_sub(count.max(1));
            moves = moves.saturating_sub(subscription.moves(clipped));
            part.push(clipped);
            *settling = if is_all { Settling::of(rest) } else { Settling { from: clipped.last.next(), ..*settling } };
        }
        self.settle(id, &part, how)
    }
}
