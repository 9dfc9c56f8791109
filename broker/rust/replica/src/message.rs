//! Messages between the replicas of a shard. Each has the epoch that it belongs to.

use crate::{Epoch, Epochs, Millis, Position, ReplicaId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A leader is there. `sent` is its own clock, which the answer repeats; `session` is that of the last
    /// [`Message::Hello`] of the receiver's broker, or 0.
    Beat {
        epoch: Epoch,
        high_watermark: Position,
        sent: Millis,
        session: u64,
    },
    BeatAnswer {
        epoch: Epoch,
        sent: Millis,
    },
    /// A follower asks a leader where their logs agree. `session` tells the answer from earlier ones.
    Hello {
        epoch: Epoch,
        replica: ReplicaId,
        session: u64,
        epochs: Epochs,
        end: Position,
    },
    /// The logs are equal up to a position; the follower cuts what it has above it.
    Welcome {
        epoch: Epoch,
        session: u64,
        equal_until: Position,
        high_watermark: Position,
    },
    /// Records of one epoch, `of`, from one position to another. Their bytes travel beside the message.
    Append {
        epoch: Epoch,
        after: Position,
        until: Position,
        of: Epoch,
        high_watermark: Position,
    },
    /// The follower's log equals the leader's up to a position, and that much is on its disk.
    Acknowledge {
        epoch: Epoch,
        replica: ReplicaId,
        session: u64,
        position: Position,
    },
    /// The receiver's epoch is over; a replica has promised this one.
    Fenced {
        epoch: Epoch,
    },
    /// Does the receiver miss the leader, too? The answer repeats the number.
    PreVote {
        epoch: Epoch,
        question: u64,
    },
    PreVoteAnswer {
        epoch: Epoch,
        question: u64,
        agrees: bool,
    },
    /// The leader hands over: the receiver campaigns at once.
    TakeOver {
        epoch: Epoch,
    },
}

impl Message {
    /// The epoch of a message of a leader, which followers promise to before they take it.
    #[must_use]
    pub(crate) fn leader_epoch(&self) -> Option<Epoch> {
        match *self {
            Message::Beat { epoch, .. }
            | Message::Welcome { epoch, .. }
            | Message::Append { epoch, .. }
            | Message::TakeOver { epoch } => Some(epoch),
            _ => None,
        }
    }
}
