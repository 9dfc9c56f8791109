//! Checks of the disk space, which the thread that frees it makes.
//!
//! Invariants: while the disk is full, each check is of all logs, and frees what it can. Else it is of some of them in turns, and
//! what the others need is known from their last turn: a log that finds no space says so itself, and 10,000 idle ones cost
//! little.

use std::sync::Arc;

use penstock_log::Room;

use crate::notices::Notices;
use crate::shard::Shard;
use crate::space::Space;

/// Logs that are checked at once.
const AT_ONCE: usize = 64;

/// See the module.
pub(crate) struct RoomKeeper {
    space: Arc<Space>,
    notices: Arc<Notices>,
    turns: Turns,
}

impl RoomKeeper {
    pub fn new(space: Arc<Space>, notices: Arc<Notices>) -> RoomKeeper {
        RoomKeeper { space, notices, turns: Turns::default() }
    }

    pub fn is_full(&self) -> bool {
        self.space.is_full()
    }

    /// Checks the space for these logs, and frees some when there is too little.
    pub fn look(&mut self, open: &[Arc<Shard>]) {
        let is_full = self.is_full();
        if is_full {
            for shard in open {
                match shard.make_room() {
                    // Another shard or program may free the missing space.
                    Err(error) if !error.is_full() => shard.stop(&error.to_string()),
                    _ => {}
                }
            }
        }
        let at_once = if is_full { open.len() } else { AT_ONCE };
        let rooms = self.turns.next(open.len(), at_once, |at| open.get(at).and_then(|shard| shard.room()));
        self.space.look(rooms.into_iter(), &self.notices);
    }
}

/// Whose turn it is.
#[derive(Default)]
struct Turns {
    next: usize,
    /// The space that logs need whose turn in this round is over, and that all of them needed in the round before.
    needs: Option<Room>,
    needs_before: Option<Room>,
}

impl Turns {
    /// The space that the next so many of all need, and what the others needed.
    fn next(&mut self, count: usize, at_once: usize, room: impl Fn(usize) -> Option<Room>) -> Vec<Room> {
        let begin = if at_once < count && self.next < count { self.next } else { 0 };
        if begin == 0 {
            (self.needs_before, self.needs) = (self.needs.take(), None);
        }
        let end = begin.saturating_add(at_once).min(count);
        self.next = end;
        let mut rooms: Vec<Room> = (begin..end).filter_map(room).collect();
        let needs = |before: Option<Room>, one: &Room| {
            let (needed, next) = before.map_or((0, 0), |before| (before.needed, before.next));
            // How much is free is known anew each time.
            Some(Room { free: None, needed: needed.max(one.needed), next: next.max(one.next) })
        };
        self.needs = rooms.iter().fold(self.needs, needs);
        let is_whole = begin == 0 && end == count;
        rooms.extend(self.needs.into_iter().chain(self.needs_before).filter(|_| !is_whole));
        rooms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(at: usize) -> Option<Room> {
        Some(Room { free: Some(1000 + at as u64), needed: at as u64, next: 1 })
    }

    fn needed(rooms: &[Room]) -> (usize, u64) {
        (
            rooms.iter().filter(|room| room.free.is_some()).count(),
            rooms.iter().map(|room| room.needed).fold(0, u64::max),
        )
    }

    /// All of them were checked twice a second.
    #[test]
    fn many_logs_are_checked_in_turns_and_what_the_others_need_is_known() {
        let mut turns = Turns::default();

        let looks = [(); 4].map(|()| needed(&turns.next(10, 4, room)));

        assert_eq!(looks, [(4, 3), (4, 7), (2, 9), (4, 9)]);
        // Those that needed most are gone.
        let looks = [(); 5].map(|()| needed(&turns.next(4, 4, room)));
        assert_eq!(looks[4], (4, 3));
    }

    #[test]
    fn few_logs_and_all_of_a_full_disk_are_checked_each_time() {
        let mut turns = Turns::default();

        for _ in 0..3 {
            assert_eq!(needed(&turns.next(4, 64, room)), (4, 3));
        }
        assert_eq!(needed(&turns.next(100, 100, room)), (100, 99));
        assert_eq!(needed(&turns.next(0, 64, room)).0, 0);
    }
}
