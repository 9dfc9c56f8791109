//! Starting from what the directory holds: the newest whole checkpoint, and the fold of the records after it.
//!
//! What must stay true: below `synced` nothing may be missing, and what is is an error that names its place; above it the
//! log ends at the first bad record, and segments after that are set aside, not deleted. No old segment is written to.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::{Checkpoints, unlink_if_there};
use crate::directory::{Directory, Lookup};
use crate::disk::Disk;
use crate::error::{Damage, LogError};
use crate::fold::FoldState;
use crate::index::MemoryIndex;
use crate::manifest::{Entry, Manifest};
use crate::record::{DecodeError, Position, Record};
use crate::segment::{
    Check, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, directory_path, rewritten_path, segment_path,
};
use crate::sync::SyncedFile;

/// What a start had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    pub bytes_read: u64,
    pub records: u64,
    /// What was begun and never became whole: at most this many bytes, none of them confirmed as synced, are not served.
    pub torn_bytes: u64,
}

/// A sealed segment of the log.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) segment: Arc<Segment>,
    pub(crate) end: Position,
    pub(crate) lookup: Lookup,
}

/// What was found; `state` stands at the log's end.
pub(crate) struct Recovered {
    pub(crate) log_id: Option<[u8; 16]>,
    pub(crate) state: FoldState,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) synced: SyncedFile,
    pub(crate) sealed: Vec<Sealed>,
    pub(crate) next_number: u64,
    pub(crate) recovery: Recovery,
}

/// The numbers in the names of a log's files, ascending.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) segments: Vec<u64>,
    /// Rewritten ones and their directories, by number and edition.
    pub(crate) rewritten: Vec<(u64, u32)>,
    pub(crate) checkpoints: Vec<u64>,
    temporary: Vec<PathBuf>,
}

impl Names {
    pub(crate) fn list(directory: &Path) -> Result<Names, LogError> {
        let io = |error| LogError::io("list", directory, error);
        let mut names = Names::default();
        for entry in std::fs::read_dir(directory).map_err(io)? {
            let path = entry.map_err(io)?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if let Some(rest) = name.strip_prefix("msgs.") {
                names.segments.extend(number(rest));
                names.rewritten.extend(edition(rest.strip_suffix(".idx").unwrap_or(rest)));
                if rest.ends_with(".idx.tmp") {
                    names.temporary.push(path);
                }
            } else if let Some(rest) = name.strip_prefix("checkpoint.") {
                names.checkpoints.extend(number(rest));
                if rest.ends_with(".tmp") {
                    names.temporary.push(path);
                }
            } else if name == "manifest.tmp" {
                names.temporary.push(path);
            }
        }
        names.segments.sort_unstable();
        names.checkpoints.sort_unstable();
        Ok(names)
    }
}

fn number(digits: &str) -> Option<u64> {
    (digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}

fn edition(name: &str) -> Option<(u64, u32)> {
    let (digits, edition) = name.split_once('.')?;
    let is_edition = edition.bytes().all(|byte| byte.is_ascii_digit());
    Some((number(digits)?, edition.parse().ok().filter(|_| is_edition)?))
}

/// A segment file with a whole header, and where the next one begins.
struct Found {
    segment: Segment,
    limit: Option<Position>,
}

/// Reads the directory up to the log's end and syncs what lies past `synced`.
pub(crate) fn recover(directory: &Path, disk: &dyn Disk) -> Result<Recovered, LogError> {
    let names = Names::list(directory)?;
    for path in &names.temporary {
        unlink_if_there(disk, path)?;
    }
    let mut log_id = None;
    let (checkpoints, state) = Checkpoints::load(directory, &names.checkpoints, &mut log_id)?;
    let manifest = Manifest::load(directory, &mut log_id)?;
    let mut synced = SyncedFile::load(directory)?;
    let mut reader = Reader {
        directory,
        disk,
        floor: state.position,
        synced: synced.position().max(state.position),
        state,
        sealed: Vec::new(),
        recovery: Recovery::default(),
        ended: false,
    };
    let plain = reader.remove_replaced(&names, &manifest)?;
    let mut rewritten = manifest.entries.iter().peekable();
    for mut found in reader.headers(&plain, &mut log_id)? {
        while let Some(entry) = rewritten.next_if(|entry| entry.first <= found.segment.first()) {
            reader.read_rewritten(entry, log_id)?;
        }
        let next = rewritten.peek().map(|entry| entry.first);
        found.limit = found.limit.into_iter().chain(next).min();
        reader.read(found)?;
    }
    for entry in rewritten {
        reader.read_rewritten(entry, log_id)?;
    }
    if reader.state.position < reader.synced {
        let path = reader.sealed.last().map_or(directory, |sealed| sealed.segment.path());
        return Err(LogError::damaged(path, reader.state.position.0, Damage::Gap));
    }
    if reader.sync(synced.position())? {
        synced.save(disk, reader.state.position)?;
    }
    let Reader { state, sealed, recovery, .. } = reader;
    let next_number = names.segments.last().map_or(1, |last| last + 1);
    Ok(Recovered { log_id, state, checkpoints, synced, sealed, next_number, recovery })
}

/// Goes over the segments in order.
struct Reader<'a> {
    directory: &'a Path,
    disk: &'a dyn Disk,
    state: FoldState,
    /// Where the checkpoint stands.
    floor: Position,
    synced: Position,
    sealed: Vec<Sealed>,
    recovery: Recovery,
    /// Whether the log's end was found: later segments are set aside.
    ended: bool,
}

