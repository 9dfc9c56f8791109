//! Deliveries, written straight from a record's parts into a response and read in place by the client. One copy of each
//! body; the constant of a batch (the millisecond it was stored) is encoded once.

use crate::WireError;
use crate::amqp::properties::{PERSISTENT_ONLY, amqp_to_properties};
use crate::protobuf::{
    LENGTH_PADDED_BYTES, Reader, begin_length, bytes_key, end_length, put_bool, put_bytes, put_uint, put_varint,
    varint_key, varint_len,
};

const DELIVERIES: &str = "a response with deliveries";
const DELIVERY: &str = "a delivery";

const SEQUENCE: u64 = varint_key(1);
const BODY: u64 = bytes_key(2);
const EXCHANGE: u64 = bytes_key(3);
const ROUTING_KEY: u64 = bytes_key(4);
const PROPERTIES: u64 = bytes_key(5);
const REDELIVERED: u64 = varint_key(6);
const DELIVERY_COUNT: u64 = varint_key(7);
const STORED_AT_MS: u64 = varint_key(8);
const KEY: u64 = bytes_key(9);
const FIELD_MAX: u32 = 9;

/// An outgoing message; `exchange` and `routing_key` are UTF-8, `properties_amqp` is the stored AMQP block.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryRef<'a> {
    pub sequence: u64,
    pub body: &'a [u8],
    pub exchange: &'a [u8],
    pub routing_key: &'a [u8],
    pub properties_amqp: &'a [u8],
    pub redelivered: bool,
    pub delivery_count: u32,
    pub stored_at_ms: u64,
    pub key: Option<&'a [u8]>,
}

/// Writes the deliveries of one `ConsumeResponse` or `GetResponse` at the end of a vector.
#[derive(Debug)]
pub struct DeliveriesEncoder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    /// Where the contents of `ConsumeResponse.deliveries` begin; a `GetResponse` has no such frame.
    contents: Option<usize>,
    delivery_count: usize,
    stored_at: StoredAt,
}

impl<'a> DeliveriesEncoder<'a> {
    /// Starts a `ConsumeResponse`.
    pub fn begin(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        let contents = Some(begin_length(out, 2));
        Self { out, start, contents, delivery_count: 0, stored_at: StoredAt::default() }
    }

    /// Starts a `GetResponse`; end it with `finish_get`.
    pub fn begin_get(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        Self { out, start, contents: None, delivery_count: 0, stored_at: StoredAt::default() }
    }

    /// Appends one delivery; when its properties are unreadable nothing of it is written.
    #[inline]
    pub fn push(&mut self, delivery: &DeliveryRef<'_>) -> Result<(), WireError> {
        if delivery.properties_amqp.is_empty() || delivery.properties_amqp == PERSISTENT_ONLY {
            self.push_plain(delivery);
        } else {
            self.push_with_properties(delivery)?;
        }
        self.delivery_count += 1;
        Ok(())
    }

    #[inline]
    fn push_plain(&mut self, delivery: &DeliveryRef<'_>) {
        self.stored_at.set(delivery.stored_at_ms);
        let length = 1
            + varint_len(delivery.sequence)
            + field_len(delivery.body.len())
            + name_len(delivery.exchange)
            + name_len(delivery.routing_key)
            + delivery.key.map_or(0, |key| field_len(key.len()))
            + if delivery.redelivered { 2 } else { 0 }
            + if delivery.delivery_count == 0 { 0 } else { 1 + varint_len(u64::from(delivery.delivery_count)) }
            + self.stored_at.bytes().len();
        let out = &mut *self.out;
        out.reserve(length + 1 + LENGTH_PADDED_BYTES);
        let mut head = Head::default();
        head.push(0x0a);
        head.varint(length as u64);
        head.all(self.stored_at.bytes());
        head.push(0x08);
        head.varint(delivery.sequence);
        head.push(0x12);
        head.varint(delivery.body.len() as u64);
        out.extend_from_slice(head.bytes());
        out.extend_from_slice(delivery.body);
        put_name(out, 3, delivery.exchange);
        put_name(out, 4, delivery.routing_key);
        put_bool(out, 6, delivery.redelivered);
        put_uint(out, 7, u64::from(delivery.delivery_count));
        if let Some(key) = delivery.key {
            put_bytes(out, 9, key);
        }
    }

    fn push_with_properties(&mut self, delivery: &DeliveryRef<'_>) -> Result<(), WireError> {
        let start = self.out.len();
        let out = &mut *self.out;
        let contents = begin_length(out, 1);
        put_uint(out, 8, delivery.stored_at_ms);
        put_varint(out, 1 << 3);
        put_varint(out, delivery.sequence);
        put_bytes(out, 2, delivery.body);
        put_name(out, 3, delivery.exchange);
        put_name(out, 4, delivery.routing_key);
        let properties = begin_length(out, 5);
        if let Err(error) = amqp_to_properties(delivery.properties_amqp, out) {
            out.truncate(start);
            return Err(error);
        }
        end_length(out, properties);
        put_bool(out, 6, delivery.redelivered);
        put_uint(out, 7, u64::from(delivery.delivery_count));
        if let Some(key) = delivery.key {
            put_bytes(out, 9, key);
        }
        end_length(out, contents);
        Ok(())
    }

