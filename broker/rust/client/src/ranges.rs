//! A set of numbers as sorted, disjoint, non-adjacent ranges. Numbers mostly come in order, so the normal case touches
//! only the last range.

/// Both ends are included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    ranges: Vec<(u64, u64)>,
}

impl RangeSet {
    pub(crate) fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Adds `first` to `last`; returns how many of them are new.
    pub(crate) fn insert(&mut self, first: u64, last: u64) -> u64 {
        match self.ranges.last_mut() {
            Some(end) if first > end.1 && first - end.1 == 1 => {
                end.1 = last;
                last - first + 1
            }
            Some(end) if first <= end.1 => self.insert_within(first, last),
            _ => {
                self.ranges.push((first, last));
                last - first + 1
            }
        }
    }

    /// Joins every range that overlaps or touches the new one.
    fn insert_within(&mut self, first: u64, last: u64) -> u64 {
        let from = self.ranges.partition_point(|range| range.1 < first.saturating_sub(1));
        let to = self.ranges.partition_point(|range| range.0 <= last.saturating_add(1));
        let joined = self.ranges.get(from..to).unwrap_or_default();
        let known: u64 = joined.iter().map(|range| (range.1.min(last) + 1).saturating_sub(range.0.max(first))).sum();
        let start = joined.first().map_or(first, |range| range.0.min(first));
        let end = joined.last().map_or(last, |range| range.1.max(last));
        self.ranges.splice(from..to, [(start, end)]);
        last - first + 1 - known
    }

    /// The parts of `first` to `last` that are not in the set.
    pub(crate) fn missing(&self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let mut missing = Vec::new();
        let mut next = first;
        let from = self.ranges.partition_point(|range| range.1 < first);
        for &(start, end) in self.ranges.get(from..).unwrap_or_default() {
            if start > last {
                break;
            }
            if start > next {
                missing.push((next, start - 1));
            }
            next = end.saturating_add(1).max(next);
        }
        if next <= last {
            missing.push((next, last));
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_hold_what_a_set_holds(steps in proptest::collection::vec((0..60u64, 0..12u64), 0..30)) {
            let (mut ranges, mut model) = (RangeSet::default(), BTreeSet::new());
            for (first, count) in steps {
                let last = first + count;
                let missing: Vec<u64> = ranges.missing(first, last).iter().flat_map(|&(a, b)| a..=b).collect();
                let expected: Vec<u64> = (first..=last).filter(|number| !model.contains(number)).collect();
                prop_assert_eq!(&missing, &expected);

                prop_assert_eq!(ranges.insert(first, last), expected.len() as u64);
                model.extend(first..=last);

                let held: Vec<u64> = ranges.ranges().iter().flat_map(|&(a, b)| a..=b).collect();
                prop_assert_eq!(held, model.iter().copied().collect::<Vec<_>>());
                prop_assert!(ranges.ranges().windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
            }
        }
    }
}
