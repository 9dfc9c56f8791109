//! Methods of AMQP 0-9-1: no bytes panic, and a method that was read is written as one that reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_wire::amqp::frame::next_frame;
use penstock_wire::amqp::method::Method;

fuzz_target!(|bytes: &[u8]| {
    let Ok(method) = Method::read(bytes) else { return };
    let mut out = Vec::new();
    method.put(1, &mut out);
    let (frame, length) = next_frame(&out, u32::MAX).expect("a written frame is one").expect("it is whole");
    assert_eq!(length, out.len());
    assert_eq!(Method::read(frame.payload), Ok(method));
    assert!(frame.payload.len() <= bytes.len() + 16);
});
