//! Queues that are full drop their oldest messages.
//!
//! A queue is shortened by the publisher that fills it, before its messages are confirmed, and by the thread of expiries where
//! messages come back or a limit changes.
//!
//! Invariants: a drop is recorded before it is visible, and never goes below the limit of that moment. Records are read without
//! the shard's lock, a bounded number at a time. A queue without a limit costs one branch per message. Messages of a queue with
//! a dead-letter exchange are put aside for it instead, and do not count any more: only once the queues and routes of the vhost
//! are known.

use std::collections::BTreeMap;

use penstock_log::Outcome;
use penstock_queue::{QueueId, Sequence, SequenceRange, Standing, TURN_LANES};
use penstock_wire::amqp::deaths::Reason;

use crate::clock::clock_ms;
use crate::counters::Metric;
use crate::dead_lettering::RUNS_MAX;
use crate::error::EngineError;
use crate::expiry::{AT_ONCE, read};
use crate::length::{EAGER_MAX, HeadLimit, LengthLimit, Overflow};
use crate::queue_entry::QueueEntry;
use crate::shard::Shard;
use crate::state::State;

/// Messages that a publisher drops at most after a hold of the lock. The rest goes with the thread of expiries.
const BY_PUBLISHER_MAX: u64 = 8_192;

/// The same of one turn of that thread, which serves other queues too.
const BY_TURN_MAX: u64 = 65_536;

/// The number of a queue's dead letters that are about to leave, and their bytes if these are known.
type DyingLength = (u64, Option<u64>);

/// How many each loses of which so many are to go: the largest lose as many as leave them alike.
fn cuts_of(counts: &[u64], wanted: u64) -> Vec<u64> {
    let above = |level: u64| counts.iter().fold(0_u64, |sum, count| sum.saturating_add(count.saturating_sub(level)));
    let (mut level, mut high) = (0, counts.iter().copied().max().unwrap_or(0));
    while level < high {
        let middle = level + (high - level).div_ceil(2);
        if above(middle) >= wanted {
            level = middle;
        } else {
            high = middle - 1;
        }
    }
    let mut too_many = above(level).saturating_sub(wanted);
    let cut = |count: &u64| {
        let cut = count.saturating_sub(level);
        let kept = u64::from(cut > 0 && too_many > 0);
        too_many -= kept;
        cut - kept
    };
    counts.iter().map(cut).collect()
}

/// A message that may be dropped.
struct Oldest {
    sequence: Sequence,
    body_bytes: u32,
    /// When it may be delivered, if it has a time.
    due_at_ms: Option<u64>,
}

impl QueueEntry {
    /// How many messages no consumer has, and their bytes, without the dead letters that are about to leave. While the bytes of
    /// some of those are not known, only the number counts.
    fn length(&self, (dying, dying_bytes): DyingLength) -> (u64, u64) {
        let bytes = dying_bytes.map_or(0, |bytes| self.machine.free_bytes().saturating_sub(bytes));
        (self.machine.free_count().saturating_sub(dying), bytes)
    }

    /// Whether it has more messages than it may, beside those that its consumers are about to take.
    fn is_too_long(&self, dying: DyingLength) -> bool {
        let Some(head) = &self.head_limit else { return false };
        let (count, bytes) = self.length(dying);
        head.limit.is_exceeded(count, bytes, 0)
            && head.limit.is_exceeded(count, bytes, self.machine.eager_credit(EAGER_MAX))
    }
}

