//! Which subscriptions of a queue may take messages now, and in which order they are woken.
//!
//! Of the consumers with credit, those of the highest priority may take, in turn. A queue with a single active consumer has
//! one that may, until it leaves; then the one of the highest priority that came first becomes active. Subscriptions that
//! pull are no consumers: they always may. It does not know credit or messages.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::ring::{Circle, Ring};
use crate::slots::place;
use crate::subscription::{Rank, SubscriptionId};

/// How many different priorities the consumers of a queue may have at a time: finding the highest costs by their number.
pub const CONSUMER_PRIORITIES_MAX: usize = 256;

/// Consumers of one priority.
#[derive(Debug)]
struct Level {
    priority: i32,
    /// Consumers of this priority that wait and have credit.
    circle: Circle,
    /// Consumers of this priority with credit.
    willing_count: usize,
    count: usize,
}

/// The state of a queue with a single active consumer.
#[derive(Debug, Default)]
struct Single {
    active: Option<(SubscriptionId, i32)>,
    /// Consumers that stand by; the first becomes active next.
    others: BTreeMap<(Reverse<i32>, u64), SubscriptionId>,
    last_arrival: u64,
}

/// See the module.
///
/// Invariants: `levels` descends by priority, and each has consumers; a circle has those of its level that wait and have
/// credit.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    ring: Ring,
    levels: Vec<Level>,
    single: Option<Box<Single>>,
}

impl Turns {
    /// Whether one more subscription of this rank can enter.
    pub(crate) fn has_room_for(&self, rank: Rank) -> bool {
        let Rank::Consumer(priority) = rank else { return true };
        self.levels.len() < CONSUMER_PRIORITIES_MAX || self.levels.iter().any(|level| level.priority == priority)
    }

    pub(crate) fn enter(&mut self, id: SubscriptionId, rank: Rank) {
        let Rank::Consumer(priority) = rank else { return };
        let at = self.levels.partition_point(|level| level.priority > priority);
        match self.levels.get_mut(at).filter(|level| level.priority == priority) {
            Some(level) => level.count += 1,
            None => {
                let (circle, willing_count) = (Circle::default(), 0);
                self.levels.insert(at, Level { priority, circle, willing_count, count: 1 });
            }
        }
        if let Some(single) = &mut self.single {
            single.enter(id, priority);
        }
    }

    /// Removes a subscription that counted as willing or not.
    pub(crate) fn leave(&mut self, id: SubscriptionId, rank: Rank, was_willing: bool) {
        let Rank::Consumer(priority) = rank else { return };
        self.update(id, rank, (was_willing, false), false);
        if let Some(at) = self.levels.iter().position(|level| level.priority == priority)
            && let Some(level) = self.levels.get_mut(at)
        {
            level.count -= 1;
            if level.count == 0 {
                self.levels.remove(at);
            }
        }
        self.retire(id);
    }

    /// Lets the next consumer become active, when this one was; it stays a subscription.
    pub(crate) fn retire(&mut self, id: SubscriptionId) {
        if let Some(single) = &mut self.single {
            single.leave(id);
        }
    }

    /// Notes whether a subscription had and has credit, and whether it waits for its turn with credit.
    #[inline]
    pub(crate) fn update(&mut self, id: SubscriptionId, rank: Rank, (was, is): (bool, bool), waits: bool) {
        let Rank::Consumer(priority) = rank else { return };
        let Some(level) = self.levels.iter_mut().find(|level| level.priority == priority) else { return };
        level.willing_count = level.willing_count + usize::from(is) - usize::from(was);
        if waits {
            self.ring.enter(&mut level.circle, place(id));
        } else {
            self.ring.leave(&mut level.circle, place(id));
        }
    }

    /// How many of so many ready messages a subscription may take: a fair share, or none while others come first.
    #[inline]
    pub(crate) fn share(&self, id: SubscriptionId, rank: Rank, ready_count: u64) -> u64 {
        let Rank::Consumer(priority) = rank else { return ready_count };
        if let Some(single) = &self.single {
            return if single.is_active(id) { ready_count } else { 0 };
        }
        match self.top() {
            Some(level) if level.priority > priority => 0,
            Some(level) => (ready_count / level.willing_count.max(1) as u64).max(1),
            None => 0,
        }
    }

