//! The shards whose folds wait, in turns.
//!
//! Invariant: each is there once. One with more to fold goes to the end, so that one whose publishers outrun its folds holds
//! up no other. A turn is the first of its series when the shard asked for it, as it does for each sealed segment: the limits of
//! streams are applied then, and not before each part of a long fold.

use std::collections::VecDeque;
use std::sync::Weak;

/// See the module.
pub(crate) struct FoldTurns<T>(VecDeque<Turn<T>>);

/// One fold.
pub(crate) struct Turn<T> {
    pub shard: Weak<T>,
    pub is_first: bool,
}

impl<T> Default for FoldTurns<T> {
    fn default() -> Self {
        FoldTurns(VecDeque::new())
    }
}

impl<T> FoldTurns<T> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a shard that asked for a fold.
    pub fn add(&mut self, shard: Weak<T>) {
        match self.0.iter_mut().find(|turn| turn.shard.ptr_eq(&shard)) {
            Some(turn) => turn.is_first = true,
            None => self.0.push_back(Turn { shard, is_first: true }),
        }
    }

    /// Adds a shard that was folded in part.
    pub fn go_on(&mut self, shard: Weak<T>) {
        if !self.0.iter().any(|turn| turn.shard.ptr_eq(&shard)) {
            self.0.push_back(Turn { shard, is_first: false });
        }
    }

    pub fn next(&mut self) -> Option<Turn<T>> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;

    fn next(turns: &mut FoldTurns<u32>) -> (u32, bool) {
        let Turn { shard, is_first } = turns.next().unwrap();
        (*shard.upgrade().unwrap(), is_first)
    }

    /// The limits of streams were applied before each part of a fold.
    #[test]
    fn a_series_of_folds_has_one_first_turn_until_the_shard_asks_again() {
        let [one, two] = [1, 2].map(Arc::new);
        let mut turns = FoldTurns::default();
        [&one, &two, &one].into_iter().for_each(|shard| turns.add(Arc::downgrade(shard)));

        assert_eq!(next(&mut turns), (1, true));
        turns.go_on(Arc::downgrade(&one));
        assert_eq!([next(&mut turns), next(&mut turns)], [(2, true), (1, false)]);

        turns.go_on(Arc::downgrade(&one));
        turns.add(Arc::downgrade(&one));
        assert_eq!(next(&mut turns), (1, true));
        assert!(turns.is_empty());
    }
}
