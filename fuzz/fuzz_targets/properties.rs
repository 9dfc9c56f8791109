//! Properties both ways: no bytes panic, what is accepted for storing can be delivered, and delivering it again stores the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_wire::amqp::properties::{
    PROPERTIES_BYTES_MAX, amqp_to_properties, delivery_mode_of, headers_of, properties_to_amqp,
};

fuzz_target!(|bytes: &[u8]| {
    let (mut block, mut protobuf, mut again) = (Vec::new(), Vec::new(), Vec::new());
    if properties_to_amqp(Some(bytes), &mut block).is_ok() {
        headers_of(&block).expect("stored headers are found");
        delivery_mode_of(&block).expect("a stored mode is found");
        amqp_to_properties(&block, &mut protobuf).expect("stored properties are delivered");
        if protobuf.len() <= PROPERTIES_BYTES_MAX {
            properties_to_amqp(Some(&protobuf), &mut again).expect("delivered properties are stored");
            assert_eq!(again, block);
        }
    }
    protobuf.clear();
    let _ = amqp_to_properties(bytes, &mut protobuf);
    let _ = headers_of(bytes);
    let _ = delivery_mode_of(bytes);
});
