//! Properties: from protobuf to the AMQP block and back, against prost and against arbitrary bytes.
#![allow(clippy::unwrap_used)]

mod contract;

use std::collections::BTreeMap;

use contract::*;
use penstock_wire::WireError;
use penstock_wire::amqp::properties::{
    PERSISTENT_ONLY, PROPERTIES_BYTES_MAX, amqp_to_properties, delivery_mode_of, expiration_of, headers_of,
    milliseconds, priority_of, properties_to_amqp, user_id_of,
};
use penstock_wire::amqp::table::{ValueRef, entries};
use proptest::prelude::*;
use prost::Message as _;

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(None),
        any::<bool>().prop_map(|value| Some(Kind::Bool(value))),
        any::<i64>().prop_map(|value| Some(Kind::Int(value))),
        any::<i32>().prop_map(|value| Some(Kind::Double(f64::from(value) / 7.0))),
        "[a-zé]{0,9}".prop_map(|value| Some(Kind::Text(value))),
        proptest::collection::vec(any::<u8>(), 0..9).prop_map(|value| Some(Kind::Bytes(value))),
        any::<u64>().prop_map(|value| Some(Kind::Timestamp(value))),
        (0..256u32, any::<i32>()).prop_map(|(scale, unscaled)| Some(Kind::Decimal(Decimal { scale, unscaled }))),
    ]
    .prop_map(|kind| Value { kind });
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| Value { kind: Some(Kind::Array(Array { items })) }),
            proptest::collection::btree_map("[a-z]{0,5}", inner, 0..4)
                .prop_map(|fields| Value { kind: Some(Kind::Table(Table { fields })) }),
        ]
    })
}

prop_compose! {
    fn properties()(
        texts in proptest::collection::vec("[a-zé/]{0,9}", 9),
        headers in proptest::collection::btree_map("[a-z]{0,5}", value(), 0..5),
        delivery_mode in 0..3u32,
        priority in proptest::option::of(0..256u32),
        timestamp in proptest::option::of(any::<u64>()),
    ) -> Properties {
        let mut texts = texts.into_iter();
        let mut text = || texts.next().unwrap();
        Properties {
            content_type: text(), content_encoding: text(), headers, delivery_mode, priority, correlation_id: text(),
            reply_to: text(), expiration: text(), message_id: text(), timestamp, r#type: text(), user_id: text(),
            app_id: text(),
        }
    }
}

fn block_of(properties: &Properties) -> Result<Vec<u8>, WireError> {
    let mut block = Vec::new();
    properties_to_amqp(Some(&properties.encode_to_vec()), &mut block).map(|_| block)
}

fn properties_of(block: &[u8]) -> Properties {
    let mut bytes = Vec::new();
    amqp_to_properties(block, &mut bytes).unwrap();
    Properties::decode(&*bytes).unwrap()
}

proptest! {
    #[test]
    fn properties_survive_the_way_through_amqp(properties in properties()) {
        let block = block_of(&properties).unwrap();

        let mode = if properties.delivery_mode == 1 { 1 } else { 2 };
        prop_assert_eq!(u32::from(delivery_mode_of(&block).unwrap()), mode);
        let user_id = Some(properties.user_id.as_bytes()).filter(|user_id| !user_id.is_empty());
        prop_assert_eq!(user_id_of(&block).unwrap(), user_id);
        let expected_mode = if block == PERSISTENT_ONLY { 0 } else { mode };
        prop_assert_eq!(properties_of(&block), Properties { delivery_mode: expected_mode, ..properties });
    }

    #[test]
    fn the_headers_of_a_block_are_those_given(properties in properties()) {
        let block = block_of(&properties).unwrap();
        let names: Vec<Vec<u8>> = headers_of(&block).unwrap()
            .map(|table| entries(table).map(|entry| entry.unwrap().0.to_vec()).collect()).unwrap_or_default();

        let expected: Vec<Vec<u8>> = properties.headers.keys().map(|name| name.as_bytes().to_vec()).collect();
        prop_assert_eq!(names, expected);
    }

    #[test]
    fn any_bytes_give_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut out = Vec::new();
        let _ = properties_to_amqp(Some(&bytes), &mut out);
        let _ = headers_of(&bytes);
        let _ = delivery_mode_of(&bytes);
        let _ = user_id_of(&bytes);
        out.clear();
        if amqp_to_properties(&bytes, &mut out).is_ok() {
            prop_assert!(Properties::decode(&*out).is_ok());
        }
    }

    #[test]
    fn a_corrupt_block_gives_an_answer(properties in properties(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut block = block_of(&properties).unwrap();
        let at = at.index(block.len());
        block[at] = byte;

        let mut out = Vec::new();
        if amqp_to_properties(&block, &mut out).is_ok() {
            prop_assert!(Properties::decode(&*out).is_ok());
        }
    }

    #[test]
    fn what_was_accepted_can_be_delivered(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let mut block = Vec::new();
        if properties_to_amqp(Some(&bytes), &mut block).is_ok() {
            let mut out = Vec::new();
            prop_assert_eq!(amqp_to_properties(&block, &mut out), Ok(()));
        }
    }
}

