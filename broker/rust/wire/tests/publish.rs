//! Publish requests and responses against prost, in both directions, and against arbitrary bytes.
#![allow(clippy::unwrap_used)]

mod contract;

use contract::*;
use penstock_wire::WireError;
use penstock_wire::grpc::{
    BatchEncoder, MessageNames, Outcome, PublishFrame, encode_publish_open, encode_publish_response, parse_publish,
    parse_publish_response,
};
use proptest::prelude::*;
use prost::Message as _;

fn name() -> impl Strategy<Value = String> {
    "[a-zé.]{0,12}"
}

fn message() -> impl Strategy<Value = Message> {
    let body = proptest::collection::vec(any::<u8>(), 0..300);
    let properties = proptest::option::of(
        any::<u32>().prop_map(|mode| Properties { delivery_mode: mode % 3, ..Properties::default() }),
    );
    let key = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20));
    (body, proptest::option::of(name()), proptest::option::of(name()), properties, key).prop_map(
        |(body, exchange, routing_key, properties, key)| Message { body, exchange, routing_key, properties, key },
    )
}

fn batch() -> impl Strategy<Value = PublishBatch> {
    (name(), name(), any::<bool>(), proptest::collection::vec(message(), 0..20), any::<u64>()).prop_map(
        |(exchange, routing_key, mandatory, messages, producer_sequence)| PublishBatch {
            exchange,
            routing_key,
            mandatory,
            messages,
            producer_sequence,
        },
    )
}

fn check_batch(bytes: &[u8], expected: &PublishBatch) {
    let PublishFrame::Batch(view) = parse_publish(bytes).unwrap() else { panic!("not a batch") };
    assert_eq!(view.exchange.as_bytes(), expected.exchange.as_bytes());
    assert_eq!(view.routing_key.as_bytes(), expected.routing_key.as_bytes());
    assert_eq!(view.mandatory, expected.mandatory);
    assert_eq!(view.message_count, expected.messages.len());
    assert_eq!(view.producer_sequence, expected.producer_sequence);
    let mut messages = view.messages();
    for message in &expected.messages {
        let found = messages.next().unwrap().unwrap();
        assert_eq!(found.body, message.body);
        assert_eq!(found.exchange.as_bytes(), message.exchange.as_ref().unwrap_or(&expected.exchange).as_bytes());
        assert_eq!(
            found.routing_key.as_bytes(),
            message.routing_key.as_ref().unwrap_or(&expected.routing_key).as_bytes()
        );
        assert_eq!(found.key, message.key.as_deref());
        assert_eq!(found.properties.map(|bytes| Properties::decode(bytes).unwrap()), message.properties);
    }
    assert!(messages.next().is_none());
}

proptest! {
    #[test]
    fn a_batch_of_prost_reads_the_same(batch in batch()) {
        let request = PublishRequest { request: Some(PublishContent::Batch(batch.clone())) };

        check_batch(&request.encode_to_vec(), &batch);
    }

    #[test]
    fn prost_reads_an_encoded_batch_the_same(batch in batch()) {
        let mut encoder = BatchEncoder::begin(Vec::new(), &batch.exchange, &batch.routing_key, batch.mandatory);
        encoder.put_producer_sequence(batch.producer_sequence);
        for message in &batch.messages {
            let properties = message.properties.as_ref().map(|properties| properties.encode_to_vec());
            let names = MessageNames {
                exchange: message.exchange.as_deref(),
                routing_key: message.routing_key.as_deref(),
                properties: properties.as_deref(),
                key: message.key.as_deref(),
            };
            encoder.push_message(&message.body, &names);
        }
        let bytes = encoder.finish();

        prop_assert_eq!(PublishRequest::decode(&*bytes).unwrap().request, Some(PublishContent::Batch(batch.clone())));
        check_batch(&bytes, &batch);
    }

    #[test]
    fn an_open_reads_the_same_both_ways(vhost in name(), level in 0..3u32, producer in name()) {
        let mut bytes = Vec::new();
        encode_publish_open(&mut bytes, &vhost, level, &producer);

        let open = PublishOpen { vhost: vhost.clone(), level: level as i32, producer: producer.clone() };
        prop_assert_eq!(PublishRequest::decode(&*bytes).unwrap().request, Some(PublishContent::Open(open)));
        let PublishFrame::Open { vhost: found, level: found_level, producer: named } = parse_publish(&bytes).unwrap() else {
            panic!("not an open");
        };
        prop_assert_eq!((found, found_level, named), (vhost.as_str(), level, producer.as_str()));
    }

    #[test]
    fn a_response_reads_the_same_both_ways(
        confirmed in proptest::collection::vec(any::<(u64, u64)>(), 0..5),
        returned in proptest::collection::vec((any::<u64>(), name()), 0..3),
        rejected in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<i32>(), name()), 0..3),
    ) {
        let returned_refs: Vec<_> = returned.iter().map(|(number, reason)| (*number, reason.as_str())).collect();
        let rejected_refs: Vec<_> = rejected.iter().map(|(first, last, code, reason)| (*first, *last, *code, reason.as_str())).collect();
        let mut bytes = Vec::new();
        encode_publish_response(&mut bytes, &confirmed, &returned_refs, &rejected_refs);

        let theirs = PublishResponse::decode(&*bytes).unwrap();
        prop_assert_eq!(theirs.confirmed.iter().map(|range| (range.first, range.last)).collect::<Vec<_>>(), confirmed.clone());
        prop_assert_eq!(theirs.returned.iter().map(|r| (r.number, r.reason.as_str())).collect::<Vec<_>>(), returned_refs.clone());
        prop_assert_eq!(theirs.rejected.iter().map(|r| (r.first, r.last, r.code, r.reason.as_str())).collect::<Vec<_>>(), rejected_refs.clone());
        let ours: Vec<_> = parse_publish_response(&theirs.encode_to_vec()).map(|outcome| format!("{:?}", outcome.unwrap())).collect();
        let expected: Vec<_> = confirmed.iter().map(|&(first, last)| Outcome::Confirmed { first, last })
            .chain(returned_refs.iter().map(|&(number, reason)| Outcome::Returned { number, reason }))
            .chain(rejected_refs.iter().map(|&(first, last, code, reason)| Outcome::Rejected { first, last, code, reason }))
            .map(|outcome| format!("{outcome:?}")).collect();
        prop_assert_eq!(ours, expected);
    }

    #[test]
    fn any_bytes_give_an_answer_and_what_is_read_prost_reads_too(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        for outcome in parse_publish_response(&bytes) {
            let _ = outcome;
        }
        if let Ok(PublishFrame::Batch(view)) = parse_publish(&bytes) {
            let mut all_read = true;
            for message in view.messages() {
                all_read &= message.is_ok_and(|message| message.properties.is_none());
            }
            if all_read {
                prop_assert!(PublishRequest::decode(&*bytes).is_ok());
            }
        }
    }

    #[test]
    fn a_corrupt_batch_gives_an_answer(batch in batch(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut bytes = PublishRequest { request: Some(PublishContent::Batch(batch)) }.encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;

        if let Ok(PublishFrame::Batch(view)) = parse_publish(&bytes) {
            prop_assert!(view.messages().count() <= view.message_count);
        }
    }
}

