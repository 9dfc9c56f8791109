//! The queue of work for the thread that folds.
//!
//! It knows nothing of what the thread does, so a shard can request a fold without knowing the thread.

use std::sync::Weak;
use std::sync::mpsc::{self, Receiver, Sender};

/// A shard to fold; `None` ends the thread.
pub(crate) type Work<T> = Option<Weak<T>>;

/// A handle to the thread. Dropping the last one ends it after the queued work, as `end` does.
pub(crate) struct FoldQueue<T>(Sender<Work<T>>);

impl<T> FoldQueue<T> {
    /// Also returns the end for the thread.
    pub fn new() -> (FoldQueue<T>, Receiver<Work<T>>) {
        let (sender, waiting) = mpsc::channel();
        (FoldQueue(sender), waiting)
    }

    pub fn fold(&self, shard: Weak<T>) {
        // A send fails only once the thread has ended: then the shards are closed.
        let _ = self.0.send(Some(shard));
    }

    /// Ends the thread after the queued work.
    pub fn end(&self) {
        let _ = self.0.send(None);
    }
}
