//! A reader of a stream for a client: of the queue, where this broker leads, or of a replica.
//!
//! What must stay true: no worker waits for the lock of a shard, nor for that of a replica, which only threads that may block take. Readers
//! of replicas have few of these threads at a time, however many there are: others need them for the disk.

use std::sync::Arc;

use penstock_engine::{
    Counters, EngineError, Filled, LogError, Metric, Progress, QueueId, ReadFrom, ReadRange, ReplicaRead, Sequence,
    Shard, Signal, StreamReader, StreamReplica, Turn,
};

use tokio::sync::Semaphore;

use crate::host::deliveries::Recipient;
use crate::host::refusal::Refusal;
use crate::host::stalls::{Later, when_free};

/// Threads that look into replicas at a time. The runtime has 512 that may block.
const LOOKING_MAX: usize = 64;
static LOOKING: Semaphore = Semaphore::const_new(LOOKING_MAX);

/// See the module.
pub(crate) enum StreamSource {
    Queue(Later<StreamReader>),
    Replica(AtReplica),
}

/// A reader of a replica.
pub(crate) struct AtReplica {
    /// Absent while a thread looks for messages, and after a bug there.
    reader: Option<Box<dyn ReplicaRead>>,
    queue: QueueId,
    range: ReadRange,
    signal: Arc<Signal>,
    counters: Arc<Counters>,
    /// A message that cannot be read, until a thread that may block has reported it.
    corrupt: Option<(Sequence, LogError)>,
}

impl Drop for AtReplica {
    fn drop(&mut self) {
        self.counters.subtract(Metric::Readers, 1);
    }
}

impl AtReplica {
    /// Opens a reader, on a thread that may block.
    ///
    /// # Errors
    /// When the replica cannot be read.
    pub async fn open(
        replica: Arc<dyn StreamReplica>,
        (queue, from, end): (QueueId, ReadFrom, Option<u64>),
        counters: &Arc<Counters>,
    ) -> Result<AtReplica, Refusal> {
        let opened = looking(move || replica.read(queue, from, end)).await;
        let reader = opened.ok_or_else(|| Refusal::bug("opening a reader failed"))??;
        let (range, signal, counters) = (reader.range(), Arc::clone(reader.signal()), Arc::clone(counters));
        counters.add(Metric::Readers, 1);
        Ok(AtReplica { reader: Some(reader), queue, range, signal, counters, corrupt: None })
    }

    async fn fill(&mut self, count_max: u32) -> Result<(Progress, Vec<Filled>), Refusal> {
        let mut reader = self.reader.take().ok_or_else(broken)?;
        let corrupt = self.corrupt.take();
        let filled = looking(move || {
            let mut filled = Vec::new();
            let reported = corrupt.map_or(Ok(()), |(sequence, error)| reader.report_corrupt(sequence, &error));
            let progress = reported.and_then(|()| reader.fill(count_max, &mut filled));
            (reader, progress, filled)
        });
        let (reader, progress, filled) = filled.await.ok_or_else(broken)?;
        self.reader = Some(reader);
        Ok((progress?, filled))
    }
}

/// Runs `look` on a thread that may block, once one of the `LOOKING` places is free. Returns `None` if it panicked. A look that has begun
/// keeps its place until it ends, even if its caller has stopped waiting.
async fn looking<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    // It is never closed.
    let place = LOOKING.acquire().await.ok()?;
    let looking = tokio::task::spawn_blocking(move || {
        let _place = place;
        look()
    });
    looking.await.ok()
}

fn broken() -> Refusal {
    Refusal::bug("reading a replica failed")
}

impl StreamSource {
    /// The stream when the reader was opened.
    pub fn range(&self) -> ReadRange {
        match self {
            StreamSource::Queue(reader) => reader.range(),
            StreamSource::Replica(replica) => replica.range,
        }
    }

    pub fn signal(&self) -> &Arc<Signal> {
        match self {
            StreamSource::Queue(reader) => reader.signal(),
            StreamSource::Replica(replica) => &replica.signal,
        }
    }

    /// Whether a reader that has ended goes on at another broker.
    pub fn goes_on_elsewhere(&self) -> bool {
        match self {
            StreamSource::Queue(reader) => reader.shard().is_deposed(),
            StreamSource::Replica(replica) => replica.reader.as_ref().is_none_or(|reader| reader.goes_on_elsewhere()),
        }
    }

