//! The state of every queue at one position of the log, and how a record moves that position.
//!
//! Invariants: the state depends on the records alone, so folding from the beginning, from a checkpoint, or while the
//! broker runs has the same result. It knows no file, no clock and no live queue.

use std::collections::BTreeMap;

use penstock_queue::{AckSet, QueueId, Sequence, SequenceRange, Window};
use rustc_hash::FxHashMap;

use crate::batches::ProducerBatches;
use crate::epochs::Epochs;
use crate::marks::{self, ProducerMark};
use crate::record::{Outcome, Outline, Position, Record, SettleView, Target};
use crate::windows;

/// How far a raise moves a queue's next sequence: further than any start can have assigned without storing.
pub const RAISE: u64 = 1 << 32;

/// One queue in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedQueue {
    /// The sequence of the next message.
    pub next: Sequence,
    /// Settled sequences, and skipped ones.
    pub settled: AckSet,
    /// How many sequences below `next` raises skipped: no message had them.
    pub skipped: u64,
    /// Messages stored and not settled.
    pub count: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// How often each of them was requeued; messages that were never requeued are absent.
    pub delivery_counts: BTreeMap<Sequence, u32>,
    /// When those of them may be delivered again that were requeued or returned at a time.
    pub due_at_ms: BTreeMap<Sequence, u64>,
}

/// All queues at `position`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldState {
    pub position: Position,
    pub epoch: u64,
    /// The epochs that began in format 2.
    pub epochs: Epochs,
    pub queues: FxHashMap<QueueId, FoldedQueue>,
    /// The highest id of a declaration that any record named, deleted queues included.
    pub highest_queue_id: QueueId,
    /// The first sequence of a queue that no record named yet; raises move it with the others.
    pub first_sequence: Sequence,
    /// Values that owners keep under keys.
    pub marks: BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>,
    /// The highest stored sequence of each producer.
    pub producers: FxHashMap<u64, u64>,
    /// The last batches of producers that number them.
    pub batches: ProducerBatches,
    /// Of each queue whose messages were copied into this log: the sequences of those that were.
    pub sources: FxHashMap<QueueId, AckSet>,
    /// The ids that queues and exchanges have seen, by the owners of their marks.
    pub windows: FxHashMap<Vec<u8>, Window>,
}

impl Default for FoldState {
    fn default() -> Self {
        FoldState {
            position: Position(0),
            epoch: 0,
            epochs: Epochs::default(),
            queues: FxHashMap::default(),
            highest_queue_id: QueueId(0),
            first_sequence: Sequence::FIRST,
            marks: BTreeMap::new(),
            producers: FxHashMap::default(),
            batches: ProducerBatches::default(),
            sources: FxHashMap::default(),
            windows: FxHashMap::default(),
        }
    }
}

impl FoldedQueue {
    /// A queue whose first message will have the sequence `first`.
    #[must_use]
    pub fn starting_at(first: Sequence) -> Self {
        FoldedQueue {
            next: first,
            settled: AckSet::starting_at(first),
            skipped: first.0.saturating_sub(Sequence::FIRST.0),
            count: 0,
            bytes: 0,
            delivery_counts: BTreeMap::new(),
            due_at_ms: BTreeMap::new(),
        }
    }

