//! The two threads that work on shards off the message path: one syncs, one folds, and compacts in its pauses.
//!
//! A shard stands in each thread's queue at most once (its own flags see to that), so the queues are bounded by the number
//! of shards. A shard that was dropped meanwhile is passed over. Compaction goes in slices, at no more than a rate, and
//! what waits to be folded goes first.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::shard::Shard;

/// What compaction writes at once: a few milliseconds of a disk.
const SLICE_BYTES: u64 = 1 << 20;

/// The doors to the threads. Dropping the last one lets them end after what waits.
pub(crate) struct Background {
    sync: Sender<Weak<Shard>>,
    fold: Sender<Weak<Shard>>,
}

impl Background {
    /// Starts both threads. `idle` is how long a segment's map is kept that nobody reads, `rate` how many bytes a second
    /// compaction may write; 0 turns it off.
    pub fn start(
        shards: Arc<Mutex<Vec<Weak<Shard>>>>,
        idle: Duration,
        rate: u64,
    ) -> std::io::Result<(Arc<Background>, Vec<JoinHandle<()>>)> {
        let (sync, sync_waiting) = mpsc::channel();
        let (fold, fold_waiting) = mpsc::channel();
        let syncer = std::thread::Builder::new().name("penstock-sync".to_owned());
        let syncer = syncer.spawn(move || run_syncs(&sync_waiting))?;
        let folder = std::thread::Builder::new().name("penstock-fold".to_owned());
        let folder = folder.spawn(move || run_folds(&fold_waiting, &shards, idle, rate))?;
        Ok((Arc::new(Background { sync, fold }), vec![syncer, folder]))
    }

    pub fn sync(&self, shard: Weak<Shard>) {
        // The receiver lives as long as this door: a send fails only while the process ends.
        let _ = self.sync.send(shard);
    }

    pub fn fold(&self, shard: Weak<Shard>) {
        let _ = self.fold.send(shard);
    }
}

fn run_syncs(waiting: &Receiver<Weak<Shard>>) {
    while let Ok(shard) = waiting.recv() {
        let Some(shard) = shard.upgrade() else { continue };
        if let Err(error) = shard.sync_once() {
            shard.stop(&error.to_string());
        }
    }
}

fn run_folds(waiting: &Receiver<Weak<Shard>>, shards: &Mutex<Vec<Weak<Shard>>>, idle: Duration, rate: u64) {
    let now = Instant::now();
    let mut pauses = Pauses { compacting: VecDeque::new(), next_slice: now, next_unmap: now + idle, idle, rate };
    loop {
        match waiting.recv_timeout(pauses.wait(Instant::now())) {
            Ok(shard) => {
                fold_all(&shard);
                pauses.compact_soon(shard);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        pauses.use_one(Instant::now(), shards);
    }
}

/// What the fold thread does while nothing is to be folded.
struct Pauses {
    /// Shards that may have something to compact, each once; the first has its turn.
    compacting: VecDeque<Weak<Shard>>,
    next_slice: Instant,
    next_unmap: Instant,
    idle: Duration,
    /// Bytes a second.
    rate: u64,
}

impl Pauses {
    fn wait(&self, now: Instant) -> Duration {
        let next = if self.compacting.is_empty() { self.next_unmap } else { self.next_unmap.min(self.next_slice) };
        next.saturating_duration_since(now)
    }

    fn compact_soon(&mut self, shard: Weak<Shard>) {
        if self.rate > 0 && !self.compacting.iter().any(|waiting| waiting.ptr_eq(&shard)) {
            self.compacting.push_back(shard);
        }
    }

    fn use_one(&mut self, now: Instant, shards: &Mutex<Vec<Weak<Shard>>>) {
        if now >= self.next_unmap {
            self.next_unmap = now + self.idle;
            unmap_idle(shards);
        }
        if now >= self.next_slice
            && let Some(waiting) = self.compacting.pop_front()
            && let Some(shard) = waiting.upgrade()
        {
            let (bytes, more) = shard.compact_once(SLICE_BYTES).unwrap_or_else(|error| {
                shard.stop(&error.to_string());
                (0, false)
            });
            // The time that the slice took counts, so that a slow disk gets no more than its share of pauses.
            self.next_slice = now + Duration::from_micros(bytes.saturating_mul(1_000_000) / self.rate.max(1));
            if more {
                self.compacting.push_back(waiting);
            }
        }
    }
}

fn fold_all(shard: &Weak<Shard>) {
    let Some(shard) = shard.upgrade() else { return };
    loop {
        match shard.fold_once() {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return shard.stop(&error.to_string()),
        }
    }
}

fn unmap_idle(shards: &Mutex<Vec<Weak<Shard>>>) {
    let Ok(mut shards) = shards.lock() else { return };
    shards.retain(|shard| shard.strong_count() > 0);
    for shard in shards.iter().filter_map(Weak::upgrade) {
        shard.unmap_idle();
    }
}