impl Shard {
    /// Limits how many messages queues may have; `None` is any number. A limit counts at once: a queue that drops its head
    /// drops messages that are too many by then, another one keeps what it has.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn limit_lengths(
        &self,
        limits: impl IntoIterator<Item = (QueueId, Option<LengthLimit>)>,
    ) -> Result<(), EngineError> {
        let mut elsewhere = Vec::new();
        let mut guard = self.lock()?;
        for (id, limit) in limits {
            if guard.elsewhere.contains_key(&id) {
                elsewhere.push((id, limit));
            } else {
                guard.limit_length(id, limit);
            }
        }
        drop(guard);
        for (id, limit) in elsewhere {
            if let Some(home) = self.others.home(id) {
                home.lock()?.limit_length(id, limit);
            }
        }
        Ok(())
    }

    /// Shortens queues after a publish, which is not undone: what cannot be dropped now, as on a full disk, goes later.
    pub(crate) fn shorten_after(&self, ids: &[QueueId]) -> Result<(), EngineError> {
        for &id in ids {
            let is_short = self.is_complete()
                && self.shorten(id, BY_PUBLISHER_MAX).is_ok_and(|dropped| dropped < BY_PUBLISHER_MAX);
            // Messages of a replicated log are dropped once they are committed.
            if is_short && !self.is_replicated() {
                continue;
            }
            self.lock()?.note_long(id);
        }
        Ok(())
    }

    /// Shortens the queues that were noted; returns whether it has to go on at once.
    pub(crate) fn shorten_noted(&self) -> Result<bool, EngineError> {
        let noted: Vec<QueueId> = self.lock()?.too_long.iter().copied().collect();
        let mut goes_on = false;
        for id in noted {
            goes_on |= self.shorten(id, BY_TURN_MAX)? >= BY_TURN_MAX;
            let mut guard = self.lock()?;
            if !guard.is_over(id) {
                guard.too_long.remove(&id);
            }
        }
        Ok(goes_on)
    }

    /// Drops the oldest messages of a queue while it has too many, about so many at most; returns how many.
    fn shorten(&self, id: QueueId, count_max: u64) -> Result<u64, EngineError> {
        // Letters are counted when they have moved, and an exchange is no full queue.
        let (mut dropped, mut uncounted) = (0, 0);
        while dropped < count_max {
            let Some(oldest) = self.oldest_of(id)? else { break };
            let mut guard = self.lock()?;
            if guard.closed || guard.stopped.is_some() {
                break;
            }
            let (count, delayed) = guard.drop_oldest(id, &oldest)?;
            let has_sealed = guard.has_sealed();
            let is_dead_lettered = guard.dead_letters.contains_key(&id);
            let is_history = guard.queues.get(&id).is_some_and(|entry| entry.is_history);
            drop(guard);
            dropped += count;
            if is_history || is_dead_lettered {
                uncounted += count;
            }
            if is_dead_lettered && count > 0 {
                self.request_moves();
            }
            if has_sealed {
                self.request_fold();
            }
            // Others took or dropped them meanwhile: whoever finds it too long next goes on.
            if count + delayed == 0 {
                break;
            }
        }
        self.counters().add(Metric::OverflowDropped, dropped - uncounted);
        Ok(dropped)
    }

    /// The messages that a queue with too many has to drop next; `None` when it has not too many, or none is ready.
    fn oldest_of(&self, id: QueueId) -> Result<Option<Vec<Oldest>>, EngineError> {
        let (ranges, found, has_uncommitted) = {
            let mut guard = self.lock()?;
            let dying = guard.dying.length_of(id);
            let Some(entry) = guard.queues.get(&id).filter(|entry| entry.is_too_long(dying)) else { return Ok(None) };
            let ranges = entry.oldest_ranges(dying);
            let found = guard.find_all(id, &ranges, 0)?;
            (ranges, found, guard.has_uncommitted())
        };
        let mut known = BTreeMap::new();
        for one in &found {
            known.insert(one.sequence, read(id, one)?);
        }
        let sequences = ranges.iter().flat_map(|range| (range.first.0..=range.last.0).map(Sequence));
        // Their sizes can be read once they are committed.
        let sequences = sequences.filter(|sequence| !has_uncommitted || known.contains_key(sequence));
        let oldest = sequences.map(|sequence| {
            // One that cannot be read would be dropped at its delivery.
            let read = known.get(&sequence).copied().flatten();
            let (due_at_ms, body_bytes) = read.map_or((None, 0), |read| (read.due_at_ms, read.body_bytes));
            Oldest { sequence, body_bytes, due_at_ms }
        });
        let oldest: Vec<Oldest> = oldest.collect();
        Ok(Some(oldest).filter(|oldest| !oldest.is_empty()))
    }
}

impl QueueEntry {
    /// Whether it has more messages than its limit, whoever is about to take some.
    fn is_over(&self, dying: DyingLength) -> bool {
        let Some(head) = &self.head_limit else { return false };
        let (count, bytes) = self.length(dying);
        head.limit.is_exceeded(count, bytes, 0)
    }

    /// Its oldest ready messages, those of the highest priority first, or of the keys with the most: about as many as are too
    /// many.
    fn oldest_ranges(&self, dying: DyingLength) -> Vec<SequenceRange> {
        let Some(head) = &self.head_limit else { return Vec::new() };
        let machine = &self.machine;
        let eager = machine.eager_credit(EAGER_MAX);
        let (count, bytes) = self.length(dying);
        let mut wanted = head.limit.excess(count, bytes, eager).min(AT_ONCE as u64);
        let mut lanes = machine.lanes_in_order();
        let mosts = if self.keys.is_some() {
            // The keys that fill the queue lose their messages, and not the others.
            cuts_of(&lanes.iter().map(|&lane| machine.ready_count_in(lane)).collect::<Vec<_>>(), wanted)
        } else {
            // Lanes of keys that take no turns any more get no new messages: theirs are the oldest.
            lanes.sort_by_key(|&lane| lane < TURN_LANES);
            vec![wanted; lanes.len()]
        };
        let mut ranges: Vec<SequenceRange> = Vec::new();
        for (lane, most) in lanes.into_iter().zip(mosts) {
            let some = machine.ready_from(Sequence(0).in_lane(lane), wanted.min(most));
            wanted -= some.iter().map(SequenceRange::count).sum::<u64>().min(wanted);
            ranges.extend(some);
            if wanted == 0 {
                break;
            }
        }
        ranges
    }
}

