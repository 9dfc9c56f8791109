//! Streams as a reader plans with them: which offsets have messages, how many messages there were, and a signal for the next
//! one.
//!
//! Invariant: whoever registers a signal hears of every message after the state that was returned.

use std::sync::Arc;

use penstock_log::Position;
use penstock_queue::{AckSet, QueueId, Sequence};

use crate::error::EngineError;
use crate::identity::Identity;
use crate::queue_entry::QueueEntry;
use crate::runs::joined;
use crate::shard::Shard;
use crate::signal::Signal;
use crate::state::State;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOutlook {
    pub id: Identity,
    /// The id is durable once this is on the disk: see [`Shard::wait_synced`].
    pub known_at: Position,
    /// The first offset; equal to `next` when the stream is empty.
    pub first: u64,
    /// The offset of the next message.
    pub next: u64,
    /// Messages that it ever received.
    pub received_count: u64,
    /// Bytes of the bodies of existing messages.
    pub bytes: u64,
    /// Ascending ranges of the offsets of existing messages; each ends before its second number.
    pub runs: Vec<(u64, u64)>,
}

impl Shard {
    /// The state of a stream of this log, with at most `runs_max` runs: beyond that, the smallest gaps between them are
    /// left out. `None` when there is no such stream.
    ///
    /// # Errors
    /// `Stopped` and `Closed`; `Log` when its id cannot be written.
    pub fn stream_outlook(&self, id: QueueId, runs_max: usize) -> Result<Option<StreamOutlook>, EngineError> {
        let mut guard = self.lock()?;
        if guard.queues.get(&id).is_none_or(|entry| entry.stream.is_none()) {
            return Ok(None);
        }
        guard.check(self.name())?;
        let (identity, known_at) = guard.identify(id)?;
        let Some(entry) = guard.queues.get(&id) else { return Ok(None) };
        let (settled, next) = (entry.machine.settled(), entry.machine.next());
        let outlook = StreamOutlook {
            id: identity,
            known_at,
            first: settled.below().min(next).0,
            next: next.0,
            received_count: entry.received_count(),
            bytes: entry.machine.ready_bytes(),
            runs: runs_of(settled, next),
        };
        drop(guard);
        Ok(Some(StreamOutlook { runs: joined(outlook.runs, runs_max), ..outlook }))
    }

    /// The offset of a stream's next message; the signal is rung once when it is stored, or when the stream ends. `None`
    /// when there is no such stream in this log.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn watch_stream(&self, id: QueueId, signal: &Arc<Signal>) -> Result<Option<u64>, EngineError> {
        let mut guard = self.lock()?;
        let State { queues, closed, .. } = &mut *guard;
        let Some(QueueEntry { machine, stream: Some(stream), .. }) = queues.get_mut(&id).filter(|_| !*closed) else {
            return Ok(None);
        };
        stream.watch(signal);
        Ok(Some(machine.next().0))
    }
}

fn runs_of(settled: &AckSet, next: Sequence) -> Vec<(u64, u64)> {
    let mut runs = Vec::new();
    let mut from = settled.below();
    for gap in settled.ranges() {
        runs.push((from.0, gap.first.0));
        from = gap.last.next();
    }
    runs.push((from.0, next.0));
    runs.retain(|(first, end)| first < end);
    runs
}