/// How far a walk came.
struct Walked {
    index: MemoryIndex,
    at: u64,
    end: Position,
    error: DecodeError,
}

impl Reader<'_> {
    fn headers(&mut self, numbers: &[u64], log_id: &mut Option<[u8; 16]>) -> Result<Vec<Found>, LogError> {
        let mut found: Vec<Found> = Vec::new();
        let mut unreadable = Vec::new();
        for &number in numbers {
            match read_header(&segment_path(self.directory, number))? {
                HeaderFound::Segment(header, bytes) => {
                    if log_id.is_some_and(|expected| expected != header.log_id) {
                        let path = segment_path(self.directory, number);
                        return Err(LogError::damaged(&path, 16, Damage::OtherLog));
                    }
                    *log_id = Some(header.log_id);
                    let segment = Segment::new(self.directory, number, &header, bytes);
                    found.push(Found { segment, limit: None });
                }
                // A header that never reached the disk: nothing in the file was ever synced.
                HeaderFound::Zeros => self.unlink(number)?,
                HeaderFound::Unreadable(error) => unreadable.push((number, error)),
            }
        }
        let mut limit = None;
        for later in found.iter_mut().rev() {
            later.limit = limit;
            limit = Some(limit.map_or(later.segment.first(), |limit| later.segment.first().min(limit)));
        }
        for (number, error) in unreadable {
            let is_below_synced =
                |later: &Found| later.segment.number() > number && later.segment.first() <= self.synced;
            if found.iter().any(is_below_synced) {
                return Err(error);
            }
            self.set_aside(number)?;
        }
        Ok(found)
    }

    /// Removes what a rewritten segment stands for, and rewritten ones that never got to stand for anything; gives the
    /// plain ones that count.
    fn remove_replaced(&self, names: &Names, manifest: &Manifest) -> Result<Vec<u64>, LogError> {
        for &(number, edition) in names.rewritten.iter().filter(|&&(number, edition)| !manifest.names(number, edition))
        {
            self.unlink_with_directory(rewritten_path(self.directory, number, edition))?;
        }
        if manifest.entries.is_empty() {
            return Ok(names.segments.clone());
        }
        let mut counting = Vec::with_capacity(names.segments.len());
        for &number in &names.segments {
            match read_header(&segment_path(self.directory, number))? {
                HeaderFound::Segment(header, _) if manifest.covers(header.first) => {
                    self.unlink_with_directory(segment_path(self.directory, number))?;
                }
                _ => counting.push(number),
            }
        }
        Ok(counting)
    }

    /// A segment that the manifest names. One that is not there was dead when a checkpoint was made.
    fn read_rewritten(&mut self, entry: &Entry, log_id: Option<[u8; 16]>) -> Result<(), LogError> {
        let Some(segment) = rewritten_segment(self.directory, entry, log_id)? else { return Ok(()) };
        if entry.end > self.floor {
            return Err(segment.damaged(0, Damage::Gap));
        }
        self.read_below(segment, entry.end)
    }

    fn read(&mut self, found: Found) -> Result<(), LogError> {
        let Found { segment, limit } = found;
        let is_superseded = limit.is_some_and(|limit| limit < segment.first());
        if self.ended || is_superseded {
            let written = segment.bytes_written_above(SEGMENT_HEADER_BYTES)?;
            self.recovery.torn_bytes += if is_superseded { 0 } else { written };
            return self.set_aside(segment.number());
        }
        segment.seal();
        segment.set_readable(limit.map_or(segment.bytes(), |limit| segment.offset_of(limit)));
        if segment.first() < self.floor {
            // Checkpoints stand at ends of segments, so all of it is covered; what followed it may have been dead and is
            // missing then.
            let end = limit.map_or(self.floor, |limit| limit.min(self.floor));
            segment.set_readable(segment.offset_of(end));
            return self.read_below(segment, end);
        }
        if segment.first() > self.state.position {
            return self.end_before(segment);
        }
        self.read_above(segment, limit)
    }

    /// A segment that the checkpoint covers: only its directory is needed.
    fn read_below(&mut self, segment: Segment, end: Position) -> Result<(), LogError> {
        if let Some(lookup) = self.directory_file(&segment)? {
            self.push(segment, end, lookup);
            return Ok(());
        }
        // Without a directory it was dead when the checkpoint was made, unless somebody removed the file.
        let walked = self.walk(&segment, Check::Head, false)?;
        let is_whole = if segment.is_rewritten() { walked.at == segment.bytes() } else { walked.end == end };
        let lookup = Lookup::Memory(Arc::new(walked.index));
        let is_live = lookup.any_run(|queue, first, count| self.state.has_live(queue, first, count))?;
        if is_live && !is_whole {
            return Err(segment.damaged(walked.at, walked.error));
        }
        self.push(segment, end, if is_live { lookup } else { Lookup::Nothing });
        Ok(())
    }

    /// A segment with records after the checkpoint.
    fn read_above(&mut self, segment: Segment, limit: Option<Position>) -> Result<(), LogError> {
        let check =
            if segment.position_of(segment.readable()) <= self.synced { Check::Head } else { Check::HeadAndPayload };
        let walked = self.walk(&segment, check, true)?;
        let at = segment.offset_of(walked.end);
        if walked.end < self.synced && limit != Some(walked.end) {
            return Err(segment.damaged(at, walked.error));
        }
        if limit != Some(walked.end) {
            self.ended = true;
            self.recovery.torn_bytes += segment.bytes_written_above(at)?;
        }
        segment.set_readable(at);
        self.push(segment, walked.end, Lookup::Memory(Arc::new(walked.index)));
        Ok(())
    }

    /// The records between the log's end so far and this segment are missing.
    fn end_before(&mut self, segment: Segment) -> Result<(), LogError> {
        if self.state.position < self.synced {
            return Err(segment.damaged(0, Damage::Gap));
        }
        self.ended = true;
        self.recovery.torn_bytes += segment.bytes_written_above(SEGMENT_HEADER_BYTES)?;
        self.set_aside(segment.number())
    }

    fn directory_file(&self, segment: &Segment) -> Result<Option<Lookup>, LogError> {
        let directory = Directory::new(segment.directory_path(), segment.id());
        Ok(directory.is_usable()?.then(|| Lookup::File(Arc::new(directory))))
    }

    /// Indexes all records up to the first bad one or the end, and folds those above the state's position.
    fn walk(&mut self, segment: &Segment, check: Check, fold: bool) -> Result<Walked, LogError> {
        let mut walk = segment.walk(SEGMENT_HEADER_BYTES, check)?;
        let mut index = MemoryIndex::default();
        loop {
            let (offset, decoded) = match walk.step() {
                Ok(step) => step,
                Err(error) => {
                    let at = walk.offset();
                    return Ok(Walked { index, at, end: segment.position_of(at), error });
                }
            };
            if let Record::Message(message) = &decoded.record {
                for target in message.targets() {
                    index.push(target, offset, message.body.len() as u64);
                }
            }
            let end = segment.position_of(walk.offset());
            if fold && end > self.state.position {
                self.state.apply(&decoded.record, end);
                self.recovery.records += 1;
                self.recovery.bytes_read += u64::from(decoded.length);
            }
        }
    }

    fn push(&mut self, segment: Segment, end: Position, lookup: Lookup) {
        // The map was for reading it now; whoever delivers from it maps it again.
        self.sealed.push(Sealed { segment: Arc::new(segment.unmapped()), end, lookup });
    }

    fn sync(&self, from: Position) -> Result<bool, LogError> {
        let mut any = false;
        for sealed in self.sealed.iter().filter(|sealed| sealed.end > from.max(self.floor)) {
            let path = sealed.segment.path();
            let file = self.disk.open(path).map_err(|error| LogError::io("open", path, error))?;
            self.disk.sync(&file).map_err(|error| LogError::io("sync", path, error))?;
            any = true;
        }
        if any {
            let synced = self.disk.sync_directory(self.directory);
            synced.map_err(|error| LogError::io("sync", self.directory, error))?;
        }
        Ok(any)
    }

    fn unlink_with_directory(&self, path: PathBuf) -> Result<(), LogError> {
        unlink_if_there(self.disk, &path)?;
        unlink_if_there(self.disk, &directory_path(&path))
    }

    fn unlink(&self, number: u64) -> Result<(), LogError> {
        unlink_if_there(self.disk, &segment_path(self.directory, number))
    }

    fn set_aside(&self, number: u64) -> Result<(), LogError> {
        let path = segment_path(self.directory, number);
        let aside = path.with_extension(format!("{number:010}.aside"));
        self.disk.rename(&path, &aside).map_err(|error| LogError::io("rename", &path, error))
    }
}

