//! Encoding of records. See `docs/format.md`, "Records".
//!
//! Invariants: `record` decodes exactly these bytes, and nothing is allocated per record beyond the buffer itself. A
//! payload's checksum is computed when it is made, before any lock is held. The fields that differ between formats are
//! written by the modules `one` and `two`.

mod envelope;
mod one;
mod two;

use std::num::NonZeroU32;

use penstock_queue::{QueueId, SequenceRange};

pub(crate) use self::envelope::encode_envelope;
pub use self::envelope::{EnvelopeSizes, Operation};
use crate::batches::RowDigest;
use crate::error::LogError;
use crate::format::{Coding, Format};
use crate::record::two::FLAG_ORIGINAL;
use crate::record::{
    Attributes, EpochView, FLAG_KEY, FLAG_LONG_PROPERTIES, FLAG_PRODUCER, HEADER_BYTES, KIND_DELETE, KIND_EPOCH,
    KIND_MARK, KIND_MESSAGE, KIND_SETTLE, MESSAGE_FIXED_BYTES, MarkView, MessageView, ONE_TARGET_BYTES, Outcome,
    Position, Producer, RECORD_BYTES_MAX, RawMessage, TARGET_BYTES, Target, bytes_of, crc_of, head_crc, short_head_crc,
};

/// The content of a message, with its checksum.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    exchange: &'a [u8],
    routing_key: &'a [u8],
    properties: &'a [u8],
    body: &'a [u8],
    key: Option<&'a [u8]>,
    /// Whether its headers name further routing keys. It is not stored.
    has_more_keys: bool,
    producer: Option<Producer>,
    batch_digest: Option<NonZeroU32>,
    attributes: Option<&'a Attributes>,
    /// Which of its optional fields it has, as the record says it.
    flags: u8,
    crc: u32,
    bytes: u32,
}

/// The most bytes of exchange, routing key, properties and body together.
const CONTENT_BYTES_MAX: u64 = {
    let targets_bytes = Format::NEWEST.targets_max() * TARGET_BYTES;
    RECORD_BYTES_MAX - (HEADER_BYTES + MESSAGE_FIXED_BYTES + 4 + targets_bytes) as u64
};

/// Why a content of these lengths is refused.
#[cold]
fn refusal_of(exchange: &[u8], routing_key: &[u8], bytes: u64) -> LogError {
    let bytes_max = u8::MAX as usize;
    for (field, value) in [("the exchange's name", exchange), ("the routing key", routing_key)] {
        if value.len() > bytes_max {
            return LogError::FieldTooLong { field, bytes: value.len(), bytes_max };
        }
    }
    LogError::RecordTooLarge { bytes, bytes_max: CONTENT_BYTES_MAX }
}

/// Apart from [`Payload::new`], which is small without it and therefore made where it is used.
#[inline(never)]
fn crc_of_content(parts: [&[u8]; 4]) -> u32 {
    crc_of(0, parts)
}