#[test]
fn absent_properties_are_stored_as_persistent_only() {
    let mut block = Vec::new();
    properties_to_amqp(None, &mut block).unwrap();

    assert_eq!(block, PERSISTENT_ONLY);
    assert_eq!(block_of(&Properties { delivery_mode: 2, ..Properties::default() }).unwrap(), PERSISTENT_ONLY);
}

#[test]
fn fields_stand_in_the_order_of_amqp() {
    let properties = Properties {
        content_type: "a".into(),
        headers: BTreeMap::from([("h".into(), Value { kind: Some(Kind::Bool(true)) })]),
        priority: Some(7),
        correlation_id: "c".into(),
        message_id: "m".into(),
        timestamp: Some(5),
        r#type: "t".into(),
        app_id: "p".into(),
        ..Properties::default()
    };

    let expected = [
        &[0xbc, 0xe8, 1, b'a', 0, 0, 0, 4, 1, b'h', b't', 1, 2, 7, 1, b'c', 1, b'm'][..],
        &[0, 0, 0, 0, 0, 0, 0, 5, 1, b't', 1, b'p'],
    ]
    .concat();
    assert_eq!(block_of(&properties).unwrap(), expected);
}

#[test]
fn a_block_without_delivery_mode_is_transient() {
    assert_eq!(delivery_mode_of(&[0, 0]).unwrap(), 1);
    assert_eq!(properties_of(&[0, 0]).delivery_mode, 1);
    assert_eq!(delivery_mode_of(&[]).unwrap(), 2);
}

#[test]
fn every_integer_of_amqp_becomes_an_int() {
    let table = [
        &b"\x01ab\xff\x01bB\xff\x01cs\xff\xff\x01du\xff\xff"[..],
        &b"\x01eI\xff\xff\xff\xff\x01fi\xff\xff\xff\xff\x01gl\xff\xff\xff\xff\xff\xff\xff\xff"[..],
    ]
    .concat();
    let mut block = vec![0x20, 0];
    block.extend_from_slice(&(table.len() as u32).to_be_bytes());
    block.extend_from_slice(&table);

    let found: Vec<_> = properties_of(&block).headers.into_values().map(|value| value.kind.unwrap()).collect();

    assert_eq!(found, [-1, 255, -1, 65_535, -1, 4_294_967_295, -1].map(Kind::Int));
}

#[test]
fn long_text_that_is_not_utf8_becomes_bytes() {
    let block = b"\x20\x00\x00\x00\x00\x08\x01kS\x00\x00\x00\x01\xff";

    assert_eq!(properties_of(block).headers["k"].kind, Some(Kind::Bytes(vec![0xff])));
}

