//! Consume, get and settle against prost, in both directions, and against arbitrary bytes.
#![allow(clippy::unwrap_used)]

mod contract;

use contract::*;
use penstock_wire::WireError;
use penstock_wire::amqp::properties::properties_to_amqp;
use penstock_wire::grpc;
use penstock_wire::grpc::{
    ConsumeEvent, ConsumeFrame, DeliveriesEncoder, DeliveryRef, parse_consume_request, parse_consume_response,
};
use proptest::prelude::*;
use prost::Message as _;

fn name() -> impl Strategy<Value = String> {
    "[a-zé.]{0,12}"
}

fn properties() -> impl Strategy<Value = Option<Properties>> {
    proptest::option::of((name(), 1..3u32, proptest::option::of(0..10u32)).prop_map(
        |(content_type, delivery_mode, priority)| Properties {
            content_type: content_type + "t",
            delivery_mode,
            priority,
            ..Properties::default()
        },
    ))
}

prop_compose! {
    fn delivery()(
        sequence in any::<u64>(),
        body in proptest::collection::vec(any::<u8>(), 0..300),
        exchange in name(), routing_key in name(), properties in properties(),
        redelivered: bool, delivery_count in prop_oneof![Just(0u32), any::<u32>()],
        stored_at_ms in prop_oneof![Just(0), Just(1_700_000_000_000u64), any::<u64>()],
        key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20)),
    ) -> Delivery {
        Delivery { sequence, body, exchange, routing_key, properties, redelivered, delivery_count, stored_at_ms, key }
    }
}

fn push_all(encoder: &mut DeliveriesEncoder<'_>, deliveries: &[Delivery]) {
    for delivery in deliveries {
        let protobuf = delivery.properties.as_ref().map(|properties| properties.encode_to_vec());
        let mut block = Vec::new();
        properties_to_amqp(protobuf.as_deref(), &mut block).unwrap();
        encoder
            .push(&DeliveryRef {
                sequence: delivery.sequence,
                body: &delivery.body,
                exchange: delivery.exchange.as_bytes(),
                routing_key: delivery.routing_key.as_bytes(),
                properties_amqp: &block,
                redelivered: delivery.redelivered,
                delivery_count: delivery.delivery_count,
                stored_at_ms: delivery.stored_at_ms,
                key: delivery.key.as_deref(),
            })
            .unwrap();
    }
}

fn check_deliveries(view: grpc::DeliveriesView<'_>, expected: &[Delivery]) {
    let found: Vec<Delivery> = view
        .map(|delivery| {
            let delivery = delivery.unwrap();
            Delivery {
                sequence: delivery.sequence,
                body: delivery.body.to_vec(),
                exchange: String::from_utf8(delivery.exchange.to_vec()).unwrap(),
                routing_key: String::from_utf8(delivery.routing_key.to_vec()).unwrap(),
                properties: delivery.properties.map(|bytes| Properties::decode(bytes).unwrap()),
                redelivered: delivery.redelivered,
                delivery_count: delivery.delivery_count,
                stored_at_ms: delivery.stored_at_ms,
                key: delivery.key.map(<[u8]>::to_vec),
            }
        })
        .collect();
    assert_eq!(found, expected);
}

