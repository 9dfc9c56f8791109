//! Checkpoints of format 1. See `docs/format.md`, "Checkpoints".

use penstock_queue::{QueueId, Sequence, SequenceRange};

use super::fields::{
    Fields, ascending, deliveries_in, mark_in, put_deliveries, put_mark, put_marks, put_totals, put_u32, put_u64,
    totals_in,
};
use crate::fold::FoldState;
use crate::live_segments::{self, LiveSegment};
use crate::marks::{LIVE_SEGMENTS, SKIPPED};
use crate::record::one::queue_bytes;
use crate::skipped;

pub(super) fn put(out: &mut Vec<u8>, state: &FoldState, live: &[LiveSegment]) {
    put_queue(out, state.highest_queue_id);
    put_u32(out, state.queues.len() as u32);
    let skipped = skipped::encode(state);
    let lists = usize::from(!live.is_empty()) + usize::from(!skipped.is_empty());
    put_u32(out, (state.marks.len() + state.producers.len() + lists) as u32);
    put_u32(out, 0);
    for (id, queue) in ascending(state) {
        let (ranges, deliveries) = (queue.settled.ranges().count() as u32, queue.delivery_counts.len() as u32);
        put_queue(out, id);
        for number in [ranges, deliveries, 0] {
            put_u32(out, number);
        }
        put_totals(out, queue);
        for range in queue.settled.ranges() {
            put_u64(out, range.first.0);
            put_u64(out, range.last.0);
        }
        put_deliveries(out, queue);
    }
    put_marks(out, state);
    if !live.is_empty() {
        put_mark(out, [LIVE_SEGMENTS, &[], &live_segments::encode(state.position, live)]);
    }
    if !skipped.is_empty() {
        put_mark(out, [SKIPPED, &[], &skipped]);
    }
}

fn put_queue(out: &mut Vec<u8>, queue: QueueId) {
    out.extend_from_slice(&queue_bytes(queue));
}

/// Reads into a state; returns the segments that it depends on.
pub(super) fn read(fields: &mut Fields<'_>, state: &mut FoldState) -> Option<Vec<LiveSegment>> {
    state.highest_queue_id = QueueId(u64::from(fields.u32()?));
    let (queues, marks) = (fields.u32()?, fields.u32()?);
    fields.u32()?;
    for _ in 0..queues {
        let [id, ranges, deliveries, _] = [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
        let mut queue = totals_in(fields)?;
        for _ in 0..ranges {
            queue.settled.insert(SequenceRange::new(Sequence(fields.u64()?), Sequence(fields.u64()?))?);
        }
        deliveries_in(fields, deliveries, &mut queue)?;
        state.queues.insert(QueueId(u64::from(id)), queue);
    }
    let (mut live, mut skipped) = (Vec::new(), Vec::new());
    for _ in 0..marks {
        let [owner, key, value] = mark_in(fields)?;
        if owner == LIVE_SEGMENTS {
            live = live_segments::decode(state.position, value);
        } else if owner == SKIPPED {
            skipped = skipped::decode(state.position, value);
        } else {
            state.put_mark(owner, key, value);
        }
    }
    skipped::restore(state, skipped);
    Some(live)
}
