//! The queues of work for the two threads behind shards: one syncs, the other folds.
//!
//! They know nothing of what the threads do, so a shard can request work without knowing the threads.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

/// A shard to work on; `None` ends the thread.
pub(crate) type Work<T> = Option<Weak<T>>;

/// Handles to the threads. Dropping the last one ends them after the queued work, as `end` does.
pub(crate) struct WorkQueues<T> {
    sync: Sender<Work<T>>,
    fold: Sender<Work<T>>,
}

impl<T> WorkQueues<T> {
    /// Also returns the ends for the two threads.
    pub fn new() -> (WorkQueues<T>, Receiver<Work<T>>, Receiver<Work<T>>) {
        let (sync, sync_waiting) = mpsc::channel();
        let (fold, fold_waiting) = mpsc::channel();
        (WorkQueues { sync, fold }, sync_waiting, fold_waiting)
    }

    pub fn sync(&self, shard: Weak<T>) {
        // A send fails only once the thread has ended: then the shards are closed.
        let _ = self.sync.send(Some(shard));
    }

    pub fn fold(&self, shard: Weak<T>) {
        let _ = self.fold.send(Some(shard));
    }

    /// Ends both threads after the queued work.
    pub fn end(&self) {
        let _ = self.sync.send(None);
        let _ = self.fold.send(None);
    }
}

/// The threads that sync the own logs of queues, so that none waits for another's disk.
pub(crate) struct OwnSyncs<T>(Mutex<Vec<OwnSync<T>>>);

type OwnSync<T> = (Weak<WorkQueues<T>>, JoinHandle<()>);

impl<T> Default for OwnSyncs<T> {
    fn default() -> OwnSyncs<T> {
        OwnSyncs(Mutex::default())
    }
}

impl<T: Send + Sync + 'static> OwnSyncs<T> {
    /// Starts another one, which works as `run` does. It ends with its last handle.
    pub fn start(&self, of_all: &WorkQueues<T>, run: fn(&Receiver<Work<T>>)) -> std::io::Result<Arc<WorkQueues<T>>> {
        let (sync, waiting) = mpsc::channel();
        let thread = std::thread::Builder::new().name("penstock-sync".to_owned());
        let thread = thread.spawn(move || run(&waiting))?;
        let queues = Arc::new(WorkQueues { sync, fold: of_all.fold.clone() });
        if let Ok(mut threads) = self.0.lock() {
            threads.retain(|(_, thread)| !thread.is_finished());
            threads.push((Arc::downgrade(&queues), thread));
        }
        Ok(queues)
    }

    /// Ends all of them, after the queued work.
    pub fn end(&self) {
        let threads = self.0.lock().map(|mut threads| std::mem::take(&mut *threads)).unwrap_or_default();
        for (queues, thread) in threads {
            if let Some(queues) = queues.upgrade() {
                let _ = queues.sync.send(None);
            }
            // One that panicked holds nothing either.
            let _ = thread.join();
        }
    }
}
