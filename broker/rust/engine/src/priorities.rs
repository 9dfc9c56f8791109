//! What the engine keeps of the lanes of a queue with priorities, or with keys that take turns, beside the queue's machine.
//!
//! A lane is what the log has under a number of its own: see `docs/decisions/0068-priority-lanes.md` and
//! `docs/decisions/0076-fair-keys.md`. Lanes without messages are not here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use penstock_log::Target;
use penstock_queue::{QueueId, Sequence, SequenceRange};

use crate::delivery_mark::DeliveryMark;

/// The priorities of a queue, and the lanes of its keys.
#[derive(Debug, Default)]
pub(crate) struct Priorities {
    /// Messages of a higher priority have this one.
    pub highest: u8,
    /// Lanes above the first that have had messages.
    pub lanes: BTreeMap<u16, Lane>,
}

/// A lane above the first: what a queue has of its first lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    /// Messages below this sequence were stored by an earlier process.
    pub recovered_below: Sequence,
    /// Sequences within the lane that no message had.
    pub skipped: u64,
    /// In sequences within the lane.
    pub deliveries: DeliveryMark,
}

/// The message of a queue as the log has it.
#[inline]
#[must_use]
pub fn target_of(queue: QueueId, sequence: Sequence) -> Target {
    Target { queue: queue.lane(sequence.lane()), sequence: sequence.within() }
}

/// Some ranges of a queue, by lane: each with the number that the log has for it, and as the log has them.
pub(crate) fn by_lane(
    queue: QueueId,
    ranges: &[SequenceRange],
) -> impl Iterator<Item = (QueueId, Cow<'_, [SequenceRange]>)> {
    let lanes = ranges.chunk_by(|one, other| one.first.lane() == other.first.lane());
    lanes.filter_map(move |some| {
        let lane = some.first()?.first.lane();
        let found = if lane == 0 { Cow::Borrowed(some) } else { some.iter().map(within).collect() };
        Some((queue.lane(lane), found))
    })
}

fn within(range: &SequenceRange) -> SequenceRange {
    SequenceRange { first: range.first.within(), last: range.last.within() }
}
