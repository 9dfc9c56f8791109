//! The headers by which a publisher says where its message goes, and when: `CC` and `BCC` name further routing keys, and
//! `x-delay` says for how long a delayed exchange keeps it back.
//!
//! A message without them costs one comparison: whether it has any is known since its properties were checked. The number
//! of further keys is bounded by [`KEYS_MAX`], since each is routed. A message is delivered without `BCC`.

use super::block::{self, Field};
use super::properties::headers_of;
use super::table::{self, ValueRef};
use super::table_writer::{begin_long, end_long, put_tagged};
use crate::WireError;

/// The most routing keys that one message may name in `CC` and `BCC` together.
pub const KEYS_MAX: usize = 256;

pub(super) const CC: &[u8] = b"CC";
pub(super) const BCC: &[u8] = b"BCC";
const DELAY: &[u8] = b"x-delay";

/// The most bytes of a routing key.
pub(super) const KEY_BYTES_MAX: usize = 255;

/// Why a message with such headers is refused, in RabbitMQ's words where it refuses it, too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoutingHeadersError {
    #[error(
        "invalid message: {{unacceptable_type_in_header,\"{name}\",{found}}}; send the header as an array of routing keys"
    )]
    NotAnArray { name: &'static str, found: &'static str },
    #[error(
        "invalid message: the headers CC and BCC name {0} routing keys, more than {KEYS_MAX}; send several messages"
    )]
    TooMany(usize),
    #[error("invalid message: a routing key in CC or BCC has {0} bytes, more than {KEY_BYTES_MAX}; shorten it")]
    TooLong(usize),
}

/// Whether a header of this name is one of them.
#[inline]
pub(super) fn is_of_routing(name: &[u8]) -> bool {
    matches!(name, CC | BCC | DELAY)
}

/// These headers of one message. Of headers with one name the last counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoutingHeaders<'a> {
    cc: Option<ValueRef<'a>>,
    bcc: Option<ValueRef<'a>>,
    delay: Option<ValueRef<'a>>,
}

impl<'a> RoutingHeaders<'a> {
    /// Finds them in a header table without its length, which was checked.
    #[must_use]
    pub fn of(table: &'a [u8]) -> Self {
        let mut found = RoutingHeaders::default();
        for (name, value) in table::entries(table).map_while(Result::ok) {
            match name {
                CC => found.cc = Some(value),
                BCC => found.bcc = Some(value),
                DELAY => found.delay = Some(value),
                _ => {}
            }
        }
        found
    }

    /// Checks the types and the bounds of `CC` and `BCC`.
    ///
    /// # Errors
    /// When one of them is no array, or together they have too many keys, or a key is too long.
    pub fn check(&self) -> Result<(), RoutingHeadersError> {
        for (name, value) in [("CC", self.cc), ("BCC", self.bcc)] {
            match value {
                None | Some(ValueRef::Array(_)) => {}
                Some(other) => return Err(RoutingHeadersError::NotAnArray { name, found: name_of_type(other) }),
            }
        }
        let mut count = 0;
        for key in self.keys() {
            count += 1;
            if key.len() > KEY_BYTES_MAX {
                return Err(RoutingHeadersError::TooLong(key.len()));
            }
        }
        if count > KEYS_MAX { Err(RoutingHeadersError::TooMany(count)) } else { Ok(()) }
    }

    /// The further routing keys; values that are no text are passed over, as in RabbitMQ.
    pub fn keys(self) -> impl Iterator<Item = &'a [u8]> {
        self.cc_keys().chain(texts_of(self.bcc))
    }

    /// Those of `CC`, which consumers see.
    pub fn cc_keys(self) -> impl Iterator<Item = &'a [u8]> {
        texts_of(self.cc)
    }

    #[must_use]
    pub fn has_bcc(self) -> bool {
        self.bcc.is_some()
    }

    /// For how many milliseconds a delayed exchange keeps the message back; `None` for zero, a negative number and anything
    /// that is no number, which delay nothing, as in RabbitMQ's plugin.
    #[must_use]
    pub fn delay_ms(self) -> Option<u64> {
        let delay = match self.delay? {
            ValueRef::I8(value) => i64::from(value),
            ValueRef::U8(value) => i64::from(value),
            ValueRef::I16(value) => i64::from(value),
            ValueRef::U16(value) => i64::from(value),
            ValueRef::I32(value) => i64::from(value),
            ValueRef::U32(value) => i64::from(value),
            ValueRef::I64(value) => value,
            ValueRef::Text(text) => std::str::from_utf8(text).ok()?.parse().ok()?,
            _ => return None,
        };
        u64::try_from(delay).ok().filter(|&delay| delay > 0)
    }
}

