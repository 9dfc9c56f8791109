//! Removes messages from the lower end of a stream: by its limits of age and size, or on request.
//!
//! Invariants: a stream drops its whole part of a sealed segment, never less; an expiry is recorded before it is
//! visible. Records are read without the shard's lock, so a part is measured again when messages were settled meanwhile:
//! by another caller, a purge, or a reader that dropped some.

use penstock_log::{Located, LogError, Outcome, Portion, Segment, Target};
use penstock_queue::{QueueId, Sequence, SequenceRange};

use crate::counters::Metric;
use crate::error::EngineError;
use crate::queue_entry::QueueEntry;
use crate::shard::Shard;
use crate::state::State;
use crate::subscription::rebuild;

/// Messages whose sizes are read per hold of the lock.
const SIZES_AT_ONCE: usize = 4096;

/// How many of a portion's last messages are tried until one can be read, and how many per hold of the lock.
const TIMES_TRIED_MAX: usize = 1024;
const TIMES_AT_ONCE: u64 = 64;

/// The oldest sealed part of a stream that may have to expire.
struct Oldest {
    portion: Portion,
    is_over: bool,
    max_age_ms: u64,
}

/// A part of a stream with the bytes that it loses with it.
struct Measured {
    last: Sequence,
    bytes: u64,
    /// How many of the stream's messages were settled when this was right.
    settled_count: u64,
}

/// The end of an expiry of a part.
enum Expired {
    /// So many messages.
    Count(u64),
    /// Others were settled since the part was measured.
    Changed,
}

impl Shard {
    /// Expires messages beyond the limits of the shard's streams; returns how many. May block on the disk.
    ///
    /// # Errors
    /// `Log` when the disk failed; `Stopped` when a bug poisoned the shard.
    pub fn retain(&self, now_ms: u64) -> Result<u64, EngineError> {
        let due: Vec<QueueId> = {
            let mut guard = self.lock()?;
            if guard.closed || guard.stopped.is_some() {
                return Ok(0);
            }
            let State { queues, streams, .. } = &mut *guard;
            streams.retain(|id| queues.get(id).is_some_and(|entry| entry.stream.is_some()));
            streams.iter().filter(|id| queues.get(id).is_some_and(|entry| is_due(entry, now_ms))).copied().collect()
        };
        let mut expired = 0;
        for id in due {
            while let Some(count) = self.expire_oldest(id, now_ms)? {
                expired += count;
            }
        }
        self.counters().add(Metric::Expired, expired);
        Ok(expired)
    }

    /// Expires a stream's part of the oldest sealed segment, when it is beyond a limit; returns how many messages, `None` when
    /// nothing is to be done.
    fn expire_oldest(&self, id: QueueId, now_ms: u64) -> Result<Option<u64>, EngineError> {
        let Some(Oldest { portion, is_over, max_age_ms }) = self.oldest(id)? else { return Ok(None) };
        if !is_over {
            let too_old_at_ms = self.last_time(id, &portion, now_ms)?.saturating_add(max_age_ms);
            if too_old_at_ms > now_ms {
                if let Some(QueueEntry { stream: Some(stream), .. }) = self.lock()?.queues.get_mut(&id) {
                    stream.too_old_at_ms = too_old_at_ms;
                }
                return Ok(None);
            }
        }
        self.expire(id, &portion)
    }

    /// Expires a stream's parts of whole sealed segments below an offset; returns how many messages. May block on the
    /// disk.
    ///
    /// # Errors
    /// `NoQueue`; `NotStream`; `Log` when the disk failed; `Stopped` when a bug poisoned the shard.
    pub fn trim(&self, id: QueueId, before: u64) -> Result<u64, EngineError> {
        let mut expired = 0;
        while let Some(portion) = self.lowest(id)? {
            if portion.runs.last().is_none_or(|(last, _)| last.last.0 >= before) {
                break;
            }
            let Some(count) = self.expire(id, &portion)? else { break };
            expired += count;
        }
        self.counters().add(Metric::Expired, expired);
        if expired > 0 {
            self.make_room()?;
        }
        Ok(expired)
    }

    /// A stream's part of the first sealed segment with an existing message.
    fn lowest(&self, id: QueueId) -> Result<Option<Portion>, EngineError> {
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        loop {
            let entry = self.entry(&mut guard, id)?;
            if entry.stream.is_none() {
                return Err(EngineError::NotStream(entry.name.clone()));
            }
            let (below, count) = (entry.machine.settled().below(), entry.machine.ready_count());
            if count == 0 {
                return Ok(None);
            }
            match guard.log.portion(id, below) {
                Err(error) if rebuild(&mut guard, &error)? => {}
                portion => return Ok(portion?),
            }
        }
    }