impl<'a> Payload<'a> {
    /// Checks the lengths and computes the checksum.
    #[inline]
    pub fn new(
        exchange: &'a [u8],
        routing_key: &'a [u8],
        properties: &'a [u8],
        body: &'a [u8],
    ) -> Result<Payload<'a>, LogError> {
        let bytes = (exchange.len() + routing_key.len() + properties.len()) as u64 + body.len() as u64;
        if exchange.len().max(routing_key.len()) > u8::MAX as usize || bytes > CONTENT_BYTES_MAX {
            return Err(refusal_of(exchange, routing_key, bytes));
        }
        let crc = crc_of_content([exchange, routing_key, properties, body]);
        let bytes = bytes as u32;
        let (key, producer, batch_digest, attributes) = (None, None, None, None);
        let flags = if properties.len() > u16::MAX as usize { FLAG_LONG_PROPERTIES } else { 0 };
        Ok(Payload {
            exchange,
            routing_key,
            properties,
            body,
            key,
            has_more_keys: false,
            producer,
            batch_digest,
            attributes,
            flags,
            crc,
            bytes,
        })
    }

    /// The same with a key, which routes it to a partition and is passed on to readers.
    pub fn with_key(self, key: &'a [u8]) -> Result<Payload<'a>, LogError> {
        if key.len() > u16::MAX as usize {
            return Err(LogError::FieldTooLong { field: "the key", bytes: key.len(), bytes_max: u16::MAX as usize });
        }
        Ok(Payload { key: Some(key), flags: self.flags | FLAG_KEY, ..self })
    }

    /// The same with a note for the routing that its headers name further routing keys.
    #[must_use]
    pub fn with_more_keys(self) -> Payload<'a> {
        Payload { has_more_keys: true, ..self }
    }

    #[inline]
    #[must_use]
    pub fn has_more_keys(&self) -> bool {
        self.has_more_keys
    }

    /// The same with other properties.
    pub fn with_properties(self, properties: &'a [u8]) -> Result<Payload<'a>, LogError> {
        let Payload { flags, crc, bytes, .. } = Payload::new(self.exchange, self.routing_key, properties, self.body)?;
        let flags = self.flags & !FLAG_LONG_PROPERTIES | flags;
        Ok(Payload { properties, flags, crc, bytes, ..self })
    }

    #[must_use]
    pub fn properties(&self) -> &'a [u8] {
        self.properties
    }

    /// The same with its producer, which folds remember.
    #[must_use]
    pub fn with_producer(self, producer: Producer) -> Payload<'a> {
        Payload { producer: Some(producer), flags: self.flags | FLAG_PRODUCER, ..self }
    }

    /// The same for a producer that numbers batches, with the digest of the batch up to this message.
    #[must_use]
    pub fn with_batch_digest(self, digest: NonZeroU32) -> Payload<'a> {
        Payload { batch_digest: Some(digest), ..self }
    }

    /// The same with fields that only format 2 has.
    #[must_use]
    pub fn with_attributes(self, attributes: &'a Attributes) -> Payload<'a> {
        Payload { attributes: Some(attributes), flags: self.flags | two::attribute_flags(attributes), ..self }
    }

    /// Before this time it is not delivered.
    #[inline]
    #[must_use]
    pub fn due_at_ms(&self) -> Option<u64> {
        self.attributes?.due_at_ms
    }

    /// The first of its times of expiry and delivery.
    #[inline]
    #[must_use]
    pub fn first_deadline(&self) -> Option<u64> {
        let attributes = self.attributes?;
        attributes.expires_at_ms.into_iter().chain(attributes.due_at_ms).min()
    }

    /// The priority that its publisher gave it; 0 is the usual one.
    #[inline]
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.attributes.and_then(|attributes| attributes.priority).unwrap_or(0)
    }

    #[must_use]
    pub fn attributes(&self) -> Option<&'a Attributes> {
        self.attributes
    }

    /// How many bytes its record has apart from the payload.
    pub(crate) fn head_bytes(&self, format: Format, targets: usize) -> usize {
        self.record_bytes(format, targets) - self.bytes as usize
    }

    /// The same for a record that does not say that the message is stored, with other attributes. A record that is not the last
    /// one of its message has those of [`Payload::attributes_of_part`].
    #[must_use]
    pub fn part(self, attributes: Option<&'a Attributes>) -> Payload<'a> {
        let flags = self.flags & (FLAG_LONG_PROPERTIES | FLAG_KEY);
        let part = Payload { producer: None, batch_digest: None, attributes: None, flags, ..self };
        attributes.map_or(part, |attributes| part.with_attributes(attributes))
    }

    pub(crate) fn attributes_of_part(&self) -> Option<Attributes> {
        self.attributes.map(|attributes| Attributes { source: None, ..*attributes })
    }

    /// The message that it is a copy of.
    #[inline]
    #[must_use]
    pub fn source(&self) -> Option<Target> {
        self.attributes?.source
    }

    #[must_use]
    pub fn key(&self) -> Option<&'a [u8]> {
        self.key
    }

    #[must_use]
    pub fn producer(&self) -> Option<Producer> {
        self.producer
    }

    #[must_use]
    pub fn batch_digest(&self) -> Option<NonZeroU32> {
        self.batch_digest
    }

    /// The digest of its content.
    #[must_use]
    pub fn row_digest(&self) -> RowDigest {
        RowDigest::of(self.crc, [self.bytes, self.body.len() as u32], self.key)
    }

    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.body.len() as u64
    }

    fn has_long_properties(&self) -> bool {
        self.flags & FLAG_LONG_PROPERTIES != 0
    }

    /// Whether a format has all of its fields.
    pub(crate) fn fits(&self, format: Format) -> bool {
        format == Format::Two || self.attributes.is_none()
    }

    /// How many bytes its record has with that many targets; the targets are within their bound.
    #[inline]
    pub(crate) fn record_bytes(&self, format: Format, targets: usize) -> usize {
        let fixed = HEADER_BYTES + MESSAGE_FIXED_BYTES + targets * TARGET_BYTES;
        // Nearly every message has none of the fields that flags announce.
        let optional = if self.flags == 0 { 0 } else { self.optional_bytes(format) };
        fixed + optional + self.bytes as usize
    }

    fn optional_bytes(&self, format: Format) -> usize {
        let long = if self.has_long_properties() { 4 } else { 0 };
        let producer_bytes = match format {
            Format::One => one::PRODUCER_BYTES,
            Format::Two => two::PRODUCER_BYTES,
        };
        let producer = self.producer.map_or(0, |_| producer_bytes);
        long + self.key.map_or(0, |key| 2 + key.len()) + producer + self.attributes.map_or(0, two::attribute_bytes)
    }

    fn put_optional(&self, out: &mut Vec<u8>, format: Format) {
        if self.has_long_properties() {
            out.extend_from_slice(&(self.properties.len() as u32).to_le_bytes());
        }
        if let Some(key) = self.key {
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            out.extend_from_slice(key);
        }
        if let Some(producer) = self.producer {
            out.extend_from_slice(&producer.id.get().to_le_bytes());
            if format == Format::Two {
                let epoch = self.attributes.map_or(0, |attributes| attributes.producer_epoch);
                out.extend_from_slice(&epoch.to_le_bytes());
            }
            out.extend_from_slice(&self.batch_digest.map_or(0, NonZeroU32::get).to_le_bytes());
            out.extend_from_slice(&producer.sequence.to_le_bytes());
        }
        if let Some(attributes) = self.attributes {
            two::put_attributes(out, attributes);
        }
    }
}

