//! Read requests and responses against prost, in both directions, and against arbitrary bytes.
#![allow(clippy::unwrap_used)]

mod contract;

use contract::*;
use penstock_wire::WireError;
use penstock_wire::grpc;
use penstock_wire::grpc::{ReadEvent, ReadFrame, parse_read_request, parse_read_response};
use proptest::prelude::*;
use prost::Message as _;

fn start() -> impl Strategy<Value = grpc::Start> {
    prop_oneof![
        Just(grpc::Start::Next),
        Just(grpc::Start::First),
        Just(grpc::Start::Last),
        any::<u64>().prop_map(grpc::Start::Offset),
        any::<u64>().prop_map(grpc::Start::Timestamp),
        any::<u64>().prop_map(grpc::Start::LastCount),
    ]
}

fn start_of(start: grpc::Start) -> Start {
    let at = match start {
        grpc::Start::Next => StartAt::Place(1),
        grpc::Start::First => StartAt::Place(2),
        grpc::Start::Last => StartAt::Place(3),
        grpc::Start::Offset(offset) => StartAt::Offset(offset),
        grpc::Start::Timestamp(timestamp_ms) => StartAt::TimestampMs(timestamp_ms),
        grpc::Start::LastCount(count) => StartAt::LastCount(count),
    };
    Start { at: Some(at) }
}

fn request(content: ReadContent) -> Vec<u8> {
    ReadRequest { request: Some(content) }.encode_to_vec()
}

proptest! {
    #[test]
    fn an_open_reads_the_same_both_ways(
        names in proptest::array::uniform3("[a-zé.]{0,12}"), start in start(), end in any::<Option<u64>>(),
        credit: u32, single_active: bool, from_replica: bool,
    ) {
        let [vhost, partition, group] = names;
        let open = grpc::ReadOpen {
            vhost: &vhost, partition: &partition, start, end, credit, group: &group, single_active, from_replica,
        };
        let mut bytes = Vec::new();
        grpc::encode_read_open(&mut bytes, &open);

        let theirs = ReadOpen {
            vhost: vhost.clone(), partition: partition.clone(), start: Some(start_of(start)), end, credit,
            group: group.clone(), single_active, from_replica,
        };
        let content = ReadContent::Open(theirs);
        prop_assert_eq!(ReadRequest::decode(&*bytes).unwrap().request, Some(content.clone()));
        prop_assert_eq!(parse_read_request(&bytes).unwrap(), ReadFrame::Open(open));
        let again = request(content);
        prop_assert_eq!(parse_read_request(&again).unwrap(), ReadFrame::Open(open));
    }

    #[test]
    fn credit_and_stored_read_the_same_both_ways(responses: u32, offset: u64) {
        let mut bytes = Vec::new();
        grpc::encode_credit(&mut bytes, responses);
        prop_assert_eq!(parse_read_request(&bytes).unwrap(), ReadFrame::Credit { responses });
        let content = ReadContent::Credit(Credit { responses });
        prop_assert_eq!(ReadRequest::decode(&*bytes).unwrap().request, Some(content));

        bytes.clear();
        grpc::encode_stored(&mut bytes, offset);
        prop_assert_eq!(parse_read_request(&bytes).unwrap(), ReadFrame::Stored { offset });
        let content = ReadContent::Stored(Stored { offset });
        prop_assert_eq!(ReadRequest::decode(&*bytes).unwrap().request, Some(content));
    }

    #[test]
    fn responses_read_the_same_both_ways(numbers: [u64; 3], active: bool, reason in "[a-zé ]{0,20}") {
        let [first, begin, next] = numbers;
        let decode = |bytes: &[u8]| ReadResponse::decode(bytes).unwrap().response.unwrap();

        let mut bytes = Vec::new();
        grpc::encode_read_opened(&mut bytes, first, begin, next);
        prop_assert_eq!(decode(&bytes), ReadAnswer::Opened(ReadOpened { first, begin, next }));
        let opened = parse_read_response(&bytes).unwrap();
        let is_same = matches!(opened, ReadEvent::Opened { first: f, begin: b, next: n } if [f, b, n] == numbers);
        prop_assert!(is_same);

        bytes.clear();
        grpc::encode_active(&mut bytes, active, begin);
        prop_assert_eq!(decode(&bytes), ReadAnswer::Active(Active { active, begin }));
        let told = parse_read_response(&bytes).unwrap();
        let is_same = matches!(told, ReadEvent::Active { active: a, begin: b } if (a, b) == (active, begin));
        prop_assert!(is_same);

        bytes.clear();
        grpc::encode_read_cancelled(&mut bytes, &reason);
        prop_assert_eq!(decode(&bytes), ReadAnswer::Cancelled(ReadCancelled { reason: reason.clone() }));
        let ended = parse_read_response(&bytes).unwrap();
        let is_same = matches!(ended, ReadEvent::Cancelled { reason: r } if r == reason);
        prop_assert!(is_same);
    }

    #[test]
    fn any_bytes_are_read_or_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_read_request(&bytes);
        if let Ok(ReadEvent::Deliveries(view)) = parse_read_response(&bytes) {
            prop_assert!(view.count() <= bytes.len());
        }
    }
}

#[test]
fn deliveries_stand_where_a_read_response_has_them() {
    let mut bytes = Vec::new();
    let mut encoder = grpc::DeliveriesEncoder::begin(&mut bytes);
    encoder
        .push(&grpc::DeliveryRef {
            sequence: 7,
            body: b"x",
            exchange: b"",
            routing_key: b"k",
            properties_amqp: b"",
            redelivered: false,
            delivery_count: 0,
            stored_at_ms: 1,
            key: Some(b""),
        })
        .unwrap();
    encoder.finish();

    let delivery = Delivery {
        sequence: 7,
        body: b"x".to_vec(),
        routing_key: "k".to_owned(),
        stored_at_ms: 1,
        key: Some(Vec::new()),
        ..Delivery::default()
    };
    let answer = ReadAnswer::Deliveries(Deliveries { deliveries: vec![delivery] });
    assert_eq!(ReadResponse::decode(&*bytes).unwrap().response, Some(answer));
}

#[test]
fn an_open_without_a_start_begins_at_the_next_message() {
    let open = ReadContent::Open(ReadOpen { partition: "s".to_owned(), ..ReadOpen::default() });

    let bytes = request(open);

    let ReadFrame::Open(open) = parse_read_request(&bytes).unwrap() else { panic!("no open") };
    assert_eq!(open.start, grpc::Start::Next);
}

#[test]
fn an_unknown_place_and_a_long_name_are_refused() {
    let start = Some(Start { at: Some(StartAt::Place(4)) });
    let open = ReadContent::Open(ReadOpen { start, ..ReadOpen::default() });
    assert!(matches!(parse_read_request(&request(open)), Err(WireError::OutOfRange { .. })));

    let open = ReadContent::Open(ReadOpen { group: "g".repeat(256), ..ReadOpen::default() });
    assert!(matches!(parse_read_request(&request(open)), Err(WireError::TooLong { size: 256, .. })));
}

#[test]
fn a_request_with_two_contents_or_none_is_refused() {
    let mut bytes = Vec::new();
    assert!(matches!(parse_read_request(&bytes), Err(WireError::Empty { .. })));

    grpc::encode_credit(&mut bytes, 1);
    grpc::encode_stored(&mut bytes, 1);

    assert!(matches!(parse_read_request(&bytes), Err(WireError::Repeated { .. })));
}