    /// Settles a portion at the lower end of a stream; returns how many messages that were, 0 when another caller was faster,
    /// `None` when nothing more can be settled.
    fn expire(&self, id: QueueId, portion: &Portion) -> Result<Option<u64>, EngineError> {
        let Some((last, _)) = portion.runs.last() else { return Ok(None) };
        loop {
            let Some(settled_count) = self.settled_count_below(id, last.last)? else { return Ok(Some(0)) };
            let measured = Measured { last: last.last, bytes: self.bytes_of(id, portion)?, settled_count };
            match self.settle_measured(id, &measured)? {
                Expired::Changed => {}
                Expired::Count(0) => return Ok(None),
                Expired::Count(count) => return Ok(Some(count)),
            }
        }
    }

    /// How many messages of a stream are settled; `None` when all up to one are, as those of a deleted stream.
    fn settled_count_below(&self, id: QueueId, last: Sequence) -> Result<Option<u64>, EngineError> {
        let guard = self.lock()?;
        let entry = guard.queues.get(&id).filter(|entry| entry.machine.settled().below() <= last);
        Ok(entry.map(settled_count))
    }

    fn settle_measured(&self, id: QueueId, measured: &Measured) -> Result<Expired, EngineError> {
        let &Measured { last, bytes, settled_count: before } = measured;
        let mut guard = self.lock()?;
        if guard.closed || guard.stopped.is_some() {
            return Ok(Expired::Count(0));
        }
        let Some(entry) = guard.queues.get_mut(&id) else { return Ok(Expired::Count(0)) };
        if settled_count(entry) != before {
            return Ok(Expired::Changed);
        }
        // From the lower end on, so that messages without a segment go too and block nothing.
        let first = entry.machine.settled().below();
        let settled = entry.machine.settle_fresh(SequenceRange { first, last }, bytes);
        guard.wake(id, 0);
        guard.log_settled(id, Outcome::Expire, &settled)?;
        Ok(Expired::Count(settled.count))
    }

    fn oldest(&self, id: QueueId) -> Result<Option<Oldest>, EngineError> {
        let mut guard = self.lock()?;
        let state = &mut *guard;
        loop {
            let Some(QueueEntry { machine, stream: Some(stream), .. }) = state.queues.get(&id) else { return Ok(None) };
            let settings = stream.settings;
            let is_over = settings.max_bytes > 0 && machine.ready_bytes() > settings.max_bytes;
            if machine.ready_count() == 0 || !is_over && settings.max_age_ms == 0 {
                return Ok(None);
            }
            match state.log.portion(id, machine.settled().below()) {
                Err(error) if rebuild(state, &error)? => {}
                portion => {
                    let max_age_ms = settings.max_age_ms;
                    return Ok(portion?.map(|portion| Oldest { portion, is_over, max_age_ms }));
                }
            }
        }
    }

    /// Bytes that a stream loses with a portion: by its directory, without messages that a purge settled before. A
    /// message dropped as unreadable was not subtracted then; it is now.
    fn bytes_of(&self, id: QueueId, portion: &Portion) -> Result<u64, EngineError> {
        let mut bytes = 0;
        for &(range, of_run) in &portion.runs {
            bytes += of_run.saturating_sub(self.settled_bytes(id, range, &portion.segment)?);
        }
        Ok(bytes)
    }

    /// Body bytes of the settled and readable messages in a range.
    fn settled_bytes(&self, id: QueueId, range: SequenceRange, segment: &Segment) -> Result<u64, EngineError> {
        let (mut bytes, mut from) = (0, range.first);
        loop {
            let mut guard = self.lock()?;
            let Some(entry) = guard.queues.get(&id) else { return Ok(bytes) };
            let settled = entry.machine.settled();
            let Some(gone) = settled.next_settled(from).filter(|gone| *gone <= range.last) else { return Ok(bytes) };
            let end = settled.next_unsettled(gone).min(range.last.next());
            let count = (end.0 - gone.0).min(SIZES_AT_ONCE as u64) as usize;
            let located = match guard.log.seek(id, gone, count, segment.number()) {
                // A directory that changed on the disk is rebuilt from its segment.
                Err(error) if rebuild(&mut guard, &error)? => continue,
                located => located?,
            };
            drop(guard);
            let Some(located) = located.filter(|located| located.first == gone) else { return Ok(bytes) };
            from = Sequence(gone.0 + located.offsets.len() as u64);
            let is_there = match located.offsets.as_slice() {
                [first, .., last] | [first @ last] => bring_in(&located.segment, *first, *last)?,
                [] => true,
            };
            for (number, &offset) in (gone.0..).zip(&located.offsets) {
                // As a reader would read it: messages that it would drop are not counted. Bytes that were not loaded
                // are not touched.
                if is_there || bring_in(&located.segment, offset, offset)? {
                    let target = Target { queue: id, sequence: Sequence(number) };
                    let body = located.segment.message_for(offset, target).map(|message| message.body.len() as u64);
                    bytes += body.or_else(|error| if_corrupt(error, 0))?;
                }
            }
        }
    }

