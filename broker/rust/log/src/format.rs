//! The formats of segments and records: which there are, and how the records of a segment are read and written.
//!
//! Invariant: the number in a segment's header decides about all of its records. See `docs/format.md`.

use crate::record::TARGETS_MAX;

/// Number of a format of segments and their records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    #[default]
    One,
    Two,
}

impl Format {
    /// The newest one that this version reads and writes.
    pub const NEWEST: Format = Format::Two;

    /// Its number in headers.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Format::One => 1,
            Format::Two => 2,
        }
    }

    /// The format of a number in a header; `None` when it is newer than this version.
    pub(crate) fn of_number(number: u32) -> Option<Format> {
        match number {
            0 | 1 => Some(Format::One),
            2 => Some(Format::Two),
            _ => None,
        }
    }

    /// The most queues that one message record names.
    #[must_use]
    pub const fn targets_max(self) -> usize {
        match self {
            Format::One => TARGETS_MAX,
            Format::Two => 16 * TARGETS_MAX,
        }
    }
}

/// How records are coded: their format, and the checksum with which that of each head begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coding {
    pub(crate) format: Format,
    pub(crate) seed: u32,
}

impl Coding {
    /// That of a segment of format 1, by its random id: bytes of an earlier use of a file are not records.
    #[must_use]
    pub fn of_segment(segment_id: u64) -> Coding {
        Coding { format: Format::One, seed: crc32c::crc32c(&segment_id.to_le_bytes()) }
    }

    /// That of format 2, by the log's id, which all its replicas share, and the epoch of the records: bytes of an earlier
    /// epoch, and those of another log, are not records.
    #[must_use]
    pub fn of_epoch(log_id: &[u8; 16], epoch: u64) -> Coding {
        let seed = crc32c::crc32c_append(crc32c::crc32c(log_id), &epoch.to_le_bytes());
        Coding { format: Format::Two, seed }
    }
}
