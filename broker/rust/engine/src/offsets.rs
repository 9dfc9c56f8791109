//! Queries about a stream: its start and end, the offset of a time, how far its groups have read.
//!
//! Invariant: records are read without the shard's lock, because their pages may have to come from the disk.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use penstock_log::{LogError, Position, marks};
use penstock_queue::{QueueId, Sequence};

use crate::cursor;
use crate::error::EngineError;
use crate::queue_entry::QueueEntry;
use crate::shard::Shard;
use crate::stream::{GROUPS_MAX, Stream};

/// The longest name of a stream's group.
pub const GROUP_BYTES_MAX: usize = 255;

/// Start and end of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStanding {
    /// The first offset; equal to `next` when the stream is empty.
    pub first: u64,
    /// The offset of the next message.
    pub next: u64,
    pub count: u64,
    pub bytes: u64,
    /// When the first and the last message were stored; 0 when there is none, or it cannot be read.
    pub first_timestamp_ms: u64,
    pub last_timestamp_ms: u64,
    pub reader_count: u64,
}

/// How far a group has read, and its number of readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStanding {
    pub name: String,
    pub offset: Option<u64>,
    pub reader_count: u64,
}

impl Shard {
    /// The state of streams, all 0 for one that does not exist or is no stream. Reads two records of each: it may block
    /// on the disk.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard; `Log` when a record cannot be read; `NotLeading` when its term is over.
    pub fn stream_states(&self, ids: &[QueueId]) -> Result<Vec<StreamStanding>, EngineError> {
        ids.iter().map(|&id| self.in_home_of(id, |home| home.stream_state(id))).collect()
    }

