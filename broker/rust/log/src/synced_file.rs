//! The file `synced`: how far a log is on the disk, and how far it is confirmed. See `docs/format.md`, "Synced".
//!
//! Invariants: it has lower bounds, which only a cut of the log lowers. It is written after each sync and not synced itself
//! except by a cut, by a start that found corruption, and when a replica is made: a process that dies leaves the last position, a power failure an
//! earlier one. Each slot is read by the number of its own format, so writing the next one is all that a change of the
//! format takes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::error::LogError;
use crate::format::Format;
use crate::header::is_bad_sector;
use crate::record::{Position, le_u32, le_u64};

const MAGIC: &[u8; 4] = b"PNSY";
const SLOT_BYTES_MAX: usize = 48;
/// Two sectors, so that a torn write destroys only one slot.
const SLOT_PLACES: [u64; 2] = [0, 512];
const FILE_BYTES: u64 = 1024;

/// How far a log came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Everything below it is on the disk.
    pub(crate) position: Position,
    /// The high watermark; without replication the position.
    pub(crate) bound: Position,
    /// The highest epoch that has begun, also where a cut took its record. 0 in format 1.
    pub(crate) epoch: u64,
}

impl Progress {
    /// That of a log without replication.
    pub(crate) fn to(position: Position) -> Progress {
        Progress { position, bound: position, epoch: 0 }
    }

    fn or_further(self, other: Progress) -> Progress {
        Progress {
            position: self.position.max(other.position),
            bound: self.bound.max(other.bound),
            epoch: self.epoch.max(other.epoch),
        }
    }
}

/// The file; see the module.
#[derive(Debug)]
pub(crate) struct SyncedFile {
    path: PathBuf,
    turn: u64,
    progress: Progress,
    /// Of the slots to write.
    format: Format,
    /// How often the log was cut since it was opened.
    cuts: u64,
    /// Open since the first position was saved.
    file: Option<File>,
}

impl SyncedFile {
    /// Reads it; one that is absent or has no whole slot is 0.
    pub(crate) fn load(directory: &Path) -> Result<SyncedFile, LogError> {
        let path = directory.join("synced");
        let (progress, format) = (Progress::default(), Format::One);
        let mut found = SyncedFile { path, turn: 0, progress, format, cuts: 0, file: None };
        let file = match File::open(&found.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(LogError::io("open", &found.path, error)),
        };
        for place in SLOT_PLACES {
            let mut slot = [0; SLOT_BYTES_MAX];
            match file.read_exact_at(&mut slot, place) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof || is_bad_sector(&error) => continue,
                other => other.map_err(|error| LogError::io("read", &found.path, error))?,
            }
            if let Some((turn, progress)) = decode_slot(&slot)
                && turn >= found.turn
            {
                (found.turn, found.progress) = (turn, progress);
            }
        }
        Ok(found)
    }

    /// Sets the format of the slots that are written from now on.
    pub(crate) fn set_format(&mut self, format: Format) {
        self.format = format;
    }

    /// Whether the file was found, and has nothing that is on the disk. After a power failure a little more may be.
    pub(crate) fn says_nothing_is_synced(&self) -> bool {
        self.turn > 0 && self.progress.position == Position(0)
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// How often the log was cut since it was opened.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Records what is on the disk already.
    pub(crate) fn save(&mut self, disk: &dyn Disk, progress: Progress) -> Result<(), LogError> {
        let progress = self.progress.or_further(progress);
        if progress == self.progress {
            return Ok(());
        }
        match self.write(disk, progress) {
            // It is a lower bound, so an older one suffices until there is space.
            Err(error) if error.is_full() => Ok(()),
            written => written,
        }
    }

    /// Brings the file to the disk with the progress that it has.
    pub(crate) fn store(&mut self, disk: &dyn Disk) -> Result<(), LogError> {
        self.write(disk, self.progress)?;
        self.sync(disk)
    }

    /// Records that the log ends at a position now, in both slots, so that none with a later one is left; and syncs it.
    pub(crate) fn cut(&mut self, disk: &dyn Disk, position: Position, epoch: u64) -> Result<(), LogError> {
        let Progress { position: synced, bound, epoch: before } = self.progress;
        let progress =
            Progress { position: synced.min(position), bound: bound.min(position), epoch: epoch.max(before) };
        for _ in SLOT_PLACES {
            self.write(disk, progress)?;
        }
        self.cuts += 1;
        self.sync(disk)
    }

    fn write(&mut self, disk: &dyn Disk, progress: Progress) -> Result<(), LogError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => self.open(disk).map_err(|error| LogError::io("open", &self.path, error))?,
        };
        let turn = self.turn + 1;
        let place = SLOT_PLACES[(turn % 2) as usize];
        disk.write_at(&file, &encode_slot(self.format, turn, progress), place)
            .map_err(|error| LogError::io("write", &self.path, error))?;
        self.file = Some(file);
        (self.turn, self.progress) = (turn, progress);
        Ok(())
    }

    /// Syncs the saved position, so that a power failure leaves no earlier one.
    pub(crate) fn sync(&self, disk: &dyn Disk) -> Result<(), LogError> {
        let directory = self.path.parent().unwrap_or(&self.path);
        let synced = match disk.open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.and_then(|file| disk.sync(&file)),
        };
        synced.map_err(|error| LogError::io("sync", &self.path, error))?;
        disk.sync_directory(directory).map_err(|error| LogError::io("sync", directory, error))
    }

    fn open(&self, disk: &dyn Disk) -> io::Result<File> {
        match disk.open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(&self.path, FILE_BYTES),
            other => other,
        }
    }
}

