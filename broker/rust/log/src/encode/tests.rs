//! Records of format 1.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use penstock_queue::Sequence;
use proptest::prelude::*;

use super::*;
use crate::record::{DecodeError, Record, decode_record, outline};

const SEGMENT_ID: u64 = 0x1122_3344_5566_7788;

fn coding() -> Coding {
    Coding::of_segment(SEGMENT_ID)
}

fn stamp() -> Stamp {
    Stamp { position: Position(0x0a0b_0c0d), coding: coding(), enclosed: 0 }
}

fn target(queue: u64, sequence: u64) -> Target {
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
    let Record::Message(view) = decode_record(&record, coding()).unwrap().record else { panic!("a message") };

    let mut pruned = vec![0xff; 3];
    encode_pruned(&mut pruned, &view, &[target(1, 1), target(3, 9)], Coding::of_segment(77));

    let pruned = &pruned[3..];
    assert_eq!(pruned.len(), record.len() - TARGET_BYTES);
    assert_eq!(pruned[8..20], record[8..20], "position and the payload's checksum");
    assert_eq!(decode_record(pruned, coding()), Err(DecodeError::HeadChecksum));
    let decoded = decode_record(pruned, Coding::of_segment(77)).unwrap();
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

    let Record::Message(view) = decode_record(&record, coding()).unwrap().record else { panic!("a message") };
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
    let crc = head_crc(&record, 46 + optional.len(), coding().seed);
    record[20..24].copy_from_slice(&crc.to_le_bytes());

    let Record::Message(view) = decode_record(&record, coding()).unwrap().record else { panic!("a message") };

    view.verify().unwrap();
    assert_eq!((view.routing_key, view.body), (&b"k"[..], &b"body"[..]));
}

#[test]
fn a_record_of_an_earlier_life_of_the_file_is_none() {
    let payload = Payload::new(b"", b"k", b"", b"body").unwrap();
    let record = message_record(&payload, &[target(1, 1)]);

    assert_eq!(decode_record(&record, Coding::of_segment(SEGMENT_ID + 1)), Err(DecodeError::HeadChecksum));
}

fn settlement() -> Settlement {
    Settlement { queue: QueueId(3), outcome: Outcome::Requeue, count: 2, bytes: 77, due_at_ms: None }
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

    assert_eq!(record.len(), payload.record_bytes(Format::One, 1));
    assert_eq!(record[5], 0b110);
    assert_eq!(record[46..53], *b"\x05\0a key");
    assert_eq!(record[53..61], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(record[61..65], [0; 4], "it numbers no batches");
    assert_eq!(record[65..73], 99_u64.to_le_bytes());
    let Record::Message(view) = decode_record(&record, coding()).unwrap().record else { panic!("a message") };
    view.verify().unwrap();
    assert_eq!((view.key, view.producer), (payload.key(), payload.producer()));
    assert_eq!((view.routing_key, view.body), (&b"k"[..], &b"body"[..]));
    assert_eq!(outline(&record, Format::One), None, "those are read whole");
    assert_eq!(view.batch_digest, None);
}

#[test]
fn a_digest_of_a_batch_is_beside_the_producer() {
    let digest = NonZeroU32::new(0x0102_0304);
    let payload = with_all(Payload::new(b"", b"k", b"", b"body").unwrap()).with_batch_digest(digest.unwrap());

    let record = message_record(&payload, &[target(7, 42)]);

    assert_eq!(record.len(), payload.record_bytes(Format::One, 1));
    assert_eq!(record[61..65], [4, 3, 2, 1]);
    let Record::Message(view) = decode_record(&record, coding()).unwrap().record else { panic!("a message") };
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
    encode_epoch(&mut epoch, stamp(), &EpochView::of_one(5, true));
    let mut mark = Vec::new();
    encode_mark(&mut mark, stamp(), &MARK);
    let keyed = message_record(&with_all(payload), &[target(1, 1)]);
    vec![message_record(&payload, &[target(1, 1), target(2, 9)]), settle, delete, epoch, mark, keyed]
}

#[test]
fn settle_delete_epoch_and_mark_are_read_back() {
    let records = records();
    let read = |at: usize| decode_record(&records[at], coding()).unwrap();

    let Record::Settle(settle) = read(1).record else { panic!("a settlement") };
    assert_eq!((settle.queue, settle.outcome), (QueueId(3), Outcome::Requeue));
    assert_eq!((settle.count, settle.bytes), (2, 77));
    assert_eq!(settle.ranges().map(|range| (range.first.0, range.last.0)).collect::<Vec<_>>(), [(4, 9), (4, 9)]);
    assert_eq!(read(2).record, Record::Delete(QueueId(12)));
    assert_eq!(read(3).record, Record::Epoch(EpochView::of_one(5, true)));
    assert_eq!(read(4).record, Record::Mark(MARK));
    let lengths = [
        settlement().record_bytes(Format::One, 2),
        delete_bytes(Format::One),
        epoch_bytes(Format::One),
        mark_bytes(&MARK),
    ];
    assert_eq!(lengths, [1, 2, 3, 4].map(|at| read(at).length as usize));
}

fn verified(bytes: &[u8]) -> Result<(), DecodeError> {
    match decode_record(bytes, coding())?.record {
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
            assert!(decode_record(&record[..bytes], coding()).is_err());
        }
    }
}

proptest! {
    #[test]
    fn messages_are_read_back(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 4),
        targets in prop::collection::vec((0..1_u64 << 32, any::<u64>()), 1..20),
    ) {
        let payload = Payload::new(&parts[0], &parts[1], &parts[2], &parts[3]).unwrap();
        let targets: Vec<Target> = targets.into_iter().map(|(queue, sequence)| target(queue, sequence)).collect();
        let mut record = message_record(&payload, &targets);
        prop_assert_eq!(record.len(), payload.record_bytes(Format::One, targets.len()));
        record.extend_from_slice(b"what follows");

        let decoded = decode_record(&record, coding()).unwrap();

        prop_assert_eq!(decoded.position, stamp().position);
        let Record::Message(view) = decoded.record else { panic!("a message") };
        view.verify().unwrap();
        prop_assert_eq!([view.exchange, view.routing_key, view.properties, view.body], [&parts[0][..], &parts[1], &parts[2], &parts[3]]);
        prop_assert_eq!(view.targets().collect::<Vec<_>>(), targets.clone());
        prop_assert_eq!(view.stored_at_ms, 0x0123_4567_89ab);
        let outline = outline(&record, Format::One).unwrap();
        prop_assert_eq!((outline.length, outline.body_bytes), (decoded.length, parts[3].len() as u64));
        prop_assert_eq!(outline.targets().collect::<Vec<_>>(), targets);
    }

    #[test]
    fn any_bytes_are_refused_or_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0..7_u8) {
        let _ = (decode_record(&bytes, coding()), outline(&bytes, Format::One));
        // With a valid length, kind and checksum the fields themselves are reached.
        let mut bytes = bytes;
        bytes.resize(bytes.len().max(HEADER_BYTES), 0);
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4] = kind;
        bytes[5] &= 0b0111_1111;
        bytes[6..8].copy_from_slice(&u16::from(length as u8 % 8).to_le_bytes());
        for head_bytes in HEADER_BYTES..=bytes.len() {
            let crc = head_crc(&bytes, head_bytes, coding().seed);
            bytes[20..24].copy_from_slice(&crc.to_le_bytes());
            if let Ok(decoded) = decode_record(&bytes, coding()) {
                crate::fold::FoldState::default().apply(&decoded.record, Position(0));
            }
        }
    }
}
