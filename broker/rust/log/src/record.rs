//! Decoding of records and their checks. See `docs/format.md`, "Records".
//!
//! Invariants: no bytes, however hostile, make decoding panic or read past them, and every bit of a record is under one
//! of its two checksums. The head's checksum starts from that of a [`Coding`], so that bytes of an earlier use of a file
//! are not records. A whole record with a part that this version does not know is not called corrupt. The fields that
//! differ between formats are read by the modules `one` and `two`. This module knows nothing of files.

mod checksum;
mod envelope;
mod fields;
pub(crate) mod one;
mod outline;
pub(crate) mod two;

use std::num::{NonZeroU32, NonZeroU64};

use penstock_queue::{QueueId, Sequence, SequenceRange};

use self::checksum::verify_head;
pub(crate) use self::checksum::{CRC_AT, crc_of, head_crc, short_head_crc};
pub(crate) use self::envelope::{ENVELOPE_FIXED_BYTES, envelope_end};
pub use self::envelope::{
    ENVELOPE_HEADS_BYTES_MAX, ENVELOPE_RANGES_MAX, ENVELOPE_RECORDS_MAX, ENVELOPE_TARGETS_MAX, EnvelopeView,
};
use self::fields::{Fields, Optional, mark_in};
pub(crate) use self::outline::{Outline, outline};
use crate::batches::RowDigest;
use crate::deadlines::Times;
use crate::format::{Coding, Format};

/// Bytes before a record's head: length, kind, flags, count, position and the two checksums.
pub const HEADER_BYTES: usize = 24;
/// The largest record: far above any message a broker takes, far below what a u32 offset reaches.
pub const RECORD_BYTES_MAX: u64 = 1 << 30;
/// The most queues that one message record names; a message for more is stored again.
pub const TARGETS_MAX: usize = 1024;
/// The most ranges one settle record holds; longer settlements become several records.
pub const RANGES_MAX: usize = 16 * 1024;

pub(crate) const KIND_MESSAGE: u8 = 1;
pub(crate) const KIND_SETTLE: u8 = 2;
pub(crate) const KIND_DELETE: u8 = 3;
pub(crate) const KIND_MARK: u8 = 4;
pub(crate) const KIND_EPOCH: u8 = 5;
/// Only in format 2.
pub(crate) const KIND_ENVELOPE: u8 = 6;
/// Added to the kind of a record in an envelope.
pub(crate) const ENCLOSED: u8 = 1 << 7;

pub(crate) const FLAG_LONG_PROPERTIES: u8 = 1;
pub(crate) const FLAG_KEY: u8 = 1 << 1;
pub(crate) const FLAG_PRODUCER: u8 = 1 << 2;

pub(crate) const MESSAGE_FIXED_BYTES: usize = 10;
pub(crate) const TARGET_BYTES: usize = 12;
/// The head of a message for one queue, without optional parts.
pub(crate) const ONE_TARGET_BYTES: usize = HEADER_BYTES + MESSAGE_FIXED_BYTES + TARGET_BYTES;

/// A record's position in the log, counted in bytes over all segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// One queue that a message goes to, and its sequence there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub queue: QueueId,
    pub sequence: Sequence,
}

/// The producer of a message, and its sequence there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub id: NonZeroU64,
    pub sequence: u64,
}

/// Outcome of settled messages. Requeued and returned ones stay in their queue, and a requeued one counts one delivery more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ack,
    Drop,
    Expire,
    Requeue,
    /// Always with a time: without one it would change nothing.
    Return,
}

impl Outcome {
    pub(crate) fn code(self) -> u8 {
        match self {
            Outcome::Ack => 1,
            Outcome::Drop => 2,
            Outcome::Expire => 3,
            Outcome::Requeue => 4,
            Outcome::Return => two::OUTCOME_RETURN_AT,
        }
    }

    fn from_code(code: u8) -> Result<Outcome, DecodeError> {
        match code {
            1 => Ok(Outcome::Ack),
            2 => Ok(Outcome::Drop),
            3 => Ok(Outcome::Expire),
            4 => Ok(Outcome::Requeue),
            _ => Err(DecodeError::Outcome),
        }
    }
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("no record begins here")]
    End,
    #[error("a record's length is out of bounds")]
    Length,
    #[error("a record of an unknown kind")]
    Kind,
    #[error("a record with unknown flags")]
    Flags,
    #[error("an unknown outcome")]
    Outcome,
    #[error("a newer version wrote this record, and this one does not know a part of it")]
    Newer,
    #[error("a record's fields do not fit its length")]
    Fields,
    #[error("the checksum of a record's head does not match")]
    HeadChecksum,
    #[error("the checksum of a message does not match")]
    PayloadChecksum,
    #[error("a record says that it stands at another place")]
    Position,
}

