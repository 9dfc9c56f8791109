//! A reader of a stream: a cursor that changes nothing, with its next position and a waker for new messages.
//!
//! Finding messages happens under the shard's lock and returns places in segments, as for consumers; the bytes are read
//! after it. A stream can have any number of readers, each anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_log::{LogError, Outcome};
use penstock_queue::{QueueId, Sequence, SequenceRange};

use crate::counters::Metric;
use crate::cursor::{Cursor, Found, ReadFrom, first_of, start_of};
use crate::error::EngineError;
use crate::queue_entry::QueueEntry;
use crate::shard::Shard;
use crate::signal::Signal;
use crate::state::State;
use crate::stream::ReaderId;
use crate::subscription::{Filled, rebuild};

/// Settings of a reader.
#[derive(Clone, Copy, Debug)]
pub struct ReadSettings<'a> {
    pub from: ReadFrom,
    /// It ends before this offset.
    pub end: Option<u64>,
    /// Its stored offset, if any, counts instead of `from`.
    pub group: Option<&'a str>,
    /// Waits until it is the first of its group's readers with this setting. A reader of the group without it ends the
    /// others.
    pub single_active: bool,
}

/// Extent of a stream when a reader was opened, and the reader's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRange {
    pub first: u64,
    pub begin: u64,
    pub next: u64,
}

/// Whether a reader is the active one of its group, and where it continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub active: bool,
    pub begin: u64,
}

/// Result of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Found,
    /// Nothing yet: the waker will fire.
    Waiting,
    /// The reader has reached its end.
    Ended,
}

/// A reader's place among those of the stream and of its group. It can be released without the reader, whose client may
/// have stopped reading: the next reader becomes active at once.
pub struct ReaderPlace {
    shard: Arc<Shard>,
    queue: QueueId,
    id: ReaderId,
    group: Option<String>,
    open: AtomicBool,
}

impl ReaderPlace {
    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Releases the place; idempotent.
    pub fn leave(&self) {
        if !self.open.swap(false, Ordering::AcqRel) {
            return;
        }
        self.shard.counters().subtract(Metric::Readers, 1);
        let Ok(mut guard) = self.shard.lock() else { return };
        let State { queues, wakes, .. } = &mut *guard;
        if let Some(QueueEntry { stream: Some(stream), .. }) = queues.get_mut(&self.queue) {
            stream.leave(self.id, self.group.as_deref(), wakes);
        }
    }
}

/// See the module.
pub struct StreamReader {
    shard: Arc<Shard>,
    id: ReaderId,
    place: Arc<ReaderPlace>,
    signal: Arc<Signal>,
    group: Option<String>,
    range: ReadRange,
    cursor: Cursor,
    /// Whether it has to wait for its turn, and the last answer about it.
    single_active: bool,
    told_active: Option<bool>,
}

impl Shard {
    /// Whether a queue is a stream.
    ///
    /// # Errors
    /// `NoQueue`; `Stopped` when a bug poisoned the shard.
    pub fn is_stream(&self, queue: QueueId) -> Result<bool, EngineError> {
        Ok(self.entry(&mut *self.lock()?, queue)?.stream.is_some())
    }

    /// Adds a reader to a stream. Starting at a time reads a few records: it may block on the disk.
    ///
    /// # Errors
    /// `NoQueue`; `NotStream`; `TooMany` groups; `Log` when a record cannot be read.
    pub fn read(self: &Arc<Self>, queue: QueueId, settings: ReadSettings<'_>) -> Result<StreamReader, EngineError> {
        self.read_with(queue, settings, Arc::default())
    }

