//! The file `replica`: the identity of a replica's disk, and the epoch that it has promised. See `docs/format.md`, "Replica".
//!
//! Invariants: the identity is written once and never changes. A promise is on the disk before it counts, in the slot that the
//! one before is not in, so that a torn write leaves that one. Promises are stored one after the other: a later one that was stored first
//! would be overwritten by the one after.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_log::Disk;
use penstock_replica::{Epoch, ReplicaId};

use crate::error::OpenError;

const NAME: &str = "replica";
const MAGIC: &[u8; 4] = b"PNRP";
const FORMAT: u32 = 1;
const SLOT_BYTES: usize = 48;
/// Two sectors, so that a torn write destroys only one slot.
const SLOT_PLACES: [u64; 2] = [0, 512];
const FILE_BYTES: usize = 1024;

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    turn: u64,
    replica: ReplicaId,
    promised: Epoch,
}

impl Slot {
    fn encode(self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4..8].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.turn.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.replica.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.promised.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..44]);
        bytes[44..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The slot in these bytes, or the format of a newer one; `None` when it is torn.
    fn decode(bytes: &[u8]) -> Option<Result<Slot, u32>> {
        let bytes: &[u8; SLOT_BYTES] = bytes.first_chunk()?;
        let number =
            |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |part| u32::from_le_bytes(*part));
        if &bytes[..4] != MAGIC || number(44) != crc32c::crc32c(&bytes[..44]) {
            return None;
        }
        if number(4) != FORMAT {
            return Some(Err(number(4)));
        }
        let long = |at: usize| u64::from(number(at)) | (u64::from(number(at + 4)) << 32);
        let replica = u128::from(long(16)) | (u128::from(long(24)) << 64);
        Some(Ok(Slot { turn: long(8), replica, promised: long(32) }))
    }
}

/// The identity and the promise of the replica in a folder, as the file `replica` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub replica: ReplicaId,
    pub promised: Epoch,
}

impl Identity {
    /// Reads the file in a folder without opening its log. `None` where there is none.
    ///
    /// # Errors
    /// `Io`; `Promise` for another file; `NewerPromise`.
    pub fn read(directory: &Path) -> Result<Option<Identity>, OpenError> {
        let path = directory.join(NAME);
        let Some(bytes) = bytes_of(&path)? else { return Ok(None) };
        newest_slot(&path, &bytes).map(|slot| Some(Identity { replica: slot.replica, promised: slot.promised }))
    }
}

/// The file; see the module.
#[derive(Debug)]
pub(crate) struct PromiseFile {
    path: Arc<Path>,
    disk: Arc<dyn Disk>,
    slot: Slot,
}

impl PromiseFile {
    /// Reads the file in a directory; `None` where there is none.
    pub fn find(directory: &Path, disk: &Arc<dyn Disk>) -> Result<Option<PromiseFile>, OpenError> {
        let path: Arc<Path> = directory.join(NAME).into();
        let Some(bytes) = bytes_of(&path)? else { return Ok(None) };
        let slot = newest_slot(&path, &bytes)?;
        Ok(Some(PromiseFile { path, disk: Arc::clone(disk), slot }))
    }

    /// Writes the file, and syncs it, with an identity that was drawn for this disk.
    pub fn make(directory: &Path, disk: Arc<dyn Disk>, drawn: ReplicaId) -> Result<PromiseFile, OpenError> {
        let path: Arc<Path> = directory.join(NAME).into();
        let slot = Slot { turn: 0, replica: drawn, promised: 0 };
        create(&path, disk.as_ref(), slot)?;
        Ok(PromiseFile { path, disk, slot })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn replica(&self) -> ReplicaId {
        self.slot.replica
    }

    pub fn promised(&self) -> Epoch {
        self.slot.promised
    }

    /// The next promise, to be stored by a thread. The one before is stored.
    pub fn begin(&mut self, epoch: Epoch) -> PromiseTicket {
        self.slot = Slot { turn: self.slot.turn + 1, promised: epoch, ..self.slot };
        PromiseTicket { path: Arc::clone(&self.path), disk: Arc::clone(&self.disk), slot: self.slot }
    }
}

/// A promise to be stored.
#[derive(Debug)]
#[must_use]
pub struct PromiseTicket {
    path: Arc<Path>,
    disk: Arc<dyn Disk>,
    slot: Slot,
}

impl PromiseTicket {
    /// Stores it. It is on the disk then. Returns its epoch. Blocks.
    pub fn perform(self) -> Result<Epoch, std::io::Error> {
        let file = self.disk.open(&self.path)?;
        let place = SLOT_PLACES[(self.slot.turn % 2) as usize];
        self.disk.write_at(&file, &self.slot.encode(), place)?;
        self.disk.sync(&file)?;
        Ok(self.slot.promised)
    }
}

/// The bytes of a file; `None` where there is none.
fn bytes_of(path: &Path) -> Result<Option<Vec<u8>>, OpenError> {
    match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|error| io("read", path, error)),
    }
}

