//! The ids that a queue or an exchange has seen lately, by which it recognizes repetitions.
//!
//! Invariants: an id is there once; the oldest ids leave when there are too many; the same insertions have the same result
//! whenever they are made, so that a log can make them again. The time comes with each call. An id costs about 70 bytes.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// The most ids that a window may have.
pub const WINDOW_SIZE_MAX: usize = 1_000_000;

/// The expiry of an id that is forgotten only when newer ones need its place.
pub const NEVER: u64 = 0;

/// An id as windows have it: a digest of what the publisher sent.
pub type SeenId = [u8; 16];

/// Entries of ids that were inserted again are dropped once they are more than this and half of all.
const STALE_MIN: usize = 16;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Oldest first. An entry is stale when its id has a higher number.
    entries: VecDeque<(SeenId, u64)>,
    /// The number of the first entry.
    first: u64,
    /// The number of each id's entry.
    numbers: FxHashMap<SeenId, u64>,
}

impl Window {
    /// Whether an id was seen and is not forgotten at that time.
    #[must_use]
    pub fn contains(&self, id: &SeenId, now_ms: u64) -> bool {
        let expires_at_ms = self.numbers.get(id).and_then(|number| self.entry(*number)).map(|(_, expires)| expires);
        expires_at_ms.is_some_and(|at_ms| at_ms == NEVER || at_ms > now_ms)
    }

    /// Adds an id as the newest, and forgets the oldest ones beyond `size_max`.
    pub fn insert(&mut self, id: SeenId, expires_at_ms: u64, size_max: usize) {
        self.numbers.insert(id, self.first + self.entries.len() as u64);
        self.entries.push_back((id, expires_at_ms));
        self.limit(size_max);
        if self.entries.len() > 2 * self.numbers.len() + STALE_MIN {
            self.drop_stale();
        }
    }

    /// Forgets the oldest ids beyond a number.
    pub fn limit(&mut self, size_max: usize) {
        let size_max = size_max.min(WINDOW_SIZE_MAX);
        while let Some(&(id, _)) = self.entries.front() {
            let is_stale = self.numbers.get(&id) != Some(&self.first);
            if !is_stale && self.numbers.len() <= size_max {
                return;
            }
            if !is_stale {
                self.numbers.remove(&id);
            }
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// The number of ids, also of those whose time is over.
    #[must_use]
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// The ids with their expiries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (SeenId, u64)> + '_ {
        let numbered = (self.first..).zip(&self.entries);
        numbered.filter(|(number, (id, _))| self.numbers.get(id) == Some(number)).map(|(_, entry)| *entry)
    }

    fn entry(&self, number: u64) -> Option<(SeenId, u64)> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.entries.get(at).copied()
    }

    fn drop_stale(&mut self) {
        self.entries = self.iter().collect();
        self.first = 0;
        self.numbers = (0..).zip(&self.entries).map(|(number, (id, _))| (*id, number)).collect();
    }
}

impl PartialEq for Window {
    fn eq(&self, other: &Window) -> bool {
        self.count() == other.count() && self.iter().eq(other.iter())
    }
}

impl Eq for Window {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same without any speed.
    #[derive(Default)]
    struct Model(Vec<(SeenId, u64)>);

    impl Model {
        fn contains(&self, id: &SeenId, now_ms: u64) -> bool {
            self.0.iter().any(|(seen, expires)| seen == id && (*expires == NEVER || *expires > now_ms))
        }

        fn insert(&mut self, id: SeenId, expires_at_ms: u64, size_max: usize) {
            self.0.retain(|(seen, _)| *seen != id);
            self.0.push((id, expires_at_ms));
            self.limit(size_max);
        }

        fn limit(&mut self, size_max: usize) {
            self.0.drain(..self.0.len().saturating_sub(size_max));
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u64, usize),
        Limit(usize),
        Contains(u8, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (id, time, size) = (0..12_u8, 0..6_u64, 0..8_usize);
        prop_oneof![
            6 => (id.clone(), time.clone(), size.clone()).prop_map(|(id, at, size)| Step::Insert(id, at, size)),
            1 => size.prop_map(Step::Limit),
            3 => (id, time).prop_map(|(id, at)| Step::Contains(id, at)),
        ]
    }

    proptest! {
        #[test]
        fn it_has_the_newest_ids_as_a_list_has_them(steps in prop::collection::vec(step(), 1..300)) {
            let (mut window, mut model) = (Window::default(), Model::default());
            for step in steps {
                match step {
                    Step::Insert(id, at, size) => {
                        window.insert([id; 16], at, size);
                        model.insert([id; 16], at, size);
                    }
                    Step::Limit(size) => {
                        window.limit(size);
                        model.limit(size);
                    }
                    Step::Contains(id, now) => {
                        prop_assert_eq!(window.contains(&[id; 16], now), model.contains(&[id; 16], now));
                    }
                }
                prop_assert_eq!(window.iter().collect::<Vec<_>>(), model.0.clone());
                prop_assert_eq!(window.count(), model.0.len());
                prop_assert!(window.entries.len() <= 2 * window.count() + STALE_MIN);
            }
        }
    }

    #[test]
    fn an_id_that_comes_again_and_again_takes_one_place_behind_one_that_stays() {
        let mut window = Window::default();
        window.insert([1; 16], NEVER, 100);

        (1..10_000).for_each(|at_ms| window.insert([2; 16], at_ms, 100));

        assert_eq!(window.iter().collect::<Vec<_>>(), [([1; 16], NEVER), ([2; 16], 9_999)]);
        assert!(window.entries.len() <= 2 * 2 + STALE_MIN);
    }
}
