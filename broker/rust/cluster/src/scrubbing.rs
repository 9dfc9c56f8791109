//! One thread that checks what lies on the disk of all replicas, a slice of one log at a time, in rounds.
//!
//! A disk that changes old bytes is noticed while other replicas still have them. The replica halts then, and its log is marked, so that it is
//! not opened again: its broker sets it aside and begins anew with a copy. A replica that is alone in sync goes on, as it has the only copy.

use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_log::{CorruptAt, LogError, ScrubPlace};
use penstock_replication::Input;

use crate::shard::Shard;
use crate::shards::Shards;

/// Bytes that are read in a slice, and the pause after it: 8 MB a second at most, of all logs together.
const SLICE_BYTES: usize = 1 << 20;
const PAUSE: Duration = Duration::from_millis(125);
/// Between two looks whether the next round is due.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct Scrubbing {
    /// Dropping it ends the thread after the slice that it is in.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Scrubbing {
    /// A round begins as often as `every`, or when the one before has ended.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(shards: Arc<Shards>, every: Duration) -> std::io::Result<Self> {
        let (alive, over) = channel();
        let thread = std::thread::Builder::new().name("replica-scrub".into()).spawn(move || {
            let mut rounds = Rounds { every, begun: Instant::now(), waiting: VecDeque::new(), place: None };
            let mut pause = LOOK;
            while over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = rounds.next(&shards);
            }
        })?;
        Ok(Self { alive: Some(alive), thread: Some(thread) })
    }
}

impl Drop for Scrubbing {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

struct Rounds {
    every: Duration,
    /// When the round began, or the process.
    begun: Instant,
    /// The shards of the round that are left; the first is under way.
    waiting: VecDeque<Weak<Shard>>,
    /// In the log of the first; `None` at its beginning.
    place: Option<Reached>,
}

/// A place in a log of a replica, by that log's number: a copy that takes its place has other files of the same names.
#[derive(Clone, Copy)]
struct Reached {
    log: u64,
    place: ScrubPlace,
}

impl Rounds {
    /// Checks a slice; returns the pause after it.
    fn next(&mut self, shards: &Shards) -> Duration {
        if self.waiting.is_empty() {
            if self.begun.elapsed() < self.every {
                return LOOK.min(self.every);
            }
            self.begun = Instant::now();
            self.waiting = shards.all().iter().map(Arc::downgrade).collect();
        }
        let mut found = None;
        if let Some(shard) = self.waiting.front().and_then(Weak::upgrade) {
            shard.guard(|shard| found = shard.scrub(self.place));
        }
        if found.is_none() {
            self.waiting.pop_front();
        }
        self.place = found;
        PAUSE.min(self.every)
    }
}

impl Shard {
    /// Checks a slice of the log; returns the place after it, unless the round of this log has ended. Blocks.
    fn scrub(&self, after: Option<Reached>) -> Option<Reached> {
        let log = self.working.log();
        let place =
            after.filter(|reached| reached.log == log).map_or_else(ScrubPlace::default, |reached| reached.place);
        let work = || {
            let begun = self.with_log(|log| log.begin_scrub(place))?;
            match begun.and_then(|ticket| ticket.map(|ticket| ticket.perform(SLICE_BYTES)).transpose()) {
                Ok(checked) => checked.map(|(place, _)| Reached { log, place }),
                Err(found) => {
                    self.take_unreadable(&found);
                    None
                }
            }
        };
        self.working.on(log, work).flatten()
    }

    /// Marks the log, and halts the replica, if another one is in sync. Call it without the replica's lock.
    pub(crate) fn take_unreadable(&self, found: &CorruptAt) {
        let CorruptAt { file, at, error } = found;
        if !found.is_of_the_file() {
            self.shared.events.noticed(&format!("{error}; the check of this log goes on with the next round"));
            return;
        }
        if !self.has_other_copy() {
            let text = "no other replica is in sync, so this one goes on, and no other one gets a copy until this record is consumed or deleted";
            self.shared.events.noticed(&format!("{error}; {text}"));
            return;
        }
        // So that it is not opened again as it is.
        self.with_log(|log| log.quarantine(file, *at));
        self.shared.events.failed(self.id(), error);
        self.step(Input::Stopped);
    }

    /// Marks the record at which the log failed, as a check does. Called under the lock.
    pub(crate) fn mark_soon(&self, error: &LogError) {
        let LogError::Corrupt { path, at, .. } = error else { return };
        let Some(file) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { return };
        let (at, log) = (*at, self.working.log());
        self.soon(move |shard| {
            let mark = || shard.with_log(|log| log.quarantine(&file, at));
            shard.working.on(log, || if shard.has_other_copy() { mark() } else { None });
        });
    }

    /// Takes a corrupt record of a log, by its number, that a reader of a stream found: as a check does, on a thread for disks. Streams of
    /// this log are not read any more. Errors of other kinds change nothing.
    pub(crate) fn take_corrupt(&self, log: u64, error: &LogError) {
        let LogError::Corrupt { path, at, why } = error else { return };
        let Some(file) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { return };
        self.readers.refuse(log, &error.to_string());
        let found = CorruptAt { file, at: *at, error: LogError::Corrupt { path: path.clone(), at: *at, why: *why } };
        self.soon(move |shard| {
            shard.working.on(log, || shard.take_unreadable(&found));
        });
    }

    /// Whether another replica is in sync, as far as this one knows.
    pub(crate) fn has_other_copy(&self) -> bool {
        let me = self.replica();
        self.record().is_some_and(|record| record.in_sync.iter().any(|&other| Some(other) != me))
    }
}
