//! The column `headers` under construction: the entries of each row in their order, names as text and values as bytes.
//! Text and bytes keep their bytes; a value of another type is converted to JSON.

use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray, StructArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use penstock_wire::amqp::table::{self, ValueRef};

use crate::columns::{entry_fields, header_entry};
use crate::json::write_json;
use crate::text::{Bytes, Validity};

pub(crate) struct Headers {
    ends: Vec<i32>,
    names: Bytes,
    values: Bytes,
    validity: Validity,
}

impl Headers {
    pub fn new() -> Headers {
        Headers { ends: vec![0], names: Bytes::new(0, 0), values: Bytes::new(0, 0), validity: Validity::new() }
    }

    /// Adds a row's header table; unreadable entries are left out.
    pub fn put(&mut self, row: usize, table: &[u8]) {
        self.fill(row);
        for (name, value) in table::entries(table).map_while(Result::ok) {
            self.names.push_text(name);
            self.put_value(value);
        }
        self.fill(row + 1);
    }

    fn put_value(&mut self, value: ValueRef<'_>) {
        let at = self.values.row_count();
        match value {
            ValueRef::Void => return self.values.close(),
            ValueRef::Text(bytes) | ValueRef::Bytes(bytes) => self.values.push(bytes),
            other => {
                write_json(other, self.values.writer());
                self.values.close();
            }
        }
        self.validity.set(at);
    }

    /// Adds empty rows, up to a row.
    fn fill(&mut self, row_count: usize) {
        let count = i32::try_from(self.names.row_count()).unwrap_or(i32::MAX);
        // A row that was filled before keeps its end.
        self.ends.resize((row_count + 1).max(self.ends.len()), count);
    }

    pub fn finish(mut self, row_count: usize) -> Result<ArrayRef, ArrowError> {
        self.fill(row_count);
        let count = self.names.row_count();
        let names = Arc::new(self.names.strings(None)?);
        let values = self.values.binary(self.validity.finish(count))?;
        let entries = StructArray::try_new(entry_fields(), vec![names, values], None)?;
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        Ok(Arc::new(ListArray::try_new(header_entry(), offsets, Arc::new(entries), None)?))
    }
}
