//! A shard: one log with its queues and routing tables behind one lock, and the threads that sync and fold.
//!
//! Publish, take and settle come in batches and hold the shard's lock for one batch: nothing waits for a sync, a client
//! or Python while it holds it. The engine knows numbers and bytes: no protocol, user or policy.
#![forbid(unsafe_code)]

mod background;
mod backup;
mod clock;
mod counters;
mod damage;
mod decision;
mod dedicated;
mod delivered;
mod delivery_mark;
mod engine;
mod error;
mod lease;
mod lease_ending;
mod lease_reader;
mod leasing;
mod level;
mod notices;
mod offsets;
mod passed_on;
mod places;
mod producer_homes;
mod producer_owners;
mod producer_sessions;
mod producers;
mod publication;
mod publish;
mod queue_entry;
mod reader;
mod retention;
mod shard;
mod signal;
mod space;
mod stage_reader;
mod staging;
mod state;
mod stream;
mod subscription;
mod topology;
mod work_queues;

pub use backup::Backup;
pub use counters::{Counters, Metric};
pub use damage::Damage;
pub use decision::StageTag;
pub use dedicated::DEDICATED_MAX;
pub use engine::{Engine, EngineOptions};
pub use error::EngineError;
pub use lease::{LEASE_MESSAGES_MAX, LEASE_RANGES_MAX, LEASES_MAX, OWNER_BYTES_MAX, OWNERS_MAX};
pub use lease_reader::{LeasePart, LeaseReader};
pub use leasing::{LeaseLimits, LeaseOwnerStanding, LeaseStanding, Reserved};
pub use level::{Level, QueueLevels};
pub use notices::{Notice, Notices};
pub use offsets::{GROUP_BYTES_MAX, GroupStanding, StreamStanding};
pub use penstock_log::{
    DamagedRecord, LogError, MessageView, Payload, Position, Producer, Recovery, Repaired, Segment, SegmentReport,
    Target, inspect,
};
pub use penstock_queue::{Destination, ExchangeKind, QueueId, Sequence, SequenceRange, Settle, Settling, Taken};
pub use places::{Places, Published};
pub use producers::{PRODUCERS_MAX, ProducerSession, ProducerStanding};
pub use publication::{Fate, Publication};
pub use publish::MESSAGES_AT_ONCE;
pub use queue_entry::{QueueCounts, QueueSettings};
pub use reader::{Progress, ReadFrom, ReadRange, ReadSettings, ReaderPlace, StreamReader, Turn};
pub use shard::Shard;
pub use signal::Signal;
pub use staging::{StageStanding, StagedAttempt, StagedBatch, StagedOutcome};
pub use stream::StreamSettings;
pub use subscription::{Filled, Picked, Subscription, SubscriptionOptions, Unused};
pub use topology::RouteSettings;
