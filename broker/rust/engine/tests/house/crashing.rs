//! Disks that stop after so many writes: one as a process that is killed in the middle of a write, and one as a process that is
//! killed between two appends, which also forgets, log by log, a part of what was not synced, as a machine without power.
#![allow(dead_code, reason = "a test uses one of them")]

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use penstock_log::{Disk, RealDisk};

/// Writes only a part once so many writes were done, as a process that dies in one.
#[derive(Debug)]
pub struct DyingDisk {
    pub writes_left: AtomicI64,
}

impl Default for DyingDisk {
    fn default() -> Self {
        DyingDisk { writes_left: AtomicI64::new(i64::MAX) }
    }
}

impl Disk for DyingDisk {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self.writes_left.fetch_sub(1, Ordering::SeqCst) {
            1.. => RealDisk.write_at(file, bytes, offset),
            0 => {
                RealDisk.write_at(file, &bytes[..bytes.len() * 2 / 3], offset)?;
                Err(io::Error::other("the process dies"))
            }
            _ => Err(io::Error::other("the process is dead")),
        }
    }
}

/// File, offset and length of a write.
type Write = (PathBuf, u64, usize);

#[derive(Debug)]
pub struct CrashingDisk {
    /// Further writes fail.
    pub writes_left: AtomicI64,
    /// Of each log, the writes to its segments that were not synced, in their order.
    unsynced: Mutex<BTreeMap<PathBuf, Vec<Write>>>,
}

impl Default for CrashingDisk {
    fn default() -> Self {
        CrashingDisk { writes_left: AtomicI64::new(i64::MAX), unsynced: Mutex::default() }
    }
}

impl Disk for CrashingDisk {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let path = path_of(file)?;
        if !is_segment(&path) {
            return RealDisk.write_at(file, bytes, offset);
        }
        if self.writes_left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(io::Error::other("the process is dead"));
        }
        let log = path.parent().unwrap().to_owned();
        self.unsynced.lock().unwrap().entry(log).or_default().push((path, offset, bytes.len()));
        RealDisk.write_at(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let path = path_of(file)?;
        RealDisk.sync(file)?;
        for writes in self.unsynced.lock().unwrap().values_mut() {
            writes.retain(|(of, _, _)| *of != path);
        }
        Ok(())
    }
}

impl CrashingDisk {
    /// Copies the directory as a start after a failure of power finds it: of the writes to each log that were not synced,
    /// those behind `kept` (a share in 255ths, by log) are lost.
    pub fn image(&self, from: &Path, to: &Path, kept: &[u8]) {
        let unsynced = self.unsynced.lock().unwrap();
        copy_all(from, to);
        for (writes, share) in unsynced.values().zip(kept.iter().cycle()) {
            let count = (writes.len() * usize::from(*share)).div_ceil(255);
            for (path, offset, length) in &writes[count..] {
                // A fold may have removed it.
                let copy = OpenOptions::new().write(true).open(to.join(path.strip_prefix(from).unwrap()));
                copy.into_iter().for_each(|copy| copy.write_all_at(&vec![0; *length], *offset).unwrap());
            }
        }
    }
}

fn is_segment(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("msgs."))
}

fn path_of(file: &File) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        // A fold may remove a file meanwhile.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => copy_all(&entry.path(), &target),
            _ => drop(std::fs::copy(entry.path(), target)),
        }
    }
}
