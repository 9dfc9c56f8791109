//! The fields of records of format 2. See `docs/format.md`, "Records of format 2".
//!
//! Invariant: a flag or an outcome that is not known here is refused, never skipped.

use std::num::{NonZeroU32, NonZeroU64};

use penstock_queue::{QueueId, Sequence, SequenceRange};

use super::fields::{Fields, Optional, key_in};
use super::{
    Begun, DecodeError, EpochView, FLAG_KEY, FLAG_LONG_PROPERTIES, FLAG_PRODUCER, Outcome, Producer, SettleView,
    TARGET_BYTES, Target,
};
use crate::deadlines::Times;
use crate::format::Format;

pub(crate) const FLAG_EXPIRES: u8 = 1 << 3;
pub(crate) const FLAG_DUE: u8 = 1 << 4;
pub(crate) const FLAG_PRIORITY: u8 = 1 << 5;
pub(crate) const FLAG_ORIGINAL: u8 = 1 << 6;
pub(crate) const FLAG_MORE: u8 = 1 << 7;

pub(crate) const MORE_DEDUP: u16 = 1;
pub(crate) const MORE_SOURCE: u16 = 1 << 1;
pub(crate) const MORE_CREATED: u16 = 1 << 2;
pub(crate) const MORE_TOMBSTONE: u16 = 1 << 3;
const MORE_KNOWN: u16 = MORE_DEDUP | MORE_SOURCE | MORE_CREATED | MORE_TOMBSTONE;

/// Requeued messages are not to be delivered before a time.
pub(crate) const OUTCOME_REQUEUE_AT: u8 = 5;
pub(crate) const OUTCOME_RETURN_AT: u8 = 6;
/// Sequences have 56 bits.
pub(crate) const SEQUENCE_MAX: u64 = (1 << 56) - 1;
pub(crate) const RANGE_BYTES: usize = 14;
const TIME_BYTES: usize = 6;
/// Id, epoch, digest and sequence of a producer.
const PRODUCER_BYTES: usize = 22;

#[inline]
pub(super) fn target(&[q0, q1, q2, q3, q4, s0, s1, s2, s3, s4, s5, s6]: &[u8; TARGET_BYTES]) -> Target {
    let queue = QueueId::from_bytes([q0, q1, q2, q3, q4]);
    Target { queue, sequence: Sequence(u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, 0])) }
}

/// A target as a number of [`TARGET_BYTES`] bytes. Both of its numbers are within their bounds.
#[inline]
pub(crate) fn target_number(target: &Target) -> u128 {
    u128::from(target.queue.0 & QueueId::MAX.0) | u128::from(target.sequence.0 & SEQUENCE_MAX) << 40
}

pub(super) fn range(bytes: &[u8]) -> Option<SequenceRange> {
    let &[a, b, c, d, e, f, g, h, i, j, k, l, m, n] = bytes.first_chunk::<RANGE_BYTES>()?;
    let [first, last] = [[a, b, c, d, e, f, g, 0], [h, i, j, k, l, m, n, 0]].map(u64::from_le_bytes);
    SequenceRange::new(Sequence(first), Sequence(last))
}

pub(super) fn optional_in<'a>(head: &mut Fields<'a>, flags: u8) -> Result<Optional<'a>, DecodeError> {
    let mut found = Optional::default();
    let has = |flag: u8| flags & flag != 0;
    if has(FLAG_LONG_PROPERTIES) {
        found.properties_bytes = Some(head.u32()?);
    }
    if has(FLAG_KEY) {
        found.key = Some(key_in(head)?);
    }
    if has(FLAG_PRODUCER) {
        let (id, epoch, digest, sequence) = (head.u64()?, head.u16()?, head.u32()?, head.u64()?);
        found.producer = NonZeroU64::new(id).map(|id| Producer { id, sequence });
        found.batch_digest = NonZeroU32::new(digest);
        found.attributes.producer_epoch = epoch;
    }
    if has(FLAG_EXPIRES) {
        found.attributes.expires_at_ms = Some(head.u48()?);
    }
    if has(FLAG_DUE) {
        found.attributes.due_at_ms = Some(head.u48()?);
    }
    if has(FLAG_PRIORITY) {
        found.attributes.priority = Some(head.u8()?);
    }
    if has(FLAG_ORIGINAL) {
        found.original = Some(head.u32()?);
    }
    if has(FLAG_MORE) {
        more_in(head, &mut found)?;
    }
    Ok(found)
}

