//! The numbers of segment files that were missing when the log went on without their records.
//!
//! Invariants: such a number is not assigned again, and a file that has it and comes back after a checkpoint was made
//! without it is renamed, never removed as dead. The numbers of the files at the log's end are unknown, only their
//! maximum count is known.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::directory::write_whole;
use crate::disk::Disk;
use crate::encode::epoch_bytes;
use crate::error::LogError;
use crate::format::Format;
use crate::names::number_of;
use crate::record::{Position, le_u64};
use crate::segment::segment_path;

/// Numbers that missing files have, or may have.
pub(crate) type Lost = RangeInclusive<u64>;

/// The name of the file that records them, after the first of them.
pub(crate) fn lost_path(directory: &Path, first: u64) -> PathBuf {
    directory.join(format!("msgs.{first:010}.lost"))
}

/// The numbers between two segments, when records between them are missing.
pub(crate) fn between(directory: &Path, after: u64, before: u64) -> Option<Lost> {
    let lost = after + 1..=before.saturating_sub(1);
    // A segment that was set aside exists under another name.
    let first = segment_path(directory, *lost.start());
    let is_aside = first.with_file_name(format!("{}.aside", name(&first))).exists();
    (!lost.is_empty() && !is_aside).then_some(lost)
}

/// The numbers that the files after a segment may have had, when records up to a position are missing: every segment
/// has its epoch's record at least.
pub(crate) fn behind(after: u64, missing: (Position, Position)) -> Lost {
    let bytes = missing.1.0.saturating_sub(missing.0.0);
    after + 1..=after + 1 + bytes / epoch_bytes(Format::One) as u64
}

/// Loads the numbers that earlier starts recorded, from files of these names.
pub(crate) fn load(paths: &[PathBuf]) -> Result<Vec<Lost>, LogError> {
    let read = |path: &PathBuf| {
        let bytes = std::fs::read(path).map_err(|error| LogError::io("read", path, error))?;
        let first = number_of(&name(path)).unwrap_or(0);
        Ok(first..=bytes.first_chunk::<8>().map_or(first, |last| le_u64(last)).max(first))
    };
    paths.iter().map(read).collect()
}

/// Records them. The name is on the disk before the next checkpoint is.
pub(crate) fn save(disk: &dyn Disk, directory: &Path, lost: &Lost) -> Result<(), LogError> {
    write_whole(disk, &lost_path(directory, *lost.start()), &lost.end().to_le_bytes())
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
