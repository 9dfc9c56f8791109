//! A record batch under construction: one message after the other, only the requested columns.
//!
//! Invariant: a batch's columns have one value per message each. Absent and repeated values cost almost nothing.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{ArrowError, SchemaRef};
use penstock_wire::amqp::properties::PERSISTENT_ONLY;
use penstock_wire::amqp::view::PropertiesView;
use penstock_wire::is_same;

use crate::columns::{Column, Projection, UTC};
use crate::headers::Headers;
use crate::properties::Properties;
use crate::text::{Bytes, Optional};

/// A message as a row; `properties` is the stored AMQP block.
#[derive(Clone, Copy, Debug)]
pub struct MessageRow<'a> {
    pub offset: u64,
    pub stored_at_ms: u64,
    pub key: Option<&'a [u8]>,
    pub exchange: &'a [u8],
    pub routing_key: &'a [u8],
    pub body: &'a [u8],
    pub properties: &'a [u8],
}

/// A batch builder; see the module.
pub struct BatchBuilder {
    schema: SchemaRef,
    projection: Projection,
    wanted: Wanted,
    partition: String,
    row_count: usize,
    byte_count: usize,
    offsets: Vec<i64>,
    times: Vec<i64>,
    keys: Optional,
    exchanges: Names,
    routing_keys: Names,
    bodies: Bytes,
    properties: Properties,
    headers: Headers,
}

/// The projection, in a form that is fast to check per row.
#[derive(Clone, Copy)]
struct Wanted {
    offset: bool,
    timestamp: bool,
    key: bool,
    exchange: bool,
    routing_key: bool,
    body: bool,
    properties: bool,
    headers: bool,
}

impl BatchBuilder {
    /// `rows_about` and `bytes_about` are the initial capacities.
    #[must_use]
    pub fn new(projection: &Projection, partition: &str, rows_about: usize, bytes_about: usize) -> BatchBuilder {
        let has = |column| projection.has(column);
        let wanted = Wanted {
            offset: has(Column::Offset),
            timestamp: has(Column::Timestamp),
            key: has(Column::Key),
            exchange: has(Column::Exchange),
            routing_key: has(Column::RoutingKey),
            body: has(Column::Body),
            properties: has(Column::Properties),
            headers: has(Column::Headers),
        };
        let room = |wanted: bool| if wanted { rows_about } else { 0 };
        BatchBuilder {
            schema: projection.schema(),
            projection: projection.clone(),
            wanted,
            partition: partition.to_owned(),
            row_count: 0,
            byte_count: 0,
            offsets: Vec::with_capacity(room(wanted.offset)),
            times: Vec::with_capacity(room(wanted.timestamp)),
            keys: Optional::new(),
            exchanges: Names::new(room(wanted.exchange)),
            routing_keys: Names::new(room(wanted.routing_key)),
            bodies: Bytes::new(room(wanted.body), if wanted.body { bytes_about } else { 0 }),
            properties: Properties::new(),
            headers: Headers::new(),
        }
    }

    #[must_use]
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Approximate size of the rows so far.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.byte_count
    }

    #[inline]
    pub fn push(&mut self, row: &MessageRow<'_>) {
        let wanted = self.wanted;
        if wanted.offset {
            self.offsets.push(row.offset.cast_signed());
        }
        if wanted.timestamp {
            // Stored in six bytes: a thousand times that is far below 2^63.
            self.times.push(i64::try_from(row.stored_at_ms.saturating_mul(1000)).unwrap_or(i64::MAX));
        }
        if wanted.exchange {
            self.exchanges.push(row.exchange);
            self.byte_count += row.exchange.len();
        }
        if wanted.routing_key {
            self.routing_keys.push(row.routing_key);
            self.byte_count += row.routing_key.len();
        }
        if wanted.body {
            self.bodies.push(row.body);
            self.byte_count += row.body.len();
        }
        if let Some(key) = row.key.filter(|_| wanted.key) {
            self.keys.put(self.row_count, key);
            self.byte_count += key.len();
        }
        if !row.properties.is_empty() && row.properties != PERSISTENT_ONLY {
            self.push_properties(row.properties);
        }
        self.row_count += 1;
    }

    fn push_properties(&mut self, block: &[u8]) {
        if !self.wanted.properties && !self.wanted.headers {
            return;
        }
        self.byte_count += block.len();
        let view = PropertiesView::of(block);
        if self.wanted.properties {
            self.properties.put(self.row_count, &view);
        }
        if let Some(table) = view.headers.filter(|_| self.wanted.headers) {
            self.headers.put(self.row_count, table);
        }
    }

    /// # Errors
    /// When the columns do not form a batch: a bug, or a message too large for a batch.
    pub fn finish(self) -> Result<RecordBatch, ArrowError> {
        let row_count = self.row_count;
        let (mut offsets, mut times) = (Some(self.offsets), Some(self.times));
        let (mut keys, mut exchanges) = (Some(self.keys), Some(self.exchanges));
        let (mut routing_keys, mut bodies) = (Some(self.routing_keys), Some(self.bodies));
        let (mut properties, mut headers) = (Some(self.properties), Some(self.headers));
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.projection.columns().len());
        for column in self.projection.columns() {
            columns.extend(
                match column {
                    Column::Offset => offsets.take().map(|offsets| Ok(Arc::new(Int64Array::from(offsets)) as ArrayRef)),
                    Column::Timestamp => times.take().map(timestamps),
                    Column::Key => keys.take().map(|keys| keys.binary(row_count)),
                    Column::Exchange => exchanges.take().map(Names::finish),
                    Column::RoutingKey => routing_keys.take().map(Names::finish),
                    Column::Body => bodies.take().map(|bodies| bodies.binary(None)),
                    Column::Properties => properties.take().map(|properties| properties.finish(row_count)),
                    Column::Headers => headers.take().map(|headers| headers.finish(row_count)),
                    Column::Partition => Some(repeated(&self.partition, row_count)),
                }
                .transpose()?,
            );
        }
        RecordBatch::try_new(self.schema, columns)
    }
}

fn timestamps(times: Vec<i64>) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(TimestampMicrosecondArray::try_new(ScalarBuffer::from(times), None)?.with_timezone(UTC)))
}

fn repeated(name: &str, row_count: usize) -> Result<ArrayRef, ArrowError> {
    let mut names = Names::new(row_count);
    (0..row_count).for_each(|_| names.push(name.as_bytes()));
    names.finish()
}

/// A column of names, most of which repeat the one before.
struct Names {
    values: Bytes,
    last: Option<Vec<u8>>,
}

impl Names {
    fn new(rows_about: usize) -> Names {
        Names { values: Bytes::new(rows_about, 0), last: None }
    }

    #[inline]
    fn push(&mut self, name: &[u8]) {
        if self.last.as_ref().is_some_and(|last| is_same(last, name)) {
            self.values.push_again();
            return;
        }
        self.values.push_text(name);
        self.last = Some(name.to_vec());
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(self.values.strings(None)?))
    }
}
