//! Group commit, and the file that records how far it came. See `docs/format.md`, "Synced".
//!
//! Invariants: nothing is called synced before every byte below it is on the disk, and after a failed sync nothing is
//! called synced any more. The file has a lower bound: it is written after each sync and not synced itself except by a
//! start that found corruption, so a process that dies leaves the last position and a power failure an earlier one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::disk::{Disk, is_full};
use crate::error::LogError;
use crate::header::is_bad_sector;
use crate::record::{Position, le_u32, le_u64};

const MAGIC: &[u8; 4] = b"PNSY";
const SLOT_BYTES: usize = 32;
/// Two sectors, so that a torn write destroys only one slot.
const SLOT_PLACES: [u64; 2] = [0, 512];
const FILE_BYTES: u64 = 1024;

/// A segment whose bytes are not all known to be on the disk.
#[derive(Clone, Debug)]
pub(crate) struct Unsynced {
    pub(crate) number: u64,
    pub(crate) path: Arc<Path>,
    file: Arc<File>,
    /// Whether its name is not known to be on the disk either.
    pub(crate) is_new: bool,
    /// Whether a sync of it failed; locked while one runs.
    has_failed: Arc<Mutex<bool>>,
}

impl Unsynced {
    /// An unsynced segment that was just made.
    pub(crate) fn new(number: u64, path: &Path, file: &Arc<File>) -> Unsynced {
        let (path, file) = (Arc::from(path), Arc::clone(file));
        Unsynced { number, path, file, is_new: true, has_failed: Arc::default() }
    }

    /// Returns once its bytes are on the disk. The system reports lost pages once, to the first caller: later callers
    /// after a failed sync are told here.
    pub(crate) fn sync(&self, disk: &dyn Disk) -> Result<(), LogError> {
        let mut has_failed = self.has_failed.lock().unwrap_or_else(PoisonError::into_inner);
        let synced =
            if *has_failed { Err(io::Error::other("an earlier sync of it failed")) } else { disk.sync(&self.file) };
        *has_failed = synced.is_err();
        synced.map_err(|error| LogError::io("sync", &self.path, error))
    }
}

/// A sync that runs without the log's lock: of everything written when it was made.
#[derive(Debug)]
#[must_use]
pub struct SyncTicket {
    pub(crate) files: Vec<Unsynced>,
    pub(crate) position: Position,
    pub(crate) directory: Arc<Path>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) synced_file: Arc<Mutex<SyncedFile>>,
    pub(crate) stopped: Arc<AtomicBool>,
}

impl SyncTicket {
    /// Syncs every segment that needs it, oldest first, and the directory when it has a new name. Returns the position
    /// for [`crate::Log::finish_sync`]. A failure stops the log for good: pages that failed cannot be trusted again.
    pub fn perform(self) -> Result<Position, LogError> {
        if self.stopped.load(Ordering::SeqCst) {
            return Err(LogError::Stopped { path: self.directory.to_path_buf() });
        }
        self.sync_all().inspect_err(|_| self.stopped.store(true, Ordering::SeqCst))?;
        // A start distinguishes corruption from a torn tail by it, so it must cover everything that was confirmed.
        save_position(&self.synced_file, self.disk.as_ref(), self.position)?;
        Ok(self.position)
    }

    fn sync_all(&self) -> Result<(), LogError> {
        for unsynced in &self.files {
            unsynced.sync(self.disk.as_ref())?;
        }
        if self.files.iter().any(|unsynced| unsynced.is_new) {
            let synced = self.disk.sync_directory(&self.directory);
            synced.map_err(|error| LogError::io("sync", &self.directory, error))?;
        }
        Ok(())
    }
}

/// Records a position that is on the disk already.
pub(crate) fn save_position(file: &Mutex<SyncedFile>, disk: &dyn Disk, position: Position) -> Result<(), LogError> {
    file.lock().unwrap_or_else(PoisonError::into_inner).save(disk, position)
}

/// The file `synced`: two slots, written in turn.
#[derive(Debug)]
pub(crate) struct SyncedFile {
    path: PathBuf,
    turn: u64,
    position: Position,
    /// Open since the first position was saved.
    file: Option<File>,
}