/// A record as found in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    pub position: Position,
    /// The whole record, header included.
    pub length: u32,
    pub record: Record<'a>,
    /// Whether it is in an envelope.
    pub(crate) is_enclosed: bool,
}

impl<'a> Decoded<'a> {
    /// Whether the checksums of its payloads match.
    pub(crate) fn verify(&self) -> Result<(), DecodeError> {
        match &self.record {
            Record::Message(message) => message.verify_payload(),
            Record::Envelope(envelope) => envelope.verify(),
            _ => Ok(()),
        }
    }

    /// Visits it, or the records in it when it is an envelope, each with its offset; its own is `offset`.
    pub(crate) fn each(&self, offset: u32, mut visit: impl FnMut(u32, &Record<'a>)) {
        match &self.record {
            Record::Envelope(envelope) => {
                envelope.records().for_each(|(at, decoded)| visit(offset + at, &decoded.record));
            }
            record => visit(offset, record),
        }
    }
}

/// Content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Message(MessageView<'a>),
    Settle(SettleView<'a>),
    Delete(QueueId),
    Mark(MarkView<'a>),
    Epoch(EpochView),
    Envelope(EnvelopeView<'a>),
}

/// The beginning of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochView {
    pub epoch: u64,
    /// How many times the next sequence of every queue is raised.
    pub raises: u8,
    /// When it began, and the replica that began it; `None` in format 1.
    pub begun: Option<Begun>,
}

impl EpochView {
    /// That of a start in format 1.
    pub(crate) fn of_one(epoch: u64, raise: bool) -> EpochView {
        EpochView { epoch, raises: u8::from(raise), begun: None }
    }
}

/// When an epoch began, and the replica that leads it: zeros without replication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    pub at_ms: u64,
    pub leader: [u8; 16],
}

/// Fields of a message that most do not have. Format 1 has none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Of the producer; 0 without one.
    pub producer_epoch: u16,
    pub expires_at_ms: Option<u64>,
    /// Not to be delivered before this time.
    pub due_at_ms: Option<u64>,
    pub priority: Option<u8>,
    /// The first 16 bytes of the SHA-256 of the id by which repetitions are recognised.
    pub dedup: Option<[u8; 16]>,
    /// The message that this one was copied from.
    pub source: Option<Target>,
    pub created_at_ms: Option<u64>,
    /// There is no body, which is not the same as an empty one.
    pub is_tombstone: bool,
}

/// A stored message. Making one checks bounds only; [`MessageView::verify`] checks the checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageView<'a> {
    pub stored_at_ms: u64,
    pub exchange: &'a [u8],
    pub routing_key: &'a [u8],
    pub properties: &'a [u8],
    pub body: &'a [u8],
    pub key: Option<&'a [u8]>,
    pub producer: Option<Producer>,
    /// Of its producer's batch up to this message, when the producer numbers batches.
    pub batch_digest: Option<NonZeroU32>,
    targets: &'a [u8],
    bytes: &'a [u8],
    head_bytes: u32,
    coding: Coding,
}

