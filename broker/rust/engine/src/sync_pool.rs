//! The threads that sync shards: few for all of them, so that a slow disk holds up the shards on it and no others.
//!
//! Threads are started while shards wait, and end when they find nothing to do for a while, all but the first. They take
//! shards in the order of `sync_turns` and know nothing of a sync; a shard that was dropped meanwhile is skipped.
//! Invariant: while a shard can be taken, a thread is about to look for it, or all of them are busy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::sync_turns::SyncTurns;

/// How many syncs run at the same time.
pub(crate) const SYNC_THREADS_MAX: usize = 4;

/// How long a thread waits for work before it ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Dropping it ends the threads after the work that waits, as `end` does.
pub(crate) struct SyncPool<T: Send + Sync + 'static>(Arc<Inner<T>>);

/// The shards of one virtual host in the pool.
pub(crate) struct SyncGroup<T: Send + Sync + 'static> {
    pool: Arc<SyncPool<T>>,
    number: u64,
}

struct Inner<T> {
    pool: Mutex<Pool<T>>,
    wakes: Condvar,
    run: fn(&Arc<T>),
    idle_max: Duration,
    last_group: AtomicU64,
}

struct Pool<T> {
    turns: SyncTurns<Waiting<T>>,
    threads: Vec<JoinHandle<()>>,
    thread_count: usize,
    idle_count: usize,
    has_ended: bool,
}

/// A shard by its identity.
struct Waiting<T>(Weak<T>);

impl<T> Clone for Waiting<T> {
    fn clone(&self) -> Self {
        Waiting(Weak::clone(&self.0))
    }
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl<T: Send + Sync + 'static> SyncPool<T> {
    /// `run` syncs a shard and does not panic.
    pub fn start(run: fn(&Arc<T>)) -> std::io::Result<Arc<SyncPool<T>>> {
        Self::start_with(run, IDLE_MAX)
    }

    fn start_with(run: fn(&Arc<T>), idle_max: Duration) -> std::io::Result<Arc<SyncPool<T>>> {
        let pool = Pool {
            turns: SyncTurns::new(SYNC_THREADS_MAX),
            threads: Vec::new(),
            thread_count: 0,
            idle_count: 0,
            has_ended: false,
        };
        let inner =
            Inner { pool: Mutex::new(pool), wakes: Condvar::new(), run, idle_max, last_group: AtomicU64::new(0) };
        let inner = Arc::new(inner);
        inner.start_thread(&mut inner.lock())?;
        Ok(Arc::new(SyncPool(inner)))
    }

    /// A group for the shards of one more virtual host.
    pub fn group(self: &Arc<Self>) -> SyncGroup<T> {
        let number = self.0.last_group.fetch_add(1, Ordering::Relaxed);
        SyncGroup { pool: Arc::clone(self), number }
    }

    /// Ends all threads after the work that waits, and waits for them.
    pub fn end(&self) {
        let threads = {
            let mut pool = self.0.lock();
            pool.has_ended = true;
            std::mem::take(&mut pool.threads)
        };
        self.0.wakes.notify_all();
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl<T: Send + Sync + 'static> Drop for SyncPool<T> {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.wakes.notify_all();
    }
}

impl<T: Send + Sync + 'static> Clone for SyncGroup<T> {
    fn clone(&self) -> Self {
        SyncGroup { pool: Arc::clone(&self.pool), number: self.number }
    }
}

impl<T: Send + Sync + 'static> SyncGroup<T> {
    /// Has a shard synced soon. It comes again only after its sync has begun.
    pub fn sync(&self, shard: Weak<T>) {
        let inner = &self.pool.0;
        let mut pool = inner.lock();
        pool.turns.add(self.number, Waiting(shard));
        inner.call_thread(&mut pool);
    }
}