proptest! {
    #[test]
    fn deliveries_read_the_same_both_ways(deliveries in proptest::collection::vec(delivery(), 0..10)) {
        let mut bytes = vec![9; 3];
        let mut encoder = DeliveriesEncoder::begin(&mut bytes);
        push_all(&mut encoder, &deliveries);
        prop_assert_eq!(encoder.delivery_count(), deliveries.len());
        encoder.finish();

        let theirs = ConsumeResponse::decode(&bytes[3..]).unwrap();
        let answer = ConsumeAnswer::Deliveries(Deliveries { deliveries: deliveries.clone() });
        prop_assert_eq!(theirs.response.as_ref(), Some(&answer));
        let encoded = theirs.encode_to_vec();
        let ConsumeEvent::Deliveries(view) = parse_consume_response(&encoded).unwrap() else { panic!("no deliveries") };
        check_deliveries(view, &deliveries);
    }

    #[test]
    fn a_get_response_reads_the_same_both_ways(deliveries in proptest::collection::vec(delivery(), 0..5), ready_count: u64) {
        let mut bytes = Vec::new();
        let mut encoder = DeliveriesEncoder::begin_get(&mut bytes);
        push_all(&mut encoder, &deliveries);
        encoder.finish_get(ready_count);

        let theirs = GetResponse::decode(&*bytes).unwrap();
        prop_assert_eq!(&theirs, &GetResponse { deliveries: deliveries.clone(), ready_count });
        let encoded = theirs.encode_to_vec();
        let view = grpc::parse_get_response(&encoded).unwrap();
        prop_assert_eq!(view.ready_count, ready_count);
        check_deliveries(view.deliveries, &deliveries);
    }

    #[test]
    fn an_open_reads_the_same_both_ways(
        vhost in name(), queue in name(), consumer_tag in name(), prefetch: u32, auto_ack: bool, exclusive: bool,
        (priority, consumer_timeout_ms) in any::<(i32, u64)>(),
    ) {
        let ack_timeout_ms = Some(consumer_timeout_ms).filter(|limit| *limit > 0);
        let (vhost, queue, consumer_tag) = (vhost.as_str(), queue.as_str(), consumer_tag.as_str());
        let open = grpc::ConsumeOpen {
            vhost, queue, consumer_tag, prefetch, auto_ack, exclusive, priority, ack_timeout_ms,
        };
        let mut bytes = Vec::new();
        grpc::encode_consume_open(&mut bytes, &open);

        let theirs = ConsumeRequest::decode(&*bytes).unwrap();
        prop_assert_eq!(theirs.request.clone(), Some(ConsumeContent::Open(ConsumeOpen {
            vhost: vhost.to_owned(), queue: queue.to_owned(), consumer_tag: consumer_tag.to_owned(), prefetch, auto_ack, exclusive,
            priority, consumer_timeout_ms,
        })));
        let encoded = theirs.encode_to_vec();
        let ConsumeFrame::Open(found) = parse_consume_request(&encoded).unwrap() else { panic!("not an open") };
        prop_assert_eq!(found, open);
    }

    #[test]
    fn a_settlement_reads_the_same_both_ways(
        pairs in proptest::collection::vec(any::<(u64, u64)>(), 0..20), outcome in 0..4u32, queue in name(),
    ) {
        let ranges: Vec<(u64, u64)> = pairs.iter().map(|&(a, b)| (a.min(b), a.max(b).max(1))).collect();
        let expected = Settlement {
            ranges: ranges.iter().map(|&(first, last)| Range { first, last }).collect(), outcome: outcome as i32,
        };
        let (mut bytes, mut unary) = (Vec::new(), Vec::new());
        grpc::encode_settlement(&mut bytes, outcome, ranges.iter().copied());
        grpc::encode_settle_request(&mut unary, "v", &queue, outcome, ranges.iter().copied());

        let theirs = ConsumeRequest::decode(&*bytes).unwrap();
        prop_assert_eq!(theirs.request.clone(), Some(ConsumeContent::Settle(expected.clone())));
        let their_unary = SettleRequest::decode(&*unary).unwrap();
        prop_assert_eq!(&their_unary, &SettleRequest { vhost: "v".to_owned(), queue: queue.clone(), settlement: Some(expected) });
        let encoded = theirs.encode_to_vec();
        let ConsumeFrame::Settlement(view) = parse_consume_request(&encoded).unwrap() else { panic!("no settlement") };
        prop_assert_eq!((view.outcome, view.range_count), (outcome, ranges.len()));
        prop_assert_eq!(view.ranges().collect::<Vec<_>>(), ranges.clone());
        let encoded = their_unary.encode_to_vec();
        let request = grpc::parse_settle_request(&encoded).unwrap();
        prop_assert_eq!((request.vhost, request.queue), ("v", queue.as_str()));
        prop_assert_eq!(request.settlement.ranges().collect::<Vec<_>>(), ranges);
    }

    #[test]
    fn flow_get_and_the_short_answers_read_the_same_both_ways(prefetch: u32, text in name(), count: u64, auto_ack: bool) {
        let (mut flow, mut opened, mut cancelled, mut get, mut settled) = Default::default();
        grpc::encode_flow(&mut flow, prefetch);
        grpc::encode_consume_opened(&mut opened, &text);
        grpc::encode_consume_cancelled(&mut cancelled, &text);
        let request = grpc::GetRequest { vhost: "", queue: &text, count_max: prefetch, auto_ack };
        grpc::encode_get_request(&mut get, &request);
        grpc::encode_settle_response(&mut settled, count);

        prop_assert_eq!(ConsumeRequest::decode(&*flow).unwrap().request, Some(ConsumeContent::Flow(Flow { prefetch })));
        let is_flow = matches!(parse_consume_request(&flow), Ok(ConsumeFrame::Flow { prefetch: found }) if found == prefetch);
        prop_assert!(is_flow);
        let answer = |bytes: &Vec<u8>| ConsumeResponse::decode(bytes.as_slice()).unwrap().response;
        prop_assert_eq!(answer(&opened), Some(ConsumeAnswer::Opened(Text { text: text.clone() })));
        prop_assert_eq!(answer(&cancelled), Some(ConsumeAnswer::Cancelled(Text { text: text.clone() })));
        let is_opened = matches!(parse_consume_response(&opened), Ok(ConsumeEvent::Opened { consumer_tag }) if consumer_tag == text);
        prop_assert!(is_opened);
        let is_cancelled = matches!(parse_consume_response(&cancelled), Ok(ConsumeEvent::Cancelled { reason }) if reason == text);
        prop_assert!(is_cancelled);
        let theirs = GetRequest { vhost: String::new(), queue: text.clone(), count_max: prefetch, auto_ack };
        prop_assert_eq!(GetRequest::decode(&*get).unwrap(), theirs);
        prop_assert_eq!(grpc::parse_get_request(&get).unwrap(), request);
        prop_assert_eq!(SettleResponse::decode(&*settled).unwrap().settled_count, count);
        prop_assert_eq!(grpc::parse_settle_response(&settled).unwrap(), count);
    }

    #[test]
    fn any_bytes_give_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(ConsumeFrame::Settlement(view)) = parse_consume_request(&bytes) {
            prop_assert_eq!(view.ranges().count(), view.range_count);
        }
        if let Ok(ConsumeEvent::Deliveries(view)) = parse_consume_response(&bytes) {
            prop_assert!(view.count() <= bytes.len());
        }
        let _ = grpc::parse_get_request(&bytes);
        let _ = grpc::parse_settle_request(&bytes);
        let _ = grpc::parse_settle_response(&bytes);
        if let Ok(view) = grpc::parse_get_response(&bytes) {
            prop_assert!(view.deliveries.count() <= bytes.len());
        }
    }

    #[test]
    fn any_settlement_gives_an_answer(bytes in proptest::collection::vec(0..20u8, 0..60)) {
        let mut request = vec![0x12, bytes.len() as u8];
        request.extend_from_slice(&bytes);

        if let Ok(ConsumeFrame::Settlement(view)) = parse_consume_request(&request) {
            prop_assert_eq!(view.ranges().count(), view.range_count);
        }
    }
}

