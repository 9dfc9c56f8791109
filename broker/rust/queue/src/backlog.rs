//! The ready messages of a queue, without memory for each: a cursor, and the messages returned below it.
//!
//! Unsettled sequences from the cursor up to the next one were never taken since the queue was made or recovered. Only
//! returned messages are kept one by one. This module does not know the consumers.

mod leased;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ack_set::AckSet;
use crate::delayed::Delayed;
use crate::held::Held;
use crate::ids::{Sequence, SequenceRange};
use crate::settled::{Settled, Standing, extend};

/// Invariants:
/// * delayed messages are neither settled nor counted as ready;
/// * returned messages are below the cursor, the cursor at or below `next`, delivery counts known beforehand above the
///   cursor;
/// * `count` is the number of returned and released messages, and of unsettled sequences from the cursor up to `next` that
///   are not delayed;
/// * no sequence from the cursor up to `clear_until` is settled or delayed.
#[derive(Debug)]
pub(crate) struct Backlog {
    next: Sequence,
    cursor: Sequence,
    /// The first settled or delayed sequence at or above the cursor; the largest sequence when there is none.
    clear_until: Sequence,
    settled: AckSet,
    returned: BTreeMap<Sequence, Held>,
    /// Absent without delayed and released messages.
    delayed: Option<Box<Delayed>>,
    /// Delivery counts from before a start, of messages at or above the cursor.
    counts_ahead: BTreeMap<Sequence, u32>,
    /// Messages below this sequence may have been with a consumer before the start.
    perhaps_delivered_below: Sequence,
    /// Messages below this sequence with an unknown size are not in `bytes`: a purge has removed them.
    counted_from: Sequence,
    count: u64,
    /// Bytes of ready and delayed messages, and of taken ones with a size not reported yet.
    bytes: u64,
}

impl Backlog {
    pub(crate) fn new(next: Sequence, settled: AckSet, bytes: u64, delivery_counts: BTreeMap<Sequence, u32>) -> Self {
        // A settled sequence was assigned, whatever the rest of a checkpoint says.
        let next = next.max(settled.ranges().last().map_or(settled.below(), |range| range.last.next()));
        let cursor = settled.below();
        let mut counts_ahead = delivery_counts;
        counts_ahead.retain(|&sequence, _| sequence >= cursor && sequence < next && !settled.contains(sequence));
        let mut backlog = Backlog {
            next,
            cursor,
            clear_until: cursor,
            settled,
            returned: BTreeMap::new(),
            delayed: None,
            counts_ahead,
            perhaps_delivered_below: Sequence(0),
            counted_from: Sequence::FIRST,
            count: 0,
            bytes,
        };
        backlog.pass_settled();
        backlog.count = backlog.fresh().map(|range| range.count()).sum();
        backlog
    }

    /// The same messages in a lane.
    pub(crate) fn in_lane(self, lane: u16) -> Backlog {
        let returned = self.returned.into_values().map(|held| held.in_lane(lane)).map(|held| (held.sequence, held));
        let counts_ahead = self.counts_ahead.into_iter().map(|(sequence, count)| (sequence.in_lane(lane), count));
        let cursor = self.cursor.in_lane(lane);
        let mut backlog = Backlog {
            next: self.next.in_lane(lane),
            cursor,
            clear_until: cursor,
            settled: self.settled.in_lane(lane),
            returned: returned.collect(),
            delayed: self.delayed.map(|delayed| Box::new(delayed.in_lane(lane))),
            counts_ahead: counts_ahead.collect(),
            perhaps_delivered_below: self.perhaps_delivered_below.in_lane(lane),
            counted_from: self.counted_from.in_lane(lane),
            ..self
        };
        backlog.pass_settled();
        backlog
    }

