//! Bodies in, a batch of one column `value` out, with a reason for each bad row.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use jiter::{Jiter, Peek};

use crate::column::Record;
use crate::fault::{Fault, SchemaFault};
use crate::input::Input;

/// A reason is shown, stored in a header, and made for each of many bad rows.
const REASON_CHARACTERS_MAX: usize = 300;

/// A body that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    pub row: usize,
    pub reason: String,
}

/// A row for each body: null where the body is empty or bad.
#[derive(Clone, Debug)]
pub struct Decoded {
    pub batch: RecordBatch,
    pub bad: Vec<BadRow>,
}

/// Decodes objects with the fields of a schema; see the crate.
#[derive(Clone, Debug)]
pub struct Decoder {
    fields: Fields,
    schema: SchemaRef,
}

impl Decoder {
    /// # Errors
    /// When a column has a type without a form in JSON, or must not be null.
    pub fn new(fields: &Fields) -> Result<Decoder, SchemaFault> {
        Record::new(fields)?;
        let value = Field::new("value", DataType::Struct(fields.clone()), true);
        Ok(Decoder { fields: fields.clone(), schema: Arc::new(Schema::new(vec![value])) })
    }

    /// # Errors
    /// When a column does not fit into an array.
    pub fn decode<'a>(&self, bodies: impl Iterator<Item = &'a [u8]>) -> Result<Decoded, SchemaFault> {
        let mut record = Record::new(&self.fields)?;
        let (mut is_valid, mut bad, mut tape) = (Vec::new(), Vec::new(), Vec::new());
        for (row, body) in bodies.enumerate() {
            let put = if body.is_empty() { Ok(false) } else { put(&mut record, body, &mut tape).map(|()| true) };
            if !matches!(put, Ok(true)) {
                record.truncate(row);
                record.put_null();
            }
            is_valid.push(matches!(put, Ok(true)));
            if let Err(fault) = put {
                bad.push(BadRow { row, reason: fault.to_string().chars().take(REASON_CHARACTERS_MAX).collect() });
            }
        }
        let (row_count, nulls) = (is_valid.len(), NullBuffer::from(is_valid));
        let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
        let columns = record.finish()?;
        let rows = StructArray::try_new_with_length(self.fields.clone(), columns, nulls, row_count)?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), vec![Arc::new(rows) as ArrayRef])?;
        Ok(Decoded { batch, bad })
    }
}

fn put(record: &mut Record, body: &[u8], tape: &mut Vec<u8>) -> Result<(), Fault> {
    // Texts that no column takes are not looked at again.
    let body = std::str::from_utf8(body).map_err(|_| Fault::of_body("it is not UTF-8"))?;
    let json = Jiter::with_tape(body.as_bytes(), std::mem::take(tape)).with_allow_inf_nan();
    let mut input = Input::new(json);
    if input.json.peek().ok() != Some(Peek::Object) {
        return Err(Fault::new("the body is not a JSON object"));
    }
    record.put(&mut input)?;
    input.json.finish()?;
    *tape = input.json.into_tape();
    Ok(())
}