/// How many bytes the optional parts have where they are times alone.
#[inline]
pub(super) fn bytes_of_times(flags: u8) -> Option<usize> {
    let has = |flag: u8| usize::from(flags & flag != 0);
    (flags != 0 && flags & !(FLAG_EXPIRES | FLAG_DUE) == 0).then(|| TIME_BYTES * (has(FLAG_EXPIRES) + has(FLAG_DUE)))
}

/// The times among the optional parts.
#[inline]
pub(super) fn times_in(head: &mut Fields<'_>, flags: u8) -> Result<Times, DecodeError> {
    let has = |flag: u8| flags & flag != 0;
    if has(FLAG_LONG_PROPERTIES) {
        head.u32()?;
    }
    if has(FLAG_KEY) {
        key_in(head)?;
    }
    if has(FLAG_PRODUCER) {
        head.take(PRODUCER_BYTES)?;
    }
    let expires_at_ms = if has(FLAG_EXPIRES) { Some(head.u48()?) } else { None };
    let due_at_ms = if has(FLAG_DUE) { Some(head.u48()?) } else { None };
    Ok(Times { due_at_ms, expires_at_ms })
}

/// Where among the optional parts the checksum of an original head belongs; `None` where it is already.
pub(super) fn place_of_original(optional: &[u8], flags: u8) -> Option<usize> {
    if flags & FLAG_ORIGINAL != 0 {
        return None;
    }
    let mut rest = Fields(optional);
    let before = flags & (FLAG_ORIGINAL - 1);
    optional_in(&mut rest, before).ok()?;
    Some(optional.len() - rest.0.len())
}

fn more_in<'a>(head: &mut Fields<'a>, found: &mut Optional<'a>) -> Result<(), DecodeError> {
    let flags = head.u16()?;
    if flags & !MORE_KNOWN != 0 {
        return Err(DecodeError::Flags);
    }
    let has = |flag: u16| flags & flag != 0;
    let attributes = &mut found.attributes;
    if has(MORE_DEDUP) {
        attributes.dedup = Some(*head.array()?);
    }
    if has(MORE_SOURCE) {
        attributes.source = Some(target(head.array()?));
    }
    if has(MORE_CREATED) {
        attributes.created_at_ms = Some(head.u48()?);
    }
    attributes.is_tombstone = has(MORE_TOMBSTONE);
    Ok(())
}

pub(super) fn queue_in(head: &mut Fields<'_>) -> Result<QueueId, DecodeError> {
    Ok(QueueId::from_bytes(*head.array()?))
}

pub(super) fn settle_in<'a>(head: &mut Fields<'a>, count: usize) -> Result<SettleView<'a>, DecodeError> {
    let queue = queue_in(head)?;
    let (outcome, due_at_ms) = match head.u8()? {
        OUTCOME_REQUEUE_AT => (Outcome::Requeue, Some(head.u48()?)),
        OUTCOME_RETURN_AT => (Outcome::Return, Some(head.u48()?)),
        code => (Outcome::from_code(code)?, None),
    };
    let (settled, bytes) = (head.u64()?, head.u64()?);
    let ranges = head.take(count * RANGE_BYTES)?;
    Ok(SettleView { queue, outcome, count: settled, bytes, due_at_ms, ranges, format: Format::Two })
}

pub(super) fn epoch_in(head: &mut Fields<'_>) -> Result<EpochView, DecodeError> {
    let (epoch, raises, at_ms) = (head.u64()?, head.u8()?, head.u48()?);
    Ok(EpochView { epoch, raises, begun: Some(Begun { at_ms, leader: *head.array()? }) })
}
