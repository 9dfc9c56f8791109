//! How one shard is replicated: who leads it, what is committed, and what a replica cuts from its log.
//!
//! A [`Replica`] is a state machine without sockets, disks and clocks: [`Replica::step`] takes an [`Event`] with the time and
//! returns [`Effect`]s. The broker and the simulation carry them out. It knows positions and epochs of the log, never its bytes.
//!
//! Safety comes from epochs and from the record of the shard that the coordinator stores, and holds if every timer is
//! wrong. Times only decide when a leader is suspected and when it stops delivering. `docs/decisions/0080` has the rules
//! and the argument; the modules say which of them they keep.
//!
//! Limits: a replica that lacks records which its leader has deleted needs a copy of the log, which the host makes; the host chooses on which
//! brokers replicas are.

mod campaign;
mod epochs;
mod event;
mod follower;
mod leader;
mod membership;
mod message;
mod moving;
mod record;
mod replica;
mod settings;
mod state;

pub use epochs::Epochs;
pub use event::{ChangeId, Effect, Event, Halt, Heard, Link, ReadId, Role};
pub use message::Message;
pub use moving::minimum_of;
pub use record::{Leader, Outcome, ShardRecord, Version};
pub use settings::Settings;
pub use state::{Replica, Stored};

/// A leader's term. Each belongs to one boot of one broker.
pub type Epoch = u64;
/// A position in the shard's log. Records begin and end at positions; nothing else is known about them.
pub type Position = u64;
/// The identity of a replica's disk. A blank disk has a new one.
pub type ReplicaId = u128;
/// The number of a broker in its cluster.
pub type BrokerId = u64;
/// One life of a broker's process, drawn at its start.
pub type Boot = u64;
/// Milliseconds of a monotonic clock. Clocks of brokers are never compared.
pub type Millis = u64;
