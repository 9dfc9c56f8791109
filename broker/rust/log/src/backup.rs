//! A copy of a log at one position, made while the log goes on.
//!
//! Invariants: the files that a copy names stay on the disk until it is done, whatever folds find dead meanwhile.
//! Nothing else waits for a copy: folds go on, and other files are removed as usual. A copy does not write to the log
//! and shares no file with it: segments are mapped, and a copy's files may be truncated. A copy is on the disk when it
//! is complete, and its `synced` says so.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::checkpoint::{checkpoint_path, unlink_if_there};
use crate::disk::Disk;
use crate::error::LogError;
use crate::fold_ticket::set_aside;
use crate::gap::Gap;
use crate::manifest::Manifest;
use crate::names::Names;
use crate::record::Position;
use crate::segment::{Segment, corrupt_path, directory_path};
use crate::synced_file::{Progress, SyncedFile};

const COPY_BYTES: usize = 1 << 20;

/// The files that running copies need, and those of them to remove afterwards.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    copies: usize,
    /// The number of copies that need a file.
    needed: FxHashMap<PathBuf, usize>,
    waiting: Vec<Gone>,
    /// The log is closed: a later removal is durable only after another sync of the directory.
    is_closed: bool,
}

/// A file that the log no longer needs.
#[derive(Debug)]
struct Gone {
    path: PathBuf,
    /// Another log may take the place of the log before the copy is done, with files of the same names.
    file: Option<FileId>,
    /// A corrupt segment is renamed instead.
    is_kept: bool,
}

/// The device and the number of a file on it.
type FileId = (u64, u64);

fn file_id(path: &Path) -> Option<FileId> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino())).ok()
}

impl Gone {
    fn remove(&self, disk: &dyn Disk) -> Result<(), LogError> {
        if file_id(&self.path) != self.file {
            return Ok(());
        }
        if self.is_kept { set_aside(disk, &self.path).map(|_| ()) } else { unlink_if_there(disk, &self.path) }
    }
}

impl Holds {
    pub(crate) fn is_held(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).copies > 0
    }

    /// Notes that the log is about to sync its directory for the last time.
    pub(crate) fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
    }

    /// Makes removals durable that happened after the log was closed.
    pub(crate) fn removed(&self, disk: &dyn Disk, file: Option<&Path>) -> Result<(), LogError> {
        let is_closed = self.0.lock().unwrap_or_else(PoisonError::into_inner).is_closed;
        let Some(directory) = file.and_then(Path::parent).filter(|_| is_closed) else { return Ok(()) };
        disk.sync_directory(directory).map_err(|error| LogError::io("sync", directory, error))
    }

    /// Removes a file, or renames it: now, or once no copy needs it.
    pub(crate) fn remove(&self, disk: &dyn Disk, path: &Path, is_kept: bool) -> Result<(), LogError> {
        let gone = Gone { path: path.to_owned(), file: file_id(path), is_kept };
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.needed.contains_key(path) {
            held.waiting.push(gone);
            return Ok(());
        }
        drop(held);
        gone.remove(disk)
    }
}

/// Keeps the files of one copy until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    holds: Arc<Holds>,
    disk: Arc<dyn Disk>,
    files: Vec<PathBuf>,
}

impl Hold {
    /// Also holds the existing checkpoints, and returns them. The log's lock is held: no fold begins between the list
    /// of sealed segments and this, and a running one releases no more than the oldest checkpoint listed.
    pub(crate) fn take(
        holds: &Arc<Holds>,
        disk: &Arc<dyn Disk>,
        directory: &Path,
        sealed: &[(PathBuf, PathBuf)],
    ) -> Result<(Hold, Vec<PathBuf>), LogError> {
        let mut held = holds.0.lock().unwrap_or_else(PoisonError::into_inner);
        let names = Names::list(directory)?;
        let checkpoints: Vec<_> = names.checkpoints.iter().map(|&number| checkpoint_path(directory, number)).collect();
        let segments = sealed.iter().flat_map(|(segment, index)| [segment, index]);
        let files: Vec<_> = segments.chain(&checkpoints).cloned().collect();
        for file in &files {
            *held.needed.entry(file.clone()).or_default() += 1;
        }
        held.copies += 1;
        Ok((Hold { holds: Arc::clone(holds), disk: Arc::clone(disk), files }, checkpoints))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.holds.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Held { copies, needed, waiting, .. } = &mut *held;
        *copies -= 1;
        for file in &self.files {
            if let Some(count) = needed.get_mut(file) {
                *count -= 1;
            }
        }
        needed.retain(|_, count| *count > 0);
        let (kept, gone) = std::mem::take(waiting).into_iter().partition(|gone| needed.contains_key(&gone.path));
        *waiting = kept;
        drop(held);
        let gone: Vec<Gone> = gone;
        for file in &gone {
            // A file that stays is dead at the checkpoint; the next start's first fold removes it.
            let _ = file.remove(self.disk.as_ref());
        }
        let _ = self.holds.removed(self.disk.as_ref(), gone.first().map(|gone| gone.path.as_path()));
    }
}

