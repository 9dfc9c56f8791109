//! A copy of a log as it stands at one position, made while the log goes on.
//!
//! What must stay true: what a copy was promised stays on the disk until the copy is done, also what a fold finds dead
//! meanwhile; nothing of the log is written to; a copy is on the disk when it is called done, and says so in `synced`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::checkpoint::checkpoint_path;
use crate::disk::Disk;
use crate::error::LogError;
use crate::fold_ticket::set_aside;
use crate::manifest::Manifest;
use crate::names::Names;
use crate::record::Position;
use crate::sync::{SyncedFile, save_position};

const COPY_BYTES: usize = 1 << 20;

/// How many copies are under way, and the files to remove once none is.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    count: usize,
    waiting: Vec<PathBuf>,
    /// Damaged segments, to be set aside then.
    kept: Vec<PathBuf>,
}

impl Holds {
    pub(crate) fn is_held(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).count > 0
    }

    /// Takes over the removal of files while a copy is under way; says whether it did.
    pub(crate) fn postpone(&self, files: &[PathBuf], kept: &[PathBuf]) -> bool {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.count > 0 {
            held.waiting.extend_from_slice(files);
            held.kept.extend_from_slice(kept);
        }
        held.count > 0
    }
}

/// Keeps every file of the log until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    holds: Arc<Holds>,
    disk: Arc<dyn Disk>,
}

impl Hold {
    pub(crate) fn take(holds: &Arc<Holds>, disk: &Arc<dyn Disk>) -> Hold {
        holds.0.lock().unwrap_or_else(PoisonError::into_inner).count += 1;
        Hold { holds: Arc::clone(holds), disk: Arc::clone(disk) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.holds.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.count -= 1;
        if held.count > 0 {
            return;
        }
        let (files, kept) = (std::mem::take(&mut held.waiting), std::mem::take(&mut held.kept));
        drop(held);
        for path in kept {
            let _ = set_aside(self.disk.as_ref(), &path);
        }
        for path in files {
            // One that stays is dead at the checkpoint; the next start's first fold removes it.
            let _ = self.disk.unlink(&path);
        }
    }
}

/// A copy to be made by a thread without the log's lock: of everything below `position`.
#[derive(Debug)]
#[must_use]
pub struct BackupTicket {
    pub(crate) directory: Arc<Path>,
    pub(crate) log_id: [u8; 16],
    pub(crate) position: Position,
    /// The files of the sealed segments and, where they have one, of their directories.
    pub(crate) sealed: Vec<(PathBuf, PathBuf)>,
    /// Of those of them that were rewritten.
    pub(crate) manifest: Manifest,
    pub(crate) active: (PathBuf, Arc<File>),
    /// How much of the active segment's file is below the position, and how large the file is.
    pub(crate) active_bytes: (u64, u64),
    pub(crate) hold: Hold,
}

impl BackupTicket {
    /// Everything below it is in the copy.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Makes the copy in an empty directory. Sealed segments become hard links where that is possible.
    pub fn perform(self, target: &Path) -> Result<(), LogError> {
        for (segment, index) in &self.sealed {
            link(segment, target)?;
            link_if_there(index, target)?;
        }
        let names = Names::list(&self.directory)?;
        for number in names.checkpoints {
            // The oldest may go just now; the one after it stays, as no fold begins while the files are held.
            link_if_there(&checkpoint_path(&self.directory, number), target)?;
        }
        // Its own: the log's may name by now what was rewritten after the list of segments was made.
        if !self.manifest.entries.is_empty() {
            let disk = self.hold.disk.as_ref();
            self.manifest.prepare(disk, target, &self.log_id)?;
            Manifest::publish(disk, target)?;
        }
        self.copy_active(target)?;
        let synced = Mutex::new(SyncedFile::load(target)?);
        save_position(&synced, self.hold.disk.as_ref(), self.position)?;
        sync(&target.join("synced"))?;
        File::open(target).and_then(|file| file.sync_all()).map_err(|error| LogError::io("sync", target, error))
    }

    fn copy_active(&self, target: &Path) -> Result<(), LogError> {
        let (path, file) = &self.active;
        let (used, bytes) = self.active_bytes;
        let copy = in_directory(path, target);
        copy_bytes(file, used, &copy)
            .and_then(|copied| copied.set_len(bytes).and_then(|()| copied.sync_all()))
            .map_err(|error| LogError::io("write", &copy, error))
    }
}

/// The same name in another directory.
fn in_directory(path: &Path, target: &Path) -> PathBuf {
    target.join(path.file_name().unwrap_or_default())
}

/// Links a file that does not change any more, or copies it to another file system; then it is on the disk.
fn link(path: &Path, target: &Path) -> Result<(), LogError> {
    let copy = in_directory(path, target);
    match std::fs::hard_link(path, &copy) {
        Ok(()) => return sync(&copy),
        Err(error) if is_no_link(&error) => {}
        Err(error) => return Err(LogError::io("link", path, error)),
    }
    let file = File::open(path).map_err(|error| LogError::io("open", path, error))?;
    let bytes = file.metadata().map_err(|error| LogError::io("open", path, error))?.len();
    let copied = copy_bytes(&file, bytes, &copy).and_then(|copied| copied.sync_all());
    copied.map_err(|error| LogError::io("write", &copy, error))
}

fn link_if_there(path: &Path, target: &Path) -> Result<(), LogError> {
    match link(path, target) {
        Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Whether links cannot be made there at all, as between file systems.
fn is_no_link(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(error.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
}

fn sync(path: &Path) -> Result<(), LogError> {
    File::open(path).and_then(|file| file.sync_data()).map_err(|error| LogError::io("sync", path, error))
}

/// Copies the first `bytes` of a file into a new one.
fn copy_bytes(from: &File, bytes: u64, to: &Path) -> io::Result<File> {
    let copy = OpenOptions::new().write(true).create_new(true).open(to)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < bytes {
        let length = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(COPY_BYTES);
        let Some(part) = buffer.get_mut(..length) else { break };
        from.read_exact_at(part, at)?;
        copy.write_all_at(part, at)?;
        at += length as u64;
    }
    Ok(copy)
}
