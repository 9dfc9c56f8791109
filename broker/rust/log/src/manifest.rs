//! Which rewritten segments replace which positions. See `docs/format.md`, "Manifest".
//!
//! Invariants: the file changes only by a rename, after everything it names is on the disk, and replaced files are
//! removed only after the rename is on the disk. Without a manifest every plain segment counts; with one, plain
//! segments that begin within a range of it do not. A copy beside it has the same content and is renamed first; it
//! counts while the file is missing or corrupt, and a start makes both the same again before it removes anything.

use std::path::{Path, PathBuf};

use crate::checkpoint::unlink_if_there;
use crate::directory::write_whole;
use crate::disk::Disk;
use crate::epochs::Epochs;
use crate::error::{Corruption, LogError};
use crate::format::Format;
use crate::names::Names;
use crate::record::{Position, le_u32, le_u64};
use crate::segment::{FORMAT, Segment, SegmentHeader, rewritten_path};

const MAGIC: &[u8; 8] = b"PNSTKMAN";
const HEADER_BYTES: usize = 40;
const ENTRY_BYTES: usize = 40;

/// One rewritten segment and its positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) edition: u32,
    pub(crate) segment_id: u64,
    pub(crate) first: Position,
    pub(crate) end: Position,
}

impl Entry {
    /// The manifest entry of a segment that ends there; `None` for one that was not rewritten.
    pub(crate) fn of(segment: &Segment, end: Position) -> Option<Entry> {
        segment.is_rewritten().then(|| Entry {
            number: segment.number(),
            edition: segment.edition(),
            segment_id: segment.id(),
            first: segment.first(),
            end,
        })
    }

    /// The header of its segment, as far as it is known without the file.
    pub(crate) fn header(&self, log_id: [u8; 16], epochs: &Epochs) -> SegmentHeader {
        let epoch = epochs.of(self.first);
        // Formats are never mixed in a segment, and the first epoch in the table is the first of format 2.
        let format = epoch.map_or(Format::One, |_| Format::Two);
        let header = SegmentHeader::new(format, log_id, self.segment_id, (epoch.unwrap_or(0), self.first));
        SegmentHeader { is_rewritten: format == Format::Two, ..header }
    }
}

/// Content of the file; entries ascend and do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) entries: Vec<Entry>,
}

impl Manifest {
    pub(crate) fn path(directory: &Path) -> PathBuf {
        directory.join("manifest")
    }

    pub(crate) fn temporary_path(directory: &Path) -> PathBuf {
        directory.join("manifest.tmp")
    }

    fn copy_path(directory: &Path) -> PathBuf {
        directory.join("manifest.copy")
    }

    fn temporary_copy_path(directory: &Path) -> PathBuf {
        directory.join("manifest.copy.tmp")
    }

    /// Its file and the copy of it.
    pub(crate) fn paths(directory: &Path) -> [PathBuf; 2] {
        [Self::path(directory), Self::copy_path(directory)]
    }

    pub(crate) fn to_bytes(&self, log_id: &[u8; 16]) -> Vec<u8> {
        encode(log_id, self)
    }

    /// Reads it, or its copy when it is corrupt; without both it is empty.
    pub(crate) fn load(directory: &Path, log_id: &mut Option<[u8; 16]>) -> Result<Manifest, LogError> {
        let found = match read(&Self::path(directory)) {
            Ok(Some(found)) => found,
            unread => match (unread, read(&Self::copy_path(directory))) {
                (_, Ok(Some(copy))) if copy.1.names_all_of(directory)? => copy,
                // A rewrite came after the copy was made, so the copy is stale.
                (Err(error), _) | (Ok(_), Err(error)) => return Err(error),
                (Ok(_), Ok(Some(_))) => return Err(corrupt(&Self::path(directory))),
                (Ok(_), Ok(None)) => return Ok(Manifest::default()),
            },
        };
        let (id, manifest) = found;
        if log_id.is_some_and(|expected| expected != id) {
            return Err(LogError::corrupt(&Self::path(directory), 16, Corruption::OtherLog));
        }
        *log_id = Some(id);
        Ok(manifest)
    }