impl<'a> MessageView<'a> {
    /// The queues it was stored for.
    pub fn targets(&self) -> impl ExactSizeIterator<Item = Target> + use<'a> {
        targets_in(self.targets, self.coding.format)
    }

    /// The fields that most messages do not have.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        self.optional().map(|optional| optional.attributes).unwrap_or_default()
    }

    /// Whether it has a time of expiry, or one before which it is not to be delivered.
    #[inline]
    #[must_use]
    pub fn has_deadlines(&self) -> bool {
        let flags = self.bytes.get(5).copied().unwrap_or(0);
        flags & (two::FLAG_EXPIRES | two::FLAG_DUE) != 0 && self.coding.format == Format::Two
    }

    /// The time of expiry and the time when the message is due. Nothing behind them is read.
    #[inline]
    pub(crate) fn times(&self) -> Times {
        let flags = self.bytes.get(5).copied().unwrap_or(0);
        if !self.has_deadlines() {
            return Times::default();
        }
        two::times_in(&mut Fields(self.raw().optional), flags).unwrap_or_default()
    }

    /// The message that this one was copied from.
    #[inline]
    #[must_use]
    pub fn source(&self) -> Option<Target> {
        let flags = self.bytes.get(5).copied().unwrap_or(0);
        if flags & two::FLAG_MORE == 0 || self.coding.format == Format::One {
            return None;
        }
        self.attributes().source
    }

    /// Where among the optional parts the checksum of its head goes when it is rewritten; `None` in format 1, and where
    /// that of an earlier head is there.
    pub(crate) fn place_of_original(&self) -> Option<usize> {
        if self.coding.format == Format::One {
            return None;
        }
        two::place_of_original(self.raw().optional, self.bytes.get(5).copied()?)
    }

    /// The checksum of its head, in format 2 as it was before any rewriting: by it and the position replicas compare it.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        let original = self.optional().and_then(|optional| optional.original);
        original.unwrap_or_else(|| self.bytes.get(CRC_AT..).map_or(0, le_u32))
    }

    fn optional(&self) -> Option<Optional<'a>> {
        let flags = self.bytes.get(5).copied()?;
        if flags == 0 {
            return None;
        }
        optional_in(&mut Fields(self.raw().optional), flags, self.coding.format).ok()
    }

    /// The digest of its content without the exchange, in whose place a staged row has something else.
    #[must_use]
    pub fn row_digest(&self) -> RowDigest {
        let parts = [self.routing_key, self.properties, self.body];
        let bytes = parts.iter().map(|part| part.len() as u32).fold(0, u32::wrapping_add);
        RowDigest::of(crc_of(0, parts), [bytes, self.body.len() as u32], self.key)
    }

    /// The position in its record.
    #[must_use]
    pub fn position(&self) -> Position {
        Position(self.bytes.get(8..16).map_or(0, le_u64))
    }

    pub(crate) fn raw(&self) -> RawMessage<'a> {
        let (head, payload) = self.bytes.split_at_checked(self.head_bytes as usize).unwrap_or_default();
        let (fixed, head) = head.split_at_checked(HEADER_BYTES + MESSAGE_FIXED_BYTES).unwrap_or_default();
        RawMessage { fixed, optional: head.get(self.targets.len()..).unwrap_or_default(), payload }
    }

    /// Whether both checksums match.
    pub fn verify(&self) -> Result<(), DecodeError> {
        verify_head(self.bytes, self.head_bytes as usize, self.coding.seed)?;
        self.verify_payload()
    }

    /// The same when its head was checked.
    fn verify_payload(&self) -> Result<(), DecodeError> {
        let payload = self.bytes.get(self.head_bytes as usize..).unwrap_or_default();
        let stored = self.bytes.get(16..20).map_or(0, le_u32);
        if crc32c::crc32c(payload) == stored { Ok(()) } else { Err(DecodeError::PayloadChecksum) }
    }
}

/// A message's record apart from its targets.
pub(crate) struct RawMessage<'a> {
    /// The header, and the head up to the targets.
    pub(crate) fixed: &'a [u8],
    /// Parts that the flags announce.
    pub(crate) optional: &'a [u8],
    pub(crate) payload: &'a [u8],
}

/// A settlement of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettleView<'a> {
    pub queue: QueueId,
    pub outcome: Outcome,
    pub count: u64,
    pub bytes: u64,
    /// Requeued messages are not to be delivered before this time.
    pub due_at_ms: Option<u64>,
    ranges: &'a [u8],
    format: Format,
}

impl<'a> SettleView<'a> {
    /// The ranges; a range with its end below its start is skipped.
    pub fn ranges(&self) -> impl Iterator<Item = SequenceRange> + use<'a> {
        let format = self.format;
        let range_bytes = if format == Format::One { one::RANGE_BYTES } else { two::RANGE_BYTES };
        self.ranges.chunks_exact(range_bytes).filter_map(move |range| match format {
            Format::One => one::range(range),
            Format::Two => two::range(range),
        })
    }

    pub(crate) fn range_count(&self) -> usize {
        self.ranges.len() / if self.format == Format::One { one::RANGE_BYTES } else { two::RANGE_BYTES }
    }
}

