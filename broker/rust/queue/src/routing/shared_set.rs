//! A sorted set that is cheap to copy: copies share their entries, in parts, until one of them is changed.
//!
//! Most sets have one entry, so a small set is one list. Invariant: the entries of a list and of all parts ascend; parts
//! are not empty.

use std::sync::Arc;

/// A larger set has parts.
const LIST_MAX: usize = 64;
/// A larger part is split in two.
const PART_MAX: usize = 512;

#[derive(Clone, Debug)]
pub(super) enum SharedSet<T> {
    List(Vec<T>),
    Parts(Vec<Arc<Vec<T>>>),
}

impl<T> Default for SharedSet<T> {
    fn default() -> Self {
        SharedSet::List(Vec::new())
    }
}

impl<T: Copy + Ord> SharedSet<T> {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            SharedSet::List(list) => list.is_empty(),
            SharedSet::Parts(_) => false,
        }
    }

    /// Ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = T> + '_ {
        let (list, parts): (&[T], &[Arc<Vec<T>>]) = match self {
            SharedSet::List(list) => (list, &[]),
            SharedSet::Parts(parts) => (&[], parts),
        };
        list.iter().chain(parts.iter().flat_map(|part| part.iter())).copied()
    }

    pub(super) fn insert(&mut self, entry: T) {
        match self {
            SharedSet::List(list) => {
                insert_sorted(list, entry);
                if list.len() > LIST_MAX {
                    *self = SharedSet::Parts(vec![Arc::new(std::mem::take(list))]);
                }
            }
            SharedSet::Parts(parts) => {
                let at = part_of(parts, entry).min(parts.len().saturating_sub(1));
                let Some(part) = parts.get_mut(at) else { return };
                let part = Arc::make_mut(part);
                insert_sorted(part, entry);
                if part.len() > PART_MAX {
                    let upper = part.split_off(part.len() / 2);
                    parts.insert(at + 1, Arc::new(upper));
                }
            }
        }
    }

    pub(super) fn remove(&mut self, entry: T) {
        match self {
            SharedSet::List(list) => remove_sorted(list, entry),
            SharedSet::Parts(parts) => {
                let at = part_of(parts, entry);
                let Some(part) = parts.get_mut(at).filter(|part| part.binary_search(&entry).is_ok()) else { return };
                let part = Arc::make_mut(part);
                remove_sorted(part, entry);
                if part.is_empty() {
                    parts.remove(at);
                }
                if parts.is_empty() {
                    *self = SharedSet::default();
                }
            }
        }
    }
}

/// The first part that does not end below an entry: only this one can have it.
fn part_of<T: Copy + Ord>(parts: &[Arc<Vec<T>>], entry: T) -> usize {
    parts.partition_point(|part| part.last().is_some_and(|&last| last < entry))
}

fn insert_sorted<T: Copy + Ord>(list: &mut Vec<T>, entry: T) {
    if let Err(at) = list.binary_search(&entry) {
        list.insert(at, entry);
    }
}

fn remove_sorted<T: Copy + Ord>(list: &mut Vec<T>, entry: T) {
    if let Ok(at) = list.binary_search(&entry) {
        list.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Insertions, removals and copies; each copy keeps what it had.
        #[test]
        fn a_copy_does_not_see_later_changes(
            steps in prop::collection::vec((0..3_000_u32, 0..2_000_u32, 0..12_u8), 0..12),
        ) {
            let (mut set, mut model) = (SharedSet::default(), BTreeSet::new());
            let mut copies = Vec::new();
            for (first, count, kind) in steps {
                copies.push((set.clone(), model.clone()));
                for entry in (0..count).map(|place| (first + place * 7) % 3_000) {
                    if kind < 4 {
                        set.remove(entry);
                        model.remove(&entry);
                    } else {
                        set.insert(entry);
                        model.insert(entry);
                    }
                }
                prop_assert_eq!(set.is_empty(), model.is_empty());
            }
            copies.push((set, model));
            for (set, model) in copies {
                prop_assert!(set.iter().eq(model));
            }
        }
    }

    #[test]
    fn a_change_copies_a_part_only() {
        let mut set = SharedSet::default();
        (0..10_000_u32).for_each(|entry| set.insert(entry));
        let copy = set.clone();

        set.remove(7);

        let (SharedSet::Parts(parts), SharedSet::Parts(before)) = (&set, &copy) else { panic!("it is large") };
        let shared = parts.iter().zip(before).filter(|(one, other)| Arc::ptr_eq(one, other)).count();
        assert_eq!(shared, before.len() - 1);
        assert!(copy.iter().eq(0..10_000));
        assert!(set.iter().eq((0..7).chain(8..10_000)));
    }
}