    pub(crate) fn next(&self) -> Sequence {
        self.next
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first sequence that was never taken.
    pub(crate) fn cursor(&self) -> Sequence {
        self.cursor
    }

    pub(crate) fn perhaps_delivered_below(&self) -> Sequence {
        self.perhaps_delivered_below
    }

    /// Existing messages with a lower sequence may have been with a consumer before the start.
    pub(crate) fn set_perhaps_delivered_below(&mut self, below: Sequence) {
        self.perhaps_delivered_below = below.min(self.next);
    }

    pub(crate) fn settled(&self) -> &AckSet {
        &self.settled
    }

    #[inline]
    pub(crate) fn publish(&mut self, body_bytes: u64) -> Sequence {
        let sequence = self.next;
        self.next = sequence.next();
        self.count += 1;
        self.bytes = self.bytes.saturating_add(body_bytes);
        sequence
    }

    /// Takes the lowest returned or released message. All of them are below the fresh ones.
    pub(crate) fn take_returned(&mut self) -> Option<Held> {
        if self.delayed.is_some()
            && let Some(message) = self.take_released()
        {
            return Some(message);
        }
        let (_, message) = self.returned.pop_first()?;
        self.bytes = self.bytes.saturating_sub(u64::from(message.bytes().unwrap_or(0)));
        self.count -= 1;
        Some(message)
    }

    /// Takes the lowest run of messages that were never taken, at most `wanted`, with their common delivery count.
    pub(crate) fn take_fresh(&mut self, wanted: u64) -> Option<(Range<u64>, u32)> {
        if self.cursor >= self.next || wanted == 0 {
            return None;
        }
        let first = self.cursor;
        let delivery_count = self.counts_ahead.remove(&first);
        let mut end = Sequence(first.0.saturating_add(wanted)).min(self.clear_until).min(self.next);
        if delivery_count.is_some() {
            end = first.next();
        } else if let Some((&counted, _)) = self.counts_ahead.first_key_value() {
            end = end.min(counted);
        }
        self.cursor = end;
        self.pass_settled();
        self.count -= end.0 - first.0;
        Some((first.0..end.0, delivery_count.unwrap_or(0)))
    }

    /// Returns a taken message to its place, with one more delivery counted when it was sent.
    pub(crate) fn give_back(&mut self, message: Held) {
        self.place(message.returned());
    }

    /// Returns a message to its place as if it had not been taken.
    pub(crate) fn put_back(&mut self, message: Held) {
        self.place(message.untouched());
    }

    fn place(&mut self, message: Held) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(u64::from(message.bytes().unwrap_or(0)));
        self.returned.insert(message.sequence, message);
    }

    /// Subtracts the bytes of a message that was taken before its size was known.
    pub(crate) fn sized(&mut self, sequence: Sequence, bytes: u32) {
        if sequence >= self.counted_from {
            self.bytes = self.bytes.saturating_sub(u64::from(bytes));
        }
    }

    /// Settles taken messages.
    pub(crate) fn settle(&mut self, ranges: &[SequenceRange]) {
        ranges.iter().for_each(|&range| self.settle_range(range));
    }

    pub(crate) fn settle_range(&mut self, range: SequenceRange) {
        self.settled.insert(range);
    }

    /// The number of ready messages that are taken one by one.
    pub(crate) fn returned_count(&self) -> usize {
        self.returned.len() + self.delayed.as_ref().map_or(0, |delayed| delayed.released_count())
    }

    /// Settles the lowest of those, at most so many.
    pub(crate) fn purge_returned(&mut self, count_max: usize) -> Settled {
        let mut purged = Settled::default();
        for _ in 0..count_max {
            let Some(message) = self.take_returned() else { break };
            purged.count += 1;
            purged.bytes += u64::from(message.bytes().unwrap_or(0));
            extend(&mut purged.ranges, SequenceRange { first: message.sequence, last: message.sequence });
        }
        self.settle(&purged.ranges);
        purged
    }

    /// Settles ready messages from the lowest on, in at most so many runs. While some are left, the bytes of all, also of the
    /// delayed ones, count as if each message had the same.
    pub(crate) fn purge(&mut self, runs_max: usize) -> Settled {
        let ranges = self.ready_runs(runs_max);
        let count: u64 = ranges.iter().map(|range| range.count()).sum();
        let is_last = count == self.count;
        let is_all = is_last && self.delayed_count() == 0;
        let sharing = (self.count + self.delayed_count()).max(1);
        let share = u128::from(self.bytes) * u128::from(count) / u128::from(sharing);
        let bytes = if is_all { self.bytes } else { u64::try_from(share).unwrap_or(self.bytes) };
        self.settle(&ranges);
        let end = if is_last { self.next } else { ranges.last().map_or(Sequence(0), |range| range.last.next()) };
        self.returned = self.returned.split_off(&end);
        self.keep_counts_below(end);
        if let Some(delayed) = &mut self.delayed {
            delayed.forget_released_below(end);
        }
        self.forget_delayed();
        self.cursor = self.cursor.max(end);
        // The settled runs may be in the part known to be clear.
        self.clear_until = self.cursor;
        self.pass_settled();
        if is_all {
            self.counted_from = self.next;
        }
        self.count -= count;
        self.bytes -= bytes;
        Settled { count, bytes, ranges }
    }

