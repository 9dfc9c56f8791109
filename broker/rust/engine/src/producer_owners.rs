//! The users that own names of producers, and how many names each user has.
//!
//! What must stay true: a count is the number of names whose standing has that owner.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// A search for an idle name that found none is not repeated for so long: it looks at every name under the shard's lock.
const SEARCH_AGAIN_MS: u64 = 60_000;

/// One that found names remembers so many, so that a full table is not searched for each new name.
pub(crate) const FOUND_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    by_user: FxHashMap<Arc<str>, Owner>,
    /// Searches among the names of all users.
    all: Search,
}

#[derive(Debug, Default)]
struct Owner {
    name_count: usize,
    search: Search,
}

/// When a search for an idle name may find one, and more names that the last one found.
#[derive(Debug, Default)]
struct Search {
    not_before_ms: u64,
    /// The longest unused one last.
    found: Vec<String>,
}

impl Owners {
    /// Count one more name of a user, and return the user as standings keep it.
    pub fn add(&mut self, user: &str) -> Arc<str> {
        let user = match self.by_user.get_key_value(user) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(user),
        };
        self.by_user.entry(Arc::clone(&user)).or_default().name_count += 1;
        user
    }

    /// Count one name of a user less.
    pub fn remove(&mut self, user: &str) {
        let Some(owner) = self.by_user.get_mut(user) else { return };
        owner.name_count -= 1;
        if owner.name_count == 0 {
            self.by_user.remove(user);
        }
    }

    /// Return how many names a user has.
    pub fn name_count(&self, user: &str) -> usize {
        self.by_user.get(user).map_or(0, |owner| owner.name_count)
    }

    /// Say whether it is worth to search for an idle name, of one user or of all.
    pub fn may_search(&self, user: Option<&str>, now_ms: u64) -> bool {
        let search = match user {
            None => Some(&self.all),
            Some(user) => self.by_user.get(user).map(|owner| &owner.search),
        };
        search.is_none_or(|search| now_ms >= search.not_before_ms)
    }

    /// Return the next name that an earlier search found.
    pub fn next_found(&mut self, user: Option<&str>) -> Option<String> {
        self.search(user)?.found.pop()
    }

    /// Remember what a search found, the longest unused first, and that it found nothing.
    pub fn found(&mut self, user: Option<&str>, mut names: Vec<String>, now_ms: u64) {
        if names.is_empty() {
            return self.found_none(user, now_ms);
        }
        names.reverse();
        if let Some(search) = self.search(user) {
            search.found = names;
        }
    }

    fn search(&mut self, user: Option<&str>) -> Option<&mut Search> {
        match user {
            None => Some(&mut self.all),
            Some(user) => self.by_user.get_mut(user).map(|owner| &mut owner.search),
        }
    }

    /// Remember that a search found nothing.
    pub fn found_none(&mut self, user: Option<&str>, now_ms: u64) {
        if let Some(search) = self.search(user) {
            search.not_before_ms = now_ms.saturating_add(SEARCH_AGAIN_MS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Owners, SEARCH_AGAIN_MS};

    #[test]
    fn names_are_counted_by_user() {
        let mut owners = Owners::default();
        let (first, second) = (owners.add("anna"), owners.add("anna"));
        assert!(std::sync::Arc::ptr_eq(&first, &second));
        assert_eq!((owners.name_count("anna"), owners.name_count("bob")), (2, 0));

        owners.remove("anna");
        owners.remove("anna");
        owners.remove("anna");

        assert_eq!(owners.name_count("anna"), 0);
    }

    #[test]
    fn a_search_that_found_nothing_is_not_repeated_at_once() {
        let mut owners = Owners::default();
        owners.add("anna");
        owners.add("bob");

        owners.found_none(Some("anna"), 1_000);

        assert!(!owners.may_search(Some("anna"), 999 + SEARCH_AGAIN_MS));
        assert!(owners.may_search(Some("anna"), 1_000 + SEARCH_AGAIN_MS));
        assert!(owners.may_search(Some("bob"), 1_000) && owners.may_search(None, 1_000));
    }
}
