//! What a shard found damaged since it was opened, by file: for status calls, metrics and one line in the broker's log.
//!
//! What must stay true: it is bounded by the number of files, and nobody waits for it. It does not decide what becomes of a
//! bad record.

use std::collections::BTreeMap;

use penstock_log::{Damage, Quarantined};
use penstock_queue::QueueId;

/// So many queues are named per file; the count of records goes on.
const QUEUES_MAX: usize = 64;
/// What stands for the file of messages that no segment holds.
const NO_FILE: &str = "no segment";

/// One file with damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    pub file: String,
    /// The byte of the first damage that was found there.
    pub at: u64,
    pub why: String,
    /// Records found bad, or messages missing, since the broker started.
    pub records: u64,
    pub queues: Vec<QueueId>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Damages {
    by_file: BTreeMap<String, DamagedFile>,
    /// Messages that the start missed, with files that are gone: they are not counted again when a consumer comes to them.
    missed: u64,
}

impl Damages {
    pub fn of_start(quarantined: &[Quarantined]) -> Damages {
        let mut damages = Damages::default();
        for one in quarantined {
            let count = match one.why {
                // What an earlier start or reader met was counted then.
                Damage::Marked => 0,
                Damage::Gone(missing) | Damage::Unnamed(missing) => {
                    damages.missed += missing.messages;
                    missing.messages
                }
                _ => 1,
            };
            damages.note_many(&one.file, one.at, &one.why.to_string(), &one.queues, count);
        }
        damages
    }

    /// Takes note of one bad record; says whether it is the first of its file.
    pub fn note(&mut self, file: &str, at: u64, why: &str, queues: &[QueueId]) -> bool {
        self.note_many(file, at, why, queues, 1)
    }

    /// Takes note of messages that no segment holds. Gives how many of them the start did not count, and whether they are the
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

    pub fn files(&self) -> impl ExactSizeIterator<Item = &DamagedFile> {
        self.by_file.values()
    }

    fn note_many(&mut self, file: &str, at: u64, why: &str, queues: &[QueueId], count: u64) -> bool {
        let is_first = !self.has(file);
        let found = self.by_file.entry(file.to_owned()).or_insert_with(|| DamagedFile {
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
