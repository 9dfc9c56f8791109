//! Delay before reconnecting: from 50 ms, doubling to 5 s, each reduced by up to half at random so that many clients of
//! one broker do not come back at once.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const MS_MIN: u64 = 50;
const MS_MAX: u64 = 5_000;

#[derive(Debug, Default)]
pub(crate) struct BackOff {
    attempts: u32,
}

impl BackOff {
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
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
        back_off.reset();
        assert!(back_off.next().as_millis() <= 50);
    }
}
