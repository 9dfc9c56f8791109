//! The port to the file system: everything a log does to it goes through [`Disk`], so that a test can make any step fail.
//!
//! Reading goes through maps and through the files themselves; only what changes the disk is here.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::FallocateFlags;

/// What changes a disk.
pub trait Disk: Send + Sync + Debug {
    /// Makes a new file that reads as `bytes` zeros, with its blocks reserved. An existing file is an error.
    fn create(&self, path: &Path, bytes: u64) -> io::Result<File>;
    /// Opens a file that is there, for reading and writing.
    fn open(&self, path: &Path) -> io::Result<File>;
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Returns once the file's bytes are on the disk.
    fn sync(&self, file: &File) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Returns once the names in the directory are on the disk.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// How much room there is where a path lies.
    fn space(&self, path: &Path) -> io::Result<Space> {
        RealDisk.space(path)
    }
}

/// A file system's size and how much of it this process may still fill, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    pub free: u64,
}

/// Whether an error says that there is no room.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The machine's own file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path, bytes: u64) -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        if bytes > 0 {
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
                // Some file systems cannot reserve; a sparse file of that size reads the same.
                Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes)?,
                other => other?,
            }
        }
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(path)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let found = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Space { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }
}

/// A [`RealDisk`] whose steps fail while their switch is on. For tests of what stands on a log, too.
#[derive(Debug, Default)]
pub struct FaultyDisk {
    pub create_fails: AtomicBool,
    pub write_fails: AtomicBool,
    pub sync_fails: AtomicBool,
    pub rename_fails: AtomicBool,
    /// Files that are made larger than this find no room, and no more than this is free; 0 for what the real disk has.
    pub free_bytes: AtomicU64,
}

impl FaultyDisk {
    fn check(switch: &AtomicBool, step: &str) -> io::Result<()> {
        if switch.load(Ordering::SeqCst) { Err(io::Error::other(format!("injected fault: {step}"))) } else { Ok(()) }
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path, bytes: u64) -> io::Result<File> {
        Self::check(&self.create_fails, "create")?;
        let free = self.free_bytes.load(Ordering::SeqCst);
        if free > 0 && bytes > free {
            return Err(io::ErrorKind::StorageFull.into());
        }
        RealDisk.create(path, bytes)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        RealDisk.open(path)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if Self::check(&self.write_fails, "write").is_err() {
            // A failing write may leave a part behind; what follows must not depend on none having arrived.
            let part = bytes.get(..bytes.len() / 2).unwrap_or_default();
            RealDisk.write_at(file, part, offset)?;
            return Self::check(&self.write_fails, "write");
        }
        RealDisk.write_at(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        Self::check(&self.sync_fails, "sync")?;
        RealDisk.sync(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Self::check(&self.rename_fails, "rename")?;
        RealDisk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        RealDisk.unlink(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        Self::check(&self.sync_fails, "sync")?;
        RealDisk.sync_directory(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let found = RealDisk.space(path)?;
        let free = self.free_bytes.load(Ordering::SeqCst);
        Ok(Space { free: if free > 0 { free } else { found.free }, ..found })
    }
}
