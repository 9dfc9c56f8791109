//! Record batches built straight from the segments, on a thread that may block.
//!
//! What must stay true: rows follow each other as they were found, and every message that was looked at is counted in a
//! report, the rows that nobody asked for too. Who finds them, and where that ends, it does not know.

use penstock_arrow::{BatchBuilder, Encoder, Filter, IpcMessage, MessageRow, Projection};
use penstock_engine::{Filled, Sequence};
use serde::Serialize;
use tokio::task::spawn_blocking;
use tonic::Status;

use super::messages::not_encoded;
use crate::host::deliveries::{Pending, Recipient};

/// A batch ends with the row that reaches one of these.
const BATCH_BYTES: usize = 2 << 20;
const BATCH_ROWS: usize = 32 << 10;

/// What a batch's last message may have beyond, without the body's room being made anew.
const BATCH_BYTES_SPARE: usize = 64 << 10;

/// A batch ends when so many messages were looked at, however few of them are wanted: its reader learns how far it is.
const BATCH_SEEN: u64 = 1 << 18;

/// Messages found under one hold of the shard's lock.
pub(super) const FILL_MAX: u32 = 4096;

/// Bits of an offset within a priority.
const LANE_SHIFT: u32 = 55;
const TURN_SHIFT: u32 = 54;

/// Who finds the messages that become rows.
pub(super) trait Rows: Recipient {
    /// The highest priority of its queue.
    fn highest_priority(&self) -> u8 {
        0
    }

    /// Finds what comes at an offset or behind it; says whether there is more.
    fn fill(&mut self, at: u64, filled: &mut Vec<Filled>) -> Result<bool, Status>;
}

/// What batches are built with; it goes from one reader to the next.
pub(super) struct Shape {
    pub encoder: Encoder,
    pub projection: Projection,
    pub partition: String,
    pub filter: Filter,
}

/// How far a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    /// All messages before this offset were looked at that are there.
    pub next: u64,
    /// How many they were since the last report.
    pub seen: u64,
}

/// See the module.
pub(super) struct Batches<R> {
    pub rows: R,
    /// Where the next row is expected: what lies between it and the first one found was skipped, or is gone.
    pub at: u64,
    /// Messages since the last report.
    seen: u64,
    pending: Pending,
    pub shape: Shape,
}

impl<R: Rows + Send + 'static> Batches<R> {
    pub fn new(rows: R, at: u64, shape: Shape) -> Batches<R> {
        Batches { rows, at, seen: 0, pending: Pending::default(), shape }
    }

    /// The next batch, unless no more rows are found; and itself back.
    pub async fn next(mut self: Box<Self>) -> Result<(Box<Self>, Option<(IpcMessage, Report)>), Status> {
        let built = spawn_blocking(move || {
            let built = self.build();
            (self, built)
        });
        let (batches, built) = built.await.map_err(|_| Status::internal("building a record batch failed"))?;
        Ok((batches, built?))
    }

    fn build(&mut self) -> Result<Option<(IpcMessage, Report)>, Status> {
        let takes_all = self.shape.filter.takes_all();
        // Few rows may be wanted: their room is made as they come.
        let (rows, room) = if takes_all { (BATCH_ROWS, BATCH_BYTES + BATCH_BYTES_SPARE) } else { (0, 0) };
        let mut batch = BatchBuilder::new(&self.shape.projection, &self.shape.partition, rows, room);
        let highest = self.rows.highest_priority();
        while has_room(&batch) && self.seen < BATCH_SEEN {
            if self.pending.is_empty() && !self.fill()? {
                break;
            }
            let (at, seen, filter) = (&mut self.at, &mut self.seen, &self.shape.filter);
            self.pending.take_here(&mut self.rows, &mut |view, picked| {
                let row = MessageRow {
                    offset: offset_of(picked.taken.sequence, highest),
                    stored_at_ms: view.stored_at_ms,
                    key: view.key,
                    exchange: view.exchange,
                    routing_key: view.routing_key,
                    body: view.body,
                    properties: view.properties,
                };
                if takes_all || filter.takes(&row) {
                    batch.push(&row);
                }
                *at = picked.taken.sequence.0 + 1;
                *seen += 1;
                has_room(&batch) && *seen < BATCH_SEEN
            })?;
        }
        if self.seen == 0 {
            return Ok(None);
        }
        let report = Report { next: self.at, seen: std::mem::take(&mut self.seen) };
        let batch = batch.finish().map_err(|error| not_encoded(&error))?;
        let message = self.shape.encoder.batch(&batch).map_err(|error| not_encoded(&error))?;
        Ok(Some((message, report)))
    }

    fn fill(&mut self) -> Result<bool, Status> {
        let mut filled = Vec::new();
        let found = self.rows.fill(self.at, &mut filled)?;
        self.pending.extend(filled);
        Ok(found)
    }
}

/// The offset of a row. In a queue with priorities it ascends from the highest priority on, as rows do, and its sign bit is
/// free: a lane that begins a million epochs of 2^32 sequences stays below 2^54. The bit above is that of a lane of keys, which
/// comes after the other.
fn offset_of(sequence: Sequence, highest: u8) -> u64 {
    let [lane, is_turn] = sequence.lane().to_le_bytes();
    u64::from(highest.saturating_sub(lane)) << LANE_SHIFT | u64::from(is_turn) << TURN_SHIFT | sequence.within().0
}

fn has_room(batch: &BatchBuilder) -> bool {
    batch.byte_count() < BATCH_BYTES && batch.row_count() < BATCH_ROWS
}

#[cfg(test)]
mod tests {
    use super::{Sequence, offset_of};

    #[test]
    fn offsets_ascend_from_the_highest_priority_on_and_are_never_negative() {
        assert_eq!(offset_of(Sequence(7), 0), 7, "a queue without priorities");
        let rows = [(255, 1), (255, 1 << 53), (511, 2), (200, 3), (1, 2), (0, 1), (0, (1 << 54) - 1), (256, 1)];

        let offsets = rows.map(|(lane, within)| offset_of(Sequence(within).in_lane(lane), 255).cast_signed());

        assert!(offsets.is_sorted_by(|one, other| 0 < *one && one < other), "{offsets:?}");
    }
}