/// The content of a file that holds one position.
pub(crate) fn synced_with(position: Position) -> Vec<u8> {
    let mut file = encode_slot(Format::One, 0, Progress::to(position));
    file.resize(FILE_BYTES as usize, 0);
    file
}

fn encode_slot(format: Format, turn: u64, progress: Progress) -> Vec<u8> {
    let mut slot = Vec::with_capacity(SLOT_BYTES_MAX);
    slot.extend_from_slice(MAGIC);
    slot.extend_from_slice(&format.number().to_le_bytes());
    slot.extend_from_slice(&turn.to_le_bytes());
    slot.extend_from_slice(&progress.position.0.to_le_bytes());
    if format == Format::Two {
        slot.extend_from_slice(&progress.bound.0.to_le_bytes());
        slot.extend_from_slice(&progress.epoch.to_le_bytes());
    }
    slot.extend_from_slice(&[0; 4]);
    let crc = crc32c::crc32c(&slot);
    slot.extend_from_slice(&crc.to_le_bytes());
    slot
}

/// The turn of a slot and what it says; `None` when it is torn, or of a format that this version does not know: its
/// segments refuse the start.
fn decode_slot(slot: &[u8; SLOT_BYTES_MAX]) -> Option<(u64, Progress)> {
    let format = Format::of_number(le_u32(&slot[4..8]))?;
    let slot = slot.get(..if format == Format::One { 32 } else { SLOT_BYTES_MAX })?;
    let (content, crc) = slot.split_last_chunk::<4>()?;
    if !content.starts_with(MAGIC) || le_u32(crc) != crc32c::crc32c(content) {
        return None;
    }
    let field = |at: usize| content.get(at..at + 8).map_or(0, le_u64);
    let position = Position(field(16));
    let progress = match format {
        Format::One => Progress::to(position),
        Format::Two => Progress { position, bound: Position(field(24)), epoch: field(32) },
    };
    Some((field(8), progress))
}

