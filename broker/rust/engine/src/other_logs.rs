//! The open logs of a vhost beside shard 0, and the queues in them.
//!
//! Invariants: a queue is in one log, for ever; one that is not named here is in shard 0. A log is of any type `L`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use penstock_queue::QueueId;
use rustc_hash::FxHashMap;

use crate::log_number::LogNumber;

/// See the module.
pub(crate) struct OtherLogs<L> {
    open: RwLock<Open<L>>,
    /// Of the logs, to be read without the lock.
    count: AtomicUsize,
}

struct Open<L> {
    logs: BTreeMap<LogNumber, Arc<L>>,
    homes: FxHashMap<QueueId, Arc<L>>,
}

impl<L> Default for OtherLogs<L> {
    fn default() -> Self {
        let open = Open { logs: BTreeMap::new(), homes: FxHashMap::default() };
        OtherLogs { open: RwLock::new(open), count: AtomicUsize::new(0) }
    }
}

impl<L> OtherLogs<L> {
    /// The log with a queue; `None` when it is in shard 0.
    pub fn home(&self, queue: QueueId) -> Option<Arc<L>> {
        self.read().homes.get(&queue).cloned()
    }

    pub fn log(&self, number: LogNumber) -> Option<Arc<L>> {
        self.read().logs.get(&number).cloned()
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The one log of all these queues, unless that is shard 0.
    pub fn only_home(&self, queues: &[QueueId]) -> Option<Arc<L>> {
        let open = self.read();
        let (first, rest) = queues.split_first()?;
        let home = open.homes.get(first)?;
        let is_here = |queue| open.homes.get(queue).is_some_and(|other| Arc::ptr_eq(other, home));
        rest.iter().all(is_here).then(|| Arc::clone(home))
    }

    pub fn dedicated_count(&self) -> usize {
        self.read().logs.keys().filter(|number| number.queue().is_some()).count()
    }

    /// In the order of their numbers: the dedicated ones by queue, then the shards.
    pub fn all(&self) -> Vec<(LogNumber, Arc<L>)> {
        self.read().logs.iter().map(|(number, shard)| (*number, Arc::clone(shard))).collect()
    }

    /// Adds a log, and the queue of a dedicated one.
    pub fn put_log(&self, number: LogNumber, shard: Arc<L>) {
        let mut open = self.write();
        open.homes.extend(number.queue().map(|queue| (queue, Arc::clone(&shard))));
        open.logs.insert(number, shard);
        self.count.store(open.logs.len(), Ordering::Release);
    }

    /// Removes a dedicated log with its queue.
    pub fn remove_dedicated(&self, queue: QueueId) {
        let mut open = self.write();
        open.homes.remove(&queue);
        open.logs.remove(&LogNumber::of(queue));
        self.count.store(open.logs.len(), Ordering::Release);
    }

    /// Places a queue in a log that it shares with others.
    pub fn put_queue(&self, queue: QueueId, home: &Arc<L>) {
        self.write().homes.insert(queue, Arc::clone(home));
    }

    pub fn remove_queue(&self, queue: QueueId) {
        self.write().homes.remove(&queue);
    }

    fn read(&self) -> RwLockReadGuard<'_, Open<L>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Open<L>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner)
    }
}
