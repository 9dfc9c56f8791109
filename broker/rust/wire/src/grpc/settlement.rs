//! `Settlement` and `Range`: a consumer's answer about sequences it holds. Every range is checked when the settlement
//! is read, so iterating the ranges afterwards cannot fail; whether the consumer holds them is not known here.
//!
//! Limits: at most [`RANGES_MAX`] ranges. Two bytes may be a range, so a request could have millions otherwise.

use crate::WireError;
use crate::protobuf::{Reader, begin_length, end_length, put_uint, put_varint, varint_len};

const SETTLEMENT: &str = "a settlement";
const RANGE: &str = "a range";

/// One more than a consumer holds at most, were each a range of its own.
pub const RANGES_MAX: usize = 1 << 16;

/// A settlement with well-formed ranges, each with `first <= last` and not empty, and not too many.
#[derive(Debug, Clone, Copy)]
pub struct SettlementView<'a> {
    /// The number that the client sent: 1 ack, 2 reject, 3 requeue; the caller refuses others.
    pub outcome: u32,
    /// After how many milliseconds requeued messages may be delivered again.
    pub delay_ms: Option<u64>,
    pub range_count: usize,
    content: &'a [u8],
}

impl<'a> SettlementView<'a> {
    pub fn parse(content: &'a [u8]) -> Result<Self, WireError> {
        let mut view = SettlementView { outcome: 0, delay_ms: None, range_count: 0, content };
        let mut reader = Reader::new(content, SETTLEMENT);
        while let Some((field, wire_type)) = reader.field()? {
            match field {
                1 => {
                    let (first, last) = parse_range(reader.slice(field, wire_type)?)?;
                    if first > last {
                        return Err(WireError::OutOfRange { what: RANGE, rule: "first must not be above last" });
                    }
                    if last == 0 {
                        return Err(WireError::OutOfRange { what: RANGE, rule: "sequences begin with 1" });
                    }
                    view.range_count += 1;
                    if view.range_count > RANGES_MAX {
                        return Err(WireError::TooMany { what: SETTLEMENT, of: "ranges", max: RANGES_MAX });
                    }
                }
                2 => view.outcome = reader.uint(field, wire_type)? as u32,
                3 => view.delay_ms = Some(reader.uint(field, wire_type)?),
                _ => reader.skip(wire_type)?,
            }
        }
        Ok(view)
    }

    /// The ranges in the order sent, both ends included. They may overlap.
    pub fn ranges(&self) -> Ranges<'a> {
        Ranges { reader: Reader::new(self.content, SETTLEMENT) }
    }
}

/// Iterator over the ranges of a settlement.
#[derive(Debug, Clone)]
pub struct Ranges<'a> {
    reader: Reader<'a>,
}

impl Iterator for Ranges<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        while let Ok(Some((field, wire_type))) = self.reader.field() {
            if field == 1 {
                return self.reader.bytes().and_then(parse_range).ok();
            }
            self.reader.skip(wire_type).ok()?;
        }
        None
    }
}

pub(super) fn parse_range(bytes: &[u8]) -> Result<(u64, u64), WireError> {
    let mut reader = Reader::new(bytes, RANGE);
    let (mut first, mut last) = (0, 0);
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => first = reader.uint(field, wire_type)?,
            2 => last = reader.uint(field, wire_type)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok((first, last))
}

pub(super) fn put_range(out: &mut Vec<u8>, field: u32, first: u64, last: u64) {
    let number_len = |value: u64| if value == 0 { 0 } else { 1 + varint_len(value) };
    put_varint(out, u64::from(field << 3 | 2));
    put_varint(out, (number_len(first) + number_len(last)) as u64);
    put_uint(out, 1, first);
    put_uint(out, 2, last);
}

/// A settlement as field `field` of the message being written.
pub(super) fn put_settlement(
    out: &mut Vec<u8>,
    field: u32,
    outcome: u32,
    ranges: impl IntoIterator<Item = (u64, u64)>,
) {
    let contents = begin_length(out, field);
    for (first, last) in ranges {
        put_range(out, 1, first, last);
    }
    put_uint(out, 2, u64::from(outcome));
    end_length(out, contents);
}
