//! Encoding of records. See `docs/format.md`, "Records".
//!
//! Invariants: `record` decodes exactly these bytes, and nothing is allocated per record beyond the buffer itself. A
//! payload's checksum is computed when it is made, before any lock is held.

use std::num::NonZeroU32;

use penstock_queue::{QueueId, SequenceRange};

use crate::batches::RowDigest;
use crate::error::LogError;
use crate::record::{
    FLAG_KEY, FLAG_LONG_PROPERTIES, FLAG_PRODUCER, HEADER_BYTES, KIND_DELETE, KIND_EPOCH, KIND_MARK, KIND_MESSAGE,
    KIND_SETTLE, MESSAGE_FIXED_BYTES, MarkView, MessageView, ONE_TARGET_BYTES, Outcome, PRODUCER_BYTES, Position,
    Producer, RANGE_BYTES, RECORD_BYTES_MAX, RawMessage, TARGET_BYTES, TARGETS_MAX, Target, crc_of, head_crc, seed_of,
};

/// The content of a message, with its checksum.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    exchange: &'a [u8],
    routing_key: &'a [u8],
    properties: &'a [u8],
    body: &'a [u8],
    key: Option<&'a [u8]>,
    producer: Option<Producer>,
    batch_digest: Option<NonZeroU32>,
    crc: u32,
    bytes: u32,
}

impl<'a> Payload<'a> {
    /// Checks the lengths and computes the checksum.
    pub fn new(
        exchange: &'a [u8],
        routing_key: &'a [u8],
        properties: &'a [u8],
        body: &'a [u8],
    ) -> Result<Payload<'a>, LogError> {
        for (field, value) in [("the exchange's name", exchange), ("the routing key", routing_key)] {
            if value.len() > u8::MAX as usize {
                return Err(LogError::FieldTooLong { field, bytes: value.len(), bytes_max: u8::MAX as usize });
            }
        }
        let bytes = (exchange.len() + routing_key.len() + properties.len()) as u64 + body.len() as u64;
        let bytes_max = RECORD_BYTES_MAX - (HEADER_BYTES + MESSAGE_FIXED_BYTES + 4 + TARGETS_MAX * TARGET_BYTES) as u64;
        if bytes > bytes_max {
            return Err(LogError::RecordTooLarge { bytes, bytes_max });
        }
        let crc = crc_of(0, [exchange, routing_key, properties, body]);
        let bytes = bytes as u32;
        let (key, producer, batch_digest) = (None, None, None);
        Ok(Payload { exchange, routing_key, properties, body, key, producer, batch_digest, crc, bytes })
    }

    /// The same with a key, which routes it to a partition and is passed on to readers.
    pub fn with_key(self, key: &'a [u8]) -> Result<Payload<'a>, LogError> {
        if key.len() > u16::MAX as usize {
            return Err(LogError::FieldTooLong { field: "the key", bytes: key.len(), bytes_max: u16::MAX as usize });
        }
        Ok(Payload { key: Some(key), ..self })
    }

    /// The same with its producer, which folds remember.
    #[must_use]
    pub fn with_producer(self, producer: Producer) -> Payload<'a> {
        Payload { producer: Some(producer), ..self }
    }

    /// The same for a producer that numbers batches, with the digest of the batch up to this message.
    #[must_use]
    pub fn with_batch_digest(self, digest: NonZeroU32) -> Payload<'a> {
        Payload { batch_digest: Some(digest), ..self }
    }

    /// The same for a record without the producer.
    #[must_use]
    pub(crate) fn without_producer(self) -> Payload<'a> {
        Payload { producer: None, batch_digest: None, ..self }
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
        self.properties.len() > u16::MAX as usize
    }

    /// How many bytes its record has with that many targets; the targets are within their bound.
    pub(crate) fn record_bytes(&self, targets: usize) -> usize {
        HEADER_BYTES + MESSAGE_FIXED_BYTES + targets * TARGET_BYTES + self.optional_bytes() + self.bytes as usize
    }

    fn optional_bytes(&self) -> usize {
        let long = if self.has_long_properties() { 4 } else { 0 };
        long + self.key.map_or(0, |key| 2 + key.len()) + self.producer.map_or(0, |_| PRODUCER_BYTES)
    }

    fn flags(&self) -> u8 {
        let long = if self.has_long_properties() { FLAG_LONG_PROPERTIES } else { 0 };
        long | self.key.map_or(0, |_| FLAG_KEY) | self.producer.map_or(0, |_| FLAG_PRODUCER)
    }

    fn put_optional(&self, out: &mut Vec<u8>) {
        if self.has_long_properties() {
            out.extend_from_slice(&(self.properties.len() as u32).to_le_bytes());
        }
        if let Some(key) = self.key {
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            out.extend_from_slice(key);
        }
        if let Some(producer) = self.producer {
            out.extend_from_slice(&producer.id.get().to_le_bytes());
            out.extend_from_slice(&self.batch_digest.map_or(0, NonZeroU32::get).to_le_bytes());
            out.extend_from_slice(&producer.sequence.to_le_bytes());
        }
    }
}

