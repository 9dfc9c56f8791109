//! What a shard found damaged since it was opened, by file: for status calls, metrics and one line in the broker's log.
//!
//! What must stay true: it is bounded by the number of files, and nobody waits for it. It does not decide what becomes of a
//! bad record.

use std::collections::BTreeMap;

use penstock_log::Quarantined;
use penstock_queue::QueueId;

/// So many queues are named per file; the count of records goes on.
const QUEUES_MAX: usize = 64;
/// What stands for the file of messages that no segment holds.
pub(crate) const NO_FILE: &str = "no segment";

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
}

impl Damages {
    pub fn of_start(quarantined: &[Quarantined]) -> Damages {
        let mut damages = Damages::default();
        for one in quarantined {
            // What an earlier start or reader met was counted then.
            let count = u64::from(one.why != penstock_log::Damage::Marked);
            damages.note_many(&one.file, one.at, &one.why.to_string(), &one.queues, count);
        }
        damages
    }

    /// Takes note of one bad record; says whether it is the first of its file.
    pub fn note(&mut self, file: &str, at: u64, why: &str, queues: &[QueueId]) -> bool {
        self.note_many(file, at, why, queues, 1)
    }

    /// The same of messages that no segment holds.
    pub fn note_lost(&mut self, queue: QueueId, count: u64) -> bool {
        self.note_many(NO_FILE, 0, "messages have no record in any segment", &[queue], count)
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
