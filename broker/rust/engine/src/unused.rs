//! Queues that were unused for as long as they may be: shards find them, and the broker takes them from here and deletes them.
//!
//! Invariant: a queue is here once, however often it is found, until it is taken.

mod finding;
pub(crate) mod last_uses;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use penstock_queue::QueueId;
use tokio::sync::Notify;

/// A queue that was unused for its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedQueue {
    pub vhost: String,
    pub queue: String,
    pub id: QueueId,
}

/// See the module.
#[derive(Debug, Default)]
pub struct UnusedQueues {
    found: Mutex<BTreeMap<(String, QueueId), String>>,
    told: Notify,
}

impl UnusedQueues {
    /// Waits until there are some, and takes them. One task at a time waits.
    pub async fn wait(&self) -> Vec<UnusedQueue> {
        loop {
            let found = std::mem::take(&mut *self.found());
            if !found.is_empty() {
                let all = found.into_iter();
                return all.map(|((vhost, id), queue)| UnusedQueue { vhost, queue, id }).collect();
            }
            self.told.notified().await;
        }
    }

    pub(crate) fn add(&self, vhost: &str, queues: Vec<(QueueId, String)>) {
        let found = queues.into_iter().map(|(id, queue)| ((vhost.to_owned(), id), queue));
        self.found().extend(found);
        self.told.notify_one();
    }

    fn found(&self) -> MutexGuard<'_, BTreeMap<(String, QueueId), String>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
