//! Expires messages of queues at their time, also without consumers: those with a time of their own, and those over the age
//! limit of their queue. Makes delayed messages ready at theirs.
//!
//! Invariants: an expiry is recorded before it is visible, and a message that a consumer has is its own until it comes back.
//! Records are read without the shard's lock, a bounded number at a time. A queue without a limit, and messages without a time,
//! cost nothing here.

mod aged;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use penstock_log::{DeadlineKind, LogError, MessageView, Outcome, Segment, Target};
use penstock_queue::{QueueId, Sequence, SequenceRange, Standing};
use penstock_wire::amqp::deaths::Reason;

use crate::aging::born_at;
use crate::counters::Metric;
use crate::error::EngineError;
use crate::priorities::target_of;
use crate::shard::Shard;
use crate::state::State;
use crate::subscription::rebuild;

/// Messages that are read and settled in one go.
pub(crate) const AT_ONCE: usize = 512;

/// Messages with consumers may come back: this soon they are checked again.
const CHECK_AGAIN_MS: u64 = 1000;

/// Place of a message's record.
pub(crate) struct Found {
    pub sequence: Sequence,
    pub segment: Arc<Segment>,
    pub offset: u32,
}

impl Shard {
    /// When a message may have to be expired next, in ms.
    #[must_use]
    pub fn next_expiry_ms(&self) -> u64 {
        self.next_expiry.at_ms()
    }

    /// Expires the messages whose time is over; returns how many. May block on the disk.
    ///
    /// # Errors
    /// `Log` when the disk failed; `Stopped` when a bug poisoned the shard.
    pub fn expire_due(&self, now_ms: u64) -> Result<u64, EngineError> {
        let _alone = self.expiring.lock().unwrap_or_else(PoisonError::into_inner);
        // A publisher lowers it meanwhile.
        self.next_expiry.clear();
        if !self.is_complete() {
            return Ok(0);
        }
        if !self.lock()?.waiting_leases.is_empty() {
            self.next_expiry.lower(now_ms.saturating_add(CHECK_AGAIN_MS));
            return Ok(0);
        }
        let expired = self.expire_all(now_ms).inspect_err(|_| {
            // As on a full disk: the rest goes when there is space.
            self.next_expiry.lower(now_ms.saturating_add(CHECK_AGAIN_MS));
        })?;
        self.counters().add(Metric::Expired, expired);
        self.report_idle()?;
        let mut guard = self.lock()?;
        let again = guard.overdue.check_again_ms().map(|in_ms| now_ms.saturating_add(in_ms));
        let aging = guard.aging.values().map(|aging| aging.next_ms);
        let retry = guard.retries.peek().map(|Reverse((at_ms, ..))| *at_ms);
        let too_long = (!guard.too_long.is_empty()).then(|| now_ms.saturating_add(CHECK_AGAIN_MS));
        let others = again.into_iter().chain(retry).chain(too_long).chain(guard.next_idle_ms());
        if let Some(next_ms) = aging.chain(guard.log.next_deadline()).chain(others).min() {
            self.next_expiry.lower(next_ms);
        }
        if guard.has_sealed() {
            drop(guard);
            self.request_fold();
        }
        Ok(expired)
    }

    fn expire_all(&self, now_ms: u64) -> Result<u64, EngineError> {
        self.release_retries(now_ms)?;
        // On a full disk delays end, although expiries cannot be recorded.
        let of_deadlines = self.expire_deadlines(now_ms);
        let overdue = self.expire_overdue();
        let expired = of_deadlines? + overdue? + self.expire_aged(now_ms)?;
        if self.shorten_noted()? {
            self.next_expiry.lower(now_ms);
        }
        Ok(expired)
    }