#[test]
fn a_backward_range_is_refused() {
    let mut bytes = Vec::new();
    grpc::encode_settlement(&mut bytes, 1, [(5, 4)]);

    assert!(matches!(parse_consume_request(&bytes), Err(WireError::OutOfRange { .. })));
}

#[test]
fn a_delivery_with_unreadable_properties_leaves_nothing_behind() {
    let mut bytes = Vec::new();
    let mut encoder = DeliveriesEncoder::begin(&mut bytes);
    let before = encoder.size();
    let corrupt = DeliveryRef {
        sequence: 1,
        body: b"x",
        exchange: b"",
        routing_key: b"",
        properties_amqp: &[0x80, 0, 200],
        redelivered: false,
        delivery_count: 0,
        stored_at_ms: 0,
        key: None,
    };

    assert!(encoder.push(&corrupt).is_err());

    assert_eq!((encoder.size(), encoder.delivery_count()), (before, 0));
}

fn settlement_of(count: usize, range: (u64, u64)) -> Vec<u8> {
    let mut bytes = Vec::new();
    grpc::encode_settlement(&mut bytes, 1, (0..count).map(|_| range));
    bytes
}

#[test]
fn a_settlement_has_a_bound_that_no_consumer_reaches() {
    for (count, is_read) in [(grpc::RANGES_MAX, true), (grpc::RANGES_MAX + 1, false), (1 << 20, false)] {
        let bytes = settlement_of(count, (1, 1));
        let found = parse_consume_request(&bytes);
        assert_eq!(matches!(found, Ok(ConsumeFrame::Settlement(_))), is_read, "{count}");
        let mut unary = Vec::new();
        grpc::encode_settle_request(&mut unary, "v", "q", 1, (0..count).map(|_| (1, 1)));
        assert_eq!(grpc::parse_settle_request(&unary).is_ok(), is_read, "{count}");
    }
}

#[test]
fn a_range_of_no_messages_is_refused() {
    let refused = parse_consume_request(&settlement_of(1, (0, 0))).map(|_| ()).unwrap_err();
    assert_eq!(refused.to_string(), "a range is out of range: sequences begin with 1");
}
