//! The threads that work on shards off the message path: a pool that syncs, one thread that folds, and compacts in
//! between, one that expires messages, and one that moves dead letters, and kept messages that could not be copied at once.
//!
//! A shard waits for each at most once (its own flags ensure that), so what waits is bounded by the number of shards. A
//! shard that was dropped meanwhile is skipped. Compaction goes in slices, at a rate that rises with the space to free,
//! and waiting folds go first.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::alarms::{Alarms, Timed};
use crate::clock::clock_ms;
use crate::dead_lettering::Next;
use crate::error::EngineError;
use crate::fold_queue::{FoldQueue, Work};
use crate::fold_turns::{FoldTurns, Turn};
use crate::room_keeper::RoomKeeper;
use crate::shard::Shard;
use crate::sync_pool::SyncPool;

/// Interval of the checks for disk space.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Interval of the checks for expired messages of streams.
const RETAIN_EVERY: Duration = Duration::from_secs(5);

/// Dead letters that no queue took, or for which there was no space, are tried again.
const TRY_AGAIN_EVERY: Duration = Duration::from_secs(1);

/// A thread without work need not look before it gets some.
const WITHOUT_WORK: Duration = Duration::from_secs(3600);

/// How late a delayed message may be ready because the thread pauses between two rounds, and how late a message may be expired,
/// while it is not delivered any more.
const EXPIRE_EVERY: Duration = Duration::from_millis(4);

/// The longest pause, after long rounds.
const EXPIRE_EVERY_MAX: Duration = Duration::from_millis(50);

/// Rounds take one part of the time in so many, up to the longest pause: of many queues each costs more.
const EXPIRE_SHARE: u32 = 10;

/// Bytes that compaction writes at once: a few milliseconds of a disk.
const SLICE_BYTES: u64 = 1 << 20;

/// How many times the rate compaction may write when the disk holds far more than the live bytes.
const HASTE_MAX: f64 = 8.0;

/// The threads, and the means to give them work.
pub(crate) struct Threads {
    pub syncs: Arc<SyncPool<Shard>>,
    pub folds: Arc<FoldQueue<Shard>>,
    folder: JoinHandle<()>,
    pub dead_letters: Arc<FoldQueue<Shard>>,
    mover: JoinHandle<()>,
    pub alarms: Arc<Alarms>,
    expirer: JoinHandle<()>,
}

impl Threads {
    /// Starts them. `idle` is how long the map of a segment without readers is kept, `rate` how many bytes a second
    /// compaction writes when nothing is urgent; 0 turns it off.
    pub fn start(
        shards: Arc<Mutex<Vec<Weak<Shard>>>>,
        idle: Duration,
        keeper: RoomKeeper,
        rate: u64,
    ) -> std::io::Result<Threads> {
        let syncs = SyncPool::start(sync)?;
        let (folds, fold_waiting) = FoldQueue::new();
        let folder = std::thread::Builder::new().name("penstock-fold".to_owned());
        let now = Instant::now();
        let pauses = Pauses {
            compacting: VecDeque::new(),
            next_slice: now,
            next_look: now + LOOK_EVERY,
            next_unmap: now + idle,
            next_retain: now + RETAIN_EVERY,
            idle,
            rate,
            keeper,
        };
        let folder = folder.spawn(move || run_folds(&fold_waiting, &shards, pauses))?;
        let alarms = Arc::<Alarms>::default();
        let of_expiry = Arc::clone(&alarms);
        let expirer = std::thread::Builder::new().name("penstock-expire".to_owned());
        let expirer = expirer.spawn(move || run_expiry(&of_expiry))?;
        let (dead_letters, letters_waiting) = FoldQueue::new();
        let mover = std::thread::Builder::new().name("penstock-letters".to_owned());
        let mover = mover.spawn(move || run_dead_letters(&letters_waiting))?;
        let (folds, dead_letters) = (Arc::new(folds), Arc::new(dead_letters));
        Ok(Threads { syncs, folds, folder, dead_letters, mover, alarms, expirer })
    }

    /// Ends them after the work that waits, and waits for that.
    pub fn end(self) {
        self.syncs.end();
        self.folds.end();
        self.dead_letters.end();
        self.alarms.end();
        // One that panicked holds nothing either.
        drop(self.folder.join());
        drop(self.mover.join());
        drop(self.expirer.join());
    }
}

