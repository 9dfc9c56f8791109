//! The bytes of a segment file as a start reads them: as far as the disk returns them.
//!
//! Invariants: a sector that cannot be read costs only the records in it, and is an error here instead of a signal
//! later, so that a start touches no map.

use std::fs::File;
use std::path::Path;

use crate::disk::Disk;
use crate::error::LogError;
use crate::header::is_bad_sector;
use crate::record::{HEADER_BYTES, le_u32};
use crate::segment::written_in;

/// The read size, and the size of parts with bad sectors: page caches are filled by pages.
const PART_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

/// The bytes of a segment file; see the module.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Unreadable bytes are zeros.
    bytes: Vec<u8>,
    /// Offsets of pages that cannot be read, ascending.
    bad_pages: Vec<u64>,
}

impl Contents {
    /// Reads the first `length` bytes of a file, or all of a shorter one.
    pub(crate) fn read(disk: &dyn Disk, path: &Path, length: u64) -> Result<Contents, LogError> {
        let file = File::open(path).map_err(|error| LogError::io("open", path, error))?;
        let there = file.metadata().map_err(|error| LogError::io("open", path, error))?.len();
        let mut contents = Contents { bytes: vec![0; length.min(there) as usize], bad_pages: Vec::new() };
        let mut at = 0;
        for part in contents.bytes.chunks_mut(PART_BYTES) {
            match disk.read_at(&file, part, at) {
                Err(error) if is_bad_sector(&error) => {
                    for (page, page_at) in part.chunks_mut(PAGE_BYTES).zip((at..).step_by(PAGE_BYTES)) {
                        match disk.read_at(&file, page, page_at) {
                            Err(error) if is_bad_sector(&error) => {
                                page.fill(0);
                                contents.bad_pages.push(page_at);
                            }
                            read => read.map_err(|error| LogError::io("read", path, error))?,
                        }
                    }
                }
                read => read.map_err(|error| LogError::io("read", path, error))?,
            }
            at += part.len() as u64;
        }
        Ok(contents)
    }

    pub(crate) fn up_to(&self, end: u64) -> &[u8] {
        self.bytes.get(..end as usize).unwrap_or(&self.bytes)
    }

    pub(crate) fn from(&self, offset: u64) -> &[u8] {
        self.bytes.get(offset as usize..).unwrap_or_default()
    }

    /// How many bytes above an offset there are up to the last one that is not zero: records that were begun and cannot
    /// be read. Unreadable pages may hold anything.
    pub(crate) fn written_above(&self, offset: u64) -> u64 {
        let bad_end = self.bad_pages.last().map_or(0, |page| (page + PAGE_BYTES as u64).min(self.bytes.len() as u64));
        (written_in(self.from(offset)) as u64).max(bad_end.saturating_sub(offset))
    }

    pub(crate) fn has_bad_pages(&self) -> bool {
        !self.bad_pages.is_empty()
    }

    /// Where the record at an offset ends by its own length, or at least its header.
    pub(crate) fn claimed_end(&self, offset: u64) -> u64 {
        offset + u64::from(le_u32(self.from(offset))).max(HEADER_BYTES as u64)
    }

    /// Whether a part of the bytes between two offsets cannot be read.
    pub(crate) fn is_bad(&self, from: u64, to: u64) -> bool {
        self.bad_pages.iter().any(|&page| page < to && from < page + PAGE_BYTES as u64)
    }
}
