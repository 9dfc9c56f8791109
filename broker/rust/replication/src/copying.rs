//! The files of a log, copied to a replica that needs records which the leader's log does not have any more.
//!
//! The leader offers a copy at its high watermark, the other replica fetches the files part by part, and a start of the replica
//! puts them in the place of its log. So the speed is the fetching side's to choose, and the leader keeps nothing in memory. A few parts
//! are asked for ahead: while one is written, others are read and on their way.
//!
//! Both sides check the records, as both do where a leader sends records: a disk that has changed old bytes unnoticed would otherwise put
//! them on another disk, in the place of a log that may have them as they were.
//!
//! Invariants: everything in a copy is committed. Every record of a copy that is decided was checked. A replica whose log is replaced is in no in-sync set, since a member has
//! all that a leader may have removed. Each part has a checksum of its own, and a copy counts only once all of it is on the disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_log::{
    BackupReader, BackupTicket, CopiedLog, CorruptAt, Corruption, Disk, LogError, Position as LogPosition, copied_order,
};
use penstock_replica::Position;

use crate::install::{self, PREFIX};

/// The most files of a copy.
pub const FILES_MAX: usize = 1 << 20;
/// The longest name of a file.
pub const NAME_BYTES_MAX: usize = 64;
/// The most bytes of a part.
pub const PART_BYTES_MAX: usize = 1 << 20;
/// The most parts that are asked for before the first of them is there.
pub const PARTS_AHEAD: usize = 2;

/// A message about a copy, beside those of replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyMessage {
    /// The leader has this copy; its number is one of the leader's boot.
    Offer { copy: u64, position: Position, files: Vec<CopiedFile> },
    /// A part of one of its files, please.
    Fetch { copy: u64, file: u32, at: u64, length: u32 },
    /// A part, with the checksum of its bytes. The leader has no such copy any more if the file has no bytes there.
    Part { copy: u64, file: u32, at: u64, bytes: Vec<u8>, crc: u32 },
    /// The files are not needed any more: all are there, or the receiver gave up.
    Fetched { copy: u64 },
}

/// A file of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedFile {
    pub name: String,
    /// How much of it is fetched.
    pub bytes: u64,
    /// Its size: zeros follow.
    pub size: u64,
}

/// The leader's side. Its files stay on the leader's disk until it is dropped; drop it when nothing was fetched for a minute.
#[derive(Debug)]
pub struct CopySource {
    copy: u64,
    position: Position,
    reader: BackupReader,
}

impl CopySource {
    /// A copy that a log began. Blocks.
    ///
    /// # Errors
    /// `Io` when a file cannot be examined.
    pub fn open(copy: u64, ticket: BackupTicket) -> Result<CopySource, LogError> {
        let position = ticket.position().0;
        Ok(CopySource { copy, position, reader: ticket.open()? })
    }

    #[must_use]
    pub fn offer(&self) -> CopyMessage {
        let files = self.reader.files().iter();
        let files = files.map(|file| CopiedFile { name: file.name.clone(), bytes: file.bytes, size: file.size });
        CopyMessage::Offer { copy: self.copy, position: self.position, files: files.collect() }
    }

    /// Checks the records of the part that [`CopyMessage::Fetch`] asks for, and those before them in its file that were not checked yet. Blocks.
    ///
    /// # Errors
    /// Where one is not as it was written. Such a log must not be copied.
    pub fn check(&mut self, fetch: &CopyMessage) -> Result<(), CorruptAt> {
        let &CopyMessage::Fetch { copy, file, at, length } = fetch else { return Ok(()) };
        if copy != self.copy {
            return Ok(());
        }
        self.reader.check(file as usize, at.saturating_add(u64::from(length).min(PART_BYTES_MAX as u64)))
    }

