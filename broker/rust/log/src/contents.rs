//! The bytes of a segment file as a start reads them: as far as the disk returns them.
//!
//! Invariants: a sector that cannot be read costs only the records in it, and is an error here instead of a signal
//! later, so that a start touches no map.

use std::fs::File;
use std::ops::Range;
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
        let (file, there) = open(path)?;
        let mut contents = Contents { bytes: vec![0; length.min(there) as usize], bad_pages: Vec::new() };
        for (part, at) in contents.bytes.chunks_mut(PART_BYTES).zip((0..).step_by(PART_BYTES)) {
            read_part(disk, &file, path, (part, at), &mut contents.bad_pages)?;
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

/// Where the written bytes of a part of a file end: after the last one that is not zero, or at the beginning of the part. It reads from the end
/// on, and no further than that byte. Unreadable pages may hold anything.
pub(crate) fn written_end(disk: &dyn Disk, path: &Path, part: Range<u64>) -> Result<u64, LogError> {
    let (file, there) = open(path)?;
    let mut end = part.end.min(there);
    let mut bad_pages = Vec::new();
    let mut read = Vec::new();
    while part.start < end {
        let from = ((end - 1) / PART_BYTES as u64 * PART_BYTES as u64).max(page_of(part.start));
        read.clear();
        read.resize((end - from) as usize, 0);
        read_part(disk, &file, path, (&mut read, from), &mut bad_pages)?;
        let bad_end = bad_pages.last().map_or(0, |page| (page + PAGE_BYTES as u64).min(end));
        let written = (from + written_in(&read) as u64).max(bad_end);
        if written > from {
            return Ok(written.max(part.start));
        }
        end = from;
    }
    Ok(part.start)
}

fn page_of(offset: u64) -> u64 {
    offset / PAGE_BYTES as u64 * PAGE_BYTES as u64
}

/// A file, and its length.
fn open(path: &Path) -> Result<(File, u64), LogError> {
    let opened = File::open(path).and_then(|file| file.metadata().map(|there| (file, there.len())));
    opened.map_err(|error| LogError::io("open", path, error))
}

/// Fills a part that begins at an offset, which is that of a page; pages that cannot be read are zeros.
fn read_part(
    disk: &dyn Disk,
    file: &File,
    path: &Path,
    (part, at): (&mut [u8], u64),
    bad_pages: &mut Vec<u64>,
) -> Result<(), LogError> {
    match disk.read_at(file, part, at) {
        Err(error) if is_bad_sector(&error) => {
            for (page, page_at) in part.chunks_mut(PAGE_BYTES).zip((at..).step_by(PAGE_BYTES)) {
                match disk.read_at(file, page, page_at) {
                    Err(error) if is_bad_sector(&error) => {
                        page.fill(0);
                        bad_pages.push(page_at);
                    }
                    read => read.map_err(|error| LogError::io("read", path, error))?,
                }
            }
        }
        read => read.map_err(|error| LogError::io("read", path, error))?,
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::disk::RealDisk;

    #[test]
    fn the_written_bytes_of_a_part_end_after_the_last_that_is_not_zero() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment");
        let file = File::create(&path).unwrap();
        file.set_len(5 << 20).unwrap();
        let end_of = |part: Range<u64>| written_end(&RealDisk, &path, part).unwrap();
        assert_eq!(end_of(100..5 << 20), 100);

        for at in [99, (1 << 20) - 1, (2 << 20) + 5] {
            file.write_at(&[7], at).unwrap();
        }

        assert_eq!(end_of(100..5 << 20), (2 << 20) + 6);
        assert_eq!(end_of(100..u64::MAX), (2 << 20) + 6, "a part may be longer than the file");
        assert_eq!(end_of(100..2 << 20), 1 << 20);
        assert_eq!(end_of(100..4096), 100, "the byte before it does not count");
        assert_eq!(end_of((2 << 20) + 6..5 << 20), (2 << 20) + 6);
        assert_eq!(end_of(9..9), 9);
    }

    /// A disk with pages that cannot be read.
    #[derive(Debug)]
    struct Bad(Vec<u64>);

    impl Disk for Bad {
        fn read_at(&self, file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
            let read = offset..offset + bytes.len() as u64;
            if self.0.iter().any(|page| read.contains(page)) {
                return Err(std::io::Error::from_raw_os_error(5));
            }
            file.read_exact_at(bytes, offset)
        }
    }

    #[test]
    fn a_page_that_cannot_be_read_counts_as_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment");
        File::create(&path).unwrap().set_len(3 << 20).unwrap();
        let last_of_a_part = (1 << 20) - 4096;
        for (page, from, end) in [
            (4096, 5000, 8192),
            (8192, 5000, 12_288),
            (last_of_a_part, 5000, 1 << 20),
            (1 << 20, 5000, (1 << 20) + 4096),
            (0, 5000, 5000),
        ] {
            assert_eq!(written_end(&Bad(vec![page]), &path, from..3 << 20).unwrap(), end, "page at {page}");
        }
        let file = File::options().write(true).open(&path).unwrap();
        file.write_at(&[7], 2 << 20).unwrap();
        assert_eq!(written_end(&Bad(vec![8192]), &path, 5000..3 << 20).unwrap(), (2 << 20) + 1);
    }
}
