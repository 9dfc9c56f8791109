//! Encoding of envelopes, and the limits that they are within.

use penstock_queue::{QueueId, SequenceRange};

use super::{
    Payload, Settlement, Stamp, delete_bytes, encode_delete, encode_mark, encode_message, encode_settle, header_number,
    mark_bytes, seal_head,
};
use crate::error::LogError;
use crate::format::Format;
use crate::record::{
    ENCLOSED, ENVELOPE_FIXED_BYTES, ENVELOPE_HEADS_BYTES_MAX, ENVELOPE_RANGES_MAX, ENVELOPE_RECORDS_MAX,
    ENVELOPE_TARGETS_MAX, HEADER_BYTES, KIND_ENVELOPE, MarkView, Position, RANGES_MAX, RECORD_BYTES_MAX, Target,
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

/// How much is in an envelope, or will be at most.
#[derive(Clone, Copy, Debug)]
pub struct EnvelopeSizes {
    records: usize,
    targets: usize,
    ranges: usize,
    heads_bytes: usize,
    /// Of the whole record.
    pub(crate) bytes: u64,
}

impl Default for EnvelopeSizes {
    fn default() -> EnvelopeSizes {
        EnvelopeSizes { records: 0, targets: 0, ranges: 0, heads_bytes: 0, bytes: ENVELOPE_FIXED_BYTES as u64 }
    }
}

impl EnvelopeSizes {
    /// Adds a message for that many queues.
    pub fn add_message(&mut self, payload: &Payload<'_>, targets: usize) {
        self.targets += targets;
        let [head, whole] = [payload.head_bytes(Format::Two, targets), payload.record_bytes(Format::Two, targets)];
        self.add(head, whole);
    }

    /// Adds the settlement of at most that many ranges.
    pub fn add_settle(&mut self, settlement: &Settlement, ranges: usize) {
        self.ranges += ranges;
        let bytes = settlement.record_bytes(Format::Two, ranges);
        self.add(bytes, bytes);
    }

    pub fn add_mark(&mut self, mark: &MarkView<'_>) {
        self.add(mark_bytes(mark), mark_bytes(mark));
    }

    fn add(&mut self, head_bytes: usize, bytes: usize) {
        self.records += 1;
        self.heads_bytes += head_bytes;
        self.bytes += bytes as u64;
    }

    /// Bytes of its records without payloads.
    #[must_use]
    pub fn heads_bytes(&self) -> usize {
        self.heads_bytes
    }

    pub(crate) fn has_messages(&self) -> bool {
        self.targets > 0
    }

    /// Refuses what is above a limit.
    pub(crate) fn of(operations: &[Operation<'_>]) -> Result<EnvelopeSizes, LogError> {
        let mut sizes = EnvelopeSizes::default();
        for operation in operations {
            match operation {
                Operation::Message { payload, targets, .. } => {
                    check("targets", targets.len(), 1, Format::Two.targets_max())?;
                    sizes.add_message(payload, targets.len());
                }
                Operation::Settle { settlement, ranges } => {
                    check("ranges", ranges.len(), 0, RANGES_MAX)?;
                    sizes.add_settle(settlement, ranges.len());
                }
                Operation::Mark(mark) => {
                    let longest = mark.owner.len().max(mark.key.len());
                    check("bytes of a mark's owner or key", longest, 0, u16::MAX as usize)?;
                    sizes.add_mark(mark);
                }
                Operation::Delete(_) => sizes.add(delete_bytes(Format::Two), delete_bytes(Format::Two)),
            }
        }
        sizes.check()?;
        Ok(sizes)
    }

    pub(crate) fn check(&self) -> Result<(), LogError> {
        check("records in an envelope", self.records, 1, ENVELOPE_RECORDS_MAX)?;
        check("targets in an envelope", self.targets, 0, ENVELOPE_TARGETS_MAX)?;
        check("ranges in an envelope", self.ranges, 0, ENVELOPE_RANGES_MAX)?;
        check("bytes without payloads in an envelope", self.heads_bytes, 0, ENVELOPE_HEADS_BYTES_MAX)?;
        if self.bytes > RECORD_BYTES_MAX {
            return Err(LogError::RecordTooLarge { bytes: self.bytes, bytes_max: RECORD_BYTES_MAX });
        }
        Ok(())
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
    let header = header_number(stamp, sizes.bytes as u32, [KIND_ENVELOPE, 0], operations.len() as u16);
    let mut fixed = [0; ENVELOPE_FIXED_BYTES];
    fixed[..16].copy_from_slice(&header.to_le_bytes());
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
