//! The settled messages of a queue: all below a sequence, and ranges above it.
//!
//! Everything below a queue's cursor is settled, unsettled or returned, so there are never more ranges here than
//! messages outstanding plus one: memory depends on messages in flight, not on past ones. Skipped sequences count as
//! settled.

use std::collections::BTreeMap;

use crate::ids::{Sequence, SequenceRange};

/// Invariant: ranges are disjoint, do not touch, and are above `below`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckSet {
    below: u64,
    ranges: BTreeMap<u64, u64>,
}

impl Default for AckSet {
    fn default() -> Self {
        AckSet { below: Sequence::FIRST.0, ranges: BTreeMap::new() }
    }
}

impl AckSet {
    /// A set with only the sequences below `below` settled.
    #[must_use]
    pub fn starting_at(below: Sequence) -> Self {
        AckSet { below: below.0, ranges: BTreeMap::new() }
    }

    /// The smallest unsettled sequence.
    #[must_use]
    pub fn below(&self) -> Sequence {
        Sequence(self.below)
    }

    /// The settled ranges above [`AckSet::below`], ascending.
    pub fn ranges(&self) -> impl Iterator<Item = SequenceRange> + '_ {
        self.ranges.iter().map(|(&first, &last)| SequenceRange { first: Sequence(first), last: Sequence(last) })
    }

    #[must_use]
    pub fn contains(&self, sequence: Sequence) -> bool {
        sequence.0 < self.below || self.range_around(sequence.0).is_some()
    }

    /// The smallest unsettled sequence at or above `from`.
    #[must_use]
    pub fn next_unsettled(&self, from: Sequence) -> Sequence {
        let from = from.0.max(self.below);
        Sequence(self.range_around(from).map_or(from, |(_, last)| last.saturating_add(1)))
    }

    /// The first settled sequence at or above `from`, if any is above [`AckSet::below`].
    #[must_use]
    pub fn next_settled(&self, from: Sequence) -> Option<Sequence> {
        if from.0 < self.below || self.range_around(from.0).is_some() {
            return Some(from);
        }
        self.ranges.range(from.0..).next().map(|(&first, _)| Sequence(first))
    }

    /// The largest unsettled sequence below `end`.
    #[must_use]
    pub fn last_unsettled(&self, end: Sequence) -> Option<Sequence> {
        let last = end.0.checked_sub(1)?;
        // Ranges do not touch, so the sequence before one is unsettled.
        let last = self.range_around(last).map_or(Some(last), |(first, _)| first.checked_sub(1))?;
        (last >= self.below).then_some(Sequence(last))
    }

    /// Settles a range; sequences that are settled already are skipped, and a backward range is empty.
    pub fn insert(&mut self, range: SequenceRange) {
        let (mut first, mut last) = (range.first.0, range.last.0);
        if last < first || last < self.below {
            return;
        }
        if first <= self.below {
            self.below = last.saturating_add(1);
            self.absorb_into_below();
            return;
        }
        if let Some((left_first, left_last)) = self.range_around(first.saturating_sub(1)) {
            first = left_first;
            last = last.max(left_last);
        }
        while let Some((&next_first, &next_last)) = self.ranges.range(first..=last.saturating_add(1)).next() {
            last = last.max(next_last);
            self.ranges.remove(&next_first);
        }
        self.ranges.insert(first, last);
    }

    /// Removes a sequence from the settled ones.
    pub fn remove(&mut self, sequence: Sequence) {
        let number = sequence.0;
        if number < self.below {
            let last = self.below - 1;
            self.below = number;
            if number < last {
                self.ranges.insert(number + 1, last);
            }
        } else if let Some((first, last)) = self.range_around(number) {
            self.ranges.remove(&first);
            if first < number {
                self.ranges.insert(first, number - 1);
            }
            if number < last {
                self.ranges.insert(number + 1, last);
            }
        }
    }

    fn absorb_into_below(&mut self) {
        while let Some((&first, &last)) = self.ranges.first_key_value() {
            if first > self.below {
                break;
            }
            self.below = self.below.max(last.saturating_add(1));
            self.ranges.remove(&first);
        }
    }

    fn range_around(&self, number: u64) -> Option<(u64, u64)> {
        let (&first, &last) = self.ranges.range(..=number).next_back()?;
        (number <= last).then_some((first, last))
    }
}
