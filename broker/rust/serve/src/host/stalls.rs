//! What a stream does before it needs a shard's lock: it waits without a thread while another holds it, so that a virtual host
//! that stalls on its disk takes no worker from the others.
//!
//! One waiter of a shard looks after the lock, the others wait for that one. What a worker does itself under the lock on a slow
//! disk is done apart from its other tasks, once the shard was found slow: the first time it holds that worker up. A worker
//! that only waited for a processor does not make its shard slow: work apart costs twice the processor time of a small
//! message, which a busy machine does not have.
//!
//! What must stay true: a worker takes a shard's lock only by what is here, and what takes it when it is dropped is kept in a
//! [`Later`]. A test looks for that in all sources of this crate. Threads that may block take the lock as they like.

use std::cell::RefCell;
use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_engine::Shard;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{block_in_place, yield_now};
use tokio::time::timeout;

/// A lock that changes hands is had soon: other tasks' turns are wait enough.
const YIELDS: usize = 16;
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A round that takes longer makes its shard a slow one, for a while.
const SLOW_MIN: Duration = Duration::from_millis(20);
const SLOW_FOR: Duration = Duration::from_secs(2);
/// Reading what the kernel counts takes about a microsecond, so what was read a moment ago counts for a round's begin.
const WAITED_FOR: Duration = Duration::from_millis(5);

/// Returns when a shard's lock is free, or changes hands often enough that a wait for it is short.
pub(crate) async fn until_free(shard: &Shard) {
    for _ in 0..YIELDS {
        if shard.is_free() {
            return;
        }
        yield_now().await;
    }
    // It is never closed.
    let _turn = shard.waiting().acquire().await;
    loop {
        let holds = shard.holds();
        // A wake-up that is missed costs the time until the next look.
        let _ = timeout(LOOK_EVERY, shard.let_go()).await;
        if shard.is_free() || shard.holds() != holds {
            return;
        }
    }
}

/// Does what takes a shard's lock once it is free.
pub(crate) async fn when_free<T>(shard: &Shard, work: impl FnOnce() -> T) -> T {
    until_free(shard).await;
    at(shard, work)
}

/// The same where it takes the lock of a shard, and at once where it takes none.
pub(crate) async fn when_free_of<T>(shard: Option<Arc<Shard>>, work: impl FnOnce() -> T) -> T {
    match shard {
        Some(shard) => when_free(&shard, work).await,
        None => work(),
    }
}

/// Does at once what takes a shard's lock, or in a task of its own when another holds the lock. The broker's stop does what is
/// left of it.
pub(crate) fn soon(shard: &Arc<Shard>, work: impl FnOnce() + Send + 'static) {
    match Handle::try_current() {
        Ok(runtime) if !shard.is_free() => {
            let (shard, work) = (Arc::clone(shard), WhenDropped(Some(work)));
            runtime.spawn(async move { when_free(&shard, move || drop(work)).await });
        }
        _ => at(shard, work),
    }
}

/// What is done also when the task that waits to do it is not served any more.
struct WhenDropped<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for WhenDropped<F> {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work();
        }
    }
}

/// What takes a shard's lock when it is dropped: it goes once the lock is free, whoever drops it.
pub(crate) struct Later<T: Send + 'static> {
    shard: Arc<Shard>,
    /// There until it is dropped.
    inner: Option<T>,
}

impl<T: Send + 'static> Later<T> {
    pub fn new(shard: &Arc<Shard>, inner: T) -> Later<T> {
        Later { shard: Arc::clone(shard), inner: Some(inner) }
    }

    pub fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }
}

impl<T: Send + 'static> Deref for Later<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("it is taken out only when this is dropped"),
        }
    }
}

impl<T: Send + 'static> DerefMut for Later<T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.inner {
            Some(inner) => inner,
            None => unreachable!("it is taken out only when this is dropped"),
        }
    }
}

impl<T: Send + 'static> Drop for Later<T> {
    fn drop(&mut self) {
        let inner = self.inner.take();
        soon(&self.shard, move || drop(inner));
    }
}

/// Does what may wait for the disk under a shard's lock.
pub(crate) fn at<T>(shard: &Shard, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let waited = WAITS.with_borrow_mut(|waits| waits.at_begin(began));
    let may_leave = || Handle::try_current().is_ok_and(|on| on.runtime_flavor() == RuntimeFlavor::MultiThread);
    let done = if shard.is_slow(began) && may_leave() { block_in_place(work) } else { work() };
    let took = began.elapsed();
    if took >= SLOW_MIN && WAITS.with_borrow_mut(|waits| waits.is_slow(waited, took)) {
        shard.slow_until(began + SLOW_FOR);
    }
    done
}

thread_local! {
    static WAITS: RefCell<Waits> = RefCell::new(Waits::of_this_thread());
}

/// How long this thread was ready to run and waited for a processor, as the kernel counts it.
struct Waits {
    /// None where the kernel does not count it: every round is taken to have run all the time.
    counts: Option<File>,
    looked_at: Option<Instant>,
    total: Duration,
}

