//! The epochs of a log of format 2: where each begins, and how its records are coded. See `docs/format.md`, "Delete, mark,
//! epoch".
//!
//! Invariants: epochs and their first positions ascend. The upper half of an epoch's number counts, the lower half is
//! random: a start whose record was lost had another number than the next one, so what it left in reused space is no
//! record.

use crate::format::Coding;
use crate::record::Position;

const COUNTED_FROM: u32 = 32;

/// The count in the number of an epoch. Those of format 1 only count.
pub(crate) fn count_of(epoch: u64) -> u64 {
    if epoch >> COUNTED_FROM == 0 { epoch } else { epoch >> COUNTED_FROM }
}

/// The number of the epoch after one, with these random bits.
pub(crate) fn after(epoch: u64, random: u32) -> u64 {
    ((count_of(epoch) + 1) << COUNTED_FROM) | u64::from(random)
}

/// Where each epoch begins; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epochs(Vec<(u64, Position)>);

impl Epochs {
    /// Notes the first position of an epoch; one that is not above the last is known.
    pub(crate) fn begin(&mut self, epoch: u64, first: Position) {
        if self.0.last().is_none_or(|&(last, _)| last < epoch) {
            self.0.push((epoch, first));
        }
    }

    /// The epochs and their first positions, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, Position)> + '_ {
        self.0.iter().copied()
    }

    /// The last one; 0 without any.
    pub(crate) fn newest(&self) -> u64 {
        self.0.last().map_or(0, |&(epoch, _)| epoch)
    }

    /// Forgets the epochs that begin at or above a position.
    pub(crate) fn cut(&mut self, position: Position) {
        self.0.retain(|&(_, first)| first < position);
    }

    /// The epoch of a position; `None` below the first one.
    #[must_use]
    pub fn of(&self, position: Position) -> Option<u64> {
        let after = self.0.partition_point(|&(_, first)| first <= position);
        self.0.get(after.checked_sub(1)?).map(|&(epoch, _)| epoch)
    }

    /// How records from a position on are coded, up to another.
    pub(crate) fn codings(&self, log_id: &[u8; 16], coding: Coding, first: Position, end: Position) -> Codings {
        let later = self.0.iter().filter(|&&(_, begin)| begin > first && begin < end);
        let later = later.map(|&(epoch, begin)| (begin, Coding::of_epoch(log_id, epoch)));
        Codings { first: coding, later: later.collect() }
    }
}

/// How the records of a segment are coded. A rewritten one may have those of several epochs.
#[derive(Clone, Debug)]
pub(crate) struct Codings {
    first: Coding,
    /// From where on another one holds, ascending.
    later: Box<[(Position, Coding)]>,
}

impl Codings {
    /// Of one epoch, or of format 1.
    pub(crate) fn of_one(coding: Coding) -> Codings {
        Codings { first: coding, later: Box::default() }
    }

    #[inline]
    pub(crate) fn first(&self) -> Coding {
        self.first
    }

    /// The coding of the record with a position.
    #[inline]
    pub(crate) fn of(&self, position: impl FnOnce() -> Position) -> Coding {
        if self.later.is_empty() { self.first } else { self.of_later(position()) }
    }

    #[cold]
    fn of_later(&self, position: Position) -> Coding {
        let after = self.later.partition_point(|&(first, _)| first <= position);
        after.checked_sub(1).and_then(|at| self.later.get(at)).map_or(self.first, |&(_, coding)| coding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG_ID: [u8; 16] = [4; 16];

    fn epochs() -> Epochs {
        let mut epochs = Epochs::default();
        for (epoch, first) in [(5, 100), (9, 300), (9, 350), (7, 400), (12, 500)] {
            epochs.begin(epoch, Position(first));
        }
        epochs
    }

    #[test]
    fn a_position_is_in_the_last_epoch_that_begins_at_or_before_it() {
        let of = |position| epochs().of(Position(position));

        assert_eq!(epochs().iter().len(), 3, "an epoch begins once, and none before the last");
        assert_eq!(
            [99, 100, 299, 300, 499, 500, u64::MAX].map(of),
            [None, Some(5), Some(5), Some(9), Some(9), Some(12), Some(12)]
        );
    }

    #[test]
    fn records_of_a_rewritten_segment_have_the_coding_of_their_epoch() {
        let first = Coding::of_epoch(&LOG_ID, 5);
        let codings = epochs().codings(&LOG_ID, first, Position(100), Position(500));
        let of = |position| codings.of(|| Position(position));

        let expected = [5, 5, 9, 9, 9].map(|epoch| Coding::of_epoch(&LOG_ID, epoch));
        assert_eq!([100, 299, 300, 499, 500].map(of), expected, "the segment ends at 500");
    }

    #[test]
    fn epochs_count_on_from_those_of_format_1_and_two_of_the_same_count_differ() {
        let (first, other) = (after(7, 3), after(7, 4));

        assert_ne!(first, other);
        assert_eq!([first, other, after(first, 0), after(0, u32::MAX)].map(count_of), [8, 8, 9, 1]);
        assert!(first > 7 && after(first, 0) > first);
    }
}
