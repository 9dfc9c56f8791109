//! Publish requests and responses: no bytes panic, every message lies in its request, and encoding what was read reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_wire::grpc::{BatchEncoder, MessageNames, MessageRef, PublishFrame, parse_publish, parse_publish_response};

fuzz_target!(|bytes: &[u8]| {
    let _ = parse_publish_response(bytes).count();
    let Ok(PublishFrame::Batch(batch)) = parse_publish(bytes) else { return };
    let messages: Vec<MessageRef<'_>> = batch.messages().map_while(Result::ok).collect();
    assert!(messages.len() <= batch.message_count);
    assert!(messages.iter().map(|message| message.body.len()).sum::<usize>() <= bytes.len());

    let text = |bytes| std::str::from_utf8(bytes).expect("names are UTF-8");
    let mut encoder = BatchEncoder::begin(Vec::new(), text(batch.exchange.as_bytes()), text(batch.routing_key.as_bytes()), batch.mandatory);
    for message in &messages {
        let names = MessageNames {
            exchange: Some(text(message.exchange.as_bytes())),
            routing_key: Some(text(message.routing_key.as_bytes())),
            properties: message.properties,
            key: message.key,
        };
        encoder.push_message(message.body, &names);
    }
    let again = encoder.finish();
    let Ok(PublishFrame::Batch(batch)) = parse_publish(&again) else { panic!("an encoded batch does not read") };
    assert!(batch.messages().map(Result::unwrap).eq(messages));
});