impl State {
    fn limit_length(&mut self, id: QueueId, limit: Option<LengthLimit>) {
        let Some(entry) = self.queues.get_mut(&id) else { return };
        let limit = limit.filter(|limit| limit.messages_max < u64::MAX || limit.bytes_max < u64::MAX);
        self.rejecting.remove(&id);
        entry.head_limit = None;
        match limit {
            Some(limit) if limit.overflow != Overflow::DropHead => {
                self.rejecting.insert(id, limit);
            }
            Some(limit) => {
                entry.head_limit = Some(Box::new(HeadLimit { limit, is_touched: false }));
                self.note_if_long(id);
            }
            None => {}
        }
    }

    /// Has a queue shortened soon if it is too long.
    pub(crate) fn note_if_long(&mut self, id: QueueId) {
        if self.is_over(id) {
            self.note_long(id);
        }
    }

    fn is_over(&self, id: QueueId) -> bool {
        self.queues.get(&id).is_some_and(|entry| entry.is_over(self.dying.length_of(id)))
    }

    /// Has the queues shortened soon that dead letters of a queue made too long, and that one, whose bytes are known again.
    pub(crate) fn note_touched_long(&mut self, from: QueueId) {
        if !self.limited.is_empty() {
            self.take_touched_long().into_iter().for_each(|id| self.note_long(id));
        }
        self.note_if_long(from);
    }

    pub(crate) fn note_long(&mut self, id: QueueId) {
        self.too_long.insert(id);
        self.next_expiry.lower(0);
    }

    /// The queues that the current publish touched and that are too long now.
    pub(crate) fn take_touched_long(&mut self) -> Vec<QueueId> {
        let mut touched = std::mem::take(&mut self.limited);
        touched.retain(|id| {
            let Some(entry) = self.queues.get_mut(id) else { return false };
            entry.head_limit.iter_mut().for_each(|head| head.is_touched = false);
            entry.is_too_long(self.dying.length_of(*id))
        });
        touched
    }

    /// Drops messages of a queue, from the first on, while it has too many; ones that are not due wait for their time.
    /// Returns how many of both.
    fn drop_oldest(&mut self, id: QueueId, oldest: &[Oldest]) -> Result<(u64, u64), EngineError> {
        let now_ms = clock_ms().max(self.passed_ms);
        if self.dead_letters.contains_key(&id) && self.dying.too_long_runs() > RUNS_MAX {
            // It goes on once the messages that were too many before have moved: none of them stays.
            self.note_long(id);
            return Ok((0, 0));
        }
        let dying = self.dying.length_of(id);
        let Some(entry) = self.queues.get_mut(&id).filter(|entry| entry.stream.is_none()) else { return Ok((0, 0)) };
        let Some(limit) = entry.head_limit.as_ref().map(|head| head.limit) else { return Ok((0, 0)) };
        let eager = entry.machine.eager_credit(EAGER_MAX);
        let (mut count, mut bytes) = entry.length(dying);
        let (mut going, mut delayed) = (Vec::new(), 0);
        for one in oldest {
            if !limit.is_exceeded(count, bytes, eager) {
                break;
            }
            if entry.machine.standing(one.sequence) != Standing::Ready {
                continue;
            }
            // A history has no consumers: copies of its messages are delayed, and not they themselves.
            let is_early = !entry.is_history && one.due_at_ms.is_some_and(|due_at_ms| due_at_ms > now_ms);
            if is_early && entry.machine.delay(one.sequence) {
                delayed += 1;
                continue;
            }
            count -= 1;
            bytes = bytes.saturating_sub(u64::from(one.body_bytes));
            going.push((one.sequence, one.body_bytes));
        }
        Ok((self.settle_dropped(id, &going)?, delayed))
    }

    fn settle_dropped(&mut self, id: QueueId, going: &[(Sequence, u32)]) -> Result<u64, EngineError> {
        if self.dead_letters.contains_key(&id) {
            let sequences: Vec<Sequence> = going.iter().map(|(sequence, _)| *sequence).collect();
            let aside = self.dead_letter(id, &sequences, Reason::MaxLength);
            return Ok(aside.iter().map(SequenceRange::count).sum());
        }
        let mut count = 0;
        for some in going.chunk_by(|(one, _), (other, _)| one.lane() == other.lane()) {
            let Some(entry) = self.queues.get_mut(&id) else { return Ok(count) };
            let (settled, _) = entry.machine.expire(some);
            some.iter().for_each(|(sequence, _)| self.overdue.remove(id, *sequence));
            self.log_settled(id, Outcome::Drop, &settled)?;
            count += settled.count;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::cuts_of;

    #[test]
    fn the_largest_lose_as_many_as_leave_them_alike() {
        assert_eq!(cuts_of(&[5, 1, 2], 0), [0, 0, 0]);
        assert_eq!(cuts_of(&[5, 1, 2], 2), [2, 0, 0]);
        assert_eq!(cuts_of(&[5, 1, 2], 4), [3, 0, 1]);
        assert_eq!(cuts_of(&[3, 3, 3, 3], 6), [1, 1, 2, 2]);
        assert_eq!(cuts_of(&[5, 1, 2], 100), [5, 1, 2]);
        assert_eq!(cuts_of(&[u64::MAX, 1], 7), [7, 0]);
        assert_eq!(cuts_of(&[], 7), [0; 0]);
    }
}