    /// The lowest ready messages, in at most so many runs.
    fn ready_runs(&self, runs_max: usize) -> Vec<SequenceRange> {
        let mut runs = Vec::new();
        for run in self.returned_from(Sequence(0)).chain(self.fresh()) {
            extend(&mut runs, run);
            if runs.len() > runs_max {
                runs.pop();
                break;
            }
        }
        runs
    }

    /// Settles the messages of a range that were never taken, whose bodies have `bytes` bytes in all.
    pub(crate) fn settle_fresh(&mut self, range: SequenceRange, bytes: u64) -> Settled {
        let mut settled = Settled { count: 0, bytes, ranges: Vec::new() };
        for run in self.fresh_from(range.first.max(self.cursor)) {
            let Some(run) = SequenceRange::new(run.first, run.last.min(range.last)) else { break };
            settled.count += run.count();
            extend(&mut settled.ranges, run);
        }
        self.settle(&settled.ranges);
        self.counts_ahead.retain(|&sequence, _| sequence < range.first || sequence > range.last);
        // The newly settled range may be in the part known to be clear.
        self.clear_until = self.cursor;
        self.pass_settled();
        self.count -= settled.count;
        self.bytes = self.bytes.saturating_sub(bytes);
        settled
    }

    /// Stores a message that is not ready yet.
    pub(crate) fn publish_delayed(&mut self, body_bytes: u64) -> Sequence {
        let sequence = self.next;
        self.next = sequence.next();
        self.bytes = self.bytes.saturating_add(body_bytes);
        self.delay(sequence);
        sequence
    }

    /// Returns a taken message to its place until it is released.
    pub(crate) fn put_aside(&mut self, message: Held) {
        self.bytes = self.bytes.saturating_add(u64::from(message.bytes().unwrap_or(0)));
        let delayed = self.delayed.get_or_insert_default();
        delayed.insert(message.sequence);
        if message.bytes().is_some() || message.is_redelivered() {
            delayed.keep(message);
        }
    }

    /// Makes a message wait that no consumer has; returns whether it does.
    pub(crate) fn set_aside(&mut self, sequence: Sequence) -> bool {
        match self.standing(sequence) {
            Standing::Settled | Standing::Held => false,
            Standing::Delayed => true,
            Standing::Ready => {
                self.count -= 1;
                if let Some(message) = self.returned.remove(&sequence) {
                    let delayed = self.delayed.get_or_insert_default();
                    delayed.insert(sequence);
                    delayed.keep(message);
                } else {
                    if let Some(delayed) = &mut self.delayed {
                        // It may be a released one.
                        delayed.remove(sequence);
                    }
                    self.delay(sequence);
                }
                true
            }
        }
    }

    /// Returned messages of a range after more deliveries than that, also those that wait.
    pub(crate) fn delivered_more_often(&self, range: SequenceRange, limit: u32) -> Vec<Sequence> {
        let returned = self.returned.range(range.first..=range.last).map(|(_, message)| message);
        let waiting = self.delayed.iter().flat_map(|delayed| delayed.kept_in(range));
        let over = returned.chain(waiting).filter(|message| message.delivery_count() > limit);
        let mut over: Vec<Sequence> = over.map(|message| message.sequence).collect();
        over.sort_unstable();
        over
    }

    /// How often a message that waits was delivered.
    pub(crate) fn deliveries_of_waiting(&self, sequence: Sequence) -> u32 {
        let kept = self.delayed.as_ref().and_then(|delayed| delayed.kept_in(SequenceRange::of(sequence)).next());
        kept.map_or(0, Held::delivery_count)
    }

    fn delay(&mut self, sequence: Sequence) {
        self.delayed.get_or_insert_default().insert(sequence);
        if sequence >= self.cursor {
            self.clear_until = self.clear_until.min(sequence);
            self.pass_settled();
        }
    }

    /// After a start: makes a ready message wait until it is released. One that was released is left ready.
    pub(crate) fn delay_recovered(&mut self, sequence: Sequence) {
        if let Some(message) = self.returned.remove(&sequence) {
            self.count -= 1;
            self.bytes = self.bytes.saturating_sub(u64::from(message.bytes().unwrap_or(0)));
            self.put_aside(message);
        } else if self.standing(sequence) == Standing::Ready && sequence >= self.cursor {
            self.count -= 1;
            self.delay(sequence);
        }
    }

