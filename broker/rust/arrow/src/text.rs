//! Columns of variable length under construction. Absent values cost nothing until the column is finished: offsets and
//! validity are filled up to the next value.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, StringArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

/// Invariant: `ends` has one more entry than there are rows so far, and ascends.
#[derive(Debug)]
pub(crate) struct Bytes {
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

impl Bytes {
    pub fn new(rows_about: usize, bytes_about: usize) -> Bytes {
        let mut ends = Vec::with_capacity(rows_about + 1);
        ends.push(0);
        Bytes { ends, bytes: Vec::with_capacity(bytes_about) }
    }

    pub fn row_count(&self) -> usize {
        self.ends.len() - 1
    }

    #[inline]
    pub fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.close();
    }

    /// Invalid UTF-8 gets replacement characters.
    #[inline]
    pub fn push_text(&mut self, value: &[u8]) {
        match std::str::from_utf8(value) {
            Ok(text) => self.bytes.extend_from_slice(text.as_bytes()),
            Err(_) => self.bytes.extend_from_slice(String::from_utf8_lossy(value).as_bytes()),
        }
        self.close();
    }

    /// Repeats the value of the row before, which is in the buffer already; for names.
    #[inline]
    pub fn push_again(&mut self) {
        let to = self.bytes.len();
        let from = self.ends.iter().rev().nth(1).map_or(to, |&end| end as usize);
        self.bytes.extend_from_within(from..to);
        self.close();
    }

    /// Adds empty values up to a row.
    pub fn fill(&mut self, row_count: usize) {
        let end = self.ends.last().copied().unwrap_or_default();
        self.ends.resize(row_count + 1, end);
    }

    /// Writer of the next value, which `close` ends.
    pub fn writer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends a value. No batch comes near 2 GiB: the largest is one message and a little more.
    #[inline]
    pub fn close(&mut self) {
        self.ends.push(i32::try_from(self.bytes.len()).unwrap_or(i32::MAX));
    }

    fn offsets(ends: Vec<i32>) -> OffsetBuffer<i32> {
        OffsetBuffer::new(ScalarBuffer::from(ends))
    }

    pub fn binary(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(BinaryArray::try_new(Self::offsets(self.ends), Buffer::from(self.bytes), nulls)?))
    }

    pub fn strings(self, nulls: Option<NullBuffer>) -> Result<StringArray, ArrowError> {
        StringArray::try_new(Self::offsets(self.ends), Buffer::from(self.bytes), nulls)
    }
}

/// Which rows have a value; invalid up to the next one that has.
#[derive(Debug)]
pub(crate) struct Validity {
    bits: BooleanBufferBuilder,
    valid_count: usize,
}

impl Validity {
    pub fn new() -> Validity {
        Validity { bits: BooleanBufferBuilder::new(0), valid_count: 0 }
    }

    #[inline]
    pub fn set(&mut self, row: usize) {
        let missing = row.saturating_sub(self.bits.len());
        self.bits.append_n(missing, false);
        self.bits.append(true);
        self.valid_count += 1;
    }

    pub fn finish(mut self, row_count: usize) -> Option<NullBuffer> {
        if self.valid_count == row_count {
            return None;
        }
        self.bits.append_n(row_count.saturating_sub(self.bits.len()), false);
        let bits: BooleanBuffer = self.bits.finish();
        Some(NullBuffer::new(bits))
    }
}

/// A column whose values may be absent.
#[derive(Debug)]
pub(crate) struct Optional {
    values: Bytes,
    validity: Validity,
}

impl Optional {
    pub fn new() -> Optional {
        Optional { values: Bytes::new(0, 0), validity: Validity::new() }
    }

    #[inline]
    pub fn put(&mut self, row: usize, value: &[u8]) {
        self.values.fill(row);
        self.values.push(value);
        self.validity.set(row);
    }

    pub fn put_text(&mut self, row: usize, value: &[u8]) {
        self.values.fill(row);
        self.values.push_text(value);
        self.validity.set(row);
    }

    pub fn binary(mut self, row_count: usize) -> Result<ArrayRef, ArrowError> {
        self.values.fill(row_count);
        self.values.binary(self.validity.finish(row_count))
    }

    pub fn strings(mut self, row_count: usize) -> Result<ArrayRef, ArrowError> {
        self.values.fill(row_count);
        Ok(Arc::new(self.values.strings(self.validity.finish(row_count))?))
    }
}
