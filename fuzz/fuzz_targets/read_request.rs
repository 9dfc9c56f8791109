//! Read requests and responses: no bytes panic, and what an open says reads the same when it is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_wire::grpc::{ReadEvent, ReadFrame, encode_read_open, parse_read_request, parse_read_response};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame @ ReadFrame::Open(open)) = parse_read_request(bytes) {
        let mut again = Vec::new();
        encode_read_open(&mut again, &open);
        assert_eq!(parse_read_request(&again), Ok(frame));
    }
    if let Ok(ReadEvent::Deliveries(view)) = parse_read_response(bytes) {
        assert!(view.count() <= bytes.len());
    }
});
