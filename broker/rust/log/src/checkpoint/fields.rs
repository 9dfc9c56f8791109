//! Fields of checkpoints that both formats have.

use penstock_queue::{QueueId, Sequence};

use crate::fold::{FoldState, FoldedQueue};
use crate::marks::{owner_of_producer, producer_value};
use crate::record::le_u32;

/// The remaining bytes of a checkpoint.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4).map(le_u32)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take(8).map(crate::record::le_u64)
    }
}

pub(super) fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// The queues by their numbers.
pub(super) fn ascending(state: &FoldState) -> Vec<(QueueId, &FoldedQueue)> {
    let mut queues: Vec<_> = state.queues.iter().map(|(&id, queue)| (id, queue)).collect();
    queues.sort_unstable_by_key(|&(id, _)| id);
    queues
}

/// Its next sequence, the smallest unsettled one, and its totals.
pub(super) fn put_totals(out: &mut Vec<u8>, queue: &FoldedQueue) {
    for number in [queue.next.0, queue.settled.below().0, queue.count, queue.bytes] {
        put_u64(out, number);
    }
}

/// A queue with these, and nothing settled above the smallest unsettled sequence.
pub(super) fn totals_in(fields: &mut Fields<'_>) -> Option<FoldedQueue> {
    let next = Sequence(fields.u64()?);
    let queue = FoldedQueue::starting_at(Sequence(fields.u64()?));
    Some(FoldedQueue { next, count: fields.u64()?, bytes: fields.u64()?, ..queue })
}

pub(super) fn put_deliveries(out: &mut Vec<u8>, queue: &FoldedQueue) {
    for (sequence, count) in &queue.delivery_counts {
        put_u64(out, sequence.0);
        put_u32(out, *count);
    }
}

pub(super) fn deliveries_in(fields: &mut Fields<'_>, count: u32, queue: &mut FoldedQueue) -> Option<()> {
    for _ in 0..count {
        queue.delivery_counts.insert(Sequence(fields.u64()?), fields.u32()?);
    }
    Some(())
}

/// The marks of a state, and one for each producer.
pub(super) fn put_marks(out: &mut Vec<u8>, state: &FoldState) {
    for ((owner, key), value) in &state.marks {
        put_mark(out, [owner, key, value]);
    }
    let mut producers: Vec<_> = state.producers.iter().collect();
    producers.sort_unstable();
    for (&id, &sequence) in producers {
        let value = producer_value(sequence, state.batches.get(id));
        put_mark(out, [&owner_of_producer(id), &[], &value]);
    }
}

pub(super) fn put_mark(out: &mut Vec<u8>, parts: [&[u8]; 3]) {
    for part in parts {
        put_u32(out, part.len() as u32);
    }
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Owner, key and value of a mark.
pub(super) fn mark_in<'a>(fields: &mut Fields<'a>) -> Option<[&'a [u8]; 3]> {
    let lengths = [fields.u32()?, fields.u32()?, fields.u32()?];
    let [owner, key, value] = lengths.map(|length| fields.take(length as usize));
    Some([owner?, key?, value?])
}
