//! Contents of AMQP 0-9-1: the header frame with the size and the properties, and the body frames behind it.

use super::deaths::without_added;
use super::frame::{EMPTY_FRAME_BYTES, FrameKind, put_frame};
use super::properties::PERSISTENT_ONLY;

/// The class that contents belong to: all of them are messages.
pub const BASIC: u16 = 60;

/// Bytes before the properties in a header frame.
const HEADER_BYTES: usize = 12;

/// The payload of a header frame, in place. The properties are not checked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentHeader<'a> {
    pub class: u16,
    /// Zero in AMQP 0-9-1.
    pub weight: u16,
    pub body_bytes: u64,
    pub properties: &'a [u8],
}

impl<'a> ContentHeader<'a> {
    /// Reads the payload of a header frame; nothing when it is too short.
    #[inline]
    #[must_use]
    pub fn read(payload: &'a [u8]) -> Option<ContentHeader<'a>> {
        let (&[c1, c2, w1, w2, ref size @ ..], properties) = payload.split_first_chunk::<12>()?;
        Some(ContentHeader {
            class: u16::from_be_bytes([c1, c2]),
            weight: u16::from_be_bytes([w1, w2]),
            body_bytes: u64::from_be_bytes(*size),
            properties,
        })
    }
}

/// Appends the header frame and the body frames of a message, each at most `frame_bytes_max`. An empty block of properties is that
/// of a message without any.
///
/// The properties are in one frame, whatever their size: the protocol cannot divide them. Where the frame would be too large, the
/// headers go that the broker added; a message whose own properties are larger than the frames of its consumer has them in a larger
/// one, as in RabbitMQ.
#[inline]
pub fn put_content(channel: u16, properties: &[u8], body: &[u8], frame_bytes_max: u32, out: &mut Vec<u8>) {
    let payload_max = (frame_bytes_max as usize).saturating_sub(EMPTY_FRAME_BYTES).max(1);
    put_frame(out, FrameKind::Header, channel, |out| {
        out.extend_from_slice(&BASIC.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&(body.len() as u64).to_be_bytes());
        let properties = if properties.is_empty() { &PERSISTENT_ONLY[..] } else { properties };
        let space = payload_max.saturating_sub(HEADER_BYTES);
        if properties.len() <= space {
            out.extend_from_slice(properties);
        } else {
            out.extend_from_slice(&without_added(properties, space));
        }
    });
    for part in body.chunks(payload_max) {
        put_frame(out, FrameKind::Body, channel, |out| out.extend_from_slice(part));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests {
    use super::{ContentHeader, put_content};
    use crate::amqp::deaths::{Death, Reason, of_dead_letter, with_delivery_count};
    use crate::amqp::frame::{FrameKind, next_frame};
    use crate::amqp::properties::headers_of;
    use crate::amqp::table::entries;

    fn frames(mut bytes: &[u8]) -> Vec<(FrameKind, &[u8])> {
        let mut frames = Vec::new();
        while let Some((frame, length)) = next_frame(bytes, 4096).unwrap() {
            assert!(length <= 4096 && frame.channel == 3, "{length}");
            frames.push((frame.kind, frame.payload));
            bytes = bytes.get(length..).unwrap();
        }
        assert!(bytes.is_empty());
        frames
    }

    #[test]
    fn a_body_is_split_into_frames_of_the_negotiated_size() {
        for (size, body_frames) in [(0, 0), (1, 1), (4088, 1), (4089, 2), (8176, 2), (8177, 3)] {
            let (body, mut out) = (vec![b'x'; size], Vec::new());
            put_content(3, &[0x10, 0, 1], &body, 4096, &mut out);

            let frames = frames(&out);
            let header = ContentHeader::read(frames[0].1).unwrap();
            assert_eq!((header.class, header.weight, header.body_bytes), (60, 0, size as u64));
            assert_eq!(header.properties, [0x10, 0, 1]);
            assert_eq!(frames.len() - 1, body_frames, "{size}");
            let rest: Vec<u8> = frames[1..].iter().flat_map(|(_, payload)| payload.iter().copied()).collect();
            assert_eq!(rest, body);
        }
    }

    #[test]
    fn a_message_without_properties_is_persistent() {
        let mut out = Vec::new();
        put_content(3, &[], b"", 4096, &mut out);

        assert_eq!(ContentHeader::read(frames(&out)[0].1).unwrap().properties, [0x10, 0, 2]);
    }

    /// A content type and one header of the client, with a value of so many bytes.
    fn own(size: usize) -> Vec<u8> {
        let value = [&b"\x03ownS"[..], &(size as u32).to_be_bytes(), &vec![b'x'; size]].concat();
        [&[0xa0, 0, 1, b't'][..], &(value.len() as u32).to_be_bytes(), &value].concat()
    }

    fn sent(properties: &[u8], frame_bytes_max: u32) -> Vec<u8> {
        let mut out = Vec::new();
        put_content(3, properties, b"", frame_bytes_max, &mut out);
        let (frame, length) = next_frame(&out, 1 << 20).unwrap().unwrap();
        assert_eq!(length, out.len());
        ContentHeader::read(frame.payload).unwrap().properties.to_vec()
    }

    /// All properties of such a message were lost, also those of the client.
    #[test]
    fn headers_of_the_broker_that_a_frame_has_no_space_for_go_and_those_of_the_client_stay() {
        let death = Death {
            queue: b"q",
            reason: Reason::Rejected,
            exchange: b"",
            routing_key: b"q",
            at_ms: 0,
            has_new_key: false,
        };
        for size in (3000..4060).rev().step_by(7) {
            let own = own(size);
            let letter = of_dead_letter(&own, &death).unwrap();
            let counted = with_delivery_count(&letter, 5).unwrap();

            let found = sent(&counted, 4096);

            assert!(found.len() + 20 <= 4096, "{size}");
            let headers = headers_of(&found).unwrap().unwrap();
            let names: Vec<&[u8]> = entries(headers).map(|entry| entry.unwrap().0).collect();
            assert!(names.contains(&&b"own"[..]) && found.starts_with(&[0xa0, 0, 1, b't']), "{size}");
            let expected = [counted.len(), letter.len()].into_iter().filter(|length| length + 20 <= 4096).max();
            assert!(found.len() >= expected.unwrap_or(own.len()), "{size}: more is left out than has to be");
        }
    }

    #[test]
    fn properties_of_the_client_that_are_larger_than_a_frame_are_sent_nevertheless() {
        let properties = own(0x1200);

        assert_eq!(sent(&properties, 4096), properties);
    }

    #[test]
    fn a_header_that_is_too_short_is_none() {
        assert_eq!(ContentHeader::read(&[0; 11]), None);
    }
}
