//! The two threads that work on shards off the message path: one syncs, one folds.
//!
//! A shard stands in each thread's queue at most once (its own flags see to that), so the queues are bounded by the number
//! of shards. A shard that was dropped meanwhile is passed over.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::shard::Shard;

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
    ) -> std::io::Result<(Arc<Background>, Vec<JoinHandle<()>>)> {
        let (sync, sync_waiting) = mpsc::channel();
        let (fold, fold_waiting) = mpsc::channel();
        let syncer = std::thread::Builder::new().name("penstock-sync".to_owned());
        let syncer = syncer.spawn(move || run_syncs(&sync_waiting))?;
        let folder = std::thread::Builder::new().name("penstock-fold".to_owned());
        let folder = folder.spawn(move || run_folds(&fold_waiting, &shards, idle))?;
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

fn run_folds(waiting: &Receiver<Weak<Shard>>, shards: &Mutex<Vec<Weak<Shard>>>, idle: Duration) {
    loop {
        match waiting.recv_timeout(idle) {
            Ok(shard) => fold_all(&shard),
            Err(RecvTimeoutError::Timeout) => unmap_idle(shards),
            Err(RecvTimeoutError::Disconnected) => return,
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
