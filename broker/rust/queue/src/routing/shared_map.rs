//! A hash map that is cheap to copy: copies share their entries, in parts, until one of them is changed.
//!
//! A copy costs one counter for each part. A change copies one part if another copy has it too, and nothing otherwise.
//! Invariant: the number of parts is a power of two, or zero while the map is empty and never had an entry.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap};

/// Entries of a part on average, before there are more parts.
const PART_MAX: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct SharedMap<K, V> {
    parts: Vec<Arc<FxHashMap<K, V>>>,
    count: usize,
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        SharedMap { parts: Vec::new(), count: 0 }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> SharedMap<K, V> {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    pub(super) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.parts.get(index(self.parts.len(), key))?.get(key)
    }

    pub(super) fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let at = index(self.parts.len(), key);
        // A part that is not changed is not copied.
        let part = self.parts.get_mut(at).filter(|part| part.contains_key(key))?;
        Arc::make_mut(part).get_mut(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.count >= self.parts.len() * PART_MAX {
            self.spread((2 * self.parts.len()).max(1));
        }
        let at = index(self.parts.len(), &key);
        let Some(part) = self.parts.get_mut(at) else { return };
        self.count += usize::from(Arc::make_mut(part).insert(key, value).is_none());
    }

    pub(super) fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let at = index(self.parts.len(), key);
        let part = self.parts.get_mut(at).filter(|part| part.contains_key(key))?;
        let removed = Arc::make_mut(part).remove(key);
        self.count -= usize::from(removed.is_some());
        if self.parts.len() > 1 && self.count < self.parts.len() * PART_MAX / 8 {
            self.spread(self.parts.len() / 2);
        }
        removed
    }

    /// Distributes the entries over so many parts.
    fn spread(&mut self, parts: usize) {
        let mut spread: Vec<FxHashMap<K, V>> = (0..parts).map(|_| FxHashMap::default()).collect();
        for part in self.parts.drain(..) {
            for (key, value) in Arc::unwrap_or_clone(part) {
                if let Some(part) = spread.get_mut(index(parts, &key)) {
                    part.insert(key, value);
                }
            }
        }
        self.parts = spread.into_iter().map(Arc::new).collect();
    }
}

/// The part of a key. The map of a part uses the lowest and the highest bits of the same hash.
fn index<Q: Hash + ?Sized>(parts: usize, key: &Q) -> usize {
    if parts <= 1 { 0 } else { (FxBuildHasher.hash_one(key) >> 32) as usize & (parts - 1) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn entries(map: &SharedMap<u32, u32>) -> BTreeMap<u32, u32> {
        map.iter().map(|(&key, &value)| (key, value)).collect()
    }

    proptest! {
        /// Insertions, removals and copies; each copy keeps what it had.
        #[test]
        fn a_copy_does_not_see_later_changes(
            steps in prop::collection::vec((0..400_u32, any::<u32>(), 0..20_u8), 0..2_000), fewer in 0..400_u32,
        ) {
            let (mut map, mut model) = (SharedMap::default(), BTreeMap::new());
            let mut copies = Vec::new();
            let removals = (fewer..400).map(|key| (key, 0, 1));
            for (key, value, kind) in steps.into_iter().chain(removals) {
                match kind {
                    0 => copies.push((map.clone(), model.clone())),
                    1..6 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    6..8 => prop_assert_eq!(map.get_mut(&key), model.get_mut(&key)),
                    _ => {
                        map.insert(key, value);
                        model.insert(key, value);
                    }
                }
                prop_assert_eq!(map.get(&key), model.get(&key));
                prop_assert_eq!(map.is_empty(), model.is_empty());
            }
            copies.push((map, model));
            for (map, model) in copies {
                prop_assert_eq!(entries(&map), model);
            }
        }
    }

    #[test]
    fn a_change_copies_a_part_only() {
        let mut map = SharedMap::default();
        (0..10_000_u32).for_each(|key| map.insert(key, key));
        let copy = map.clone();

        map.insert(7, 8);

        let shared = map.parts.iter().zip(&copy.parts).filter(|(one, other)| Arc::ptr_eq(one, other)).count();
        assert_eq!(shared, map.parts.len() - 1);
        assert!(map.parts.len() > 100 && map.parts.iter().all(|part| part.len() < 200), "the parts are small");
        assert_eq!((copy.get(&7), map.get(&7)), (Some(&7), Some(&8)));
    }
}
