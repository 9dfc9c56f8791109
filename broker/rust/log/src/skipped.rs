//! How many sequences raises skipped, in a checkpoint. See `docs/format.md`, "Checkpoints".
//!
//! A raise moves a queue's next sequence by a fixed step, so the number of skipped ones follows from the next sequence,
//! except for a queue with more messages than a step, and one where a later start found more of the log. Only these are
//! listed, so that a checkpoint of many queues is no larger.

use penstock_queue::{QueueId, Sequence};

use crate::fold::{FoldState, RAISE};
use crate::record::{Position, le_u64};

/// The lower four bytes of the queue, seven of the skipped sequences, and the queue's highest byte: as in format 1,
/// where the highest byte of either is 0.
const ENTRY_BYTES: usize = 12;

/// The steps below a sequence.
fn usual(next: Sequence) -> u64 {
    next.0.saturating_sub(Sequence::FIRST.0) / RAISE * RAISE
}

/// The list for a checkpoint; empty when there is nothing to list.
pub(crate) fn encode(state: &FoldState) -> Vec<u8> {
    let unusual = state.queues.iter().filter(|(_, queue)| queue.skipped != usual(queue.next));
    let mut listed: Vec<(QueueId, u64)> = unusual.map(|(&id, queue)| (id, queue.skipped)).collect();
    if listed.is_empty() {
        return Vec::new();
    }
    listed.sort_unstable();
    let mut out = state.position.0.to_le_bytes().to_vec();
    for (id, skipped) in listed {
        let [low @ .., high] = id.to_bytes();
        out.extend_from_slice(&low);
        out.extend_from_slice(&skipped.to_le_bytes()[..7]);
        out.push(high);
    }
    out
}

/// The listed queues. A list of another position is an older one, which a version that does not know it copied.
pub(crate) fn decode(position: Position, value: &[u8]) -> Vec<(QueueId, u64)> {
    let Some((_, entries)) = value.split_at_checked(8).filter(|(at, _)| le_u64(at) == position.0) else {
        return Vec::new();
    };
    let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
    let entry = |&[q0, q1, q2, q3, s0, s1, s2, s3, s4, s5, s6, q4]: &[u8; ENTRY_BYTES]| {
        (QueueId::from_bytes([q0, q1, q2, q3, q4]), u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, 0]))
    };
    entries.iter().map(entry).collect()
}

/// Sets the numbers of a decoded state.
pub(crate) fn restore(state: &mut FoldState, listed: Vec<(QueueId, u64)>) {
    for queue in state.queues.values_mut() {
        queue.skipped = usual(queue.next);
    }
    for (id, skipped) in listed {
        if let Some(queue) = state.queues.get_mut(&id) {
            queue.skipped = skipped;
        }
    }
}
