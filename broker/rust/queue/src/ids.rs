//! The numbers of queues and messages, as types that cannot be confused.

/// A queue's number: assigned once by its declaration and never reused. The log stores 40 bits of it, so none is above
/// [`QueueId::MAX`]: whoever takes numbers from outside checks that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

impl QueueId {
    /// The last number that a queue can have.
    pub const MAX: QueueId = QueueId((1 << 40) - 1);

    /// The last number that a declaration gets. The numbers above it belong to the histories of exchanges.
    pub const DECLARED_MAX: QueueId = QueueId((1 << 38) - 1);

    /// The last number of a history.
    pub const HISTORY_MAX: QueueId = QueueId((1 << 39) - 1);

    /// The number as the log stores it: 5 bytes.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; 5] {
        debug_assert!(self <= QueueId::MAX);
        let [a, b, c, d, e, ..] = self.0.to_le_bytes();
        [a, b, c, d, e]
    }

    /// The number in 5 bytes.
    #[inline]
    #[must_use]
    pub fn from_bytes([a, b, c, d, e]: [u8; 5]) -> QueueId {
        QueueId(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
    }

    /// The number under which the log has a lane of this queue; see [`Sequence::lane`].
    #[must_use]
    pub fn lane(self, lane: u8) -> QueueId {
        QueueId(self.0.saturating_add(lane.into()))
    }
}

/// A message's sequence in its queue. The first is 1; a sequence never names another message.
///
/// The upper 8 bits are the lane, which is the message's priority in a queue with priorities and 0 in others; the lower 56
/// count within the lane. The log has lanes as queues with successive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// Bits of a sequence within its lane.
const LANE_SHIFT: u32 = 56;

impl Sequence {
    /// The sequence of the first message of a queue.
    pub const FIRST: Sequence = Sequence(1);

    #[inline]
    #[must_use]
    pub fn lane(self) -> u8 {
        (self.0 >> LANE_SHIFT) as u8
    }

    /// The sequence within its lane, as the log has it.
    #[inline]
    #[must_use]
    pub fn within(self) -> Sequence {
        Sequence(self.0 & ((1 << LANE_SHIFT) - 1))
    }

    /// The sequence in a lane.
    #[inline]
    #[must_use]
    pub fn in_lane(self, lane: u8) -> Sequence {
        Sequence(self.within().0 | u64::from(lane) << LANE_SHIFT)
    }

    /// The sequence after this one.
    #[must_use]
    pub fn next(self) -> Sequence {
        Sequence(self.0.saturating_add(1))
    }
}

/// From `first` to `last`, both included; never empty when made by [`SequenceRange::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceRange {
    pub first: Sequence,
    pub last: Sequence,
}

impl SequenceRange {
    /// All sequences.
    pub const ALL: SequenceRange = SequenceRange { first: Sequence(0), last: Sequence(u64::MAX) };

    /// `None` when `last` is below `first`.
    #[must_use]
    pub fn new(first: Sequence, last: Sequence) -> Option<SequenceRange> {
        (first <= last).then_some(SequenceRange { first, last })
    }

    /// Only this sequence.
    #[must_use]
    pub const fn of(sequence: Sequence) -> SequenceRange {
        SequenceRange { first: sequence, last: sequence }
    }

    /// How many sequences it has; 0 when it is backward.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.last.0.checked_sub(self.first.0).map_or(0, |distance| distance.saturating_add(1))
    }
}
