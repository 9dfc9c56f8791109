//! `PublishRequest` and `PublishResponse`: messages up, outcomes down. A batch is scanned once for the names of all its
//! messages and read message by message afterwards, so names may come after the messages they apply to.

use std::ops::Range;

use crate::protobuf::{
    Reader, begin_length, bytes_key, end_length, put_bool, put_bytes, put_len_head, put_text, put_uint, put_varint,
    varint_key, varint_len,
};
use crate::{NAME_BYTES_MAX, Name, WireError};

const REQUEST: &str = "a publish request";
const OPEN: &str = "the open of a publish stream";
const BATCH: &str = "a publish batch";
const MESSAGE: &str = "a message of a publish batch";
const RESPONSE: &str = "a publish response";
const OUTCOME: &str = "an outcome of a publish response";

const BATCH_EXCHANGE: u64 = bytes_key(1);
const BATCH_ROUTING_KEY: u64 = bytes_key(2);
const BATCH_MANDATORY: u64 = varint_key(3);
const BATCH_MESSAGES: u64 = bytes_key(4);
const BATCH_PRODUCER_SEQUENCE: u64 = varint_key(5);
/// The highest known field of a batch, and of a message.
const BATCH_FIELD_MAX: u32 = 5;
const MESSAGE_FIELD_MAX: u32 = 5;
const MESSAGE_BODY: u64 = bytes_key(1);
const MESSAGE_EXCHANGE: u64 = bytes_key(2);
const MESSAGE_ROUTING_KEY: u64 = bytes_key(3);
const MESSAGE_PROPERTIES: u64 = bytes_key(4);
const MESSAGE_KEY: u64 = bytes_key(5);

/// The longest key of a message.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// One request of a publish stream.
#[derive(Debug, Clone, Copy)]
pub enum PublishFrame<'a> {
    /// An empty `vhost` means "/". `level` is the number that the client sent, known or not. An empty `producer` is
    /// none.
    Open {
        vhost: &'a str,
        level: u32,
        producer: &'a str,
    },
    Batch(BatchView<'a>),
}

/// A batch with checked names, whose messages are read lazily.
#[derive(Debug, Clone, Copy)]
pub struct BatchView<'a> {
    pub exchange: Name<'a>,
    pub routing_key: Name<'a>,
    pub mandatory: bool,
    pub message_count: usize,
    /// The producer's sequence of the first message; 0 when they have none.
    pub producer_sequence: u64,
    content: &'a [u8],
}

/// One message; it has the batch's names where it has none of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageRef<'a> {
    pub body: &'a [u8],
    pub exchange: Name<'a>,
    pub routing_key: Name<'a>,
    /// A serialised `penstock.v1.Properties`, not parsed yet.
    pub properties: Option<&'a [u8]>,
    pub key: Option<&'a [u8]>,
}

pub fn parse_publish(bytes: &[u8]) -> Result<PublishFrame<'_>, WireError> {
    let mut reader = Reader::new(bytes, REQUEST);
    let mut frame = None;
    while let Some((field, wire_type)) = reader.field()? {
        let parsed = match field {
            1 => parse_open(reader.slice(field, wire_type)?)?,
            2 => PublishFrame::Batch(scan_batch(reader.slice(field, wire_type)?)?),
            _ => {
                reader.skip(wire_type)?;
                continue;
            }
        };
        if frame.replace(parsed).is_some() {
            return Err(WireError::Repeated { what: "the content of a publish request" });
        }
    }
    frame.ok_or(WireError::Empty { what: REQUEST })
}

fn parse_open(bytes: &[u8]) -> Result<PublishFrame<'_>, WireError> {
    let mut reader = Reader::new(bytes, OPEN);
    let (mut vhost, mut level, mut producer) = ("", 0, "");
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => vhost = reader.text(field, wire_type, "the name of a vhost", NAME_BYTES_MAX)?,
            2 => level = reader.uint(field, wire_type)? as u32,
            3 => producer = reader.text(field, wire_type, "the name of a producer", NAME_BYTES_MAX)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(PublishFrame::Open { vhost, level, producer })
}