/// Where a record will be: its position, and the coding of its segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) position: Position,
    pub(crate) coding: Coding,
    /// [`ENCLOSED`] in an envelope, else 0.
    pub(crate) enclosed: u8,
}

const FIXED_BYTES: usize = HEADER_BYTES + MESSAGE_FIXED_BYTES;
/// The checksums of the payload and of the head, at the end of a header.
const CHECKSUMS_BYTES: usize = 8;

pub(crate) fn encode_message(
    out: &mut Vec<u8>,
    stamp: Stamp,
    payload: &Payload<'_>,
    stored_at_ms: u64,
    targets: &[Target],
) {
    let start = out.len();
    let Coding { format, seed } = stamp.coding;
    let length = payload.record_bytes(format, targets.len());
    out.reserve(length);
    let header = header_number(stamp, length as u32, [KIND_MESSAGE, payload.flags], targets.len() as u16);
    let lengths = lengths_number(payload, stored_at_ms);
    if let ([target], 0) = (targets, payload.flags) {
        // Nearly every message takes this path.
        put_short_head(out, [header, lengths, target_number(target, format)], payload.crc, seed);
    } else {
        let crcs = u64::from(payload.crc);
        out.extend_from_slice(&header.to_le_bytes());
        out.extend_from_slice(&crcs.to_le_bytes());
        out.extend_from_slice(&lengths.to_le_bytes()[..MESSAGE_FIXED_BYTES]);
        for target in targets {
            out.extend_from_slice(&target_bytes(target, format));
        }
        payload.put_optional(out, format);
        seal_head(out, start, seed);
    }
    for part in [payload.exchange, payload.routing_key, payload.properties, payload.body] {
        if !part.is_empty() {
            out.extend_from_slice(part);
        }
    }
}

