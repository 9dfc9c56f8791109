//! The intention to cut a log, and the cut of its files. See `docs/format.md`, "Truncating".
//!
//! Invariants: the intention is on the disk with its name before a byte of a segment is changed, and it is removed once the
//! cut is on the disk. Completing it is the same at whatever step the last attempt ended. The segment with the position
//! stays, also where nothing of it does: it may be the only file that says the log's id.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::checkpoint::unlink_if_there;
use crate::contents::written_end;
use crate::directory::write_whole;
use crate::disk::Disk;
use crate::error::{Corruption, LogError};
use crate::fold_ticket::set_aside;
use crate::format::Format;
use crate::header::{HeaderFound, read_header};
use crate::names::Names;
use crate::record::{Position, le_u32, le_u64};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, corrupt_path, directory_path, segment_path};
use crate::synced_file::SyncedFile;

const MAGIC: &[u8; 8] = b"PNSTKCUT";
const BYTES: usize = 36;
const ZEROS_AT_ONCE: usize = 1 << 18;

/// Where a log is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The log ends here then.
    pub(crate) position: Position,
    /// The highest epoch that had begun: the next one is above it, also where its record is gone.
    pub(crate) epoch: u64,
}

/// The part of a segment that nothing was written to, as the log knows that wrote the segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unwritten {
    pub(crate) segment: u64,
    /// It begins at this offset.
    pub(crate) from: u64,
}

impl Cut {
    /// The intention that an earlier process left.
    pub(crate) fn load(directory: &Path) -> Result<Option<Cut>, LogError> {
        let path = path_in(directory);
        match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => decode(&read.map_err(|error| LogError::io("read", &path, error))?, &path).map(Some),
        }
    }

    /// Brings the intention to the disk.
    pub(crate) fn intend(self, disk: &dyn Disk, directory: &Path) -> Result<(), LogError> {
        let path = path_in(directory);
        let temporary = path.with_extension("tmp");
        write_whole(disk, &temporary, &self.encode())?;
        disk.rename(&temporary, &path).map_err(|error| LogError::io("rename", &temporary, error))?;
        sync_names(disk, directory)
    }

    /// Removes an intention, durably.
    pub(crate) fn forget(disk: &dyn Disk, directory: &Path) -> Result<(), LogError> {
        unlink_if_there(disk, &path_in(directory))?;
        sync_names(disk, directory)
    }

    /// Cuts the files of the log; afterwards they are on the disk as if nothing had been above the position. What is known to be unwritten
    /// is not read: most of a segment may be.
    pub(crate) fn complete(
        self,
        disk: &dyn Disk,
        directory: &Path,
        synced: &mut SyncedFile,
        unwritten: Option<Unwritten>,
    ) -> Result<(), LogError> {
        for &number in Names::list(directory)?.segments.iter().rev() {
            let path = segment_path(directory, number);
            // Without a header nothing says what it holds. A start decides about it.
            let (HeaderFound::Segment(header, bytes) | HeaderFound::Copy(header, bytes, _)) = read_header(&path)?
            else {
                continue;
            };
            if header.first > self.position {
                remove(disk, &path)?;
                continue;
            }
            let unwritten = unwritten.filter(|unwritten| unwritten.segment == number);
            self.clear(disk, &path, &header, unwritten.map_or(bytes, |unwritten| unwritten.from.min(bytes)))?;
            if header.first < self.position {
                break;
            }
        }
        synced.cut(disk, self.position, self.epoch)?;
        sync_names(disk, directory)?;
        Self::forget(disk, directory)
    }

    /// Overwrites what a segment has above the position with zeros. Nothing is written from an offset on.
    fn clear(self, disk: &dyn Disk, path: &Path, header: &SegmentHeader, unwritten: u64) -> Result<(), LogError> {
        let from = SEGMENT_HEADER_BYTES + (self.position.0 - header.first.0);
        let end = written_end(disk, path, from..unwritten)?;
        if end > from {
            unlink_if_there(disk, &directory_path(path))?;
            write_zeros(disk, path, from, end).map_err(|error| LogError::io("truncate", path, error))?;
        }
        Ok(())
    }

    fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&Format::Two.number().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.position.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

fn path_in(directory: &Path) -> PathBuf {
    directory.join("truncating")
}

