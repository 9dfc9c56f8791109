//! Checkpoints of format 2, in sections. See `docs/format.md`, "Checkpoints of format 2".
//!
//! Invariant: a section, or a kind of settled block, that is not known here is refused, never skipped.

use penstock_queue::{AckSet, QueueId, Sequence};

use super::fields::{
    Fields, ascending, deliveries_in, mark_in, put_deliveries, put_marks, put_totals, put_u32, put_u64, totals_in,
};
use super::windows;
use crate::fold::{FoldState, FoldedQueue};
use crate::live_segments::{self, LiveSegment};
use crate::record::Position;
use crate::settled_blocks::{self, SettledBlocksError};
use crate::skipped;

const QUEUES: u32 = 1;
const MARKS: u32 = 2;
const EPOCHS: u32 = 3;
const SOURCES: u32 = 4;
const SEGMENTS: u32 = 5;
const SKIPPED: u32 = 6;
const DUE: u32 = 7;
const WINDOWS: u32 = 8;
/// Without those that most do not have.
const COUNT: u32 = 5;

/// Why sections cannot be read.
pub(super) enum Unread {
    Corrupt,
    /// A newer version wrote a part of them.
    Newer,
}

pub(super) fn put(out: &mut Vec<u8>, state: &FoldState, live: &[LiveSegment]) {
    put_u64(out, state.highest_queue_id.0);
    let has_due = state.queues.values().any(|queue| !queue.due_at_ms.is_empty());
    let (has_sources, has_windows) = (!state.sources.is_empty(), !state.windows.is_empty());
    put_u32(out, COUNT + u32::from(has_due) + u32::from(has_sources) + u32::from(has_windows));
    put_u32(out, 0);
    put_section(out, QUEUES, |out| {
        for (id, queue) in ascending(state) {
            put_u64(out, id.0);
            let blocks_at = out.len();
            put_u32(out, 0);
            put_u32(out, queue.delivery_counts.len() as u32);
            put_totals(out, queue);
            let blocks = settled_blocks::encode(&queue.settled, out);
            out[blocks_at..blocks_at + 4].copy_from_slice(&blocks.to_le_bytes());
            put_deliveries(out, queue);
        }
    });
    put_section(out, MARKS, |out| put_marks(out, state));
    put_section(out, EPOCHS, |out| {
        for (epoch, first) in state.epochs.iter() {
            put_u64(out, epoch);
            put_u64(out, first.0);
        }
    });
    if has_sources {
        put_section(out, SOURCES, |out| put_sources(out, state));
    }
    put_section(out, SEGMENTS, |out| out.extend(live_segments::encode(state.position, live)));
    put_section(out, SKIPPED, |out| out.extend(skipped::encode(state)));
    if has_due {
        put_section(out, DUE, |out| put_due(out, state));
    }
    if has_windows {
        put_section(out, WINDOWS, |out| windows::encode(&state.windows, out));
    }
}

/// Which messages of other queues were copied into this log.
fn put_sources(out: &mut Vec<u8>, state: &FoldState) {
    let mut sources: Vec<_> = state.sources.iter().collect();
    sources.sort_unstable_by_key(|(id, _)| **id);
    for (id, copied) in sources {
        out.extend_from_slice(&id.to_bytes());
        put_u64(out, copied.below().0);
        let blocks_at = out.len();
        put_u32(out, 0);
        let blocks = settled_blocks::encode(copied, out);
        out[blocks_at..blocks_at + 4].copy_from_slice(&blocks.to_le_bytes());
    }
}

/// When requeued messages may be delivered again.
fn put_due(out: &mut Vec<u8>, state: &FoldState) {
    for (id, queue) in ascending(state) {
        for (sequence, at_ms) in &queue.due_at_ms {
            [id.0, sequence.0, *at_ms].into_iter().for_each(|number| put_u64(out, number));
        }
    }
}

fn put_section(out: &mut Vec<u8>, kind: u32, put: impl FnOnce(&mut Vec<u8>)) {
    put_u32(out, kind);
    let length_at = out.len();
    put_u64(out, 0);
    put(out);
    let length = (out.len() - length_at - 8) as u64;
    out[length_at..length_at + 8].copy_from_slice(&length.to_le_bytes());
}

