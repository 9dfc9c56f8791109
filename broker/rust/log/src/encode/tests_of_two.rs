//! Records of format 2.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use penstock_queue::Sequence;
use proptest::prelude::*;

use super::*;
use crate::deadlines::Times;
use crate::record::two::SEQUENCE_MAX;
use crate::record::{Begun, DecodeError, Record, decode_record, message_at, outline};

const LOG_ID: [u8; 16] = *b"a log\0in replica";
const EPOCH: u64 = 7;

fn coding() -> Coding {
    Coding::of_epoch(&LOG_ID, EPOCH)
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

fn producer() -> Producer {
    Producer { id: 0x0102_0304_0506_0708.try_into().unwrap(), sequence: 99 }
}

/// All of them.
fn attributes() -> Attributes {
    Attributes {
        producer_epoch: 0x0b0a,
        expires_at_ms: Some(0x0605_0403_0201),
        due_at_ms: Some(0x1615_1413_1211),
        priority: Some(255),
        dedup: Some([0xdd; 16]),
        source: Some(target(0x05_0403_0201, 0x07_0605_0403_0201)),
        created_at_ms: Some(0x2625_2423_2221),
        is_tombstone: true,
    }
}

fn settlement(due_at_ms: Option<u64>) -> Settlement {
    Settlement { queue: QueueId(0x03_0000_0004), outcome: Outcome::Requeue, count: 2, bytes: 77, due_at_ms }
}

fn range(first: u64, last: u64) -> SequenceRange {
    SequenceRange { first: Sequence(first), last: Sequence(last) }
}

fn settle_record(settlement: Settlement, ranges: &[SequenceRange]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_settle(&mut out, stamp(), settlement, ranges);
    out
}

const BEGUN: EpochView =
    EpochView { epoch: EPOCH, raises: 3, begun: Some(Begun { at_ms: 0x0605_0403_0201, leader: [9; 16] }) };

/// One record of each kind, and of each with fields that it may have.
fn records() -> Vec<Vec<u8>> {
    let payload = Payload::new(b"exchange", b"key", b"prop", b"some body").unwrap();
    let attributes = attributes();
    let full = payload.with_key(b"a key").unwrap().with_producer(producer()).with_attributes(&attributes);
    let (mut delete, mut epoch, mut mark) = (Vec::new(), Vec::new(), Vec::new());
    encode_delete(&mut delete, stamp(), QueueId(0x0c_0000_000d));
    encode_epoch(&mut epoch, stamp(), &BEGUN);
    encode_mark(&mut mark, stamp(), &MarkView { owner: b"owner", key: b"key", value: b"a value" });
    vec![
        message_record(&payload, &[target(1, 1), target(2, 9)]),
        message_record(&full, &[target(1, 1)]),
        settle_record(settlement(None), &[range(4, 9), range(11, 11)]),
        settle_record(settlement(Some(0x0605_0403_0201)), &[range(4, 9)]),
        delete,
        epoch,
        mark,
        envelope_record(),
    ]
}

fn envelope_record() -> Vec<u8> {
    let payload = Payload::new(b"exchange", b"key", b"prop", b"some body").unwrap();
    let targets = [target(1, 1), target(2, 9)];
    let operations = [
        Operation::Settle { settlement: settlement(None), ranges: &[range(4, 9)] },
        Operation::Message { payload, stored_at_ms: 5, targets: &targets },
        Operation::Delete(QueueId(0x0c_0000_000d)),
    ];
    let mut out = Vec::new();
    encode_envelope(&mut out, stamp(), &operations, EnvelopeSizes::of(&operations).unwrap(), |_, _| {});
    out
}

fn verified(bytes: &[u8]) -> Result<Record<'_>, DecodeError> {
    let decoded = decode_record(bytes, coding())?;
    decoded.verify()?;
    Ok(decoded.record)
}

/// Writes both checksums of a record whose head ends there.
fn seal(record: &mut [u8], head_bytes: usize) {
    let payload = crc32c::crc32c(&record[head_bytes..]);
    record[16..20].copy_from_slice(&payload.to_le_bytes());
    let head = head_crc(record, head_bytes, coding().seed);
    record[20..24].copy_from_slice(&head.to_le_bytes());
}

