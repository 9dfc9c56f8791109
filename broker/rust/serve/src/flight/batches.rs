//! Record batches built straight from the segments, on a thread that may block.
//!
//! What must stay true: rows follow each other as they were found. Who finds them, and where that ends, it does not know.

use penstock_arrow::{BatchBuilder, Encoder, IpcMessage, MessageRow, Projection};
use penstock_engine::Filled;
use tokio::task::spawn_blocking;
use tonic::Status;

use super::messages::not_encoded;
use crate::deliveries::{Pending, Recipient};

/// A batch ends with the row that reaches one of these.
const BATCH_BYTES: usize = 2 << 20;
const BATCH_ROWS: usize = 32 << 10;

/// What a batch's last message may have beyond, without the body's room being made anew.
const BATCH_BYTES_SPARE: usize = 64 << 10;

/// Messages found under one hold of the shard's lock.
pub(super) const FILL_MAX: u32 = 4096;

/// Who finds the messages that become rows.
pub(super) trait Rows: Recipient {
    /// Finds what comes at an offset or behind it; says whether there is more.
    fn fill(&mut self, at: u64, filled: &mut Vec<Filled>) -> Result<bool, Status>;
}

/// What batches are built with; it goes from one reader to the next.
pub(super) struct Shape {
    pub encoder: Encoder,
    pub projection: Projection,
    pub partition: String,
}

/// See the module.
pub(super) struct Batches<R> {
    pub rows: R,
    /// Where the next row is expected: what lies between it and the first one found was skipped, or is gone.
    pub at: u64,
    pending: Pending,
    pub shape: Shape,
}

impl<R: Rows + Send + 'static> Batches<R> {
    pub fn new(rows: R, at: u64, shape: Shape) -> Batches<R> {
        Batches { rows, at, pending: Pending::default(), shape }
    }

    /// The next batch, unless no more rows are found; and itself back.
    pub async fn next(mut self: Box<Self>) -> Result<(Box<Self>, Option<IpcMessage>), Status> {
        let built = spawn_blocking(move || {
            let built = self.build();
            (self, built)
        });
        let (batches, built) = built.await.map_err(|_| Status::internal("building a record batch failed"))?;
        Ok((batches, built?))
    }

    fn build(&mut self) -> Result<Option<IpcMessage>, Status> {
        let room = BATCH_BYTES + BATCH_BYTES_SPARE;
        let mut batch = BatchBuilder::new(&self.shape.projection, &self.shape.partition, BATCH_ROWS, room);
        while has_room(&batch) {
            if self.pending.is_empty() && !self.fill()? {
                break;
            }
            let at = &mut self.at;
            self.pending.take_here(&mut self.rows, &mut |view, picked| {
                batch.push(&MessageRow {
                    offset: picked.taken.sequence.0,
                    stored_at_ms: view.stored_at_ms,
                    key: view.key,
                    exchange: view.exchange,
                    routing_key: view.routing_key,
                    body: view.body,
                    properties: view.properties,
                });
                *at = picked.taken.sequence.0 + 1;
                has_room(&batch)
            })?;
        }
        if batch.row_count() == 0 {
            return Ok(None);
        }
        let batch = batch.finish().map_err(|error| not_encoded(&error))?;
        self.shape.encoder.batch(&batch).map(Some).map_err(|error| not_encoded(&error))
    }

    fn fill(&mut self) -> Result<bool, Status> {
        let mut filled = Vec::new();
        let found = self.rows.fill(self.at, &mut filled)?;
        self.pending.extend(filled);
        Ok(found)
    }
}

fn has_room(batch: &BatchBuilder) -> bool {
    batch.byte_count() < BATCH_BYTES && batch.row_count() < BATCH_ROWS
}