    /// Answers [`CopyMessage::Fetch`]; `None` to one for another copy. Blocks.
    ///
    /// # Errors
    /// `Io` when the file cannot be read.
    pub fn read(&mut self, fetch: &CopyMessage) -> Result<Option<CopyMessage>, LogError> {
        let &CopyMessage::Fetch { copy, file, at, length } = fetch else { return Ok(None) };
        if copy != self.copy {
            return Ok(None);
        }
        let bytes = self.reader.read(file as usize, at, (length as usize).min(PART_BYTES_MAX))?;
        let crc = crc32c::crc32c(&bytes);
        Ok(Some(CopyMessage::Part { copy, file, at, bytes, crc }))
    }
}

/// Why a copy is not fetched.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("the leader offers files that are not those of a log")]
    Offer,
    #[error("an earlier copy takes the place of the log when the replica is opened; open it first")]
    Decided,
    #[error("a part of a copied file is not the one that was asked for, or its checksum does not match")]
    Part,
    #[error("file '{file}' of the offered log is corrupt at byte {at}, so the copy is not used: {why}")]
    Corrupt { file: String, at: u64, why: Corruption },
    #[error(transparent)]
    Unread(LogError),
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
}

/// The fetching side. Parts may come in any order.
#[derive(Debug)]
pub struct CopyTarget {
    directory: PathBuf,
    disk: Arc<dyn Disk>,
    copy: u64,
    position: Position,
    /// In the order in which they are fetched, with the numbers that they have in the offer.
    files: Vec<(u32, CopiedFile)>,
    /// How many of the first of them are there and checked.
    checked: usize,
    log: CopiedLog,
    /// The file and the byte where the next part begins that is to be asked for.
    next: (usize, u64),
    asked: VecDeque<Part>,
    /// Files of which parts are there.
    begun: BTreeMap<usize, Begun>,
    /// Files that are there, before those ahead of them are.
    early: BTreeSet<usize>,
}

/// A part that was asked for and is not there.
#[derive(Clone, Copy, Debug)]
struct Part {
    file: usize,
    at: u64,
    length: u32,
}

/// A file that is being written.
#[derive(Debug)]
struct Begun {
    file: File,
    missing: u64,
}

impl CopyTarget {
    /// Begins to fetch the copy that was offered, in place of one that was not completed. Blocks.
    ///
    /// # Errors
    /// `Offer` if it has other names than files of a log; `Io`.
    pub fn begin(
        directory: &Path,
        disk: Arc<dyn Disk>,
        log_id: [u8; 16],
        offer: CopyMessage,
    ) -> Result<CopyTarget, CopyError> {
        let CopyMessage::Offer { copy, position, files } = offer else { return Err(CopyError::Offer) };
        let names: BTreeSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let is_valid = |file: &CopiedFile| is_name(&file.name) && file.bytes <= file.size;
        if files.is_empty() || files.len() > FILES_MAX || names.len() != files.len() || !files.iter().all(is_valid) {
            return Err(CopyError::Offer);
        }
        if install::is_decided(directory) {
            return Err(CopyError::Decided);
        }
        install::remove_copy(disk.as_ref(), directory).map_err(|(action, source)| CopyError::Io {
            action,
            path: directory.to_owned(),
            source,
        })?;
        let mut files: Vec<(u32, CopiedFile)> = (0..).zip(files).collect();
        files.sort_by_cached_key(|(_, file)| copied_order(&file.name));
        Ok(CopyTarget {
            log: CopiedLog::new(directory, PREFIX, log_id, LogPosition(position)),
            directory: directory.to_owned(),
            disk,
            copy,
            position,
            files,
            checked: 0,
            next: (0, 0),
            asked: VecDeque::new(),
            begun: BTreeMap::new(),
            early: BTreeSet::new(),
        })
    }

    /// Where the copied log ends. All of it is committed.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The parts to ask for next, as many as may be under way.
    #[must_use]
    pub fn ask(&mut self) -> Vec<CopyMessage> {
        let already = self.asked.len();
        while self.asked.len() < PARTS_AHEAD
            && let Some(part) = self.take_next()
        {
            self.asked.push_back(part);
        }
        self.asked.iter().skip(already).map(|part| self.fetch(part)).collect()
    }

    /// The parts that were asked for and did not come: ask again if nothing comes.
    #[must_use]
    pub fn ask_again(&self) -> Vec<CopyMessage> {
        self.asked.iter().map(|part| self.fetch(part)).collect()
    }

