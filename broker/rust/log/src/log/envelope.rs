//! Appending envelopes: records that are applied as a whole or not at all.

use penstock_queue::{QueueId, SequenceRange};
use rustc_hash::FxHashMap;

use super::Log;
use super::room::Purpose;
use crate::encode::{EnvelopeSizes, Operation, Settlement, encode_envelope};
use crate::error::LogError;
use crate::format::Format;
use crate::record::{ENVELOPE_RANGES_MAX, Position, RANGES_MAX, RECORD_BYTES_MAX};

impl Log {
    /// Appends records that a start, a fold and a replica apply as a whole or not at all: a message that replaces a settled
    /// one, or the content of a transaction. Above the limits of an envelope it is refused, and nothing is appended. Returns
    /// the position after it.
    pub fn append_envelope(&mut self, operations: &[Operation<'_>]) -> Result<Position, LogError> {
        if self.format() == Format::One {
            return Err(LogError::NotInFormat { what: "an envelope" });
        }
        let sizes = EnvelopeSizes::of(operations)?;
        if sizes.bytes > RECORD_BYTES_MAX {
            return Err(LogError::RecordTooLarge { bytes: sizes.bytes, bytes_max: RECORD_BYTES_MAX });
        }
        let has_message = operations.iter().any(|operation| matches!(operation, Operation::Message { .. }));
        let purpose = if has_message { Purpose::Message } else { Purpose::Upkeep };
        let stamp = self.place(sizes.bytes as usize, purpose)?;
        self.check_ascending(operations)?;
        let Log { active, tail, hints, .. } = self;
        encode_envelope(tail, stamp, operations, sizes, |operation, position| match operation {
            Operation::Message { payload, stored_at_ms, targets } => {
                let offset = active.segment.offset_of(position) as u32;
                let sizes = (payload.body_bytes(), *stored_at_ms);
                targets.iter().for_each(|target| active.index.push(*target, offset, sizes));
            }
            Operation::Delete(queue) => {
                hints.get_mut().remove(queue);
            }
            Operation::Settle { .. } | Operation::Mark(_) => {}
        });
        for operation in operations {
            if let Operation::Message { payload, targets, .. } = operation
                && let Some(attributes) = payload.attributes()
            {
                self.push_deadlines(targets, attributes);
            }
        }
        Ok(self.appended())
    }

    /// The sequences of a queue ascend, also within an envelope.
    fn check_ascending(&mut self, operations: &[Operation<'_>]) -> Result<(), LogError> {
        let mut next: FxHashMap<QueueId, u64> = FxHashMap::default();
        for operation in operations {
            let Operation::Message { targets, .. } = operation else { continue };
            for target in *targets {
                let next = next.entry(target.queue).or_insert_with(|| self.active.index.next_of(target.queue));
                if target.sequence.0 < *next {
                    let (queue, sequence, last) = (target.queue.0, target.sequence.0, next.saturating_sub(1));
                    return Err(LogError::NotAscending { queue, sequence, last });
                }
                *next = target.sequence.0.saturating_add(1);
            }
        }
        Ok(())
    }

    /// A settlement of more ranges than one record has: an envelope, whose first record has the totals, or several.
    pub(super) fn append_large_settle(
        &mut self,
        mut settlement: Settlement,
        ranges: &[SequenceRange],
    ) -> Result<Position, LogError> {
        for part in ranges.chunks(ENVELOPE_RANGES_MAX) {
            let mut operations = Vec::with_capacity(part.len().div_ceil(RANGES_MAX));
            for ranges in part.chunks(RANGES_MAX) {
                operations.push(Operation::Settle { settlement, ranges });
                settlement = Settlement { count: 0, bytes: 0, ..settlement };
            }
            self.append_envelope(&operations)?;
        }
        Ok(self.appended())
    }
}
