//! Frames of AMQP 0-9-1, and the header that a client begins with.
//!
//! A frame has type, channel, size, payload and an end octet, all big-endian. The size is checked as soon as it is there, so a
//! client never makes the broker wait for more than a frame of the negotiated size. It knows no content of payloads.

/// The header of a client that speaks AMQP 0-9-1, and the answer to clients that begin with anything else.
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\0\0\x09\x01";
/// The header of AMQP 0-9, which RabbitMQ serves as though it were 0-9-1.
const PROTOCOL_HEADER_0_9: [u8; 8] = *b"AMQP\x01\x01\0\x09";

/// A frame without a payload has so many bytes.
pub const EMPTY_FRAME_BYTES: usize = HEAD_BYTES + 1;
/// Peers may not negotiate frames smaller than this.
pub const FRAME_BYTES_MIN: u32 = 4096;

const HEAD_BYTES: usize = 7;
const FRAME_END: u8 = 0xce;
/// So many octets of a payload are shown in an error.
const SNIPPET_BYTES: usize = 16;

/// Return whether a client that begins like this is served, as soon as that is certain.
#[must_use]
pub fn is_served(received: &[u8]) -> Option<bool> {
    let beginning = received.get(..PROTOCOL_HEADER.len()).unwrap_or(received);
    if !PROTOCOL_HEADER.starts_with(beginning) && !PROTOCOL_HEADER_0_9.starts_with(beginning) {
        return Some(false);
    }
    (beginning.len() == PROTOCOL_HEADER.len()).then_some(true)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    Method = 1,
    Header = 2,
    Body = 3,
    Heartbeat = 8,
}

/// A frame in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: FrameKind,
    pub channel: u16,
    pub payload: &'a [u8],
}

/// Why bytes are no frame. Nothing can be read behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("type {kind}: unknown frame type")]
    UnknownKind { kind: u8 },
    #[error("type {kind}, {size} octets: the payload is larger than the negotiated {max}")]
    TooLarge { kind: u8, size: u32, max: u32 },
    #[error("type {kind}, {shown} octets = {snippet:02x?}: invalid frame end marker {end}")]
    End { kind: u8, shown: Shown, snippet: Snippet, end: u8 },
}

/// How much of a payload is shown in an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    All,
    First16,
}

impl std::fmt::Display for Shown {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Shown::All => "all",
            Shown::First16 => "first 16",
        })
    }
}

/// The first octets of a payload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Snippet {
    octets: [u8; SNIPPET_BYTES],
    length: usize,
}

impl std::fmt::Debug for Snippet {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.octets.get(..self.length).unwrap_or_default(), to)
    }
}

/// Return the frame that the bytes begin with, and how many bytes it has; nothing while it is not complete.
///
/// As RabbitMQ does, it lets payloads exceed the negotiated size by the eight bytes around them: several clients count wrong.
///
/// # Errors
/// When no frame can begin like this.
#[inline]
pub fn next_frame(bytes: &[u8], frame_bytes_max: u32) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some(&[type_octet, channel_high, channel_low, ref size @ ..]) = bytes.first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let size = u32::from_be_bytes(*size);
    let kind = match type_octet {
        1 => FrameKind::Method,
        2 => FrameKind::Header,
        3 => FrameKind::Body,
        8 => FrameKind::Heartbeat,
        kind => return Err(FrameError::UnknownKind { kind }),
    };
    if size > frame_bytes_max {
        let max = frame_bytes_max.saturating_sub(EMPTY_FRAME_BYTES as u32);
        return Err(FrameError::TooLarge { kind: type_octet, size, max });
    }
    let end = HEAD_BYTES + size as usize;
    let (Some(payload), Some(&end_octet)) = (bytes.get(HEAD_BYTES..end), bytes.get(end)) else { return Ok(None) };
    if end_octet != FRAME_END {
        return Err(bad_end(type_octet, payload, end_octet));
    }
    let channel = u16::from_be_bytes([channel_high, channel_low]);
    Ok(Some((Frame { kind, channel, payload }, end + 1)))
}

#[cold]
fn bad_end(kind: u8, payload: &[u8], end: u8) -> FrameError {
    let mut snippet = Snippet { octets: [0; SNIPPET_BYTES], length: payload.len().min(SNIPPET_BYTES) };
    snippet.octets.iter_mut().zip(payload).for_each(|(to, from)| *to = *from);
    let shown = if payload.len() <= SNIPPET_BYTES { Shown::All } else { Shown::First16 };
    FrameError::End { kind, shown, snippet, end }
}

