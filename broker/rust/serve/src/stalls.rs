//! What a stream does before it needs a shard's lock: it waits without a thread while another holds it, so that a virtual host
//! that stalls on its disk takes no worker from the others.
//!
//! One waiter of a shard looks after the lock, the others wait for that one. What a worker does itself under the lock on a slow
//! disk is done apart from its other tasks, once the shard was found slow: the first time it holds that worker up.

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
const SLOW_FOR: Duration = Duration::from_secs(10);

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

/// Does what may wait for the disk under a shard's lock.
pub(crate) fn at<T>(shard: &Shard, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let may_leave = || Handle::try_current().is_ok_and(|on| on.runtime_flavor() == RuntimeFlavor::MultiThread);
    let done = if shard.is_slow(began) && may_leave() { block_in_place(work) } else { work() };
    if began.elapsed() >= SLOW_MIN {
        shard.slow_until(began + SLOW_FOR);
    }
    done
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;
    use std::time::Duration;

    use penstock_engine::{Engine, EngineOptions, QueueId, QueueSettings, Shard};
    use tokio::runtime::Runtime;
    use tokio::time::timeout;

    use super::until_free;

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
        };
        Engine::new(options).unwrap()
    }

    fn one_worker() -> Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
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
}
