//! Events that a replica takes, and effects that it asks for.

use std::collections::BTreeSet;

use crate::{BrokerId, Epoch, Message, Outcome, Position, ReplicaId, ShardRecord, Version};

/// The number of a question to the coordinator, so that a late answer is known as one.
pub type ReadId = u64;
/// The number of a request to change the record, so that the outcome of an earlier one is known as such.
pub type ChangeId = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time has passed. Comes at least every 100 ms.
    Tick,
    /// The connection to a broker changed.
    Link(BrokerId, Link),
    /// The coordinator says that a broker's session has ended, or that it is alive again.
    Session {
        broker: BrokerId,
        is_alive: bool,
    },
    Received {
        from: BrokerId,
        message: Message,
    },
    /// The shard's record: the answer to [`Effect::Read`] has its number; one that was watched has none.
    Read {
        read: Option<ReadId>,
        record: Option<(ShardRecord, Version)>,
    },
    /// The outcome of [`Effect::Change`] with this number.
    Answered {
        change: ChangeId,
        outcome: Outcome,
    },
    /// [`Effect::Promise`] is on the disk.
    Promised(Epoch),
    /// The leader's log ends here now.
    Appended(Position),
    /// [`Effect::Replicate`] sent this far, at least the record after which it was to begin.
    Sent {
        to: ReplicaId,
        until: Position,
    },
    /// Everything below is on the disk, by a sync that began after the log was last cut.
    Synced(Position),
    /// [`Effect::Truncate`] is done, and on the disk.
    Truncated(Position),
    /// A write or a sync failed: the replica stops.
    DiskFailed,
    /// An operator wants another replica to lead.
    HandOver(ReplicaId),
    /// Whether this replica leaves it to others to lead, as far as they do so soon.
    Yield(bool),
    /// The brokers that are to have a replica. A leader brings in those that lack one, and takes the others out.
    Placed(BTreeSet<BrokerId>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Up,
    /// It broke, and dialling again has not been answered.
    Down,
    /// It broke, and dialling again is refused: the process is gone.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Send {
        to: BrokerId,
        message: Message,
    },
    /// Send records after a position, as many as fit into one [`crate::Replica::append_message`], none of them above `until`;
    /// answered by [`Event::Sent`], also where the connection is broken.
    Replicate {
        to: ReplicaId,
        broker: BrokerId,
        /// That this replica leads.
        epoch: Epoch,
        after: Position,
        until: Position,
        of: Epoch,
    },
    /// Store that no epoch below is followed any more, and sync it; answered by [`Event::Promised`].
    Promise(Epoch),
    /// Append the record that begins an epoch; answered by [`Event::Appended`].
    Begin(Epoch),
    /// Append the bytes that came with the [`Message::Append`] of this step; with a new epoch if one begins.
    Write {
        after: Position,
        until: Position,
        begins: Option<Epoch>,
    },
    /// Cut the log; answered by [`Event::Truncated`].
    Truncate(Position),
    /// Ask the coordinator for the record, past all caches; answered by [`Event::Read`], or not at all.
    Read(ReadId),
    /// Change the record if it has this version; answered by [`Event::Answered`].
    Change {
        change: ChangeId,
        base: Version,
        record: ShardRecord,
    },
    /// Everything below is committed.
    Commit(Position),
    Role(Role),
}

/// The leader of an epoch, as its messages say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    pub epoch: Epoch,
    pub leader: BrokerId,
}

/// The broker's part in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes no publishes and delivers nothing.
    Follower {
        /// The leader that it heard, which the record may show later; `None` where it has heard none since it led, or started.
        of: Option<Heard>,
    },
    Leader {
        epoch: Epoch,
        /// Takes publishes; not during a hand-over.
        appends: bool,
        /// May deliver messages.
        delivers: bool,
    },
    /// Stopped until an operator acts.
    Halted(Halt),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The coordinator's record has an older epoch than this replica has promised, or is gone.
    CoordinatorWentBack,
    /// The leader would have this replica cut what it knows to be committed.
    CommittedWouldBeCut,
    DiskFailed,
}