    /// The same with a signal of the caller, such as one of a ready list.
    ///
    /// # Errors
    /// As [`Shard::read`].
    pub fn read_with(
        self: &Arc<Self>,
        queue: QueueId,
        settings: ReadSettings<'_>,
        signal: Arc<Signal>,
    ) -> Result<StreamReader, EngineError> {
        let at_time = match settings.from {
            ReadFrom::Timestamp(timestamp_ms) => Some(self.offset_at(queue, timestamp_ms)?),
            _ => None,
        };
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        let State { queues, gone, wakes, .. } = &mut *guard;
        let entry =
            queues.get_mut(&queue).ok_or_else(|| EngineError::NoQueue(queue.0, gone.absent(queue, self.name())))?;
        let (machine, name) = (&entry.machine, &entry.name);
        let stream = entry.stream.as_mut().ok_or_else(|| EngineError::NotStream(name.clone()))?;
        if settings.group.is_some_and(|group| !stream.has_room_for(group)) {
            return Err(EngineError::TooMany { what: "groups of this stream", max: crate::stream::GROUPS_MAX });
        }
        let (settled, next) = (machine.settled(), machine.next());
        let first = first_of(settled, next);
        let wanted = start_of(settings.from, settled, next, at_time);
        let stored = settings.group.and_then(|group| stream.offset_of(group));
        let begin = stored.map_or(wanted, |offset| Sequence(offset).next()).max(first);
        let id = stream.enter(&signal, settings.group, settings.single_active, wakes);
        self.counters().add(Metric::Readers, 1);
        let (shard, group) = (Arc::clone(self), settings.group.map(str::to_owned));
        let place = ReaderPlace { shard, queue, id, group: group.clone(), open: AtomicBool::new(true) };
        Ok(StreamReader {
            shard: Arc::clone(self),
            id,
            place: Arc::new(place),
            signal,
            group,
            range: ReadRange { first: first.0, begin: begin.0, next: next.0 },
            cursor: Cursor::new(queue, begin, settings.end.map(Sequence)),
            single_active: settings.single_active && settings.group.is_some(),
            told_active: None,
        })
    }
}

impl StreamReader {
    /// The shard whose lock it takes.
    #[must_use]
    pub fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    #[must_use]
    pub fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    #[must_use]
    pub fn place(&self) -> &Arc<ReaderPlace> {
        &self.place
    }

    #[must_use]
    pub fn queue(&self) -> QueueId {
        self.cursor.queue
    }

    /// The state when it was opened.
    #[must_use]
    pub fn range(&self) -> ReadRange {
        self.range
    }

    /// The first offset now.
    ///
    /// # Errors
    /// `NoQueue` once the stream is gone.
    pub fn first(&self) -> Result<u64, EngineError> {
        let mut guard = self.shard.lock()?;
        let machine = &self.shard.entry(&mut guard, self.cursor.queue)?.machine;
        Ok(first_of(machine.settled(), machine.next()).0)
    }

    /// Ends before an offset, or at its earlier end.
    pub fn end_at(&mut self, offset: u64) {
        self.cursor.end = Some(self.cursor.end.map_or(Sequence(offset), |end| end.min(Sequence(offset))));
    }

    /// Whether it is active in its group, if that was not returned yet.
    ///
    /// # Errors
    /// `NoQueue` once the stream is gone.
    pub fn turn(&mut self) -> Result<Option<Turn>, EngineError> {
        let Some(group) = self.group.as_deref().filter(|_| self.single_active && self.told_active != Some(true)) else {
            return Ok(None);
        };
        let mut guard = self.shard.lock()?;
        let QueueEntry { machine, stream: Some(stream), .. } = self.shard.entry(&mut guard, self.cursor.queue)? else {
            return Ok(None);
        };
        let active = stream.is_active(self.id, group);
        if self.told_active == Some(active) {
            return Ok(None);
        }
        if active && let Some(offset) = stream.offset_of(group) {
            self.cursor.next = Sequence(offset).next().max(machine.settled().below());
        }
        self.told_active = Some(active);
        Ok(Some(Turn { active, begin: self.cursor.next.0 }))
    }

    /// Finds the next messages, at most `count_max`.
    ///
    /// # Errors
    /// `NoQueue` once the stream is gone; `Log` when a message's record cannot be found.
    pub fn fill(&mut self, count_max: u32, filled: &mut Vec<Filled>) -> Result<Progress, EngineError> {
        if self.single_active && self.told_active != Some(true) || !self.place.is_open() {
            return Ok(Progress::Waiting);
        }
        let shard = Arc::clone(&self.shard);
        let mut guard = shard.lock()?;
        let found = self.find(&shard, &mut guard, count_max, filled);
        let passed = guard.log.take_passed();
        // Releasing pages takes time.
        drop(guard);
        drop(passed);
        found
    }