/// Appends a frame whose payload `write` appends. Its caller bounds the payload by the negotiated size.
#[inline]
pub fn put_frame(out: &mut Vec<u8>, kind: FrameKind, channel: u16, write: impl FnOnce(&mut Vec<u8>)) {
    let [high, low] = channel.to_be_bytes();
    out.extend_from_slice(&[kind as u8, high, low, 0, 0, 0, 0]);
    let start = out.len();
    write(out);
    let size = (out.len() - start) as u32;
    if let Some(slot) = out.get_mut(start - 4..start) {
        slot.copy_from_slice(&size.to_be_bytes());
    }
    out.push(FRAME_END);
}

/// Appends a heartbeat.
pub fn put_heartbeat(out: &mut Vec<u8>) {
    put_frame(out, FrameKind::Heartbeat, 0, |_| {});
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests {
    use proptest::prelude::*;

    use super::{Frame, FrameError, FrameKind, PROTOCOL_HEADER, is_served, next_frame, put_frame, put_heartbeat};

    const MAX: u32 = 4096;

    /// A frame that is not in place: kind, channel, payload.
    type Apart = (FrameKind, u16, Vec<u8>);

    fn kinds() -> impl Strategy<Value = FrameKind> {
        prop_oneof![Just(FrameKind::Method), Just(FrameKind::Header), Just(FrameKind::Body), Just(FrameKind::Heartbeat)]
    }

    fn frames() -> impl Strategy<Value = Vec<Apart>> {
        prop::collection::vec((kinds(), any::<u16>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6)
    }

    fn written(frames: &[Apart]) -> Vec<u8> {
        frames.iter().fold(Vec::new(), |mut out, (kind, channel, payload)| {
            put_frame(&mut out, *kind, *channel, |out| out.extend_from_slice(payload));
            out
        })
    }

    /// Reads what comes in parts, as a connection does: frames, and at most one error at the end.
    fn read(parts: &[&[u8]]) -> (Vec<Apart>, Option<FrameError>) {
        let (mut buffer, mut frames) = (Vec::new(), Vec::new());
        for part in parts {
            buffer.extend_from_slice(part);
            loop {
                match next_frame(&buffer, MAX) {
                    Ok(Some((Frame { kind, channel, payload }, length))) => {
                        frames.push((kind, channel, payload.to_vec()));
                        buffer.drain(..length);
                    }
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
        (frames, None)
    }

    #[test]
    fn a_client_is_known_by_its_first_bytes() {
        assert_eq!(is_served(&PROTOCOL_HEADER), Some(true));
        assert_eq!(is_served(b"AMQP\x01\x01\0\x09more"), Some(true));
        assert_eq!(is_served(b"AMQP\0\x01\0\0"), Some(false));
        assert_eq!(is_served(b"GET / HTTP/1.1"), Some(false));
        assert_eq!(is_served(b"G"), Some(false));
        assert_eq!(is_served(b"AMQP\0\0\x09"), None);
        assert_eq!(is_served(b""), None);
    }

    #[test]
    fn a_heartbeat_is_an_empty_frame() {
        let mut out = Vec::new();
        put_heartbeat(&mut out);

        assert_eq!(out, [8, 0, 0, 0, 0, 0, 0, 0xce]);
    }

    #[test]
    fn a_frame_that_cannot_become_one_is_refused_by_its_head() {
        assert_eq!(next_frame(b"\x04\0\0\0\0\0\0", MAX), Err(FrameError::UnknownKind { kind: 4 }));
        let large = FrameError::TooLarge { kind: 3, size: MAX + 1, max: MAX - 8 };
        assert_eq!(next_frame(b"\x03\0\x01\0\0\x10\x01", MAX), Err(large));
        assert_eq!(next_frame(b"\x03\0\x01\0\0\x10\0", MAX), Ok(None), "eight more than negotiated are allowed");
    }

    #[test]
    fn a_wrong_end_shows_the_first_octets() {
        let short = next_frame(b"\x01\0\0\0\0\0\x02ab\xcd", MAX).unwrap_err();
        assert_eq!(short.to_string(), "type 1, all octets = [61, 62]: invalid frame end marker 205");
        let long = [&[3, 0, 1, 0, 0, 0, 20][..], &[7; 20], &[0]].concat();
        let long = next_frame(&long, MAX).unwrap_err().to_string();
        assert!(long.starts_with("type 3, first 16 octets = [07, "), "{long}");
    }

    proptest! {
        #[test]
        fn frames_are_read_as_they_were_written(frames in frames()) {
            let bytes = written(&frames);
            prop_assert_eq!(read(&[&bytes]), (frames, None));
        }

        #[test]
        fn bytes_that_come_one_by_one_are_read_like_all_together(
            frames in frames(), noise in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let bytes = [written(&frames), noise].concat();
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(read(&single), read(&[&bytes]));
        }
    }
}
