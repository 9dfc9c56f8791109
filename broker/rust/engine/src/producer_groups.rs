//! Groups of producers: the names `nightly/0`, `nightly/1` and so on belong to tasks of one program that writes batch after
//! batch. A task may have no rows in a batch, so the newest batch of a program is that of any of its names. Names of several users
//! never belong to one program.
//!
//! Invariant: a group exists as long as a standing has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustc_hash::FxHashMap;

/// The newest batch of a group; see the module.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// One more than it; 0 when there is none.
    next: AtomicU32,
}

impl Group {
    pub fn newest(&self) -> Option<u32> {
        self.next.load(Ordering::Relaxed).checked_sub(1)
    }

    pub fn stored(&self, batch: u32) {
        self.next.fetch_max(batch.saturating_add(1), Ordering::Relaxed);
    }
}

/// All groups of a shard, by their users, and by what is before the last `/` of their names.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    by_user: FxHashMap<Arc<str>, FxHashMap<String, Arc<Group>>>,
}

impl Groups {
    /// Return the group of the name of a user's producer, if the name ends with a task's number.
    pub fn of(&mut self, user: &Arc<str>, producer: &str) -> Option<Arc<Group>> {
        let name = group_of(producer)?;
        let groups = self.by_user.entry(Arc::clone(user)).or_default();
        if let Some(group) = groups.get(name) {
            return Some(Arc::clone(group));
        }
        Some(Arc::clone(groups.entry(name.to_owned()).or_default()))
    }

    /// Return the newest batch of the group of a user's producer.
    pub fn newest(&self, user: &str, producer: &str) -> Option<u32> {
        self.by_user.get(user)?.get(group_of(producer)?)?.newest()
    }

    /// Forget the group of a user's name that is gone, unless others have it.
    pub fn left(&mut self, user: &str, producer: &str) {
        let (Some(groups), Some(name)) = (self.by_user.get_mut(user), group_of(producer)) else { return };
        if groups.get(name).is_some_and(|group| Arc::strong_count(group) == 1) {
            groups.remove(name);
        }
        if groups.is_empty() {
            self.by_user.remove(user);
        }
    }
}

fn group_of(producer: &str) -> Option<&str> {
    let (group, number) = producer.rsplit_once('/')?;
    (!number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())).then_some(group)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tasks_share_their_newest_batch_until_the_last_is_gone() {
        let mut groups = Groups::default();
        let (anna, bob) = (Arc::from("anna"), Arc::from("bob"));
        let (first, second) = (groups.of(&anna, "a/0").unwrap(), groups.of(&anna, "a/1").unwrap());
        first.stored(7);
        first.stored(3);
        assert_eq!(groups.of(&anna, "b/0").unwrap().newest(), None);
        assert_eq!(groups.of(&bob, "a/0").unwrap().newest(), None);
        assert_eq!(
            (second.newest(), groups.newest("anna", "a/9"), groups.newest("bob", "a/9")),
            (Some(7), Some(7), None)
        );

        drop(first);
        groups.left("anna", "a/0");
        assert_eq!(groups.newest("anna", "a/0"), Some(7));
        drop(second);
        ["a/1", "b/0"].into_iter().for_each(|name| groups.left("anna", name));
        groups.left("bob", "a/0");

        assert!(groups.by_user.is_empty());
    }

    #[test]
    fn a_name_without_a_number_at_its_end_is_in_no_group() {
        for name in ["a", "a/", "a/b", "a/1b", "/x"] {
            assert!(group_of(name).is_none(), "{name}");
        }
        assert_eq!(group_of("a/b/12"), Some("a/b"));
    }
}
