//! Round robin: circles of slots, each with a hand that moves on by one at every turn. A slot is in at most one of them.
//!
//! Entering, leaving and turning cost the same however many slots there are. It knows slots by their number only; their
//! owner decides which take part, and in which circle.

/// Ends a chain of links; no slot has this number.
const NOBODY: u32 = u32::MAX;

/// The links of all circles.
///
/// Invariant: following `next` from the hand of a circle visits every slot of it once and comes back, and `previous` is its
/// reverse.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    links: Vec<Link>,
}

/// One of the circles.
#[derive(Debug, Default)]
pub(crate) struct Circle {
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

impl Circle {
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

impl Ring {
    /// Whether the slot is in a circle.
    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.link(slot).next != NOBODY
    }

    /// The slot of a circle whose turn it is; the hand moves on to the next one.
    pub(crate) fn turn(&self, circle: &mut Circle) -> Option<u32> {
        let slot = circle.hand?;
        circle.hand = Some(self.link(slot).next);
        Some(slot)
    }

    /// Adds a slot as the last to have its turn. It changes nothing when it is in a circle already.
    pub(crate) fn enter(&mut self, circle: &mut Circle, slot: u32) {
        if self.contains(slot) || slot == NOBODY {
            return;
        }
        let needed = slot as usize + 1;
        if self.links.len() < needed {
            self.links.resize(needed, Link::OUTSIDE);
        }
        let next = circle.hand.unwrap_or(slot);
        let previous = if next == slot { slot } else { self.link(next).previous };
        self.set(slot, Link { previous, next });
        self.change(previous, |link| link.next = slot);
        self.change(next, |link| link.previous = slot);
        circle.hand = Some(next);
        circle.count += 1;
    }

    /// Removes a slot from the circle that has it; when it was its turn, the next one's comes.
    pub(crate) fn leave(&mut self, circle: &mut Circle, slot: u32) {
        if !self.contains(slot) {
            return;
        }
        let Link { previous, next } = self.link(slot);
        self.change(previous, |link| link.next = next);
        self.change(next, |link| link.previous = previous);
        self.set(slot, Link::OUTSIDE);
        circle.count -= 1;
        if circle.count == 0 {
            circle.hand = None;
        } else if circle.hand == Some(slot) {
            circle.hand = Some(next);
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
    /// When the invariant does not hold for these circles, or another one has slots.
    pub(crate) fn check_invariants<'a>(&self, circles: impl Iterator<Item = &'a Circle>) {
        let linked = self.links.iter().filter(|link| link.next != NOBODY).count();
        let mut count = 0;
        for circle in circles {
            count += circle.count;
            self.check_circle(circle);
        }
        assert_eq!(linked, count, "slots with links and the count differ");
    }

    fn check_circle(&self, circle: &Circle) {
        assert_eq!(circle.hand.is_none(), circle.count == 0, "the hand points at a member unless there are none");
        let Some(start) = circle.hand else { return };
        let mut slot = start;
        for step in 1..=circle.count {
            let next = self.link(slot).next;
            assert_eq!(self.link(next).previous, slot, "a link back does not lead back");
            assert_eq!(next == start, step == circle.count, "the circle closes after everybody was met");
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
        let (mut ring, mut circle) = (Ring::default(), Circle::default());
        for slot in [3, 1, 2] {
            ring.enter(&mut circle, slot);
        }
        assert_eq!(ring.turn(&mut circle), Some(3));

        ring.enter(&mut circle, 7);

        let turns: Vec<_> = (0..5).filter_map(|_| ring.turn(&mut circle)).collect();
        assert_eq!(turns, [1, 2, 3, 7, 1]);
    }

    #[test]
    fn an_empty_circle_has_no_turn() {
        let (mut ring, mut circle) = (Ring::default(), Circle::default());
        ring.enter(&mut circle, 0);
        ring.leave(&mut circle, 0);

        assert_eq!(ring.turn(&mut circle), None);
    }

    proptest! {
        #[test]
        fn circles_turn_like_rotated_lists(steps in prop::collection::vec((0u8..3, 0u32..8), 0..200)) {
            let mut ring = Ring::default();
            let mut circles = [Circle::default(), Circle::default()];
            let mut models = [VecDeque::<u32>::new(), VecDeque::new()];
            for (kind, slot) in steps {
                // Each slot belongs to one of the two.
                let (circle, model) = (&mut circles[slot as usize % 2], &mut models[slot as usize % 2]);
                match kind {
                    0 => {
                        ring.enter(circle, slot);
                        if !model.contains(&slot) {
                            model.push_back(slot);
                        }
                    }
                    1 => {
                        ring.leave(circle, slot);
                        model.retain(|&other| other != slot);
                    }
                    _ => {
                        prop_assert_eq!(ring.turn(circle), model.front().copied());
                        if let Some(first) = model.pop_front() {
                            model.push_back(first);
                        }
                    }
                }
                prop_assert_eq!(circle.count(), model.len());
                ring.check_invariants(circles.iter());
            }
        }
    }
}
