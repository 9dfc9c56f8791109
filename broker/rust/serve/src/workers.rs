//! The threads that serve connections, and some in reserve.
//!
//! A task that hangs, as on a disk that does not answer, keeps its thread, and on a small machine there is only one. So a few
//! more threads rest until a probe finds that nothing is served; then one of them joins, for good. It does not rest again: what
//! waits on its queue then would be served by nobody while the other threads are busy.
//!
//! What must stay true: while nothing hangs, exactly the threads that were asked for serve (decision 0005 says why). Limits: a
//! task that the hanging one woke last may wait as long as it does, and when more tasks hang at once than threads rest, all wait.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_engine::Engine;
use tokio::runtime::{Builder, Handle, Runtime};

const RESTING: usize = 4;
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// Longer than the longest piece of work that is only busy.
const HANGS_AFTER: Duration = Duration::from_millis(250);
/// After a machine was suspended all time has passed, and the threads have not had theirs.
const SECOND_LOOK: Duration = Duration::from_millis(50);

/// See the module.
pub(crate) struct Workers {
    /// Dropped to end the probe, which then lets the resting threads go; the runtime waits for them when it is dropped.
    stop: Sender<()>,
    probe: JoinHandle<()>,
    runtime: Runtime,
}

impl Workers {
    /// Threads that serve, `RESTING` that do not yet, and one that looks after them.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(threads: usize, engine: Arc<Engine>) -> io::Result<Workers> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads + RESTING)
            .thread_name("penstock-io")
            .enable_all()
            .build()?;
        let resting = (0..RESTING).map(|_| rest(runtime.handle())).collect();
        let (stop, stopped) = channel();
        let handle = runtime.handle().clone();
        let probe = std::thread::Builder::new()
            .name("penstock-probe".to_owned())
            .spawn(move || look_after(&handle, resting, &stopped, &engine))?;
        Ok(Workers { stop, probe, runtime })
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Ends all threads; those that hang are left behind after `patience`.
    pub fn shutdown(self, patience: Duration) {
        drop(self.stop);
        // It ends by itself: nothing in it waits for longer than a probe.
        let _ = self.probe.join();
        self.runtime.shutdown_timeout(patience);
    }
}

/// Puts one worker to rest until the sender is dropped. One at a time, and before there are other tasks: none may wait on the
/// queue of a worker that rests.
fn rest(runtime: &Handle) -> Sender<()> {
    let (join, may_join) = channel::<()>();
    let (began, has_begun) = channel();
    runtime.spawn(async move {
        let _ = began.send(());
        let _ = may_join.recv();
    });
    let _ = has_begun.recv();
    join
}

fn look_after(runtime: &Handle, mut resting: Vec<Sender<()>>, stopped: &Receiver<()>, engine: &Engine) {
    while !resting.is_empty() && stopped.recv_timeout(PROBE_EVERY) == Err(RecvTimeoutError::Timeout) {
        if !is_served(runtime) {
            resting.pop();
            engine.notices().warn(format!(
                "no connection was served for {} ms, as when a disk hangs; another thread serves from now on ({} more in reserve)",
                (HANGS_AFTER + SECOND_LOOK).as_millis(),
                resting.len()
            ));
        }
    }
}

/// Whether a task has its turn soon.
fn is_served(runtime: &Handle) -> bool {
    let (done, is_done) = channel();
    runtime.spawn(async move {
        let _ = done.send(());
    });
    [HANGS_AFTER, SECOND_LOOK].iter().any(|patience| is_done.recv_timeout(*patience).is_ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use penstock_engine::{Engine, EngineOptions};

    use super::Workers;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn one_worker() -> (Workers, Arc<Engine>) {
        let options = EngineOptions {
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 256 << 10,
            segment_idle: PATIENCE,
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
        };
        let engine = Arc::new(Engine::new(options).unwrap());
        (Workers::start(1, Arc::clone(&engine)).unwrap(), engine)
    }

    /// A task that keeps its thread until it is told to end. It woke two others before: the thread that hangs has the one, and the
    /// other may be served elsewhere.
    fn hang(workers: &Workers) -> (Sender<()>, Receiver<()>) {
        let ((go_on, may_end), (served, is_served)) = (channel::<()>(), channel());
        workers.runtime().spawn(async move {
            tokio::spawn(async move { served.send(()).unwrap() });
            tokio::spawn(async {});
            let _ = may_end.recv();
        });
        (go_on, is_served)
    }

    #[test]
    fn while_a_task_hangs_the_others_are_served_by_a_thread_in_reserve() {
        let (workers, engine) = one_worker();
        let (first, is_served) = hang(&workers);
        is_served.recv_timeout(PATIENCE).unwrap();
        let (second, is_served) = hang(&workers);
        is_served.recv_timeout(PATIENCE).unwrap();
        let told = engine.notices().take();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told.iter().all(|notice| notice.is_warning), "{told:?}");
        drop((first, second));
        workers.shutdown(PATIENCE);
        engine.close().unwrap();
    }
}