    fn find(
        &mut self,
        shard: &Shard,
        state: &mut State,
        count_max: u32,
        filled: &mut Vec<Filled>,
    ) -> Result<Progress, EngineError> {
        let is_paused = state.is_paused();
        loop {
            shard.entry(state, self.cursor.queue)?;
            let State { queues, log, .. } = &mut *state;
            let Some(QueueEntry { machine, .. }) = queues.get(&self.cursor.queue) else { return Ok(Progress::Waiting) };
            let extent = (machine.settled(), machine.next());
            if is_paused && !self.cursor.is_ended(extent) {
                self.wait(shard, state)?;
                return Ok(Progress::Waiting);
            }
            let found = match self.cursor.find(log, extent, count_max) {
                // A directory that changed on the disk is rebuilt from its segment.
                Err(error) if rebuild(state, &error)? => continue,
                found => found?,
            };
            let (first, end) = match found {
                Found::Ended => return Ok(Progress::Ended),
                Found::Messages(messages) => {
                    shard.entry(state, self.cursor.queue)?.delivered_count += messages.picked.len() as u64;
                    filled.push(messages);
                    return Ok(Progress::Found);
                }
                Found::Nothing => {
                    self.wait(shard, state)?;
                    return Ok(Progress::Waiting);
                }
                Found::Absent { first, end, .. } => (first, end),
            };
            if state.is_uncommitted(self.cursor.queue, first) {
                state.wait_for_commit(self.cursor.queue);
                self.wait(shard, state)?;
                return Ok(Progress::Waiting);
            }
            self.drop_lost(state, first, end)?;
        }
    }

    /// Has the next message wake it.
    fn wait(&self, shard: &Shard, state: &mut State) -> Result<(), EngineError> {
        let entry = shard.entry(state, self.cursor.queue)?;
        entry.stream.iter_mut().for_each(|stream| stream.wait(self.id));
        Ok(())
    }

    /// Drops messages of an earlier process that no segment holds.
    fn drop_lost(&self, state: &mut State, first: Sequence, end: Sequence) -> Result<(), EngineError> {
        let recovered_below = self.shard.entry(state, self.cursor.queue)?.recovered_below;
        let range = SequenceRange::new(first, Sequence(end.min(recovered_below).0.saturating_sub(1)));
        let Some(range) = range.filter(|_| state.stopped.is_none()) else {
            return Err(self.shard.missing(self.cursor.queue, first));
        };
        self.shard.keep_replicated(state, &self.shard.missing(self.cursor.queue, first))?;
        let count = self.drop_range(state, range)?;
        self.shard.tell_lost(state, self.cursor.queue, count);
        Ok(())
    }

    /// Drops a message with an unreadable record from the stream, so that it is never delivered, unless only the
    /// directory entry was wrong. The reader goes back to its place: messages found after it are found again.
    ///
    /// # Errors
    /// `NoQueue` once the stream is gone; `Log` when the settlement cannot be written.
    pub fn drop_corrupt(&mut self, sequence: Sequence, error: &LogError) -> Result<(), EngineError> {
        let LogError::Corrupt { path, at, why } = error else { return Ok(()) };
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let shard = Arc::clone(&self.shard);
        let mut guard = shard.lock()?;
        let state = &mut *guard;
        self.cursor.next = self.cursor.next.min(sequence);
        // Checking a directory reads all of it: once per file is enough.
        if !state.corruptions.has(&file) && state.log.rebuild_directory(&file)? {
            return Ok(());
        }
        shard.keep_corrupt(state, (&file, *at), error)?;
        if self.drop_range(state, SequenceRange { first: sequence, last: sequence })? > 0 {
            state.log.quarantine(&file, *at);
            let is_first = state.corruptions.note(&file, *at, &why.to_string(), &[self.cursor.queue]);
            self.shard.tell_corruption(state, &file, 1, is_first);
        }
        Ok(())
    }

    /// Returns how many messages that were; another reader may have dropped them before.
    fn drop_range(&self, state: &mut State, range: SequenceRange) -> Result<u64, EngineError> {
        let dropped = self.shard.entry(state, self.cursor.queue)?.machine.settle_fresh(range, 0);
        state.log_settled(self.cursor.queue, Outcome::Drop, &dropped)?;
        Ok(dropped.count)
    }

    /// Counts what was sent.
    pub fn sent(&self, sizes: &[(Sequence, u32)]) {
        let bytes: u64 = sizes.iter().map(|&(_, size)| u64::from(size)).sum();
        self.shard.counters().add(Metric::Delivered, sizes.len() as u64);
        self.shard.counters().add(Metric::DeliveredBytes, bytes);
    }

    /// Whether another reader of its group may have begun.
    fn is_over(&self) -> bool {
        self.signal.cancelled().is_some() || !self.place.is_open()
    }

    /// Stores that its group has processed everything up to an offset. Does nothing without a group, or once the reader
    /// has ended: another reader of the group begins after the stored offset. It does not wait for the disk.
    ///
    /// # Errors
    /// As [`Shard::store_offset`].
    pub fn store(&self, offset: u64) -> Result<(), EngineError> {
        let Some(group) = self.group.as_deref().filter(|_| !self.is_over()) else { return Ok(()) };
        self.shard.store_offset(self.cursor.queue, group, offset).map(|_| ())
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.place.leave();
    }
}
