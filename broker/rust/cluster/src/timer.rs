//! One thread that lets time pass for all replicas.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::shard::Shard;
use crate::shards::Shards;

/// As often as a replica needs it.
const TICK: Duration = Duration::from_millis(100);

pub(crate) struct Timer {
    /// Dropping it ends the thread.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Timer {
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(shards: Arc<Shards>) -> std::io::Result<Self> {
        let (alive, over) = channel();
        let thread = std::thread::Builder::new().name("replica-timer".into()).spawn(move || {
            while over.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                for shard in shards.all() {
                    shard.guard(Shard::tick);
                }
            }
        })?;
        Ok(Self { alive: Some(alive), thread: Some(thread) })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