    /// Whether it is active in its group, if that was not returned yet. Readers of replicas have no group.
    ///
    /// # Errors
    /// `NoQueue` once the stream is gone.
    pub async fn turn(&mut self) -> Result<Option<Turn>, EngineError> {
        let StreamSource::Queue(reader) = self else { return Ok(None) };
        let shard = Arc::clone(reader.shard());
        when_free(&shard, || reader.turn()).await
    }

    /// Finds the next messages, at most `count_max`.
    ///
    /// # Errors
    /// When they cannot be found.
    pub async fn fill(&mut self, count_max: u32) -> Result<(Progress, Vec<Filled>), Refusal> {
        match self {
            StreamSource::Queue(reader) => {
                let (mut filled, shard) = (Vec::new(), Arc::clone(reader.shard()));
                let progress = when_free(&shard, || reader.fill(count_max, &mut filled)).await?;
                Ok((progress, filled))
            }
            StreamSource::Replica(replica) => replica.fill(count_max).await,
        }
    }

    /// Stores the offset of its group. It does nothing without one.
    ///
    /// # Errors
    /// As [`StreamReader::store`].
    pub async fn store(&mut self, offset: u64) -> Result<(), EngineError> {
        let StreamSource::Queue(reader) = self else { return Ok(()) };
        when_free(reader.shard(), || reader.store(offset)).await
    }
}

impl Recipient for StreamSource {
    fn queue(&self) -> QueueId {
        match self {
            StreamSource::Queue(reader) => reader.queue(),
            StreamSource::Replica(replica) => replica.queue,
        }
    }

    fn shard(&self) -> Option<Arc<Shard>> {
        match self {
            StreamSource::Queue(reader) => Some(Arc::clone(Later::shard(reader))),
            StreamSource::Replica(_) => None,
        }
    }

    fn sent(&mut self, sizes: &[(Sequence, u32)]) -> Result<(), EngineError> {
        match self {
            StreamSource::Queue(reader) => Recipient::sent(reader, sizes),
            StreamSource::Replica(replica) => {
                let bytes: u64 = sizes.iter().map(|&(_, size)| u64::from(size)).sum();
                replica.counters.add(Metric::Delivered, sizes.len() as u64);
                replica.counters.add(Metric::DeliveredBytes, bytes);
                Ok(())
            }
        }
    }

    fn drop_corrupt(&mut self, sequence: Sequence, error: &LogError) -> Result<bool, EngineError> {
        match self {
            StreamSource::Queue(reader) => Recipient::drop_corrupt(reader, sequence, error),
            // It is not dropped: a replica that does not lead writes no settlement.
            StreamSource::Replica(replica) => {
                if let LogError::Corrupt { path, at, why } = error {
                    let error = LogError::Corrupt { path: path.clone(), at: *at, why: *why };
                    replica.corrupt = Some((sequence, error));
                }
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;

    /// A replica whose lock is held by another.
    #[derive(Debug)]
    struct Held(Arc<Mutex<()>>);

    impl StreamReplica for Held {
        fn read(self: Arc<Self>, _: QueueId, _: ReadFrom, _: Option<u64>) -> Result<Box<dyn ReplicaRead>, EngineError> {
            drop(self.0.lock());
            Err(EngineError::Replica("it is not in sync".to_owned()))
        }
    }

    #[test]
    fn readers_that_wait_for_a_replica_leave_threads_to_others() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (lock, counters) = (Arc::<Mutex<()>>::default(), Arc::<Counters>::default());
        let held = lock.lock().unwrap();
        let opening: Vec<_> = (0..600)
            .map(|_| {
                let (replica, counters) = (Arc::new(Held(Arc::clone(&lock))), Arc::clone(&counters));
                let what = (QueueId(1), ReadFrom::First, None);
                runtime.spawn(async move { AtReplica::open(replica, what, &counters).await.is_err() })
            })
            .collect();
        let (done, is_done) = channel();
        // It comes after those that were spawned before.
        runtime.spawn(async move { tokio::task::spawn_blocking(move || done.send(())).await });

        let came = is_done.recv_timeout(Duration::from_secs(20));
        drop(held);

        let all_ended = opening.into_iter().all(|one| runtime.block_on(one).unwrap());
        assert!(came.is_ok() && all_ended);
    }
}