/// Where a record will be: its position, and the checksum of its segment's id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) position: Position,
    pub(crate) seed: u32,
}

const FIXED_BYTES: usize = HEADER_BYTES + MESSAGE_FIXED_BYTES;

pub(crate) fn encode_message(
    out: &mut Vec<u8>,
    stamp: Stamp,
    payload: &Payload<'_>,
    stored_at_ms: u64,
    targets: &[Target],
) {
    let start = out.len();
    let length = payload.record_bytes(targets.len());
    out.reserve(length);
    let flags = payload.flags();
    let mut fixed = [0; ONE_TARGET_BYTES];
    let (header, head) = fixed.split_at_mut(HEADER_BYTES);
    fill_header(header, length as u32, [KIND_MESSAGE, flags], targets.len() as u16, stamp.position);
    header[16..20].copy_from_slice(&payload.crc.to_le_bytes());
    head[..6].copy_from_slice(&stored_at_ms.to_le_bytes()[..6]);
    head[6] = payload.exchange.len() as u8;
    head[7] = payload.routing_key.len() as u8;
    let short_properties = if payload.has_long_properties() { 0 } else { payload.properties.len() as u16 };
    head[8..10].copy_from_slice(&short_properties.to_le_bytes());
    if let ([target], 0) = (targets, flags) {
        // Nearly every message takes this path: everything of a fixed size is assembled before it goes to the buffer.
        fixed[FIXED_BYTES..].copy_from_slice(&target_bytes(target));
        let crc = head_crc(&fixed, ONE_TARGET_BYTES, stamp.seed);
        fixed[20..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&fixed);
    } else {
        out.extend_from_slice(&fixed[..FIXED_BYTES]);
        for target in targets {
            out.extend_from_slice(&target_bytes(target));
        }
        payload.put_optional(out);
        seal_head(out, start, stamp.seed);
    }
    for part in [payload.exchange, payload.routing_key, payload.properties, payload.body] {
        if !part.is_empty() {
            out.extend_from_slice(part);
        }
    }
}

fn target_bytes(target: &Target) -> [u8; TARGET_BYTES] {
    let mut bytes = [0; TARGET_BYTES];
    bytes[..4].copy_from_slice(&target.queue.0.to_le_bytes());
    bytes[4..].copy_from_slice(&target.sequence.0.to_le_bytes());
    bytes
}

/// Writes a message again, with another segment's id and only these of its targets; all else is unchanged.
pub(crate) fn encode_pruned(out: &mut Vec<u8>, message: &MessageView<'_>, targets: &[Target], segment_id: u64) {
    let start = out.len();
    let RawMessage { fixed, optional, payload } = message.raw();
    let length = FIXED_BYTES + targets.len() * TARGET_BYTES + optional.len() + payload.len();
    out.reserve(length);
    out.extend_from_slice(fixed);
    out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    out[start + 6..start + 8].copy_from_slice(&(targets.len() as u16).to_le_bytes());
    for target in targets {
        out.extend_from_slice(&target_bytes(target));
    }
    out.extend_from_slice(optional);
    seal_head(out, start, seed_of(segment_id));
    out.extend_from_slice(payload);
}

