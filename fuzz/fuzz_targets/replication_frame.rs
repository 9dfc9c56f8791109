//! Frames between brokers: no bytes panic, and a frame that is read has exactly the bytes that it is written with.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_replication::CopyMessage;
use penstock_replication::wire::{Frame, decode, encode_copy, encode_greeting, encode_message, frame_length};

fuzz_target!(|bytes: &[u8]| {
    let length = frame_length(bytes);
    let Ok(frame) = decode(bytes) else { return };
    assert_eq!(length, Ok(Some(bytes.len())));
    let again = match &frame {
        // A greeting of a newer version says so in its header.
        Frame::Greeting(greeting) => {
            assert_eq!(encode_greeting(greeting).len(), bytes.len());
            return;
        }
        Frame::Message { log_id, message, records } => {
            [&encode_message(log_id, message, records.len()), *records].concat()
        }
        Frame::Copy { log_id, message } => {
            let bytes: &[u8] = if let CopyMessage::Part { bytes, .. } = message { bytes } else { &[] };
            [&encode_copy(log_id, message), bytes].concat()
        }
    };
    assert_eq!(again, bytes);
});