impl SyncedFile {
    /// Reads it; one that is absent or has no whole slot is 0.
    pub(crate) fn load(directory: &Path) -> Result<SyncedFile, LogError> {
        let path = directory.join("synced");
        let mut found = SyncedFile { path, turn: 0, position: Position(0), file: None };
        let file = match File::open(&found.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(LogError::io("open", &found.path, error)),
        };
        for place in SLOT_PLACES {
            let mut slot = [0; SLOT_BYTES];
            match file.read_exact_at(&mut slot, place) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof || is_bad_sector(&error) => continue,
                other => other.map_err(|error| LogError::io("read", &found.path, error))?,
            }
            if let Some((turn, position)) = decode_slot(&slot)
                && turn >= found.turn
            {
                (found.turn, found.position) = (turn, position);
            }
        }
        Ok(found)
    }

    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Records a position that is on the disk already.
    pub(crate) fn save(&mut self, disk: &dyn Disk, position: Position) -> Result<(), LogError> {
        if position <= self.position {
            return Ok(());
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => match self.open(disk) {
                // It is a lower bound, so an older one suffices until there is space.
                Err(error) if is_full(&error) => return Ok(()),
                opened => opened.map_err(|error| LogError::io("open", &self.path, error))?,
            },
        };
        let turn = self.turn + 1;
        let place = SLOT_PLACES[(turn % 2) as usize];
        match disk.write_at(&file, &encode_slot(turn, position), place) {
            Err(error) if is_full(&error) => return Ok(()),
            written => written.map_err(|error| LogError::io("write", &self.path, error))?,
        }
        self.file = Some(file);
        (self.turn, self.position) = (turn, position);
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
    let mut file = encode_slot(0, position).to_vec();
    file.resize(FILE_BYTES as usize, 0);
    file
}

fn encode_slot(turn: u64, position: Position) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..4].copy_from_slice(MAGIC);
    slot[4..8].copy_from_slice(&crate::segment::FORMAT.to_le_bytes());
    slot[8..16].copy_from_slice(&turn.to_le_bytes());
    slot[16..24].copy_from_slice(&position.0.to_le_bytes());
    let crc = crc32c::crc32c(&slot[..28]);
    slot[28..].copy_from_slice(&crc.to_le_bytes());
    slot
}

fn decode_slot(slot: &[u8; SLOT_BYTES]) -> Option<(u64, Position)> {
    let is_whole = &slot[..4] == MAGIC && le_u32(&slot[28..]) == crc32c::crc32c(&slot[..28]);
    is_whole.then(|| (le_u64(&slot[8..16]), Position(le_u64(&slot[16..24]))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::disk::RealDisk;

    #[test]
    fn the_last_position_saved_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = SyncedFile::load(directory.path()).unwrap();
        for position in [10, 20, 30] {
            file.save(&RealDisk, Position(position)).unwrap();
        }

        assert_eq!(SyncedFile::load(directory.path()).unwrap().position(), Position(30));
    }

    #[test]
    fn the_content_with_a_position_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("synced"), synced_with(Position(7))).unwrap();

        assert_eq!(SyncedFile::load(directory.path()).unwrap().position(), Position(7));
    }

    #[test]
    fn a_full_disk_leaves_an_earlier_position_and_fails_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", directory.path().join("synced")).unwrap();
        let mut file = SyncedFile::load(directory.path()).unwrap();

        file.save(&RealDisk, Position(10)).unwrap();

        assert_eq!(file.position(), Position(0));
    }

    #[test]
    fn a_torn_slot_leaves_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = SyncedFile::load(directory.path()).unwrap();
        file.save(&RealDisk, Position(10)).unwrap();
        file.save(&RealDisk, Position(20)).unwrap();
        let path = directory.path().join("synced");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[16] ^= 1;
        std::fs::write(&path, bytes).unwrap();

        assert_eq!(SyncedFile::load(directory.path()).unwrap().position(), Position(10));
    }
}