/// Reads into a state; returns the segments that it depends on.
pub(super) fn read(fields: &mut Fields<'_>, state: &mut FoldState) -> Result<Vec<LiveSegment>, Unread> {
    let count = begin(fields, state).ok_or(Unread::Corrupt)?;
    let (mut live, mut skipped) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (kind, content) = section_in(fields).ok_or(Unread::Corrupt)?;
        match kind {
            QUEUES => queues_in(content, state)?,
            MARKS => marks_in(content, state).ok_or(Unread::Corrupt)?,
            EPOCHS => epochs_in(content, state).ok_or(Unread::Corrupt)?,
            SOURCES => sources_in(content, state)?,
            SEGMENTS => live = live_segments::decode(state.position, content),
            SKIPPED => skipped = skipped::decode(state.position, content),
            DUE => due_in(content, state).ok_or(Unread::Corrupt)?,
            WINDOWS => state.windows = windows::decode(content).ok_or(Unread::Corrupt)?,
            _ => return Err(Unread::Newer),
        }
    }
    skipped::restore(state, skipped);
    Ok(live)
}

/// Returns the number of sections.
fn begin(fields: &mut Fields<'_>, state: &mut FoldState) -> Option<u32> {
    state.highest_queue_id = queue_id_in(fields)?;
    let (count, _reserved) = (fields.u32()?, fields.u32()?);
    Some(count)
}

fn section_in<'a>(fields: &mut Fields<'a>) -> Option<(u32, &'a [u8])> {
    let (kind, length) = (fields.u32()?, usize::try_from(fields.u64()?).ok()?);
    Some((kind, fields.take(length)?))
}

fn queues_in(content: &[u8], state: &mut FoldState) -> Result<(), Unread> {
    let mut fields = Fields(content);
    while !fields.0.is_empty() {
        let (id, [blocks, deliveries], mut queue) = queue_in(&mut fields).ok_or(Unread::Corrupt)?;
        queue.settled = blocks_in(&mut fields, queue.settled.below(), blocks)?;
        deliveries_in(&mut fields, deliveries, &mut queue).ok_or(Unread::Corrupt)?;
        state.queues.insert(id, queue);
    }
    Ok(())
}

/// A queue up to its settled blocks, with the numbers of these and of its delivery counts.
fn queue_in(fields: &mut Fields<'_>) -> Option<(QueueId, [u32; 2], FoldedQueue)> {
    let id = queue_id_in(fields)?;
    Some((id, [fields.u32()?, fields.u32()?], totals_in(fields)?))
}

fn sources_in(content: &[u8], state: &mut FoldState) -> Result<(), Unread> {
    let mut fields = Fields(content);
    while !fields.0.is_empty() {
        let (id, below, blocks) = source_in(&mut fields).ok_or(Unread::Corrupt)?;
        let copied = blocks_in(&mut fields, below, blocks)?;
        state.sources.insert(id, copied);
    }
    Ok(())
}

/// A source up to its blocks: the queue, the sequence below which all were copied, and the number of blocks.
fn source_in(fields: &mut Fields<'_>) -> Option<(QueueId, Sequence, u32)> {
    let id = QueueId::from_bytes(*fields.take(5)?.first_chunk()?);
    Some((id, Sequence(fields.u64()?), fields.u32()?))
}

fn blocks_in(fields: &mut Fields<'_>, below: Sequence, count: u32) -> Result<AckSet, Unread> {
    settled_blocks::decode(&mut fields.0, below, count).map_err(|error| match error {
        SettledBlocksError::UnknownKind { .. } => Unread::Newer,
        _ => Unread::Corrupt,
    })
}

/// The number of a queue, in 8 bytes of which it uses 5.
fn queue_id_in(fields: &mut Fields<'_>) -> Option<QueueId> {
    Some(QueueId(fields.u64()?)).filter(|&id| id <= QueueId::MAX)
}

fn due_in(content: &[u8], state: &mut FoldState) -> Option<()> {
    let mut fields = Fields(content);
    while !fields.0.is_empty() {
        let (id, sequence, at_ms) = (queue_id_in(&mut fields)?, Sequence(fields.u64()?), fields.u64()?);
        state.queues.get_mut(&id)?.due_at_ms.insert(sequence, at_ms);
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