fn texts_of(value: Option<ValueRef<'_>>) -> impl Iterator<Item = &[u8]> {
    let array = value.and_then(|value| match value {
        ValueRef::Array(array) => Some(array),
        _ => None,
    });
    array.into_iter().flat_map(|array| array.values().map_while(Result::ok)).filter_map(|value| match value {
        ValueRef::Text(key) => Some(key),
        _ => None,
    })
}

/// RabbitMQ's names of the types of values.
fn name_of_type(value: ValueRef<'_>) -> &'static str {
    match value {
        ValueRef::Bool(_) => "bool",
        ValueRef::I8(_) => "byte",
        ValueRef::U8(_) => "unsignedbyte",
        ValueRef::I16(_) => "short",
        ValueRef::U16(_) => "unsignedshort",
        ValueRef::I32(_) => "signedint",
        ValueRef::U32(_) => "unsignedint",
        ValueRef::I64(_) => "long",
        ValueRef::F32(_) => "float",
        ValueRef::F64(_) => "double",
        ValueRef::Decimal { .. } => "decimal",
        ValueRef::Text(_) => "longstr",
        ValueRef::Bytes(_) => "binary",
        ValueRef::Array(_) => "array",
        ValueRef::Timestamp(_) => "timestamp",
        ValueRef::Table(_) => "table",
        ValueRef::Void => "void",
    }
}

/// Returns a checked block as it is delivered: without `BCC`, and when the message is delayed with `x-delay` negative, so
/// that a consumer that publishes it again with its headers does not delay it again, as in RabbitMQ's plugin.
///
/// # Errors
/// When the block cannot be read.
pub fn as_delivered(block: &[u8], is_delayed: bool) -> Result<Vec<u8>, WireError> {
    let Some(headers) = headers_of(block)? else { return Ok(block.to_vec()) };
    let mut start = 2;
    for field in block::fields(block)? {
        match field? {
            (_, Field::Text(text)) => start += 1 + text.len(),
            _ => break,
        }
    }
    let (before, after) = (block.get(..start), block.get(start + 4 + headers.len()..));
    let mut out = Vec::with_capacity(block.len() + 8);
    out.extend_from_slice(before.unwrap_or_default());
    let length = begin_long(&mut out);
    put_delivered(headers, is_delayed, &mut out);
    end_long(&mut out, length);
    out.extend_from_slice(after.unwrap_or_default());
    Ok(out)
}

fn put_delivered(headers: &[u8], is_delayed: bool, out: &mut Vec<u8>) {
    let delay_ms = RoutingHeaders::of(headers).delay_ms().filter(|_| is_delayed);
    let mut entries = table::entries(headers);
    loop {
        let begin = headers.len() - entries.left();
        let Some(Ok((name, _))) = entries.next() else { return };
        match (name, delay_ms) {
            (BCC, _) => {}
            (DELAY, Some(delay_ms)) => {
                out.push(DELAY.len() as u8);
                out.extend_from_slice(DELAY);
                // Some clients read `l` without its sign.
                match i32::try_from(delay_ms) {
                    Ok(delay_ms) => put_tagged(out, b'I', &delay_ms.wrapping_neg().to_be_bytes()),
                    Err(_) => put_tagged(out, b'l', &(delay_ms as i64).wrapping_neg().to_be_bytes()),
                }
            }
            _ => out.extend_from_slice(headers.get(begin..headers.len() - entries.left()).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::{KEYS_MAX, RoutingHeaders, RoutingHeadersError, as_delivered};
    use crate::amqp::checked::Properties;

    fn long(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag], &u32::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
    }

    fn entry(name: &str, value: &[u8]) -> Vec<u8> {
        [&[u8::try_from(name.len()).unwrap()], name.as_bytes(), value].concat()
    }

    fn texts(texts: &[&str]) -> Vec<u8> {
        long(b'A', &texts.iter().flat_map(|text| long(b'S', text.as_bytes())).collect::<Vec<_>>())
    }

    /// A block with a content type, headers and a delivery mode.
    fn block(table: &[u8]) -> Vec<u8> {
        let length = u32::try_from(table.len()).unwrap().to_be_bytes();
        [&[0xb0, 0, 1, b't'][..], &length, table, &[2]].concat()
    }

    #[test]
    fn keys_of_both_headers_are_read_and_other_values_are_passed_over() {
        let mixed = long(b'A', &[long(b'S', b"c"), b"t\x01".to_vec()].concat());
        let table = [entry("CC", &texts(&["a", "b"])), entry("n", b"V"), entry("BCC", &mixed)].concat();

        let found = RoutingHeaders::of(&table);

        assert_eq!(found.check(), Ok(()));
        assert_eq!(found.keys().collect::<Vec<_>>(), [&b"a"[..], b"b", b"c"]);
    }

    #[test]
    fn other_types_and_too_much_are_refused() {
        let table = entry("CC", &long(b'S', b"a"));
        let refused = RoutingHeaders::of(&table).check().unwrap_err();
        let text = "invalid message: {unacceptable_type_in_header,\"CC\",longstr}";
        assert!(refused.to_string().starts_with(text), "{refused}");

        let many = entry("BCC", &texts(&vec!["k"; KEYS_MAX + 1]));
        assert_eq!(RoutingHeaders::of(&many).check(), Err(RoutingHeadersError::TooMany(KEYS_MAX + 1)));
        let wide = entry("CC", &texts(&["k".repeat(256).as_str()]));
        assert_eq!(RoutingHeaders::of(&wide).check(), Err(RoutingHeadersError::TooLong(256)));
    }

    #[test]
    fn a_block_is_delivered_without_bcc_and_with_a_negative_delay_when_it_was_delayed() {
        let (cc, other, delay) = (entry("CC", &texts(&["a"])), entry("n", b"I\0\0\0\x07"), entry("x-delay", b"b\x05"));
        let sent = block(&[cc.clone(), entry("BCC", &texts(&["secret"])), other.clone(), delay.clone()].concat());

        let at_once = as_delivered(&sent, false).unwrap();
        let later = as_delivered(&sent, true).unwrap();

        assert_eq!(at_once, block(&[cc.clone(), other.clone(), delay].concat()));
        let negative = entry("x-delay", &[&b"I"[..], &(-5_i32).to_be_bytes()].concat());
        assert_eq!(later, block(&[cc, other, negative].concat()));
        assert!([&sent, &at_once, &later].iter().all(|block| Properties::check(block).is_ok()));
    }

    #[test]
    fn a_delay_is_a_positive_number() {
        let delay = |value: &[u8]| {
            let table = entry("x-delay", value);
            RoutingHeaders::of(&table).delay_ms()
        };
        assert_eq!(delay(b"I\0\0\x03\xe8"), Some(1000));
        assert_eq!(delay(&long(b'S', b"1000")), Some(1000));
        assert_eq!(delay(&[&b"l"[..], &(1_i64 << 40).to_be_bytes()].concat()), Some(1 << 40));
        for none in [&b"I\xff\xff\xff\xff"[..], b"I\0\0\0\0", b"V", b"t\x01", &long(b'S', b"soon")] {
            assert_eq!(delay(none), None, "{none:?}");
        }
    }

    #[test]
    fn only_blocks_with_such_headers_say_so() {
        let with = block(&entry("CC", &texts(&["a"])));
        let without = block(&entry("cc", &texts(&["a"])));
        assert!(Properties::check(&with).unwrap().routing_headers().is_some());
        assert!(Properties::check(&without).unwrap().routing_headers().is_none());
    }
}
