//! Appending settlements.
//!
//! Invariant: the totals of a settlement are subtracted once, however many records its ranges take.

use penstock_queue::{QueueId, SequenceRange};

use super::Log;
use super::room::Purpose;
use crate::deadlines::DEADLINE_MS_MAX;
use crate::encode::{Settlement, encode_settle};
use crate::error::LogError;
use crate::format::Format;
use crate::record::{Outcome, Position, RANGES_MAX};

impl Log {
    /// Appends the settlement of `count` messages, whose bodies have `bytes` bytes in all. Returns the position after
    /// it.
    pub fn append_settle(
        &mut self,
        queue: QueueId,
        outcome: Outcome,
        count: u64,
        bytes: u64,
        ranges: &[SequenceRange],
    ) -> Result<Position, LogError> {
        self.append_settlement(Settlement { queue, outcome, count, bytes, due_at_ms: None }, ranges)
    }

    /// Appends that `count` messages were requeued and are not to be delivered before a time. Returns the position after it.
    pub fn append_requeue_at(
        &mut self,
        queue: QueueId,
        due_at_ms: u64,
        count: u64,
        ranges: &[SequenceRange],
    ) -> Result<Position, LogError> {
        self.append_back_at((queue, Outcome::Requeue, count), due_at_ms, ranges)
    }

    /// The same for messages that were returned: their delivery counts stay.
    pub fn append_return_at(
        &mut self,
        queue: QueueId,
        due_at_ms: u64,
        count: u64,
        ranges: &[SequenceRange],
    ) -> Result<Position, LogError> {
        self.append_back_at((queue, Outcome::Return, count), due_at_ms, ranges)
    }

    fn append_back_at(
        &mut self,
        (queue, outcome, count): (QueueId, Outcome, u64),
        due_at_ms: u64,
        ranges: &[SequenceRange],
    ) -> Result<Position, LogError> {
        let due_at_ms = Some(due_at_ms.min(DEADLINE_MS_MAX));
        self.append_settlement(Settlement { queue, outcome, count, bytes: 0, due_at_ms }, ranges)
    }

    pub(super) fn append_settlement(
        &mut self,
        mut settlement: Settlement,
        ranges: &[SequenceRange],
    ) -> Result<Position, LogError> {
        if self.format() == Format::One && settlement.due_at_ms.is_some() {
            return Err(LogError::NotInFormat { what: "a time of requeued messages" });
        }
        if self.format() == Format::Two && ranges.len() > RANGES_MAX {
            return self.append_large_settle(settlement, ranges);
        }
        // Totals are subtracted once; the records after the first only name more ranges.
        for part in ranges.chunks(RANGES_MAX) {
            let stamp = self.place(settlement.record_bytes(self.format(), part.len()), Purpose::Upkeep)?;
            encode_settle(&mut self.tail, stamp, settlement, part);
            settlement = Settlement { count: 0, bytes: 0, ..settlement };
        }
        Ok(self.appended())
    }
}