    /// When the last readable message of a portion was stored: an unreadable one says nothing of those before it. 0
    /// when none of the portion is readable. When too many of the last are not, when one after them was stored, which
    /// is later; `now_ms` when none of those can be read either.
    fn last_time(&self, id: QueueId, portion: &Portion, now_ms: u64) -> Result<u64, EngineError> {
        let target = |number: u64| Target { queue: id, sequence: Sequence(number) };
        let last = portion.runs.last().map_or(0, |(range, _)| range.last.0);
        if let Some(time) = time_of(&portion.segment, portion.last_offset, target(last))? {
            return Ok(time);
        }
        let mut tried = 0;
        for (range, _) in portion.runs.iter().rev() {
            let mut end = range.last.0.saturating_add(1);
            while end > range.first.0 {
                let first = end.saturating_sub(TIMES_AT_ONCE).max(range.first.0);
                let count = (end - first) as usize;
                let located = self.seek_whole(id, Sequence(first), count, portion.segment.number())?;
                let Some(located) = located.filter(|_| tried < TIMES_TRIED_MAX) else {
                    return Ok(self.time_behind(id, last)?.unwrap_or(now_ms));
                };
                let numbers: Vec<u64> = (first..end).collect();
                for (&number, &offset) in numbers.iter().zip(&located.offsets).rev() {
                    if let Some(time) = time_of(&located.segment, offset, target(number))? {
                        return Ok(time);
                    }
                }
                tried += count;
                end = first;
            }
        }
        Ok(0)
    }

    /// When one of the first readable messages after a sequence was stored. `None` for a deleted stream.
    fn time_behind(&self, id: QueueId, number: u64) -> Result<Option<u64>, EngineError> {
        for distance in (0..u64::BITS).map(|bit| 1 << bit) {
            match self.time_at(id, Sequence(number.saturating_add(distance))) {
                Ok(None) => {}
                Err(EngineError::NoQueue(..)) => return Ok(None),
                found => return Ok(found?.map(|(_, time)| time)),
            }
        }
        Ok(None)
    }

    /// The places of so many adjacent messages in one segment; `None` when they are not adjacent.
    fn seek_whole(
        &self,
        id: QueueId,
        first: Sequence,
        count: usize,
        hint: u64,
    ) -> Result<Option<Located>, EngineError> {
        let mut guard = self.lock()?;
        loop {
            match guard.log.seek(id, first, count, hint) {
                // A directory that changed on the disk is rebuilt from its segment.
                Err(error) if rebuild(&mut guard, &error)? => {}
                located => {
                    let is_whole = |located: &Located| located.first == first && located.offsets.len() == count;
                    return Ok(located?.filter(is_whole));
                }
            }
        }
    }
}

/// How many messages of a stream are settled: it grows with each that is.
fn settled_count(entry: &QueueEntry) -> u64 {
    entry.machine.next().0.saturating_sub(entry.machine.free_count())
}

fn is_due(entry: &QueueEntry, now_ms: u64) -> bool {
    let Some(stream) = &entry.stream else { return false };
    let settings = stream.settings;
    let is_over = settings.max_bytes > 0 && entry.machine.ready_bytes() > settings.max_bytes;
    is_over || settings.max_age_ms > 0 && stream.too_old_at_ms <= now_ms
}

/// When a message was stored; `None` when it cannot be read.
fn time_of(segment: &Segment, offset: u32, target: Target) -> Result<Option<u64>, EngineError> {
    let read = segment.populate(offset, offset).and_then(|()| segment.message_for(offset, target));
    read.map(|message| Some(message.stored_at_ms)).or_else(|error| if_corrupt(error, None))
}

/// Whether the records from one offset to another can be touched: unreadable sectors under a map would end the process.
fn bring_in(segment: &Segment, from: u32, to: u32) -> Result<bool, EngineError> {
    segment.populate(from, to).map(|()| true).or_else(|error| if_corrupt(error, false))
}

fn if_corrupt<T>(error: LogError, instead: T) -> Result<T, EngineError> {
    if matches!(error, LogError::Corrupt { .. }) { Ok(instead) } else { Err(error.into()) }
}

#[cfg(test)]
mod tests;
