//! A delivery as frames: `basic.deliver` and its content, written without a look at anything that was checked when it was stored.

use super::content::put_content;
use super::frame::{FrameKind, put_frame};

/// `basic.deliver`.
const DELIVER: [u8; 4] = [0, 60, 0, 60];

/// A message on its way to a consumer. Names have at most 255 bytes; stored ones need not be UTF-8.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryRef<'a> {
    pub consumer_tag: &'a [u8],
    pub delivery_tag: u64,
    pub redelivered: bool,
    pub exchange: &'a [u8],
    pub routing_key: &'a [u8],
    /// As stored: empty ones are those of a message without any.
    pub properties: &'a [u8],
    pub body: &'a [u8],
}

/// Appends a delivery, in frames of at most `frame_bytes_max`.
#[inline]
pub fn put_delivery(channel: u16, delivery: &DeliveryRef<'_>, frame_bytes_max: u32, out: &mut Vec<u8>) {
    put_frame(out, FrameKind::Method, channel, |out| {
        out.extend_from_slice(&DELIVER);
        put_name(out, delivery.consumer_tag);
        out.extend_from_slice(&delivery.delivery_tag.to_be_bytes());
        out.push(u8::from(delivery.redelivered));
        put_name(out, delivery.exchange);
        put_name(out, delivery.routing_key);
    });
    put_content(channel, delivery.properties, delivery.body, frame_bytes_max, out);
}

#[inline]
fn put_name(out: &mut Vec<u8>, name: &[u8]) {
    let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
    out.push(length);
    out.extend_from_slice(name.get(..usize::from(length)).unwrap_or_default());
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests {
    use super::{DeliveryRef, put_delivery};
    use crate::Name;
    use crate::amqp::content::put_content;
    use crate::amqp::method::Method;

    #[test]
    fn a_delivery_is_its_method_and_its_content() {
        for redelivered in [false, true] {
            let (consumer_tag, exchange, routing_key) = (&b"ctag"[..], &b"logs"[..], &b"a.b"[..]);
            let (properties, body) = (&[0x10, 0, 1][..], &b"hello"[..]);
            let delivery_tag = 7;
            let delivery =
                DeliveryRef { consumer_tag, delivery_tag, redelivered, exchange, routing_key, properties, body };
            let mut out = Vec::new();
            put_delivery(3, &delivery, 4096, &mut out);

            let (consumer_tag, exchange, routing_key) = (Name::cut("ctag"), Name::cut("logs"), Name::cut("a.b"));
            let method = Method::BasicDeliver { consumer_tag, delivery_tag, redelivered, exchange, routing_key };
            let mut expected = Vec::new();
            method.put(3, &mut expected);
            put_content(3, properties, body, 4096, &mut expected);
            assert_eq!(out, expected);
        }
    }
}
