//! Reads the files of a copy part by part, for a copy that is stored elsewhere.
//!
//! Invariants: the records of a part can be checked before it is read: both checksums of each, as in a check of what lies on the disk, and once for
//! each file. Each file has the length that it had when the reader was opened, and is read up to it or fails. Nothing
//! is written to any disk. The files stay until the reader is dropped, as they do for a copy; one file is open at a time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backup::{BackupTicket, Hold};
use crate::error::LogError;
use crate::gap::Gap;
use crate::manifest::Manifest;
use crate::scrubbing::{CorruptAt, ScrubTicket};
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, corrupt_path, directory_path};
use crate::synced_file::synced_with;

/// Bytes that are checked at a time.
const CHECK_BYTES: usize = 1 << 20;

/// One file of a copy.
#[derive(Debug)]
pub struct BackupFile {
    /// Its name in the log's directory.
    pub name: String,
    /// How much of it is read.
    pub bytes: u64,
    /// Its size in the copy: zeros follow what is read.
    pub size: u64,
    content: Content,
    records: Option<Unchecked>,
}

/// The records of a segment, as far as they are not checked yet.
#[derive(Debug)]
struct Unchecked {
    segment: Segment,
    from: u64,
    end: u64,
    gap: Option<Gap>,
}

#[derive(Debug)]
enum Content {
    /// A file that no longer changes, and its segment, which is notified of reads.
    AtRest(PathBuf, Option<Segment>),
    /// The active segment's.
    Active(Segment, Arc<File>),
    InMemory(Vec<u8>),
}

/// See the module.
#[derive(Debug)]
pub struct BackupReader {
    files: Vec<BackupFile>,
    open: Option<Opened>,
    _hold: Hold,
}

/// The file at rest that was read last; the segment has a map of its own, dropped with this.
#[derive(Debug)]
struct Opened {
    index: usize,
    file: File,
    segment: Option<Segment>,
}

impl BackupTicket {
    /// Opens the copy for reading instead of making it.
    ///
    /// # Errors
    /// `Io` when a file cannot be examined.
    pub fn open(self) -> Result<BackupReader, LogError> {
        let mut files = Vec::new();
        for (segment, end, gap) in &self.sealed {
            let path = segment.path().to_path_buf();
            let records = Some(Unchecked::of(segment, *end, gap.clone()));
            files.push(BackupFile { records, ..at_rest(path.clone(), Some(segment.unmapped()))? });
            files.extend(if_there(segment.directory_path())?);
            files.extend(in_memory_if_there(&corrupt_path(&path))?);
        }
        for segment in &self.unserved {
            files.extend(if_there(segment.clone())?);
            files.extend(if_there(directory_path(segment))?);
        }
        if let Some((newest, older)) = self.checkpoints.split_last() {
            for checkpoint in older {
                files.extend(if_there(checkpoint.clone())?);
            }
            files.push(at_rest(newest.clone(), None)?);
        }
        if !self.manifest.entries.is_empty() {
            let bytes = self.manifest.to_bytes(&self.log_id);
            for path in Manifest::paths(Path::new("")) {
                files.push(in_memory(&path, bytes.clone()));
            }
        }
        let (segment, file) = self.active;
        let (bytes, size) = self.active_bytes;
        let (name, records) = (name_of(segment.path()), Some(Unchecked::of(&segment, bytes, None)));
        let content = Content::Active(segment, file);
        files.push(BackupFile { name, bytes, size: size.max(bytes), content, records });
        files.push(in_memory(Path::new("synced"), synced_with(self.position)));
        Ok(BackupReader { files, open: None, _hold: self.hold })
    }
}

impl BackupReader {
    #[must_use]
    pub fn files(&self) -> &[BackupFile] {
        &self.files
    }

    /// Checks the records of a file up to a byte, as far as they were not checked before. Files that are no segments pass.
    ///
    /// # Errors
    /// A record that is not as it was written, or that cannot be read from the disk.
    pub fn check(&mut self, index: usize, until: u64) -> Result<(), CorruptAt> {
        let file = self.files.get_mut(index);
        let Some(BackupFile { content, records: Some(unchecked), .. }) = file else { return Ok(()) };
        while unchecked.from < until.min(unchecked.end) {
            let (rest, gap) = ((unchecked.from, unchecked.end), unchecked.gap.clone());
            let ticket = match content {
                // Its file is not held: it may be removed by now.
                Content::Active(segment, file) => ScrubTicket::over(segment.unmapped(), Arc::clone(file), rest, gap),
                _ => ScrubTicket::of(&unchecked.segment, rest, gap)?,
            };
            let (place, _) = ticket.perform(CHECK_BYTES)?;
            unchecked.from = place.offset;
        }
        Ok(())
    }

    /// Reads a part of a file, at most up to its end.
    ///
    /// # Errors
    /// `Io` when the file is gone, shorter than it was, or cannot be read.
    pub fn read(&mut self, index: usize, at: u64, length: usize) -> Result<Vec<u8>, LogError> {
        let Some(file) = self.files.get(index) else { return Ok(Vec::new()) };
        let left = usize::try_from(file.bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        let length = length.min(left);
        match &file.content {
            Content::InMemory(bytes) => {
                let from = usize::try_from(at).unwrap_or(usize::MAX);
                Ok(bytes.get(from..).and_then(|rest| rest.get(..length)).unwrap_or_default().to_vec())
            }
            Content::Active(segment, opened) => read_part(opened, segment.path(), Some(segment), at, length),
            Content::AtRest(path, segment) => {
                if self.open.as_ref().is_none_or(|opened| opened.index != index) {
                    let file = File::open(path).map_err(|error| LogError::io("open", path, error))?;
                    self.open = Some(Opened { index, file, segment: segment.as_ref().map(Segment::unmapped) });
                }
                let Some(opened) = &self.open else { return Ok(Vec::new()) };
                read_part(&opened.file, path, opened.segment.as_ref(), at, length)
            }
        }
    }
}

impl Unchecked {
    fn of(segment: &Segment, end: u64, gap: Option<Gap>) -> Unchecked {
        Unchecked { segment: segment.unmapped(), from: SEGMENT_HEADER_BYTES, end, gap }
    }
}

fn read_part(file: &File, path: &Path, segment: Option<&Segment>, at: u64, length: usize) -> Result<Vec<u8>, LogError> {
    if let Some(segment) = segment {
        segment.note_read(at, at + length as u64);
    }
    let mut part = vec![0; length];
    file.read_exact_at(&mut part, at).map_err(|error| LogError::io("read", path, error))?;
    Ok(part)
}

fn at_rest(path: PathBuf, segment: Option<Segment>) -> Result<BackupFile, LogError> {
    let found = std::fs::metadata(&path).map_err(|error| LogError::io("open", &path, error))?;
    let (name, bytes) = (name_of(&path), found.len());
    Ok(BackupFile { name, bytes, size: bytes, content: Content::AtRest(path, segment), records: None })
}

fn if_there(path: PathBuf) -> Result<Option<BackupFile>, LogError> {
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        _ => at_rest(path, None).map(Some),
    }
}

/// A small file that may be replaced while the copy is read.
fn in_memory_if_there(path: &Path) -> Result<Option<BackupFile>, LogError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(in_memory(path, bytes))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LogError::io("read", path, error)),
    }
}

fn in_memory(path: &Path, content: Vec<u8>) -> BackupFile {
    let bytes = content.len() as u64;
    BackupFile { name: name_of(path), bytes, size: bytes, content: Content::InMemory(content), records: None }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
