//! Consume requests and responses, get and settle: no bytes panic, and a settlement's ranges are as many as it says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_wire::grpc::{
    ConsumeEvent, ConsumeFrame, parse_consume_request, parse_consume_response, parse_get_request, parse_get_response,
    parse_settle_request, parse_settle_response,
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(ConsumeFrame::Settlement(view)) = parse_consume_request(bytes) {
        assert_eq!(view.ranges().filter(|(first, last)| first <= last).count(), view.range_count);
    }
    if let Ok(ConsumeEvent::Deliveries(view)) = parse_consume_response(bytes) {
        assert!(view.count() <= bytes.len());
    }
    if let Ok(request) = parse_settle_request(bytes) {
        assert_eq!(request.settlement.ranges().count(), request.settlement.range_count);
    }
    if let Ok(view) = parse_get_response(bytes) {
        assert!(view.deliveries.count() <= bytes.len());
    }
    let _ = parse_get_request(bytes);
    let _ = parse_settle_response(bytes);
});
