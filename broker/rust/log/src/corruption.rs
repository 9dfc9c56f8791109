//! Unreadable parts of a log, and the queues that they concern.
//!
//! Invariants: serving the rest needs nothing of this. The queues of a bad record are a guess wherever its own head
//! cannot be trusted: only queues that the log knows are named.

use std::collections::BTreeSet;
use std::path::Path;

use penstock_queue::QueueId;

use crate::directory::{Directory, write_whole};
use crate::disk::Disk;
use crate::error::{Corruption, LogError};
use crate::fold::FoldState;
use crate::format::Coding;
use crate::record::{Decoded, Record, Target, decode_with, le_u64};
use crate::segment::{Segment, corrupt_path};

/// The most queues named for one corrupt place; a record names up to a thousand.
const QUEUES_MAX: usize = 64;

/// A place in one of a log's files that cannot be read. The rest of the file is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The file's name in the log's directory.
    pub file: String,
    /// The byte in the file where a record should begin.
    pub at: u64,
    pub why: Corruption,
    pub queues: Vec<QueueId>,
}

impl Quarantined {
    pub(crate) fn new(segment: &Segment, at: u64, why: impl Into<Corruption>) -> Quarantined {
        Quarantined { file: file_name(segment), at, why: why.into(), queues: Vec::new() }
    }

    /// Names a queue, once, and no more of them than the limit.
    pub(crate) fn concern(&mut self, queue: QueueId) {
        if self.queues.len() < QUEUES_MAX && !self.queues.contains(&queue) {
            self.queues.push(queue);
        }
    }
}

/// Marks a segment as corrupt at a byte, for later starts, which read no segment that a checkpoint covers.
pub(crate) fn mark(disk: &dyn Disk, segment: &Path, at: u64) -> Result<(), LogError> {
    let path = corrupt_path(segment);
    if path.exists() { Ok(()) } else { write_whole(disk, &path, &at.to_le_bytes()) }
}

/// The mark of an existing segment.
pub(crate) fn marked(directory: &Path, file: &str) -> Option<Quarantined> {
    let bytes = std::fs::read(corrupt_path(&directory.join(file))).ok()?;
    let at = bytes.first_chunk::<8>().map_or(0, |at| le_u64(at));
    Some(Quarantined { file: file.to_owned(), at, why: Corruption::Marked, queues: Vec::new() })
}

pub(crate) fn file_name(segment: &Segment) -> String {
    segment.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The targets of the record that begins these bytes, as far as they can be read: its head may be the corrupt part.
fn claimed_in(record: &[u8], coding: Coding) -> Vec<Target> {
    match decode_with(record, coding, false) {
        Ok(Decoded { record: Record::Message(message), .. }) => message.targets().collect(),
        _ => Vec::new(),
    }
}

/// The same for the record at an offset.
pub(crate) fn claimed_targets(segment: &Segment, offset: u64) -> Vec<Target> {
    let record = segment.bytes_from(offset);
    claimed_in(record, segment.coding_of(record))
}

/// The targets of the record that begins these bytes, but only queues that a state knows.
pub(crate) fn known_targets(record: &[u8], coding: Coding, state: &FoldState) -> BTreeSet<QueueId> {
    let claimed = claimed_in(record, coding).into_iter().map(|target| target.queue);
    claimed.filter(|queue| state.queues.contains_key(queue)).collect()
}

/// The targets of the record at an offset: by the segment's directory where it has one, else by its own bytes.
pub(crate) fn targets_at(
    segment: &Segment,
    directory: Option<&Directory>,
    offset: u64,
) -> Result<Vec<Target>, LogError> {
    let named = directory.map_or(Ok(Vec::new()), |directory| directory.targets_of(offset))?;
    Ok(if named.is_empty() { claimed_targets(segment, offset) } else { named })
}
