//! The frames of a message for one queue, made once: each message is a copy of them with a time in its body.

use penstock_wire::Name;
use penstock_wire::amqp::content::put_content;
use penstock_wire::amqp::frame::{FrameKind, next_frame};
use penstock_wire::amqp::method::Method;

use super::login::CHANNEL;

/// Bytes at the start of a body for the time; shorter bodies have none.
pub(super) const STAMP_BYTES: usize = 8;

/// The properties of transient and of persistent messages: nothing but the delivery mode.
const TRANSIENT: [u8; 3] = [0x10, 0, 1];
const PERSISTENT: [u8; 3] = [0x10, 0, 2];

/// See the module.
pub(super) struct Template {
    frames: Vec<u8>,
    /// Where the body begins, if it is long enough for a time.
    body: Option<usize>,
}

impl Template {
    pub fn new(queue: &str, size: usize, persistent: bool, frame_bytes_max: u32) -> Template {
        let mut frames = Vec::new();
        let (exchange, routing_key, mandatory, immediate) = (Name::EMPTY, Name::cut(queue), false, false);
        Method::BasicPublish { exchange, routing_key, mandatory, immediate }.put(CHANNEL, &mut frames);
        let properties = if persistent { &PERSISTENT } else { &TRANSIENT };
        put_content(CHANNEL, properties, &vec![b'x'; size], frame_bytes_max, &mut frames);
        let body = (size >= STAMP_BYTES).then(|| first_body(&frames, frame_bytes_max)).flatten();
        Template { frames, body }
    }

    pub fn put(&self, stamp: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.frames);
        if let Some(body) = self.body
            && let Some(slot) = out.get_mut(start + body..start + body + STAMP_BYTES)
        {
            slot.copy_from_slice(&stamp.to_le_bytes());
        }
    }
}

fn first_body(frames: &[u8], frame_bytes_max: u32) -> Option<usize> {
    let mut at = 0;
    while let Ok(Some((frame, length))) = next_frame(frames.get(at..)?, frame_bytes_max) {
        if frame.kind == FrameKind::Body {
            // The payload is all of a frame but its head and its end octet.
            return Some(at + length - 1 - frame.payload.len());
        }
        at += length;
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use penstock_wire::amqp::frame::{Frame, FrameKind, next_frame};

    use super::Template;

    fn frames(mut bytes: &[u8]) -> Vec<Frame<'_>> {
        let mut frames = Vec::new();
        while let Some((frame, length)) = next_frame(bytes, 4096).unwrap() {
            frames.push(frame);
            bytes = &bytes[length..];
        }
        assert!(bytes.is_empty());
        frames
    }

    #[test]
    fn the_time_is_at_the_start_of_the_body() {
        for size in [8, 16, 5_000] {
            let mut out = vec![b'-'];
            Template::new("q", size, true, 4096).put(0x0102_0304_0506_0708, &mut out);

            let frames = frames(&out[1..]);
            let bodies: Vec<_> = frames.iter().filter(|frame| frame.kind == FrameKind::Body).collect();
            assert_eq!(bodies[0].payload[..8], [8, 7, 6, 5, 4, 3, 2, 1], "{size}");
            assert_eq!(bodies.iter().map(|frame| frame.payload.len()).sum::<usize>(), size);
            assert!(bodies.iter().flat_map(|frame| frame.payload).skip(8).all(|octet| *octet == b'x'));
        }
    }

    #[test]
    fn a_short_body_has_no_time() {
        let mut out = Vec::new();
        Template::new("q", 3, false, 4096).put(u64::MAX, &mut out);

        assert_eq!(frames(&out)[2].payload, b"xxx");
    }
}