fn decode(bytes: &[u8], path: &Path) -> Result<Cut, LogError> {
    let corrupt = || LogError::corrupt(path, 0, Corruption::Truncating);
    let bytes: &[u8; BYTES] = bytes.try_into().map_err(|_| corrupt())?;
    if &bytes[..8] != MAGIC || le_u32(&bytes[32..]) != crc32c::crc32c(&bytes[..32]) {
        return Err(corrupt());
    }
    match Format::of_number(le_u32(&bytes[8..12])) {
        Some(Format::Two) => Ok(Cut { position: Position(le_u64(&bytes[16..24])), epoch: le_u64(&bytes[24..32]) }),
        Some(Format::One) => Err(corrupt()),
        None => {
            let (found, supported) = (le_u32(&bytes[8..12]), Format::NEWEST.number());
            Err(LogError::NewerFormat { path: path.to_owned(), found, supported })
        }
    }
}

/// An intention, with a right checksum.
#[cfg(feature = "fuzz")]
pub(crate) fn fuzz(bytes: &[u8], path: &Path) -> bool {
    let mut sealed = bytes.get(..BYTES - 4).unwrap_or_default().to_vec();
    sealed.extend_from_slice(&crc32c::crc32c(&sealed).to_le_bytes());
    let Ok(cut) = decode(&sealed, path) else { return decode(bytes, path).is_ok() };
    assert!(decode(&cut.encode(), path).is_ok_and(|again| again == cut));
    true
}

/// Removes a segment with its index; a corrupt one is set aside instead.
fn remove(disk: &dyn Disk, path: &Path) -> Result<(), LogError> {
    unlink_if_there(disk, &directory_path(path))?;
    if corrupt_path(path).exists() {
        return set_aside(disk, path).map(|_| ());
    }
    unlink_if_there(disk, path)
}

fn write_zeros(disk: &dyn Disk, path: &Path, from: u64, end: u64) -> std::io::Result<()> {
    let file = disk.open(path)?;
    let zeros = vec![0; ZEROS_AT_ONCE];
    let mut at = from;
    while at < end {
        let piece = usize::try_from(end - at).unwrap_or(usize::MAX).min(ZEROS_AT_ONCE);
        disk.write_at(&file, zeros.get(..piece).unwrap_or(&zeros), at)?;
        at += piece as u64;
    }
    disk.sync(&file)
}

fn sync_names(disk: &dyn Disk, directory: &Path) -> Result<(), LogError> {
    disk.sync_directory(directory).map_err(|error| LogError::io("sync", directory, error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn decoded(bytes: &[u8]) -> Result<Cut, LogError> {
        decode(bytes, Path::new("truncating"))
    }

    #[test]
    fn an_intention_is_laid_out_as_the_format_draws_it() {
        let bytes = Cut { position: Position(0x0102), epoch: 0x0304 }.encode();

        assert_eq!(bytes[..16], *b"PNSTKCUT\x02\0\0\0\0\0\0\0");
        assert_eq!((le_u64(&bytes[16..24]), le_u64(&bytes[24..32])), (0x0102, 0x0304));
        assert_eq!(le_u32(&bytes[32..]), crc32c::crc32c(&bytes[..32]));
    }

    proptest! {
        #[test]
        fn intentions_are_read_back_and_any_change_is_noticed(
            position in any::<u64>(), epoch in any::<u64>(), bit in 0..BYTES * 8, length in 0..BYTES,
        ) {
            let cut = Cut { position: Position(position), epoch };
            let mut bytes = cut.encode();
            prop_assert_eq!(decoded(&bytes).unwrap(), cut);
            let is_refused = |bytes: &[u8]| matches!(decoded(bytes), Err(LogError::Corrupt { .. }));
            prop_assert!(is_refused(&bytes[..length]));

            bytes[bit / 8] ^= 1 << (bit % 8);

            prop_assert!(is_refused(&bytes));
        }

        #[test]
        fn any_bytes_are_refused_or_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), format in 0..4_u8) {
            let _ = decoded(&bytes);
            let mut bytes = [MAGIC.as_slice(), &[format, 0, 0, 0], &bytes].concat();
            bytes.resize(32, 0);
            let crc = crc32c::crc32c(&bytes);
            bytes.extend_from_slice(&crc.to_le_bytes());

            prop_assert_eq!(decoded(&bytes).is_ok(), format == 2);
        }
    }
}
