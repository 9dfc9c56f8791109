//! Converts `penstock.v1.Properties` into the stored AMQP 0-9-1 properties block and back, and finds the fields for
//! routing and durability. An absent delivery mode is stored as persistent; a block without one came from an AMQP
//! client that did not ask for persistence and reads as transient. Both forms have at most `PROPERTIES_BYTES_MAX`
//! bytes.

use super::block::{self, Field};
use super::table::{self, ArrayRef, DEPTH_MAX, TableRef, ValueRef};
use super::table_writer::{begin_long, end_long, put_long_bytes, put_tagged};
use crate::WireError;
use crate::protobuf::{Reader, WireType, begin_length, end_length, put_bytes, put_varint};

/// The stored form of a message without properties: delivery_mode = 2.
pub const PERSISTENT_ONLY: [u8; 3] = [0x10, 0x00, 0x02];

pub const PROPERTIES_BYTES_MAX: usize = 1 << 20;

const TRANSIENT: u8 = 1;
const PERSISTENT: u8 = 2;
const PROPERTIES: &str = "the properties of a message";
const HEADER: &str = "a header of a message";
const SHORT_TEXT: &str = "a text property of a message";

/// The text fields of `penstock.v1.Properties` and their flags, in the order of the AMQP block. The other fields are
/// between them: headers, delivery_mode and priority after the first two, timestamp after the sixth.
const TEXTS: [(u32, u16); 9] = [
    (1, block::CONTENT_TYPE),
    (2, block::CONTENT_ENCODING),
    (6, block::CORRELATION_ID),
    (7, block::REPLY_TO),
    (8, block::EXPIRATION),
    (9, block::MESSAGE_ID),
    (11, block::TYPE),
    (12, block::USER_ID),
    (13, block::APP_ID),
];

#[derive(Default)]
struct Parsed<'a> {
    texts: [&'a [u8]; TEXTS.len()],
    has_headers: bool,
    delivery_mode: u64,
    priority: Option<u64>,
    timestamp: Option<u64>,
    delay_ms: Option<u64>,
}

/// Return a message's priority; `None` when it has none, which counts as 0.
#[inline]
pub fn priority_of(block: &[u8]) -> Result<Option<u8>, WireError> {
    if has(block, block::PRIORITY) { octet_of(block, block::PRIORITY) } else { Ok(None) }
}

/// Return when a message expires, as its publisher wrote it: milliseconds after it is stored, in decimal digits.
#[inline]
pub fn expiration_of(block: &[u8]) -> Result<Option<&[u8]>, WireError> {
    if has(block, block::EXPIRATION) { text_of(block, block::EXPIRATION) } else { Ok(None) }
}

/// Return the number of milliseconds of an expiration; `None` when it is none.
#[must_use]
pub fn milliseconds(expiration: &[u8]) -> Option<u64> {
    let is_decimal = !expiration.is_empty() && expiration.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(expiration).ok().filter(|_| is_decimal)?.parse().ok()
}

fn octet_of(block: &[u8], wanted: u16) -> Result<Option<u8>, WireError> {
    for field in block::fields(block)? {
        let (flag, field) = field?;
        if let Field::Octet(octet) = field
            && flag == wanted
        {
            return Ok(Some(octet));
        }
        if flag < wanted {
            break;
        }
    }
    Ok(None)
}

/// Whether the flags, which come first, name a property: most messages do not have it.
#[inline]
fn has(block: &[u8], flag: u16) -> bool {
    block.first_chunk().is_some_and(|flags| u16::from_be_bytes(*flags) & flag != 0)
}

fn text_of(block: &[u8], wanted: u16) -> Result<Option<&[u8]>, WireError> {
    for field in block::fields(block)? {
        let (flag, field) = field?;
        if let Field::Text(text) = field
            && flag == wanted
        {
            return Ok(Some(text));
        }
        if flag < wanted {
            break;
        }
    }
    Ok(None)
}