/// Expires messages of the shards whose time has come, until it ends.
fn run_expiry(alarms: &Alarms) {
    while let Some(due) = alarms.wait(clock_ms) {
        let begun = Instant::now();
        due.iter().for_each(|shard| shard.on_time(clock_ms()));
        drop(due);
        alarms.pause(pause_after(begun.elapsed()));
    }
}

/// The pause after a round that took so long.
fn pause_after(round: Duration) -> Duration {
    (round * (EXPIRE_SHARE - 1)).clamp(EXPIRE_EVERY, EXPIRE_EVERY_MAX)
}

impl Timed for Shard {
    fn on_time(&self, now_ms: u64) {
        match catch_unwind(AssertUnwindSafe(|| self.expire_due(now_ms))) {
            Ok(result) => stop_unless_full(self, result.map(|_| ())),
            Err(_) => self.stop("a bug ended an expiry half way"),
        }
    }
}

/// Adds a shard to those that wait, unless it does already: one that asks again while some of its work is done would otherwise get
/// more and more turns.
fn join(waiting: &mut VecDeque<Weak<Shard>>, shard: Weak<Shard>) {
    if !waiting.iter().any(|other| other.ptr_eq(&shard)) {
        waiting.push_back(shard);
    }
}

/// Moves dead letters, a part of each shard in turn.
fn run_dead_letters(waiting: &Receiver<Work<Shard>>) {
    let (mut turns, mut later) = (VecDeque::new(), VecDeque::new());
    let mut next_try = Instant::now();
    loop {
        let wait = match (turns.is_empty(), later.is_empty()) {
            (false, _) => Duration::ZERO,
            (true, false) => next_try.saturating_duration_since(Instant::now()),
            (true, true) => WITHOUT_WORK,
        };
        match waiting.recv_timeout(wait) {
            Ok(Some(shard)) => join(&mut turns, shard),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(waiting) = turns.pop_front()
            && let Some(shard) = waiting.upgrade()
        {
            match move_dead_letters(&shard) {
                Next::Nothing => {}
                Next::More => join(&mut turns, waiting),
                Next::Later => {
                    if later.is_empty() {
                        next_try = Instant::now() + TRY_AGAIN_EVERY;
                    }
                    join(&mut later, waiting);
                }
            }
        }
        if Instant::now() >= next_try {
            later.drain(..).for_each(|shard| join(&mut turns, shard));
        }
    }
}

fn move_dead_letters(shard: &Shard) -> Next {
    match catch_unwind(AssertUnwindSafe(|| shard.move_some())) {
        Ok(Ok(next)) => next,
        Ok(Err(error)) if error.is_full() => Next::Later,
        Ok(Err(error)) => {
            shard.stop(&error.to_string());
            Next::Nothing
        }
        Err(_) => {
            shard.stop("a bug ended the moving of dead letters half way");
            Next::Nothing
        }
    }
}

/// One sync of a shard. A bug in it stops the shard, whose confirms would wait for ever, and no other.
fn sync(shard: &Arc<Shard>) {
    let synced = catch_unwind(AssertUnwindSafe(|| shard.sync_once()));
    match synced {
        Ok(Ok(())) => {}
        Ok(Err(error)) => shard.stop(&error.to_string()),
        Err(_) => shard.stop("a bug ended a sync half way"),
    }
}

fn run_folds(waiting: &Receiver<Work<Shard>>, shards: &Mutex<Vec<Weak<Shard>>>, mut pauses: Pauses) {
    let mut due = FoldTurns::default();
    // Shards whose fold found the disk full.
    let mut again: Vec<Weak<Shard>> = Vec::new();
    loop {
        let wait = if due.is_empty() { pauses.wait(Instant::now()) } else { Duration::ZERO };
        match waiting.recv_timeout(wait) {
            Ok(Some(shard)) => due.add(shard),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(turn) = due.next() {
            let folded = fold(&turn);
            let shard = turn.shard;
            match folded {
                Folded::All => pauses.compact_soon(shard),
                Folded::Some => {
                    pauses.compact_soon(shard.clone());
                    due.go_on(shard);
                }
                Folded::Nothing => again.push(shard),
            }
        }
        if Instant::now() >= pauses.next_look {
            again.drain(..).for_each(|shard| due.add(shard));
            pauses.keeper.look(&open_shards(shards));
            pauses.next_look = Instant::now() + LOOK_EVERY;
        }
        pauses.use_one(Instant::now(), shards);
    }
}

/// Work of the fold thread while nothing is to be folded.
struct Pauses {
    /// Shards that may have something to compact, each once; the first is next.
    compacting: VecDeque<Weak<Shard>>,
    next_slice: Instant,
    next_look: Instant,
    next_unmap: Instant,
    next_retain: Instant,
    idle: Duration,
    /// Bytes per second.
    rate: u64,
    keeper: RoomKeeper,
}

impl Pauses {
    fn wait(&self, now: Instant) -> Duration {
        let next = self.next_look.min(self.next_unmap).min(self.next_retain);
        let next = if self.may_compact() { next.min(self.next_slice) } else { next };
        next.saturating_duration_since(now)
    }

    /// A full disk waits for folds to free space: compaction writes before it frees anything.
    fn may_compact(&self) -> bool {
        !self.compacting.is_empty() && !self.keeper.is_full()
    }

    fn compact_soon(&mut self, shard: Weak<Shard>) {
        if self.rate > 0 && !self.compacting.iter().any(|waiting| waiting.ptr_eq(&shard)) {
            self.compacting.push_back(shard);
        }
    }

    fn use_one(&mut self, now: Instant, shards: &Mutex<Vec<Weak<Shard>>>) {
        if now >= self.next_unmap {
            self.next_unmap = now + self.idle;
            tidy(shards);
        }
        if now >= self.next_retain {
            self.next_retain = now + RETAIN_EVERY;
            for shard in open_shards(shards) {
                stop_unless_full(&shard, shard.retain_and_free(clock_ms()));
                stop_unless_full(&shard, shard.forget_producers(clock_ms()).map(|_| ()));
                stop_unless_full(&shard, shard.note_complete());
            }
        }
        if now >= self.next_slice
            && self.may_compact()
            && let Some(waiting) = self.compacting.pop_front()
            && let Some(shard) = waiting.upgrade()
        {
            let slice = shard.compact_once(SLICE_BYTES).unwrap_or_else(|error| {
                shard.stop(&error.to_string());
                None
            });
            let Some(slice) = slice else { return };
            // The slice's own time counts, so that a slow disk gets no more than its share of pauses.
            self.next_slice = now + pause(slice.bytes, self.rate, slice.patience);
            if slice.more {
                self.compacting.push_back(waiting);
            }
        }
    }
}

/// Duration of a slice and the pause after it: by the rate, and shorter the more there is to free.
fn pause(bytes: u64, rate: u64, patience: f64) -> Duration {
    let usual = bytes as f64 / rate.max(1) as f64;
    Duration::from_secs_f64(usual * patience.clamp(1.0 / HASTE_MAX, 1.0))
}

/// The result of a fold.
enum Folded {
    All,
    /// There may be more to fold.
    Some,
    /// The disk is full.
    Nothing,
}

/// Folds a part of what is due.
fn fold(turn: &Turn<Shard>) -> Folded {
    let Some(shard) = turn.shard.upgrade() else { return Folded::All };
    if turn.is_first {
        // Messages over a limit go with the segments that this series of folds covers.
        stop_unless_full(&shard, shard.retain(clock_ms()).map(|_| ()));
    }
    match shard.fold_once() {
        Ok(true) => Folded::Some,
        Ok(false) => Folded::All,
        Err(error) if error.is_full() => Folded::Nothing,
        Err(error) => {
            shard.stop(&error.to_string());
            Folded::All
        }
    }
}

/// Work that can wait until the queue is idle.
fn tidy(shards: &Mutex<Vec<Weak<Shard>>>) {
    if let Ok(mut shards) = shards.lock() {
        shards.retain(|shard| shard.strong_count() > 0);
    }
    for shard in open_shards(shards) {
        shard.unmap_idle();
        stop_unless_full(&shard, shard.free_when_empty());
    }
}

fn open_shards(shards: &Mutex<Vec<Weak<Shard>>>) -> Vec<Arc<Shard>> {
    shards.lock().map(|shards| shards.iter().filter_map(Weak::upgrade).collect()).unwrap_or_default()
}

/// A step that finds the disk full is retried.
fn stop_unless_full(shard: &Shard, result: Result<(), EngineError>) {
    if let Err(error) = result
        && !error.is_full()
    {
        shard.stop(&error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_of_the_expirer_is_short_after_short_rounds_and_bounded_after_long_ones() {
        let ms = Duration::from_millis;
        for (round, pause) in [(0, 4), (1, 9), (3, 27), (10, 50), (60_000, 50)] {
            assert_eq!(pause_after(ms(round)), ms(pause), "{round}");
        }
    }
}
