//! The replicas of one broker: they share connections to other brokers, threads that wait for disks, and one timer.
//!
//! [`Node::open`] opens a replica of a shard in a directory. The leader appends by [`Shard::publish`]; each publish ends as
//! committed or with an unknown outcome, which [`Events`] hears. A shard without queues has entries in its log:
//! [`Shard::append_entries`], and [`Shard::settle_entries`] once no broker needs them. Questions to the coordinator are values that [`Node::next_question`] hands out, and the answers come back
//! as values: this crate knows no coordinator. Brokers send each other messages of their own by [`Node::send`].
//!
//! [`Shard::lead`] opens the queues of a shard in an engine, for a term in which this broker leads it. Then they append to the log, and their
//! publishers wait for its commit. Followers have no queues; a thread of the node folds and compacts their logs. Streams can be read from each
//! replica in sync: [`Shard`] is a [`penstock_engine::StreamReplica`].
//!
//! Invariants: each replica has one lock, and its events and outputs keep their order under it. No lock of a replica is held while records
//! are read for a follower, while the disk syncs, or while records of a leader are checked.
//!
//! Limits: a tick looks at each replica every 100 ms, and a broker's threads for disks are shared by all of them.

mod backup;
mod bugs;
pub mod comparing;
mod copies;
mod copying;
mod disks;
mod entries;
mod folding;
mod leading;
mod links;
mod lock;
mod missed;
mod node;
mod outbox;
mod place;
mod progress;
mod questions;
mod readers;
mod reading;
mod reports;
mod scrubbing;
mod shard;
mod shards;
mod shortening;
mod timer;
#[cfg(test)]
mod told_follower;
mod traffic;
mod upkeep;
mod working;

pub use entries::{EntriesError, Entry, Standing};
pub use leading::LeadError;
pub use node::{Node, NodeError, NodeOptions};
pub use penstock_replication::{AppendError, Identity, OpenError, Published, Restoring, Token, prepare_restored};
pub use progress::Progress;
pub use questions::{Question, QuestionKind, ShardId};
pub use reports::{Report, Reports};
pub use shard::{Contents, Events, Shard};
