//! The batches of a range that the log holds, built straight from the segments on a thread that may block.
//!
//! What must stay true: rows follow each other by their offsets, and where retention took some away while they were read, the
//! batches end before that place rather than behind it: an archive may have what is gone.

use penstock_arrow::{BatchBuilder, Encoder, IpcMessage, MessageRow, Projection};
use penstock_engine::{Filled, Progress, StreamReader};
use tonic::Status;

use super::not_encoded;
use crate::deliveries::Pending;
use crate::status;

/// A batch ends with the row that reaches one of these.
const BATCH_BYTES: usize = 2 << 20;
const BATCH_ROWS: usize = 32 << 10;

/// What a batch's last message may have beyond, without the body's room being made anew.
const BATCH_BYTES_SPARE: usize = 64 << 10;

/// Messages found under one hold of the shard's lock.
const FILL_MAX: u32 = 4096;

/// What comes next of a range.
pub(super) enum Next {
    Batch(IpcMessage),
    /// Retention took what comes from this offset on.
    Gone(u64),
    Ended,
}

/// See the module.
pub(super) struct Batches {
    reader: StreamReader,
    /// Where the next row is expected: what lies between it and the first one found was skipped, or is gone.
    at: u64,
    pending: Pending,
    is_gone: bool,
    shape: Shape,
}

/// What batches are built with; it goes from one reader to the next.
pub(super) struct Shape {
    pub encoder: Encoder,
    pub projection: Projection,
    pub partition: String,
}

impl Batches {
    /// What lies below the reader's beginning is not missed.
    pub fn new(reader: StreamReader, shape: Shape) -> Batches {
        let at = reader.range().begin;
        Batches { reader, at, pending: Pending::default(), is_gone: false, shape }
    }

    pub fn into_shape(self) -> Shape {
        self.shape
    }

    pub fn next(&mut self) -> Result<Next, Status> {
        let room = BATCH_BYTES + BATCH_BYTES_SPARE;
        let mut rows = BatchBuilder::new(&self.shape.projection, &self.shape.partition, BATCH_ROWS, room);
        while has_room(&rows) {
            if self.pending.is_empty() && !self.fill()? {
                break;
            }
            let at = &mut self.at;
            self.pending.take_here(&mut self.reader, &mut |view, picked| {
                rows.push(&MessageRow {
                    offset: picked.taken.sequence.0,
                    stored_at_ms: view.stored_at_ms,
                    key: view.key,
                    exchange: view.exchange,
                    routing_key: view.routing_key,
                    body: view.body,
                    properties: view.properties,
                });
                *at = picked.taken.sequence.0 + 1;
                has_room(&rows)
            })?;
        }
        if rows.row_count() == 0 {
            return Ok(if self.is_gone { Next::Gone(self.at) } else { Next::Ended });
        }
        let batch = rows.finish().map_err(|error| not_encoded(&error))?;
        self.shape.encoder.batch(&batch).map(Next::Batch).map_err(|error| not_encoded(&error))
    }

    /// Says whether there is more. A range ends where the partition ended when it was opened: there is nothing to wait for.
    fn fill(&mut self) -> Result<bool, Status> {
        if self.is_gone {
            return Ok(false);
        }
        let mut filled: Vec<Filled> = Vec::new();
        let progress = self.reader.fill(FILL_MAX, &mut filled).map_err(|error| status::of_engine(&error))?;
        let found = filled.first().and_then(|filled| filled.picked.first()).map(|picked| picked.taken.sequence.0);
        if found.is_none_or(|found| found > self.at) {
            // Numbers are skipped, or messages were dropped; or all below is gone.
            let first = self.reader.first().map_err(|error| status::of_engine(&error))?;
            self.is_gone = first > self.at && (found.is_some() || progress == Progress::Ended);
        }
        if self.is_gone {
            return Ok(false);
        }
        self.pending.extend(filled);
        Ok(progress == Progress::Found)
    }
}

fn has_room(rows: &BatchBuilder) -> bool {
    rows.byte_count() < BATCH_BYTES && rows.row_count() < BATCH_ROWS
}
