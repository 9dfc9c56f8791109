//! Corruption that a shard found since it was opened, by file: for status calls, metrics and one line in the broker's
//! log.
//!
//! Invariants: it is bounded by the number of files, and nothing waits for it. It does not decide how a bad record is
//! handled.

use std::collections::BTreeMap;

use penstock_log::{Corruption as Cause, Quarantined};
use penstock_queue::QueueId;

/// The most queues named per file; the count of records goes on.
const QUEUES_MAX: usize = 64;
/// Stands for the file of messages that no segment holds.
const NO_FILE: &str = "no segment";

/// One corrupt file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorruptFile {
    pub file: String,
    /// The byte of the first corruption found there.
    pub at: u64,
    pub why: String,
    /// Bad records or missing messages since the broker started.
    pub records: u64,
    pub queues: Vec<QueueId>,
}

/// Corruption in one file, with its queues by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    pub file: String,
    pub at: u64,
    pub records: u64,
    pub queues: Vec<String>,
}

/// All corrupt files.
#[derive(Debug, Default)]
pub(crate) struct Corruptions {
    by_file: BTreeMap<String, CorruptFile>,
    /// Messages of missing files, as counted by the start: they are not counted again when a consumer reaches them.
    missed: u64,
}

impl Corruptions {
    pub fn of_start(quarantined: &[Quarantined]) -> Corruptions {
        let mut corruptions = Corruptions::default();
        for one in quarantined {
            let count = match one.why {
                // Counted by the earlier start or reader that found it.
                Cause::Marked => 0,
                Cause::Gone(missing) | Cause::Unnamed(missing) => {
                    corruptions.missed += missing.messages;
                    missing.messages
                }
                _ => 1,
            };
            corruptions.note_many(&one.file, one.at, &one.why.to_string(), &one.queues, count);
        }
        corruptions
    }

    /// Notes one bad record; returns whether it is the first of its file.
    pub fn note(&mut self, file: &str, at: u64, why: &str, queues: &[QueueId]) -> bool {
        self.note_many(file, at, why, queues, 1)
    }

    /// Notes messages that no segment holds. Returns how many of them the start did not count, and whether they are the
    /// first.
    pub fn note_lost(&mut self, queue: QueueId, count: u64) -> (u64, bool) {
        let known = count.min(self.missed);
        self.missed -= known;
        let new = count - known;
        (new, new > 0 && self.note_many(NO_FILE, 0, "messages have no record in any segment", &[queue], new))
    }

    pub fn has(&self, file: &str) -> bool {
        self.by_file.contains_key(file)
    }

    pub fn files(&self) -> impl ExactSizeIterator<Item = &CorruptFile> {
        self.by_file.values()
    }

    fn note_many(&mut self, file: &str, at: u64, why: &str, queues: &[QueueId], count: u64) -> bool {
        let is_first = !self.has(file);
        let found = self.by_file.entry(file.to_owned()).or_insert_with(|| CorruptFile {
            file: file.to_owned(),
            at,
            why: why.to_owned(),
            records: 0,
            queues: Vec::new(),
        });
        found.records += count;
        for queue in queues {
            if found.queues.len() < QUEUES_MAX && !found.queues.contains(queue) {
                found.queues.push(*queue);
            }
        }
        is_first
    }
}

pub(crate) fn aside_line(shard: &str, file: &str) -> String {
    format!(
        "vhost '{shard}': {file} was set aside: it followed an incomplete end of the log, above what is known to be \
         synced; delete the file once no message is missed"
    )
}

pub(crate) fn retired_line(shard: &str, file: &str) -> String {
    format!(
        "vhost '{shard}': a corrupt segment is now {file}: no message in it is needed any more, and no start reads it; \
         delete the file once no message is missed"
    )
}

pub(crate) fn corruption_line(shard: &str, file: &str, found: &CorruptFile) -> String {
    let CorruptFile { at, why, .. } = found;
    format!(
        "vhost '{shard}': {file} is corrupt at byte {at} ({why}); it is quarantined, what it holds and cannot be read is \
         dropped from its queues; stop the broker and run `penstock log verify` to see all of it"
    )
}

/// Once per virtual host, as more of them follow each other.
pub(crate) fn lost_line(shard: &str, queue: &str, count: u64) -> String {
    format!(
        "vhost '{shard}', queue '{queue}': {count} messages have no record in any segment and were dropped; there may be \
         more, of other queues, too; see the corruption that was reported at the start, and stop the broker and run \
         `penstock log verify` to see all of it"
    )
}