/// A copy of everything below `position`, made by a thread without the log's lock.
#[derive(Debug)]
#[must_use]
pub struct BackupTicket {
    pub(crate) directory: Arc<Path>,
    pub(crate) log_id: [u8; 16],
    pub(crate) position: Position,
    /// Segments, and up to where the records of each count in its file.
    pub(crate) sealed: Vec<(Segment, u64, Option<Gap>)>,
    /// Segments that cannot be served, which only a start reads: a start of the copy reports them, too.
    pub(crate) unserved: Vec<PathBuf>,
    /// Entries of the rewritten ones among the sealed segments.
    pub(crate) manifest: Manifest,
    pub(crate) active: (Segment, Arc<File>),
    /// How much of the active segment's file is below the position, and the file's size.
    pub(crate) active_bytes: (u64, u64),
    pub(crate) hold: Hold,
    /// Checkpoints from before the copy began: a later one is above its position.
    pub(crate) checkpoints: Vec<PathBuf>,
    /// Disk space that draining the log needs, which a copy on the same disk leaves free.
    pub(crate) room_needed: u64,
}

impl BackupTicket {
    /// Everything below it is in the copy.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Makes the copy in an empty directory, on any file system. Where possible it shares blocks of files.
    pub fn perform(self, target: &Path) -> Result<(), LogError> {
        for (segment, ..) in &self.sealed {
            // A map of its own, dropped with the copy of it.
            let segment = segment.unmapped();
            self.copy_of(segment.path(), Some(&segment), target)?;
            self.copy_if_there(&segment.directory_path(), target)?;
            self.copy_if_there(&corrupt_path(segment.path()), target)?;
        }
        for segment in &self.unserved {
            self.copy_if_there(segment, target)?;
            self.copy_if_there(&directory_path(segment), target)?;
        }
        if let Some((newest, older)) = self.checkpoints.split_last() {
            // The oldest may have gone when the copy began. Without the newest one the log was deleted meanwhile.
            older.iter().try_for_each(|checkpoint| self.copy_if_there(checkpoint, target))?;
            self.copy(newest, target)?;
        }
        // The copy has its own: the log's may name segments that were rewritten after the list of segments was made.
        if !self.manifest.entries.is_empty() {
            let disk = self.hold.disk.as_ref();
            self.manifest.prepare(disk, target, &self.log_id)?;
            Manifest::publish(disk, target)?;
        }
        self.copy_active(target)?;
        SyncedFile::load(target)?.save(self.hold.disk.as_ref(), Progress::to(self.position))?;
        sync(&target.join("synced"))?;
        sync(target)
    }

    fn copy_active(&self, target: &Path) -> Result<(), LogError> {
        let (segment, file) = &self.active;
        let (used, bytes) = self.active_bytes;
        self.check_room(target, used)?;
        let copy = in_directory(segment.path(), target);
        let source = Source { file, path: segment.path(), segment: Some(segment) };
        let copied = copy_bytes(&source, used, &copy)?;
        copied.set_len(bytes).and_then(|()| copied.sync_all()).map_err(|error| LogError::io("write", &copy, error))
    }

    /// Copies a file that no longer changes; afterwards it is on the disk.
    fn copy(&self, path: &Path, target: &Path) -> Result<(), LogError> {
        self.copy_of(path, None, target)
    }