pub(super) fn scan_batch(content: &[u8]) -> Result<BatchView<'_>, WireError> {
    let mut reader = Reader::new(content, BATCH);
    let mut batch = BatchView {
        exchange: Name::default(),
        routing_key: Name::default(),
        mandatory: false,
        message_count: 0,
        producer_sequence: 0,
        content,
    };
    while let Some(key) = reader.key()? {
        match key {
            BATCH_MESSAGES => {
                reader.bytes()?;
                batch.message_count += 1;
            }
            BATCH_EXCHANGE => batch.exchange = exchange_name(&mut reader)?,
            BATCH_ROUTING_KEY => batch.routing_key = routing_key(&mut reader)?,
            BATCH_MANDATORY => batch.mandatory = reader.varint()? != 0,
            BATCH_PRODUCER_SEQUENCE => batch.producer_sequence = reader.varint()?,
            _ => reader.pass(key, BATCH_FIELD_MAX)?,
        }
    }
    Ok(batch)
}

#[inline]
fn exchange_name<'a>(reader: &mut Reader<'a>) -> Result<Name<'a>, WireError> {
    Name::new("the name of an exchange", reader.bytes()?)
}

#[inline]
fn routing_key<'a>(reader: &mut Reader<'a>) -> Result<Name<'a>, WireError> {
    Name::new("a routing key", reader.bytes()?)
}

fn message_key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
    let key = reader.bytes()?;
    if key.len() > KEY_BYTES_MAX {
        return Err(WireError::TooLong { what: "the key of a message", size: key.len(), max: KEY_BYTES_MAX });
    }
    Ok(key)
}

impl<'a> BatchView<'a> {
    /// The messages in the order sent. The iteration ends after its first error.
    pub fn messages(&self) -> Messages<'a> {
        Messages { reader: Reader::new(self.content, BATCH), exchange: self.exchange, routing_key: self.routing_key }
    }
}

/// A batch that has its frame, to be read in parts.
#[derive(Debug)]
pub struct HeldBatch<F> {
    frame: F,
    /// Where in the frame the messages are that were not read yet, and the names.
    rest: Range<usize>,
    exchange: Range<usize>,
    routing_key: Range<usize>,
    pub mandatory: bool,
    pub message_count: usize,
    /// See [`BatchView`].
    pub producer_sequence: u64,
}

impl<F: AsRef<[u8]>> HeldBatch<F> {
    /// Takes a request that is a batch; `None` for one that opens a stream.
    ///
    /// # Errors
    /// When the bytes are neither.
    pub fn parse(frame: F) -> Result<Option<HeldBatch<F>>, WireError> {
        let bytes = frame.as_ref();
        let PublishFrame::Batch(batch) = parse_publish(bytes)? else { return Ok(None) };
        let rest = place_in(bytes, batch.content);
        let (exchange, routing_key) =
            (place_in(bytes, batch.exchange.as_bytes()), place_in(bytes, batch.routing_key.as_bytes()));
        let BatchView { mandatory, message_count, producer_sequence, .. } = batch;
        Ok(Some(HeldBatch { frame, rest, exchange, routing_key, mandatory, message_count, producer_sequence }))
    }

    /// The messages that were not read yet.
    pub fn messages(&self) -> Messages<'_> {
        let at = |place: &Range<usize>| self.frame.as_ref().get(place.clone()).unwrap_or_default();
        Messages {
            reader: Reader::new(at(&self.rest), BATCH),
            exchange: Name::checked(at(&self.exchange)),
            routing_key: Name::checked(at(&self.routing_key)),
        }
    }

    /// The bytes of the messages that were not read yet.
    pub fn rest_bytes(&self) -> usize {
        self.rest.len()
    }

    /// Goes on where so many bytes are left; returns how many that takes.
    pub fn advance_to(&mut self, rest_bytes: usize) -> usize {
        let step = self.rest.len().saturating_sub(rest_bytes);
        self.rest.start += step;
        step
    }
}

/// Where in a frame a part of it lies.
fn place_in(frame: &[u8], part: &[u8]) -> Range<usize> {
    if part.is_empty() {
        return 0..0; // it may lie anywhere
    }
    let start = part.as_ptr().addr() - frame.as_ptr().addr();
    start..start + part.len()
}

/// Iterator over the messages of a batch.
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    reader: Reader<'a>,
    exchange: Name<'a>,
    routing_key: Name<'a>,
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<MessageRef<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let message = self.step().transpose()?;
        if message.is_err() {
            self.reader = Reader::new(&[], BATCH);
        }
        Some(message)
    }
}

