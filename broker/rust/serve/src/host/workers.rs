//! The threads that serve connections, and some in reserve.
//!
//! A task that hangs, as on a disk that does not answer, keeps its thread, and on a small machine there is only one. So a few
//! more threads rest until a probe finds that nothing is served; then one of them joins, for good. It does not rest again: what
//! waits on its queue then would be served by nobody while the other threads are busy.
//!
//! Threads that only work for long do not hang: the system tells whether they run or wait. When as many of the runtime's run as
//! serve, the probe looks again, for a few seconds.
//!
//! What must stay true: while nothing hangs, exactly the threads that were asked for serve (decision 0005 says why). Limits: a
//! task that the hanging one woke last may wait as long as it does, and when more tasks hang at once than threads rest, all wait.
//! Threads for work that blocks are taken for ones that serve while they run, so that a hang beside them is found later.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_engine::Engine;
use tokio::runtime::{Builder, Handle, Runtime};

const RESTING: usize = 4;
/// An idle broker pays for each probe: ten a second took 0.08 % of a core.
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// Longer than nearly all work that is only busy.
const HANGS_AFTER: Duration = Duration::from_millis(250);
/// After a machine was suspended all time has passed, and the threads have not had theirs.
const SECOND_LOOK: Duration = Duration::from_millis(50);
/// What is busy for longer than so many looks hangs.
const LOOKS_MAX: u32 = 60;
/// Looks in a row at which too few threads run: one that works may wait for a moment.
const LOOKS_WAITING: u32 = 2;

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
        let known = Arc::<Threads>::default();
        let (starting, stopping) = (Arc::clone(&known), Arc::clone(&known));
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads + RESTING)
            .thread_name("penstock-io")
            .on_thread_start(move || starting.enter())
            .on_thread_stop(move || stopping.leave())
            .enable_all()
            .build()?;
        let resting = (0..RESTING).map(|_| rest(runtime.handle())).collect();
        let (stop, stopped) = channel();
        let handle = runtime.handle().clone();
        let probe = std::thread::Builder::new()
            .name("penstock-probe".to_owned())
            .spawn(move || look_after(&handle, &known, (threads, resting), &stopped, &engine))?;
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

fn look_after(
    runtime: &Handle,
    known: &Threads,
    (mut serving, mut resting): (usize, Vec<Sender<()>>),
    stopped: &Receiver<()>,
    engine: &Engine,
) {
    while !resting.is_empty() && stopped.recv_timeout(PROBE_EVERY) == Err(RecvTimeoutError::Timeout) {
        if !is_served(runtime, || known.running_count() >= serving) {
            serving += 1;
            engine.notices().warn(format!(
                "no connection was served for {} ms and more, as when a disk hangs; another thread serves from now on ({} more in reserve)",
                (HANGS_AFTER + SECOND_LOOK * LOOKS_WAITING).as_millis(),
                resting.len() - 1
            ));
            resting.pop();
        }
    }
}

/// The threads of the runtime that there are, by the system's numbers. Where the system does not tell, none are known.
#[derive(Default)]
struct Threads(Mutex<BTreeSet<PathBuf>>);

impl Threads {
    fn enter(&self) {
        self.change(|known, thread| known.insert(thread));
    }

    fn leave(&self) {
        self.change(|known, thread| known.remove(&thread));
    }

    fn change(&self, with: impl FnOnce(&mut BTreeSet<PathBuf>, PathBuf) -> bool) {
        if let Ok(thread) = std::fs::read_link("/proc/thread-self") {
            with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), thread);
        }
    }

    /// How many have a processor, or would have one were there enough, and wait for nothing else.
    fn running_count(&self) -> usize {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = |thread: &&PathBuf| {
            let told = std::fs::read_to_string(PathBuf::from("/proc").join(thread).join("stat")).unwrap_or_default();
            // The name before it may hold anything.
            told.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('R'))
        };
        known.iter().filter(runs).count()
    }
}

/// Whether a task has its turn soon, or the threads that serve are only busy.
fn is_served(runtime: &Handle, mut is_busy: impl FnMut() -> bool) -> bool {
    let (done, is_done) = channel();
    runtime.spawn(async move {
        let _ = done.send(());
    });
    if is_done.recv_timeout(HANGS_AFTER).is_ok() {
        return true;
    }
    let mut waiting = 0;
    for _ in 0..LOOKS_MAX {
        if is_done.recv_timeout(SECOND_LOOK).is_ok() {
            return true;
        }
        waiting = if is_busy() { 0 } else { waiting + 1 };
        if waiting >= LOOKS_WAITING {
            return false;
        }
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use penstock_engine::{Engine, EngineOptions};

    use super::{LOOKS_WAITING, Threads, Workers, is_served};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn one_worker() -> (Workers, Arc<Engine>) {
        let options = EngineOptions {
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 256 << 10,
            segment_idle: PATIENCE,
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
            producers_of_user_max: 4096,
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
        // A thread that had no processor for long counts as one that hangs, too.
        assert!((2..=4).contains(&told.len()), "{told:?}");
        assert!(told.iter().all(|notice| notice.is_warning), "{told:?}");
        drop((first, second));
        workers.shutdown(PATIENCE);
        engine.close().unwrap();
    }

    /// A runtime of one thread, and what is known of it.
    fn bare() -> (tokio::runtime::Runtime, Arc<Threads>) {
        let known = Arc::<Threads>::default();
        let starting = Arc::clone(&known);
        let builder = &mut tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).on_thread_start(move || starting.enter()).build().unwrap();
        (runtime, known)
    }

    #[test]
    fn a_thread_that_only_works_for_long_does_not_hang() {
        let (runtime, known) = bare();
        let (begun, has_begun) = channel();
        let (is_over, seen) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let over = Arc::clone(&is_over);
        runtime.spawn(async move {
            begun.send(()).unwrap();
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        has_begun.recv_timeout(PATIENCE).unwrap();
        let looks = Cell::new(0);
        let is_served = is_served(runtime.handle(), || {
            looks.set(looks.get() + 1);
            let is_busy = known.running_count() >= 1;
            is_over.store(looks.get() > LOOKS_WAITING, Ordering::Relaxed);
            seen.fetch_or(is_busy, Ordering::Relaxed);
            is_busy
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(seen.load(Ordering::Relaxed), "the thread is not seen to run");
        assert!(is_served, "it was taken for one that hangs");
    }

    #[test]
    fn a_thread_that_waits_hangs() {
        let (runtime, known) = bare();
        let ((begun, has_begun), (go_on, may_end)) = (channel(), channel::<()>());
        runtime.spawn(async move {
            begun.send(()).unwrap();
            let _ = may_end.recv();
        });
        has_begun.recv_timeout(PATIENCE).unwrap();

        assert!(!is_served(runtime.handle(), || known.running_count() >= 1));

        drop(go_on);
    }
}
