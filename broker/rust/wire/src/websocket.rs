//! Frames of WebSocket (RFC 6455) as a server reads and writes them, for a protocol that is a stream of bytes: where messages begin and
//! end does not matter.
//!
//! Payloads are taken as they come, so nothing is held for a frame but its head and the payload of a control frame, which has 125
//! bytes at most. Bytes are refused that the RFC forbids a client: frames without a mask, reserved bits, text. It knows no
//! extensions and no HTTP.

/// A data frame may have so many bytes. Messages may have any number of frames.
pub const FRAME_BYTES_MAX: u64 = 16 << 20;

/// The longest head of a frame that a server writes.
pub const HEAD_BYTES_MAX: usize = 10;

const CONTROL_BYTES_MAX: usize = 125;
const MASK_BYTES: usize = 4;
const FINAL: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
const CONTROL: u8 = 0x8;

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// Why a client's frames cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebSocketError {
    #[error("a frame has reserved bits")]
    Reserved,
    #[error("a frame has no mask")]
    Unmasked,
    #[error("a frame is text; send binary ones")]
    Text,
    #[error("a frame has the unknown opcode {0}")]
    Opcode(u8),
    #[error("a control frame is in parts, or has more than 125 bytes")]
    Control,
    #[error("a frame begins a message inside another one, or goes on with none")]
    Order,
    #[error("a frame of {0} bytes is larger than {FRAME_BYTES_MAX}")]
    TooLarge(u64),
}

impl WebSocketError {
    /// The code of the close frame that says so.
    #[must_use]
    pub fn close_code(self) -> u16 {
        match self {
            WebSocketError::Text => 1003,
            WebSocketError::TooLarge(_) => 1009,
            _ => 1002,
        }
    }
}

/// What some bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// More have to come.
    Nothing,
    /// So many bytes of data, which end those that were taken.
    Data(usize),
    /// An answer is due: see [`Decoder::put_pong`].
    Ping,
    /// The client ends it: nothing it sends after this is read.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Payload {
    opcode: u8,
    mask: [u8; MASK_BYTES],
    left: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    payload: Option<Payload>,
    /// What came of a control frame's payload.
    control: Vec<u8>,
    /// Whether a message has begun that goes on in other frames.
    is_in_message: bool,
}

impl Decoder {
    /// Takes bytes from the beginning, and returns how many; those of data are unmasked where they are.
    ///
    /// # Errors
    /// When they are no frames of a client.
    pub fn take(&mut self, input: &mut [u8]) -> Result<(Decoded, usize), WebSocketError> {
        match self.payload {
            _ if input.is_empty() => Ok((Decoded::Nothing, 0)),
            Some(payload) if payload.left > 0 => Ok(self.take_payload(payload, input)),
            _ => self.take_head(input),
        }
    }

    /// Whether the next bytes are a payload, so that any number of them is taken.
    #[must_use]
    pub fn is_in_payload(&self) -> bool {
        self.payload.is_some_and(|payload| payload.left > 0)
    }

    fn take_head(&mut self, input: &[u8]) -> Result<(Decoded, usize), WebSocketError> {
        let [first, second, rest @ ..] = input else { return Ok((Decoded::Nothing, 0)) };
        let (opcode, is_final) = (first & 0x0f, first & FINAL != 0);
        self.check_head(*first, *second)?;
        let (extended, left) = match second & !MASKED {
            126 => (2, rest.first_chunk().map(|bytes| u64::from(u16::from_be_bytes(*bytes)))),
            127 => (8, rest.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))),
            short => (0, Some(u64::from(short))),
        };
        let Some(left) = left else { return Ok((Decoded::Nothing, 0)) };
        if left > FRAME_BYTES_MAX {
            return Err(WebSocketError::TooLarge(left));
        }
        let Some(mask) = rest.get(extended..).and_then(<[u8]>::first_chunk) else { return Ok((Decoded::Nothing, 0)) };
        if opcode < CONTROL {
            self.is_in_message = !is_final;
        }
        self.payload = Some(Payload { opcode, mask: *mask, left });
        self.control.clear();
        let taken = 2 + extended + MASK_BYTES;
        Ok((if left == 0 { self.end_of(opcode) } else { Decoded::Data(0) }, taken))
    }

    fn check_head(&self, first: u8, second: u8) -> Result<(), WebSocketError> {
        let opcode = first & 0x0f;
        if first & RESERVED != 0 {
            return Err(WebSocketError::Reserved);
        }
        if second & MASKED == 0 {
            return Err(WebSocketError::Unmasked);
        }
        match opcode {
            TEXT => Err(WebSocketError::Text),
            BINARY | CONTINUATION if (opcode == CONTINUATION) != self.is_in_message => Err(WebSocketError::Order),
            BINARY | CONTINUATION => Ok(()),
            CLOSE | PING | PONG if first & FINAL == 0 || usize::from(second & !MASKED) > CONTROL_BYTES_MAX => {
                Err(WebSocketError::Control)
            }
            CLOSE | PING | PONG => Ok(()),
            unknown => Err(WebSocketError::Opcode(unknown)),
        }
    }

    fn take_payload(&mut self, payload: Payload, input: &mut [u8]) -> (Decoded, usize) {
        let count = usize::try_from(payload.left).unwrap_or(usize::MAX).min(input.len());
        let Payload { opcode, mut mask, left } = payload;
        for (byte, key) in input.iter_mut().take(count).zip(mask.iter().cycle()) {
            *byte ^= key;
        }
        mask.rotate_left(count % MASK_BYTES);
        let left = left - count as u64;
        self.payload = Some(Payload { opcode, mask, left });
        if opcode < CONTROL {
            return (Decoded::Data(count), count);
        }
        self.control.extend_from_slice(input.get(..count).unwrap_or_default());
        (if left == 0 { self.end_of(opcode) } else { Decoded::Nothing }, count)
    }

    /// What a frame is that has come whole.
    fn end_of(&self, opcode: u8) -> Decoded {
        match opcode {
            PING => Decoded::Ping,
            CLOSE => Decoded::Close,
            _ => Decoded::Data(0),
        }
    }

    /// Appends the answer to the ping that was taken last.
    pub fn put_pong(&self, out: &mut Vec<u8>) {
        put_head(PONG, self.control.len(), out);
        out.extend_from_slice(&self.control);
    }
}

