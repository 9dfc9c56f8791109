//! Errors of a log, with the file and the place where known.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::is_full;
use crate::record::DecodeError;

/// The error of this crate. Messages name the thing, the rule and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is corrupt at byte {at}: {why}; run `penstock log verify` for details", path.display())]
    Corrupt { path: PathBuf, at: u64, why: Corruption },
    #[error("{} has format {found}, this version reads up to {supported}; start a newer version", path.display())]
    NewerFormat { path: PathBuf, found: u32, supported: u32 },
    #[error(
        "{} has {what} at byte {at} that version {} does not know; start the version that wrote it, or a newer one",
        path.display(), env!("CARGO_PKG_VERSION")
    )]
    Newer { path: PathBuf, at: u64, what: &'static str },
    #[error("{what} cannot be stored in format 1; let the broker write format 2")]
    NotInFormat { what: &'static str },
    #[error("a record of {bytes} bytes is more than the {bytes_max} that a log stores; send a smaller message")]
    RecordTooLarge { bytes: u64, bytes_max: u64 },
    #[error("{field} has {bytes} bytes, at most {bytes_max} can be stored")]
    FieldTooLong { field: &'static str, bytes: usize, bytes_max: usize },
    #[error("{count} {of} in one record, between 1 and {count_max} can be stored; split them over several")]
    CountOutOfBounds { of: &'static str, count: usize, count_max: usize },
    #[error("sequence {sequence} of queue {queue} does not follow {last}; numbers of a queue only ascend")]
    NotAscending { queue: u64, sequence: u64, last: u64 },
    #[error(
        "the disk of {} is almost full: {free} bytes free, {needed} reserved; \
         consume or delete messages, or make the disk larger",
        path.display()
    )]
    Full { path: PathBuf, free: u64, needed: u64 },
    #[error("an earlier write failed and its bytes still wait; nothing is appended until a write succeeds")]
    WriteBehind,
    #[error("no epoch has begun in the log in {} since it was opened or truncated; begin one before appending", path.display())]
    NoEpoch { path: PathBuf },
    #[error("epoch {epoch} cannot begin in the log in {}: epoch {newest} has begun", path.display())]
    OldEpoch { path: PathBuf, epoch: u64, newest: u64 },
    #[error("the log in {} cannot go on in epoch {epoch}: {newest} is the last one that has begun in it; begin epoch {epoch} instead", path.display())]
    OtherEpoch { path: PathBuf, epoch: u64, newest: u64 },
    #[error("the log in {} has no high watermark; open it as bounded to set one", path.display())]
    Unbounded { path: PathBuf },
    #[error("the high watermark of the log in {} cannot be {bound}; it goes from {from} up to the end at {end}", path.display())]
    BoundOutOfRange { path: PathBuf, bound: u64, from: u64, end: u64 },
    #[error("the high watermark of the log in {} cannot be {bound}: no record ends there, or one before it cannot be read", path.display())]
    BoundInRecord { path: PathBuf, bound: u64 },
    #[error("the log in {} cannot be truncated to {position}: {why}", path.display())]
    NotTruncated { path: PathBuf, position: u64, why: KeptRecords },
    #[error("records of another replica from {from} on cannot be appended to the log in {}, which ends at {end}", path.display())]
    NotCopied { path: PathBuf, from: u64, end: u64 },
    #[error("the log in {} is closed; open it again to append", path.display())]
    Closed { path: PathBuf },
    #[error("an earlier sync failed, so the log in {} is stopped; repair the disk, then restart the broker", path.display())]
    Stopped { path: PathBuf },
}

/// Why a log keeps what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeptRecords {
    #[error("the records below {0} are committed or in a checkpoint")]
    Committed(u64),
    #[error("it ends at {0}")]
    AtEnd(u64),
    #[error("no record ends there, or one before it cannot be read")]
    InRecord,
}

