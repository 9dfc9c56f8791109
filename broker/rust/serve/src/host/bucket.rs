//! A bucket of tokens that fills at a rate: what was published is taken out afterwards, so it may be overdrawn, and whoever wants
//! to go on waits until it is not. Pure: the time comes in.

use std::time::Duration;

/// A token in the unit that a rate adds each microsecond.
const TOKEN: i128 = 1_000_000;

/// Invariant: it holds a second's worth at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    rate: u64,
    level: i128,
    at_us: u64,
}

impl Bucket {
    /// Full, so that a short burst is not slowed down. A rate of 0 is one.
    pub fn new(rate: u64, now_us: u64) -> Bucket {
        let rate = rate.max(1);
        Bucket { rate, level: i128::from(rate) * TOKEN, at_us: now_us }
    }

    pub fn rate(&self) -> u64 {
        self.rate
    }

    pub fn take(&mut self, amount: u64, now_us: u64) {
        self.fill(now_us);
        self.level = self.level.saturating_sub(i128::from(amount) * TOKEN);
    }

    /// How long until nothing is overdrawn; nothing when that is now.
    pub fn wait(&mut self, now_us: u64) -> Option<Duration> {
        self.fill(now_us);
        let missing = u128::try_from(self.level.saturating_neg()).ok().filter(|missing| *missing > 0)?;
        let wait_us = missing.div_ceil(u128::from(self.rate));
        Some(Duration::from_micros(u64::try_from(wait_us).unwrap_or(u64::MAX)))
    }

    fn fill(&mut self, now_us: u64) {
        // A clock that stands still or goes back adds nothing.
        let passed_us = now_us.saturating_sub(self.at_us);
        self.at_us = self.at_us.max(now_us);
        let come = i128::from(passed_us).saturating_mul(i128::from(self.rate));
        let level = self.level.saturating_add(come);
        self.level = level.min(i128::from(self.rate) * TOKEN);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::Bucket;

    #[test]
    fn a_second_s_worth_passes_at_once_and_what_is_more_is_waited_for() {
        let mut bucket = Bucket::new(1000, 0);
        bucket.take(1000, 0);
        assert_eq!(bucket.wait(0), None);

        bucket.take(500, 0);

        assert_eq!(bucket.wait(0), Some(Duration::from_millis(500)));
        assert_eq!(bucket.wait(499_999), Some(Duration::from_micros(1)));
        assert_eq!(bucket.wait(500_000), None);
    }

    #[test]
    fn what_nobody_used_is_not_kept_for_longer_than_a_second() {
        let mut bucket = Bucket::new(10, 0);

        bucket.take(20, 3_600_000_000);

        assert_eq!(bucket.wait(3_600_000_000), Some(Duration::from_secs(1)));
    }

    proptest! {
        /// Whoever waits as told takes no more than the rate, the burst and the last round, over any time.
        #[test]
        fn nobody_gets_more_than_the_rate(rate in 1_u64..1_000_000, amounts in prop::collection::vec(1_u64..2_000_000, 1..50)) {
            let (mut now_us, mut taken) = (0_u64, 0_u128);
            let mut bucket = Bucket::new(rate, now_us);
            for &amount in &amounts {
                if let Some(wait) = bucket.wait(now_us) {
                    now_us += u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
                    prop_assert_eq!(bucket.wait(now_us), None);
                }
                let allowed = u128::from(rate) * u128::from(now_us) + u128::from(rate) * 1_000_000;
                prop_assert!(taken * 1_000_000 <= allowed);
                bucket.take(amount, now_us);
                taken += u128::from(amount);
            }
        }

        #[test]
        fn a_clock_that_goes_back_breaks_nothing(times in prop::collection::vec(any::<u64>(), 1..20), rate in any::<u64>()) {
            let mut bucket = Bucket::new(rate, 0);
            for now_us in times {
                bucket.take(u64::MAX, now_us);
                prop_assert!(bucket.wait(now_us).is_some());
            }
        }
    }
}
