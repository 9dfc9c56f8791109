//! `PeekRequest`: which ready messages a client wants to see. The response is written as that of Get, with the place to go on
//! from in the second field.

use crate::protobuf::Reader;
use crate::{NAME_BYTES_MAX, WireError};

/// The longest value of a header that messages are compared with.
const VALUE_BYTES_MAX: usize = 4096;

/// An empty `vhost` means "/", a `count_max` of 0 means 1, a `position` of 0 the head; an empty `header` is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeekRequest<'a> {
    pub vhost: &'a str,
    pub queue: &'a str,
    pub count_max: u32,
    pub position: u64,
    pub routing_key: Option<&'a str>,
    pub header: &'a str,
    pub header_value: &'a str,
}

pub fn parse_peek_request(bytes: &[u8]) -> Result<PeekRequest<'_>, WireError> {
    let mut reader = Reader::new(bytes, "a peek request");
    let mut request = PeekRequest::default();
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => request.vhost = reader.text(field, wire_type, "the name of a vhost", NAME_BYTES_MAX)?,
            2 => request.queue = reader.text(field, wire_type, "the name of a queue", NAME_BYTES_MAX)?,
            3 => request.count_max = reader.uint(field, wire_type)? as u32,
            4 => request.position = reader.uint(field, wire_type)?,
            5 => request.routing_key = Some(reader.text(field, wire_type, "a routing key", NAME_BYTES_MAX)?),
            6 => request.header = reader.text(field, wire_type, "the name of a header", NAME_BYTES_MAX)?,
            7 => request.header_value = reader.text(field, wire_type, "the value of a header", VALUE_BYTES_MAX)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(request)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{PeekRequest, parse_peek_request};

    #[test]
    fn a_request_is_read() {
        let bytes = b"\x0a\x01v\x12\x01q\x18\x05\x20\x09\x2a\x00\x32\x01h\x3a\x01x";
        let (vhost, queue, header, header_value) = ("v", "q", "h", "x");
        let expected =
            PeekRequest { vhost, queue, count_max: 5, position: 9, routing_key: Some(""), header, header_value };

        assert_eq!(parse_peek_request(bytes).unwrap(), expected);
        assert_eq!(parse_peek_request(b"").unwrap(), PeekRequest::default());
        assert!(parse_peek_request(b"\x12\x05q").is_err());
    }
}