    pub fn delivery_count(&self) -> usize {
        self.delivery_count
    }

    /// Bytes written since `begin`.
    pub fn size(&self) -> usize {
        self.out.len() - self.start
    }

    /// Ends a `ConsumeResponse`.
    pub fn finish(self) {
        if let Some(contents) = self.contents {
            end_length(self.out, contents);
        }
    }

    /// Ends a `GetResponse`.
    pub fn finish_get(self, ready_count: u64) {
        put_uint(self.out, 2, ready_count);
    }
}

/// Bytes of a length-delimited field with a key of one byte.
#[inline]
fn field_len(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}

#[inline]
fn name_len(name: &[u8]) -> usize {
    if name.is_empty() { 0 } else { field_len(name.len()) }
}

#[inline]
fn put_name(out: &mut Vec<u8>, field: u32, name: &[u8]) {
    if !name.is_empty() {
        put_bytes(out, field, name);
    }
}

/// The bytes before a body, 34 at most: key and length of the delivery, when it was stored (first, so that a reader can
/// take the number as one word), its sequence, key and length of the body.
struct Head {
    bytes: [u8; 40],
    len: usize,
}

impl Default for Head {
    fn default() -> Self {
        Self { bytes: [0; 40], len: 0 }
    }
}

impl Head {
    #[inline]
    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
            self.len += 1;
        }
    }

    #[inline]
    fn all(&mut self, bytes: &[u8]) {
        if let Some(slot) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            slot.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Field 8, encoded again only when the millisecond changes.
#[derive(Debug, Default)]
struct StoredAt {
    stored_at_ms: u64,
    encoded: [u8; 11],
    len: usize,
}

impl StoredAt {
    #[inline]
    fn set(&mut self, stored_at_ms: u64) {
        if stored_at_ms == self.stored_at_ms {
            return;
        }
        self.stored_at_ms = stored_at_ms;
        let mut head = Head::default();
        if stored_at_ms != 0 {
            head.push(8 << 3);
            head.varint(stored_at_ms);
        }
        self.len = head.len;
        for (slot, byte) in self.encoded.iter_mut().zip(head.bytes()) {
            *slot = *byte;
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.encoded.get(..self.len).unwrap_or_default()
    }
}

/// One delivery as the client reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeliveryView<'a> {
    pub sequence: u64,
    pub body: &'a [u8],
    /// Not checked to be UTF-8, nor to be short: few readers use it.
    pub exchange: &'a [u8],
    pub routing_key: &'a [u8],
    /// A serialised `penstock.v1.Properties`.
    pub properties: Option<&'a [u8]>,
    pub redelivered: bool,
    pub delivery_count: u32,
    pub stored_at_ms: u64,
    pub key: Option<&'a [u8]>,
}

/// The deliveries of one response, read lazily. The iteration ends after its first error.
#[derive(Debug, Clone, Copy)]
pub struct DeliveriesView<'a> {
    reader: Reader<'a>,
}

impl<'a> DeliveriesView<'a> {
    pub(super) fn new(content: &'a [u8]) -> Self {
        Self { reader: Reader::new(content, DELIVERIES) }
    }

    #[inline]
    fn step(&mut self) -> Result<Option<DeliveryView<'a>>, WireError> {
        while let Some((field, wire_type)) = self.reader.field()? {
            if field == 1 {
                return parse_delivery(self.reader.slice(field, wire_type)?).map(Some);
            }
            self.reader.skip(wire_type)?;
        }
        Ok(None)
    }
}

impl<'a> Iterator for DeliveriesView<'a> {
    type Item = Result<DeliveryView<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let delivery = self.step().transpose()?;
        if delivery.is_err() {
            self.reader = Reader::new(&[], DELIVERIES);
        }
        Some(delivery)
    }
}

#[inline]
fn parse_delivery(bytes: &[u8]) -> Result<DeliveryView<'_>, WireError> {
    let mut reader = Reader::new(bytes, DELIVERY);
    let mut delivery = DeliveryView::default();
    while let Some(key) = reader.key()? {
        match key {
            SEQUENCE => delivery.sequence = reader.varint()?,
            BODY => delivery.body = reader.bytes()?,
            EXCHANGE => delivery.exchange = reader.bytes()?,
            ROUTING_KEY => delivery.routing_key = reader.bytes()?,
            PROPERTIES => delivery.properties = Some(reader.bytes()?),
            REDELIVERED => delivery.redelivered = reader.varint()? != 0,
            DELIVERY_COUNT => delivery.delivery_count = reader.varint()? as u32,
            STORED_AT_MS => delivery.stored_at_ms = reader.varint()?,
            KEY => delivery.key = Some(reader.bytes()?),
            _ => reader.pass(key, FIELD_MAX)?,
        }
    }
    Ok(delivery)
}