/// Content of a settle record besides its ranges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settlement {
    pub(crate) queue: QueueId,
    pub(crate) outcome: Outcome,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

pub(crate) const SETTLE_FIXED_BYTES: usize = 21;

pub(crate) fn settle_bytes(ranges: usize) -> usize {
    HEADER_BYTES + SETTLE_FIXED_BYTES + ranges * RANGE_BYTES
}

pub(crate) fn encode_settle(out: &mut Vec<u8>, stamp: Stamp, settlement: Settlement, ranges: &[SequenceRange]) {
    let start = begin(out, stamp, settle_bytes(ranges.len()), KIND_SETTLE, ranges.len() as u16);
    out.extend_from_slice(&settlement.queue.0.to_le_bytes());
    out.push(settlement.outcome.code());
    out.extend_from_slice(&settlement.count.to_le_bytes());
    out.extend_from_slice(&settlement.bytes.to_le_bytes());
    for range in ranges {
        out.extend_from_slice(&range.first.0.to_le_bytes());
        out.extend_from_slice(&range.last.0.to_le_bytes());
    }
    seal_head(out, start, stamp.seed);
}

pub(crate) const DELETE_BYTES: usize = HEADER_BYTES + 4;

pub(crate) fn encode_delete(out: &mut Vec<u8>, stamp: Stamp, queue: QueueId) {
    let start = begin(out, stamp, DELETE_BYTES, KIND_DELETE, 0);
    out.extend_from_slice(&queue.0.to_le_bytes());
    seal_head(out, start, stamp.seed);
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
    seal_head(out, start, stamp.seed);
}

pub(crate) const EPOCH_BYTES: usize = HEADER_BYTES + 9;

pub(crate) fn encode_epoch(out: &mut Vec<u8>, stamp: Stamp, epoch: u64, raise: bool) {
    let start = begin(out, stamp, EPOCH_BYTES, KIND_EPOCH, 0);
    out.extend_from_slice(&epoch.to_le_bytes());
    out.push(u8::from(raise));
    seal_head(out, start, stamp.seed);
}

fn begin(out: &mut Vec<u8>, stamp: Stamp, length: usize, kind: u8, count: u16) -> usize {
    let start = out.len();
    out.reserve(length);
    let mut header = [0; HEADER_BYTES];
    fill_header(&mut header, length as u32, [kind, 0], count, stamp.position);
    out.extend_from_slice(&header);
    start
}

fn fill_header(header: &mut [u8], length: u32, kind_and_flags: [u8; 2], count: u16, position: Position) {
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..6].copy_from_slice(&kind_and_flags);
    header[6..8].copy_from_slice(&count.to_le_bytes());
    header[8..16].copy_from_slice(&position.0.to_le_bytes());
}

