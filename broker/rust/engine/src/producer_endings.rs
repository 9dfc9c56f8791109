//! Names of producers that their programs have ended: they are deleted, and the same user does not open them again for a while.
//!
//! A task that was given up may still be on its way when its job is over and its name is deleted. It would store its rows
//! again under the same name. Kept in memory, for an hour and for a bounded number of names.
//!
//! Invariant: when a user ends names, existing or not, only older ended names of the same user are dropped for them.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use rustc_hash::FxHashMap;

use crate::error::EngineError;

/// A task that was given up is over long before.
const KEPT_MS: u64 = 3_600_000;
/// The most names that are kept of a user, the last ones: 16 bytes each, and what the set takes.
const KEPT_MAX: usize = 1 << 14;
/// The most users whose names are kept.
const USERS_MAX: usize = 1 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// Keyed by secret numbers, so that nobody makes two names that are taken for one.
    hasher: RandomState,
    by_user: FxHashMap<String, OfUser>,
}

#[derive(Debug, Default)]
struct OfUser {
    keys: HashSet<u64>,
    /// With the times, the oldest first.
    by_time: VecDeque<(u64, u64)>,
}

impl Endings {
    /// Check that there is room for names of a user, and make some.
    pub fn check_user(&mut self, user: &str, now_ms: u64) -> Result<(), EngineError> {
        if self.by_user.contains_key(user) || self.by_user.len() < USERS_MAX {
            return Ok(());
        }
        self.by_user.retain(|_, names| {
            names.drop_old(now_ms);
            !names.keys.is_empty()
        });
        if self.by_user.len() < USERS_MAX { Ok(()) } else { Err(EngineError::EndingsOfUsers(USERS_MAX)) }
    }

    /// Add a name of a user for whom there is room.
    pub fn add(&mut self, user: &str, name: &str, now_ms: u64) {
        let key = self.hasher.hash_one(name);
        match self.by_user.get_mut(user) {
            Some(names) => names.add(key, now_ms),
            None => self.by_user.entry(user.to_owned()).or_default().add(key, now_ms),
        }
    }

    pub fn has(&mut self, user: &str, name: &str, now_ms: u64) -> bool {
        let Some(names) = self.by_user.get_mut(user) else { return false };
        names.drop_old(now_ms);
        let has = names.keys.contains(&self.hasher.hash_one(name));
        if names.keys.is_empty() {
            self.by_user.remove(user);
        }
        has
    }
}

impl OfUser {
    fn add(&mut self, key: u64, now_ms: u64) {
        self.drop_old(now_ms);
        if self.keys.insert(key) {
            self.by_time.push_back((now_ms, key));
        }
        while self.by_time.len() > KEPT_MAX {
            self.drop_first();
        }
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
        assert!(endings.by_user.is_empty());
    }

    #[test]
    fn the_last_names_of_each_user_are_kept() {
        let mut endings = Endings::default();
        endings.add("bob", "0", 1);
        for number in 0..=KEPT_MAX {
            endings.add("anna", &number.to_string(), 1);
        }

        assert!(!endings.has("anna", "0", 1) && endings.has("anna", "1", 1) && endings.has("bob", "0", 1));
        let names = endings.by_user.get("anna");
        assert_eq!(names.map(|names| (names.keys.len(), names.by_time.len())), Some((KEPT_MAX, KEPT_MAX)));
    }

    #[test]
    fn one_user_more_waits_until_the_names_of_another_are_old() {
        let mut endings = Endings::default();
        for number in 0..USERS_MAX {
            endings.add(&number.to_string(), "job/0", if number == 7 { 1 } else { 2 });
        }

        assert!(endings.check_user("7", KEPT_MS).is_ok() && endings.check_user("anna", KEPT_MS).is_err());
        assert!(endings.check_user("anna", 1 + KEPT_MS).is_ok());

        assert!(endings.has("0", "job/0", 1 + KEPT_MS) && !endings.has("7", "job/0", 1 + KEPT_MS));
    }
}