    /// Writes the file or its copy again where it differs from what was loaded. Remove nothing by it before: the next
    /// start may find only the other one.
    pub(crate) fn repair(&self, disk: &dyn Disk, directory: &Path, log_id: Option<[u8; 16]>) -> Result<(), LogError> {
        unlink_if_there(disk, &Self::temporary_copy_path(directory))?;
        let Some(log_id) = log_id.filter(|_| *self != Manifest::default()) else { return Ok(()) };
        let bytes = encode(&log_id, self);
        let is_same = |path: PathBuf| std::fs::read(path).is_ok_and(|found| found == bytes);
        if is_same(Self::path(directory)) && is_same(Self::copy_path(directory)) {
            return Ok(());
        }
        self.prepare(disk, directory, &log_id)?;
        Self::publish(disk, directory)
    }

    /// Whether every existing rewritten segment is in it.
    fn names_all_of(&self, directory: &Path) -> Result<bool, LogError> {
        let names = Names::list(directory)?;
        Ok(names.rewritten.iter().all(|&(number, edition)| self.names(number, edition)))
    }

    /// The rewritten segment that replaces a segment from that position on.
    pub(crate) fn entry_at(&self, first: Position) -> Option<&Entry> {
        let after = self.entries.partition_point(|entry| entry.first <= first);
        after.checked_sub(1).and_then(|at| self.entries.get(at)).filter(|entry| first < entry.end)
    }

    /// The same, where its file exists.
    pub(crate) fn replacement(&self, directory: &Path, first: Position) -> Option<&Entry> {
        self.entry_at(first).filter(|entry| rewritten_path(directory, entry.number, entry.edition).exists())
    }

    pub(crate) fn names(&self, number: u64, edition: u32) -> bool {
        self.entries.iter().any(|entry| (entry.number, entry.edition) == (number, edition))
    }

    /// Brings it and its copy to the disk under temporary names.
    pub(crate) fn prepare(&self, disk: &dyn Disk, directory: &Path, log_id: &[u8; 16]) -> Result<(), LogError> {
        let bytes = encode(log_id, self);
        write_whole(disk, &Self::temporary_copy_path(directory), &bytes)?;
        write_whole(disk, &Self::temporary_path(directory), &bytes)
    }

    /// Renames the files of [`Manifest::prepare`]; when this fails it is unknown which one a start will find.
    pub(crate) fn publish(disk: &dyn Disk, directory: &Path) -> Result<(), LogError> {
        let copy = (Self::temporary_copy_path(directory), Self::copy_path(directory));
        for (temporary, path) in [copy, (Self::temporary_path(directory), Self::path(directory))] {
            disk.rename(&temporary, &path).map_err(|error| LogError::io("rename", &temporary, error))?;
        }
        disk.sync_directory(directory).map_err(|error| LogError::io("sync", directory, error))
    }

    /// Removes the files of [`Manifest::prepare`].
    pub(crate) fn abandon(disk: &dyn Disk, directory: &Path) -> Result<(), LogError> {
        unlink_if_there(disk, &Self::temporary_copy_path(directory))?;
        unlink_if_there(disk, &Self::temporary_path(directory))
    }
}

/// Reads a file; `None` when it does not exist. Unreadable bytes are corrupt.
fn read(path: &Path) -> Result<Option<([u8; 16], Manifest)>, LogError> {
    match std::fs::read(path) {
        Ok(bytes) => decode(&bytes, path).map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LogError::io("read", path, error)),
    }
}

fn corrupt(path: &Path) -> LogError {
    LogError::corrupt(path, 0, Corruption::Manifest)
}