impl<T: Send + Sync + 'static> Inner<T> {
    fn lock(&self) -> MutexGuard<'_, Pool<T>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one more thread look for work, if there is some.
    fn call_thread(self: &Arc<Self>, pool: &mut Pool<T>) {
        if pool.has_ended || !pool.turns.is_ready() {
            return;
        }
        if pool.idle_count > 0 {
            self.wakes.notify_one();
        } else if pool.thread_count < SYNC_THREADS_MAX {
            // Without a further thread, one that is busy takes it when it is done.
            let _ = self.start_thread(pool);
        }
    }

    fn start_thread(self: &Arc<Self>, pool: &mut Pool<T>) -> std::io::Result<()> {
        let inner = Arc::clone(self);
        let thread = std::thread::Builder::new().name("penstock-sync".to_owned());
        let thread = thread.spawn(move || inner.work())?;
        pool.threads.retain(|thread| !thread.is_finished());
        pool.threads.push(thread);
        pool.thread_count += 1;
        Ok(())
    }

    fn work(self: &Arc<Self>) {
        let mut pool = self.lock();
        let mut is_idle = false;
        loop {
            if let Some((group, waiting)) = pool.turns.take() {
                self.call_thread(&mut pool);
                drop(pool);
                if let Some(shard) = waiting.0.upgrade() {
                    (self.run)(&shard);
                }
                pool = self.lock();
                pool.turns.done(group, &waiting);
                is_idle = false;
            } else if pool.has_ended || (is_idle && pool.thread_count > 1) {
                pool.thread_count -= 1;
                return;
            } else {
                pool.idle_count += 1;
                let waited = self.wakes.wait_timeout(pool, self.idle_max).unwrap_or_else(PoisonError::into_inner);
                pool = waited.0;
                pool.idle_count -= 1;
                is_idle = waited.1.timed_out();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A sync says that it began, and ends when it is allowed to.
    struct Shard {
        began: Sender<u32>,
        may_end: Mutex<Receiver<()>>,
        number: u32,
    }

    fn sync(shard: &Arc<Shard>) {
        let _ = shard.began.send(shard.number);
        let _ = shard.may_end.lock().unwrap().recv();
    }

    struct House {
        pool: Arc<SyncPool<Shard>>,
        began: Receiver<u32>,
        begins: Sender<u32>,
    }

    impl House {
        fn new() -> House {
            let (begins, began) = channel();
            House { pool: SyncPool::start_with(sync, Duration::from_millis(1)).unwrap(), began, begins }
        }

        fn shard(&self, number: u32) -> (Arc<Shard>, Sender<()>) {
            let (end, may_end) = channel();
            (Arc::new(Shard { began: self.begins.clone(), may_end: Mutex::new(may_end), number }), end)
        }

        fn begun(&self, count: usize) -> Vec<u32> {
            let mut begun: Vec<u32> = (0..count).map(|_| self.began.recv_timeout(PATIENCE).unwrap()).collect();
            begun.sort_unstable();
            begun
        }
    }

    #[test]
    fn syncs_that_hang_leave_a_thread_for_another_virtual_host() {
        let house = House::new();
        let (slow, calm) = (house.pool.group(), house.pool.group());
        let hanging: Vec<_> = (0..6).map(|number| house.shard(number)).collect();
        hanging.iter().for_each(|(shard, _)| slow.sync(Arc::downgrade(shard)));
        assert_eq!(house.begun(3), [0, 1, 2]);

        for number in 10..20 {
            let (shard, end) = house.shard(number);
            calm.sync(Arc::downgrade(&shard));
            assert_eq!(house.begun(1), [number]);
            end.send(()).unwrap();
        }

        for (_, end) in &hanging {
            end.send(()).unwrap();
        }
        house.pool.end();
        assert_eq!(house.begun(3), [3, 4, 5], "what waits is done before the end");
    }

    #[test]
    fn threads_without_work_end_but_one() {
        let house = House::new();
        let group = house.pool.group();
        let shards: Vec<_> = (0..3).map(|number| house.shard(number)).collect();
        shards.iter().for_each(|(shard, _)| group.sync(Arc::downgrade(shard)));
        assert_eq!(house.begun(3), [0, 1, 2]);
        assert!(house.pool.0.lock().thread_count >= 3);

        shards.iter().for_each(|(_, end)| end.send(()).unwrap());

        while house.pool.0.lock().thread_count > 1 {
            std::thread::yield_now();
        }
        group.sync(Arc::downgrade(&shards[0].0));
        assert_eq!(house.begun(1), [0]);
        shards[0].1.send(()).unwrap();
        house.pool.end();
        assert_eq!(house.pool.0.lock().thread_count, 0);
    }
}
