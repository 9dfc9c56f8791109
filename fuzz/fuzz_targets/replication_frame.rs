//! Frames between brokers: no bytes panic, and a frame that is read has exactly the bytes that it is written with.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_replication::CopyMessage;
use penstock_replication::wire::{Frame, decode, encode_copy, encode_host, encode_message, frame_length};

fuzz_target!(|bytes: &[u8]| {
    let length = frame_length(bytes);
    let Ok(frame) = decode(bytes) else { return };
    assert_eq!(length, Ok(Some(bytes.len())));
    let again = match &frame {
        Frame::Message { log_id, message, records } => {
            [&encode_message(log_id, message, records.len()), *records].concat()
        }
        Frame::Copy { log_id, message } => {
            let bytes: &[u8] = if let CopyMessage::Part { bytes, .. } = message { bytes } else { &[] };
            [&encode_copy(log_id, message), bytes].concat()
        }
        Frame::Host { log_id, content } => encode_host(log_id, content),
    };
    assert_eq!(again, bytes);
});
