//! The column `headers` that a client sent: a list of structs of a name and a value, or a map from names to values.
//!
//! Invariants: a value keeps its bytes, and no header is left out. Text is published as text, and so are bytes that are
//! UTF-8, because clients and headers exchanges expect text. Other bytes are published as bytes.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, LargeListArray, ListArray, MapArray, StructArray};
use arrow_schema::DataType;
use penstock_wire::protobuf::{begin_length, end_length, put_bytes};

use crate::cells::{ByteCells, wrong_type};
use crate::columns::{HEADER_NAME, HEADER_VALUE};
use crate::error::ArrowFault;

/// Fields of `penstock.v1.Properties`, of an entry of its map, and of `penstock.v1.Value`.
const HEADERS: u32 = 3;
const ENTRY_NAME: u32 = 1;
const ENTRY_VALUE: u32 = 2;
const TEXT: u32 = 4;
const BYTES: u32 = 5;

const WANTED: &str = "a list of structs of 'key' (utf8) and 'value' (binary or utf8), or a map from utf8 to either";

enum Rows<'a> {
    List(&'a ListArray),
    LargeList(&'a LargeListArray),
    Map(&'a MapArray),
}

pub(crate) struct HeaderCells<'a> {
    rows: Rows<'a>,
    entries: &'a StructArray,
    names: ByteCells<'a>,
    values: ByteCells<'a>,
}

impl<'a> HeaderCells<'a> {
    /// `None` for a column without values, as from Python's `None`.
    ///
    /// # Errors
    /// `ColumnType`.
    pub fn of(column: &'a ArrayRef) -> Result<Option<HeaderCells<'a>>, ArrowFault> {
        let refused = || wrong_type("headers", column, WANTED);
        let (rows, entries) = match column.data_type() {
            DataType::Null => return Ok(None),
            DataType::List(_) => (Rows::List(column.as_list()), column.as_list::<i32>().values().as_struct_opt()),
            DataType::LargeList(_) => {
                (Rows::LargeList(column.as_list()), column.as_list::<i64>().values().as_struct_opt())
            }
            DataType::Map(_, _) => (Rows::Map(column.as_map()), Some(column.as_map().entries())),
            _ => return Err(refused()),
        };
        let entries = entries.filter(|entries| entries.num_columns() == 2).ok_or_else(refused)?;
        let (names, values) = match rows {
            // Maps are made with other names too.
            Rows::Map(map) => (Some(map.keys()), Some(map.values())),
            _ => (entries.column_by_name(HEADER_NAME), entries.column_by_name(HEADER_VALUE)),
        };
        let names = ByteCells::text("headers", names.ok_or_else(refused)?).map_err(|_| refused())?;
        let values = ByteCells::of("headers", values.ok_or_else(refused)?).map_err(|_| refused())?;
        Ok(Some(HeaderCells { rows, entries, names, values }))
    }

    /// Appends the headers of a row as fields of `penstock.v1.Properties`; `row` is below the row count.
    ///
    /// # Errors
    /// `UnnamedHeader`.
    pub fn put(&self, row: usize, out: &mut Vec<u8>) -> Result<(), ArrowFault> {
        for entry in self.entries_of(row) {
            let name = self.names.get(entry).filter(|_| self.entries.is_valid(entry));
            let contents = begin_length(out, HEADERS);
            put_bytes(out, ENTRY_NAME, name.ok_or(ArrowFault::UnnamedHeader { row })?);
            let value = begin_length(out, ENTRY_VALUE);
            if let Some(bytes) = self.values.get(entry) {
                put_bytes(out, if std::str::from_utf8(bytes).is_ok() { TEXT } else { BYTES }, bytes);
            }
            end_length(out, value);
            end_length(out, contents);
        }
        Ok(())
    }

    fn entries_of(&self, row: usize) -> Range<usize> {
        match self.rows {
            Rows::List(list) if list.is_valid(row) => range(list.value_offsets(), row),
            Rows::Map(map) if map.is_valid(row) => range(map.value_offsets(), row),
            Rows::LargeList(list) if list.is_valid(row) => range(list.value_offsets(), row),
            _ => 0..0,
        }
    }
}

/// The entries of a row by the offsets of all rows, which Arrow has checked.
fn range<T: Copy + TryInto<usize>>(offsets: &[T], row: usize) -> Range<usize> {
    let at = |row: usize| offsets.get(row).and_then(|&offset| offset.try_into().ok()).unwrap_or_default();
    at(row)..at(row + 1)
}
