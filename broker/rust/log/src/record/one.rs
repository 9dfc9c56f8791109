//! The fields of records of format 1. See `docs/format.md`, "Records".

use std::num::{NonZeroU32, NonZeroU64};

use penstock_queue::{QueueId, Sequence, SequenceRange};

use super::fields::{Fields, Optional, key_in};
use super::{
    DecodeError, EpochView, FLAG_KEY, FLAG_LONG_PROPERTIES, FLAG_PRODUCER, Outcome, Producer, SettleView, TARGET_BYTES,
    Target, le_u32, le_u64,
};
use crate::format::Format;

pub(crate) const RANGE_BYTES: usize = 16;

const FLAG_EXPIRES: u8 = 1 << 3;
const FLAG_DUE: u8 = 1 << 4;
const FLAG_PRIORITY: u8 = 1 << 5;
const FLAG_UNKNOWN: u8 = 1 << 7;

#[inline]
pub(super) fn target(bytes: &[u8; TARGET_BYTES]) -> Target {
    let (queue, sequence) = bytes.split_at(4);
    Target { queue: QueueId(u64::from(le_u32(queue))), sequence: Sequence(le_u64(sequence)) }
}

/// A target as a number of [`TARGET_BYTES`] bytes.
#[inline]
pub(crate) fn target_number(target: &Target) -> u128 {
    u128::from(u32::from_le_bytes(queue_bytes(target.queue))) | u128::from(target.sequence.0) << 32
}

pub(super) fn range(bytes: &[u8]) -> Option<SequenceRange> {
    let (first, last) = bytes.split_at(8);
    SequenceRange::new(Sequence(le_u64(first)), Sequence(le_u64(last)))
}

/// The parts that have a use. The reserved ones are skipped to find what follows.
pub(super) fn optional_in<'a>(head: &mut Fields<'a>, flags: u8) -> Result<Optional<'a>, DecodeError> {
    if flags & FLAG_UNKNOWN != 0 {
        return Err(DecodeError::Flags);
    }
    let mut found = Optional::default();
    if flags & FLAG_LONG_PROPERTIES != 0 {
        found.properties_bytes = Some(head.u32()?);
    }
    if flags & FLAG_KEY != 0 {
        found.key = Some(key_in(head)?);
    }
    if flags & FLAG_PRODUCER != 0 {
        let (id, digest, sequence) = (head.u64()?, head.u32()?, head.u64()?);
        found.producer = NonZeroU64::new(id).map(|id| Producer { id, sequence });
        found.batch_digest = NonZeroU32::new(digest);
    }
    for (flag, bytes) in [(FLAG_EXPIRES, 8), (FLAG_DUE, 8), (FLAG_PRIORITY, 1)] {
        if flags & flag != 0 {
            head.take(bytes)?;
        }
    }
    Ok(found)
}

pub(super) fn queue_in(head: &mut Fields<'_>) -> Result<QueueId, DecodeError> {
    Ok(QueueId(u64::from(head.u32()?)))
}

/// The number of a queue: in a log of format 1 it has 32 bits.
pub(crate) fn queue_bytes(queue: QueueId) -> [u8; 4] {
    let [bytes @ .., high] = queue.to_bytes();
    debug_assert_eq!(high, 0);
    bytes
}

pub(super) fn settle_in<'a>(head: &mut Fields<'a>, count: usize) -> Result<SettleView<'a>, DecodeError> {
    let queue = queue_in(head)?;
    let outcome = Outcome::from_code(head.u8()?)?;
    let (settled, bytes) = (head.u64()?, head.u64()?);
    let ranges = head.take(count * RANGE_BYTES)?;
    Ok(SettleView { queue, outcome, count: settled, bytes, due_at_ms: None, ranges, format: Format::One })
}

pub(super) fn epoch_in(head: &mut Fields<'_>) -> Result<EpochView, DecodeError> {
    let (epoch, raise) = (head.u64()?, head.u8()?);
    Ok(EpochView { epoch, raises: u8::from(raise != 0), begun: None })
}
