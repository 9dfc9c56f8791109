//! Syncs that fail while another thread syncs the same file: the system reports lost pages once, and later callers get
//! no error.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use penstock_log::{Disk, Log, LogOptions, RealDisk};
use support::{Model, message, open_with, small_segments};

type Then = Box<dyn FnOnce() + Send>;

/// A disk that reports once for a file that its pages were lost, and runs a hook before it syncs a file.
#[derive(Default)]
struct TellsOnce {
    lost: Mutex<BTreeSet<u64>>,
    before_sync: Mutex<Option<(u64, Then)>>,
    before_read: Mutex<Option<Then>>,
}

impl fmt::Debug for TellsOnce {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TellsOnce")
    }
}

fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

impl TellsOnce {
    fn lose(&self, path: &Path) {
        self.lost.lock().unwrap().insert(inode(path));
    }

    /// Before the next sync of that file.
    fn before_sync(&self, path: &Path, then: impl FnOnce() + Send + 'static) {
        *self.before_sync.lock().unwrap() = Some((inode(path), Box::new(then)));
    }

    /// Before a fold reads.
    fn before_read(&self, then: impl FnOnce() + Send + 'static) {
        *self.before_read.lock().unwrap() = Some(Box::new(then));
    }
}

impl Disk for TellsOnce {
    fn populate(&self, _path: &Path, _part: Range<u64>, populate: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
        let then = self.before_read.lock().unwrap().take();
        if let Some(then) = then {
            then();
        }
        populate()
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let inode = file.metadata()?.ino();
        let then = self.before_sync.lock().unwrap().take_if(|(of, _)| *of == inode);
        if let Some((_, then)) = then {
            then();
        }
        if self.lost.lock().unwrap().remove(&inode) {
            Err(io::Error::from_raw_os_error(5))
        } else {
            RealDisk.sync(file)
        }
    }
}

/// A log with segments that no sync covers; the first one has no live message.
fn unsynced(directory: &Path) -> (Arc<TellsOnce>, Log) {
    let disk = Arc::new(TellsOnce::default());
    let options = LogOptions { disk: Arc::clone(&disk) as _, ..small_segments() };
    let mut log = open_with(directory, options).unwrap().log;
    let mut model = Model::default();
    while log.stats().segments < 3 {
        model.publish(&mut log, &[1], message(100, 1)).unwrap();
    }
    model.purge(&mut log, 1);
    while log.stats().segments < 6 {
        model.publish(&mut log, &[2], message(100, 1)).unwrap();
    }
    log.write().unwrap();
    (disk, log)
}

fn segment(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("msgs.{number:010}"))
}

/// The fold got the error of the lost pages, and the sync that waited for the same file called it synced: messages were
/// confirmed that no start would find.
#[test]
fn a_sync_fails_when_a_fold_was_told_that_pages_were_lost() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, mut log) = unsynced(directory.path());
    let (fold, sync) = (log.begin_fold().unwrap(), log.begin_sync().unwrap());
    disk.lose(&segment(directory.path(), 4));
    disk.before_sync(&segment(directory.path(), 1), move || drop(fold.perform().unwrap_err()));

    let refused = sync.perform().unwrap_err();

    assert!(refused.to_string().contains("msgs.0000000004"), "{refused}");
}

/// The other way round a checkpoint depended on bytes that were not on the disk, so that a start did not write them
/// again.
#[test]
fn a_fold_fails_when_a_sync_was_told_that_pages_were_lost() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, mut log) = unsynced(directory.path());
    let (fold, sync) = (log.begin_fold().unwrap(), log.begin_sync().unwrap());
    disk.lose(&segment(directory.path(), 4));
    disk.before_read(move || drop(sync.perform().unwrap_err()));

    fold.perform().unwrap_err();

    let names = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.into_iter().any(|name| name.to_str().unwrap().starts_with("checkpoint.")), "it was published");
}
