//! Messages whose time was over while a consumer had them: they expire once they come back. Also those that could not be
//! expired, as on a full disk.
//!
//! Invariant: a check is of a bounded number of them, and the next one goes on behind it. A delivery checks the times of a
//! message anyway, so a check may come late.

use std::collections::BTreeSet;
use std::ops::Bound;

use penstock_queue::{QueueId, Sequence};

/// Messages that are checked in one hold of the lock: less than a millisecond.
const AT_ONCE: usize = 4096;

/// This soon all of them are checked again, and the next part of more than one.
const CHECK_AGAIN_MS: u64 = 1000;
const CHECK_NEXT_MS: u64 = 100;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Overdue {
    messages: BTreeSet<(QueueId, Sequence)>,
    /// The last one that was checked.
    checked: Option<(QueueId, Sequence)>,
}

impl Overdue {
    pub fn add(&mut self, queue: QueueId, sequences: &[Sequence]) {
        self.messages.extend(sequences.iter().map(|&sequence| (queue, sequence)));
    }

    pub fn remove(&mut self, queue: QueueId, sequence: Sequence) {
        self.messages.remove(&(queue, sequence));
    }

    /// The next ones to check.
    pub fn next_part(&mut self) -> Vec<(QueueId, Sequence)> {
        let from = self.checked.map_or(Bound::Unbounded, Bound::Excluded);
        let part: Vec<_> = self.messages.range((from, Bound::Unbounded)).take(AT_ONCE).copied().collect();
        self.checked = if part.len() < AT_ONCE { None } else { part.last().copied() };
        part
    }

    /// In how many milliseconds they are checked again; `None` without any.
    pub fn check_again_ms(&self) -> Option<u64> {
        let is_over = self.checked.is_none();
        (!self.messages.is_empty()).then_some(if is_over { CHECK_AGAIN_MS } else { CHECK_NEXT_MS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of them were checked each second, under the lock.
    #[test]
    fn a_check_is_of_a_bounded_number_and_the_next_one_goes_on_behind_it() {
        let mut overdue = Overdue::default();
        let sequences = |count: usize| (1..=count as u64).map(Sequence).collect::<Vec<_>>();
        overdue.add(QueueId(2), &sequences(AT_ONCE));
        overdue.add(QueueId(1), &sequences(10));

        let first = overdue.next_part();
        assert_eq!((first.len(), overdue.check_again_ms()), (AT_ONCE, Some(CHECK_NEXT_MS)));
        first.iter().for_each(|&(queue, sequence)| overdue.remove(queue, sequence));
        let rest = overdue.next_part();

        assert_eq!((rest.len(), overdue.check_again_ms()), (10, Some(CHECK_AGAIN_MS)));
        assert!(first.iter().all(|one| !rest.contains(one)));
        assert_eq!(overdue.next_part(), rest, "they may have come back");
        rest.iter().for_each(|&(queue, sequence)| overdue.remove(queue, sequence));
        assert_eq!((overdue.next_part().len(), overdue.check_again_ms()), (0, None));
    }
}
