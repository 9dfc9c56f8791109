//! Checks that a client's batch matches its schema and its body, before Arrow's code reads it.
//!
//! Invariant: a batch that passes does not crash Arrow's code, which assumes that places are within the body, that row
//! counts are right and that buffers hold whole values, and which checks nothing at all for some types.

use std::collections::VecDeque;

use arrow_schema::{DataType, Field, Schema};

use crate::error::ArrowFault;

/// More rows than any batch of our callers can have.
const ROWS_MAX: i64 = 1 << 31;
/// A view of bytes: a length, then the bytes themselves or their place.
const VIEW_BYTES: usize = 16;

/// # Errors
/// `ColumnType`: a column has a type that is not published.
pub(crate) fn check_types(schema: &Schema) -> Result<(), ArrowFault> {
    schema.fields().iter().try_for_each(|field| check_type(field))
}

fn check_type(field: &Field) -> Result<(), ArrowFault> {
    match field.data_type() {
        DataType::Null | DataType::Boolean => Ok(()),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Ok(()),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Ok(()),
        DataType::Struct(children) => children.iter().try_for_each(|child| check_type(child)),
        DataType::Map(entries, _) | DataType::List(entries) | DataType::LargeList(entries) => check_type(entries),
        flat if flat.is_primitive() => Ok(()),
        found => Err(ArrowFault::ColumnType {
            column: field.name().clone(),
            found: found.clone(),
            wanted: "bytes, text, a number, a time, or a struct, list or map of them: cast it",
        }),
    }
}

/// `schema` has passed [`check_types`].
///
/// # Errors
/// `Malformed`.
pub(crate) fn check_batch(
    schema: &Schema,
    batch: &arrow_ipc::RecordBatch<'_>,
    body_bytes: usize,
) -> Result<(), ArrowFault> {
    let counts = |node: &arrow_ipc::FieldNode| {
        (0..=ROWS_MAX).contains(&node.length()) && (0..=node.length()).contains(&node.null_count())
    };
    let is_counted = batch.nodes().is_none_or(|nodes| nodes.iter().all(counts));
    if !is_counted || !(0..=ROWS_MAX).contains(&batch.length()) {
        return Err(ArrowFault::Malformed("the rows of a batch are counted wrong"));
    }
    let lengths: Option<Vec<usize>> =
        batch.buffers().into_iter().flatten().map(|buffer| length_within(buffer, body_bytes)).collect();
    let lengths = lengths.ok_or(ArrowFault::Malformed("a buffer of a batch ends beyond its body"))?;
    let view_buffers = batch.variadicBufferCounts().into_iter().flatten().collect();
    let mut buffers = Buffers { lengths: lengths.into_iter(), view_buffers };
    schema.fields().iter().try_for_each(|field| buffers.take(field))
}

fn length_within(buffer: &arrow_ipc::Buffer, body_bytes: usize) -> Option<usize> {
    let (offset, length) = (usize::try_from(buffer.offset()).ok()?, usize::try_from(buffer.length()).ok()?);
    offset.checked_add(length).filter(|end| *end <= body_bytes).map(|_| length)
}

/// The buffers of a batch that no field has used yet.
struct Buffers {
    lengths: std::vec::IntoIter<usize>,
    view_buffers: VecDeque<i64>,
}

impl Buffers {
    /// In the order of Arrow's columnar format, "Buffer Listing for Each Layout".
    fn take(&mut self, field: &Field) -> Result<(), ArrowFault> {
        match field.data_type() {
            DataType::Null => return Ok(()),
            DataType::Struct(children) => {
                self.bits()?;
                return children.iter().try_for_each(|child| self.take(child));
            }
            _ => self.bits()?,
        }
        match field.data_type() {
            DataType::Boolean => self.bits(),
            DataType::Utf8 | DataType::Binary => self.whole(size_of::<i32>()).and_then(|()| self.bits()),
            DataType::LargeUtf8 | DataType::LargeBinary => self.whole(size_of::<i64>()).and_then(|()| self.bits()),
            DataType::Utf8View | DataType::BinaryView => self.views(),
            DataType::Map(items, _) | DataType::List(items) => {
                self.whole(size_of::<i32>()).and_then(|()| self.take(items))
            }
            DataType::LargeList(items) => self.whole(size_of::<i64>()).and_then(|()| self.take(items)),
            flat => self.whole(flat.primitive_width().unwrap_or(1)),
        }
    }

    fn views(&mut self) -> Result<(), ArrowFault> {
        let missing = ArrowFault::Malformed("a batch does not say how many buffers its views have");
        let count = self.view_buffers.pop_front().and_then(|count| usize::try_from(count).ok()).ok_or(missing)?;
        self.whole(VIEW_BYTES)?;
        (0..count).try_for_each(|_| self.bits())
    }

    /// A buffer of any length.
    fn bits(&mut self) -> Result<(), ArrowFault> {
        self.whole(1)
    }

    /// A buffer of values of `width` bytes.
    fn whole(&mut self, width: usize) -> Result<(), ArrowFault> {
        let length = self.lengths.next().ok_or(ArrowFault::Malformed("a batch has too few buffers for its columns"))?;
        if length.is_multiple_of(width) {
            Ok(())
        } else {
            Err(ArrowFault::Malformed("a buffer of a batch ends in the middle of a value"))
        }
    }
}
