//! One thread that folds and compacts the logs of followers, a turn of each at a time.
//!
//! Invariants: logs with entries are left alone, because only their host knows which of them it needs. A turn is one fold of a log; all logs
//! together have one slice of compaction in a round, so that it takes a bounded part of the disk.

use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_log::LogError;
use penstock_replication::Input;

use crate::shard::{Contents, Shard};
use crate::shards::Shards;

/// Between two rounds: a follower is behind its leader's folds by so much.
const PAUSE: Duration = Duration::from_millis(200);
/// The shortest pause, while a log takes much more than its live messages.
const PAUSE_PART_MIN: f64 = 0.125;
/// Bytes that compaction writes in a round.
const SLICE_BYTES: u64 = 1 << 20;

pub(crate) struct Upkeep {
    /// Dropping it ends the thread after the turn that it is in.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Upkeep {
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(shards: Arc<Shards>) -> std::io::Result<Self> {
        let (alive, over) = channel();
        let thread = std::thread::Builder::new().name("replica-upkeep".into()).spawn(move || {
            let (mut rounds, mut pause) = (Rounds::default(), PAUSE);
            while over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = rounds.next(&shards.all());
            }
        })?;
        Ok(Self { alive: Some(alive), thread: Some(thread) })
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// The shards that were folded since their last slice of compaction, each once; the first is next.
#[derive(Default)]
struct Rounds {
    compacting: VecDeque<Weak<Shard>>,
}

impl Rounds {
    /// A round; returns the pause after it.
    fn next(&mut self, shards: &[Arc<Shard>]) -> Duration {
        for shard in shards.iter().filter(|shard| shard.contents == Contents::Queues) {
            if told(shard, Shard::fold).unwrap_or_default() {
                self.compact_soon(Arc::downgrade(shard));
            }
        }
        let Some(shard) = self.compacting.pop_front().and_then(|shard| shard.upgrade()) else { return PAUSE };
        let Some(slice) = told(&shard, |shard| shard.compact(SLICE_BYTES)).flatten() else { return PAUSE };
        if slice.more {
            self.compact_soon(Arc::downgrade(&shard));
        }
        PAUSE.mul_f64(slice.patience.clamp(PAUSE_PART_MIN, 1.0))
    }

    fn compact_soon(&mut self, shard: Weak<Shard>) {
        if !self.compacting.iter().any(|waiting| waiting.ptr_eq(&shard)) {
            self.compacting.push_back(shard);
        }
    }
}

/// A full disk is tried again in the next round. Otherwise the replica halts, as after each failure of its disk; after a bug it is closed.
fn told<T>(shard: &Shard, work: impl FnOnce(&Shard) -> Result<T, LogError>) -> Option<T> {
    let mut done = None;
    shard.guard(|shard| match work(shard) {
        Ok(result) => done = Some(result),
        Err(error) if error.is_full() => {}
        Err(error) => {
            shard.shared.events.failed(shard.id(), &error);
            shard.step(Input::Stopped);
        }
    });
    done
}
