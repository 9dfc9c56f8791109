//! The log of a shard: records in memory-mapped segments, directories, checkpoints made by folding, recovery, group
//! commit. See `docs/format.md` for the formats.
//!
//! The owner holds a [`Log`] behind its lock. Long work comes in three steps, `begin_*` (under the lock), `perform`
//! (without it), `finish_*` (under it): [`SyncTicket`], [`FoldTicket`] and [`CompactionTicket`]. Messages are located
//! under the lock and read after it, through the [`Segment`] that [`Log::locate`] returns.
#![deny(unsafe_code)]

mod active;
mod ahead;
mod backup;
mod backup_reader;
mod batches;
mod catalog;
mod checkpoint;
mod checksums;
mod compaction;
mod contents;
mod copied;
mod corruption;
mod cut;
mod deadlines;
mod directory;
mod disk;
mod encode;
mod epochs;
mod error;
mod extent;
mod fold;
mod fold_ticket;
mod format;
mod fresh;
#[cfg(feature = "fuzz")]
#[allow(clippy::expect_used)]
pub mod fuzz;
mod gap;
mod header;
mod index;
mod index_file;
mod inspect;
mod kept;
mod live_segments;
mod log;
mod lost_files;
mod manifest;
#[allow(unsafe_code)]
mod map;
pub mod marks;
mod names;
mod orphans;
mod record;
mod record_reader;
mod records;
mod recovery;
mod repair;
mod resync;
mod rewriting;
mod scrubbing;
mod segment;
mod segment_header;
pub mod settled_blocks;
mod skipped;
mod state_ticket;
mod sync;
mod synced_file;
mod windows;

pub use backup::BackupTicket;
pub use backup_reader::{BackupFile, BackupReader};
pub use batches::{
    BATCH_MAX, BATCHES_MAX, BATCHES_OF_ALL_MAX, Batches, ProducerBatches, RowDigest, RowsDigest, StoredBatch,
    batch_and_row, sequence_in,
};
pub use checksums::{ChecksumTicket, ListTicket, Listed};
pub use compaction::{Compacted, CompactionTicket};
pub use copied::{CopiedLog, copied_order};
pub use corruption::Quarantined;
pub use deadlines::{DEADLINE_MS_MAX, Deadline, DeadlineKind, REFUSED_AT_MS};
pub use disk::{Disk, FaultyDisk, RealDisk, Space, is_full};
pub use encode::{EnvelopeSizes, Operation, Payload, Settlement};
pub use epochs::Epochs;
pub use error::{Corruption, KeptRecords, LogError, Missing};
pub use extent::{Extent, ExtentTicket};
pub use fold::{FoldState, FoldedQueue, RAISE};
pub use fold_ticket::{FoldTicket, Folded, Retired};
pub use format::{Coding, Format};
pub use inspect::{CorruptRecord, SegmentReport, inspect, inspect_shard};
pub use kept::Kept;
pub use log::{DeadlineTicket, DeadlinesRead, Log, LogOptions, LogStats, Opened, Passed, Portion, Room};
pub use record::{
    Attributes, Begun, DecodeError, Decoded, ENVELOPE_HEADS_BYTES_MAX, ENVELOPE_RANGES_MAX, ENVELOPE_RECORDS_MAX,
    ENVELOPE_TARGETS_MAX, EnvelopeView, EpochView, MarkView, MessageView, Outcome, Position, Producer, RANGES_MAX,
    RECORD_BYTES_MAX, Record, SettleView, TARGETS_MAX, Target, decode_record,
};
pub use records::{CheckedRecords, Records, RecordsTicket};
pub use recovery::Recovery;
pub use repair::{Repaired, repair};
pub use scrubbing::{CorruptAt, ScrubPlace, ScrubTicket};
pub use segment::{Located, Segment};
pub use state_ticket::StateTicket;
pub use sync::{SyncTicket, Synced};
pub use windows::seen_value;
