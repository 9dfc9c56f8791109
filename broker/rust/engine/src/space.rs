//! Whether publishers may store: one answer for the disk that all shards share.
//!
//! Invariants: a publisher checks it with one load. The answer changes when a shard found no space for a segment, and
//! when the fold thread checks; it changes back only when there is space for the next segment of every shard, so that
//! it does not oscillate. A watcher learns every answer that stays.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use penstock_log::Room;
use tokio::sync::watch;

use crate::notices::Notices;

/// Free space of the disk; see the module.
#[derive(Debug, Default)]
pub(crate) struct Space {
    is_full: AtomicBool,
    free: AtomicU64,
    needed: AtomicU64,
    /// The same answer, for tasks that wait for the next one.
    answers: watch::Sender<bool>,
    /// Held while the answer changes, so that each change is logged and sent once and in order.
    changing: Mutex<()>,
}

impl Space {
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// The answer, and the next ones.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.answers.subscribe()
    }

    /// The free space at the last check.
    pub fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    pub fn needed(&self) -> u64 {
        self.needed.load(Ordering::Relaxed)
    }

    /// Notes that a shard found no space for a segment.
    pub fn ran_out(&self, room: Room, notices: &Notices) {
        self.take_in(room, true, notices);
    }

    /// Updates the answer from the free and needed space of all shards.
    pub fn look(&self, rooms: impl Iterator<Item = Room>, notices: &Notices) {
        let Some(room) = rooms.reduce(worst) else { return };
        let Some(free) = room.free else { return };
        let floor = if self.is_full() { room.needed.saturating_add(room.next) } else { room.needed };
        self.take_in(room, free < floor, notices);
    }

    fn take_in(&self, room: Room, is_full: bool, notices: &Notices) {
        let Ok(_changing) = self.changing.lock() else { return };
        self.free.store(room.free.unwrap_or(0), Ordering::Relaxed);
        self.needed.store(room.needed, Ordering::Relaxed);
        if self.is_full.swap(is_full, Ordering::Relaxed) == is_full {
            return;
        }
        self.answers.send_replace(is_full);
        let (free, needed) = (room.free.unwrap_or(0), room.needed);
        if is_full {
            notices.warn(format!(
                "the disk is almost full: {free} bytes free, {needed} reserved; publishers are refused, consumers continue"
            ));
        } else {
            notices.tell(format!("the disk has free space again: {free} bytes; publishers can continue"));
        }
    }
}

fn worst(one: Room, other: Room) -> Room {
    let free = match (one.free, other.free) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    Room { free, needed: one.needed.max(other.needed), next: one.next.max(other.next) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(free: u64) -> Room {
        Room { free: Some(free), needed: 100, next: 20 }
    }

    #[test]
    fn the_answer_changes_once_each_way_and_not_back_at_the_same_place() {
        let (space, notices) = (Space::default(), Notices::default());
        let mut answers = Vec::new();
        for free in [150, 99, 98, 100, 119, 120, 110] {
            space.look([room(free), room(free + 5)].into_iter(), &notices);
            answers.push(space.is_full());
        }

        assert_eq!(answers, [false, true, true, true, true, false, false]);
        let told: Vec<bool> = notices.take().into_iter().map(|notice| notice.is_warning).collect();
        assert_eq!(told, [true, false]);
        assert_eq!((space.free(), space.needed()), (110, 100));
    }

    #[test]
    fn a_watcher_learns_each_change_and_nothing_between() {
        let (space, notices) = (Space::default(), Notices::default());
        let mut answers = space.watch();
        let mut learnt = Vec::new();
        for free in [150, 99, 98, 119, 120, 121] {
            space.look(std::iter::once(room(free)), &notices);
            learnt.push(answers.has_changed().is_ok_and(|is_so| is_so).then(|| *answers.borrow_and_update()));
        }

        assert_eq!(learnt, [None, Some(true), None, None, Some(false), None]);
        space.ran_out(room(119), &notices);
        assert!(*space.watch().borrow(), "one that comes later begins with the answer");
    }

    #[test]
    fn a_shard_without_room_for_a_segment_is_enough() {
        let (space, notices) = (Space::default(), Notices::default());

        space.ran_out(room(110), &notices);
        space.look([room(110)].into_iter(), &notices);

        assert!(space.is_full(), "there is still no room for the next segment");
        space.look([room(120)].into_iter(), &notices);
        assert!(!space.is_full());
    }

    #[test]
    fn a_disk_that_does_not_say_is_never_full() {
        let (space, notices) = (Space::default(), Notices::default());

        space.look([Room { free: None, needed: 100, next: 20 }].into_iter(), &notices);

        assert!(!space.is_full());
    }
}
