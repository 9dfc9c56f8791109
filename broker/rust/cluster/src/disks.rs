//! Threads that wait for disks: syncs and promises of all replicas.
//!
//! Invariant: a replica has at most one sync and one promise here, so a slow disk occupies as many threads as it has replicas that write,
//! and the others go on as long as a thread is left.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use crate::lock::lock;

/// Waits for a disk, and gives its replica the result.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// A queue of work, and the threads that take it.
pub(crate) struct Disks {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    work: VecDeque<Work>,
    is_over: bool,
}

/// The side of the queue that puts work into it. Clones share the queue.
#[derive(Clone)]
pub(crate) struct DiskWork(Arc<Queue>);

impl DiskWork {
    pub fn give(&self, work: Work) {
        lock(&self.0.state).work.push_back(work);
        self.0.changed.notify_one();
    }
}

impl Disks {
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(threads: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let mut disks = Self { queue, threads: Vec::new() };
        for number in 0..threads.max(1) {
            let queue = Arc::clone(&disks.queue);
            let thread = std::thread::Builder::new().name(format!("replica-disk-{number}"));
            disks.threads.push(thread.spawn(move || queue.run())?);
        }
        Ok(disks)
    }

    pub fn work(&self) -> DiskWork {
        DiskWork(Arc::clone(&self.queue))
    }
}

impl Drop for Disks {
    /// Waits for work that has begun; the rest is not done.
    fn drop(&mut self) {
        lock(&self.queue.state).is_over = true;
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Queue {
    fn run(&self) {
        while let Some(work) = self.next() {
            work();
        }
    }

    fn next(&self) -> Option<Work> {
        let mut state = lock(&self.state);
        loop {
            if state.is_over {
                state.work.clear();
                return None;
            }
            if let Some(next) = state.work.pop_front() {
                return Some(next);
            }
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}