fn encode(log_id: &[u8; 16], manifest: &Manifest) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + manifest.entries.len() * ENTRY_BYTES + 4);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
    out.extend_from_slice(log_id);
    out.extend_from_slice(&(manifest.entries.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for entry in &manifest.entries {
        out.extend_from_slice(&entry.number.to_le_bytes());
        out.extend_from_slice(&entry.edition.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for field in [entry.segment_id, entry.first.0, entry.end.0] {
            out.extend_from_slice(&field.to_le_bytes());
        }
    }
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn decode(bytes: &[u8], path: &Path) -> Result<([u8; 16], Manifest), LogError> {
    let corrupt = || corrupt(path);
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or_else(corrupt)?;
    let (header, entries) = body.split_first_chunk::<HEADER_BYTES>().ok_or_else(corrupt)?;
    if &header[..8] != MAGIC || u32::from_le_bytes(*crc) != crc32c::crc32c(body) {
        return Err(corrupt());
    }
    let found = le_u32(&header[8..12]);
    if found > FORMAT {
        return Err(LogError::NewerFormat { path: path.to_owned(), found, supported: FORMAT });
    }
    if entries.len() != le_u32(&header[32..36]) as usize * ENTRY_BYTES {
        return Err(corrupt());
    }
    let entries: Vec<Entry> = entries.chunks_exact(ENTRY_BYTES).map(decode_entry).collect();
    let mut end = Position(0);
    for entry in &entries {
        if entry.first < end || entry.end <= entry.first {
            return Err(corrupt());
        }
        end = entry.end;
    }
    let mut log_id = [0; 16];
    log_id.copy_from_slice(&header[16..32]);
    Ok((log_id, Manifest { entries }))
}

/// A manifest, as it is and with a right checksum.
#[cfg(feature = "fuzz")]
pub(crate) fn fuzz(bytes: &[u8], path: &Path) -> bool {
    let mut sealed = bytes.to_vec();
    sealed.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    let Ok((log_id, manifest)) = decode(&sealed, path) else { return decode(bytes, path).is_ok() };
    assert!(decode(&encode(&log_id, &manifest), path).is_ok_and(|again| again == (log_id, manifest)));
    true
}

fn decode_entry(bytes: &[u8]) -> Entry {
    let field = |from: usize| bytes.get(from..).unwrap_or_default();
    Entry {
        number: le_u64(field(0)),
        edition: le_u32(field(8)),
        segment_id: le_u64(field(16)),
        first: Position(le_u64(field(24))),
        end: Position(le_u64(field(32))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::disk::RealDisk;

    const LOG_ID: [u8; 16] = [3; 16];

    fn manifests() -> impl Strategy<Value = Manifest> {
        let entry = (any::<u64>(), any::<u32>(), any::<u64>(), 0..1000_u64, 1..1000_u64);
        prop::collection::vec(entry, 0..6).prop_map(|entries| {
            let mut end = 0;
            let place = |(number, edition, segment_id, gap, bytes)| {
                let first = Position(end + gap);
                end = first.0 + bytes;
                Entry { number, edition, segment_id, first, end: Position(end) }
            };
            Manifest { entries: entries.into_iter().map(place).collect() }
        })
    }

    proptest! {
        #[test]
        fn a_manifest_is_read_back(manifest in manifests()) {
            let (log_id, found) = decode(&encode(&LOG_ID, &manifest), Path::new("manifest")).unwrap();

            prop_assert_eq!(found, manifest);
            prop_assert_eq!(log_id, LOG_ID);
        }

        #[test]
        fn any_change_is_noticed(manifest in manifests(), at in any::<prop::sample::Index>(), bit in 0..8_u32) {
            let mut bytes = encode(&LOG_ID, &manifest);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;

            prop_assert!(decode(&bytes, Path::new("manifest")).is_err());
            prop_assert!(decode(&bytes[..at], Path::new("manifest")).is_err());
        }
    }

    #[test]
    fn a_position_is_covered_from_the_first_up_to_the_end() {
        let entry =
            |first, end| Entry { number: 1, edition: 2, segment_id: 3, first: Position(first), end: Position(end) };
        let manifest = Manifest { entries: vec![entry(10, 20), entry(30, 40)] };

        let covered: Vec<u64> =
            [9, 10, 19, 20, 30, 40].into_iter().filter(|&at| manifest.entry_at(Position(at)).is_some()).collect();

        assert_eq!(covered, [10, 19, 30]);
    }

    #[test]
    fn entries_that_overlap_are_refused() {
        let entry =
            |first, end| Entry { number: 1, edition: 2, segment_id: 3, first: Position(first), end: Position(end) };
        let manifest = Manifest { entries: vec![entry(10, 20), entry(19, 40)] };

        assert!(matches!(
            decode(&encode(&LOG_ID, &manifest), Path::new("manifest")),
            Err(LogError::Corrupt { why: Corruption::Manifest, .. })
        ));
    }

    #[test]
    fn the_newest_is_found_and_an_absent_one_names_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut log_id = None;
        assert_eq!(Manifest::load(directory.path(), &mut log_id).unwrap(), Manifest::default());
        let entry = Entry { number: 4, edition: 2, segment_id: 3, first: Position(1), end: Position(2) };
        let manifest = Manifest { entries: vec![entry] };

        manifest.prepare(&RealDisk, directory.path(), &LOG_ID).unwrap();
        Manifest::publish(&RealDisk, directory.path()).unwrap();

        assert_eq!(Manifest::load(directory.path(), &mut log_id).unwrap(), manifest);
        assert_eq!(log_id, Some(LOG_ID));
        assert!(manifest.names(4, 2) && !manifest.names(4, 3));
    }
}