impl<'a> Messages<'a> {
    /// Bytes of the content that are not read yet.
    pub fn rest_bytes(&self) -> usize {
        self.reader.rest().len()
    }

    #[inline]
    fn step(&mut self) -> Result<Option<MessageRef<'a>>, WireError> {
        while let Some(key) = self.reader.key()? {
            match key {
                BATCH_MESSAGES => {
                    let bytes = self.reader.bytes()?;
                    return parse_message(bytes, self.exchange, self.routing_key).map(Some);
                }
                BATCH_MANDATORY | BATCH_PRODUCER_SEQUENCE => self.reader.varint().map(|_| ())?,
                BATCH_EXCHANGE | BATCH_ROUTING_KEY => self.reader.bytes().map(|_| ())?,
                _ => self.reader.pass(key, BATCH_FIELD_MAX)?,
            }
        }
        Ok(None)
    }
}

#[inline]
fn parse_message<'a>(
    bytes: &'a [u8],
    exchange: Name<'a>,
    routing_key_default: Name<'a>,
) -> Result<MessageRef<'a>, WireError> {
    let mut reader = Reader::new(bytes, MESSAGE);
    let mut message = MessageRef { body: &[], exchange, routing_key: routing_key_default, properties: None, key: None };
    while let Some(key) = reader.key()? {
        match key {
            MESSAGE_BODY => message.body = reader.bytes()?,
            MESSAGE_EXCHANGE => message.exchange = exchange_name(&mut reader)?,
            MESSAGE_ROUTING_KEY => message.routing_key = routing_key(&mut reader)?,
            MESSAGE_PROPERTIES => {
                if message.properties.replace(reader.bytes()?).is_some() {
                    return Err(WireError::Repeated { what: "the properties of a message" });
                }
            }
            MESSAGE_KEY => message.key = Some(message_key(&mut reader)?),
            _ => reader.pass(key, MESSAGE_FIELD_MAX)?,
        }
    }
    Ok(message)
}

pub fn encode_publish_open(out: &mut Vec<u8>, vhost: &str, level: u32, producer: &str) {
    let contents = begin_length(out, 1);
    put_text(out, 1, vhost);
    put_uint(out, 2, u64::from(level));
    put_text(out, 3, producer);
    end_length(out, contents);
}

/// The parts of a message beside its body that are its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct MessageNames<'a> {
    pub exchange: Option<&'a str>,
    pub routing_key: Option<&'a str>,
    /// A serialised `penstock.v1.Properties`.
    pub properties: Option<&'a [u8]>,
    pub key: Option<&'a [u8]>,
}

/// Builds one batch request in a vector of its own, message by message; written bytes are never moved.
#[derive(Debug)]
pub struct BatchEncoder {
    bytes: Vec<u8>,
    contents: usize,
    message_count: usize,
}

impl BatchEncoder {
    /// Starts a request after the content of `bytes` (normally empty; a used vector saves the allocation).
    pub fn begin(mut bytes: Vec<u8>, exchange: &str, routing_key: &str, mandatory: bool) -> Self {
        let contents = begin_length(&mut bytes, 2);
        put_text(&mut bytes, 1, exchange);
        put_text(&mut bytes, 2, routing_key);
        put_bool(&mut bytes, 3, mandatory);
        Self { bytes, contents, message_count: 0 }
    }

    /// The producer's sequence of the first message; call it once, before the first.
    pub fn put_producer_sequence(&mut self, sequence: u64) {
        put_uint(&mut self.bytes, 5, sequence);
    }

    /// Appends a message that takes the batch's exchange and routing key.
    #[inline]
    pub fn push(&mut self, body: &[u8], properties: Option<&[u8]>) {
        self.push_message(body, &MessageNames { properties, ..MessageNames::default() });
    }

    /// Appends a message with names of its own, where given.
    pub fn push_named(
        &mut self,
        body: &[u8],
        exchange: Option<&str>,
        routing_key: Option<&str>,
        properties: Option<&[u8]>,
    ) {
        self.push_message(body, &MessageNames { exchange, routing_key, properties, key: None });
    }

