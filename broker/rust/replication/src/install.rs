//! A copied log that takes the place of the one in a directory. See `docs/format.md`, "Copies of a log".
//!
//! Invariants: the files of a copy have names that no log reads. Nothing of the old log is removed before all of the copy is on the disk
//! and `installing` says so, and no file of the copy gets its name before the old log is gone and `moving` says so. Each step
//! can be repeated, so a start completes what it finds. The replica's identity and promise stay.

use std::io::{Error, ErrorKind};
use std::path::Path;

use penstock_log::Disk;

use crate::error::OpenError;

/// Before the names of a copy's files.
pub(crate) const PREFIX: &str = "copy.";
const INSTALLING: &str = "installing";
const MOVING: &str = "moving";

type Step = Result<(), (&'static str, Error)>;

/// Says that the copy in a directory is whole and on the disk: the next start installs it.
pub(crate) fn decide(disk: &dyn Disk, directory: &Path) -> Result<(), Error> {
    disk.sync_directory(directory)?;
    let file = disk.create(&directory.join(INSTALLING), 0)?;
    disk.sync(&file)?;
    disk.sync_directory(directory)
}

/// Whether a copy in a directory waits for a start that installs it.
pub(crate) fn is_decided(directory: &Path) -> bool {
    [INSTALLING, MOVING].iter().any(|name| directory.join(name).exists())
}

/// Completes the installation that an earlier process began, and removes a copy that was not completed.
pub(crate) fn complete(disk: &dyn Disk, directory: &Path) -> Result<(), OpenError> {
    let done = steps(disk, directory);
    done.map_err(|(action, source)| OpenError::Io { action, path: directory.to_owned(), source })
}

fn steps(disk: &dyn Disk, directory: &Path) -> Step {
    let sync = || disk.sync_directory(directory).map_err(|error| ("sync", error));
    if directory.join(INSTALLING).exists() {
        for name in names(directory)?.iter().filter(|name| is_of_log(name)) {
            remove(disk, &directory.join(name))?;
        }
        sync()?;
        disk.rename(&directory.join(INSTALLING), &directory.join(MOVING)).map_err(|error| ("rename", error))?;
        sync()?;
    }
    if directory.join(MOVING).exists() {
        for name in names(directory)? {
            if let Some(final_name) = name.strip_prefix(PREFIX) {
                let (from, to) = (directory.join(&name), directory.join(final_name));
                disk.rename(&from, &to).map_err(|error| ("rename", error))?;
            }
        }
        sync()?;
        remove(disk, &directory.join(MOVING))?;
        return sync();
    }
    remove_copy(disk, directory)
}

/// Removes the files of a copy that was not completed.
pub(crate) fn remove_copy(disk: &dyn Disk, directory: &Path) -> Step {
    let names = names(directory)?;
    names.iter().filter(|name| name.starts_with(PREFIX)).try_for_each(|name| remove(disk, &directory.join(name)))
}

/// Whether a file of that name is a log's. A copy has no others, and replaces no others: the folder may have more than a log.
pub(crate) fn is_of_log(name: &str) -> bool {
    let begins = ["msgs.", "checkpoint."].iter().any(|begin| name.starts_with(begin));
    begins || ["manifest", "manifest.copy", "manifest.tmp", "synced", "truncating", "truncating.tmp"].contains(&name)
}

/// Whether a directory has records of a log, or the file that says how far one came: at least that is there since a replica was made.
pub(crate) fn has_log(directory: &Path) -> Result<bool, OpenError> {
    let found = names(directory).map(|names| names.iter().any(|name| name.starts_with("msgs.") || name == "synced"));
    found.map_err(|(action, source)| OpenError::Io { action, path: directory.to_owned(), source })
}

/// The names of the files in a directory.
fn names(directory: &Path) -> Result<Vec<String>, (&'static str, Error)> {
    let read = || -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    };
    match read() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|error| ("read", error)),
    }
}

fn remove(disk: &dyn Disk, path: &Path) -> Step {
    match disk.unlink(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|error| ("remove", error)),
    }
}
