//! Values of different lengths, one after the other, which can be cut off again.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, StringArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

use crate::fault::Fault;

/// Where each row's items end. Invariant: it ascends.
#[derive(Debug)]
pub(crate) struct Ends(Vec<i32>);

impl Ends {
    pub fn new() -> Ends {
        Ends(vec![0])
    }

    pub fn last(&self) -> usize {
        self.0.last().and_then(|end| usize::try_from(*end).ok()).unwrap_or_default()
    }

    /// Adds a row that ends at `end`; a column of Arrow has less than 2 GiB.
    pub fn close(&mut self, end: usize) -> Result<(), Fault> {
        self.0.push(i32::try_from(end).map_err(|_| Fault::new("the bodies of a batch have too many values"))?);
        Ok(())
    }

    /// Adds a row without items.
    pub fn repeat(&mut self) {
        self.0.extend_from_within(self.0.len() - 1..);
    }

    pub fn truncate(&mut self, row_count: usize) {
        self.0.truncate(row_count + 1);
    }

    pub fn finish(self) -> OffsetBuffer<i32> {
        OffsetBuffer::new(ScalarBuffer::from(self.0))
    }
}

/// Texts or bytes.
#[derive(Debug)]
pub(crate) struct Cells {
    ends: Ends,
    bytes: Vec<u8>,
}

impl Cells {
    pub fn new() -> Cells {
        Cells { ends: Ends::new(), bytes: Vec::new() }
    }

    #[inline]
    pub fn push(&mut self, value: &[u8]) -> Result<(), Fault> {
        self.bytes.extend_from_slice(value);
        self.ends.close(self.bytes.len())
    }

    pub fn push_null(&mut self) {
        // A value that failed on the way left bytes.
        self.bytes.truncate(self.ends.last());
        self.ends.repeat();
    }

    /// The bytes of the next value, which `close` ends.
    pub fn writer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub fn close(&mut self) -> Result<(), Fault> {
        self.ends.close(self.bytes.len())
    }

    pub fn truncate(&mut self, row_count: usize) {
        self.ends.truncate(row_count);
        self.bytes.truncate(self.ends.last());
    }

    pub fn binary(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(BinaryArray::try_new(self.ends.finish(), Buffer::from(self.bytes), nulls)?))
    }

    pub fn strings(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(StringArray::try_new(self.ends.finish(), Buffer::from(self.bytes), nulls)?))
    }
}