    /// Makes a delayed message ready; returns whether it was delayed.
    pub(crate) fn release(&mut self, sequence: Sequence) -> bool {
        let cursor = self.cursor;
        let Some(released) = self.delayed.as_mut().and_then(|delayed| delayed.release(sequence, cursor)) else {
            return false;
        };
        if let Some(message) = released {
            self.returned.insert(sequence, message);
        }
        self.count += 1;
        self.forget_delayed();
        true
    }

    pub(crate) fn delayed_count(&self) -> u64 {
        self.delayed.as_ref().map_or(0, |delayed| delayed.waiting_count())
    }

    /// Takes the lowest released message, unless a returned one is lower.
    fn take_released(&mut self) -> Option<Held> {
        let lowest = self.returned.first_key_value().map(|(&sequence, _)| sequence);
        let sequence = self.delayed.as_mut()?.take_released(lowest)?;
        self.count -= 1;
        self.forget_delayed();
        Some(Held::new(sequence, 0))
    }

    fn forget_delayed(&mut self) {
        self.delayed.take_if(|delayed| delayed.is_empty());
    }

    /// Settles those of some messages that are ready or delayed, each with the size of its body. Returns them, and the ones that
    /// somebody holds.
    pub(crate) fn expire(&mut self, messages: &[(Sequence, u32)]) -> (Settled, Vec<Sequence>) {
        let (mut settled, mut held) = (Settled::default(), Vec::new());
        for &(sequence, bytes) in messages {
            if sequence >= self.next || self.settled.contains(sequence) {
                continue;
            }
            let unsized_bytes = if sequence >= self.counted_from { u64::from(bytes) } else { 0 };
            // A known size counts in any case, also of a message that waits.
            let counted_of = |kept: Option<Held>| kept.and_then(|kept| kept.bytes()).map_or(unsized_bytes, u64::from);
            let was_delayed = self.delayed.as_mut().and_then(|delayed| delayed.remove(sequence));
            let counted = match (was_delayed, self.returned.remove(&sequence)) {
                (Some((is_ready, kept)), _) => {
                    self.count -= u64::from(is_ready);
                    counted_of(kept)
                }
                (None, message @ Some(_)) => {
                    self.count -= 1;
                    counted_of(message)
                }
                (None, None) if sequence < self.cursor => {
                    held.push(sequence);
                    continue;
                }
                (None, None) => {
                    self.count -= 1;
                    u64::from(bytes)
                }
            };
            self.counts_ahead.remove(&sequence);
            let range = SequenceRange { first: sequence, last: sequence };
            self.settled.insert(range);
            settled.count += 1;
            settled.bytes += u64::from(bytes);
            extend(&mut settled.ranges, range);
            self.bytes = self.bytes.saturating_sub(counted);
        }
        self.forget_delayed();
        // The newly settled ones may be in the part known to be clear.
        self.clear_until = self.cursor;
        self.pass_settled();
        (settled, held)
    }

    /// The ready messages from a sequence on, as ranges, at most so many.
    pub(crate) fn ready_from(&self, from: Sequence, mut count_max: u64) -> Vec<SequenceRange> {
        let mut found = Vec::new();
        for range in self.returned_from(from).chain(self.fresh_from(from.max(self.cursor))) {
            if count_max == 0 {
                break;
            }
            let last = Sequence(range.last.0.min(range.first.0.saturating_add(count_max - 1)));
            let range = SequenceRange { last, ..range };
            count_max -= range.count();
            extend(&mut found, range);
        }
        found
    }

