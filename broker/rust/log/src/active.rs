//! The active segment: how it is created, and how it reserves its disk space.
//!
//! Invariants: a segment whose creation failed leaves no file that blocks the next attempt, and nothing is written to
//! space that was not reserved.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::LogError;
use crate::index::MemoryIndex;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader};
use crate::sync::Unsynced;

/// Space is reserved in steps of this size: unwritten space stays small, and reserving is rare.
pub(crate) const STEP_BYTES: u64 = 4 << 20;

/// Bytes reserved for a segment that may get only its header and an epoch record: one page, which these need anyway.
const FIRST_BYTES: u64 = 4 << 10;

/// Size of a segment, and how much of it is reserved at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) reserved: u64,
}

impl Size {
    /// A size with its first step.
    pub(crate) fn stepped(bytes: u64) -> Size {
        Size { bytes, reserved: STEP_BYTES.min(bytes) }
    }

    /// A size with no more than `least` needs; the rest is reserved when records come.
    pub(crate) fn bare(bytes: u64, least: u64) -> Size {
        Size { bytes, reserved: FIRST_BYTES.max(least).min(bytes) }
    }
}

/// The segment that records are written to.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) segment: Arc<Segment>,
    pub(crate) file: Arc<File>,
    pub(crate) index: MemoryIndex,
    /// Space is reserved up to this offset.
    pub(crate) reserved: u64,
}

impl Active {
    /// Makes the file, with its header in it. The size's bytes are for the header and records; a copy of the header
    /// follows them.
    pub(crate) fn create(
        directory: &Arc<Path>,
        disk: &dyn Disk,
        number: u64,
        header: &SegmentHeader,
        Size { bytes, reserved }: Size,
    ) -> Result<(Active, Unsynced), LogError> {
        let segment = Segment::new(directory, number, header, bytes);
        let path = segment.path();
        let create = || -> io::Result<File> {
            let file = disk.create(path, bytes + SEGMENT_HEADER_BYTES)?;
            disk.reserve(&file, 0, reserved)?;
            disk.write_at(&file, &header.encode(), 0)?;
            disk.write_at(&file, &header.encode(), bytes)?;
            Ok(file)
        };
        let file = create().map_err(|error: io::Error| {
            // A half-made file must not block the next attempt; its number is free again once it is gone. A file that
            // existed before belongs to another segment.
            if error.kind() != ErrorKind::AlreadyExists {
                let _ = disk.unlink(path);
            }
            LogError::io("create", path, error)
        })?;
        let file = Arc::new(file);
        let unsynced = Unsynced::new(number, path, &file);
        Ok((Active { segment: Arc::new(segment), file, index: MemoryIndex::default(), reserved }, unsynced))
    }

    /// Returns how far space is reserved for a record that ends at an offset.
    pub(crate) fn step_to(&self, end: u64) -> u64 {
        end.next_multiple_of(STEP_BYTES).min(self.segment.bytes())
    }

    /// Reserves space up to an offset.
    pub(crate) fn reserve(&mut self, disk: &dyn Disk, to: u64) -> Result<(), LogError> {
        let reserved = disk.reserve(&self.file, self.reserved, to.saturating_sub(self.reserved));
        reserved.map_err(|error| LogError::io("reserve space for", self.segment.path(), error))?;
        self.reserved = to;
        Ok(())
    }
}

pub(crate) fn random_id(directory: &Path) -> Result<u64, LogError> {
    random(directory).map(u64::from_le_bytes)
}

pub(crate) fn random<const N: usize>(directory: &Path) -> Result<[u8; N], LogError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| LogError::io("get random bytes for", directory, std::io::Error::other(error.to_string())))?;
    Ok(bytes)
}