    /// The same without times: nothing is read.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn stream_extents(&self, ids: &[QueueId]) -> Result<Vec<StreamStanding>, EngineError> {
        ids.iter().map(|&id| self.in_home_of(id, |home| Ok(home.stream_extent(id)?.0))).collect()
    }

    fn in_home_of<T>(&self, id: QueueId, look: impl FnOnce(&Shard) -> T) -> T {
        match self.others.home(id) {
            Some(home) => look(&home),
            None => look(self),
        }
    }

    fn stream_state(&self, id: QueueId) -> Result<StreamStanding, EngineError> {
        let (mut standing, last) = self.stream_extent(id)?;
        if self.is_deposed() {
            // Its queues were gone, perhaps, and an offset of 0 would be wrong.
            return Err(EngineError::NotLeading(self.name().to_owned()));
        }
        if let Some(last) = last {
            standing.first_timestamp_ms = self.time_at(id, Sequence(standing.first))?.map_or(0, |(_, time)| time);
            standing.last_timestamp_ms = self.time_at(id, last)?.map_or(0, |(_, time)| time);
        }
        Ok(standing)
    }

    /// Also returns the last existing message.
    fn stream_extent(&self, id: QueueId) -> Result<(StreamStanding, Option<Sequence>), EngineError> {
        let guard = self.lock()?;
        let Some(QueueEntry { machine, stream: Some(stream), .. }) = guard.queues.get(&id) else {
            return Ok((StreamStanding::default(), None));
        };
        let (settled, next) = (machine.settled(), machine.next());
        let standing = StreamStanding {
            first: settled.below().min(next).0,
            next: next.0,
            count: machine.ready_count(),
            bytes: machine.ready_bytes(),
            reader_count: stream.reader_count() as u64,
            ..StreamStanding::default()
        };
        Ok((standing, settled.last_unsettled(next)))
    }

    /// The first offset stored at that time or later; the next one when everything is older. Reads a record for each halving
    /// of the stream: it may block on the disk.
    ///
    /// # Errors
    /// `NoQueue`; `NotStream`; `Log` when a record cannot be read.
    pub fn offset_at(&self, id: QueueId, timestamp_ms: u64) -> Result<u64, EngineError> {
        let extent = {
            let mut guard = self.lock()?;
            let (entry, _) = stream_of(self.entry(&mut guard, id)?)?;
            (entry.settled().below().0, entry.next().0)
        };
        cursor::offset_at(extent, timestamp_ms, |from| self.time_at(id, from))
    }

    /// The first existing message at or after an offset, and when it was stored; `None` when there is none, or it
    /// cannot be read.
    pub(crate) fn time_at(&self, id: QueueId, from: Sequence) -> Result<Option<(Sequence, u64)>, EngineError> {
        let located = {
            let mut guard = self.lock()?;
            let machine = &self.entry(&mut guard, id)?.machine;
            let from = machine.settled().next_unsettled(from);
            if from >= machine.next() {
                return Ok(None);
            }
            guard.log.seek(id, from, 1, 0)
        };
        match located.and_then(|located| located.map_or(Ok(None), |located| cursor::time_of(id, &located).map(Some))) {
            Err(LogError::Corrupt { .. }) => Ok(None),
            found => Ok(found?),
        }
    }

    /// A stream's groups, by name: those with a stored offset or with readers.
    ///
    /// # Errors
    /// `NoQueue`; `NotStream`.
    pub fn stream_groups(&self, id: QueueId) -> Result<Vec<GroupStanding>, EngineError> {
        let mut guard = self.lock()?;
        let (_, stream) = stream_of(self.entry(&mut guard, id)?)?;
        let standing = |(name, group): (&str, &crate::stream::Group)| GroupStanding {
            name: name.to_owned(),
            offset: group.offset,
            reader_count: group.reader_count as u64,
        };
        Ok(stream.groups().map(standing).collect())
    }

    /// Stores that a group has processed everything up to an offset. Returns the position for [`Shard::wait_synced`].
    ///
    /// # Errors
    /// `NoQueue`; `NotStream`; `BeyondEnd`; `GroupName`; `TooMany` groups; `Log` when it cannot be written.
    pub fn store_offset(&self, id: QueueId, group: &str, offset: u64) -> Result<Position, EngineError> {
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        let entry = self.entry(&mut guard, id)?;
        let (stream_name, next) = (entry.name.clone(), entry.machine.next().0);
        let (_, stream) = stream_of(entry)?;
        if offset >= next {
            return Err(EngineError::BeyondEnd { stream: stream_name, offset, next });
        }
        if group.is_empty() || group.len() > GROUP_BYTES_MAX {
            return Err(EngineError::GroupName { bytes: group.len(), bytes_max: GROUP_BYTES_MAX });
        }
        if !stream.has_room_for(group) {
            return Err(EngineError::TooMany { what: "groups of this stream", max: GROUPS_MAX });
        }
        if stream.offset_of(group) == Some(offset) {
            return Ok(guard.log.end());
        }
        guard.log.append_mark(&marks::owner_of_groups(id), group.as_bytes(), &offset.to_le_bytes())?;
        guard.write()?;
        stream_of(self.entry(&mut guard, id)?)?.1.store(group, offset);
        Ok(guard.log.end())
    }

    /// Removes a group's stored offset; returns whether there was one.
    ///
    /// # Errors
    /// `NoQueue`; `NotStream`; `Log` when it cannot be written.
    pub fn delete_group(&self, id: QueueId, group: &str) -> Result<bool, EngineError> {
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        let (_, stream) = stream_of(self.entry(&mut guard, id)?)?;
        if stream.offset_of(group).is_none() {
            return Ok(false);
        }
        guard.log.append_mark(&marks::owner_of_groups(id), group.as_bytes(), &[])?;
        guard.write()?;
        stream_of(self.entry(&mut guard, id)?)?.1.forget(group);
        Ok(true)
    }

    /// Blocks until `position` is on the disk.
    ///
    /// # Errors
    /// As [`Shard::wait_synced`].
    pub fn sync_to(&self, position: Position) -> Result<(), EngineError> {
        self.request_sync();
        block_on(self.wait_synced(position))
    }

    /// The same for some time at most; returns whether `position` is on the disk.
    pub(crate) fn sync_within(&self, position: Position, limit: Duration) -> Result<bool, EngineError> {
        self.request_sync();
        block_for(pin!(self.wait_synced(position)), limit).map_or(Ok(false), |synced| synced.map(|()| true))
    }
}

fn stream_of(entry: &mut QueueEntry) -> Result<(&penstock_queue::Queue, &mut Stream), EngineError> {
    let QueueEntry { name, machine, stream, .. } = entry;
    Ok((machine, stream.as_mut().ok_or_else(|| EngineError::NotStream(name.clone()))?))
}

/// A thread blocked on a future.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Some(value) = block_for(future.as_mut(), Duration::MAX) {
            return value;
        }
    }
}

/// `None` when it takes longer.
fn block_for<T>(mut future: Pin<&mut impl Future<Output = T>>, limit: Duration) -> Option<T> {
    let started = Instant::now();
    let waker = Waker::from(Arc::new(Parked(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return Some(value),
            Poll::Pending => match limit.saturating_sub(started.elapsed()) {
                Duration::ZERO => return None,
                left => std::thread::park_timeout(left),
            },
        }
    }
}
