//! The rows of a client's batch, as messages to publish. A row's properties become the serialised
//! `penstock.v1.Properties` that a publisher would have sent.
//!
//! Invariant: a column that would be lost is refused, not left out.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use penstock_wire::protobuf::{put_bytes, put_varint};

use crate::cells::{ByteCells, whole_number, wrong_type};
use crate::error::ArrowFault;
use crate::header_cells::HeaderCells;

/// The text properties and their fields in `penstock.v1.Properties`.
const TEXTS: [(&str, u32); 9] = [
    ("content_type", 1),
    ("content_encoding", 2),
    ("correlation_id", 6),
    ("reply_to", 7),
    ("expiration", 8),
    ("message_id", 9),
    ("type", 11),
    ("user_id", 12),
    ("app_id", 13),
];
const NUMBERS: [(&str, u32, i64); 2] = [("delivery_mode", 4, 2), ("priority", 5, 255)];
const TIMESTAMP: u32 = 10;

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutRow<'a> {
    pub body: &'a [u8],
    pub key: Option<&'a [u8]>,
    pub routing_key: Option<&'a [u8]>,
}

/// A batch with its columns located.
pub struct PutRows<'a> {
    row_count: usize,
    body: ByteCells<'a>,
    key: ByteCells<'a>,
    routing_key: ByteCells<'a>,
    texts: Vec<(u32, ByteCells<'a>)>,
    numbers: Vec<(&'static str, u32, i64, &'a ArrayRef)>,
    timestamp: Option<&'a ArrayRef>,
    headers: Option<HeaderCells<'a>>,
}

impl<'a> PutRows<'a> {
    /// # Errors
    /// `NoBody`, `UnknownColumn`, `ColumnType`.
    pub fn of(batch: &'a RecordBatch) -> Result<PutRows<'a>, ArrowFault> {
        let mut rows = PutRows {
            row_count: batch.num_rows(),
            body: ByteCells::Null,
            key: ByteCells::Null,
            routing_key: ByteCells::Null,
            texts: Vec::new(),
            numbers: Vec::new(),
            timestamp: None,
            headers: None,
        };
        let mut has_body = false;
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            match field.name().as_str() {
                "body" => {
                    rows.body = ByteCells::of("body", column)?;
                    has_body = true;
                }
                "key" => rows.key = ByteCells::of("key", column)?,
                "routing_key" => rows.routing_key = ByteCells::text("routing_key", column)?,
                "headers" => rows.headers = HeaderCells::of(column)?,
                "properties" => rows.take_properties(column)?,
                name => rows.take_property(name, column)?,
            }
        }
        if has_body { Ok(rows) } else { Err(ArrowFault::NoBody) }
    }

    #[must_use]
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Reads the struct; a property of a null struct is itself null in the output of Arrow libraries.
    fn take_properties(&mut self, column: &'a ArrayRef) -> Result<(), ArrowFault> {
        let DataType::Struct(fields) = column.data_type() else {
            return Err(wrong_type("properties", column, "a struct of properties"));
        };
        let children = column.as_struct().columns();
        fields.iter().zip(children).try_for_each(|(field, child)| self.take_property(field.name(), child))
    }

    fn take_property(&mut self, name: &str, column: &'a ArrayRef) -> Result<(), ArrowFault> {
        if let Some((_, field)) = TEXTS.iter().find(|(known, _)| *known == name) {
            self.texts.push((*field, ByteCells::text(name, column)?));
        } else if let Some((known, field, max)) = NUMBERS.iter().find(|(known, ..)| *known == name) {
            self.numbers.push((known, *field, *max, column));
        } else if name == "timestamp" {
            self.timestamp = Some(column);
        } else {
            return Err(ArrowFault::UnknownColumn(name.to_owned()));
        }
        Ok(())
    }

    /// `row` is below the row count.
    ///
    /// # Errors
    /// `NullBody`.
    pub fn row(&self, row: usize) -> Result<PutRow<'a>, ArrowFault> {
        let body = self.body.get(row).ok_or(ArrowFault::NullBody { row })?;
        Ok(PutRow { body, key: self.key.get(row), routing_key: self.routing_key.get(row) })
    }

    /// The first row with a routing key of its own.
    #[must_use]
    pub fn first_routed(&self) -> Option<usize> {
        let has_key = |row: &usize| self.routing_key.get(*row).is_some();
        if matches!(self.routing_key, ByteCells::Null) { None } else { (0..self.row_count).find(has_key) }
    }

    /// Whether rows may have properties at all.
    #[must_use]
    pub fn has_properties(&self) -> bool {
        !self.texts.is_empty() || !self.numbers.is_empty() || self.timestamp.is_some() || self.headers.is_some()
    }

    /// Appends the serialised `penstock.v1.Properties` of a row; nothing when it has none.
    ///
    /// # Errors
    /// `OutOfRange`, `ColumnType`, `UnnamedHeader`.
    pub fn put_properties(&self, row: usize, out: &mut Vec<u8>) -> Result<(), ArrowFault> {
        for (field, cells) in &self.texts {
            if let Some(text) = cells.get(row).filter(|text| !text.is_empty()) {
                put_bytes(out, *field, text);
            }
        }
        for &(name, field, max, column) in &self.numbers {
            if let Some(number) = whole_number(name, column, row)? {
                let number = u64::try_from(number).ok().filter(|&number| number <= max.unsigned_abs());
                let rule = "delivery_mode is 1 or 2, priority is 0 to 255";
                put_number(out, field, number.ok_or(ArrowFault::OutOfRange { row, column: name, rule })?);
            }
        }
        if let Some(column) = self.timestamp
            && let Some(seconds) = seconds_in(column, row)?
        {
            let rule = "a time is not before 1970";
            let outside = ArrowFault::OutOfRange { row, column: "timestamp", rule };
            put_number(out, TIMESTAMP, u64::try_from(seconds).map_err(|_| outside)?);
        }
        self.headers.as_ref().map_or(Ok(()), |headers| headers.put(row, out))
    }
}

/// The seconds of a time column; whole numbers are seconds already.
fn seconds_in(column: &ArrayRef, row: usize) -> Result<Option<i64>, ArrowFault> {
    let DataType::Timestamp(unit, _) = column.data_type() else { return whole_number("timestamp", column, row) };
    if column.is_null(row) {
        return Ok(None);
    }
    Ok(Some(match unit {
        TimeUnit::Second => column.as_primitive::<TimestampSecondType>().value(row),
        TimeUnit::Millisecond => column.as_primitive::<TimestampMillisecondType>().value(row).div_euclid(1_000),
        TimeUnit::Microsecond => column.as_primitive::<TimestampMicrosecondType>().value(row).div_euclid(1_000_000),
        TimeUnit::Nanosecond => column.as_primitive::<TimestampNanosecondType>().value(row).div_euclid(1_000_000_000),
    }))
}

/// Writes zero too, because its presence matters.
fn put_number(out: &mut Vec<u8>, field: u32, value: u64) {
    put_varint(out, u64::from(field << 3));
    put_varint(out, value);
}