fn newest_slot(path: &Path, bytes: &[u8]) -> Result<Slot, OpenError> {
    let slots = SLOT_PLACES.map(|at| Slot::decode(bytes.get(at as usize..).unwrap_or_default()));
    if let Some(found) = slots.iter().find_map(|slot| slot.and_then(Result::err)) {
        return Err(OpenError::NewerPromise { path: path.to_path_buf(), found, supported: FORMAT });
    }
    let newest = slots.into_iter().flatten().flatten().max_by_key(|slot| slot.turn);
    newest.ok_or_else(|| OpenError::Promise { path: path.to_path_buf() })
}

/// Brings a new file to the disk, with its name.
fn create(path: &Path, disk: &dyn Disk, slot: Slot) -> Result<(), OpenError> {
    let temporary = path.with_extension("tmp");
    match disk.unlink(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(io("remove", &temporary, error)),
        _ => {}
    }
    let mut bytes = [0; FILE_BYTES];
    bytes[..SLOT_BYTES].copy_from_slice(&slot.encode());
    let written = disk.create(&temporary, 0).and_then(|file| {
        disk.write_at(&file, &bytes, 0)?;
        disk.sync(&file)
    });
    written.map_err(|error| io("write", &temporary, error))?;
    disk.rename(&temporary, path).map_err(|error| io("rename", &temporary, error))?;
    let directory = path.parent().unwrap_or(path);
    disk.sync_directory(directory).map_err(|error| io("sync", directory, error))
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> OpenError {
    OpenError::Io { action, path: PathBuf::from(path), source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use penstock_log::RealDisk;

    use super::*;

    fn open(directory: &Path, drawn: ReplicaId) -> Result<PromiseFile, OpenError> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        PromiseFile::find(directory, &disk)?.map_or_else(|| PromiseFile::make(directory, disk, drawn), Ok)
    }

    #[test]
    fn an_identity_is_drawn_once_and_the_last_promise_is_found() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Identity::read(directory.path()).unwrap(), None);
        let mut file = open(directory.path(), 7 << 100).unwrap();
        assert_eq!((file.replica(), file.promised()), (7 << 100, 0));
        for epoch in [3, 5, 9] {
            assert_eq!(file.begin(epoch).perform().unwrap(), epoch);
            let file = open(directory.path(), 8).unwrap();
            assert_eq!((file.replica(), file.promised()), (7 << 100, epoch));
            let read = Identity::read(directory.path()).unwrap();
            assert_eq!(read, Some(Identity { replica: 7 << 100, promised: epoch }));
        }
    }

    #[test]
    fn a_torn_promise_leaves_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = open(directory.path(), 7).unwrap();
        file.begin(3).perform().unwrap();
        file.begin(5).perform().unwrap();
        let path = directory.path().join(NAME);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[33] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(open(directory.path(), 8).unwrap().promised(), 3);

        bytes[512 + 33] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(matches!(open(directory.path(), 8), Err(OpenError::Promise { .. })));
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        drop(open(directory.path(), 7).unwrap());
        let path = directory.path().join(NAME);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[4] = 9;
        let crc = crc32c::crc32c(&bytes[..44]);
        bytes[44..48].copy_from_slice(&crc.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();

        assert!(matches!(open(directory.path(), 7), Err(OpenError::NewerPromise { found: 9, .. })));
    }

    #[test]
    fn a_slot_is_laid_out_as_the_format_draws_it() {
        let bytes = Slot { turn: 0x0102, replica: 0x0304 << 64, promised: 0x0506 }.encode();

        assert_eq!(bytes[..16], *b"PNRP\x01\0\0\0\x02\x01\0\0\0\0\0\0");
        assert_eq!(bytes[16..32], [0, 0, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[32..44], [6, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Slot::decode(&bytes), Some(Ok(Slot { turn: 0x0102, replica: 0x0304 << 64, promised: 0x0506 })));
    }
}
