//! The files of an engine as a kill of its process would leave them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

/// Copies the directory as a kill would leave it. The background folds and rewrites segments meanwhile: a copy during which a
/// file changed is no state that ever was, and is made again.
pub fn copy_of(from: &Path) -> tempfile::TempDir {
    loop {
        let copy = tempfile::tempdir().unwrap();
        let before = files(from);
        let is_copied = before.keys().all(|name| std::fs::copy(from.join(name), copy.path().join(name)).is_ok());
        if is_copied && files(from) == before {
            return copy;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The files of a log, with their lengths and the times of their last changes.
fn files(directory: &Path) -> BTreeMap<OsString, (u64, SystemTime)> {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let found = entries.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        Some((entry.file_name(), (metadata.len(), metadata.modified().unwrap())))
    });
    found.collect()
}
