//! Appending envelopes: records that are applied as a whole or not at all.

use penstock_queue::{QueueId, SequenceRange};
use rustc_hash::FxHashMap;

use super::Log;
use super::room::Purpose;
use crate::encode::{EnvelopeSizes, Operation, Settlement, Stamp, encode_envelope};
use crate::error::LogError;
use crate::format::Format;
use crate::record::{ENVELOPE_RANGES_MAX, MarkView, Position, RANGES_MAX};

impl Log {
    /// Appends records that a start, a fold and a replica apply as a whole or not at all: a message that replaces a settled
    /// one, or the content of a transaction. Above the limits of an envelope it is refused, and nothing is appended. Returns
    /// the position after it.
    pub fn append_envelope(&mut self, operations: &[Operation<'_>]) -> Result<Position, LogError> {
        if self.format() == Format::One {
            return Err(LogError::NotInFormat { what: "an envelope" });
        }
        let sizes = EnvelopeSizes::of(operations)?;
        let stamp = self.place_envelope(&sizes)?;
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
                self.push_deadlines(targets, attributes.into());
            }
        }
        Ok(self.appended())
    }

    /// Whether an envelope may have so much.
    #[must_use]
    pub fn takes_envelope(&self, sizes: &EnvelopeSizes) -> bool {
        self.format() == Format::Two && sizes.check().is_ok()
    }

    /// Reserves space for an envelope of at most these sizes, so that appending it cannot fail for lack of space.
    pub fn reserve_envelope(&mut self, sizes: &EnvelopeSizes) -> Result<(), LogError> {
        sizes.check()?;
        self.place_envelope(sizes).map(|_| ())
    }

    /// Appends records in one envelope; in format 1, which has none, one after the other. Returns the position after them.
    pub fn append_together(&mut self, operations: &[Operation<'_>]) -> Result<Position, LogError> {
        if self.format() == Format::Two && operations.len() > 1 {
            return self.append_envelope(operations);
        }
        for operation in operations {
            match *operation {
                Operation::Message { payload, stored_at_ms, targets } => {
                    self.append_message(&payload, stored_at_ms, targets)?;
                }
                Operation::Settle { settlement, ranges } => {
                    self.append_settlement(settlement, ranges)?;
                }
                Operation::Mark(MarkView { owner, key, value }) => {
                    self.append_mark(owner, key, value)?;
                }
                Operation::Delete(queue) => {
                    self.append_delete(queue)?;
                }
            }
        }
        Ok(self.appended())
    }

    fn place_envelope(&mut self, sizes: &EnvelopeSizes) -> Result<Stamp, LogError> {
        self.place(sizes.bytes as usize, if sizes.has_messages() { Purpose::Message } else { Purpose::Upkeep })
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

    /// A settlement of more ranges than one record has: an envelope, whose first record has the totals, or several, each
    /// with the totals of its own ranges.
    pub(super) fn append_large_settle(
        &mut self,
        settlement: Settlement,
        ranges: &[SequenceRange],
    ) -> Result<Position, LogError> {
        let mut left = settlement;
        let last = ranges.len().div_ceil(ENVELOPE_RANGES_MAX).saturating_sub(1);
        for (place, part) in ranges.chunks(ENVELOPE_RANGES_MAX).enumerate() {
            let mut totals = if place == last { left } else { share_of(&left, part) };
            left = Settlement { count: left.count - totals.count, bytes: left.bytes - totals.bytes, ..left };
            let mut operations = Vec::with_capacity(part.len().div_ceil(RANGES_MAX));
            for ranges in part.chunks(RANGES_MAX) {
                operations.push(Operation::Settle { settlement: totals, ranges });
                totals = Settlement { count: 0, bytes: 0, ..totals };
            }
            self.append_envelope(&operations)?;
        }
        Ok(self.appended())
    }
}

/// The totals of some ranges of a settlement, as if each of its messages had the same size.
fn share_of(all: &Settlement, ranges: &[SequenceRange]) -> Settlement {
    let count = ranges.iter().fold(0_u64, |count, range| count.saturating_add(range.count())).min(all.count);
    let bytes = u128::from(all.bytes) * u128::from(count) / u128::from(all.count.max(1));
    Settlement { count, bytes: bytes as u64, ..*all }
}