impl Waits {
    fn of_this_thread() -> Waits {
        Waits { counts: File::open("/proc/thread-self/schedstat").ok(), looked_at: None, total: Duration::ZERO }
    }

    /// The total when a round begins, or shortly before.
    fn at_begin(&mut self, now: Instant) -> Duration {
        if self.looked_at.is_none_or(|at| now.duration_since(at) >= WAITED_FOR) {
            self.looked_at = Some(now);
            self.look();
        }
        self.total
    }

    /// Whether a round took long also without the time it waited for a processor.
    fn is_slow(&mut self, at_begin: Duration, took: Duration) -> bool {
        self.look();
        took.saturating_sub(self.total.saturating_sub(at_begin)) >= SLOW_MIN
    }

    fn look(&mut self) {
        let mut line = [0; 64];
        let read = self.counts.as_ref().and_then(|counts| counts.read_at(&mut line, 0).ok());
        let line = read.and_then(|length| std::str::from_utf8(line.get(..length)?).ok());
        // Nanoseconds on a processor, nanoseconds waiting for one, and turns.
        let waited = line.and_then(|line| line.split(' ').nth(1)?.parse().ok());
        self.total = waited.map_or(self.total, Duration::from_nanos);
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::unwrap_used)]
mod tests {
    use std::fs::{File, write};
    use std::hint::spin_loop;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::{JoinHandle, available_parallelism};
    use std::time::{Duration, Instant};

    use penstock_engine::{
        Engine, EngineOptions, Position, QueueId, QueueLevels, QueueSettings, ReadFrom, ReadSettings, Shard,
        StreamSettings, SubscriptionOptions,
    };
    use tokio::runtime::Runtime;
    use tokio::time::timeout;

    use super::{Later, Waits, soon, until_free, when_free};

    const PATIENCE: Duration = Duration::from_secs(60);
    /// More than tokio has threads for work that blocks.
    const WAITERS: usize = 600;

    /// Queues whose reading takes until it may go on, under the shard's lock.
    struct Slowly(Option<(Sender<()>, Receiver<()>)>);

    impl Iterator for Slowly {
        type Item = QueueSettings<'static>;

        fn next(&mut self) -> Option<Self::Item> {
            let (began, may_end) = self.0.take()?;
            began.send(()).unwrap();
            may_end.recv_timeout(PATIENCE).unwrap();
            None
        }
    }

    /// Holds a shard's lock until it is told to let go.
    fn hold(shard: &Arc<Shard>) -> (JoinHandle<()>, Sender<()>) {
        let ((began, has_begun), (go_on, may_end)) = (channel(), channel());
        let shard = Arc::clone(shard);
        let holder = std::thread::spawn(move || shard.put_queues(Slowly(Some((began, may_end)))).unwrap());
        has_begun.recv_timeout(PATIENCE).unwrap();
        (holder, go_on)
    }

    /// A shard with nothing else on its disk.
    fn open(engine: &Engine, directory: &Path, name: &str) -> Arc<Shard> {
        let path = directory.join(name);
        std::fs::create_dir(&path).unwrap();
        engine.open_shard(name, &path, false).unwrap()
    }

    fn engine() -> Engine {
        let options = EngineOptions {
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 256 << 10,
            segment_idle: PATIENCE,
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
            producers_of_user_max: 4096,
        };
        Engine::new(options).unwrap()
    }

