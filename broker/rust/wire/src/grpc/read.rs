//! `ReadRequest` and `ReadResponse` of `penstock.v1.StreamService`: credit and stored offsets up, deliveries down. Deliveries
//! themselves are in `deliveries`.

use super::deliveries::DeliveriesView;
use crate::protobuf::{Reader, WireType, begin_length, end_length, put_bool, put_text, put_uint, put_varint};
use crate::{NAME_BYTES_MAX, WireError};

const REQUEST: &str = "a read request";
const OPEN: &str = "the open of a read stream";
const START: &str = "the start of a read stream";
const RESPONSE: &str = "a read response";

/// Start of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// After the last message.
    #[default]
    Next,
    First,
    Last,
    Offset(u64),
    /// Milliseconds since 1970-01-01 UTC.
    Timestamp(u64),
    LastCount(u64),
}

impl Start {
    /// Reads a serialised `penstock.v1.Start`. Of several places the last counts, as in a protobuf oneof.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes, START);
        let mut start = Start::Next;
        while let Some((field, wire_type)) = reader.field()? {
            start = match field {
                1 => match reader.uint(field, wire_type)? {
                    0 | 1 => Start::Next,
                    2 => Start::First,
                    3 => Start::Last,
                    _ => {
                        return Err(WireError::OutOfRange {
                            what: START,
                            rule: "places are 1 (next), 2 (first), 3 (last)",
                        });
                    }
                },
                2 => Start::Offset(reader.uint(field, wire_type)?),
                3 => Start::Timestamp(reader.uint(field, wire_type)?),
                4 => Start::LastCount(reader.uint(field, wire_type)?),
                _ => {
                    reader.skip(wire_type)?;
                    continue;
                }
            };
        }
        Ok(start)
    }
}

/// The opening of a read stream. An empty `vhost` means "/", an empty `group` is none, a credit of 0 has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadOpen<'a> {
    pub vhost: &'a str,
    pub partition: &'a str,
    pub start: Start,
    pub end: Option<u64>,
    pub credit: u32,
    pub group: &'a str,
    pub single_active: bool,
    /// The broker may answer from a replica that does not lead.
    pub from_replica: bool,
}

/// One request of a read stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrame<'a> {
    Open(ReadOpen<'a>),
    Credit { responses: u32 },
    Stored { offset: u64 },
}

/// One response of a read stream.
#[derive(Debug, Clone, Copy)]
pub enum ReadEvent<'a> {
    Opened { first: u64, begin: u64, next: u64 },
    Deliveries(DeliveriesView<'a>),
    Cancelled { reason: &'a str },
    Active { active: bool, begin: u64 },
}

pub fn parse_read_request(bytes: &[u8]) -> Result<ReadFrame<'_>, WireError> {
    let mut reader = Reader::new(bytes, REQUEST);
    let mut frame = None;
    while let Some((field, wire_type)) = reader.field()? {
        let parsed = match field {
            1 => ReadFrame::Open(ReadOpen::parse(reader.slice(field, wire_type)?)?),
            2 => {
                let [responses] = numbers(reader.slice(field, wire_type)?, REQUEST)?;
                ReadFrame::Credit { responses: saturate(responses) }
            }
            3 => {
                let [offset] = numbers(reader.slice(field, wire_type)?, REQUEST)?;
                ReadFrame::Stored { offset }
            }
            _ => {
                reader.skip(wire_type)?;
                continue;
            }
        };
        if frame.replace(parsed).is_some() {
            return Err(WireError::Repeated { what: "the content of a read request" });
        }
    }
    frame.ok_or(WireError::Empty { what: REQUEST })
}

