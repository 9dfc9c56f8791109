//! The ready messages of a queue, without memory for each: a cursor, and the messages returned below it.
//!
//! Unsettled sequences from the cursor up to the next one were never taken since the queue was made or recovered. Only
//! returned messages are kept one by one. This module does not know the consumers.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ack_set::AckSet;
use crate::held::Held;
use crate::ids::{Sequence, SequenceRange};
use crate::settled::{Settled, extend};

/// Invariants:
/// * returned messages are below the cursor, the cursor at or below `next`, delivery counts known beforehand above the
///   cursor;
/// * `count` is the number of returned messages and of unsettled sequences from the cursor up to `next`;
/// * no sequence from the cursor up to `clear_until` is settled.
#[derive(Debug)]
pub(crate) struct Backlog {
    next: Sequence,
    cursor: Sequence,
    /// The first settled sequence at or above the cursor; the largest sequence when there is none.
    clear_until: Sequence,
    settled: AckSet,
    returned: BTreeMap<Sequence, Held>,
    /// Delivery counts from before a start, of messages at or above the cursor.
    counts_ahead: BTreeMap<Sequence, u32>,
    /// Messages below this sequence may have been with a consumer before the start.
    perhaps_delivered_below: Sequence,
    /// Messages below this sequence with an unknown size are not in `bytes`: a purge has removed them.
    counted_from: Sequence,
    count: u64,
    /// Bytes of ready messages, and of taken ones with a size not reported yet.
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

    /// Takes the lowest returned message. All of them are below the fresh ones.
    pub(crate) fn take_returned(&mut self) -> Option<Held> {
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

    /// Takes exactly the ready messages of a range. Messages before them that were never taken are kept one by one from
    /// now on.
    pub(crate) fn take_range(&mut self, range: SequenceRange, out: &mut Vec<Held>) {
        if range.last < range.first {
            return;
        }
        let returned: Vec<Sequence> =
            self.returned.range(range.first..=range.last).map(|(&number, _)| number).collect();
        for message in returned.iter().filter_map(|number| self.returned.remove(number)) {
            self.bytes = self.bytes.saturating_sub(u64::from(message.bytes().unwrap_or(0)));
            self.count -= 1;
            out.push(message);
        }
        while self.cursor <= range.last {
            let wanted = range.last.0.saturating_sub(self.cursor.0).saturating_add(1);
            let Some((run, delivery_count)) = self.take_fresh(wanted) else { return };
            for number in run {
                let message = Held::new(Sequence(number), delivery_count);
                if message.sequence >= range.first {
                    out.push(message);
                } else {
                    self.put_back(message);
                }
            }
        }
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
        for &range in ranges {
            self.settled.insert(range);
        }
    }

    /// The number of messages that are kept one by one.
    pub(crate) fn returned_count(&self) -> usize {
        self.returned.len()
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

    /// Settles all ready messages.
    pub(crate) fn purge(&mut self) -> Settled {
        let mut purged = Settled { count: self.count, bytes: self.bytes, ranges: Vec::new() };
        for &sequence in self.returned.keys() {
            extend(&mut purged.ranges, SequenceRange { first: sequence, last: sequence });
        }
        for range in self.fresh() {
            extend(&mut purged.ranges, range);
        }
        self.settle(&purged.ranges);
        self.returned.clear();
        self.counts_ahead.clear();
        self.cursor = self.next;
        self.pass_settled();
        self.counted_from = self.next;
        self.count = 0;
        self.bytes = 0;
        purged
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

    /// With nothing ready and no size outstanding, the remaining bytes belong to messages whose size was never
    /// reported.
    pub(crate) fn forget_lost_bytes(&mut self) {
        if self.count == 0 {
            self.bytes = 0;
        }
    }

    /// Moves the cursor over settled sequences. They are looked up only where the last look-up said that some begin: in
    /// a running queue, only a purge settles at or above the cursor.
    fn pass_settled(&mut self) {
        if self.cursor < self.clear_until {
            return;
        }
        self.cursor = self.settled.next_unsettled(self.cursor).min(self.next);
        self.clear_until = self.settled.next_settled(self.cursor).unwrap_or(Sequence(u64::MAX));
    }

    /// The runs of ready messages that were never taken.
    fn fresh(&self) -> impl Iterator<Item = SequenceRange> + '_ {
        self.fresh_from(self.cursor)
    }

    /// The same from a sequence at or above the cursor on.
    fn fresh_from(&self, mut from: Sequence) -> impl Iterator<Item = SequenceRange> + '_ {
        std::iter::from_fn(move || {
            let first = self.settled.next_unsettled(from);
            if first >= self.next {
                return None;
            }
            let end = self.settled.next_settled(first).unwrap_or(self.next).min(self.next);
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
        assert_eq!(self.count, fresh + self.returned.len() as u64, "the count of ready messages is wrong");
        if self.cursor < self.clear_until {
            let settled = self.settled.next_settled(self.cursor);
            assert!(settled.is_none_or(|settled| settled >= self.clear_until), "a settled number is taken for ready");
        }
        let mut number = self.settled.next_unsettled(Sequence::FIRST);
        let mut outstanding = 0;
        while number < self.cursor {
            let places = usize::from(self.returned.contains_key(&number)) + usize::from(held.contains(&number));
            assert_eq!(places, 1, "message {} is neither settled nor in exactly one place", number.0);
            outstanding += 1;
            number = self.settled.next_unsettled(number.next());
        }
        assert_eq!(outstanding, held.len() + self.returned.len(), "a settled message is held or returned");
    }
}