#[test]
fn headers_nested_64_deep_pass_and_65_deep_are_refused() {
    let nest = |levels: usize| {
        let innermost = Value { kind: Some(Kind::Int(1)) };
        let value =
            (1..levels).fold(innermost, |value, _| Value { kind: Some(Kind::Array(Array { items: vec![value] })) });
        Properties { headers: BTreeMap::from([("h".to_owned(), value)]), ..Properties::default() }
    };

    let block = block_of(&nest(64)).unwrap();
    // prost itself stops at 100 messages, and one level is two of them: only our reader is checked.
    assert_eq!(amqp_to_properties(&block, &mut Vec::new()), Ok(()));
    let (name, value) = entries(headers_of(&block).unwrap().unwrap()).next().unwrap().unwrap();
    assert_eq!(name, b"h");
    assert!(matches!(value, ValueRef::Array(_)));
    assert!(matches!(block_of(&nest(65)), Err(WireError::TooDeep { max: 64, .. })));
}

#[test]
fn values_out_of_range_are_refused() {
    for properties in [
        Properties { delivery_mode: 3, ..Properties::default() },
        Properties { priority: Some(256), ..Properties::default() },
    ] {
        assert!(matches!(block_of(&properties), Err(WireError::OutOfRange { .. })));
    }
    let long = Properties { content_type: "x".repeat(256), ..Properties::default() };
    assert!(matches!(block_of(&long), Err(WireError::TooLong { size: 256, max: 255, .. })));
}

#[test]
fn properties_above_a_mebibyte_are_refused() {
    let value = Value { kind: Some(Kind::Bytes(vec![0; PROPERTIES_BYTES_MAX])) };
    let properties = Properties { headers: BTreeMap::from([("h".to_owned(), value)]), ..Properties::default() };

    assert!(matches!(block_of(&properties), Err(WireError::TooLong { max: PROPERTIES_BYTES_MAX, .. })));
}

#[test]
fn the_priority_of_a_message_is_found() {
    let block = |properties: &Properties| block_of(properties).unwrap();
    let priority = Properties { content_type: "c".into(), priority: Some(7), ..Properties::default() };
    let lowest = Properties { priority: Some(0), expiration: "100".into(), ..Properties::default() };
    let others = Properties { message_id: "m".into(), timestamp: Some(5), ..Properties::default() };

    assert_eq!(priority_of(&block(&priority)), Ok(Some(7)));
    assert_eq!(priority_of(&block(&lowest)), Ok(Some(0)));
    assert_eq!(priority_of(&block(&others)), Ok(None));
    assert_eq!(priority_of(&PERSISTENT_ONLY), Ok(None));
    assert_eq!(priority_of(&[]), Ok(None));
}

#[test]
fn the_expiration_of_a_message_is_found_and_read() {
    let block = |properties: &Properties| block_of(properties).unwrap();
    let all = Properties {
        reply_to: "r".into(),
        expiration: "60000".into(),
        message_id: "m".into(),
        ..Properties::default()
    };
    let others = Properties { reply_to: "60000".into(), message_id: "1".into(), ..Properties::default() };

    assert_eq!(expiration_of(&block(&all)).unwrap(), Some(&b"60000"[..]));
    assert_eq!(expiration_of(&block(&others)).unwrap(), None);
    assert_eq!(expiration_of(&PERSISTENT_ONLY).unwrap(), None);
    assert_eq!(expiration_of(&[]).unwrap(), None);
    let numbers =
        [&b"0"[..], b"60000", b"", b"-1", b"+1", b" 1", b"1.5", b"1s", b"99999999999999999999"].map(milliseconds);
    assert_eq!(numbers, [Some(0), Some(60_000), None, None, None, None, None, None, None]);
}

#[test]
fn a_delay_is_returned_beside_the_block_that_does_not_have_it() {
    // Field 14, a number: 300.
    let delay = [&Properties::default().encode_to_vec()[..], &[0x70, 0xac, 0x02]].concat();
    let mut block = Vec::new();

    assert_eq!(properties_to_amqp(Some(&delay), &mut block).unwrap(), Some(300));

    assert_eq!(block, PERSISTENT_ONLY);
    assert_eq!(properties_to_amqp(Some(&Properties::default().encode_to_vec()), &mut block).unwrap(), None);
}
