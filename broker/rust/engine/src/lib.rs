//! A shard: one log with its queues behind one lock, a routing table, and the threads that sync and fold.
//!
//! Publish, take and settle come in batches and hold the shard's lock for one batch: nothing waits for a sync, a client
//! or Python while it holds it, and messages are routed before it. The engine knows numbers and bytes: no protocol, user or policy.
//!
//! A file uses only files of the groups before its own, and files of its own group without a circle:
//!
//! 1. values, which know no shard: `aging`, `alarms`, `assigned`, `clock`, `counters`, `corruption`, `credit`, `dead_letters`, `decision`, `delivery_mark`, `error`, `fair_keys`, `fold_queue`, `fold_turns`, `histories`, `identity`, `idle`, `lease`, `length`, `level`, `log_number`,
//!    `notices`, `other_logs`, `overdue`, `priorities`, `producer_endings`, `producer_groups`, `producers`, `producer_logs`, `producer_reach`, `publication`, `repetition`,
//!    `routes`, `runs`, `signal`, `space`, `stream`, `sync_turns`, `sync_pool`, `term`, `unused`, `watchers`, `windows`;
//! 2. the state under a shard's lock: `queue_entry`, `state`, `lane_adoption`, `fairness`, `delivered`, `waking`;
//! 3. `shard`: the lock, the position of the last sync, and the vhost's other logs;
//! 4. what a shard does, each file for one subject: names of producers (`producer_sessions`, `producer_homes`, `producer_complete`, `producer_removal`),
//!    publishing (`places`, `storing`, `passed_on`, `publish`), consuming (`holding`, `subscription`, `leasing`, `expiry`, `retrying`, `shortening`, `unused`, `sources`, `dead_lettering`), recognizing repetitions (`deduplication`), histories of exchanges (`giving`), reading streams
//!    (`cursor`, `reader`, `stream_replica`, `offsets`, `outlook`, `retention`), stages (`stage_reader`, `staging`);
//! 5. its life: `background` (the threads), `room_keeper`, `dedicated` and `shards` (other logs), `backup`, `topology`;
//! 6. `engine`: all shards of a process.
#![forbid(unsafe_code)]

mod aging;
mod alarms;
mod assigned;
mod background;
mod backup;
mod clock;
mod consumer_rules;
mod corruption;
mod counters;
mod credit;
mod cursor;
mod dead_lettering;
mod dead_letters;
mod decision;
mod dedicated;
mod deduplication;
mod delivered;
mod delivery_mark;
mod engine;
mod error;
mod expiry;
mod fair_keys;
mod fairness;
mod fold_queue;
mod fold_turns;
mod giving;
mod gone;
mod histories;
mod holding;
mod identity;
mod lane_adoption;
mod lease;
mod lease_ending;
mod lease_reader;
mod leasing;
mod length;
mod level;
mod log_number;
mod notices;
mod offsets;
mod other_logs;
mod outlook;
mod overdue;
mod passed_on;
mod peeking;
mod places;
mod priorities;
mod producer_complete;
mod producer_endings;
mod producer_groups;
mod producer_homes;
mod producer_logs;
mod producer_owners;
mod producer_reach;
mod producer_removal;
mod producer_sessions;
mod producers;
mod publication;
mod publish;
mod queue_entry;
mod reader;
mod repetition;
mod retention;
mod retrying;
mod room_keeper;
mod routes;
mod runs;
mod shard;
mod shards;
mod shortening;
mod signal;
mod sources;
mod space;
mod stage_reader;
mod staging;
mod state;
mod storing;
mod stream;
mod stream_replica;
mod subscription;
mod sync_pool;
mod sync_turns;
mod term;
mod topology;
mod unused;
mod waking;
mod watchers;
mod windows;

pub use aging::{Freshness, Moment};
pub use assigned::Assigned;
pub use backup::{Backup, FileOfBackup, OpenBackup};
pub use consumer_rules::ConsumerRules;
pub use corruption::Corruption;
pub use counters::{Counters, Metric};
pub use credit::Credit;
pub use cursor::{Cursor, Found, ReadFrom, first_of, offset_at, start_of, time_of};
pub use dead_letters::DeadLetters;
pub use decision::{StageTag, StagedOutcome};
pub use dedicated::DEDICATED_MAX;
pub use engine::{Engine, EngineOptions, NotLed};
pub use error::EngineError;
pub use gone::Absent;
pub use identity::Identity;
pub use lease::{LEASE_MESSAGES_MAX, LEASE_RANGES_MAX, LEASES_MAX, OWNER_BYTES_MAX, OWNERS_MAX};
pub use lease_reader::{LeasePart, LeaseReader};
pub use leasing::{LeaseLimits, LeaseOwnerStanding, LeaseStanding, Reserved};
pub use length::{LengthLimit, Overflow};
pub use level::{Level, QueueLevels};
pub use notices::{Notice, Notices};
pub use offsets::{GROUP_BYTES_MAX, GroupStanding, StreamStanding};
pub use outlook::StreamOutlook;
pub use peeking::Peeked;
pub use penstock_log::{
    Attributes, BATCH_MAX, CorruptRecord, DEADLINE_MS_MAX, LogError, MessageView, Payload, Position, Producer,
    Recovery, Repaired, Segment, SegmentReport, Target, inspect, inspect_shard,
};
pub use penstock_queue::{
    BackOff, Choosing, Destination, ExchangeKind, ExchangeSettings, HashOn, QueueError, QueueId, RetrySchedule,
    RetryType, Sequence, SequenceRange, Settle, Settling, Taken,
};
pub use places::{Places, Published};
pub use priorities::target_of;
pub use producer_logs::Sequences;
pub use producers::{PRODUCERS_MAX, ProducerSession, ProducerStanding};
pub use publication::{Fate, Publication};
pub use queue_entry::{QueueCounts, QueueSettings};
pub use reader::{Progress, ReadRange, ReadSettings, ReaderPlace, StreamReader, Turn};
pub use repetition::{BatchStanding, Repetition};
pub use routes::MESSAGES_AT_ONCE;
pub use runs::joined;
pub use shard::Shard;
pub use shards::SHARDS_MAX;
pub use signal::{ReadyList, Signal};
pub use staging::{StageStanding, StagedAttempt, StagedBatch};
pub use storing::transactions::{Committed, Transaction, TransactionSettlement};
pub use stream::StreamSettings;
pub use stream_replica::{ReplicaRead, StreamReplica};
pub use subscription::{Filled, Joining, Picked, Subscription, SubscriptionOptions, Unused};
pub use term::{Led, Replication};
pub use topology::RouteSettings;
pub use unused::{UnusedQueue, UnusedQueues};
pub use windows::Deduplication;
