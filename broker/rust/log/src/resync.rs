//! Rewriting of data that a start cannot know to be on the disk: all of a segment of which a part is past `synced`.
//!
//! Invariants: the pages of a failed sync count as clean, so no later sync writes them; only a file whose bytes were
//! all written after that, and then synced, may be called synced. It replaces the old one by a rename, with the same
//! bytes.

use std::path::{Path, PathBuf};

use crate::checkpoint::unlink_if_there;
use crate::contents::Contents;
use crate::disk::{Disk, is_full};
use crate::error::LogError;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, aside_path};

/// The temporary name of a segment while it is written again.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// Brings a segment to the disk, whatever became of its pages before. The caller syncs the directory.
pub(crate) fn write_again(
    disk: &dyn Disk,
    segment: &Segment,
    header: &SegmentHeader,
    contents: &Contents,
) -> Result<(), LogError> {
    let path = segment.path();
    // Records may end with zeros, which belong to them like other bytes.
    let written = contents.written_above(SEGMENT_HEADER_BYTES).max(segment.readable() - SEGMENT_HEADER_BYTES) as usize;
    let bytes = contents.from(SEGMENT_HEADER_BYTES);
    let bytes = bytes.get(..written).unwrap_or(bytes);
    if contents.has_bad_pages() {
        // The disk may still return more later: if it cannot be renamed, the file is not replaced.
        let aside = aside_path(path);
        std::fs::hard_link(path, &aside).map_err(|error| LogError::io("keep the file as", &aside, error))?;
    }
    let temporary = temporary_path(path);
    let written = copy(disk, &temporary, segment, header, bytes).and_then(|()| disk.rename(&temporary, path));
    match written {
        Err(error) if is_full(&error) => {
            unlink_if_there(disk, &temporary)?;
            // Writing in place takes no space where the file has some, and makes its pages dirty just as well.
            in_place(disk, path, header, bytes).map_err(|error| LogError::io("write", path, error))
        }
        written => written.map_err(|error| LogError::io("write again", path, error)),
    }
}

fn copy(disk: &dyn Disk, path: &Path, segment: &Segment, header: &SegmentHeader, bytes: &[u8]) -> std::io::Result<()> {
    let file = disk.create(path, segment.bytes() + SEGMENT_HEADER_BYTES)?;
    disk.reserve(&file, 0, SEGMENT_HEADER_BYTES + bytes.len() as u64)?;
    disk.write_at(&file, &header.encode(), 0)?;
    disk.write_at(&file, bytes, SEGMENT_HEADER_BYTES)?;
    disk.write_at(&file, &header.encode(), segment.bytes())?;
    disk.sync(&file)
}

fn in_place(disk: &dyn Disk, path: &Path, header: &SegmentHeader, bytes: &[u8]) -> std::io::Result<()> {
    let file = disk.open(path)?;
    disk.write_at(&file, &header.encode(), 0)?;
    disk.write_at(&file, bytes, SEGMENT_HEADER_BYTES)?;
    disk.sync(&file)
}