    fn copy_of(&self, path: &Path, segment: Option<&Segment>, target: &Path) -> Result<(), LogError> {
        let opened = File::open(path).and_then(|file| file.metadata().map(|found| (file, found.len())));
        let (file, bytes) = opened.map_err(|error| LogError::io("open", path, error))?;
        self.check_room(target, bytes)?;
        let copy = in_directory(path, target);
        let copied = copy_bytes(&Source { file: &file, path, segment }, bytes, &copy)?;
        copied.sync_all().map_err(|error| LogError::io("sync", &copy, error))
    }

    fn copy_if_there(&self, path: &Path, target: &Path) -> Result<(), LogError> {
        match self.copy(path, target) {
            Err(LogError::Io { source, path: missing, .. })
                if source.kind() == io::ErrorKind::NotFound && missing == path =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// A copy on the log's own disk leaves the space that draining the log needs.
    fn check_room(&self, target: &Path, bytes: u64) -> Result<(), LogError> {
        let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
        if device(target) != device(&self.directory) {
            return Ok(());
        }
        let free = self.hold.disk.space(target).map_or(u64::MAX, |space| space.free);
        if free < self.room_needed.saturating_add(bytes) {
            return Err(LogError::io("write", target, io::ErrorKind::StorageFull.into()));
        }
        Ok(())
    }
}

/// The same name in another directory.
fn in_directory(path: &Path, target: &Path) -> PathBuf {
    target.join(path.file_name().unwrap_or_default())
}

fn sync(path: &Path) -> Result<(), LogError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| LogError::io("sync", path, error))
}

/// A file to copy, and its segment, which is notified of reads.
struct Source<'a> {
    file: &'a File,
    path: &'a Path,
    segment: Option<&'a Segment>,
}

/// Copies the first bytes of a file into a new one.
fn copy_bytes(from: &Source<'_>, bytes: u64, to: &Path) -> Result<File, LogError> {
    let copy = OpenOptions::new().write(true).create_new(true).open(to);
    let copy = copy.map_err(|error| LogError::io("create", to, error))?;
    copy_into(from, bytes, (&copy, to))?;
    Ok(copy)
}

/// By the kernel, which may share blocks. Where it cannot or fails, by reading and writing, which shows which of the
/// two disks failed. Part by part, so that little time passes between the check of what is in memory and the read.
fn copy_into(from: &Source<'_>, bytes: u64, (copy, to): (&File, &Path)) -> Result<(), LogError> {
    let (mut at, mut copied) = (0, 0);
    let part_at = |at: u64| {
        let length = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(COPY_BYTES);
        from.segment.inspect(|segment| segment.note_read(at, at + length as u64));
        length
    };
    while at < bytes {
        let length = part_at(at);
        match rustix::fs::copy_file_range(from.file, Some(&mut at), copy, Some(&mut copied), length) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    let mut buffer = vec![0; if at < bytes { COPY_BYTES } else { 0 }];
    while at < bytes {
        let Some(part) = buffer.get_mut(..part_at(at)) else { break };
        from.file.read_exact_at(part, at).map_err(|error| LogError::io("read", from.path, error))?;
        copy.write_all_at(part, at).map_err(|error| LogError::io("write", to, error))?;
        at += part.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_error_names_the_file_it_was_met_in() {
        let directory = tempfile::tempdir().unwrap();
        let (source, copy) = (directory.path().join("source"), directory.path().join("copy"));
        std::fs::write(&source, [1; 100]).unwrap();
        let file = File::open(&source).unwrap();
        let full = Path::new("/dev/full");
        let device = OpenOptions::new().write(true).open(full).unwrap();

        let from = Source { file: &file, path: &source, segment: None };
        let no_room = copy_into(&from, 100, (&device, full)).unwrap_err();
        let too_short = copy_bytes(&from, 101, &copy).unwrap_err();

        assert!(no_room.is_full());
        assert_eq!(no_room.to_string(), "cannot write /dev/full: No space left on device (os error 28)");
        assert!(too_short.to_string().starts_with(&format!("cannot read {}: ", source.display())));
    }
}