    /// Whether all files are there.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.asked.is_empty() && self.next.0 == self.files.len()
    }

    fn take_next(&mut self) -> Option<Part> {
        let (file, at) = self.next;
        let bytes = self.files.get(file)?.1.bytes;
        let length = (bytes - at).min(PART_BYTES_MAX as u64) as u32;
        let end = at + u64::from(length);
        self.next = if end < bytes { (file, end) } else { (file + 1, 0) };
        Some(Part { file, at, length })
    }

    fn fetch(&self, &Part { file, at, length }: &Part) -> CopyMessage {
        let file = self.files.get(file).map_or(u32::MAX, |&(number, _)| number);
        CopyMessage::Fetch { copy: self.copy, file, at, length }
    }

    /// Takes a part. One that was not asked for, as a repeated one, is left out. Blocks.
    ///
    /// # Errors
    /// `Part` where it differs from what was offered; `Corrupt` where the records of a file are not as they were written; `Unread`; `Io`.
    pub fn take(&mut self, part: &CopyMessage) -> Result<(), CopyError> {
        let CopyMessage::Part { copy, file, at, bytes, crc } = part else { return Ok(()) };
        let is_this = |asked: &Part| {
            self.files.get(asked.file).is_some_and(|(number, _)| (self.copy, *number, asked.at) == (*copy, *file, *at))
        };
        let Some(index) = self.asked.iter().position(is_this) else { return Ok(()) };
        let asked = self.asked[index];
        if bytes.len() != asked.length as usize || crc32c::crc32c(bytes) != *crc {
            return Err(CopyError::Part);
        }
        let path = self.directory.join(format!("{PREFIX}{}", self.files[asked.file].1.name));
        self.write(&path, asked, bytes).map_err(|source| CopyError::Io { action: "write", path, source })?;
        self.asked.remove(index);
        self.check().map_err(|error| match error {
            LogError::Corrupt { path, at, why } => CopyError::Corrupt { file: offered_name(&path), at, why },
            error => CopyError::Unread(error),
        })
    }

    /// Checks the files that are there now, while their bytes are still in memory.
    fn check(&mut self) -> Result<(), LogError> {
        while self.early.remove(&self.checked) {
            if let Some((_, file)) = self.files.get(self.checked) {
                self.log.take(&file.name)?;
            }
            self.checked += 1;
        }
        if self.is_whole() { self.log.finish() } else { Ok(()) }
    }

    fn write(&mut self, path: &Path, part: Part, bytes: &[u8]) -> std::io::Result<()> {
        let mut begun = match self.begun.remove(&part.file) {
            Some(begun) => begun,
            None => {
                let (_, CopiedFile { bytes: missing, size, .. }) = self.files[part.file];
                Begun { file: self.disk.create(path, size)?, missing }
            }
        };
        self.disk.write_at(&begun.file, bytes, part.at)?;
        begun.missing -= u64::from(part.length);
        if begun.missing == 0 {
            self.disk.sync(&begun.file)?;
            self.early.insert(part.file);
            return Ok(());
        }
        self.begun.insert(part.file, begun);
        Ok(())
    }

    /// Decides that the copy takes the place of the log, once all files are there: when the replica is opened the next time. Returns the
    /// message that ends the copy at the leader. Blocks.
    ///
    /// # Errors
    /// `Part` where files are missing; `Io`.
    pub fn finish(self) -> Result<CopyMessage, CopyError> {
        if !self.is_whole() {
            return Err(CopyError::Part);
        }
        let path = self.directory.clone();
        install::decide(self.disk.as_ref(), &self.directory).map_err(|source| CopyError::Io {
            action: "sync",
            path,
            source,
        })?;
        Ok(CopyMessage::Fetched { copy: self.copy })
    }
}

/// The name of a copied file in the offer.
fn offered_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.strip_prefix(PREFIX).map(str::to_owned).unwrap_or(name)
}

/// Whether a name is one that a log may have for a file.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
    install::is_of_log(name) && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain) && !name.ends_with(".tmp")
}