/// Appends the AMQP block of a serialised `penstock.v1.Properties`; absent ones give `PERSISTENT_ONLY`. Returns after how
/// many milliseconds the message may be delivered, which a block does not say.
///
/// On an error, the caller must discard the appended bytes.
pub fn properties_to_amqp(protobuf: Option<&[u8]>, out: &mut Vec<u8>) -> Result<Option<u64>, WireError> {
    let Some(bytes) = protobuf.filter(|bytes| !bytes.is_empty()) else {
        out.extend_from_slice(&PERSISTENT_ONLY);
        return Ok(None);
    };
    within_limit(bytes.len())?;
    let parsed = parse_properties(bytes)?;
    let start = out.len();
    out.extend_from_slice(&flags_of(&parsed).to_be_bytes());
    let (before_headers, after) = parsed.texts.split_at(2);
    let (before_timestamp, after_timestamp) = after.split_at(4);
    before_headers.iter().for_each(|text| put_short(out, text));
    if parsed.has_headers {
        put_headers(bytes, out)?;
    }
    out.push(match parsed.delivery_mode {
        0 => PERSISTENT,
        mode => octet(mode, 2, "delivery_mode is 1 (transient) or 2 (persistent)")?,
    });
    if let Some(priority) = parsed.priority {
        out.push(octet(priority, 255, "priority is 0 to 255")?);
    }
    before_timestamp.iter().for_each(|text| put_short(out, text));
    if let Some(timestamp) = parsed.timestamp {
        out.extend_from_slice(&timestamp.to_be_bytes());
    }
    after_timestamp.iter().for_each(|text| put_short(out, text));
    within_limit(out.len() - start)?;
    // Values have two bytes at least: shorter ones are not too many.
    if let Some(block) = out.get(start..).filter(|block| block.len() > 2 * table::VALUES_MAX) {
        headers_of(block)?.map_or(Ok(()), table::check)?;
    }
    Ok(parsed.delay_ms)
}

fn parse_properties(bytes: &[u8]) -> Result<Parsed<'_>, WireError> {
    let mut parsed = Parsed::default();
    let mut reader = Reader::new(bytes, PROPERTIES);
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            3 => {
                reader.slice(field, wire_type)?;
                parsed.has_headers = true;
            }
            4 => parsed.delivery_mode = reader.uint(field, wire_type)? & 0xffff_ffff,
            5 => parsed.priority = Some(reader.uint(field, wire_type)? & 0xffff_ffff),
            10 => parsed.timestamp = Some(reader.uint(field, wire_type)?),
            14 => parsed.delay_ms = Some(reader.uint(field, wire_type)?),
            _ => match TEXTS.iter().zip(&mut parsed.texts).find(|((number, _), _)| *number == field) {
                Some((_, text)) => *text = reader.text(field, wire_type, SHORT_TEXT, 255)?.as_bytes(),
                None => reader.skip(wire_type)?,
            },
        }
    }
    Ok(parsed)
}

fn flags_of(parsed: &Parsed<'_>) -> u16 {
    let texts = TEXTS.iter().zip(&parsed.texts).filter(|(_, text)| !text.is_empty());
    let mut flags = texts.fold(block::DELIVERY_MODE, |flags, ((_, flag), _)| flags | flag);
    if parsed.has_headers {
        flags |= block::HEADERS;
    }
    if parsed.priority.is_some() {
        flags |= block::PRIORITY;
    }
    if parsed.timestamp.is_some() {
        flags |= block::TIMESTAMP;
    }
    flags
}

fn octet(value: u64, max: u64, rule: &'static str) -> Result<u8, WireError> {
    if value > max {
        return Err(WireError::OutOfRange { what: PROPERTIES, rule });
    }
    Ok(value as u8)
}

fn within_limit(size: usize) -> Result<(), WireError> {
    if size > PROPERTIES_BYTES_MAX {
        return Err(WireError::TooLong { what: PROPERTIES, size, max: PROPERTIES_BYTES_MAX });
    }
    Ok(())
}

/// The length was checked when the text was read.
fn put_short(out: &mut Vec<u8>, text: &[u8]) {
    if !text.is_empty() {
        out.push(text.len() as u8);
        out.extend_from_slice(text);
    }
}

/// Entries of the map, in the order sent; a repeated key is written twice.
fn put_headers(properties: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
    put_long(out, |out| {
        let mut reader = Reader::new(properties, PROPERTIES);
        while let Some((field, wire_type)) = reader.field()? {
            match field {
                3 => put_entry(reader.slice(field, wire_type)?, out, 1)?,
                _ => reader.skip(wire_type)?,
            }
        }
        Ok(())
    })
}

/// Appends the output of `write` behind its u32 length.
fn put_long(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>) -> Result<(), WireError> {
    let start = begin_long(out);
    write(out)?;
    end_long(out, start);
    Ok(())
}

/// An entry of `map<string, Value>`: key 1, value 2.
fn put_entry(entry: &[u8], out: &mut Vec<u8>, depth: usize) -> Result<(), WireError> {
    let mut reader = Reader::new(entry, HEADER);
    let (mut key, mut value): (&str, &[u8]) = ("", &[]);
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => key = reader.text(field, wire_type, "the name of a header", 255)?,
            2 => value = reader.slice(field, wire_type)?,
            _ => reader.skip(wire_type)?,
        }
    }
    out.push(key.len() as u8);
    out.extend_from_slice(key.as_bytes());
    put_value(value, out, depth)
}

