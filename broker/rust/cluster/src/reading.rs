//! Reading streams at a replica, whether it leads or not: readers find what is committed in its log, without queues.
//!
//! Invariants: nothing above the high watermark is found, because the log hides it, so nothing that is found is cut later. A message that
//! the log does not have is passed over only if it is settled at the high watermark. A reader goes on by the offset, so it may go on in a
//! log that was replaced by a copy. Nothing is written: a corrupt record halts the replica if there is another one, and ends the reader.
//!
//! Messages that retention has removed at the leader are left out once the replica has folded that. A reader that was opened before may
//! still find them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_engine::{
    Cursor, EngineError, Filled, Found, Progress, ReadFrom, ReadRange, ReplicaRead, Signal, StreamReplica, first_of,
    offset_at, start_of, time_of,
};
use penstock_log::{Extent, ExtentTicket, Log, LogError, Position, RAISE, StateTicket};
use penstock_queue::{AckSet, QueueId, Sequence, SequenceRange};
use penstock_replica::Role;

use crate::readers::Seat;
use crate::shard::Shard;

#[cfg(test)]
mod tests;

/// Messages that one look at the log counts.
const COUNTED_MAX: usize = 1 << 16;
const CLOSED: &str = "it is closed, or a copy of the log takes its place";

/// A reader; see the module.
#[derive(Debug)]
pub(crate) struct Reader {
    shard: Arc<Shard>,
    seat: Arc<Seat>,
    cursor: Cursor,
    extent: Extent,
    /// Whether it has looked if a restored log has skipped the sequences up to its end.
    knows_skipped: bool,
    range: ReadRange,
}

/// The last thing that a look at the log found, with what is needed to go on.
enum Look {
    Found(Found),
    /// The stream is to be looked at again at a later fold.
    Folded(ExtentTicket, Position),
    /// The sequences up to its end are perhaps skipped.
    Skipped(StateTicket),
    /// Messages are absent that are perhaps settled.
    Absent {
        first: Sequence,
        end: Sequence,
        ticket: StateTicket,
    },
    /// A directory was rebuilt.
    Again,
}

impl Shard {
    /// Whether streams may be read here: the replica is in sync as far as it knows, has heard its leader lately, and its log is whole.
    #[must_use]
    pub fn may_be_read(&self) -> bool {
        let is_in_sync = {
            let guard = self.lock();
            guard.as_ref().is_some_and(|place| {
                let replicator = place.replicator();
                let in_sync = replicator.record().map(|record| &record.in_sync);
                !matches!(replicator.role(), Role::Halted(_))
                    && in_sync.is_some_and(|in_sync| in_sync.contains(&replicator.id()))
            })
        };
        is_in_sync && self.readers.may_read(self.working.log(), self.shared.now().millis)
    }

    /// Ends the readers of a stream that was deleted.
    pub fn end_readers(&self, queue: QueueId, reason: &str) {
        self.readers.end_of(queue, reason);
    }

    /// Notes whether it hears its leader.
    pub(crate) fn look_after_readers(&self) {
        let is_in_touch = {
            let guard = self.lock();
            guard.as_ref().is_some_and(|place| match place.replicator().role() {
                Role::Leader { delivers, .. } => delivers,
                _ => place.replicator().verified().is_some(),
            })
        };
        self.readers.look(is_in_touch, self.shared.now().millis);
    }

    /// Acts on the log up to the high watermark.
    fn in_log<T>(&self, act: impl FnOnce(&mut Log) -> T) -> Result<T, EngineError> {
        self.with_log(act).ok_or_else(|| EngineError::Replica(CLOSED.to_owned()))
    }

    /// The extent of a stream at the last fold, the sequence of the next message at the high watermark, and which sequences below it are
    /// settled or have no message.
    fn extent_of(&self, queue: QueueId) -> Result<(Extent, AckSet, Sequence), EngineError> {
        let extent = self.in_log(|log| log.begin_extent(queue))?.perform();
        let (mut passed, mut next) = (extent.settled.clone(), extent.next);
        loop {
            let located = self.in_log(|log| log.seek(queue, next, COUNTED_MAX, u64::MAX))??;
            let Some(located) = located else { return Ok((extent, passed, next)) };
            let gap = SequenceRange::new(next, Sequence(located.first.0.saturating_sub(1)));
            gap.into_iter().for_each(|gap| passed.insert(gap));
            next = Sequence(located.first.0 + located.offsets.len() as u64);
        }
    }