/// The fixed fields of a message behind the header, as a number of [`MESSAGE_FIXED_BYTES`] bytes.
#[inline]
fn lengths_number(payload: &Payload<'_>, stored_at_ms: u64) -> u128 {
    let short_properties = if payload.has_long_properties() { 0 } else { payload.properties.len() as u16 };
    let names = (payload.exchange.len() as u64) << 48 | (payload.routing_key.len() as u64) << 56;
    u128::from(stored_at_ms & (u64::MAX >> 16) | names) | u128::from(short_properties) << 64
}

/// Puts the head of a message for one queue without optional parts.
///
/// Its fields are numbers until they are stored: bytes that were just stored one by one are slow to read again as words, and
/// nearly every message passes here.
#[inline]
fn put_short_head(out: &mut Vec<u8>, [header, lengths, target]: [u128; 3], payload_crc: u32, seed: u32) {
    let rest = lengths | target << (8 * MESSAGE_FIXED_BYTES);
    let end = (target >> (128 - 8 * MESSAGE_FIXED_BYTES)) as u64;
    let crc = short_head_crc([header, u128::from(payload_crc) | rest << 32, rest >> 96 | u128::from(end) << 32], seed);
    out.extend_from_slice(&header.to_le_bytes());
    out.extend_from_slice(&(u64::from(payload_crc) | u64::from(crc) << 32).to_le_bytes());
    out.extend_from_slice(&rest.to_le_bytes());
    out.extend_from_slice(&end.to_le_bytes()[..ONE_TARGET_BYTES - HEADER_BYTES - size_of::<u128>()]);
}

#[inline]
fn target_number(target: &Target, format: Format) -> u128 {
    match format {
        Format::One => one::target_number(target),
        Format::Two => two::target_number(target),
    }
}

#[inline]
fn target_bytes(target: &Target, format: Format) -> [u8; TARGET_BYTES] {
    bytes_of(target_number(target, format))
}

/// Writes a message again, for another segment and with only these of its targets; all else is unchanged. In format 2 it
/// keeps the checksum that its head had before any rewriting.
pub(crate) fn encode_pruned(out: &mut Vec<u8>, message: &MessageView<'_>, targets: &[Target], coding: Coding) {
    let start = out.len();
    let RawMessage { fixed, optional, payload } = message.raw();
    let original = message.place_of_original();
    let added = original.map_or(0, |_| 4);
    let length = FIXED_BYTES + targets.len() * TARGET_BYTES + optional.len() + added + payload.len();
    out.reserve(length);
    out.extend_from_slice(fixed);
    out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    out[start + 6..start + 8].copy_from_slice(&(targets.len() as u16).to_le_bytes());
    for target in targets {
        out.extend_from_slice(&target_bytes(target, coding.format));
    }
    match original.and_then(|at| optional.split_at_checked(at)) {
        Some((before, after)) => {
            out[start + 5] |= FLAG_ORIGINAL;
            out.extend_from_slice(before);
            out.extend_from_slice(&message.checksum().to_le_bytes());
            out.extend_from_slice(after);
        }
        None => out.extend_from_slice(optional),
    }
    seal_head(out, start, coding.seed);
    out.extend_from_slice(payload);
}

/// Content of a settle record besides its ranges.
#[derive(Clone, Copy, Debug)]
pub struct Settlement {
    pub queue: QueueId,
    pub outcome: Outcome,
    /// How many messages are settled, and how many bytes their bodies have.
    pub count: u64,
    pub bytes: u64,
    /// Requeued messages are not to be delivered before this time; only format 2 has it.
    pub due_at_ms: Option<u64>,
}

