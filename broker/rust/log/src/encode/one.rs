//! The fields of records of format 1. See `docs/format.md`, "Records".

use penstock_queue::SequenceRange;

use super::Settlement;
pub(super) use crate::record::one::{RANGE_BYTES, queue_bytes, target_number};

pub(super) const PRODUCER_BYTES: usize = 20;
pub(super) const QUEUE_BYTES: usize = 4;
pub(super) const SETTLE_FIXED_BYTES: usize = 21;
pub(super) const EPOCH_BYTES: usize = 9;

pub(super) fn put_settle(out: &mut Vec<u8>, settlement: &Settlement, ranges: &[SequenceRange]) {
    out.extend_from_slice(&queue_bytes(settlement.queue));
    out.push(settlement.outcome.code());
    out.extend_from_slice(&settlement.count.to_le_bytes());
    out.extend_from_slice(&settlement.bytes.to_le_bytes());
    for range in ranges {
        out.extend_from_slice(&range.first.0.to_le_bytes());
        out.extend_from_slice(&range.last.0.to_le_bytes());
    }
}
