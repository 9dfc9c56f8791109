//! Delay before reconnecting: from 50 ms, doubling to 5 s, each reduced by up to half at random so that many clients of
//! one broker do not come back at once.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::following::Wait;

const MS_MIN: u64 = 50;
const MS_MAX: u64 = 5_000;
/// A broker that answers says soon who leads: an election takes about a second.
const SHORT_MAX: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(crate) struct BackOff {
    attempts: u32,
}

impl BackOff {
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }

    /// The wait after an error, which may say that it is shorter.
    pub(crate) fn after(&mut self, wait: Wait) -> Duration {
        match wait {
            Wait::None => Duration::ZERO,
            Wait::Short => self.next().min(SHORT_MAX),
            Wait::Long => self.next(),
        }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let ms = (MS_MIN << self.attempts.min(10)).min(MS_MAX);
        self.attempts = self.attempts.saturating_add(1);
        let random = RandomState::new().hash_one(self.attempts);
        Duration::from_millis(ms - random % (ms / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_from_50_ms_to_5_s_and_start_over() {
        let mut back_off = BackOff::default();

        let waits: Vec<u128> = (0..12).map(|_| back_off.next().as_millis()).collect();

        assert!((25..=50).contains(&waits[0]));
        assert!((200..=400).contains(&waits[3]));
        assert!((2_500..=5_000).contains(&waits[11]));
        assert_eq!(back_off.after(Wait::None), Duration::ZERO);
        assert_eq!(back_off.after(Wait::Short), SHORT_MAX);
        assert!(back_off.after(Wait::Long) >= Duration::from_millis(2_500));
        back_off.reset();
        assert!(back_off.next().as_millis() <= 50);
    }
}