#[test]
fn a_message_is_laid_out_as_the_format_draws_it() {
    let payload = Payload::new(b"", b"orders", &[0, 0, 0], &[9; 100]).unwrap();

    let record = message_record(&payload, &[target(0x05_0403_0201, 0x07_0605_0403_0201)]);

    assert_eq!(record.len(), 155, "as many as in format 1");
    assert_eq!(record[4..8], [1, 0, 1, 0], "kind, flags, count");
    assert_eq!(record[16..20], crc32c::crc32c(&record[46..]).to_le_bytes());
    assert_eq!(record[34..39], [1, 2, 3, 4, 5], "the queue");
    assert_eq!(record[39..46], [1, 2, 3, 4, 5, 6, 7], "the sequence");
    assert_eq!(record[46..52], *b"orders");
    let mut head = LOG_ID.to_vec();
    head.extend_from_slice(&EPOCH.to_le_bytes());
    head.extend_from_slice(&record[..20]);
    head.extend_from_slice(&record[24..46]);
    assert_eq!(record[20..24], crc32c::crc32c(&head).to_le_bytes());
}

#[test]
fn all_fields_are_laid_out_as_the_format_draws_them() {
    let (attributes, properties) = (attributes(), vec![5; 70_000]);
    let payload = Payload::new(b"e", b"k", &properties, b"").unwrap();
    let payload = payload.with_key(b"key").unwrap().with_producer(producer()).with_attributes(&attributes);
    let payload = payload.with_batch_digest(0x0403_0201.try_into().unwrap());

    let record = message_record(&payload, &[target(1, 1)]);

    assert_eq!(record.len(), payload.record_bytes(Format::Two, 1));
    assert_eq!(record[5], 0b1011_1111);
    assert_eq!(record[32..34], [0, 0], "the bytes of the properties are below");
    let drawn = [
        &70_000_u32.to_le_bytes()[..],
        b"\x03\0key",
        &[8, 7, 6, 5, 4, 3, 2, 1],
        &[0x0a, 0x0b],
        &[1, 2, 3, 4],
        &99_u64.to_le_bytes(),
        &[1, 2, 3, 4, 5, 6],
        &[0x11, 0x12, 0x13, 0x14, 0x15, 0x16],
        &[255],
        &[0b1111, 0],
        &[0xdd; 16],
        &[1, 2, 3, 4, 5],
        &[1, 2, 3, 4, 5, 6, 7],
        &[0x21, 0x22, 0x23, 0x24, 0x25, 0x26],
        b"ek",
    ]
    .concat();
    assert_eq!(record[46..46 + drawn.len()], drawn);
    let Record::Message(view) = verified(&record).unwrap() else { panic!("a message") };
    assert_eq!(
        (view.key, view.producer, view.batch_digest),
        (Some(&b"key"[..]), Some(producer()), payload.batch_digest())
    );
    assert_eq!((view.attributes(), view.properties), (attributes, &properties[..]));
    assert_eq!(outline(&record, Format::Two), None, "those are read whole");
}