#[test]
fn names_behind_the_messages_still_apply() {
    let mut content = vec![0x22, 3, 0x0a, 1, b'x'];
    content.extend_from_slice(b"\x0a\x01e\x12\x01k\x18\x01");
    let mut bytes = vec![0x12, content.len() as u8];
    bytes.extend_from_slice(&content);

    let PublishFrame::Batch(view) = parse_publish(&bytes).unwrap() else { panic!("not a batch") };
    let message = view.messages().next().unwrap().unwrap();

    assert!(view.mandatory);
    let names = (message.exchange.as_bytes(), message.routing_key.as_bytes());
    assert_eq!((names, message.body), ((&b"e"[..], &b"k"[..]), &b"x"[..]));
}

#[test]
fn fields_of_a_later_version_are_passed_over() {
    let mut request = vec![0x12, 12];
    request.extend_from_slice(&[0x22, 5, 0x78, 7, 0x0a, 1, b'x']);
    request.extend_from_slice(&[0x7d, 1, 2, 3, 4]);

    let PublishFrame::Batch(view) = parse_publish(&request).unwrap() else { panic!("not a batch") };

    assert_eq!(view.messages().next().unwrap().unwrap().body, b"x");
}

#[test]
fn a_routing_key_of_256_bytes_is_refused() {
    let batch = PublishBatch { routing_key: "k".repeat(256), ..PublishBatch::default() };
    let bytes = PublishRequest { request: Some(PublishContent::Batch(batch)) }.encode_to_vec();

    assert_eq!(parse_publish(&bytes).unwrap_err(), WireError::TooLong { what: "a routing key", size: 256, max: 255 });
}

#[test]
fn a_name_that_is_not_utf8_is_refused() {
    let bytes = [0x12, 3, 0x0a, 1, 0xff];

    assert_eq!(parse_publish(&bytes).unwrap_err(), WireError::NotUtf8 { what: "the name of an exchange" });
}

#[test]
fn a_request_without_content_is_refused() {
    assert_eq!(parse_publish(&[]).unwrap_err(), WireError::Empty { what: "a publish request" });
}

#[test]
fn two_batches_in_one_request_are_refused() {
    assert!(matches!(parse_publish(&[0x12, 0, 0x12, 0]), Err(WireError::Repeated { .. })));
}

#[test]
fn a_key_that_no_record_can_hold_is_refused() {
    let publish = |bytes| {
        let mut encoder = BatchEncoder::begin(Vec::new(), "", "", false);
        encoder.push_message(b"", &MessageNames { key: Some(&vec![0; bytes]), ..MessageNames::default() });
        let request = encoder.finish();
        let PublishFrame::Batch(batch) = parse_publish(&request).unwrap() else { panic!("not a batch") };
        batch.messages().next().unwrap().map(|message| message.key.map(<[u8]>::len))
    };

    assert_eq!(publish(65_535), Ok(Some(65_535)));
    assert!(matches!(publish(65_536), Err(WireError::TooLong { size: 65_536, max: 65_535, .. })));
}
