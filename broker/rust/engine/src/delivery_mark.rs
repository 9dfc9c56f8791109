//! How far a queue's messages may have been delivered, as a mark in the log: after a crash, messages below it are
//! flagged as redelivered.
//!
//! Invariants: the mark is in the page cache before the messages below it are delivered. It runs ahead, so that a
//! message costs a fraction of a mark: at most by the number of deliveries since the start, and never by more than
//! `AHEAD_MAX`. So many messages may be flagged without a delivery. It has no delivery counts. No sync waits for it: a
//! power failure may lose it.

use penstock_queue::Sequence;

/// The first distance that the mark runs ahead, and the largest.
const AHEAD_MIN: u64 = 16;
const AHEAD_MAX: u64 = 1024;

/// State of one queue's mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryMark {
    pub below: Sequence,
    ahead: u64,
}

impl Default for DeliveryMark {
    fn default() -> DeliveryMark {
        DeliveryMark { below: Sequence(0), ahead: 0 }
    }
}

impl DeliveryMark {
    /// The mark needed before messages below a sequence are delivered; `None` when it exists already.
    pub fn before(&mut self, taken_below: Sequence) -> Option<Sequence> {
        if taken_below <= self.below {
            return None;
        }
        self.below = Sequence(taken_below.0.saturating_add(self.ahead));
        self.ahead = (2 * self.ahead).clamp(AHEAD_MIN, AHEAD_MAX);
        Some(self.below)
    }
}

#[cfg(test)]
mod tests {
    use super::{AHEAD_MAX, DeliveryMark};
    use penstock_queue::Sequence;

    #[test]
    fn a_mark_runs_ahead_by_no_more_than_went_out_and_costs_less_and_less() {
        let mut mark = DeliveryMark::default();
        let (mut marks, mut furthest) = (0, 0);
        for taken in 1..=100_000_u64 {
            if let Some(below) = mark.before(Sequence(1 + taken)) {
                let ahead = below.0 - 1 - taken;
                assert!(ahead <= AHEAD_MAX && ahead <= 16 * taken, "{ahead} ahead of {taken}");
                (marks, furthest) = (marks + 1, furthest.max(ahead));
            }
        }
        assert_eq!(furthest, AHEAD_MAX);
        assert!(marks <= 8 + 100_000 / AHEAD_MAX, "{marks} marks");
    }
}