/// A value that an owner keeps under a key; the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkView<'a> {
    pub owner: &'a [u8],
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// Reads the record that `bytes` begin with and checks its head; the payload is checked by [`MessageView::verify`].
pub fn decode_record(bytes: &[u8], coding: Coding) -> Result<Decoded<'_>, DecodeError> {
    decode_with(bytes, coding, true)
}

/// Like [`decode_record`]; without `check_head` for bytes that this process wrote or has checked.
pub(crate) fn decode_with(bytes: &[u8], coding: Coding, check_head: bool) -> Result<Decoded<'_>, DecodeError> {
    let framed = Framed::read(bytes)?;
    let length = framed.record.len() as u32;
    let record = framed.content(coding, check_head).map_err(|error| framed.or_newer(error, coding))?;
    Ok(Decoded { position: framed.position, length, record, is_enclosed: framed.is_enclosed })
}

/// The message that begins these bytes, of which only bounds are checked; `None` for a record of another kind. Readers
/// call this for each message, so it makes nothing that they do not use.
#[inline(always)]
pub(crate) fn message_at(bytes: &[u8], coding: Coding) -> Result<Option<MessageView<'_>>, DecodeError> {
    let framed = Framed::read(bytes)?;
    if framed.kind != KIND_MESSAGE || (framed.is_enclosed && coding.format == Format::One) {
        return Ok(None);
    }
    match framed.message(coding) {
        Ok(message) => Ok(Some(message)),
        Err(error) => Err(framed.or_newer(error, coding)),
    }
}

/// A record's header, and all of its bytes.
struct Framed<'a> {
    record: &'a [u8],
    /// Without [`ENCLOSED`].
    kind: u8,
    is_enclosed: bool,
    flags: u8,
    count: usize,
    position: Position,
}