/// A slot, with a right checksum.
#[cfg(feature = "fuzz")]
pub(crate) fn fuzz(bytes: &[u8]) -> bool {
    let Some(slot) = bytes.first_chunk::<SLOT_BYTES_MAX>() else { return false };
    let mut sealed = *slot;
    let crc_at = if le_u32(&slot[4..8]) == Format::One.number() { 28 } else { SLOT_BYTES_MAX - 4 };
    let crc = crc32c::crc32c(&sealed[..crc_at]);
    sealed[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
    decode_slot(&sealed).is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::disk::RealDisk;

    fn formats() -> impl Strategy<Value = Format> {
        prop_oneof![Just(Format::One), Just(Format::Two)]
    }

    fn further() -> impl Strategy<Value = Progress> {
        any::<[u64; 3]>().prop_map(|[position, bound, epoch]| Progress {
            position: Position(position),
            bound: Position(bound),
            epoch,
        })
    }

    fn whole(bytes: &[u8]) -> [u8; SLOT_BYTES_MAX] {
        let mut slot = [0; SLOT_BYTES_MAX];
        slot[..bytes.len()].copy_from_slice(bytes);
        slot
    }

    fn position(directory: &Path) -> u64 {
        SyncedFile::load(directory).unwrap().progress().position.0
    }

    #[test]
    fn the_last_position_saved_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = SyncedFile::load(directory.path()).unwrap();
        for position in [10, 20, 30] {
            file.save(&RealDisk, Progress::to(Position(position))).unwrap();
        }

        assert_eq!(position(directory.path()), 30);
    }

    #[test]
    fn the_content_with_a_position_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("synced"), synced_with(Position(7))).unwrap();

        assert_eq!(SyncedFile::load(directory.path()).unwrap().progress(), Progress::to(Position(7)));
    }

    #[test]
    fn a_slot_of_format_2_is_laid_out_as_the_format_draws_it() {
        let progress = Progress { position: Position(0x0102), bound: Position(0x0304), epoch: 0x0506 };

        let slot = encode_slot(Format::Two, 9, progress);

        assert_eq!(slot.len(), 48);
        assert_eq!(slot[..8], *b"PNSY\x02\0\0\0");
        let field = |at: usize| le_u64(&slot[at..at + 8]);
        assert_eq!([field(8), field(16), field(24), field(32)], [9, 0x0102, 0x0304, 0x0506]);
        assert_eq!(slot[40..44], [0; 4]);
        assert_eq!(le_u32(&slot[44..]), crc32c::crc32c(&slot[..44]));
    }

    #[test]
    fn slots_of_both_formats_are_in_one_file_and_the_newer_one_counts() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = SyncedFile::load(directory.path()).unwrap();
        file.save(&RealDisk, Progress::to(Position(10))).unwrap();
        file.save(&RealDisk, Progress::to(Position(20))).unwrap();
        file.set_format(Format::Two);
        let progress = Progress { position: Position(30), bound: Position(25), epoch: 4 };
        file.save(&RealDisk, progress).unwrap();
        assert_eq!(SyncedFile::load(directory.path()).unwrap().progress(), progress);

        let path = directory.path().join("synced");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[512 + 30] ^= 1;
        std::fs::write(&path, bytes).unwrap();

        assert_eq!(SyncedFile::load(directory.path()).unwrap().progress(), Progress::to(Position(20)));
    }

    #[test]
    fn a_cut_leaves_no_slot_with_a_later_position_and_the_epoch_stays() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = SyncedFile::load(directory.path()).unwrap();
        file.set_format(Format::Two);
        let progress = Progress { position: Position(30), bound: Position(5), epoch: 4 };
        file.save(&RealDisk, progress).unwrap();
        file.cut(&RealDisk, Position(12), 3).unwrap();
        let path = directory.path().join("synced");
        let whole = std::fs::read(&path).unwrap();
        for slot in [16, 512 + 16] {
            let mut bytes = whole.clone();
            bytes[slot] ^= 1;
            std::fs::write(&path, bytes).unwrap();

            let found = SyncedFile::load(directory.path()).unwrap().progress();

            assert_eq!(found, Progress { position: Position(12), ..progress });
        }
    }

    #[test]
    fn a_full_disk_leaves_an_earlier_position_and_fails_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", directory.path().join("synced")).unwrap();
        let mut file = SyncedFile::load(directory.path()).unwrap();

        file.save(&RealDisk, Progress::to(Position(10))).unwrap();

        assert_eq!(file.progress().position, Position(0));
    }

    #[test]
    fn a_torn_slot_leaves_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = SyncedFile::load(directory.path()).unwrap();
        file.save(&RealDisk, Progress::to(Position(10))).unwrap();
        file.save(&RealDisk, Progress::to(Position(20))).unwrap();
        let path = directory.path().join("synced");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[16] ^= 1;
        std::fs::write(&path, bytes).unwrap();

        assert_eq!(position(directory.path()), 10);
    }

    proptest! {
        #[test]
        fn slots_are_read_back_and_any_change_is_noticed(
            format in formats(), turn in any::<u64>(), progress in further(), bit in any::<prop::sample::Index>(),
        ) {
            let bytes = encode_slot(format, turn, progress);
            let expected = if format == Format::One { Progress::to(progress.position) } else { progress };
            prop_assert_eq!(decode_slot(&whole(&bytes)), Some((turn, expected)));

            let mut changed = whole(&bytes);
            let bit = bit.index(bytes.len() * 8);
            changed[bit / 8] ^= 1 << (bit % 8);

            prop_assert_eq!(decode_slot(&changed), None);
        }

        #[test]
        fn any_slot_is_read_or_left_out_without_a_panic(bytes in prop::collection::vec(any::<u8>(), SLOT_BYTES_MAX), format in 0..4_u8) {
            let mut slot = whole(&bytes);
            slot[..4].copy_from_slice(MAGIC);
            slot[4..8].copy_from_slice(&[format, 0, 0, 0]);
            let end = if format < 2 { 28 } else { 44 };
            let crc = crc32c::crc32c(&slot[..end]);
            slot[end..end + 4].copy_from_slice(&crc.to_le_bytes());

            prop_assert_eq!(decode_slot(&slot).is_some(), format < 3);
        }
    }
}