    /// Where a reader begins, and between which offsets.
    fn range_of(&self, queue: QueueId, from: ReadFrom) -> Result<(Extent, ReadRange), EngineError> {
        let (extent, passed, next) = self.extent_of(queue)?;
        let first = first_of(&passed, next);
        let at_time = match from {
            ReadFrom::Timestamp(timestamp_ms) => {
                Some(offset_at((first.0, next.0), timestamp_ms, |from| self.time_at(queue, &extent, from))?)
            }
            _ => None,
        };
        let begin = start_of(from, &passed, next, at_time).max(first);
        Ok((extent, ReadRange { first: first.0, begin: begin.0, next: next.0 }))
    }

    fn time_at(&self, queue: QueueId, extent: &Extent, from: Sequence) -> Result<Option<(Sequence, u64)>, EngineError> {
        let from = extent.settled.next_unsettled(from);
        let Some(located) = self.in_log(|log| log.seek(queue, from, 1, 0))?? else { return Ok(None) };
        match time_of(queue, &located) {
            Err(LogError::Corrupt { .. }) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    fn open_reader(self: Arc<Self>, queue: QueueId, from: ReadFrom, end: Option<u64>) -> Result<Reader, EngineError> {
        if !self.may_be_read() {
            return Err(EngineError::Replica("it is not in sync, or has not heard its leader for a while".to_owned()));
        }
        let log = self.working.log();
        let (extent, range) = self.range_of(queue, from).map_err(|error| self.failed(log, error))?;
        let seat = self.readers.enter(queue).map_err(EngineError::Replica)?;
        let cursor = Cursor::new(queue, Sequence(range.begin), end.map(Sequence));
        Ok(Reader { shard: self, seat, cursor, extent, knows_skipped: false, range })
    }

    /// The error of a reader that the log fails. Its client goes on at another broker, whatever it is.
    fn failed(&self, log: u64, error: EngineError) -> EngineError {
        match error {
            EngineError::Log(error) => {
                self.take_corrupt(log, &error);
                EngineError::Replica(error.to_string())
            }
            error => error,
        }
    }
}

impl StreamReplica for Shard {
    fn read(
        self: Arc<Self>,
        queue: QueueId,
        from: ReadFrom,
        end: Option<u64>,
    ) -> Result<Box<dyn ReplicaRead>, EngineError> {
        Ok(Box::new(self.open_reader(queue, from, end)?))
    }
}

impl ReplicaRead for Reader {
    fn queue(&self) -> QueueId {
        self.cursor.queue
    }

    fn range(&self) -> ReadRange {
        self.range
    }

    fn signal(&self) -> &Arc<Signal> {
        &self.seat.signal
    }

    fn goes_on_elsewhere(&self) -> bool {
        self.seat.goes_on_elsewhere.load(Ordering::Acquire)
    }

    fn fill(&mut self, count_max: u32, filled: &mut Vec<Filled>) -> Result<Progress, EngineError> {
        loop {
            let log = self.shard.working.log();
            let looked = self.look(count_max).map_err(|error| self.shard.failed(log, error))?;
            let Some(look) = looked else { return Ok(Progress::Waiting) };
            match look {
                Look::Found(Found::Messages(messages)) => {
                    filled.push(messages);
                    return Ok(Progress::Found);
                }
                Look::Found(Found::Ended) => return Ok(Progress::Ended),
                Look::Found(Found::Nothing | Found::Absent { .. }) => return Ok(Progress::Waiting),
                Look::Folded(ticket, folded) => self.extent = Extent { position: folded, ..ticket.perform() },
                Look::Skipped(ticket) => {
                    let state = ticket.perform().map_err(|error| self.shard.failed(log, error.into()))?;
                    self.extent = Extent::of(&state, self.cursor.queue);
                    self.knows_skipped = true;
                }
                Look::Absent { first, end, ticket } => {
                    if !self.pass_settled(log, (first, end), ticket)? {
                        return Ok(Progress::Waiting);
                    }
                }
                Look::Again => {}
            }
        }
    }

    fn report_corrupt(&mut self, sequence: Sequence, error: &LogError) -> Result<(), EngineError> {
        let log = self.shard.working.log();
        let LogError::Corrupt { path, .. } = error else { return Ok(()) };
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        self.cursor.next = self.cursor.next.min(sequence);
        // Checking a directory reads all of it, which is worth it before the replica halts.
        let rebuilt = self.shard.in_log(|log| log.rebuild_directory(&file))?;
        if rebuilt.map_err(|error| self.shard.failed(log, error.into()))? {
            return Ok(());
        }
        self.shard.take_corrupt(log, error);
        Err(EngineError::Replica(error.to_string()))
    }
}

impl Reader {
    /// A look at the log, under the replica's lock. `None` while a copy takes its place.
    fn look(&mut self, count_max: u32) -> Result<Option<Look>, EngineError> {
        let shard = Arc::clone(&self.shard);
        let mut guard = shard.lock();
        let Some(place) = guard.as_mut() else {
            shard.readers.wait(&self.seat);
            return Ok(None);
        };
        let looked = place.act(|_, log| {
            let looked = self.look_in(log, count_max);
            let passed = log.take_passed();
            Some((looked, passed))
        });
        let Some((looked, passed)) = looked else { return Err(EngineError::Replica(CLOSED.to_owned())) };
        if matches!(looked, Ok(Look::Found(Found::Nothing | Found::Absent { .. }))) {
            shard.readers.wait(&self.seat);
        }
        drop(guard);
        // Releasing pages takes time.
        drop(passed);
        Ok(Some(looked?))
    }

    fn look_in(&mut self, log: &mut Log, count_max: u32) -> Result<Look, LogError> {
        // Where the stream ends here is where the log finds no more.
        let extent = (&self.extent.settled, Sequence(u64::MAX));
        let found = match self.cursor.find(log, extent, count_max) {
            Err(LogError::Corrupt { path, at, why }) => {
                let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                let is_rebuilt = log.rebuild_directory(&file)?;
                return if is_rebuilt { Ok(Look::Again) } else { Err(LogError::Corrupt { path, at, why }) };
            }
            found => found?,
        };
        Ok(match found {
            Found::Absent { first, end, is_followed: true } => {
                Look::Absent { first, end, ticket: log.begin_state_at_bound() }
            }
            // Only a raise skips so many, and it is the only one that no message follows.
            Found::Absent { first, .. }
                if !self.knows_skipped && self.cursor.end.is_some_and(|end| end.0 >= first.0.saturating_add(RAISE)) =>
            {
                Look::Skipped(log.begin_state_at_bound())
            }
            // Its last messages may have been removed, so that it has reached its end.
            Found::Absent { .. } if self.cursor.end.is_some() && log.folded() > self.extent.position => {
                Look::Folded(log.begin_extent(self.cursor.queue), log.folded())
            }
            found => Look::Found(found),
        })
    }

    /// Takes note of what is settled at the high watermark, if that are the messages of a gap. Returns false if the stream was deleted there,
    /// which ends this reader alone.
    fn pass_settled(
        &mut self,
        log: u64,
        (first, end): (Sequence, Sequence),
        ticket: StateTicket,
    ) -> Result<bool, EngineError> {
        let state = ticket.perform().map_err(|error| self.shard.failed(log, error.into()))?;
        if !state.queues.contains_key(&self.cursor.queue) && log == self.shard.working.log() {
            // It had messages, so its deletion is in the log. The metadata may bring the deletion later.
            self.seat.end("the stream was deleted", false);
            return Ok(false);
        }
        let extent = Extent::of(&state, self.cursor.queue);
        if extent.settled.next_unsettled(first) < end && log == self.shard.working.log() {
            let (from, queue) = (extent.settled.next_unsettled(first).0, self.cursor.queue.0);
            let text = format!("its log lacks message {from} of queue {queue}, which is not settled");
            self.shard.shared.events.noticed(&format!("{}: {text}", self.shard.directory.display()));
            self.shard.readers.refuse(log, &text);
            return Err(EngineError::Replica(text));
        }
        self.extent = extent;
        Ok(true)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shard.readers.leave(&self.seat);
    }
}
