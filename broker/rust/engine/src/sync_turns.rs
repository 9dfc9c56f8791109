//! Whose turn it is to be synced: which of the waiting shards a free thread takes.
//!
//! Invariants: a shard is with one thread at most; virtual hosts with waiting shards take turns, and so do the shards of
//! one; a virtual host has one thread less than there may be, so that a disk on which all its syncs hang leaves one for
//! the others. If as many disks hang as there are threads, the rest waits.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

pub(crate) struct SyncTurns<W> {
    of_vhost_max: usize,
    vhosts: FxHashMap<u64, Vhost<W>>,
    /// The vhosts with waiting shards; the first is next.
    ring: VecDeque<u64>,
}

struct Vhost<W> {
    waiting: VecDeque<W>,
    taken: Vec<W>,
}

impl<W: Clone + PartialEq> Vhost<W> {
    /// The first waiting shard that a thread may take.
    fn next(&self, taken_max: usize) -> Option<usize> {
        let is_free = |shard: &W| !self.taken.contains(shard);
        if self.taken.len() < taken_max { self.waiting.iter().position(is_free) } else { None }
    }
}

impl<W: Clone + PartialEq> SyncTurns<W> {
    pub fn new(threads_max: usize) -> Self {
        let of_vhost_max = threads_max.saturating_sub(1).max(1);
        SyncTurns { of_vhost_max, vhosts: FxHashMap::default(), ring: VecDeque::new() }
    }

    /// Adds a shard that waits. One that is with a thread waits until that thread is done.
    pub fn add(&mut self, vhost: u64, shard: W) {
        let waiting = &mut self.vhosts.entry(vhost).or_insert_with(Vhost::new).waiting;
        if waiting.is_empty() {
            self.ring.push_back(vhost);
        }
        waiting.push_back(shard);
    }

    /// Whether a thread would find a shard to take.
    pub fn is_ready(&self) -> bool {
        let mut waiting = self.ring.iter().filter_map(|vhost| self.vhosts.get(vhost));
        waiting.any(|vhost| vhost.next(self.of_vhost_max).is_some())
    }

    /// Takes the next shard for a thread.
    pub fn take(&mut self) -> Option<(u64, W)> {
        for _ in 0..self.ring.len() {
            let number = self.ring.pop_front()?;
            let vhost = self.vhosts.get_mut(&number)?;
            let taken = vhost.next(self.of_vhost_max).and_then(|at| vhost.waiting.remove(at));
            vhost.taken.extend(taken.clone());
            if !vhost.waiting.is_empty() {
                self.ring.push_back(number);
            }
            if let Some(shard) = taken {
                return Some((number, shard));
            }
        }
        None
    }

    /// The thread that took a shard is done with it.
    pub fn done(&mut self, number: u64, shard: &W) {
        let Some(vhost) = self.vhosts.get_mut(&number) else { return };
        vhost.taken.retain(|taken| taken != shard);
        if vhost.taken.is_empty() && vhost.waiting.is_empty() {
            self.vhosts.remove(&number);
        }
    }
}

impl<W> Vhost<W> {
    fn new() -> Self {
        Vhost { waiting: VecDeque::new(), taken: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const THREADS: usize = 4;

    fn turns(waiting: &[(u64, u32)]) -> SyncTurns<u32> {
        let mut turns = SyncTurns::new(THREADS);
        waiting.iter().for_each(|&(vhost, shard)| turns.add(vhost, shard));
        turns
    }

    fn take_all(turns: &mut SyncTurns<u32>) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| turns.take()).collect()
    }

    #[test]
    fn virtual_hosts_take_turns_however_many_shards_wait() {
        let mut turns = turns(&[(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (3, 31)]);

        let mut taken = Vec::new();
        while let Some((vhost, shard)) = turns.take() {
            turns.done(vhost, &shard);
            taken.push(shard);
        }

        assert_eq!(taken, [10, 20, 30, 11, 31, 12]);
    }

    #[test]
    fn a_virtual_host_leaves_a_thread_for_the_others() {
        let mut turns = turns(&[(1, 10), (1, 11), (1, 12), (1, 13)]);
        assert_eq!(take_all(&mut turns), [(1, 10), (1, 11), (1, 12)]);
        assert!(!turns.is_ready());

        turns.add(2, 20);

        assert!(turns.is_ready());
        assert_eq!(take_all(&mut turns), [(2, 20)]);
        turns.done(1, &11);
        assert_eq!(take_all(&mut turns), [(1, 13)]);
    }

    #[test]
    fn a_shard_that_is_being_synced_waits_for_the_end_and_holds_up_no_other() {
        let mut turns = turns(&[(1, 10)]);
        assert_eq!(turns.take(), Some((1, 10)));

        turns.add(1, 10);
        assert!(!turns.is_ready());
        turns.add(1, 11);

        assert_eq!(take_all(&mut turns), [(1, 11)]);
        turns.done(1, &10);
        assert_eq!(take_all(&mut turns), [(1, 10)]);
    }

    proptest! {
        /// A shard waits at most once, as its own flag ensures, and no thread takes what another has.
        #[test]
        fn every_shard_gets_its_turn_and_none_two_threads(
            steps in prop::collection::vec((0..4_u64, 0..5_u32, 0..3_u8), 0..200),
        ) {
            let mut turns = SyncTurns::new(THREADS);
            let (mut waiting, mut taken) = (BTreeSet::new(), BTreeSet::new());
            for (vhost, number, kind) in steps {
                let shard = vhost as u32 * 10 + number;
                match kind {
                    0 if waiting.insert((vhost, shard)) => turns.add(vhost, shard),
                    1 if taken.len() < THREADS => {
                        let is_ready = turns.is_ready();
                        let found = turns.take();
                        prop_assert_eq!(found.is_some(), is_ready);
                        if let Some(found) = found {
                            prop_assert!(waiting.remove(&found));
                            prop_assert!(taken.insert(found));
                            prop_assert!(taken.iter().filter(|(vhost, _)| *vhost == found.0).count() < THREADS);
                        }
                    }
                    _ => {
                        if let Some(done) = taken.pop_first() {
                            turns.done(done.0, &done.1);
                        }
                    }
                }
                let could_run = |&&(vhost, shard): &&(u64, u32)| {
                    !taken.contains(&(vhost, shard)) && taken.iter().filter(|(of, _)| *of == vhost).count() < THREADS - 1
                };
                prop_assert_eq!(turns.is_ready(), waiting.iter().any(|one| could_run(&one)));
            }
            taken.iter().for_each(|(vhost, shard)| turns.done(*vhost, shard));
            while let Some((vhost, shard)) = turns.take() {
                turns.done(vhost, &shard);
                prop_assert!(waiting.remove(&(vhost, shard)));
            }
            prop_assert!(waiting.is_empty() && turns.vhosts.is_empty());
        }
    }
}