    /// The ready messages that are taken one by one, from a sequence on in their order: returned ones and released ones.
    fn returned_from(&self, from: Sequence) -> impl Iterator<Item = SequenceRange> + '_ {
        let returned = self.returned.range(from..).map(|(&first, _)| SequenceRange { first, last: first });
        let mut returned = returned.peekable();
        let mut released = self.delayed.iter().flat_map(move |delayed| delayed.released_from(from)).peekable();
        std::iter::from_fn(move || match (returned.peek(), released.peek()) {
            (Some(one), Some(other)) if one.first < other.first => returned.next(),
            (_, Some(_)) => released.next(),
            (_, None) => returned.next(),
        })
    }

    /// Whether a message is settled, ready, delayed, or held by a consumer.
    pub(crate) fn standing(&self, sequence: Sequence) -> Standing {
        if sequence >= self.next || self.settled.contains(sequence) {
            Standing::Settled
        } else if let Some(delayed) = &self.delayed
            && let Some(is_ready) = delayed.standing(sequence)
        {
            if is_ready { Standing::Ready } else { Standing::Delayed }
        } else if sequence >= self.cursor || self.returned.contains_key(&sequence) {
            Standing::Ready
        } else {
            Standing::Held
        }
    }

    /// With nothing ready and no size outstanding, the remaining bytes belong to messages whose size was never
    /// reported.
    pub(crate) fn forget_lost_bytes(&mut self) {
        if self.count == 0 && self.delayed_count() == 0 {
            self.bytes = 0;
        }
    }

    /// Moves the cursor over settled sequences. They are looked up only where the last look-up said that some begin: in
    /// a running queue, only a purge settles at or above the cursor.
    fn pass_settled(&mut self) {
        if self.cursor < self.clear_until {
            return;
        }
        self.cursor = self.next_fresh(self.cursor).min(self.next);
        self.clear_until = self.next_taken_up(self.cursor).unwrap_or(Sequence(u64::MAX));
        self.keep_counts_below(self.cursor);
    }

    /// Messages that the cursor passes because they are delayed keep their delivery counts.
    fn keep_counts_below(&mut self, cursor: Sequence) {
        if self.counts_ahead.first_key_value().is_none_or(|(&first, _)| first >= cursor) {
            return;
        }
        let ahead = self.counts_ahead.split_off(&cursor);
        let passed = std::mem::replace(&mut self.counts_ahead, ahead);
        let Some(delayed) = &mut self.delayed else { return };
        for (sequence, count) in passed {
            if delayed.standing(sequence) == Some(false) {
                delayed.keep(Held::new(sequence, count));
            }
        }
    }

    /// The first sequence from one on that is neither settled nor delayed.
    fn next_fresh(&self, from: Sequence) -> Sequence {
        let mut next = self.settled.next_unsettled(from);
        if let Some(delayed) = &self.delayed {
            loop {
                let free = delayed.next_free(next);
                if free == next {
                    break;
                }
                next = self.settled.next_unsettled(free);
            }
        }
        next
    }

    /// The first one that is settled or delayed.
    fn next_taken_up(&self, from: Sequence) -> Option<Sequence> {
        let delayed = self.delayed.as_ref().and_then(|delayed| delayed.next_waiting(from));
        self.settled.next_settled(from).into_iter().chain(delayed).min()
    }

    /// The runs of ready messages that were never taken.
    fn fresh(&self) -> impl Iterator<Item = SequenceRange> + '_ {
        self.fresh_from(self.cursor)
    }

    /// The same from a sequence at or above the cursor on.
    fn fresh_from(&self, mut from: Sequence) -> impl Iterator<Item = SequenceRange> + '_ {
        std::iter::from_fn(move || {
            let first = self.next_fresh(from);
            if first >= self.next {
                return None;
            }
            let end = self.next_taken_up(first).unwrap_or(self.next).min(self.next);
            from = end;
            Some(SequenceRange { first, last: Sequence(end.0 - 1) })
        })
    }

    /// # Panics
    /// When an invariant does not hold.
    pub(crate) fn check_invariants(&self, held: &std::collections::BTreeSet<Sequence>) {
        assert!(self.cursor <= self.next, "the cursor passed the next number");
        assert!(
            self.returned.keys().all(|&sequence| sequence < self.cursor),
            "a returned message lies above the cursor"
        );
        assert!(self.counts_ahead.keys().all(|&sequence| sequence >= self.cursor), "a taken message's count was kept");
        let fresh: u64 = self.fresh().map(|range| range.count()).sum();
        assert_eq!(self.count, fresh + self.returned_count() as u64, "the count of ready messages is wrong");
        if let Some(delayed) = &self.delayed {
            delayed.check_invariants(self.cursor);
        }
        if self.cursor < self.clear_until {
            let settled = self.next_taken_up(self.cursor);
            assert!(settled.is_none_or(|settled| settled >= self.clear_until), "a settled number is taken for ready");
        }
        let mut number = self.settled.next_unsettled(Sequence::FIRST);
        let mut outstanding = 0;
        while number < self.cursor {
            let is_delayed = self.delayed.as_ref().is_some_and(|delayed| delayed.standing(number).is_some());
            let places = usize::from(self.returned.contains_key(&number)) + usize::from(held.contains(&number));
            assert_eq!(places + usize::from(is_delayed), 1, "message {} is neither settled nor in one place", number.0);
            outstanding += usize::from(!is_delayed);
            number = self.settled.next_unsettled(number.next());
        }
        assert_eq!(outstanding, held.len() + self.returned.len(), "a settled message is held or returned");
    }
}
