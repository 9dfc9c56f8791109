//! When a message that came back to its queue is ready again: its back-off, by how often it was delivered.
//!
//! Pure calculation, without messages and without a clock.

use crate::settled::Settle;

/// Which of the messages that come back wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryType {
    All,
    /// Messages that a consumer failed on: it rejected them, or it is gone.
    Failed,
    /// Messages that a consumer returned by its own choice.
    Returned,
}

/// How long messages wait, in ms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackOff {
    /// `min_ms` for each delivery, at most `max_ms`.
    Linear { min_ms: u64, max_ms: u64 },
    /// After the first delivery, the second and so on; the last one repeats.
    Steps(Vec<u64>),
}

/// The retries of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RetrySchedule {
    pub of: RetryType,
    pub back_off: BackOff,
}

impl RetrySchedule {
    /// Whether messages wait that come back in this way. Those with a time of their own keep that.
    #[must_use]
    pub fn covers(&self, how: Settle) -> bool {
        match how {
            Settle::Requeue => self.of != RetryType::Failed,
            Settle::RequeueFailed => self.of != RetryType::Returned,
            Settle::Ack | Settle::Reject | Settle::RequeueAt(_) | Settle::FailedAside | Settle::Aside => false,
        }
    }

    /// How long a message waits after so many deliveries, in ms; 0 is not at all.
    #[must_use]
    pub fn delay_ms(&self, delivery_count: u32) -> u64 {
        let count = delivery_count.max(1);
        match &self.back_off {
            BackOff::Linear { min_ms, max_ms } => min_ms.saturating_mul(count.into()).min(*max_ms),
            BackOff::Steps(steps) => {
                let step = usize::try_from(count - 1).unwrap_or(usize::MAX);
                steps.get(step).or(steps.last()).copied().unwrap_or(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_grows_with_the_deliveries_up_to_the_largest_one() {
        let linear = RetrySchedule { of: RetryType::All, back_off: BackOff::Linear { min_ms: 100, max_ms: 250 } };
        let steps = RetrySchedule { of: RetryType::All, back_off: BackOff::Steps(vec![0, 50, 7]) };
        let delays = |schedule: &RetrySchedule| [0, 1, 2, 3, 9, u32::MAX].map(|count| schedule.delay_ms(count));

        assert_eq!(delays(&linear), [100, 100, 200, 250, 250, 250]);
        assert_eq!(delays(&steps), [0, 0, 50, 7, 7, 7]);
    }

    #[test]
    fn a_delay_that_would_overflow_is_the_largest_one() {
        let back_off = BackOff::Linear { min_ms: u64::MAX / 2, max_ms: u64::MAX };

        assert_eq!(RetrySchedule { of: RetryType::All, back_off }.delay_ms(3), u64::MAX);
    }

    #[test]
    fn the_type_says_which_returns_wait() {
        let covers = |of| {
            let schedule = RetrySchedule { of, back_off: BackOff::Steps(vec![1]) };
            [Settle::Requeue, Settle::RequeueFailed, Settle::RequeueAt(5), Settle::Reject]
                .map(|how| schedule.covers(how))
        };

        assert_eq!(covers(RetryType::All), [true, true, false, false]);
        assert_eq!(covers(RetryType::Failed), [false, true, false, false]);
        assert_eq!(covers(RetryType::Returned), [true, false, false, false]);
    }
}
