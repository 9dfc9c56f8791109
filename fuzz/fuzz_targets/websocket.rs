//! Frames of WebSocket: no bytes panic, those that come one by one are read like all together, and no more is held than a control
//! frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_wire::websocket::{Decoded, Decoder, WebSocketError};

#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    data: Vec<u8>,
    said: Vec<u8>,
    has_ended: bool,
    error: Option<WebSocketError>,
}

fn read(bytes: &[u8], piece: usize) -> Read {
    let (mut decoder, mut input, mut read) = (Decoder::default(), Vec::new(), Read::default());
    for came in bytes.chunks(piece) {
        input.extend_from_slice(came);
        loop {
            let (decoded, taken) = match decoder.take(&mut input) {
                Ok(taken) => taken,
                Err(error) => {
                    read.error = Some(error);
                    return read;
                }
            };
            match decoded {
                Decoded::Nothing if taken == 0 => break,
                Decoded::Nothing => {}
                Decoded::Data(count) => read.data.extend_from_slice(&input[taken - count..taken]),
                Decoded::Ping => decoder.put_pong(&mut read.said),
                Decoded::Close => {
                    read.has_ended = true;
                    return read;
                }
            }
            input.drain(..taken);
        }
    }
    read
}

fuzz_target!(|bytes: &[u8]| {
    let all = read(bytes, bytes.len().max(1));
    assert!(all.data.len() <= bytes.len() && all.said.len() <= 2 * bytes.len());
    assert_eq!(read(bytes, 1), all);
    assert_eq!(read(bytes, 5), all);
});
