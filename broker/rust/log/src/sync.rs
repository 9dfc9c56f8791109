//! Group commit: one sync of the segments for all who wait.
//!
//! Invariants: nothing is called synced before every byte below it is on the disk, and after a failed sync nothing is
//! called synced any more. A sync that began before the log was cut says nothing about the log after it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::disk::Disk;
use crate::error::LogError;
use crate::record::Position;
use crate::synced_file::{Progress, SyncedFile};

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

/// How far a sync came, for [`crate::Log::finish_sync`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Synced {
    pub(crate) position: Position,
    /// How often the log had been cut when the sync began.
    pub(crate) cuts: u64,
}

impl Synced {
    /// Everything below it is on the disk.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }
}

/// A sync that runs without the log's lock: of everything written when it was made.
#[derive(Debug)]
#[must_use]
pub struct SyncTicket {
    pub(crate) files: Vec<Unsynced>,
    pub(crate) synced: Synced,
    /// What the file `synced` says afterwards.
    pub(crate) progress: Progress,
    pub(crate) directory: Arc<Path>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) synced_file: Arc<Mutex<SyncedFile>>,
    pub(crate) stopped: Arc<AtomicBool>,
}

impl SyncTicket {
    /// Syncs every segment that needs it, oldest first, and the directory when it has a new name. A failure stops the log
    /// for good: pages that failed cannot be trusted again.
    pub fn perform(self) -> Result<Synced, LogError> {
        if self.stopped.load(Ordering::SeqCst) {
            return Err(LogError::Stopped { path: self.directory.to_path_buf() });
        }
        self.sync_all().inspect_err(|_| self.stopped.store(true, Ordering::SeqCst))?;
        // A start distinguishes corruption from a torn tail by it, so it must cover everything that was confirmed.
        let mut file = self.synced_file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.cuts() == self.synced.cuts {
            file.save(self.disk.as_ref(), self.progress)?;
        }
        Ok(self.synced)
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
