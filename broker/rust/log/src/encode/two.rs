//! The fields of records of format 2. See `docs/format.md`, "Records of format 2".

use penstock_queue::{QueueId, Sequence, SequenceRange};

use super::Settlement;
use crate::record::two::{
    FLAG_DUE, FLAG_EXPIRES, FLAG_MORE, FLAG_PRIORITY, MORE_CREATED, MORE_DEDUP, MORE_SOURCE, MORE_TOMBSTONE,
    OUTCOME_REQUEUE_AT, SEQUENCE_MAX,
};
pub(super) use crate::record::two::{RANGE_BYTES, target_number};
use crate::record::{Attributes, Begun, Outcome, TARGET_BYTES, bytes_of};

pub(super) const PRODUCER_BYTES: usize = 22;
pub(super) const QUEUE_BYTES: usize = 5;
pub(super) const EPOCH_BYTES: usize = 9 + TIME_BYTES + 16;
const SETTLE_FIXED_BYTES: usize = 22;
const TIME_BYTES: usize = 6;

pub(super) fn attribute_flags(attributes: &Attributes) -> u8 {
    let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
    flag(attributes.expires_at_ms.is_some(), FLAG_EXPIRES)
        | flag(attributes.due_at_ms.is_some(), FLAG_DUE)
        | flag(attributes.priority.is_some(), FLAG_PRIORITY)
        | flag(more_flags(attributes) != 0, FLAG_MORE)
}

fn more_flags(attributes: &Attributes) -> u16 {
    let flag = |is_there: bool, flag: u16| if is_there { flag } else { 0 };
    flag(attributes.dedup.is_some(), MORE_DEDUP)
        | flag(attributes.source.is_some(), MORE_SOURCE)
        | flag(attributes.created_at_ms.is_some(), MORE_CREATED)
        | flag(attributes.is_tombstone, MORE_TOMBSTONE)
}

/// How many bytes they take, without the producer's epoch, which is a part of the producer.
pub(super) fn attribute_bytes(attributes: &Attributes) -> usize {
    let bytes = |is_there: bool, bytes: usize| if is_there { bytes } else { 0 };
    bytes(attributes.expires_at_ms.is_some(), TIME_BYTES)
        + bytes(attributes.due_at_ms.is_some(), TIME_BYTES)
        + bytes(attributes.priority.is_some(), 1)
        + bytes(more_flags(attributes) != 0, 2)
        + bytes(attributes.dedup.is_some(), 16)
        + bytes(attributes.source.is_some(), TARGET_BYTES)
        + bytes(attributes.created_at_ms.is_some(), TIME_BYTES)
}

pub(super) fn put_attributes(out: &mut Vec<u8>, attributes: &Attributes) {
    attributes.expires_at_ms.into_iter().for_each(|time| put_time(out, time));
    attributes.due_at_ms.into_iter().for_each(|time| put_time(out, time));
    out.extend(attributes.priority);
    let more = more_flags(attributes);
    if more != 0 {
        out.extend_from_slice(&more.to_le_bytes());
    }
    out.extend(attributes.dedup.into_iter().flatten());
    if let Some(source) = &attributes.source {
        out.extend_from_slice(&bytes_of::<TARGET_BYTES>(target_number(source)));
    }
    attributes.created_at_ms.into_iter().for_each(|time| put_time(out, time));
}

pub(super) fn put_queue(out: &mut Vec<u8>, queue: QueueId) {
    out.extend_from_slice(&queue.to_bytes());
}

pub(super) fn settle_fixed_bytes(settlement: &Settlement) -> usize {
    SETTLE_FIXED_BYTES + settlement.due_at_ms.map_or(0, |_| TIME_BYTES)
}

pub(super) fn put_settle(out: &mut Vec<u8>, settlement: &Settlement, ranges: &[SequenceRange]) {
    put_queue(out, settlement.queue);
    out.push(match (settlement.outcome, settlement.due_at_ms) {
        (Outcome::Requeue, Some(_)) => OUTCOME_REQUEUE_AT,
        (outcome, due_at_ms) => {
            debug_assert_eq!(due_at_ms.is_some(), outcome == Outcome::Return, "only these have a time");
            outcome.code()
        }
    });
    settlement.due_at_ms.into_iter().for_each(|time| put_time(out, time));
    out.extend_from_slice(&settlement.count.to_le_bytes());
    out.extend_from_slice(&settlement.bytes.to_le_bytes());
    for range in ranges {
        put_sequence(out, range.first);
        put_sequence(out, range.last);
    }
}

pub(super) fn put_begun(out: &mut Vec<u8>, begun: Begun) {
    put_time(out, begun.at_ms);
    out.extend_from_slice(&begun.leader);
}

/// A sequence of a range, which may end above all that there are.
fn put_sequence(out: &mut Vec<u8>, sequence: Sequence) {
    let bytes = sequence.0.min(SEQUENCE_MAX).to_le_bytes();
    out.extend_from_slice(&bytes[..7]);
}

fn put_time(out: &mut Vec<u8>, time: u64) {
    out.extend_from_slice(&time.to_le_bytes()[..TIME_BYTES]);
}