/// Appends the head of a binary message of so many bytes, which have to follow.
pub fn put_binary_head(length: usize, out: &mut Vec<u8>) {
    put_head(BINARY, length, out);
}

/// Appends a close with a code.
pub fn put_close(code: u16, out: &mut Vec<u8>) {
    put_head(CLOSE, 2, out);
    out.extend_from_slice(&code.to_be_bytes());
}

fn put_head(opcode: u8, length: usize, out: &mut Vec<u8>) {
    out.push(FINAL | opcode);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length @ ..=125), _) => out.push(length),
        (_, Ok(length)) => {
            out.push(126);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MASK: [u8; 4] = [1, 2, 3, 0xf0];

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_head(0, payload.len(), &mut out);
        out[0] = first;
        out[1] |= MASKED;
        out.extend(MASK);
        out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, key)| byte ^ key));
        out
    }

    /// The data, pongs and the end of some bytes that come in pieces.
    fn read(bytes: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<u8>, bool), WebSocketError> {
        let (mut decoder, mut input) = (Decoder::default(), Vec::new());
        let (mut data, mut said) = (Vec::new(), Vec::new());
        for came in bytes.chunks(piece) {
            input.extend_from_slice(came);
            loop {
                let (decoded, taken) = decoder.take(&mut input)?;
                match decoded {
                    Decoded::Nothing if taken == 0 => break,
                    Decoded::Nothing => {}
                    Decoded::Data(count) => data.extend_from_slice(&input[taken - count..taken]),
                    Decoded::Ping => decoder.put_pong(&mut said),
                    Decoded::Close => return Ok((data, said, true)),
                }
                input.drain(..taken);
            }
            assert!(decoder.control.len() <= CONTROL_BYTES_MAX);
        }
        Ok((data, said, false))
    }

    #[test]
    fn data_is_a_stream_whatever_messages_and_frames_it_is_in() {
        let long = vec![7; 70_000];
        let sent = [
            frame(FINAL | BINARY, b"one"),
            frame(BINARY, b"two"),
            frame(FINAL | PING, b"still there?"),
            frame(CONTINUATION, b""),
            frame(FINAL | CONTINUATION, &long),
            frame(FINAL | PONG, b"unasked"),
            frame(FINAL | CLOSE, &1000_u16.to_be_bytes()),
            b"not read".to_vec(),
        ]
        .concat();
        let mut pong = Vec::new();
        put_head(PONG, 12, &mut pong);
        pong.extend(b"still there?");

        for piece in [1, 3, 1000, sent.len()] {
            let expected = ([b"onetwo".as_slice(), &long].concat(), pong.clone(), true);
            assert_eq!(read(&sent, piece), Ok(expected), "{piece} bytes at a time");
        }
    }

    #[test]
    fn what_a_client_may_not_send_is_refused() {
        let unmasked = [FINAL | BINARY, 1, 0];
        let large = [[FINAL | BINARY, MASKED | 127].as_slice(), &(FRAME_BYTES_MAX + 1).to_be_bytes()].concat();
        let refused = [
            (unmasked.to_vec(), WebSocketError::Unmasked),
            (frame(FINAL | 0x40 | BINARY, b"x"), WebSocketError::Reserved),
            (frame(FINAL | TEXT, b"x"), WebSocketError::Text),
            (frame(FINAL | 0x3, b"x"), WebSocketError::Opcode(3)),
            (frame(FINAL | 0xb, b"x"), WebSocketError::Opcode(11)),
            (frame(PING, b"x"), WebSocketError::Control),
            (frame(FINAL | PING, &[0; 126]), WebSocketError::Control),
            (frame(FINAL | CONTINUATION, b"x"), WebSocketError::Order),
            ([frame(BINARY, b"x"), frame(FINAL | BINARY, b"x")].concat(), WebSocketError::Order),
            (large, WebSocketError::TooLarge(FRAME_BYTES_MAX + 1)),
        ];
        for (bytes, error) in refused {
            assert_eq!(read(&bytes, bytes.len()), Err(error));
        }
        assert_eq!(WebSocketError::Text.close_code(), 1003);
        assert_eq!(WebSocketError::TooLarge(9).close_code(), 1009);
        assert_eq!(WebSocketError::Unmasked.close_code(), 1002);
    }

    #[test]
    fn heads_have_the_shortest_length() {
        let head = |length| {
            let mut out = Vec::new();
            put_binary_head(length, &mut out);
            out
        };
        assert_eq!(head(125), [0x82, 125]);
        assert_eq!(head(126), [0x82, 126, 0, 126]);
        assert_eq!(head(65_535), [0x82, 126, 0xff, 0xff]);
        assert_eq!(head(65_536), [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(head(65_536).len(), HEAD_BYTES_MAX);
        let mut close = Vec::new();
        put_close(1002, &mut close);
        assert_eq!(close, [0x88, 2, 0x03, 0xea]);
    }

    proptest! {
        #[test]
        fn bytes_in_pieces_are_read_like_all_together(
            bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1_usize..20,
        ) {
            prop_assert_eq!(read(&bytes, piece).is_err(), read(&bytes, 200).is_err());
        }
    }
}
