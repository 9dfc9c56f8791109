//! The port to the file system: every change that a log makes goes through [`Disk`], so that a test can make any step
//! fail.
//!
//! Other reads use maps and the files themselves; the port has only the changes, and the reads of segments by starts
//! and folds.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::FallocateFlags;

const ZEROS_AT_ONCE: usize = 1 << 18;

/// Operations of a disk. The default implementation uses the machine's own file system.
pub trait Disk: Send + Sync + Debug {
    /// Makes a new file that reads as `bytes` zeros and takes no space for them yet. An existing file is an error.
    fn create(&self, path: &Path, bytes: u64) -> io::Result<File> {
        RealDisk.create(path, bytes)
    }
    /// Reserves space for a part of a file that was never written to, so that writing there cannot run out of space.
    fn reserve(&self, file: &File, from: u64, bytes: u64) -> io::Result<()> {
        RealDisk.reserve(file, from, bytes)
    }
    /// Opens an existing file, for reading and writing.
    fn open(&self, path: &Path) -> io::Result<File> {
        RealDisk.open(path)
    }
    /// Fills `bytes` from an offset on, as a start does; later reads go through maps.
    fn read_at(&self, file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        file.read_exact_at(bytes, offset)
    }
    /// Brings a part of a mapped file into memory by `populate`, as a fold does.
    fn populate(&self, path: &Path, part: Range<u64>, populate: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
        let _ = (path, part);
        populate()
    }
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        RealDisk.write_at(file, bytes, offset)
    }
    /// Returns once the file's bytes are on the disk.
    fn sync(&self, file: &File) -> io::Result<()> {
        RealDisk.sync(file)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        RealDisk.unlink(path)
    }
    /// Returns once the names in the directory are on the disk.
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_directory(path)
    }
    /// How much space there is at a path.
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

/// Whether an error means that the disk is full.
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
            file.set_len(bytes)?;
        }
        Ok(file)
    }

    fn reserve(&self, file: &File, from: u64, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), from, bytes) {
            // Some file systems cannot reserve: a write takes the space, too.
            Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(file, from, bytes),
            other => Ok(other?),
        }
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

fn write_zeros(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS_AT_ONCE];
    let end = from.saturating_add(bytes);
    let mut at = from;
    while at < end {
        let piece = usize::try_from(end - at).unwrap_or(usize::MAX).min(ZEROS_AT_ONCE);
        file.write_all_at(zeros.get(..piece).unwrap_or(&zeros), at)?;
        at += piece as u64;
    }
    Ok(())
}

/// A [`RealDisk`] whose steps fail while their switch is on, also for tests of other crates.
#[derive(Debug, Default)]
pub struct FaultyDisk {
    pub create_fails: AtomicBool,
    pub write_fails: AtomicBool,
    pub sync_fails: AtomicBool,
    pub rename_fails: AtomicBool,
    /// More than this cannot be reserved at once, and no more than this is free; 0 for the real disk's.
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
        RealDisk.create(path, bytes)
    }

    fn reserve(&self, file: &File, from: u64, bytes: u64) -> io::Result<()> {
        let free = self.free_bytes.load(Ordering::SeqCst);
        if free > 0 && bytes > free {
            return Err(io::ErrorKind::StorageFull.into());
        }
        RealDisk.reserve(file, from, bytes)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        RealDisk.open(path)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if Self::check(&self.write_fails, "write").is_err() {
            // A failing write may leave a part behind; nothing may rely on its absence.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_new_file_takes_room_only_where_it_is_reserved() {
        let directory = tempfile::tempdir().unwrap();
        let file = RealDisk.create(&directory.path().join("file"), 8 << 20).unwrap();
        let room = || file.metadata().unwrap().blocks() * 512;
        assert_eq!((file.metadata().unwrap().len(), room()), (8 << 20, 0));

        RealDisk.reserve(&file, 0, 1 << 20).unwrap();
        RealDisk.reserve(&file, 1 << 20, 1 << 20).unwrap();

        assert_eq!((file.metadata().unwrap().len(), room()), (8 << 20, 2 << 20));
    }

    #[test]
    fn zeros_take_room_where_nothing_can_be_reserved_and_nowhere_else() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"before", 94).unwrap();
        file.write_all_at(b"after", 100 + 600_000).unwrap();

        write_zeros(&file, 100, 600_000).unwrap();

        let mut found = vec![1; 6 + 600_000 + 5];
        file.read_exact_at(&mut found, 94).unwrap();
        let (before, rest) = found.split_at(6);
        let (zeros, after) = rest.split_at(600_000);
        assert_eq!((before, after), (&b"before"[..], &b"after"[..]));
        assert!(zeros.iter().all(|&byte| byte == 0));
    }
}