    /// How many messages got a sequence so far, also lost ones.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.next.0.saturating_sub(Sequence::FIRST.0).saturating_sub(self.skipped)
    }

    fn stored(&mut self, sequence: Sequence, body_bytes: u64) {
        if sequence >= self.next {
            self.skip_lost(sequence);
            self.next = sequence.next();
        } else if self.settled.contains(sequence) {
            // Skipped by a raise: the start that wrote it could read less of the log, raised from a lower sequence, and
            // assigned this one. A record comes before its settlement, so nothing else has settled it.
            self.settled.remove(sequence);
            self.skipped = self.skipped.saturating_sub(1);
        } else {
            return;
        }
        self.count += 1;
        self.bytes = self.bytes.saturating_add(body_bytes);
    }

    /// Skips sequences whose records are missing: those of messages, except as many as raises among them skipped, which is
    /// more than starts assign between two raises.
    fn skip_lost(&mut self, next: Sequence) {
        self.skipped = self.skipped.saturating_add((next.0 - self.next.0) / RAISE * RAISE);
        self.skip_to(next);
    }

    fn raise(&mut self) {
        let next = Sequence(self.next.0.saturating_add(RAISE));
        self.skipped = self.skipped.saturating_add(next.0 - self.next.0);
        self.skip_to(next);
    }

    fn skip_to(&mut self, next: Sequence) {
        if next > self.next
            && let Some(skipped) = SequenceRange::new(self.next, Sequence(next.0 - 1))
        {
            self.settled.insert(skipped);
            self.next = next;
        }
    }

    fn settle(&mut self, settle: &SettleView<'_>) {
        let is_back = matches!(settle.outcome, Outcome::Requeue | Outcome::Return);
        for range in settle.ranges() {
            let last = Sequence(range.last.0.min(self.next.0.saturating_sub(1)));
            let Some(range) = SequenceRange::new(range.first, last) else { continue };
            if is_back {
                self.take_back(range, settle);
                continue;
            }
            self.settled.insert(range);
            forget(&mut self.delivery_counts, range);
            forget(&mut self.due_at_ms, range);
        }
        if !is_back {
            self.count = self.count.saturating_sub(settle.count);
            self.bytes = self.bytes.saturating_sub(settle.bytes);
        }
    }

    fn take_back(&mut self, range: SequenceRange, settle: &SettleView<'_>) {
        let mut sequence = self.settled.next_unsettled(range.first);
        while sequence <= range.last {
            if settle.outcome == Outcome::Requeue {
                let count = self.delivery_counts.entry(sequence).or_insert(0);
                *count = count.saturating_add(1);
            }
            match settle.due_at_ms {
                Some(due_at_ms) => drop(self.due_at_ms.insert(sequence, due_at_ms)),
                None => drop(self.due_at_ms.remove(&sequence)),
            }
            sequence = self.settled.next_unsettled(sequence.next());
        }
    }
}

fn forget<T>(of: &mut BTreeMap<Sequence, T>, range: SequenceRange) {
    while let Some((&sequence, _)) = of.range(range.first..=range.last).next() {
        of.remove(&sequence);
    }
}

impl FoldState {
    /// Moves the position past one record that ends at `end`: an envelope as a whole.
    pub fn apply(&mut self, record: &Record<'_>, end: Position) {
        self.take(record);
        self.position = end;
    }

    fn take(&mut self, record: &Record<'_>) {
        match record {
            Record::Message(message) => {
                let body_bytes = message.body.len() as u64;
                for target in message.targets() {
                    self.stored(target, body_bytes);
                }
                if let Some(source) = message.source() {
                    self.sources.entry(source.queue).or_default().insert(SequenceRange::of(source.sequence));
                }
                if let Some(producer) = message.producer {
                    let highest = self.producers.entry(producer.id.get()).or_default();
                    *highest = producer.sequence.max(*highest);
                    if let Some(digest) = message.batch_digest {
                        self.batches.stored(producer.id.get(), producer.sequence, digest);
                    }
                }
            }
            Record::Settle(settle) => {
                self.name(settle.queue);
                if let Some(queue) = self.queues.get_mut(&settle.queue) {
                    queue.settle(settle);
                }
            }
            Record::Delete(queue) => {
                self.name(*queue);
                self.queues.remove(queue);
                self.sources.remove(queue);
                self.windows.remove(&*marks::owner_of_window(*queue));
                marks::forget_queue(&mut self.marks, *queue);
            }
            Record::Mark(mark) => self.put_mark(mark.owner, mark.key, mark.value),
            Record::Epoch(begun) => {
                self.epoch = self.epoch.max(begun.epoch);
                if begun.begun.is_some() {
                    self.epochs.begin(begun.epoch, self.position);
                }
                (0..begun.raises).for_each(|_| self.raise());
            }
            Record::Envelope(envelope) => envelope.records().for_each(|(_, decoded)| self.take(&decoded.record)),
        }
    }

    /// Moves the position past a message that ends at `end`, of which only the outline was read.
    pub(crate) fn apply_outline(&mut self, outline: &Outline<'_>, end: Position) {
        for target in outline.targets() {
            self.stored(target, outline.body_bytes);
        }
        self.position = end;
    }

    /// Counts a message as stored whose record cannot be read any more: its sequence was assigned and is never assigned
    /// again.
    pub(crate) fn apply_unreadable(&mut self, target: Target) {
        self.stored(target, 0);
    }