    /// Expires messages by their own times. The log forgets these times as it tells them, so after an error the messages are
    /// noted.
    fn expire_deadlines(&self, now_ms: u64) -> Result<u64, EngineError> {
        let mut expired = 0;
        loop {
            let ticket = {
                let mut guard = self.lock()?;
                if guard.closed || guard.stopped.is_some() {
                    return Ok(expired);
                }
                guard.passed_ms = guard.passed_ms.max(now_ms);
                guard.log.begin_deadlines(now_ms, AT_ONCE)
            };
            let Some(ticket) = ticket else { return Ok(expired) };
            let read = ticket.perform()?;
            let segment = read.segment();
            let mut by_queue: BTreeMap<(DeadlineKind, QueueId), Vec<Sequence>> = BTreeMap::new();
            for deadline in self.lock()?.log.finish_deadlines(read) {
                by_queue.entry((deadline.kind, deadline.queue)).or_default().push(deadline.sequence);
            }
            let mut failed = None;
            for ((kind, queue), mut sequences) in by_queue {
                sequences.sort_unstable();
                match kind {
                    DeadlineKind::Due => self.release(queue, &sequences)?,
                    DeadlineKind::Expires if failed.is_some() => self.lock()?.note_overdue(queue, &sequences),
                    DeadlineKind::Expires => match self.expire_some(queue, &sequences, segment) {
                        Ok(count) => expired += count,
                        Err(error) => {
                            self.lock()?.note_overdue(queue, &sequences);
                            failed = Some(error);
                        }
                    },
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
    }

    /// Makes requeued messages ready whose time has come.
    fn release_retries(&self, now_ms: u64) -> Result<(), EngineError> {
        loop {
            let mut due: BTreeMap<QueueId, Vec<Sequence>> = BTreeMap::new();
            {
                let mut guard = self.lock()?;
                guard.passed_ms = guard.passed_ms.max(now_ms);
                for _ in 0..AT_ONCE {
                    let Some(&Reverse((at_ms, queue, sequence))) = guard.retries.peek() else { break };
                    if at_ms > now_ms {
                        break;
                    }
                    guard.retries.pop();
                    due.entry(queue).or_default().push(sequence);
                }
            }
            if due.is_empty() {
                return Ok(());
            }
            for (queue, sequences) in &due {
                self.release(*queue, sequences)?;
                self.lock()?.check_age_soon(*queue, now_ms);
            }
        }
    }

    /// Makes those of some messages ready that are delayed. The number may be that of a lane, with sequences as the log has them;
    /// those of the queue's own number say their lanes.
    fn release(&self, id: QueueId, sequences: &[Sequence]) -> Result<(), EngineError> {
        let mut guard = self.lock()?;
        let (id, lane) = guard.queue_of(id);
        let State { queues, dying, .. } = &mut *guard;
        let Some(entry) = queues.get_mut(&id) else { return Ok(()) };
        let released = if lane == 0 && dying.is_empty() {
            entry.machine.release(sequences)
        } else {
            let in_lane = sequences.iter().map(|sequence| if lane == 0 { *sequence } else { sequence.in_lane(lane) });
            let living: Vec<Sequence> = in_lane.filter(|sequence| !dying.contains(id, *sequence)).collect();
            entry.machine.release(&living)
        };
        guard.wake(id, released);
        Ok(())
    }

    /// Expires those of some messages that no consumer has, and notes the ones that consumers have. The number may be that of a
    /// lane, with sequences as the log has them. `segment` is the number of one that may have them: it is searched first.
    fn expire_some(&self, id: QueueId, sequences: &[Sequence], segment: u64) -> Result<u64, EngineError> {
        let (id, found) = {
            let mut guard = self.lock()?;
            let (id, lane) = guard.queue_of(id);
            let Some(entry) = guard.queues.get(&id).filter(|entry| entry.stream.is_none()) else { return Ok(0) };
            let mut ready = Vec::new();
            let mut held = Vec::new();
            for &sequence in sequences {
                let sequence = if lane == 0 { sequence } else { sequence.in_lane(lane) };
                match entry.machine.standing(sequence) {
                    Standing::Ready | Standing::Delayed => {
                        ready.push(SequenceRange { first: sequence, last: sequence })
                    }
                    Standing::Held => held.push(sequence),
                    Standing::Settled => {}
                }
            }
            guard.overdue.add(id, &held);
            (id, guard.find_all(id, &ready, segment)?)
        };
        let mut sized = Vec::with_capacity(found.len());
        for one in &found {
            sized.extend(read(id, one)?.map(|stored| (one.sequence, stored.body_bytes)));
        }
        self.settle_expired(id, &sized)
    }

    /// Settles messages whose time is over. Their queue may have become a lane of another one since they were found.
    fn settle_expired(&self, id: QueueId, messages: &[(Sequence, u32)]) -> Result<u64, EngineError> {
        let mut guard = self.lock()?;
        if messages.is_empty() || guard.closed || guard.stopped.is_some() {
            return Ok(0);
        }
        let (id, messages) = guard.as_lane(id, messages);
        if guard.dead_letters.contains_key(&id) {
            let (count, run_count) = guard.dead_letter_expired(id, &messages);
            drop(guard);
            self.dead_letters_added(run_count)?;
            return Ok(count);
        }
        let mut count = 0;
        for some in messages.chunk_by(|(one, _), (other, _)| one.lane() == other.lane()) {
            let Some(entry) = guard.queues.get_mut(&id) else { return Ok(count) };
            let (settled, held) = entry.machine.expire(some);
            // The queues of the message count it.
            count += if entry.is_history { 0 } else { settled.count };
            some.iter().for_each(|(sequence, _)| guard.overdue.remove(id, *sequence));
            guard.overdue.add(id, &held);
            guard.log_settled(id, Outcome::Expire, &settled)?;
        }
        Ok(count)
    }

    /// Expires messages that were with consumers at their time and came back, among a part of them.
    fn expire_overdue(&self) -> Result<u64, EngineError> {
        let mut back: BTreeMap<QueueId, Vec<Sequence>> = BTreeMap::new();
        {
            let mut guard = self.lock()?;
            let State { overdue, queues, .. } = &mut *guard;
            for (queue, sequence) in overdue.next_part() {
                match queues.get(&queue).map(|entry| entry.machine.standing(sequence)) {
                    Some(Standing::Ready | Standing::Delayed) => back.entry(queue).or_default().push(sequence),
                    Some(Standing::Held) => {}
                    Some(Standing::Settled) | None => overdue.remove(queue, sequence),
                }
            }
        }
        let mut expired = 0;
        for (id, sequences) in back {
            for part in sequences.chunks(AT_ONCE) {
                expired += self.expire_some(id, part, 0)?;
            }
        }
        Ok(expired)
    }
}

impl State {
    /// Has messages expire later whose time is over. The number may be that of a lane, with sequences as the log has them.
    fn note_overdue(&mut self, id: QueueId, sequences: &[Sequence]) {
        let (id, lane) = self.queue_of(id);
        if self.queues.get(&id).is_none_or(|entry| entry.stream.is_some()) {
            return;
        }
        let in_lane = |sequence: &Sequence| if lane == 0 { *sequence } else { sequence.in_lane(lane) };
        self.overdue.add(id, &sequences.iter().map(in_lane).collect::<Vec<_>>());
    }

    /// Notes messages that were requeued and wait until a time; returns how many.
    pub(crate) fn note_retries(&mut self, queue: QueueId, due_at_ms: u64, ranges: &[SequenceRange]) -> u64 {
        for range in ranges {
            let sequences = (range.first.0..=range.last.0).map(Sequence);
            self.retries.extend(sequences.map(|sequence| Reverse((due_at_ms, queue, sequence))));
        }
        self.next_expiry.lower(due_at_ms);
        ranges.iter().map(SequenceRange::count).sum()
    }

    /// Has the ages of a queue's messages checked: older ones than its first may have become ready.
    fn check_age_soon(&mut self, id: QueueId, now_ms: u64) {
        let (id, _) = self.queue_of(id);
        if let Some(aging) = self.aging.get_mut(&id) {
            aging.next_ms = aging.next_ms.min(now_ms);
        }
    }

    /// Messages that were found under a number as the queue has them that the number belongs to now.
    fn as_lane<'a>(&self, id: QueueId, messages: &'a [(Sequence, u32)]) -> (QueueId, Cow<'a, [(Sequence, u32)]>) {
        match self.queue_of(id) {
            (id, 0) => (id, Cow::Borrowed(messages)),
            (id, lane) => (id, messages.iter().map(|&(sequence, bytes)| (sequence.in_lane(lane), bytes)).collect()),
        }
    }

    /// Has messages leave their queue whose time is over; notes the ones that consumers have.
    fn dead_letter_expired(&mut self, id: QueueId, messages: &[(Sequence, u32)]) -> (u64, usize) {
        let Some(entry) = self.queues.get(&id) else { return (0, 0) };
        let sequences: Vec<Sequence> = messages.iter().map(|(sequence, _)| *sequence).collect();
        let is_held = |sequence: &Sequence| entry.machine.standing(*sequence) == Standing::Held;
        let held: Vec<Sequence> = sequences.iter().copied().filter(is_held).collect();
        sequences.iter().for_each(|sequence| self.overdue.remove(id, *sequence));
        self.overdue.add(id, &held);
        let aside = self.dead_letter(id, &sequences, Reason::Expired);
        (aside.iter().map(SequenceRange::count).sum(), self.dying.run_count())
    }

    /// The places of ready messages; those that no segment has are left out.
    pub(crate) fn find_all(
        &mut self,
        id: QueueId,
        ranges: &[SequenceRange],
        segment: u64,
    ) -> Result<Vec<Found>, EngineError> {
        let mut found = Vec::new();
        for &range in ranges {
            let mut from = range.first;
            while from <= range.last {
                let count = usize::try_from(range.last.0 - from.0 + 1).unwrap_or(usize::MAX);
                let Target { queue, sequence } = target_of(id, from);
                let located = match self.log.seek(queue, sequence, count, segment) {
                    Err(error) if rebuild(self, &error)? => continue,
                    located => located?,
                };
                let Some(located) = located.filter(|located| located.first == sequence) else {
                    from = from.next();
                    continue;
                };
                let sequences = (from.0..).map(Sequence);
                from = Sequence(from.0 + located.offsets.len() as u64);
                found.extend(sequences.zip(located.offsets).map(|(sequence, offset)| Found {
                    sequence,
                    segment: Arc::clone(&located.segment),
                    offset,
                }));
            }
        }
        Ok(found)
    }
}

/// A message as its record has it.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    pub born_at_ms: u64,
    pub due_at_ms: Option<u64>,
    pub body_bytes: u32,
}

/// Reads the times of a message and the size of its body; `None` when it cannot be read.
pub(crate) fn read(id: QueueId, found: &Found) -> Result<Option<Stored>, EngineError> {
    let Found { sequence, segment, offset } = found;
    let message = segment.populate(*offset, *offset).and_then(|()| {
        let message = segment.message_for(*offset, target_of(id, *sequence))?;
        let due_at_ms = if message.has_deadlines() { message.attributes().due_at_ms } else { None };
        let body_bytes = u32::try_from(message.body.len()).unwrap_or(u32::MAX);
        Ok(Stored { born_at_ms: born_at(message.stored_at_ms, due_at_ms), due_at_ms, body_bytes })
    });
    match message {
        Ok(taken) => Ok(Some(taken)),
        Err(LogError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A message whose copy will be stored, which gets a checksum of its own; `None` when it cannot be read.
pub(crate) fn view_of(id: QueueId, found: &Found) -> Result<Option<MessageView<'_>>, EngineError> {
    let Found { sequence, segment, offset } = found;
    let message =
        segment.populate(*offset, *offset).and_then(|()| segment.message_for(*offset, target_of(id, *sequence)));
    match message {
        Ok(view) => Ok(view.verify().is_ok().then_some(view)),
        Err(LogError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
