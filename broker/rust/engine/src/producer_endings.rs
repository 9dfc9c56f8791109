//! Names of producers that their programs have ended: they are deleted, and the same user does not open them again for a while.
//!
//! A task that was given up may still be on its way when its job is over and its name is deleted. It would store its rows
//! again under the same name. Kept in memory, for an hour and for a bounded number of names.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

/// A task that was given up is over long before.
const KEPT_MS: u64 = 3_600_000;
/// The most names that are kept, the last ones: 24 bytes each, and what the set takes.
const KEPT_MAX: usize = 1 << 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// Keyed by secret numbers, so that nobody makes two names that are taken for one.
    hasher: RandomState,
    keys: HashSet<u64>,
    by_time: VecDeque<(u64, u64)>,
}

impl Endings {
    pub fn add(&mut self, user: &str, name: &str, now_ms: u64) {
        self.drop_old(now_ms);
        let key = self.hasher.hash_one((user, name));
        if self.keys.insert(key) {
            self.by_time.push_back((now_ms, key));
        }
        while self.by_time.len() > KEPT_MAX {
            self.drop_first();
        }
    }

    pub fn has(&mut self, user: &str, name: &str, now_ms: u64) -> bool {
        self.drop_old(now_ms);
        !self.keys.is_empty() && self.keys.contains(&self.hasher.hash_one((user, name)))
    }

    fn drop_old(&mut self, now_ms: u64) {
        while self.by_time.front().is_some_and(|(at_ms, _)| now_ms.saturating_sub(*at_ms) >= KEPT_MS) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some((_, key)) = self.by_time.pop_front() {
            self.keys.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_ended_for_its_user_and_for_an_hour() {
        let mut endings = Endings::default();
        endings.add("anna", "job/0", 1_000);

        assert!(endings.has("anna", "job/0", 999 + KEPT_MS));
        assert!(!endings.has("bob", "job/0", 1_000) && !endings.has("anna", "job/1", 1_000));
        assert!(!endings.has("anna", "job/0", 1_000 + KEPT_MS));
    }

    #[test]
    fn only_the_last_names_are_kept() {
        let mut endings = Endings::default();
        for number in 0..=KEPT_MAX {
            endings.add("anna", &number.to_string(), 1);
        }

        assert!(!endings.has("anna", "0", 1) && endings.has("anna", "1", 1));
        assert_eq!((endings.keys.len(), endings.by_time.len()), (KEPT_MAX, KEPT_MAX));
    }
}