impl<'a> ReadOpen<'a> {
    /// Reads a serialised `penstock.v1.ReadOpen`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes, OPEN);
        let mut open = ReadOpen::default();
        let mut has_start = false;
        while let Some((field, wire_type)) = reader.field()? {
            match field {
                1 => open.vhost = name(&mut reader, field, wire_type, "the name of a vhost")?,
                2 => open.partition = name(&mut reader, field, wire_type, "the name of a partition")?,
                3 => {
                    open.start = Start::parse(reader.slice(field, wire_type)?)?;
                    if std::mem::replace(&mut has_start, true) {
                        return Err(WireError::Repeated { what: START });
                    }
                }
                4 => open.end = Some(reader.uint(field, wire_type)?),
                5 => open.credit = saturate(reader.uint(field, wire_type)?),
                6 => open.group = name(&mut reader, field, wire_type, "the name of a group")?,
                7 => open.single_active = reader.bool(field, wire_type)?,
                8 => open.from_replica = reader.bool(field, wire_type)?,
                _ => reader.skip(wire_type)?,
            }
        }
        Ok(open)
    }

    /// Appends it as a serialised `penstock.v1.ReadOpen`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, 1, self.vhost);
        put_text(out, 2, self.partition);
        let contents = begin_length(out, 3);
        let (field, value) = match self.start {
            Start::Next => (1, 1),
            Start::First => (1, 2),
            Start::Last => (1, 3),
            Start::Offset(offset) => (2, offset),
            Start::Timestamp(timestamp_ms) => (3, timestamp_ms),
            Start::LastCount(count) => (4, count),
        };
        put_number(out, field, value);
        end_length(out, contents);
        if let Some(end) = self.end {
            put_number(out, 4, end);
        }
        put_uint(out, 5, u64::from(self.credit));
        put_text(out, 6, self.group);
        put_bool(out, 7, self.single_active);
        put_bool(out, 8, self.from_replica);
    }
}

fn name<'a>(
    reader: &mut Reader<'a>,
    field: u32,
    wire_type: WireType,
    what: &'static str,
) -> Result<&'a str, WireError> {
    reader.text(field, wire_type, what, NAME_BYTES_MAX)
}

/// The fields 1 to N of a message of numbers.
fn numbers<const N: usize>(bytes: &[u8], what: &'static str) -> Result<[u64; N], WireError> {
    let mut reader = Reader::new(bytes, what);
    let mut found = [0; N];
    while let Some((field, wire_type)) = reader.field()? {
        match (field as usize).checked_sub(1).and_then(|at| found.get_mut(at)) {
            Some(number) => *number = reader.uint(field, wire_type)?,
            None => reader.skip(wire_type)?,
        }
    }
    Ok(found)
}

fn saturate(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A number whose presence matters, even when it is 0.
fn put_number(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

pub fn parse_read_response(bytes: &[u8]) -> Result<ReadEvent<'_>, WireError> {
    let mut reader = Reader::new(bytes, RESPONSE);
    let mut event = None;
    while let Some((field, wire_type)) = reader.field()? {
        let parsed = match field {
            1 => {
                let [first, begin, next] = numbers(reader.slice(field, wire_type)?, RESPONSE)?;
                ReadEvent::Opened { first, begin, next }
            }
            2 => ReadEvent::Deliveries(DeliveriesView::new(reader.slice(field, wire_type)?)),
            3 => ReadEvent::Cancelled { reason: parse_reason(reader.slice(field, wire_type)?)? },
            4 => {
                let [active, begin] = numbers(reader.slice(field, wire_type)?, RESPONSE)?;
                ReadEvent::Active { active: active != 0, begin }
            }
            _ => {
                reader.skip(wire_type)?;
                continue;
            }
        };
        if event.replace(parsed).is_some() {
            return Err(WireError::Repeated { what: "the content of a read response" });
        }
    }
    event.ok_or(WireError::Empty { what: RESPONSE })
}

fn parse_reason(bytes: &[u8]) -> Result<&str, WireError> {
    let mut reader = Reader::new(bytes, RESPONSE);
    let mut reason = "";
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => reason = reader.text(field, wire_type, "the reason of an end", usize::MAX)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(reason)
}

pub fn encode_read_open(out: &mut Vec<u8>, open: &ReadOpen<'_>) {
    let contents = begin_length(out, 1);
    open.encode(out);
    end_length(out, contents);
}

pub fn encode_credit(out: &mut Vec<u8>, responses: u32) {
    put_numbers(out, 2, [u64::from(responses)]);
}

pub fn encode_stored(out: &mut Vec<u8>, offset: u64) {
    put_numbers(out, 3, [offset]);
}

pub fn encode_read_opened(out: &mut Vec<u8>, first: u64, begin: u64, next: u64) {
    put_numbers(out, 1, [first, begin, next]);
}

pub fn encode_read_cancelled(out: &mut Vec<u8>, reason: &str) {
    let contents = begin_length(out, 3);
    put_text(out, 1, reason);
    end_length(out, contents);
}

pub fn encode_active(out: &mut Vec<u8>, active: bool, begin: u64) {
    put_numbers(out, 4, [u64::from(active), begin]);
}

fn put_numbers<const N: usize>(out: &mut Vec<u8>, field: u32, numbers: [u64; N]) {
    let contents = begin_length(out, field);
    for (field, number) in (1..).zip(numbers) {
        put_uint(out, field, number);
    }
    end_length(out, contents);
}