    /// Appends a message with its parts beside the body.
    pub fn push_message(&mut self, body: &[u8], names: &MessageNames<'_>) {
        let out = &mut self.bytes;
        let length = field_len(body.len())
            + names.exchange.map_or(0, |name| field_len(name.len()))
            + names.routing_key.map_or(0, |key| field_len(key.len()))
            + names.properties.map_or(0, |properties| field_len(properties.len()))
            + names.key.map_or(0, |key| field_len(key.len()));
        out.reserve(length + 1 + varint_len(length as u64));
        put_len_head(out, 4, length);
        put_bytes(out, 1, body);
        let fields = [
            (2, names.exchange.map(str::as_bytes)),
            (3, names.routing_key.map(str::as_bytes)),
            (4, names.properties),
            (5, names.key),
        ];
        for (field, value) in fields {
            if let Some(value) = value {
                put_bytes(out, field, value);
            }
        }
        self.message_count += 1;
    }

    pub fn message_count(&self) -> usize {
        self.message_count
    }

    /// Bytes of the request so far.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The whole request.
    pub fn finish(mut self) -> Vec<u8> {
        end_length(&mut self.bytes, self.contents);
        self.bytes
    }
}

/// Bytes of a length-delimited field with a key of one byte.
#[inline]
fn field_len(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}

/// Confirmed ranges, returned (number, reason), rejected (first, last, code, reason).
pub fn encode_publish_response(
    out: &mut Vec<u8>,
    confirmed: &[(u64, u64)],
    returned: &[(u64, &str)],
    rejected: &[(u64, u64, i32, &str)],
) {
    for &(first, last) in confirmed {
        super::settlement::put_range(out, 1, first, last);
    }
    for &(number, reason) in returned {
        let contents = begin_length(out, 2);
        put_uint(out, 1, number);
        put_text(out, 2, reason);
        end_length(out, contents);
    }
    for &(first, last, code, reason) in rejected {
        let contents = begin_length(out, 3);
        put_uint(out, 1, first);
        put_uint(out, 2, last);
        // Negative numbers are sign-extended to 64 bits, as int32 demands.
        if code != 0 {
            put_varint(out, 3 << 3);
            put_varint(out, i64::from(code) as u64);
        }
        put_text(out, 4, reason);
        end_length(out, contents);
    }
}

/// Outcome of the messages with the numbers `first` to `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    Confirmed { first: u64, last: u64 },
    Returned { number: u64, reason: &'a str },
    Rejected { first: u64, last: u64, code: i32, reason: &'a str },
}

/// The outcomes of a response, read lazily. The iteration ends after its first error.
pub fn parse_publish_response(bytes: &[u8]) -> Outcomes<'_> {
    Outcomes { reader: Reader::new(bytes, RESPONSE) }
}

/// Iterator over the outcomes of a response.
#[derive(Debug, Clone)]
pub struct Outcomes<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for Outcomes<'a> {
    type Item = Result<Outcome<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let outcome = self.step().transpose()?;
        if outcome.is_err() {
            self.reader = Reader::new(&[], RESPONSE);
        }
        Some(outcome)
    }
}

impl<'a> Outcomes<'a> {
    fn step(&mut self) -> Result<Option<Outcome<'a>>, WireError> {
        while let Some((field, wire_type)) = self.reader.field()? {
            if let 1..=3 = field {
                return parse_outcome(field, self.reader.slice(field, wire_type)?).map(Some);
            }
            self.reader.skip(wire_type)?;
        }
        Ok(None)
    }
}

fn parse_outcome(kind: u32, bytes: &[u8]) -> Result<Outcome<'_>, WireError> {
    if kind == 1 {
        let (first, last) = super::settlement::parse_range(bytes)?;
        return Ok(Outcome::Confirmed { first, last });
    }
    let mut reader = Reader::new(bytes, OUTCOME);
    let (mut first, mut last, mut code, mut reason) = (0, 0, 0, "");
    while let Some((field, wire_type)) = reader.field()? {
        match (kind, field) {
            (_, 1) => first = reader.uint(field, wire_type)?,
            (2, 2) | (3, 4) => reason = reader.text(field, wire_type, "the reason of an outcome", usize::MAX)?,
            (3, 2) => last = reader.uint(field, wire_type)?,
            (3, 3) => code = reader.uint(field, wire_type)? as i32,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(match kind {
        2 => Outcome::Returned { number: first, reason },
        _ => Outcome::Rejected { first, last, code, reason },
    })
}
