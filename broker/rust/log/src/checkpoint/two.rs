//! Checkpoints of format 2, in sections. See `docs/format.md`, "Checkpoints of format 2".
//!
//! Invariant: a section that is not known here is refused, never skipped.

use penstock_queue::QueueId;

use super::fields::{Fields, ascending, counts, mark_in, put_marks, put_queue, put_u32, put_u64, queue_in};
use crate::fold::FoldState;
use crate::live_segments::{self, LiveSegment};
use crate::record::Position;
use crate::skipped;

const QUEUES: u32 = 1;
const MARKS: u32 = 2;
const EPOCHS: u32 = 3;
const SEGMENTS: u32 = 5;
const SKIPPED: u32 = 6;
const COUNT: u32 = 5;

/// The result of reading the sections of a checkpoint.
pub(super) enum Sections {
    /// All known; the segments that the checkpoint depends on.
    Known(Vec<LiveSegment>),
    /// A newer version wrote one of them.
    Newer,
}

pub(super) fn put(out: &mut Vec<u8>, state: &FoldState, live: &[LiveSegment]) {
    put_u64(out, u64::from(state.highest_queue_id.0));
    put_u32(out, COUNT);
    put_u32(out, 0);
    put_section(out, QUEUES, |out| {
        for (id, queue) in ascending(state) {
            put_u64(out, u64::from(id.0));
            counts(queue).into_iter().for_each(|count| put_u32(out, count));
            put_queue(out, queue);
        }
    });
    put_section(out, MARKS, |out| put_marks(out, state));
    put_section(out, EPOCHS, |out| {
        for (epoch, first) in state.epochs.iter() {
            put_u64(out, epoch);
            put_u64(out, first.0);
        }
    });
    put_section(out, SEGMENTS, |out| out.extend(live_segments::encode(state.position, live)));
    put_section(out, SKIPPED, |out| out.extend(skipped::encode(state)));
}

fn put_section(out: &mut Vec<u8>, kind: u32, put: impl FnOnce(&mut Vec<u8>)) {
    put_u32(out, kind);
    let length_at = out.len();
    put_u64(out, 0);
    put(out);
    let length = (out.len() - length_at - 8) as u64;
    out[length_at..length_at + 8].copy_from_slice(&length.to_le_bytes());
}

/// Reads into a state.
pub(super) fn read(fields: &mut Fields<'_>, state: &mut FoldState) -> Option<Sections> {
    state.highest_queue_id = QueueId(u32::try_from(fields.u64()?).ok()?);
    let count = fields.u32()?;
    fields.u32()?;
    let (mut live, mut skipped) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (kind, length) = (fields.u32()?, usize::try_from(fields.u64()?).ok()?);
        let content = fields.take(length)?;
        match kind {
            QUEUES => queues_in(content, state)?,
            MARKS => marks_in(content, state)?,
            EPOCHS => epochs_in(content, state)?,
            SEGMENTS => live = live_segments::decode(state.position, content),
            SKIPPED => skipped = skipped::decode(state.position, content),
            _ => return Some(Sections::Newer),
        }
    }
    skipped::restore(state, skipped);
    Some(Sections::Known(live))
}

fn queues_in(content: &[u8], state: &mut FoldState) -> Option<()> {
    let mut fields = Fields(content);
    while !fields.0.is_empty() {
        let id = QueueId(u32::try_from(fields.u64()?).ok()?);
        let counts = [fields.u32()?, fields.u32()?];
        state.queues.insert(id, queue_in(&mut fields, counts)?);
    }
    Some(())
}

fn marks_in(content: &[u8], state: &mut FoldState) -> Option<()> {
    let mut fields = Fields(content);
    while !fields.0.is_empty() {
        let [owner, key, value] = mark_in(&mut fields)?;
        state.put_mark(owner, key, value);
    }
    Some(())
}

fn epochs_in(content: &[u8], state: &mut FoldState) -> Option<()> {
    let mut fields = Fields(content);
    while !fields.0.is_empty() {
        let (epoch, first) = (fields.u64()?, fields.u64()?);
        state.epochs.begin(epoch, Position(first));
    }
    Some(())
}