    fn one_worker() -> Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }

    #[test]
    fn a_round_that_waited_for_a_processor_is_not_a_slow_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("schedstat");
        let is_slow = |line: &str| {
            write(&path, line).unwrap();
            let mut waits =
                Waits { counts: File::open(&path).ok(), looked_at: None, total: Duration::from_millis(500) };
            waits.is_slow(Duration::from_millis(500), Duration::from_millis(45))
        };

        assert!(!is_slow("9000000 530000000 12\n"));
        assert!(is_slow("9000000 510000000 12\n"));
        for unreadable in ["", "no numbers here", "9"] {
            assert!(is_slow(unreadable), "{unreadable}");
        }
    }

    /// A thread alone on its processor may never have waited for it: more threads than processors have work here.
    #[test]
    fn the_kernel_counts_what_a_thread_waits_for_a_processor() {
        let began = Instant::now();
        let has_ended = AtomicBool::new(false);
        let mut waits = Waits::of_this_thread();

        std::thread::scope(|scope| {
            let processors = available_parallelism().unwrap().get();
            let at_work = || {
                while !has_ended.load(Ordering::Relaxed) {
                    spin_loop();
                }
            };
            (0..processors).for_each(|_| drop(scope.spawn(at_work)));
            while waits.at_begin(Instant::now()) == Duration::ZERO && began.elapsed() < PATIENCE {
                spin_loop();
            }
            has_ended.store(true, Ordering::Relaxed);
        });

        assert!(waits.counts.is_some() && waits.total > Duration::ZERO);
    }

    #[test]
    fn a_shard_that_stalls_takes_no_worker_however_many_wait_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let engine = engine();
        let open = |name| open(&engine, directory.path(), name);
        let (slow, calm) = (open("slow"), open("calm"));
        calm.put_queue(QueueId(1), "jobs", false, None).unwrap();
        let (holder, go_on) = hold(&slow);
        let runtime = one_worker();

        let waiting: Vec<_> = (0..WAITERS)
            .map(|_| {
                let slow = Arc::clone(&slow);
                runtime.spawn(async move { until_free(&slow).await })
            })
            .collect();
        runtime.block_on(async {
            let beside = tokio::spawn(async move {
                for _ in 0..100 {
                    until_free(&calm).await;
                    assert!(calm.queue_counts(&[QueueId(1)]).is_ok());
                    tokio::task::yield_now().await;
                }
            });
            timeout(PATIENCE / 2, beside).await.unwrap().unwrap();
            assert!(waiting.iter().all(|waiter| !waiter.is_finished()));
            go_on.send(()).unwrap();
            for waiter in waiting {
                timeout(PATIENCE, waiter).await.unwrap().unwrap();
            }
        });
        holder.join().unwrap();
        engine.close().unwrap();
    }

    #[test]
    fn a_task_that_waits_is_woken_when_the_lock_is_let_go() {
        let directory = tempfile::tempdir().unwrap();
        let engine = engine();
        let shard = open(&engine, directory.path(), "slow");
        let (holder, go_on) = hold(&shard);

        one_worker().block_on(async {
            let watched = Arc::clone(&shard);
            let mut waiting = tokio::spawn(async move { watched.let_go().await });
            assert!(
                timeout(Duration::from_millis(50), &mut waiting).await.is_err(),
                "it returned while the lock was held"
            );
            go_on.send(()).unwrap();
            timeout(PATIENCE, waiting).await.unwrap().unwrap();
        });
        holder.join().unwrap();
        engine.close().unwrap();
    }

    #[test]
    fn who_leaves_or_opens_while_a_shard_stalls_takes_no_worker_and_is_served_later() {
        let directory = tempfile::tempdir().unwrap();
        let engine = engine();
        let open = |name| open(&engine, directory.path(), name);
        let (slow, calm) = (open("slow"), open("calm"));
        let options = SubscriptionOptions { prefetch: 10, auto_ack: false, exclusive: false, pull: false };
        slow.put_queue(QueueId(1), "jobs", false, None).unwrap();
        let stream = Some(StreamSettings::default());
        let (name, levels) = ("events", QueueLevels::default());
        let stream = QueueSettings { id: QueueId(2), name, auto_delete: false, levels, stream };
        slow.put_queues([stream]).unwrap();
        calm.put_queue(QueueId(1), "jobs", false, None).unwrap();
        let subscribe = || Later::new(&slow, slow.subscribe(QueueId(1), options).unwrap());
        let consumers: Vec<_> = (0..WAITERS).map(|_| subscribe()).collect();
        let settings = ReadSettings { from: ReadFrom::First, end: None, group: None, single_active: false };
        let reader = Later::new(&slow, slow.read(QueueId(2), settings).unwrap());
        let (holder, go_on) = hold(&slow);

        let runtime = one_worker();
        runtime.block_on(async {
            let left = tokio::spawn(async move { drop((consumers, reader)) });
            timeout(PATIENCE / 2, left).await.expect("who leaves waits for the lock").unwrap();
            let opening: Vec<_> = (0..WAITERS)
                .map(|number| {
                    let slow = Arc::clone(&slow);
                    tokio::spawn(
                        async move { when_free(&slow, || slow.open_producer(&number.to_string(), "anna")).await },
                    )
                })
                .collect();
            let confirmed = Arc::clone(&slow);
            let confirmed = tokio::spawn(async move { confirmed.wait_synced(Position(u64::MAX)).await });
            let beside = tokio::spawn(async move { when_free(&calm, || calm.queue_counts(&[QueueId(1)])).await });
            assert!(timeout(PATIENCE / 2, beside).await.expect("nobody else is served").unwrap().is_ok());
            assert!(opening.iter().all(|opening| !opening.is_finished()));

            go_on.send(()).unwrap();
            for opened in opening {
                assert!(timeout(PATIENCE, opened).await.unwrap().unwrap().is_ok());
            }
            let left = async {
                while slow.queue_counts(&[QueueId(1)]).unwrap()[0].consumer_count > 0 {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, left).await.expect("somebody has not left");
            confirmed.abort();
        });
        holder.join().unwrap();
        drop(runtime);
        engine.close().unwrap();
    }

    #[test]
    fn what_waits_to_be_done_is_done_when_the_broker_stops() {
        let directory = tempfile::tempdir().unwrap();
        let engine = engine();
        let shard = open(&engine, directory.path(), "slow");
        let (holder, go_on) = hold(&shard);
        let (done, is_done) = channel();
        let runtime = one_worker();
        let waits = Arc::clone(&shard);
        runtime.block_on(async {
            tokio::spawn(async move { soon(&waits, move || done.send(()).unwrap()) }).await.unwrap()
        });
        assert!(is_done.try_recv().is_err(), "it was done while another held the lock");

        drop(runtime);

        is_done.recv_timeout(PATIENCE).unwrap();
        go_on.send(()).unwrap();
        holder.join().unwrap();
        engine.close().unwrap();
    }
}