/// A `Value`: the last of its kinds that is set counts, without one it is null.
fn put_value(value: &[u8], out: &mut Vec<u8>, depth: usize) -> Result<(), WireError> {
    let mut reader = Reader::new(value, HEADER);
    let start = out.len();
    out.push(b'V');
    while let Some((field, wire_type)) = reader.field()? {
        if let 1..=9 = field {
            out.truncate(start);
        }
        match field {
            1 => out.extend_from_slice(&[b't', u8::from(reader.bool(field, wire_type)?)]),
            2 => put_tagged(out, b'l', &reader.uint(field, wire_type)?.to_be_bytes()),
            3 => {
                reader.expect(field, wire_type, WireType::Fixed64)?;
                put_tagged(out, b'd', &reader.fixed64()?.to_be_bytes());
            }
            4 => {
                let text = reader.text(field, wire_type, HEADER, PROPERTIES_BYTES_MAX)?;
                put_long_bytes(out, b'S', text.as_bytes());
            }
            5 => put_long_bytes(out, b'x', reader.slice(field, wire_type)?),
            6 => put_tagged(out, b'T', &reader.uint(field, wire_type)?.to_be_bytes()),
            7 => put_nested(out, b'F', reader.slice(field, wire_type)?, depth, put_entry)?,
            8 => put_nested(out, b'A', reader.slice(field, wire_type)?, depth, put_value)?,
            9 => put_decimal(out, reader.slice(field, wire_type)?)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(())
}

/// Writes one part of a table or an array, at its depth.
type PutPart = fn(&[u8], &mut Vec<u8>, usize) -> Result<(), WireError>;

/// A `Table` or an `Array`: both hold their parts as field 1.
fn put_nested(out: &mut Vec<u8>, tag: u8, content: &[u8], depth: usize, put_part: PutPart) -> Result<(), WireError> {
    if depth >= DEPTH_MAX {
        return Err(WireError::TooDeep { what: HEADER, max: DEPTH_MAX });
    }
    out.push(tag);
    put_long(out, |out| {
        let mut reader = Reader::new(content, HEADER);
        while let Some((field, wire_type)) = reader.field()? {
            match field {
                1 => put_part(reader.slice(field, wire_type)?, out, depth + 1)?,
                _ => reader.skip(wire_type)?,
            }
        }
        Ok(())
    })
}

fn put_decimal(out: &mut Vec<u8>, decimal: &[u8]) -> Result<(), WireError> {
    let mut reader = Reader::new(decimal, HEADER);
    let (mut scale, mut unscaled) = (0u64, 0i32);
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => scale = reader.uint(field, wire_type)? & 0xffff_ffff,
            2 => unscaled = reader.uint(field, wire_type)? as i32,
            _ => reader.skip(wire_type)?,
        }
    }
    out.push(b'D');
    out.push(octet(scale, 255, "the scale of a decimal is 0 to 255")?);
    out.extend_from_slice(&unscaled.to_be_bytes());
    Ok(())
}

/// The header table of a block, without its length; `None` when it has none.
pub fn headers_of(block: &[u8]) -> Result<Option<&[u8]>, WireError> {
    for field in block::fields(block)? {
        let (flag, field) = field?;
        if let Field::Table(table) = field {
            return Ok(Some(table));
        }
        if flag < block::HEADERS {
            break;
        }
    }
    Ok(None)
}

/// Return the user's name in a block; `None` when it has none.
#[inline]
pub fn user_id_of(block: &[u8]) -> Result<Option<&[u8]>, WireError> {
    // Flags that cannot be read are an error.
    if block.len() >= 2 && !has(block, block::USER_ID) { Ok(None) } else { text_of(block, block::USER_ID) }
}

/// 1 (transient) or 2 (persistent). An empty block is persistent; one that names no mode is transient.
pub fn delivery_mode_of(block: &[u8]) -> Result<u8, WireError> {
    if block.is_empty() || block == PERSISTENT_ONLY {
        return Ok(PERSISTENT);
    }
    for field in block::fields(block)? {
        let (flag, field) = field?;
        if let (block::DELIVERY_MODE, Field::Octet(mode)) = (flag, field) {
            return Ok(if mode == PERSISTENT { PERSISTENT } else { TRANSIENT });
        }
        if flag < block::DELIVERY_MODE {
            break;
        }
    }
    Ok(TRANSIENT)
}