    /// The slot to wake next, which no longer waits.
    pub(crate) fn next(&mut self) -> Option<u32> {
        if let Some(single) = &self.single {
            let (id, priority) = single.active?;
            let slot = Some(place(id)).filter(|slot| self.ring.contains(*slot))?;
            let level = self.levels.iter_mut().find(|level| level.priority == priority)?;
            self.ring.leave(&mut level.circle, slot);
            return Some(slot);
        }
        let level = self.levels.iter_mut().find(|level| level.willing_count > 0)?;
        let slot = self.ring.turn(&mut level.circle)?;
        self.ring.leave(&mut level.circle, slot);
        Some(slot)
    }

    /// How many consumers have credit.
    pub(crate) fn willing_count(&self) -> usize {
        self.levels.iter().map(|level| level.willing_count).sum()
    }

    /// How many subscriptions wait and may take something.
    pub(crate) fn waiting_count(&self) -> usize {
        match &self.single {
            Some(single) => single.active.map_or(0, |(id, _)| usize::from(self.ring.contains(place(id)))),
            None => self.top().map_or(0, |level| level.circle.count()),
        }
    }

    /// Begins or ends to have a single active consumer; `consumers` are those there are, the oldest first.
    pub(crate) fn set_single(&mut self, is_single: bool, consumers: impl Iterator<Item = (SubscriptionId, Rank)>) {
        if is_single == self.single.is_some() {
            return;
        }
        self.single = is_single.then(|| {
            let mut single = Box::<Single>::default();
            for (id, rank) in consumers {
                if let Rank::Consumer(priority) = rank {
                    single.enter(id, priority);
                }
            }
            single
        });
    }

    /// The active one, of a queue with a single active consumer.
    pub(crate) fn active(&self) -> Option<SubscriptionId> {
        self.single.as_ref().and_then(|single| single.active).map(|(id, _)| id)
    }

    pub(crate) fn is_single(&self) -> bool {
        self.single.is_some()
    }

    fn top(&self) -> Option<&Level> {
        self.levels.iter().find(|level| level.willing_count > 0)
    }

    /// # Panics
    /// When an invariant does not hold. `willing` has the ranks of those with credit, and whether they wait.
    pub(crate) fn check_invariants(&self, willing: &[(SubscriptionId, Rank, bool)]) {
        self.ring.check_invariants(self.levels.iter().map(|level| &level.circle));
        assert!(self.levels.is_sorted_by(|one, other| one.priority > other.priority), "levels descend");
        for level in &self.levels {
            assert!(level.count > 0, "a level has consumers");
            let of_level = |rank: Rank| rank == Rank::Consumer(level.priority);
            let count = willing.iter().filter(|(_, rank, _)| of_level(*rank)).count();
            assert_eq!(level.willing_count, count, "the count of those with credit is wrong");
            let waiting = willing.iter().filter(|(_, rank, waits)| of_level(*rank) && *waits).count();
            assert_eq!(level.circle.count(), waiting, "who waits with credit has turns");
        }
        for (id, rank, waits) in willing {
            assert_eq!(
                self.ring.contains(place(*id)),
                *waits && *rank != Rank::Pull,
                "who waits with credit has turns"
            );
        }
    }
}

impl Single {
    fn enter(&mut self, id: SubscriptionId, priority: i32) {
        if self.active.is_none() {
            self.active = Some((id, priority));
            return;
        }
        self.last_arrival += 1;
        self.others.insert((Reverse(priority), self.last_arrival), id);
    }

    fn leave(&mut self, id: SubscriptionId) {
        if self.is_active(id) {
            let next = self.others.pop_first();
            self.active = next.map(|((Reverse(priority), _), id)| (id, priority));
        } else {
            self.others.retain(|_, other| *other != id);
        }
    }

    fn is_active(&self, id: SubscriptionId) -> bool {
        self.active.is_some_and(|(active, _)| active == id)
    }
}