#[test]
fn settle_delete_and_epoch_are_laid_out_as_the_format_draws_them() {
    let settle = settle_record(settlement(Some(0x0605_0403_0201)), &[range(0x07_0605_0403_0201, u64::MAX)]);
    let records = records();

    assert_eq!(settle[4..8], [2, 0, 1, 0]);
    assert_eq!(settle[24..36], [4, 0, 0, 0, 3, 5, 1, 2, 3, 4, 5, 6], "queue, outcome, time");
    assert_eq!((settle[36], settle[44]), (2, 77), "totals");
    assert_eq!(settle[52..59], [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(settle[59..], [0xff; 7], "no sequence is above");
    assert_eq!(settle.len(), settlement(Some(1)).record_bytes(Format::Two, 1));
    assert_eq!(records[2].len(), settlement(None).record_bytes(Format::Two, 2));
    assert_eq!(records[4][24..], [13, 0, 0, 0, 12]);
    assert_eq!(records[4].len(), delete_bytes(Format::Two));
    assert_eq!(records[5][24..39], [7, 0, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6]);
    assert_eq!(records[5][39..], [9; 16]);
    assert_eq!(records[5].len(), epoch_bytes(Format::Two));
}

#[test]
fn all_kinds_are_read_back() {
    let records = records();
    let read = |at: usize| verified(&records[at]).unwrap();

    let Record::Settle(settle) = read(2) else { panic!("a settlement") };
    assert_eq!((settle.queue, settle.outcome, settle.due_at_ms), (QueueId(0x03_0000_0004), Outcome::Requeue, None));
    assert_eq!((settle.count, settle.bytes), (2, 77));
    assert_eq!(settle.ranges().collect::<Vec<_>>(), [range(4, 9), range(11, 11)]);
    let Record::Settle(settle) = read(3) else { panic!("a settlement") };
    assert_eq!((settle.outcome, settle.due_at_ms), (Outcome::Requeue, Some(0x0605_0403_0201)));
    assert_eq!(read(4), Record::Delete(QueueId(0x0c_0000_000d)));
    assert_eq!(read(5), Record::Epoch(BEGUN));
    assert_eq!(read(6), Record::Mark(MarkView { owner: b"owner", key: b"key", value: b"a value" }));
}

#[test]
fn an_envelope_is_laid_out_as_the_format_draws_it() {
    let record = envelope_record();
    let (settle, message) = (settlement(None).record_bytes(Format::Two, 1), 24 + 10 + 24 + 24);

    assert_eq!(record.len(), 32 + settle + message + 29);
    assert_eq!(record[4..8], [6, 0, 3, 0], "kind, flags, count");
    assert_eq!(record[24..28], 3_u32.to_le_bytes(), "one range and two targets");
    assert_eq!(record[28..32], ((settle + message - 24 + 29) as u32).to_le_bytes(), "without the payload");
    let places = [32, 32 + settle, 32 + settle + message];
    assert_eq!(places.map(|at| record[at + 4]), [2 + 128, 1 + 128, 3 + 128]);
    let headers = places.map(|at| &record[at..at + 24]).concat();
    assert_eq!(record[16..20], crc32c::crc32c(&headers).to_le_bytes());
    let Record::Envelope(view) = verified(&record).unwrap() else { panic!("an envelope") };
    let found: Vec<_> = view.records().map(|(at, decoded)| (at as usize, decoded.position.0)).collect();
    assert_eq!(found, places.map(|at| (at, stamp().position.0 + at as u64)));
    let Some(Record::Message(message)) = view.records().nth(1).map(|(_, decoded)| decoded.record) else { panic!() };
    assert_eq!((message.targets().len(), message.body), (2, &b"some body"[..]));
    assert!(matches!(message_at(&record[places[1]..], coding()), Ok(Some(found)) if found == message));
}

#[test]
fn a_record_of_another_epoch_log_or_format_is_none() {
    for record in records() {
        let others =
            [Coding::of_epoch(&LOG_ID, EPOCH + 1), Coding::of_epoch(&[0; 16], EPOCH), Coding::of_segment(EPOCH)];
        for other in others {
            assert!(decode_record(&record, other).is_err(), "kind {}", record[4]);
        }
    }
}

#[test]
fn every_bit_of_every_record_is_under_a_checksum_and_a_change_is_no_newer_version() {
    for record in records() {
        verified(&record).unwrap();
        for at in 0..record.len() * 8 {
            let mut changed = record.clone();
            changed[at / 8] ^= 1 << (at % 8);
            let error = verified(&changed).unwrap_err();
            assert_ne!(error, DecodeError::Newer, "bit {at} of a record of kind {}", record[4]);
        }
    }
}

#[test]
fn a_record_that_is_cut_is_none() {
    for record in records() {
        for bytes in 0..record.len() {
            assert!(!matches!(decode_record(&record[..bytes], coding()), Ok(_) | Err(DecodeError::Newer)));
        }
    }
}

/// A later version adds a flag with a field of its own. Without the checksums its record would look corrupt, and a start
/// would take it for the torn tail.
#[test]
fn a_flag_that_a_newer_version_wrote_is_neither_ignored_nor_corrupt() {
    let payload = Payload::new(b"e", b"key", b"prop", b"body").unwrap();
    let attributes = Attributes { is_tombstone: true, ..Attributes::default() };
    let mut record = message_record(&payload.with_attributes(&attributes), &[target(1, 1)]);
    record[47] = 0x80;
    record.splice(48..48, *b"a field of a newer version");
    let length = record.len() as u32;
    record[..4].copy_from_slice(&length.to_le_bytes());
    seal(&mut record, 74);

    assert_eq!(decode_record(&record, coding()), Err(DecodeError::Newer));
    assert_eq!(message_at(&record, coding()), Err(DecodeError::Newer));

    for at in [24, 60, record.len() - 1] {
        let mut corrupt = record.clone();
        corrupt[at] ^= 1;
        assert_eq!(decode_record(&corrupt, coding()), Err(DecodeError::Flags), "byte {at} changed");
    }
}

#[test]
fn kinds_flags_and_outcomes_of_a_newer_version_are_told_from_corrupt_ones() {
    let of_kind = |kind| {
        let mut record = records()[4].clone();
        record[4] = kind;
        (record, DecodeError::Kind)
    };
    let (mut flagged, mut outcome) = (records()[4].clone(), records()[2].clone());
    flagged[5] = 1;
    outcome[29] = 7;
    let changed = [
        of_kind(7),
        of_kind(6 + 128),
        of_kind(9 + 128),
        of_kind(0),
        (flagged, DecodeError::Flags),
        (outcome, DecodeError::Outcome),
    ];
    for (mut record, error) in changed {
        let head_bytes = record.len();
        let corrupt = decode_record(&record, coding()).unwrap_err();
        assert!([error, DecodeError::HeadChecksum].contains(&corrupt), "{corrupt:?}, not {error:?}");

        seal(&mut record, head_bytes);

        assert_eq!(decode_record(&record, coding()), Err(DecodeError::Newer), "{error:?}");
        assert_eq!(outline(&record, Format::Two), None);
    }
}

#[test]
fn a_pruned_message_keeps_all_but_its_targets_and_the_checksum_of_its_head() {
    let attributes = attributes();
    let payload = Payload::new(b"e", b"k", &[5; 9], b"body").unwrap().with_attributes(&attributes);
    let record = message_record(&payload, &[target(1, 1), target(2, 8), target(3, SEQUENCE_MAX)]);
    let Record::Message(view) = decode_record(&record, coding()).unwrap().record else { panic!("a message") };

    let mut pruned = Vec::new();
    encode_pruned(&mut pruned, &view, &[target(3, SEQUENCE_MAX)], coding());

    assert_eq!(pruned.len(), record.len() - 2 * TARGET_BYTES + 4, "and the checksum of its original head");
    assert_eq!(pruned[5], record[5] | 64);
    assert_eq!(pruned[8..20], record[8..20], "position and the payload's checksum");
    let Record::Message(found) = verified(&pruned).unwrap() else { panic!("a message") };
    assert_eq!(found.targets().collect::<Vec<_>>(), [target(3, SEQUENCE_MAX)]);
    assert_eq!((found.attributes(), found.body), (view.attributes(), view.body));
    assert_eq!(found.checksum().to_le_bytes(), record[20..24]);
    let mut again = Vec::new();
    encode_pruned(&mut again, &found, &[target(3, SEQUENCE_MAX)], coding());
    assert_eq!(again, pruned, "it keeps the first one");
}

/// As many below 2^32 as above.
fn queues() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u32>().prop_map(u64::from), 0..=QueueId::MAX.0]
}