/// Appends the serialised `penstock.v1.Properties` of an AMQP block; nothing for an empty block and `PERSISTENT_ONLY`.
///
/// On an error, the caller must discard the appended bytes. Text that is not UTF-8, which AMQP allows, has its bad
/// bytes replaced; a long string that is not UTF-8 becomes bytes.
pub fn amqp_to_properties(block: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
    if block.is_empty() || block == PERSISTENT_ONLY {
        return Ok(());
    }
    within_limit(block.len())?;
    let mut delivery_mode = TRANSIENT;
    for field in block::fields(block)? {
        match field? {
            (block::DELIVERY_MODE, Field::Octet(mode)) => {
                delivery_mode = if mode == PERSISTENT { PERSISTENT } else { TRANSIENT };
            }
            (_, Field::Octet(priority)) => put_number(out, 5, u64::from(priority)),
            (_, Field::Timestamp(seconds)) => put_number(out, 10, seconds),
            (_, Field::Table(headers)) => write_entries(table::entries(headers), 3, out)?,
            (flag, Field::Text(_)) if block::is_reserved(flag) => {}
            (flag, Field::Text(text)) => {
                if let Some((number, _)) = TEXTS.iter().find(|(_, known)| *known == flag) {
                    put_bytes(out, *number, String::from_utf8_lossy(text).as_bytes());
                }
            }
        }
    }
    put_number(out, 4, u64::from(delivery_mode));
    Ok(())
}

/// Writes a number even when it is zero, because its presence matters.
fn put_number(out: &mut Vec<u8>, field: u32, value: u64) {
    put_varint(out, u64::from(field << 3));
    put_varint(out, value);
}

fn write_entries(entries: table::Entries<'_>, field: u32, out: &mut Vec<u8>) -> Result<(), WireError> {
    for entry in entries {
        let (name, value) = entry?;
        let contents = begin_length(out, field);
        put_bytes(out, 1, String::from_utf8_lossy(name).as_bytes());
        write_value(value, 2, out)?;
        end_length(out, contents);
    }
    Ok(())
}

/// A `Value` as field `field`. Integers of every width become `int_value`.
fn write_value(value: ValueRef<'_>, field: u32, out: &mut Vec<u8>) -> Result<(), WireError> {
    let contents = begin_length(out, field);
    match value {
        ValueRef::Bool(value) => put_number(out, 1, u64::from(value)),
        ValueRef::I8(value) => put_number(out, 2, i64::from(value) as u64),
        ValueRef::U8(value) => put_number(out, 2, u64::from(value)),
        ValueRef::I16(value) => put_number(out, 2, i64::from(value) as u64),
        ValueRef::U16(value) => put_number(out, 2, u64::from(value)),
        ValueRef::I32(value) => put_number(out, 2, i64::from(value) as u64),
        ValueRef::U32(value) => put_number(out, 2, u64::from(value)),
        ValueRef::I64(value) => put_number(out, 2, value as u64),
        ValueRef::F32(value) => write_double(f64::from(value), out),
        ValueRef::F64(value) => write_double(value, out),
        ValueRef::Decimal { scale, value } => write_decimal(scale, value, out),
        ValueRef::Text(text) if std::str::from_utf8(text).is_ok() => put_bytes(out, 4, text),
        ValueRef::Text(bytes) | ValueRef::Bytes(bytes) => put_bytes(out, 5, bytes),
        ValueRef::Timestamp(seconds) => put_number(out, 6, seconds),
        ValueRef::Table(table) => write_table(table, out)?,
        ValueRef::Array(array) => write_array(array, out)?,
        ValueRef::Void => {}
    }
    end_length(out, contents);
    Ok(())
}

fn write_double(value: f64, out: &mut Vec<u8>) {
    put_varint(out, 3 << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn write_decimal(scale: u8, unscaled: i32, out: &mut Vec<u8>) {
    let contents = begin_length(out, 9);
    put_number(out, 1, u64::from(scale));
    put_number(out, 2, i64::from(unscaled) as u64);
    end_length(out, contents);
}

/// The table's reader bounds the depth of the recursion.
fn write_table(table: TableRef<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
    let contents = begin_length(out, 7);
    write_entries(table.entries(), 1, out)?;
    end_length(out, contents);
    Ok(())
}

fn write_array(array: ArrayRef<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
    let contents = begin_length(out, 8);
    for value in array.values() {
        write_value(value?, 1, out)?;
    }
    end_length(out, contents);
    Ok(())
}
