//! Reading the header of a segment file: from its beginning, from the copy at its end, or from the manifest.
//!
//! Invariants: a header that cannot be read costs no readable record, and a copy counts only where the header itself is
//! corrupt.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::epochs::Epochs;
use crate::error::{Corruption, LogError};
use crate::manifest::Entry;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, rewritten_path};

/// The header state of a segment file.
pub(crate) enum HeaderFound {
    /// The header, and the size of the file without the copy of it.
    Segment(SegmentHeader, u64),
    /// The same by the copy at the end: the header itself cannot be read.
    Copy(SegmentHeader, u64, Instead),
    /// No copy, and zeros in place of the header.
    Zeros,
    Unreadable(LogError),
}

/// Bytes in place of a header that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    Zeros,
    Other,
}

pub(crate) fn read_header(path: &Path) -> Result<HeaderFound, LogError> {
    let io = |action| move |error| LogError::io(action, path, error);
    let file = File::open(path).map_err(io("open"))?;
    let bytes = file.metadata().map_err(io("open"))?.len();
    let first = read_at(&file, 0).map_err(io("read"))?;
    let copy_at = bytes.checked_sub(SEGMENT_HEADER_BYTES).filter(|&at| at >= SEGMENT_HEADER_BYTES);
    let copy = copy_at.map(|at| read_at(&file, at).map(|read| (at, read))).transpose().map_err(io("read"))?;
    let copied = |at, header: &[u8; SEGMENT_HEADER_BYTES as usize]| match SegmentHeader::decode(header, path) {
        Ok(header) => Ok(Some((header, at))),
        Err(LogError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    let copy = copy.map_or(Ok(None), |(at, read)| read.map_or(Ok(None), |read| copied(at, &read)))?;
    let decoded = match &first {
        Some(first) => SegmentHeader::decode(first, path),
        None => Err(LogError::corrupt(path, 0, Corruption::SegmentHeader)),
    };
    let is_zeros = bytes == 0 || first.is_some_and(|first| first == [0; SEGMENT_HEADER_BYTES as usize]);
    Ok(match (decoded, copy) {
        (Ok(header), Some((copy, at))) if copy == header => HeaderFound::Segment(header, at),
        (Ok(header), _) => HeaderFound::Segment(header, bytes),
        (Err(LogError::Corrupt { .. }), Some((copy, at))) => {
            HeaderFound::Copy(copy, at, if is_zeros { Instead::Zeros } else { Instead::Other })
        }
        (Err(LogError::Corrupt { .. }), None) if is_zeros => HeaderFound::Zeros,
        (Err(error @ LogError::Corrupt { .. }), None) => HeaderFound::Unreadable(error),
        (Err(error), _) => return Err(error),
    })
}

/// The bytes in place of a header; `None` where the file is too short or a sector cannot be read.
fn read_at(file: &File, at: u64) -> io::Result<Option<[u8; SEGMENT_HEADER_BYTES as usize]>> {
    let mut header = [0; SEGMENT_HEADER_BYTES as usize];
    match file.read_exact_at(&mut header, at) {
        Ok(()) => Ok(Some(header)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof || is_bad_sector(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error means that the disk cannot read a sector; any other may be temporary.
pub(crate) fn is_bad_sector(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::FAULT | Errno::IO | Errno::HWPOISON))
}

/// The segment of a manifest entry, and whether its header can be read, which the entry replaces if not; `None` when
/// the segment does not exist.
pub(crate) fn rewritten_segment(
    directory: &Path,
    entry: &Entry,
    (log_id, shard): (Option<[u8; 16]>, u16),
    epochs: &Epochs,
) -> Result<Option<(Segment, bool)>, LogError> {
    let path = rewritten_path(directory, entry.number, entry.edition);
    let (header, bytes, is_readable) = match read_header(&path) {
        Ok(HeaderFound::Segment(header, _)) => (header, file_bytes(&path)?, true),
        Ok(_) => (entry.header(log_id.unwrap_or_default(), epochs).of_shard(shard), file_bytes(&path)?, false),
        Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if log_id.is_some_and(|expected| expected != header.log_id) {
        return Err(LogError::corrupt(&path, 16, Corruption::OtherLog));
    }
    header.check_shard(shard, &path)?;
    if (header.segment_id, header.first) != (entry.segment_id, entry.first) {
        return Err(LogError::corrupt(&path, 32, Corruption::NotInManifest));
    }
    let (names, coded) = ((entry.number, entry.edition), (&header, header.codings(epochs, entry.end)));
    let segment = Segment::rewritten(directory, names, coded, bytes, entry.end);
    Ok(Some((segment, is_readable)))
}

fn file_bytes(path: &Path) -> Result<u64, LogError> {
    Ok(std::fs::metadata(path).map_err(|error| LogError::io("open", path, error))?.len())
}
