//! Checkpoints of format 1. See `docs/format.md`, "Checkpoints".

use penstock_queue::QueueId;

use super::fields::{Fields, ascending, counts, mark_in, put_mark, put_marks, put_queue, put_u32, queue_in};
use crate::fold::FoldState;
use crate::live_segments::{self, LiveSegment};
use crate::marks::{LIVE_SEGMENTS, SKIPPED};
use crate::skipped;

pub(super) fn put(out: &mut Vec<u8>, state: &FoldState, live: &[LiveSegment]) {
    put_u32(out, state.highest_queue_id.0);
    put_u32(out, state.queues.len() as u32);
    let skipped = skipped::encode(state);
    let lists = usize::from(!live.is_empty()) + usize::from(!skipped.is_empty());
    put_u32(out, (state.marks.len() + state.producers.len() + lists) as u32);
    put_u32(out, 0);
    for (id, queue) in ascending(state) {
        let [ranges, deliveries] = counts(queue);
        for number in [id.0, ranges, deliveries, 0] {
            put_u32(out, number);
        }
        put_queue(out, queue);
    }
    put_marks(out, state);
    if !live.is_empty() {
        put_mark(out, [LIVE_SEGMENTS, &[], &live_segments::encode(state.position, live)]);
    }
    if !skipped.is_empty() {
        put_mark(out, [SKIPPED, &[], &skipped]);
    }
}

/// Reads into a state; returns the segments that it depends on.
pub(super) fn read(fields: &mut Fields<'_>, state: &mut FoldState) -> Option<Vec<LiveSegment>> {
    state.highest_queue_id = QueueId(fields.u32()?);
    let (queues, marks) = (fields.u32()?, fields.u32()?);
    fields.u32()?;
    for _ in 0..queues {
        let [id, ranges, deliveries, _] = [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
        state.queues.insert(QueueId(id), queue_in(fields, [ranges, deliveries])?);
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
