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

    /// The last number of a queue with keys that take turns.
    pub const TURNS_MAX: QueueId = QueueId((1 << 31) - 1);

    /// The number under which the log has a lane of this queue; see [`Sequence::lane`].
    #[must_use]
    pub fn lane(self, lane: u16) -> QueueId {
        match lane.checked_sub(TURN_LANES) {
            None => QueueId(self.0.saturating_add(lane.into())),
            Some(turn) => QueueId(1 << TURN_NUMBERS_SHIFT | (self.0 & QueueId::TURNS_MAX.0) << 8 | u64::from(turn)),
        }
    }

    /// The queue and the lane of a number that only lanes of keys have.
    #[must_use]
    pub fn of_turn(self) -> Option<(QueueId, u16)> {
        let number = (self > QueueId::HISTORY_MAX).then_some(self.0 & ((1 << TURN_NUMBERS_SHIFT) - 1))?;
        Some((QueueId(number >> 8), TURN_LANES | (number & 0xff) as u16))
    }
}

/// A message's sequence in its queue. The first is 1; a sequence never names another message.
///
/// The upper 9 bits are the lane, the lower 55 count within the lane. The first 8 of them are the message's priority in a queue
/// with priorities, and 0 in others; the log has these lanes as queues with successive numbers. With the ninth bit it is one of
/// 256 lanes of keys that take turns, which the log has under numbers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// The first lane of keys that take turns.
pub const TURN_LANES: u16 = 256;

const LANE_SHIFT: u32 = 56;
/// The bit of lanes of keys; those below it count within the lane.
const TURN_SHIFT: u32 = 55;
/// The bit of the log's numbers of these lanes, above all histories.
const TURN_NUMBERS_SHIFT: u32 = 39;

impl Sequence {
    /// The sequence of the first message of a queue.
    pub const FIRST: Sequence = Sequence(1);

    #[inline]
    #[must_use]
    pub fn lane(self) -> u16 {
        (self.0 >> LANE_SHIFT) as u16 | ((self.0 >> TURN_SHIFT & 1) as u16) << 8
    }

    /// The sequence within its lane, as the log has it.
    #[inline]
    #[must_use]
    pub fn within(self) -> Sequence {
        Sequence(self.0 & ((1 << TURN_SHIFT) - 1))
    }

    /// The sequence in a lane.
    #[inline]
    #[must_use]
    pub fn in_lane(self, lane: u16) -> Sequence {
        Sequence(self.within().0 | u64::from(lane & 0xff) << LANE_SHIFT | u64::from(lane >> 8 & 1) << TURN_SHIFT)
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{QueueId, Sequence, TURN_LANES};

    #[test]
    fn a_sequence_has_its_lane_and_lanes_do_not_overlap() {
        for lane in [0, 1, 255, 256, 257, 511] {
            let last = Sequence(u64::MAX).in_lane(lane);
            for sequence in [Sequence(0).in_lane(lane), Sequence(7).in_lane(lane), last] {
                assert_eq!(sequence.lane(), lane);
            }
            assert_eq!(Sequence(7).in_lane(lane).within(), Sequence(7));
            assert!(lane == 511 || last.next().lane() != lane);
        }
        assert_eq!(Sequence(7).in_lane(3).0, 3 << 56 | 7, "the lanes of priorities are as they always were");
    }

    #[test]
    fn numbers_of_lanes_of_keys_are_above_all_others_and_tell_their_queue() {
        let (one, last) = (QueueId(1), QueueId::TURNS_MAX);
        assert_eq!(one.lane(255), QueueId(256));
        for id in [one, QueueId(300), last] {
            for lane in [TURN_LANES, TURN_LANES + 7, 511] {
                let number = id.lane(lane);
                assert!(QueueId::HISTORY_MAX < number && number <= QueueId::MAX);
                assert_eq!(number.of_turn(), Some((id, lane)));
            }
        }
        assert_eq!(QueueId::HISTORY_MAX.of_turn(), None);
        assert_eq!(last.lane(511), QueueId::MAX);
    }
}
