//! The two threads that work on shards off the message path: one syncs, one folds.
//!
//! A shard stands in each thread's queue at most once (its own flags see to that), so the queues are bounded by the number
//! of shards. A shard that was dropped meanwhile is passed over.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::notices::Notices;
use crate::shard::Shard;
use crate::space::Space;

/// How often somebody looks whether there is room on the disk.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The doors to the threads. Dropping the last one lets them end after what waits.
pub(crate) struct Background {
    sync: Sender<Weak<Shard>>,
    fold: Sender<Weak<Shard>>,
}

impl Background {
    /// Starts both threads. `idle` is how long a segment's map is kept that nobody reads.
    pub fn start(
        shards: Arc<Mutex<Vec<Weak<Shard>>>>,
        idle: Duration,
        keeper: RoomKeeper,
    ) -> std::io::Result<(Arc<Background>, Vec<JoinHandle<()>>)> {
        let (sync, sync_waiting) = mpsc::channel();
        let (fold, fold_waiting) = mpsc::channel();
        let syncer = std::thread::Builder::new().name("penstock-sync".to_owned());
        let syncer = syncer.spawn(move || run_syncs(&sync_waiting))?;
        let folder = std::thread::Builder::new().name("penstock-fold".to_owned());
        let folder = folder.spawn(move || run_folds(&fold_waiting, &shards, idle, &keeper))?;
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

/// Looks after the room on the disk from the fold thread, which also makes it.
pub(crate) struct RoomKeeper {
    pub space: Arc<Space>,
    pub notices: Arc<Notices>,
}

impl RoomKeeper {
    fn look(&self, shards: &Mutex<Vec<Weak<Shard>>>) {
        let open: Vec<Arc<Shard>> =
            shards.lock().map(|shards| shards.iter().filter_map(Weak::upgrade).collect()).unwrap_or_default();
        if self.space.is_full() {
            for shard in &open {
                match shard.make_room() {
                    // What is missing may come from another shard, or from outside.
                    Err(error) if !error.is_full() => shard.stop(&error.to_string()),
                    _ => {}
                }
            }
        }
        self.space.look(open.iter().filter_map(|shard| shard.room()), &self.notices);
    }
}

fn run_folds(waiting: &Receiver<Weak<Shard>>, shards: &Mutex<Vec<Weak<Shard>>>, idle: Duration, keeper: &RoomKeeper) {
    // Shards whose fold found no room on the disk.
    let mut again: Vec<Weak<Shard>> = Vec::new();
    let (mut looked, mut unmapped) = (Instant::now(), Instant::now());
    loop {
        match waiting.recv_timeout(LOOK_EVERY.min(idle)) {
            Ok(shard) => again.extend(fold_all(&shard).then_some(shard)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if looked.elapsed() >= LOOK_EVERY {
            again.retain(fold_all);
            keeper.look(shards);
            looked = Instant::now();
        }
        if unmapped.elapsed() >= idle {
            unmap_idle(shards);
            unmapped = Instant::now();
        }
    }
}

/// Folds what there is to fold; says whether there was no room on the disk for it.
fn fold_all(shard: &Weak<Shard>) -> bool {
    let Some(shard) = shard.upgrade() else { return false };
    loop {
        match shard.fold_once() {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) if error.is_full() => return true,
            Err(error) => {
                shard.stop(&error.to_string());
                return false;
            }
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
