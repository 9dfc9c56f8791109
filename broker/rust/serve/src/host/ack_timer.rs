//! How long a consumer has kept messages unacked: what was sent at about one time is remembered together.
//!
//! Nothing is done for each message that is settled. When the time of the oldest group has come, the queue says which of it
//! the consumer still holds. A group spans a thirty-second of the limit, so a message is found at most so much too late, and
//! never too early. What is remembered is bounded by what the consumer holds.

use std::collections::VecDeque;
use std::time::Duration;

use penstock_engine::SequenceRange;
use tokio::time::Instant;

const GROUPS_OF_LIMIT: u32 = 32;

/// More ranges than this are compared with what the consumer holds.
const RANGES_MIN: usize = 4096;

struct Group {
    first: Instant,
    last: Instant,
    ranges: Vec<SequenceRange>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct AckTimer {
    groups: VecDeque<Group>,
    range_count: usize,
    /// So many ranges were left when they were compared last.
    kept_count: usize,
}

impl AckTimer {
    /// Notes that messages were sent.
    pub fn sent(&mut self, now: Instant, limit: Duration, ranges: Vec<SequenceRange>) {
        self.range_count += ranges.len();
        match self.groups.back_mut() {
            Some(group) if now.duration_since(group.first) <= limit / GROUPS_OF_LIMIT => {
                group.last = now;
                for range in ranges {
                    match group.ranges.last_mut() {
                        Some(last) if last.last.0 + 1 == range.first.0 => {
                            last.last = range.last;
                            self.range_count -= 1;
                        }
                        _ => group.ranges.push(range),
                    }
                }
            }
            _ => self.groups.push_back(Group { first: now, last: now, ranges }),
        }
    }

    /// Forgets messages that go back to the queue: they may be sent again.
    pub fn returned(&mut self, returned: &[SequenceRange]) {
        for group in &mut self.groups {
            for gone in returned {
                let cut = |range: &SequenceRange| without(*range, *gone);
                group.ranges = group.ranges.iter().flat_map(cut).collect();
            }
        }
        self.count();
    }

    /// When the oldest messages are due.
    pub fn due_at(&self, limit: Duration) -> Option<Instant> {
        self.groups.front().and_then(|group| group.last.checked_add(limit))
    }

    /// The messages that are due, of one group, which is forgotten.
    pub fn take_due(&mut self, now: Instant, limit: Duration) -> Option<Vec<SequenceRange>> {
        if self.due_at(limit)? > now {
            return None;
        }
        let group = self.groups.pop_front()?;
        self.range_count -= group.ranges.len();
        Some(group.ranges)
    }

    /// Whether so much is remembered that it has to be compared with what the consumer holds.
    pub fn is_long(&self) -> bool {
        self.range_count > RANGES_MIN + 2 * self.kept_count
    }

    /// Leaves what the consumer holds, as `held` says.
    pub fn compare<E>(
        &mut self,
        mut held: impl FnMut(&[SequenceRange]) -> Result<Vec<SequenceRange>, E>,
    ) -> Result<(), E> {
        for group in &mut self.groups {
            group.ranges = held(&group.ranges)?;
        }
        self.count();
        self.kept_count = self.range_count;
        Ok(())
    }

    fn count(&mut self) {
        self.range_count = self.groups.iter().map(|group| group.ranges.len()).sum();
    }
}

/// The parts of a range outside another one.
fn without(range: SequenceRange, gone: SequenceRange) -> impl Iterator<Item = SequenceRange> {
    let before = (range.first < gone.first).then(|| SequenceRange {
        first: range.first,
        last: range.last.min(penstock_engine::Sequence(gone.first.0.saturating_sub(1))),
    });
    let after = (range.last > gone.last).then(|| SequenceRange {
        first: range.first.max(penstock_engine::Sequence(gone.last.0.saturating_add(1))),
        last: range.last,
    });
    before.into_iter().chain(after)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use penstock_engine::{Sequence, SequenceRange};
    use tokio::time::Instant;

    use super::{AckTimer, RANGES_MIN};

    const LIMIT: Duration = Duration::from_secs(32);

    fn run(first: u64, last: u64) -> SequenceRange {
        SequenceRange { first: Sequence(first), last: Sequence(last) }
    }

    #[test]
    fn messages_of_about_one_time_are_due_together_and_none_too_early() {
        let (mut timer, begin) = (AckTimer::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        timer.sent(at(0), LIMIT, vec![run(1, 2)]);
        timer.sent(at(900), LIMIT, vec![run(3, 4), run(8, 8)]);
        timer.sent(at(1_100), LIMIT, vec![run(9, 9)]);

        assert_eq!(timer.due_at(LIMIT), Some(at(32_900)));
        assert_eq!(timer.take_due(at(32_899), LIMIT), None);
        assert_eq!(timer.take_due(at(32_900), LIMIT), Some(vec![run(1, 4), run(8, 8)]));
        assert_eq!(timer.take_due(at(33_100), LIMIT), Some(vec![run(9, 9)]));
        assert_eq!(timer.due_at(LIMIT), None);
    }

    #[test]
    fn a_message_that_went_back_counts_from_its_next_delivery() {
        let (mut timer, begin) = (AckTimer::default(), Instant::now());
        timer.sent(begin, LIMIT, vec![run(1, 10)]);
        timer.returned(&[run(4, 5), run(10, 12)]);
        timer.sent(begin + LIMIT / 2, LIMIT, vec![run(4, 4)]);

        assert_eq!(timer.take_due(begin + LIMIT, LIMIT), Some(vec![run(1, 3), run(6, 9)]));
        assert_eq!(timer.take_due(begin + LIMIT, LIMIT), None);
    }

    #[test]
    fn no_more_is_remembered_than_twice_what_is_held_and_a_little() {
        let (mut timer, begin) = (AckTimer::default(), Instant::now());
        let mut longest = 0;
        for number in 0..100_000u64 {
            timer.sent(begin, LIMIT, vec![run(3 * number, 3 * number)]);
            longest = longest.max(timer.range_count);
            if timer.is_long() {
                let held = |ranges: &[SequenceRange]| Ok::<_, ()>(ranges.iter().rev().take(10).copied().collect());
                assert_eq!(timer.compare(held), Ok(()));
            }
        }

        assert!(longest <= RANGES_MIN + 21, "{longest}");
    }
}