fn some_attributes() -> impl Strategy<Value = Attributes> {
    let time = || prop::option::of(0..1_u64 << 48);
    let source = prop::option::of((queues(), 0..=SEQUENCE_MAX).prop_map(|(queue, sequence)| target(queue, sequence)));
    let dedup = prop::option::of(any::<[u8; 16]>());
    (time(), time(), time(), prop::option::of(any::<u8>()), dedup, source, any::<bool>()).prop_map(
        |(expires_at_ms, due_at_ms, created_at_ms, priority, dedup, source, is_tombstone)| {
            let producer_epoch = 0;
            Attributes {
                producer_epoch,
                expires_at_ms,
                due_at_ms,
                priority,
                dedup,
                source,
                created_at_ms,
                is_tombstone,
            }
        },
    )
}

proptest! {
    #[test]
    fn messages_are_read_back(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 4),
        targets in prop::collection::vec((queues(), 0..=SEQUENCE_MAX), 1..20),
        attributes in prop::option::of(some_attributes()),
        key in prop::option::of(prop::collection::vec(any::<u8>(), 0..50)),
        producer in prop::option::of((1..u64::MAX, any::<u64>(), any::<u16>())),
    ) {
        let mut payload = Payload::new(&parts[0], &parts[1], &parts[2], &parts[3]).unwrap();
        if let Some(key) = &key {
            payload = payload.with_key(key).unwrap();
        }
        let mut expected = attributes.unwrap_or_default();
        if let Some((id, sequence, epoch)) = producer {
            payload = payload.with_producer(Producer { id: id.try_into().unwrap(), sequence });
            expected.producer_epoch = epoch;
        }
        if attributes.is_some() || producer.is_some() {
            payload = payload.with_attributes(&expected);
        }
        let targets: Vec<Target> = targets.into_iter().map(|(queue, sequence)| target(queue, sequence)).collect();
        let mut record = message_record(&payload, &targets);
        prop_assert_eq!(record.len(), payload.record_bytes(Format::Two, targets.len()));
        record.extend_from_slice(b"what follows");

        let decoded = decode_record(&record, coding()).unwrap();

        prop_assert_eq!(decoded.position, stamp().position);
        let Record::Message(view) = decoded.record else { panic!("a message") };
        view.verify().unwrap();
        prop_assert_eq!([view.exchange, view.routing_key, view.properties, view.body], [&parts[0][..], &parts[1], &parts[2], &parts[3]]);
        prop_assert_eq!(view.targets().collect::<Vec<_>>(), targets.clone());
        prop_assert_eq!((view.key, view.producer), (payload.key(), payload.producer()));
        prop_assert_eq!((view.attributes(), view.times()), (expected, Times::from(&expected)));
        if let Some(outline) = outline(&record, Format::Two) {
            prop_assert_eq!((outline.length, outline.body_bytes), (decoded.length, parts[3].len() as u64));
            prop_assert_eq!(outline.targets().collect::<Vec<_>>(), targets);
        }
    }

    #[test]
    fn settlements_are_read_back(
        queue in queues(), due_at_ms in prop::option::of(0..1_u64 << 48), totals in any::<[u64; 2]>(), is_counted in any::<bool>(),
        ranges in prop::collection::vec((0..=SEQUENCE_MAX, 0..=SEQUENCE_MAX), 0..30),
    ) {
        let ranges: Vec<_> = ranges.into_iter().map(|(one, other)| range(one.min(other), one.max(other))).collect();
        let [count, bytes] = totals;
        let outcome = if is_counted || due_at_ms.is_none() { Outcome::Requeue } else { Outcome::Return };
        let settlement = Settlement { queue: QueueId(queue), outcome, count, bytes, due_at_ms };

        let record = settle_record(settlement, &ranges);

        prop_assert_eq!(record.len(), settlement.record_bytes(Format::Two, ranges.len()));
        let Record::Settle(view) = verified(&record).unwrap() else { panic!("a settlement") };
        prop_assert_eq!((view.queue, view.outcome, view.due_at_ms), (QueueId(queue), outcome, due_at_ms));
        prop_assert_eq!((view.count, view.bytes), (count, bytes));
        prop_assert_eq!(view.ranges().collect::<Vec<_>>(), ranges);
    }

    #[test]
    fn any_bytes_are_refused_or_read_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300), kind in prop_oneof![0..8_u8, any::<u8>()], flags in any::<u8>(),
    ) {
        let _ = (decode_record(&bytes, coding()), outline(&bytes, Format::Two));
        // With a valid length, kind and checksum the fields themselves are reached.
        let mut bytes = bytes;
        bytes.resize(bytes.len().max(HEADER_BYTES), 0);
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        (bytes[4], bytes[5]) = (kind, if kind == KIND_MESSAGE { flags } else { 0 });
        bytes[6..8].copy_from_slice(&u16::from(length as u8 % 8).to_le_bytes());
        for head_bytes in HEADER_BYTES..=bytes.len() {
            let crc = head_crc(&bytes, head_bytes, coding().seed);
            bytes[20..24].copy_from_slice(&crc.to_le_bytes());
            if let Ok(decoded) = decode_record(&bytes, coding()) {
                if let Record::Message(view) = &decoded.record {
                    let attributes = view.attributes();
                    let _ = (view.checksum(), view.row_digest());
                    prop_assert_eq!(view.times(), Times::from(&attributes));
                }
                crate::fold::FoldState::default().apply(&decoded.record, Position(0));
            }
        }
    }
}
