//! The epochs of a log: two logs with a common epoch are equal up to where it ends in both.
//!
//! An epoch belongs to one boot of one broker (rule 4), so equal epochs and positions mean equal records.

use crate::{Epoch, Position};

/// Epochs with their first positions, both ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epochs(Vec<(Epoch, Position)>);

impl Epochs {
    /// The epochs of a log, ascending.
    #[must_use]
    pub fn new(epochs: impl IntoIterator<Item = (Epoch, Position)>) -> Epochs {
        Epochs(epochs.into_iter().collect())
    }

    /// Whether epochs and positions ascend and lie below the log's end, as those of every log do.
    #[must_use]
    pub fn are_valid(&self, end: Position) -> bool {
        self.0.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1)
            && self.0.iter().all(|&(_, first)| first < end)
    }

    /// The epochs with their first positions, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Epoch, Position)> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn begin(&mut self, epoch: Epoch, first: Position) {
        self.0.push((epoch, first));
    }

    pub(crate) fn cut(&mut self, position: Position) {
        self.0.retain(|&(_, first)| first < position);
    }

    pub(crate) fn newest(&self) -> Epoch {
        self.0.last().map_or(0, |&(epoch, _)| epoch)
    }

    /// The epoch of the record at a position, and where it ends.
    pub(crate) fn of(&self, position: Position, end: Position) -> Option<(Epoch, Position)> {
        let next = self.0.partition_point(|&(_, first)| first <= position);
        let (epoch, _) = *self.0.get(next.checked_sub(1)?)?;
        Some((epoch, self.0.get(next).map_or(end, |&(_, first)| first)))
    }

    /// The position up to which two logs are equal for certain: where their last common epoch ends in both (rule 6).
    pub(crate) fn equal_until(&self, end: Position, other: &Epochs, other_end: Position) -> Position {
        let common = self.0.iter().rev().find(|(epoch, first)| other.0.contains(&(*epoch, *first)));
        common.map_or(0, |&(epoch, _)| self.end_of(epoch, end).min(other.end_of(epoch, other_end)))
    }

    fn end_of(&self, epoch: Epoch, end: Position) -> Position {
        let next = self.0.partition_point(|&(other, _)| other <= epoch);
        self.0.get(next).map_or(end, |&(_, first)| first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_equal_up_to_the_end_of_the_last_epoch_that_both_have() {
        let leader = Epochs::new([(1, 0), (2, 10), (5, 30)]);
        for (follower, end, equal) in [
            (vec![(1, 0)], 7, 7),
            (vec![(1, 0)], 12, 10),
            (vec![(1, 0), (2, 10)], 40, 30),
            (vec![(1, 0), (2, 10), (3, 20)], 25, 20),
            (vec![(1, 0), (2, 10), (5, 30)], 90, 50),
            (vec![(4, 0)], 9, 0),
            (vec![], 0, 0),
        ] {
            assert_eq!(leader.equal_until(50, &Epochs::new(follower.clone()), end), equal, "{follower:?}");
        }
    }
}
