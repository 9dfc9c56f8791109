//! Frames of AMQP 0-9-1 on one channel: no bytes panic, those that come one by one are read like all together, and no channel
//! holds more than it was sent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_wire::amqp::channel::{Channel, ChannelState, Received};
use penstock_wire::amqp::frame::{Frame, FrameError, FrameKind, next_frame};

const MAX: u32 = 4096;

type Read = (Vec<(FrameKind, u16, Vec<u8>)>, Option<FrameError>);

fn read(mut bytes: &[u8]) -> Read {
    let mut frames = Vec::new();
    loop {
        match next_frame(bytes, MAX) {
            Ok(Some((Frame { kind, channel, payload }, length))) => {
                frames.push((kind, channel, payload.to_vec()));
                bytes = &bytes[length..];
            }
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        }
    }
}

fn read_one_by_one(bytes: &[u8]) -> Read {
    let (mut frames, mut start) = (Vec::new(), 0);
    for end in 0..=bytes.len() {
        match next_frame(&bytes[start..end], MAX) {
            Ok(Some((Frame { kind, channel, payload }, length))) => {
                frames.push((kind, channel, payload.to_vec()));
                start += length;
            }
            Ok(None) => {}
            Err(error) => return (frames, Some(error)),
        }
    }
    (frames, None)
}

fuzz_target!(|bytes: &[u8]| {
    let (frames, error) = read(bytes);
    assert_eq!(read_one_by_one(bytes), (frames.clone(), error));

    let (mut channel, mut out) = (Channel::new(1, 1000), Vec::new());
    for (kind, number, payload) in &frames {
        match channel.take(Frame { kind: *kind, channel: *number, payload }, &mut out) {
            Ok(Received::Ends) => channel.ended(&mut out),
            Ok(_) => {}
            Err(exception) if exception.ends_connection() => return,
            Err(exception) => channel.fail(&exception, &mut out),
        }
        assert!(channel.assembly().held_bytes() <= bytes.len());
        if channel.state() == ChannelState::Over {
            return;
        }
    }
});
