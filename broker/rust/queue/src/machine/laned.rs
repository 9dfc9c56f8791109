//! Operations for the lanes of a queue with priorities, or with keys that take turns.
//!
//! Each lane is a sequence of its own, which the log has under a number of its own.

use crate::ack_set::AckSet;
use crate::backlog::Backlog;
use crate::ids::Sequence;
use crate::machine::Queue;
use crate::settled::Settled;

impl Queue {
    /// Makes one more message ready in a lane, or stores it until it is released, and returns its sequence. A new lane begins
    /// with `first`.
    pub fn publish_in(&mut self, lane: u16, first: Sequence, body_bytes: u64, is_delayed: bool) -> Sequence {
        self.backlog.publish_in(lane, first, body_bytes, is_delayed)
    }

    /// Takes over the messages of a queue without subscriptions, which a start found under the number of a lane.
    pub fn put_lane(&mut self, lane: u16, found: Queue) {
        debug_assert_eq!(found.subscription_count(), 0, "a lane that is put for the first time has no consumers");
        self.backlog.put(lane, found.backlog.into_first().in_lane(lane));
    }

    /// Says how many priorities the lanes of each key are for, before the queue has lanes of keys.
    pub fn set_priorities(&mut self, count: u16) {
        self.backlog.set_priorities(count);
    }

    /// The lanes that have had messages, in the order in which they are taken; those of a priority take turns.
    #[must_use]
    pub fn lanes_in_order(&self) -> Vec<u16> {
        self.backlog.in_order()
    }

    /// Whether all messages that a lane ever had are settled.
    #[must_use]
    pub fn is_lane_settled(&self, lane: u16) -> bool {
        self.backlog.is_settled(lane)
    }

    /// The ready messages of a lane.
    #[must_use]
    pub fn ready_count_in(&self, lane: u16) -> u64 {
        self.backlog.get(lane).map_or(0, Backlog::count)
    }

    /// The lanes above the first that have had messages, ascending.
    pub fn lanes(&self) -> impl Iterator<Item = u16> + '_ {
        self.backlog.others().map(|(lane, _)| lane)
    }

    /// The sequence of the next message in a lane above the first, and the first one that was never taken there.
    pub fn ends_of_lanes(&self) -> impl Iterator<Item = (u16, Sequence, Sequence)> + '_ {
        self.backlog.others().map(|(lane, backlog)| (lane, backlog.next(), backlog.cursor()))
    }

    /// Messages of the lane below it may have been with a consumer before the start.
    #[must_use]
    pub fn perhaps_delivered_in(&self, lane: u16) -> Sequence {
        self.backlog.get(lane).map_or(Sequence(0), Backlog::perhaps_delivered_below)
    }

    /// The settled sequences of a lane, which must have had messages: others have those of an empty queue.
    #[must_use]
    pub fn settled_in(&self, lane: u16) -> &AckSet {
        self.backlog.get(lane).unwrap_or(self.backlog.first()).settled()
    }

    /// Settles every ready message of a lane, or the lowest of them in so many runs; unacked ones stay.
    pub fn purge_lane(&mut self, lane: u16, runs_max: usize) -> Settled {
        self.backlog.purge(lane, runs_max)
    }

    /// The number of ready messages of a lane that were taken before and came back, the slowest part of a purge.
    #[must_use]
    pub fn returned_count(&self, lane: u16) -> usize {
        self.backlog.get(lane).map_or(0, Backlog::returned_count)
    }

    /// Settles the first of those, at most so many. A purge must follow, which corrects the bytes of lost messages.
    pub fn purge_returned(&mut self, lane: u16, count_max: usize) -> Settled {
        self.backlog.purge_returned(lane, count_max)
    }
}
