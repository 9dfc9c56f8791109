//! Copies of all logs of a vhost, made while messages come and go.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_log::{BackupReader, BackupTicket, Disk as _, Position, RealDisk};

use crate::dedicated::{KeptFolder, io};
use crate::error::EngineError;
use crate::log_number::LogNumber;
use crate::shard::Shard;

/// A copy to make of the log of shard 0 and of the other logs. While it exists the logs keep the files that it names,
/// even when a queue is deleted, and fold on.
pub struct Backup {
    ticket: BackupTicket,
    shard: Arc<Shard>,
    others: Vec<(LogNumber, Backup)>,
    /// Dropped after the ticket, whose files are in it.
    _kept: KeptFolder,
}

impl Backup {
    /// Everything below it is in the copy.
    #[must_use]
    pub fn position(&self) -> Position {
        self.ticket.position()
    }

    /// Makes the copy in an empty directory. Blocks.
    ///
    /// # Errors
    /// `Log` when a file cannot be copied or synced.
    pub fn write(self, directory: &Path) -> Result<(), EngineError> {
        let written = self.ticket.perform(directory);
        self.shard.request_fold();
        written?;
        write_others(directory, self.others)
    }
}

/// One file of a copy: its path below the virtual host's directory, how much of it is read, and its size, to which
/// zeros fill it up.
#[derive(Clone, Debug)]
pub struct FileOfBackup {
    pub path: String,
    pub bytes: u64,
    pub size: u64,
}

/// Reads a copy part by part instead of writing it to a directory. While it exists the logs keep its files.
pub struct OpenBackup {
    files: Vec<FileOfBackup>,
    /// Of each file, the log that it is of and its index there.
    places: Vec<(usize, usize)>,
    logs: Vec<OpenLog>,
}

/// Dropped in this order: a fold can use the room once the files are released, and the folder holds them until then.
struct OpenLog {
    reader: BackupReader,
    _fold: FoldAfter,
    _kept: KeptFolder,
}

struct FoldAfter(Arc<Shard>);

impl Drop for FoldAfter {
    fn drop(&mut self) {
        self.0.request_fold();
    }
}

impl Backup {
    /// Opens the copy for reading. Blocks.
    ///
    /// # Errors
    /// `Log` when a file cannot be examined.
    pub fn open(self) -> Result<OpenBackup, EngineError> {
        let mut open = OpenBackup { files: Vec::new(), places: Vec::new(), logs: Vec::new() };
        open.add(self)?;
        Ok(open)
    }
}

impl OpenBackup {
    #[must_use]
    pub fn files(&self) -> &[FileOfBackup] {
        &self.files
    }

    /// Reads a part of a file, at most up to its end. Blocks.
    ///
    /// # Errors
    /// `Log` when the file is gone, shorter than it was, or cannot be read.
    pub fn read(&mut self, file: usize, at: u64, length: usize) -> Result<Vec<u8>, EngineError> {
        let Some(&(log, index)) = self.places.get(file) else { return Ok(Vec::new()) };
        let Some(log) = self.logs.get_mut(log) else { return Ok(Vec::new()) };
        Ok(log.reader.read(index, at, length)?)
    }

    fn add(&mut self, backup: Backup) -> Result<(), EngineError> {
        let Backup { ticket, shard, others, _kept } = backup;
        let reader = ticket.open()?;
        for (index, file) in reader.files().iter().enumerate() {
            self.files.push(FileOfBackup {
                path: shard.number().place_of(&file.name),
                bytes: file.bytes,
                size: file.size,
            });
            self.places.push((self.logs.len(), index));
        }
        self.logs.push(OpenLog { reader, _fold: FoldAfter(shard), _kept });
        for (_, backup) in others {
            self.add(backup)?;
        }
        Ok(())
    }
}

impl Shard {
    /// Fixes the content of a copy of the log: everything stored until now.
    ///
    /// # Errors
    /// `Log` when the tail cannot be written; `Stopped` and `Closed`.
    pub fn begin_backup(self: &Arc<Self>) -> Result<Backup, EngineError> {
        let mut others = Vec::new();
        for (number, shard) in self.others.all() {
            others.push((number, shard.begin_backup()?));
        }
        let kept = self.keep_folder();
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        let ticket = guard.log.begin_backup()?;
        drop(guard);
        Ok(Backup { ticket, shard: Arc::clone(self), others, _kept: kept })
    }
}

/// Copies other logs to their places in a restored directory, including those of queues that were deleted meanwhile.
fn write_others(directory: &Path, others: Vec<(LogNumber, Backup)>) -> Result<(), EngineError> {
    if others.is_empty() {
        return Ok(());
    }
    let mut folders = Vec::new();
    for (folder, name, backup) in others.into_iter().filter_map(|(number, backup)| {
        let (folder, name) = number.folder()?;
        Some((directory.join(folder), name, backup))
    }) {
        if !folders.contains(&folder) {
            std::fs::create_dir(&folder).map_err(|source| io("make", &folder, source))?;
            folders.push(folder.clone());
        }
        let target = folder.join(name);
        std::fs::create_dir(&target).map_err(|source| io("make", &target, source))?;
        backup.write(&target)?;
    }
    for path in folders.iter().map(PathBuf::as_path).chain([directory]) {
        RealDisk.sync_directory(path).map_err(|source| io("sync", path, source))?;
    }
    Ok(())
}