/// Writes the head's checksum into the record that starts at `start` and whose head ends where the buffer does.
fn seal_head(out: &mut [u8], start: usize, seed: u32) {
    let record = &mut out[start..];
    let crc = head_crc(record, record.len(), seed);
    record[20..24].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use penstock_queue::Sequence;
    use proptest::prelude::*;

    use super::*;
    use crate::record::{DecodeError, Record, decode_record, outline, seed_of};

    const SEGMENT_ID: u64 = 0x1122_3344_5566_7788;

    fn stamp() -> Stamp {
        Stamp { position: Position(0x0a0b_0c0d), seed: seed_of(SEGMENT_ID) }
    }

    fn target(queue: u32, sequence: u64) -> Target {
        Target { queue: QueueId(queue), sequence: Sequence(sequence) }
    }

    fn message_record(payload: &Payload<'_>, targets: &[Target]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_message(&mut out, stamp(), payload, 0x0123_4567_89ab, targets);
        out
    }

    #[test]
    fn a_message_is_laid_out_as_the_format_draws_it() {
        let payload = Payload::new(b"", b"orders", &[0, 0, 0], &[9; 100]).unwrap();

        let record = message_record(&payload, &[target(7, 42)]);

        assert_eq!(record.len(), 155);
        assert_eq!(record[..4], 155_u32.to_le_bytes());
        assert_eq!(record[4..8], [1, 0, 1, 0], "kind, flags, count");
        assert_eq!(record[8..16], 0x0a0b_0c0d_u64.to_le_bytes());
        assert_eq!(record[16..20], crc32c::crc32c(&record[46..]).to_le_bytes());
        assert_eq!(record[24..30], [0xab, 0x89, 0x67, 0x45, 0x23, 0x01]);
        assert_eq!(record[30..34], [0, 6, 3, 0], "lengths of exchange, routing key and properties");
        assert_eq!(record[34..38], 7_u32.to_le_bytes());
        assert_eq!(record[38..46], 42_u64.to_le_bytes());
        assert_eq!(record[46..52], *b"orders");
        let mut head = SEGMENT_ID.to_le_bytes().to_vec();
        head.extend_from_slice(&record[..20]);
        head.extend_from_slice(&record[24..46]);
        assert_eq!(record[20..24], crc32c::crc32c(&head).to_le_bytes());
    }

    #[test]
    fn a_pruned_message_keeps_all_but_its_targets_and_the_checksum_of_its_head() {
        let properties = vec![5; 70_000];
        let payload = Payload::new(b"e", b"k", &properties, b"body").unwrap();
        let record = message_record(&payload, &[target(1, 1), target(2, 8), target(3, 9)]);
        let Record::Message(view) = decode_record(&record, SEGMENT_ID).unwrap().record else { panic!("a message") };

        let mut pruned = vec![0xff; 3];
        encode_pruned(&mut pruned, &view, &[target(1, 1), target(3, 9)], 77);

        let pruned = &pruned[3..];
        assert_eq!(pruned.len(), record.len() - TARGET_BYTES);
        assert_eq!(pruned[8..20], record[8..20], "position and the payload's checksum");
        assert_eq!(decode_record(pruned, SEGMENT_ID), Err(DecodeError::HeadChecksum));
        let decoded = decode_record(pruned, 77).unwrap();
        let Record::Message(found) = decoded.record else { panic!("a message") };
        found.verify().unwrap();
        assert_eq!(found.targets().collect::<Vec<_>>(), [target(1, 1), target(3, 9)]);
        assert_eq!((found.stored_at_ms, found.properties, found.body), (view.stored_at_ms, view.properties, view.body));
    }

    #[test]
    fn properties_above_64_kib_are_read_back() {
        let properties = vec![5; 70_000];
        let payload = Payload::new(b"e", b"k", &properties, b"body").unwrap();

        let record = message_record(&payload, &[target(1, 1)]);

        let Record::Message(view) = decode_record(&record, SEGMENT_ID).unwrap().record else { panic!("a message") };
        view.verify().unwrap();
        assert_eq!((view.exchange, view.routing_key, view.body), (&b"e"[..], &b"k"[..], &b"body"[..]));
        assert_eq!(view.properties, properties);
    }

    #[test]
    fn reserved_fields_are_passed_over() {
        let payload = Payload::new(b"", b"k", b"", b"body").unwrap();
        let mut record = message_record(&payload, &[target(1, 1)]);
        let optional = [&[3, 0][..], b"key", &[7; 20], &[8; 8], &[9; 8], &[1]].concat();
        record.splice(46..46, optional.iter().copied());
        let length = record.len() as u32;
        record[..4].copy_from_slice(&length.to_le_bytes());
        record[5] = 0b0111_1110;
        let crc = head_crc(&record, 46 + optional.len(), seed_of(SEGMENT_ID));
        record[20..24].copy_from_slice(&crc.to_le_bytes());

        let Record::Message(view) = decode_record(&record, SEGMENT_ID).unwrap().record else { panic!("a message") };

        view.verify().unwrap();
        assert_eq!((view.routing_key, view.body), (&b"k"[..], &b"body"[..]));
    }

    #[test]
    fn a_record_of_an_earlier_life_of_the_file_is_none() {
        let payload = Payload::new(b"", b"k", b"", b"body").unwrap();
        let record = message_record(&payload, &[target(1, 1)]);

        assert_eq!(decode_record(&record, SEGMENT_ID + 1), Err(DecodeError::HeadChecksum));
    }

    fn settlement() -> Settlement {
        Settlement { queue: QueueId(3), outcome: Outcome::Requeue, count: 2, bytes: 77 }
    }

    const MARK: MarkView<'_> = MarkView { owner: b"owner", key: b"key", value: b"a value" };

    fn with_all(payload: Payload<'_>) -> Payload<'_> {
        let producer = Producer { id: 0x0102_0304_0506_0708.try_into().unwrap(), sequence: 99 };
        payload.with_key(b"a key").unwrap().with_producer(producer)
    }

    #[test]
    fn a_key_and_a_producer_are_laid_out_as_the_format_draws_them() {
        let payload = with_all(Payload::new(b"", b"k", b"", b"body").unwrap());

        let record = message_record(&payload, &[target(7, 42)]);

        assert_eq!(record.len(), payload.record_bytes(1));
        assert_eq!(record[5], 0b110);
        assert_eq!(record[46..53], *b"\x05\0a key");
        assert_eq!(record[53..61], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(record[61..65], [0; 4], "it numbers no batches");
        assert_eq!(record[65..73], 99_u64.to_le_bytes());
        let Record::Message(view) = decode_record(&record, SEGMENT_ID).unwrap().record else { panic!("a message") };
        view.verify().unwrap();
        assert_eq!((view.key, view.producer), (payload.key(), payload.producer()));
        assert_eq!((view.routing_key, view.body), (&b"k"[..], &b"body"[..]));
        assert_eq!(outline(&record), None, "those are read whole");
        assert_eq!(view.batch_digest, None);
    }

    #[test]
    fn a_digest_of_a_batch_is_beside_the_producer() {
        let digest = NonZeroU32::new(0x0102_0304);
        let payload = with_all(Payload::new(b"", b"k", b"", b"body").unwrap()).with_batch_digest(digest.unwrap());

        let record = message_record(&payload, &[target(7, 42)]);

        assert_eq!(record.len(), payload.record_bytes(1));
        assert_eq!(record[61..65], [4, 3, 2, 1]);
        let Record::Message(view) = decode_record(&record, SEGMENT_ID).unwrap().record else { panic!("a message") };
        view.verify().unwrap();
        assert_eq!((view.producer, view.batch_digest), (payload.producer(), digest));
    }

    #[test]
    fn a_key_longer_than_its_length_can_say_is_refused() {
        let payload = Payload::new(b"", b"", b"", b"").unwrap();

        assert!(payload.with_key(&[0; 65_535]).is_ok());
        assert!(matches!(payload.with_key(&[0; 65_536]), Err(LogError::FieldTooLong { .. })));
    }

    /// One record of each kind that is written.
    fn records() -> Vec<Vec<u8>> {
        let payload = Payload::new(b"exchange", b"key", b"prop", b"some body").unwrap();
        let range = SequenceRange::new(Sequence(4), Sequence(9)).unwrap();
        let mut settle = Vec::new();
        encode_settle(&mut settle, stamp(), settlement(), &[range, range]);
        let mut delete = Vec::new();
        encode_delete(&mut delete, stamp(), QueueId(12));
        let mut epoch = Vec::new();
        encode_epoch(&mut epoch, stamp(), 5, true);
        let mut mark = Vec::new();
        encode_mark(&mut mark, stamp(), &MARK);
        let keyed = message_record(&with_all(payload), &[target(1, 1)]);
        vec![message_record(&payload, &[target(1, 1), target(2, 9)]), settle, delete, epoch, mark, keyed]
    }

    #[test]
    fn settle_delete_epoch_and_mark_are_read_back() {
        let records = records();
        let read = |at: usize| decode_record(&records[at], SEGMENT_ID).unwrap();

        let Record::Settle(settle) = read(1).record else { panic!("a settlement") };
        assert_eq!((settle.queue, settle.outcome), (QueueId(3), Outcome::Requeue));
        assert_eq!((settle.count, settle.bytes), (2, 77));
        assert_eq!(settle.ranges().map(|range| (range.first.0, range.last.0)).collect::<Vec<_>>(), [(4, 9), (4, 9)]);
        assert_eq!(read(2).record, Record::Delete(QueueId(12)));
        assert_eq!(read(3).record, Record::Epoch { epoch: 5, raise: true });
        assert_eq!(read(4).record, Record::Mark(MARK));
        let lengths = [settle_bytes(2), DELETE_BYTES, EPOCH_BYTES, mark_bytes(&MARK)];
        assert_eq!(lengths, [1, 2, 3, 4].map(|at| read(at).length as usize));
    }

    fn verified(bytes: &[u8]) -> Result<(), DecodeError> {
        match decode_record(bytes, SEGMENT_ID)?.record {
            Record::Message(view) => view.verify(),
            _ => Ok(()),
        }
    }

    #[test]
    fn every_bit_of_every_record_is_under_a_checksum() {
        for record in records() {
            verified(&record).unwrap();
            for at in 0..record.len() * 8 {
                let mut changed = record.clone();
                changed[at / 8] ^= 1 << (at % 8);
                assert!(verified(&changed).is_err(), "bit {at} of a record of kind {}", record[4]);
            }
        }
    }

    #[test]
    fn a_record_that_is_cut_is_none() {
        for record in records() {
            for bytes in 0..record.len() {
                assert!(decode_record(&record[..bytes], SEGMENT_ID).is_err());
            }
        }
    }

    proptest! {
        #[test]
        fn messages_are_read_back(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 4),
            targets in prop::collection::vec((any::<u32>(), any::<u64>()), 1..20),
        ) {
            let payload = Payload::new(&parts[0], &parts[1], &parts[2], &parts[3]).unwrap();
            let targets: Vec<Target> = targets.into_iter().map(|(queue, sequence)| target(queue, sequence)).collect();
            let mut record = message_record(&payload, &targets);
            prop_assert_eq!(record.len(), payload.record_bytes(targets.len()));
            record.extend_from_slice(b"what follows");

            let decoded = decode_record(&record, SEGMENT_ID).unwrap();

            prop_assert_eq!(decoded.position, stamp().position);
            let Record::Message(view) = decoded.record else { panic!("a message") };
            view.verify().unwrap();
            prop_assert_eq!([view.exchange, view.routing_key, view.properties, view.body], [&parts[0][..], &parts[1], &parts[2], &parts[3]]);
            prop_assert_eq!(view.targets().collect::<Vec<_>>(), targets.clone());
            prop_assert_eq!(view.stored_at_ms, 0x0123_4567_89ab);
            let outline = outline(&record).unwrap();
            prop_assert_eq!((outline.length, outline.body_bytes), (decoded.length, parts[3].len() as u64));
            prop_assert_eq!(outline.targets().collect::<Vec<_>>(), targets);
        }

        #[test]
        fn any_bytes_are_refused_or_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0..7_u8) {
            let _ = (decode_record(&bytes, SEGMENT_ID), outline(&bytes));
            // With a valid length, kind and checksum the fields themselves are reached.
            let mut bytes = bytes;
            bytes.resize(bytes.len().max(HEADER_BYTES), 0);
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[4] = kind;
            bytes[5] &= 0b0111_1111;
            bytes[6..8].copy_from_slice(&u16::from(length as u8 % 8).to_le_bytes());
            for head_bytes in HEADER_BYTES..=bytes.len() {
                let crc = head_crc(&bytes, head_bytes, seed_of(SEGMENT_ID));
                bytes[20..24].copy_from_slice(&crc.to_le_bytes());
                if let Ok(decoded) = decode_record(&bytes, SEGMENT_ID) {
                    crate::fold::FoldState::default().apply(&decoded.record, Position(0));
                }
            }
        }
    }
}