impl<'a> Framed<'a> {
    #[inline]
    fn read(bytes: &'a [u8]) -> Result<Framed<'a>, DecodeError> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(DecodeError::End)?;
        let [l0, l1, l2, l3, kind, flags, c0, c1, p0, p1, p2, p3, p4, p5, p6, p7, ..] = *header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if length == 0 {
            return Err(DecodeError::End);
        }
        if (length as usize) < HEADER_BYTES || u64::from(length) > RECORD_BYTES_MAX {
            return Err(DecodeError::Length);
        }
        let record = bytes.get(..length as usize).ok_or(DecodeError::Length)?;
        let position = Position(u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7]));
        let count = u16::from_le_bytes([c0, c1]) as usize;
        Ok(Framed { record, kind: kind & !ENCLOSED, is_enclosed: kind & ENCLOSED != 0, flags, count, position })
    }

    fn content(&self, coding: Coding, check_head: bool) -> Result<Record<'a>, DecodeError> {
        if self.is_enclosed && (coding.format == Format::One || self.kind > KIND_MARK) {
            return Err(DecodeError::Kind);
        }
        if self.kind == KIND_MESSAGE {
            let view = self.message(coding)?;
            if check_head {
                verify_head(self.record, view.head_bytes as usize, coding.seed)?;
            }
            return Ok(Record::Message(view));
        }
        // Before the checksum: a record with either may also have a payload.
        let last = if coding.format == Format::One { KIND_EPOCH } else { KIND_ENVELOPE };
        if !(KIND_SETTLE..=last).contains(&self.kind) {
            return Err(DecodeError::Kind);
        }
        if self.flags != 0 {
            return Err(DecodeError::Flags);
        }
        if self.kind == KIND_ENVELOPE {
            return EnvelopeView::read(self, coding, check_head).map(Record::Envelope);
        }
        if check_head {
            verify_head(self.record, self.record.len(), coding.seed)?;
        }
        self.headed(coding.format)
    }

    #[inline(always)]
    fn message(&self, coding: Coding) -> Result<MessageView<'a>, DecodeError> {
        if self.count == 0 || self.count > coding.format.targets_max() {
            return Err(DecodeError::Fields);
        }
        let mut head = Fields(self.record.get(HEADER_BYTES..).unwrap_or_default());
        let &[t0, t1, t2, t3, t4, t5, exchange_bytes, key_bytes, n0, n1] = head.array::<MESSAGE_FIXED_BYTES>()?;
        let stored_at_ms = u64::from_le_bytes([t0, t1, t2, t3, t4, t5, 0, 0]);
        let mut properties_bytes = u16::from_le_bytes([n0, n1]) as usize;
        let targets = head.take(self.count * TARGET_BYTES)?;
        let (mut key, mut producer, mut batch_digest) = (None, None, None);
        if let (Format::Two, Some(bytes)) = (coding.format, two::bytes_of_times(self.flags)) {
            head.take(bytes)?;
        } else if self.flags != 0 {
            let optional = optional_in(&mut head, self.flags, coding.format)?;
            properties_bytes = optional.properties_bytes.map_or(properties_bytes, |bytes| bytes as usize);
            (key, producer, batch_digest) = (optional.key, optional.producer, optional.batch_digest);
        }
        let head_bytes = (self.record.len() - head.0.len()) as u32;
        let exchange = head.take(exchange_bytes as usize)?;
        let routing_key = head.take(key_bytes as usize)?;
        let properties = head.take(properties_bytes)?;
        Ok(MessageView {
            stored_at_ms,
            exchange,
            routing_key,
            properties,
            body: head.0,
            key,
            producer,
            batch_digest,
            targets,
            bytes: self.record,
            head_bytes,
            coding,
        })
    }

    /// The kinds that are all head and have no payload.
    fn headed(&self, format: Format) -> Result<Record<'a>, DecodeError> {
        let mut head = Fields(self.record.get(HEADER_BYTES..).unwrap_or_default());
        let found = match (self.kind, format) {
            (KIND_SETTLE, Format::One) => Record::Settle(one::settle_in(&mut head, self.count)?),
            (KIND_SETTLE, Format::Two) => Record::Settle(two::settle_in(&mut head, self.count)?),
            (KIND_DELETE, Format::One) => Record::Delete(one::queue_in(&mut head)?),
            (KIND_DELETE, Format::Two) => Record::Delete(two::queue_in(&mut head)?),
            (KIND_MARK, _) => Record::Mark(mark_in(&mut head)?),
            (KIND_EPOCH, Format::One) => Record::Epoch(one::epoch_in(&mut head)?),
            (KIND_EPOCH, Format::Two) => Record::Epoch(two::epoch_in(&mut head)?),
            _ => return Err(DecodeError::Kind),
        };
        if head.0.is_empty() { Ok(found) } else { Err(DecodeError::Fields) }
    }

    /// An error, or [`DecodeError::Newer`] where the record is whole nevertheless: a part that this version does not know
    /// is not corrupt. Such a part hides where the head ends, so every end is tried; two matching checksums are no chance.
    #[cold]
    fn or_newer(&self, error: DecodeError, coding: Coding) -> DecodeError {
        use DecodeError::{Flags, Kind, Outcome};
        if coding.format == Format::One || !matches!(error, Flags | Kind | Outcome) {
            return error;
        }
        let [head_crc, payload_crc] = [20, 16].map(|at| self.record.get(at..).map_or(0, le_u32));
        let mut crc = crc32c::crc32c_append(coding.seed, self.record.get(..CRC_AT).unwrap_or_default());
        let mut rest = self.record.get(HEADER_BYTES..).unwrap_or_default();
        loop {
            if crc == head_crc && crc32c::crc32c(rest) == payload_crc {
                return DecodeError::Newer;
            }
            let Some((next, after)) = rest.split_first_chunk::<1>() else { return error };
            crc = crc32c::crc32c_append(crc, next);
            rest = after;
        }
    }
}

fn optional_in<'a>(head: &mut Fields<'a>, flags: u8, format: Format) -> Result<Optional<'a>, DecodeError> {
    match format {
        Format::One => one::optional_in(head, flags),
        Format::Two => two::optional_in(head, flags),
    }
}

fn targets_in(targets: &[u8], format: Format) -> impl ExactSizeIterator<Item = Target> + use<'_> {
    let (targets, _) = targets.as_chunks::<TARGET_BYTES>();
    targets.iter().map(move |target| match format {
        Format::One => one::target(target),
        Format::Two => two::target(target),
    })
}

/// The first bytes of a number.
#[inline]
pub(crate) fn bytes_of<const N: usize>(number: u128) -> [u8; N] {
    number.to_le_bytes().first_chunk().copied().unwrap_or([0; N])
}

/// The number in the first four bytes; 0 when there are fewer, which callers rule out by the slice they pass.
pub(crate) fn le_u32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The number in the first eight bytes; 0 when there are fewer, which callers rule out by the slice they pass.
pub(crate) fn le_u64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