    /// The last value counts; an empty one removes the key.
    pub(crate) fn put_mark(&mut self, owner: &[u8], key: &[u8], value: &[u8]) {
        if windows::is_window(owner) {
            windows::put(&mut self.windows, owner, key, value);
        } else if let Some((id, producer)) = marks::producer_in(owner, value) {
            self.put_producer(id, producer);
        } else if let Some((source, below)) = marks::copied_in(owner, value) {
            let copied = self.sources.entry(source).or_default();
            copied.insert(SequenceRange { first: Sequence::FIRST, last: Sequence(below.saturating_sub(1)) });
        } else if value.is_empty() {
            self.marks.remove(&(owner.to_vec(), key.to_vec()));
        } else {
            self.marks.insert((owner.to_vec(), key.to_vec()), value.to_vec());
        }
    }

    fn put_producer(&mut self, id: u64, producer: Option<ProducerMark>) {
        let Some(ProducerMark { highest, batches }) = producer else {
            self.producers.remove(&id);
            self.batches.remove(id);
            return;
        };
        self.producers.insert(id, highest);
        if let Some(batches) = batches {
            self.batches.insert(id, batches);
        }
    }

    /// Whether any of `count` sequences from `first` on is not settled.
    #[must_use]
    pub fn has_live(&self, queue: QueueId, first: Sequence, count: u64) -> bool {
        let end = first.0.saturating_add(count);
        self.queues.get(&queue).is_some_and(|queue| queue.settled.next_unsettled(first).0 < end)
    }

    /// Recounts the unsettled messages: where records were lost, the totals of settlements include messages never seen,
    /// and where they are back, two may include the same messages.
    pub(crate) fn recount(&mut self) {
        for queue in self.queues.values_mut() {
            let mut count = 0;
            let mut from = queue.settled.next_unsettled(Sequence(0));
            while from < queue.next {
                let end = queue.settled.next_settled(from).unwrap_or(queue.next).min(queue.next);
                count += end.0 - from.0;
                from = queue.settled.next_unsettled(end);
            }
            queue.count = count;
            if count == 0 {
                queue.bytes = 0;
            }
        }
    }

