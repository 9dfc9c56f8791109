//! The cells of a column that a client sent, of any of Arrow's types for bytes, texts or whole numbers.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

use crate::error::ArrowFault;

/// A column of bytes or text.
#[derive(Clone, Copy)]
pub(crate) enum ByteCells<'a> {
    Binary(&'a arrow_array::BinaryArray),
    LargeBinary(&'a arrow_array::LargeBinaryArray),
    BinaryView(&'a arrow_array::BinaryViewArray),
    Text(&'a arrow_array::StringArray),
    LargeText(&'a arrow_array::LargeStringArray),
    TextView(&'a arrow_array::StringViewArray),
    /// A column without values, as from Python's `None`.
    Null,
}

impl<'a> ByteCells<'a> {
    /// Bytes or text.
    pub fn of(name: &str, column: &'a ArrayRef) -> Result<ByteCells<'a>, ArrowFault> {
        Ok(match column.data_type() {
            DataType::Binary => ByteCells::Binary(column.as_binary()),
            DataType::LargeBinary => ByteCells::LargeBinary(column.as_binary()),
            DataType::BinaryView => ByteCells::BinaryView(column.as_binary_view()),
            _ => return Self::text(name, column).map_err(|_| wrong_type(name, column, "binary or utf8")),
        })
    }

    /// Text only.
    pub fn text(name: &str, column: &'a ArrayRef) -> Result<ByteCells<'a>, ArrowFault> {
        Ok(match column.data_type() {
            DataType::Utf8 => ByteCells::Text(column.as_string()),
            DataType::LargeUtf8 => ByteCells::LargeText(column.as_string()),
            DataType::Utf8View => ByteCells::TextView(column.as_string_view()),
            DataType::Null => ByteCells::Null,
            _ => return Err(wrong_type(name, column, "utf8")),
        })
    }

    /// `row` is below the column's length.
    #[inline]
    pub fn get(self, row: usize) -> Option<&'a [u8]> {
        match self {
            ByteCells::Binary(cells) => cells.is_valid(row).then(|| cells.value(row)),
            ByteCells::LargeBinary(cells) => cells.is_valid(row).then(|| cells.value(row)),
            ByteCells::BinaryView(cells) => cells.is_valid(row).then(|| cells.value(row)),
            ByteCells::Text(cells) => cells.is_valid(row).then(|| cells.value(row).as_bytes()),
            ByteCells::LargeText(cells) => cells.is_valid(row).then(|| cells.value(row).as_bytes()),
            ByteCells::TextView(cells) => cells.is_valid(row).then(|| cells.value(row).as_bytes()),
            ByteCells::Null => None,
        }
    }
}

/// The whole number in a column's row; `row` is below the column's length.
pub(crate) fn whole_number(name: &str, column: &ArrayRef, row: usize) -> Result<Option<i64>, ArrowFault> {
    if column.data_type() == &DataType::Null || column.is_null(row) {
        return Ok(None);
    }
    Ok(Some(match column.data_type() {
        DataType::Int8 => column.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => column.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row),
        DataType::UInt8 => column.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => column.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => i64::try_from(column.as_primitive::<UInt64Type>().value(row)).unwrap_or(i64::MAX),
        _ => return Err(wrong_type(name, column, "a type of whole numbers")),
    }))
}

pub(crate) fn wrong_type(name: &str, column: &ArrayRef, wanted: &'static str) -> ArrowFault {
    ArrowFault::ColumnType { column: name.to_owned(), found: column.data_type().clone(), wanted }
}