/// The segment of an entry of the manifest; `None` when it is not there.
pub(crate) fn rewritten_segment(
    directory: &Path,
    entry: &Entry,
    log_id: Option<[u8; 16]>,
) -> Result<Option<Segment>, LogError> {
    let path = rewritten_path(directory, entry.number, entry.edition);
    let (header, bytes) = match read_header(&path) {
        Ok(HeaderFound::Segment(header, bytes)) => (header, bytes),
        Ok(HeaderFound::Zeros) => return Err(LogError::damaged(&path, 0, Damage::SegmentHeader)),
        Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(HeaderFound::Unreadable(error)) | Err(error) => return Err(error),
    };
    if log_id.is_some_and(|expected| expected != header.log_id) {
        return Err(LogError::damaged(&path, 16, Damage::OtherLog));
    }
    if (header.segment_id, header.first) != (entry.segment_id, entry.first) {
        return Err(LogError::damaged(&path, 32, Damage::NotInManifest));
    }
    Ok(Some(Segment::rewritten(directory, (entry.number, entry.edition), &header, bytes, entry.end)))
}

/// What the first bytes of a segment file are.
pub(crate) enum HeaderFound {
    Segment(SegmentHeader, u64),
    Zeros,
    Unreadable(LogError),
}

pub(crate) fn read_header(path: &Path) -> Result<HeaderFound, LogError> {
    let io = |action| move |error: io::Error| (action, error);
    let read = || -> Result<(Vec<u8>, u64), (&'static str, io::Error)> {
        let file = File::open(path).map_err(io("open"))?;
        let bytes = file.metadata().map_err(io("open"))?.len();
        let mut header = vec![0; bytes.min(SEGMENT_HEADER_BYTES) as usize];
        file.read_exact_at(&mut header, 0).map_err(io("read"))?;
        Ok((header, bytes))
    };
    let (header, bytes) = read().map_err(|(action, error)| LogError::io(action, path, error))?;
    if header.iter().all(|&byte| byte == 0) {
        return Ok(HeaderFound::Zeros);
    }
    let Some(whole) = header.first_chunk() else {
        return Ok(HeaderFound::Unreadable(LogError::damaged(path, 0, Damage::SegmentHeader)));
    };
    match SegmentHeader::decode(whole, path) {
        Ok(header) => Ok(HeaderFound::Segment(header, bytes)),
        Err(error @ LogError::Damaged { .. }) => Ok(HeaderFound::Unreadable(error)),
        Err(error) => Err(error),
    }
}
