//! The times of replication, in milliseconds. No promise depends on them.

use crate::{Millis, Position};

/// Times and bounds of a shard's replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A leader sends a beat after this time.
    pub beat_every: Millis,
    /// A leader delivers while a majority answered a beat that it sent within this time.
    pub deliver_within: Millis,
    /// A follower suspects a leader that it has not heard for this time. A follower that lacks records and answers nothing for as long
    /// leaves the in-sync set.
    pub suspect_after: Millis,
    /// Followers with a higher rank wait this much longer, so that they rarely campaign together: an election takes less.
    pub stagger: Millis,
    /// Which followers have a high rank. Shards with the same number and the same brokers in sync rank them alike, so that one broker mostly
    /// leads all of them.
    pub order: u64,
    /// A follower that yields leaves the others so much more time.
    pub yield_for: Millis,
    /// A leader whose disk has taken nothing for this time hands over, and does not campaign until it goes on.
    pub stall_after: Millis,
    /// A follower leaves the in-sync set when it was not caught up for this time.
    pub shrink_after: Millis,
    /// A follower whose connection is broken leaves the in-sync set after this time.
    pub disconnected_after: Millis,
    /// A question to other brokers or to the coordinator is asked again after this time.
    pub ask_again_after: Millis,
    /// A hand-over is given up when the chosen replica has not taken over this long after it was asked to. Before, it is given up
    /// after `shrink_after`: within that time every record is committed, or its replica leaves the set.
    pub hand_over_within: Millis,
    /// At most this much is sent to a follower beyond what it acknowledged.
    pub window: Position,
    /// A leader tells the others at once when all of its log is committed, rather than with the next record or beat. For logs
    /// whose followers are waited for.
    pub tells_at_once: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            beat_every: 250,
            deliver_within: 1_500,
            suspect_after: 3_000,
            stagger: 400,
            order: 0,
            yield_for: 2_000,
            stall_after: 5_000,
            shrink_after: 5_000,
            disconnected_after: 500,
            ask_again_after: 500,
            hand_over_within: 1_000,
            window: 64 << 20,
            tells_at_once: false,
        }
    }
}