impl Settlement {
    pub(crate) fn record_bytes(&self, format: Format, ranges: usize) -> usize {
        HEADER_BYTES
            + match format {
                Format::One => one::SETTLE_FIXED_BYTES + ranges * one::RANGE_BYTES,
                Format::Two => two::settle_fixed_bytes(self) + ranges * two::RANGE_BYTES,
            }
    }
}

pub(crate) fn encode_settle(out: &mut Vec<u8>, stamp: Stamp, settlement: Settlement, ranges: &[SequenceRange]) {
    let format = stamp.coding.format;
    let length = settlement.record_bytes(format, ranges.len());
    let start = begin(out, stamp, length, KIND_SETTLE, ranges.len() as u16);
    match format {
        Format::One => one::put_settle(out, &settlement, ranges),
        Format::Two => two::put_settle(out, &settlement, ranges),
    }
    seal_head(out, start, stamp.coding.seed);
}

pub(crate) fn delete_bytes(format: Format) -> usize {
    HEADER_BYTES + if format == Format::One { one::QUEUE_BYTES } else { two::QUEUE_BYTES }
}

pub(crate) fn encode_delete(out: &mut Vec<u8>, stamp: Stamp, queue: QueueId) {
    let start = begin(out, stamp, delete_bytes(stamp.coding.format), KIND_DELETE, 0);
    match stamp.coding.format {
        Format::One => out.extend_from_slice(&one::queue_bytes(queue)),
        Format::Two => two::put_queue(out, queue),
    }
    seal_head(out, start, stamp.coding.seed);
}

pub(crate) fn mark_bytes(mark: &MarkView<'_>) -> usize {
    HEADER_BYTES + 8 + mark.owner.len() + mark.key.len() + mark.value.len()
}

pub(crate) fn encode_mark(out: &mut Vec<u8>, stamp: Stamp, mark: &MarkView<'_>) {
    let start = begin(out, stamp, mark_bytes(mark), KIND_MARK, 0);
    out.extend_from_slice(&(mark.owner.len() as u16).to_le_bytes());
    out.extend_from_slice(&(mark.key.len() as u16).to_le_bytes());
    out.extend_from_slice(&(mark.value.len() as u32).to_le_bytes());
    for part in [mark.owner, mark.key, mark.value] {
        out.extend_from_slice(part);
    }
    seal_head(out, start, stamp.coding.seed);
}

pub(crate) fn epoch_bytes(format: Format) -> usize {
    HEADER_BYTES + if format == Format::One { one::EPOCH_BYTES } else { two::EPOCH_BYTES }
}

pub(crate) fn encode_epoch(out: &mut Vec<u8>, stamp: Stamp, epoch: &EpochView) {
    let start = begin(out, stamp, epoch_bytes(stamp.coding.format), KIND_EPOCH, 0);
    out.extend_from_slice(&epoch.epoch.to_le_bytes());
    out.push(epoch.raises);
    if stamp.coding.format == Format::Two {
        two::put_begun(out, epoch.begun.unwrap_or_default());
    }
    seal_head(out, start, stamp.coding.seed);
}

fn begin(out: &mut Vec<u8>, stamp: Stamp, length: usize, kind: u8, count: u16) -> usize {
    let start = out.len();
    out.reserve(length);
    out.extend_from_slice(&header_number(stamp, length as u32, [kind, 0], count).to_le_bytes());
    out.extend_from_slice(&[0; CHECKSUMS_BYTES]);
    start
}

/// The header without its checksums, as a number of 16 bytes.
#[inline]
fn header_number(stamp: Stamp, length: u32, [kind, flags]: [u8; 2], count: u16) -> u128 {
    let kind = u64::from(kind | stamp.enclosed) << 32;
    let low = u64::from(length) | kind | u64::from(flags) << 40 | u64::from(count) << 48;
    u128::from(low) | u128::from(stamp.position.0) << 64
}

/// Writes the head's checksum into the record that starts at `start` and whose head ends where the buffer does.
fn seal_head(out: &mut [u8], start: usize, seed: u32) {
    let record = &mut out[start..];
    let crc = head_crc(record, record.len(), seed);
    record[20..24].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_two;
