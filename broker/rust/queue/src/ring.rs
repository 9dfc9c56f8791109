//! Round robin: a circle of slots, each at most once, with a hand that moves on by one at every turn.
//!
//! Entering, leaving and turning cost the same however many slots there are. It knows slots by their number only; their
//! owner decides which take part.

/// Ends a chain of links; no slot has this number.
const NOBODY: u32 = u32::MAX;

/// Invariant: following `next` from the hand visits every slot once and comes back, and `previous` is its reverse.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    links: Vec<Link>,
    hand: Option<u32>,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
}

impl Link {
    const OUTSIDE: Link = Link { previous: NOBODY, next: NOBODY };
}

impl Ring {
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.link(slot).next != NOBODY
    }

    /// The slot whose turn it is; the hand moves on to the next one.
    pub(crate) fn turn(&mut self) -> Option<u32> {
        let slot = self.hand?;
        self.hand = Some(self.link(slot).next);
        Some(slot)
    }

    /// Adds a slot as the last to have its turn. It changes nothing when it is there already.
    pub(crate) fn enter(&mut self, slot: u32) {
        if self.contains(slot) || slot == NOBODY {
            return;
        }
        let needed = slot as usize + 1;
        if self.links.len() < needed {
            self.links.resize(needed, Link::OUTSIDE);
        }
        let next = self.hand.unwrap_or(slot);
        let previous = if next == slot { slot } else { self.link(next).previous };
        self.set(slot, Link { previous, next });
        self.change(previous, |link| link.next = slot);
        self.change(next, |link| link.previous = slot);
        self.hand = Some(next);
        self.count += 1;
    }

    /// Removes a slot; when it was its turn, the next one's comes.
    pub(crate) fn leave(&mut self, slot: u32) {
        if !self.contains(slot) {
            return;
        }
        let Link { previous, next } = self.link(slot);
        self.change(previous, |link| link.next = next);
        self.change(next, |link| link.previous = previous);
        self.set(slot, Link::OUTSIDE);
        self.count -= 1;
        if self.count == 0 {
            self.hand = None;
        } else if self.hand == Some(slot) {
            self.hand = Some(next);
        }
    }

    fn link(&self, slot: u32) -> Link {
        self.links.get(slot as usize).copied().unwrap_or(Link::OUTSIDE)
    }

    fn set(&mut self, slot: u32, link: Link) {
        self.change(slot, |old| *old = link);
    }

    fn change(&mut self, slot: u32, change: impl FnOnce(&mut Link)) {
        if let Some(link) = self.links.get_mut(slot as usize) {
            change(link);
        }
    }

    /// # Panics
    /// When the invariant does not hold.
    pub(crate) fn check_invariants(&self) {
        let linked = self.links.iter().filter(|link| link.next != NOBODY).count();
        assert_eq!(linked, self.count, "slots with links and the count differ");
        assert_eq!(self.hand.is_none(), self.count == 0, "the hand points at somebody if anybody takes part");
        let Some(start) = self.hand else { return };
        let mut slot = start;
        for step in 1..=self.count {
            let next = self.link(slot).next;
            assert_eq!(self.link(next).previous, slot, "a link back does not lead back");
            assert_eq!(next == start, step == self.count, "the circle closes after everybody was met");
            slot = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_slot_that_enters_is_the_last_to_have_its_turn() {
        let mut ring = Ring::default();
        for slot in [3, 1, 2] {
            ring.enter(slot);
        }
        assert_eq!(ring.turn(), Some(3));

        ring.enter(7);

        let turns: Vec<_> = (0..5).filter_map(|_| ring.turn()).collect();
        assert_eq!(turns, [1, 2, 3, 7, 1]);
    }

    #[test]
    fn an_empty_ring_has_no_turn() {
        let mut ring = Ring::default();
        ring.enter(0);
        ring.leave(0);

        assert_eq!(ring.turn(), None);
    }

    proptest! {
        #[test]
        fn a_ring_turns_like_a_rotated_list(steps in prop::collection::vec((0u8..3, 0u32..8), 0..200)) {
            let mut ring = Ring::default();
            let mut model: VecDeque<u32> = VecDeque::new();
            for (kind, slot) in steps {
                match kind {
                    0 => {
                        ring.enter(slot);
                        if !model.contains(&slot) {
                            model.push_back(slot);
                        }
                    }
                    1 => {
                        ring.leave(slot);
                        model.retain(|&other| other != slot);
                    }
                    _ => {
                        prop_assert_eq!(ring.turn(), model.front().copied());
                        if let Some(first) = model.pop_front() {
                            model.push_back(first);
                        }
                    }
                }
                ring.check_invariants();
                prop_assert_eq!(ring.count(), model.len());
            }
        }
    }
}
