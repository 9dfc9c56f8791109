//! Index files without a segment: a process that died between removing a segment and its index leaves one.
//!
//! Invariants: an index is removed only when its segment exists under no name that a start reads, and is not missing
//! either: a missing one may be put back, and its index says that it had live messages.

use std::path::Path;

use crate::checkpoint::unlink_if_there;
use crate::disk::Disk;
use crate::error::LogError;
use crate::live_segments::LiveSegment;
use crate::names::Names;

/// Removes them at the end of a start, when replaced segments and those after the log's end are gone. `gone` are the
/// missing segments. Returns the names of the files.
pub(crate) fn remove_orphans(
    disk: &dyn Disk,
    directory: &Path,
    names: &Names,
    gone: &[LiveSegment],
) -> Result<Vec<String>, LogError> {
    let mut removed = Vec::new();
    for index in &names.indexes {
        let segment = index.with_extension("");
        let is_missed = gone.iter().any(|one| one.path(directory) == segment);
        if is_missed || segment.exists() || !index.exists() {
            continue;
        }
        unlink_if_there(disk, index)?;
        removed.extend(index.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    Ok(removed)
}