    /// The unsettled runs among `count` sequences from `first` on, ascending.
    pub(crate) fn live_runs(
        &self,
        queue: QueueId,
        first: Sequence,
        count: u64,
    ) -> impl Iterator<Item = SequenceRange> + '_ {
        let settled = self.queues.get(&queue).map(|queue| &queue.settled);
        let end = first.0.saturating_add(count);
        let mut at = first;
        std::iter::from_fn(move || {
            let from = settled?.next_unsettled(at);
            if from.0 >= end {
                return None;
            }
            at = settled?.next_settled(from).map_or(Sequence(end), |next| Sequence(next.0.min(end)));
            SequenceRange::new(from, Sequence(at.0.saturating_sub(1)))
        })
    }

    /// How many of them there are.
    pub(crate) fn live_count(&self, queue: QueueId, first: Sequence, count: u64) -> u64 {
        self.live_runs(queue, first, count).map(|run| run.count()).sum()
    }

    fn stored(&mut self, target: Target, body_bytes: u64) {
        self.name(target.queue);
        let first = self.first_sequence;
        let queue = self.queues.entry(target.queue).or_insert_with(|| FoldedQueue::starting_at(first));
        queue.stored(target.sequence, body_bytes);
    }

    fn name(&mut self, queue: QueueId) {
        if queue <= QueueId::DECLARED_MAX {
            self.highest_queue_id = self.highest_queue_id.max(queue);
        }
    }

    fn raise(&mut self) {
        self.first_sequence = Sequence(self.first_sequence.0.saturating_add(RAISE));
        self.queues.values_mut().for_each(FoldedQueue::raise);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::encode::{
        Payload, Settlement, Stamp, encode_delete, encode_epoch, encode_mark, encode_message, encode_settle,
    };
    use crate::format::Coding;
    use crate::record::{EpochView, MarkView, Producer, decode_record};

    const QUEUE: QueueId = QueueId(4);

    fn apply(state: &mut FoldState, encode: impl FnOnce(&mut Vec<u8>, Stamp)) {
        let mut bytes = Vec::new();
        let position = state.position;
        encode(&mut bytes, Stamp { position, coding: Coding::of_segment(9), enclosed: 0 });
        let decoded = decode_record(&bytes, Coding::of_segment(9)).unwrap();
        state.apply(&decoded.record, Position(position.0 + bytes.len() as u64));
    }

    fn store(state: &mut FoldState, sequence: u64) {
        let payload = Payload::new(b"", b"", b"", b"12345").unwrap();
        let target = Target { queue: QUEUE, sequence: Sequence(sequence) };
        apply(state, |out, stamp| encode_message(out, stamp, &payload, 1, &[target]));
    }

    fn settle(state: &mut FoldState, outcome: Outcome, first: u64, last: u64) {
        let count = last - first + 1;
        let settlement = Settlement { queue: QUEUE, outcome, count, bytes: 5 * count, due_at_ms: None };
        let range = SequenceRange::new(Sequence(first), Sequence(last)).unwrap();
        apply(state, |out, stamp| encode_settle(out, stamp, settlement, &[range]));
    }

    #[test]
    fn a_raise_moves_every_next_number_and_that_of_queues_to_come() {
        let mut state = FoldState::default();
        store(&mut state, 1);
        store(&mut state, 2);

        apply(&mut state, |out, stamp| encode_epoch(out, stamp, &EpochView::of_one(1, true)));

        let queue = &state.queues[&QUEUE];
        assert_eq!(queue.next, Sequence(3 + RAISE));
        assert_eq!(queue.settled.next_unsettled(Sequence(3)), queue.next, "the numbers passed over are settled");
        assert!(!queue.settled.contains(Sequence(2)));
        assert_eq!(state.first_sequence, Sequence(1 + RAISE));
        assert_eq!(state.epoch, 1);
    }

    #[test]
    fn messages_that_ever_had_a_sequence_are_counted_and_skipped_sequences_are_not() {
        let mut state = FoldState::default();
        let received = |state: &FoldState| state.queues[&QUEUE].received();
        store(&mut state, 1);
        store(&mut state, 2);
        assert_eq!(received(&state), 2);

        settle(&mut state, Outcome::Drop, 1, 2);
        apply(&mut state, |out, stamp| encode_epoch(out, stamp, &EpochView::of_one(1, true)));
        assert_eq!(received(&state), 2, "a raise counts nothing, and a settlement takes nothing back");
        store(&mut state, 3 + RAISE);
        assert_eq!(received(&state), 3);

        store(&mut state, 9 + RAISE);
        assert_eq!(received(&state), 9, "five records are missing, and their messages had sequences");
        store(&mut state, 12 + 3 * RAISE);
        assert_eq!(received(&state), 12, "two are missing, and the records of two raises");
    }

    #[test]
    fn a_sequence_that_a_raise_skipped_counts_once_a_message_has_it() {
        let mut state = FoldState::default();
        (1..=5).for_each(|sequence| store(&mut state, sequence));
        apply(&mut state, |out, stamp| encode_epoch(out, stamp, &EpochView::of_one(1, true)));

        // The start that raised had found three of the five messages.
        (4..=7).for_each(|sequence| store(&mut state, sequence + RAISE));

        assert_eq!(state.queues[&QUEUE].received(), 9);
        assert_eq!(state.queues[&QUEUE].count, 9);
    }

    #[test]
    fn a_queue_that_is_new_after_a_raise_has_received_nothing_before() {
        let mut state = FoldState::default();
        apply(&mut state, |out, stamp| encode_epoch(out, stamp, &EpochView::of_one(1, true)));
        store(&mut state, 1 + RAISE);

        assert_eq!(state.queues[&QUEUE].received(), 1);
    }

    #[test]
    fn numbers_that_were_skipped_count_as_settled() {
        let mut state = FoldState::default();
        store(&mut state, 1);
        store(&mut state, 5);

        let queue = &state.queues[&QUEUE];
        assert_eq!((queue.count, queue.bytes), (2, 10));
        assert!(state.has_live(QUEUE, Sequence(5), 1));
        assert!(!state.has_live(QUEUE, Sequence(2), 3));
    }

    #[test]
    fn a_requeue_counts_a_delivery_and_an_ack_forgets_it() {
        let mut state = FoldState::default();
        store(&mut state, 1);
        store(&mut state, 2);

        settle(&mut state, Outcome::Requeue, 1, 2);
        settle(&mut state, Outcome::Requeue, 2, 2);
        assert_eq!(state.queues[&QUEUE].delivery_counts, [(Sequence(1), 1), (Sequence(2), 2)].into());
        assert_eq!(state.queues[&QUEUE].count, 2);

        settle(&mut state, Outcome::Ack, 2, 2);
        assert_eq!(state.queues[&QUEUE].delivery_counts, [(Sequence(1), 1)].into());
        assert_eq!((state.queues[&QUEUE].count, state.queues[&QUEUE].bytes), (1, 5));
    }

    #[test]
    fn what_lives_of_a_run_is_told_by_its_own_runs() {
        let mut state = FoldState::default();
        for sequence in 1..=20 {
            store(&mut state, sequence);
        }
        settle(&mut state, Outcome::Ack, 1, 3);
        settle(&mut state, Outcome::Ack, 6, 7);
        settle(&mut state, Outcome::Ack, 15, 15);

        let runs = |first, count| {
            let runs = state.live_runs(QUEUE, Sequence(first), count);
            runs.map(|run| (run.first.0, run.last.0)).collect::<Vec<_>>()
        };

        assert_eq!(runs(1, 10), [(4, 5), (8, 10)]);
        assert_eq!(runs(5, 16), [(5, 5), (8, 14), (16, 20)]);
        assert_eq!(runs(6, 2), []);
        assert_eq!(state.live_count(QUEUE, Sequence(1), 20), 14);
        assert_eq!(state.live_count(QueueId(99), Sequence(1), 20), 0);
    }

    #[test]
    fn the_last_mark_counts_and_an_empty_one_forgets() {
        let mut state = FoldState::default();
        let mut put = |value: &[u8]| {
            let owner = marks::owner_of_groups(QUEUE);
            let mark = MarkView { owner: &owner, key: b"group", value };
            apply(&mut state, |out, stamp| encode_mark(out, stamp, &mark));
            state.marks.values().cloned().collect::<Vec<_>>()
        };

        assert_eq!(put(b"1"), [b"1"]);
        assert_eq!(put(b"2"), [b"2"]);
        assert!(put(b"").is_empty());
    }

    #[test]
    fn the_marks_of_groups_and_leases_go_with_their_queue() {
        let mut state = FoldState::default();
        for queue in [QUEUE, QueueId(QUEUE.0 + 1)] {
            for owner in [marks::owner_of_groups(queue), marks::owner_of_leases(queue)] {
                let mark = MarkView { owner: &owner, key: b"name", value: b"1" };
                apply(&mut state, |out, stamp| encode_mark(out, stamp, &mark));
            }
        }

        apply(&mut state, |out, stamp| encode_delete(out, stamp, QUEUE));

        let owners: Vec<_> = state.marks.keys().map(|(owner, _)| owner.clone()).collect();
        let other = QueueId(QUEUE.0 + 1);
        assert_eq!(owners, [marks::owner_of_groups(other).to_vec(), marks::owner_of_leases(other).to_vec()]);
    }

    #[test]
    fn the_highest_number_of_a_producer_is_kept() {
        let mut state = FoldState::default();
        for (at, sequence) in (1..).zip([5, 9, 7]) {
            let producer = Producer { id: 3.try_into().unwrap(), sequence };
            let payload = Payload::new(b"", b"", b"", b"12345").unwrap().with_producer(producer);
            let target = Target { queue: QUEUE, sequence: Sequence(at) };
            apply(&mut state, |out, stamp| encode_message(out, stamp, &payload, 1, &[target]));
        }

        assert_eq!(state.producers.iter().collect::<Vec<_>>(), [(&3, &9)]);

        let mark = MarkView { owner: &marks::owner_of_producer(3), key: b"", value: b"" };
        apply(&mut state, |out, stamp| encode_mark(out, stamp, &mark));

        assert!(state.producers.is_empty());
        assert_eq!(state.queues[&QUEUE].count, 3);
    }

    #[test]
    fn settling_beyond_the_last_number_settles_nothing_to_come() {
        let mut state = FoldState::default();
        store(&mut state, 1);

        settle(&mut state, Outcome::Ack, 1, 1000);
        store(&mut state, 2);

        assert!(state.has_live(QUEUE, Sequence(2), 1));
    }

    #[test]
    fn settling_a_queue_that_is_gone_does_not_bring_it_back() {
        let mut state = FoldState::default();

        settle(&mut state, Outcome::Ack, 1, 1);

        assert!(state.queues.is_empty());
        assert_eq!(state.highest_queue_id, QUEUE);
    }
}
