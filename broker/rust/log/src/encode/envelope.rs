//! Encoding of envelopes, and the limits that they are within.

use penstock_queue::{QueueId, SequenceRange};

use super::{
    Payload, Settlement, Stamp, delete_bytes, encode_delete, encode_mark, encode_message, encode_settle, fill_header,
    mark_bytes, seal_head,
};
use crate::error::LogError;
use crate::format::Format;
use crate::record::{
    ENCLOSED, ENVELOPE_FIXED_BYTES, ENVELOPE_HEADS_BYTES_MAX, ENVELOPE_RANGES_MAX, ENVELOPE_RECORDS_MAX,
    ENVELOPE_TARGETS_MAX, HEADER_BYTES, KIND_ENVELOPE, MarkView, Position, RANGES_MAX, Target,
};

/// One record of an envelope.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    Message { payload: Payload<'a>, stored_at_ms: u64, targets: &'a [Target] },
    Settle { settlement: Settlement, ranges: &'a [SequenceRange] },
    Mark(MarkView<'a>),
    Delete(QueueId),
}

impl Operation<'_> {
    pub(crate) fn record_bytes(&self) -> usize {
        match self {
            Operation::Message { payload, targets, .. } => payload.record_bytes(Format::Two, targets.len()),
            Operation::Settle { settlement, ranges } => settlement.record_bytes(Format::Two, ranges.len()),
            Operation::Mark(mark) => mark_bytes(mark),
            Operation::Delete(_) => delete_bytes(Format::Two),
        }
    }

    fn head_bytes(&self) -> usize {
        match self {
            Operation::Message { payload, targets, .. } => payload.head_bytes(Format::Two, targets.len()),
            _ => self.record_bytes(),
        }
    }

    fn encode(&self, out: &mut Vec<u8>, stamp: Stamp) {
        match self {
            Operation::Message { payload, stored_at_ms, targets } => {
                encode_message(out, stamp, payload, *stored_at_ms, targets);
            }
            Operation::Settle { settlement, ranges } => encode_settle(out, stamp, *settlement, ranges),
            Operation::Mark(mark) => encode_mark(out, stamp, mark),
            Operation::Delete(queue) => encode_delete(out, stamp, *queue),
        }
    }
}

/// How much is in an envelope.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EnvelopeSizes {
    targets: usize,
    ranges: usize,
    heads_bytes: usize,
    /// Of the whole record.
    pub(crate) bytes: u64,
}

impl EnvelopeSizes {
    /// Refuses what is above a limit.
    pub(crate) fn of(operations: &[Operation<'_>]) -> Result<EnvelopeSizes, LogError> {
        check("records in an envelope", operations.len(), 1, ENVELOPE_RECORDS_MAX)?;
        let mut sizes = EnvelopeSizes { bytes: ENVELOPE_FIXED_BYTES as u64, ..EnvelopeSizes::default() };
        for operation in operations {
            match operation {
                Operation::Message { targets, .. } => {
                    check("targets", targets.len(), 1, Format::Two.targets_max())?;
                    sizes.targets += targets.len();
                }
                Operation::Settle { ranges, .. } => {
                    check("ranges", ranges.len(), 0, RANGES_MAX)?;
                    sizes.ranges += ranges.len();
                }
                Operation::Mark(mark) => {
                    let longest = mark.owner.len().max(mark.key.len());
                    check("bytes of a mark's owner or key", longest, 0, u16::MAX as usize)?;
                }
                Operation::Delete(_) => {}
            }
            sizes.heads_bytes += operation.head_bytes();
            sizes.bytes += operation.record_bytes() as u64;
        }
        check("targets in an envelope", sizes.targets, 0, ENVELOPE_TARGETS_MAX)?;
        check("ranges in an envelope", sizes.ranges, 0, ENVELOPE_RANGES_MAX)?;
        check("bytes without payloads in an envelope", sizes.heads_bytes, 0, ENVELOPE_HEADS_BYTES_MAX)?;
        Ok(sizes)
    }
}

fn check(of: &'static str, count: usize, count_min: usize, count_max: usize) -> Result<(), LogError> {
    if (count_min..=count_max).contains(&count) {
        return Ok(());
    }
    Err(LogError::CountOutOfBounds { of, count, count_max })
}

/// Calls `each` with every operation and the position of its record before it is encoded.
pub(crate) fn encode_envelope<'a>(
    out: &mut Vec<u8>,
    stamp: Stamp,
    operations: &[Operation<'a>],
    sizes: EnvelopeSizes,
    mut each: impl FnMut(&Operation<'a>, Position),
) {
    let start = out.len();
    let mut fixed = [0; ENVELOPE_FIXED_BYTES];
    fill_header(&mut fixed, stamp, sizes.bytes as u32, [KIND_ENVELOPE, 0], operations.len() as u16);
    fixed[24..28].copy_from_slice(&((sizes.targets + sizes.ranges) as u32).to_le_bytes());
    fixed[28..].copy_from_slice(&(sizes.heads_bytes as u32).to_le_bytes());
    out.extend_from_slice(&fixed);
    let mut crc = 0;
    for operation in operations {
        let at = out.len();
        let position = Position(stamp.position.0 + (at - start) as u64);
        each(operation, position);
        operation.encode(out, Stamp { position, enclosed: ENCLOSED, ..stamp });
        crc = crc32c::crc32c_append(crc, &out[at..at + HEADER_BYTES]);
    }
    out[start + 16..start + 20].copy_from_slice(&crc.to_le_bytes());
    seal_head(&mut out[..start + ENVELOPE_FIXED_BYTES], start, stamp.coding.seed);
}
