//! Messages that are copies of messages of another queue, and say so: a log stores a copy once.
//!
//! Invariants: a copy is on the disk before its source is settled, so that one of them is there after any crash; a log that
//! has a copy knows that from the copy's own record, so that the copy that a crash left before its source was settled is
//! not stored again. A log forgets a source with its queue. No lock is held while another is taken.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_log::{Payload, Target, marks};
use penstock_queue::{QueueId, Sequence, SequenceRange, TURN_LANES};

use crate::error::EngineError;
use crate::shard::Shard;
use crate::state::State;

/// Gaps between copied messages that a log remembers of a source, before it is told which messages cannot come again.
const GAPS_MAX: usize = 1024;

impl Shard {
    /// Forgets which messages of a queue, with priorities up to `highest`, have copies in other logs: it is deleted.
    pub(crate) fn forget_sources(&self, queue: QueueId, highest: u8) -> Result<(), EngineError> {
        let Some(vhost) = self.vhost() else { return Ok(()) };
        let lanes = || (0..=u16::from(highest)).chain(TURN_LANES..2 * TURN_LANES);
        for shard in vhost.family().into_iter().filter(|shard| shard.has_sources()) {
            let mut guard = shard.lock()?;
            if guard.check(shard.name()).is_err() {
                continue;
            }
            for source in lanes().map(|lane| queue.lane(lane)) {
                if !guard.sources.contains_key(&source) {
                    continue;
                }
                match guard.log.append_delete(source) {
                    // The definitions decide: the next start deletes what they do not name.
                    Err(error) if error.is_full() => {}
                    noted => noted.map(|_| ())?,
                }
                guard.forget_source(source);
                guard.write()?;
            }
        }
        Ok(())
    }

    /// Where logs of this vhost remember many gaps between the copied messages of a queue, whose log is `home`, tells them
    /// that those below its first message cannot come again. Waits a short time for the disk then; a later call tries again.
    pub(crate) fn pass_source(self: &Arc<Self>, home: &Shard, source: QueueId) -> Result<(), EngineError> {
        let (mut logs, lanes) = (Vec::new(), home.lanes_of(source)?);
        for shard in self.family().into_iter().filter(|shard| shard.has_sources()) {
            let found = shard.lock()?.with_many_gaps(source, &lanes);
            logs.extend(found.into_iter().map(|lane| (Arc::clone(&shard), lane)));
        }
        let (below, end) = {
            let guard = home.lock()?;
            let Some(entry) = guard.queues.get(&source).filter(|_| !logs.is_empty()) else { return Ok(()) };
            let below_in = |(_, lane): &(Arc<Shard>, u16)| entry.machine.settled_in(*lane).below().within();
            (logs.iter().map(below_in).collect::<Vec<_>>(), guard.log.end())
        };
        // A settlement that is lost lets a message come again.
        if !home.syncs_in_time(end) {
            return Ok(());
        }
        for ((shard, lane), below) in logs.into_iter().zip(below) {
            let mut guard = shard.lock()?;
            guard.check(shard.name())?;
            guard.pass_source(source.lane(lane), below)?;
        }
        Ok(())
    }

    /// The lanes of a queue of this log that may have had messages.
    pub(crate) fn lanes_of(&self, queue: QueueId) -> Result<Vec<u16>, EngineError> {
        let guard = self.lock()?;
        let highest = guard.priorities.get(&queue).copied().unwrap_or(0);
        let others = guard.queues.get(&queue).into_iter().flat_map(|entry| entry.machine.lanes());
        Ok((0..=u16::from(highest)).chain(others.filter(|lane| *lane >= TURN_LANES)).collect())
    }

    pub(crate) fn has_sources(&self) -> bool {
        self.source_count.load(Ordering::Relaxed) > 0
    }
}

impl State {
    /// Whether this log has the copy that a message is.
    #[inline]
    pub(crate) fn has_copy(&self, payload: &Payload<'_>) -> bool {
        payload.source().is_some_and(|source| self.has_copy_of(source))
    }

    #[cold]
    fn has_copy_of(&self, source: Target) -> bool {
        self.sources.get(&source.queue).is_some_and(|copied| copied.contains(source.sequence))
    }

    /// Whether this log has a copy of any of these messages.
    pub(crate) fn has_copies_in(&self, source: QueueId, range: SequenceRange) -> bool {
        let Some(copied) = self.sources.get(&source) else { return false };
        copied.next_settled(range.first).is_some_and(|sequence| sequence <= range.last)
    }

    /// Notes that a message is stored.
    #[inline]
    pub(crate) fn note_copy(&mut self, payload: &Payload<'_>) {
        if let Some(source) = payload.source() {
            self.sources.entry(source.queue).or_default().insert(SequenceRange::of(source.sequence));
            self.count_sources();
        }
    }

    pub(crate) fn forget_source(&mut self, source: QueueId) {
        if self.sources.remove(&source).is_some() {
            self.count_sources();
        }
    }

    pub(crate) fn count_sources(&self) {
        self.source_count.store(self.sources.len(), Ordering::Relaxed);
    }

    /// The lanes of a queue with many gaps.
    fn with_many_gaps(&self, source: QueueId, lanes: &[u16]) -> Vec<u16> {
        let has_many = |lane: &u16| {
            let copied = self.sources.get(&source.lane(*lane));
            copied.is_some_and(|copied| copied.ranges().nth(GAPS_MAX).is_some())
        };
        lanes.iter().copied().filter(has_many).collect()
    }

    fn pass_source(&mut self, source: QueueId, below: Sequence) -> Result<(), EngineError> {
        let Some(copied) = self.sources.get_mut(&source).filter(|copied| copied.below() < below) else { return Ok(()) };
        match self.log.append_mark(&marks::owner_of_copied(source), &[], &below.0.to_le_bytes()) {
            // The next call tries again.
            Err(error) if error.is_full() => return Ok(()),
            noted => noted.map(|_| ())?,
        }
        copied.insert(SequenceRange { first: Sequence::FIRST, last: Sequence(below.0.saturating_sub(1)) });
        self.write()
    }
}