/// Why bytes are corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corruption {
    #[error("{0}")]
    Record(#[from] DecodeError),
    #[error("there is no record where the directory says")]
    NoRecordHere,
    #[error("the header is not that of a segment, or its checksum does not match")]
    SegmentHeader,
    #[error("the header is not that of a directory, or a checksum does not match")]
    Directory,
    #[error("it is not a checkpoint, or its checksum does not match")]
    Checkpoint,
    #[error(
        "it is not a manifest, or its checksum does not match, and nothing else says which segments count; put a copy of the folder back"
    )]
    Manifest,
    #[error("it is not the segment that the manifest names")]
    NotInManifest,
    #[error("no checkpoint that can be read covers this rewritten segment; put the newest checkpoint of a copy back")]
    NotCovered,
    #[error("an earlier start or reader found that bytes from there on do not hold")]
    Marked,
    #[error("it belongs to another log")]
    OtherLog,
    #[error(
        "it is of shard {found}, and this log is shard {expected}; put the folders of the shards back in their places"
    )]
    OtherShard { found: u16, expected: u16 },
    #[error("the records between it and the one before are missing")]
    Gap,
    #[error("it ends before its last record")]
    Short,
    #[error(
        "it does not say where the log is being truncated, or its checksum does not match; move it away, and compare the log with its other replicas"
    )]
    Truncating,
    #[error("its sectors cannot be read")]
    Unreadable,
    #[error("no segment has the record of this message")]
    Lost,
    #[error("the file is gone, and {0}; put the file back from a copy of the folder")]
    Gone(Missing),
    #[error(
        "the file is gone, and perhaps others after it, with records that no checkpoint covers; the log goes on without them, and a file that comes back later is set aside"
    )]
    GoneUncovered,
    #[error("the manifest does not name it, and {0}; put the newest manifest back")]
    Unnamed(Missing),
    #[error(
        "no checkpoint can be read, and segments before it are gone or were rewritten; put the checkpoints and the segments of a copy back"
    )]
    NoCheckpoint,
    #[error(
        "its checkpoints count stored messages, and no segment (msgs.*) is there; put its files back, or move its checkpoints away to begin without the messages"
    )]
    NoSegment,
    #[error(
        "a queue's own log was there, and its folder is gone; put it back, or create an empty one to begin without the messages"
    )]
    Vanished,
    #[error(
        "a shard of the virtual host was there, and its folder is gone or has no log; put it back, for example from a backup"
    )]
    VanishedShard,
}

/// Live messages that no segment holds. Which file held which of them is unknown, so of several missing files the first
/// reports all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// 0 in the report of a further file.
    pub messages: u64,
    /// How many files are missing.
    pub files: usize,
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.messages, self.files) {
            (0, _) => formatter.write_str("its messages are counted with those of the first missing file"),
            (messages, 0 | 1) => write!(formatter, "{messages} messages are in no segment"),
            (messages, files) => {
                let more = files - 1;
                write!(formatter, "{messages} messages of this and {more} more missing files are in no segment")
            }
        }
    }
}

impl LogError {
    /// Whether the disk was full: nothing was stored, and a later try may succeed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            LogError::Full { .. } => true,
            LogError::Io { source, .. } => is_full(source),
            _ => false,
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        LogError::Io { action, path: path.to_owned(), source }
    }

    pub(crate) fn newer_record(path: &Path, at: u64) -> Self {
        LogError::Newer { path: path.to_owned(), at, what: "a record with a part" }
    }

    pub(crate) fn newer_section(path: &Path) -> Self {
        LogError::Newer { path: path.to_owned(), at: 64, what: "a section" }
    }

    pub(crate) fn newer_flags(path: &Path) -> Self {
        LogError::Newer { path: path.to_owned(), at: 58, what: "a flag" }
    }

    pub(crate) fn corrupt(path: &Path, at: u64, why: impl Into<Corruption>) -> Self {
        LogError::Corrupt { path: path.to_owned(), at, why: why.into() }
    }
}
