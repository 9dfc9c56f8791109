//! Direct replies: a client that asks names no queue but [`REPLY_TO`], and gets what is sent to a name that is made for it.

use super::block::{self, Field, REPLY_TO as FLAG};
use super::checked::Properties;

/// What clients consume, and what they name in messages that ask for a reply.
pub const REPLY_TO: &[u8] = b"amq.rabbitmq.reply-to";

/// Whether a message is a reply to a name that was made for a client.
#[inline]
#[must_use]
pub fn is_reply(exchange: &[u8], routing_key: &[u8]) -> bool {
    exchange.is_empty() && routing_key.strip_prefix(REPLY_TO).is_some_and(|rest| rest.first() == Some(&b'.'))
}

/// Where the name stands in properties that ask for a direct reply: the place of its length.
#[inline]
pub(super) fn place_of_name(properties: Properties<'_>) -> Option<usize> {
    let block = properties.as_bytes();
    let has_name = block.first_chunk::<2>().is_some_and(|flags| u16::from_be_bytes(*flags) & FLAG != 0);
    if has_name { find(block) } else { None }
}

fn find(block: &[u8]) -> Option<usize> {
    let mut fields = block::fields(block).ok()?;
    loop {
        let at = block.len() - fields.rest_bytes();
        match fields.next()?.ok()? {
            (FLAG, Field::Text(name)) => return (name == REPLY_TO).then_some(at),
            (FLAG, _) => return None,
            _ => {}
        }
    }
}

/// Appends the properties with another name at that place. It has no more than 255 bytes.
pub(super) fn put_named(properties: Properties<'_>, at: usize, name: &[u8], out: &mut Vec<u8>) {
    let (before, after) = properties.as_bytes().split_at_checked(at).unwrap_or_default();
    out.extend_from_slice(before);
    out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(name);
    out.extend_from_slice(after.get(1 + REPLY_TO.len()..).unwrap_or_default());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::checked::Properties;
    use super::{is_reply, place_of_name, put_named};

    /// A content type, a name for replies, and an id.
    fn block(name: &[u8]) -> Vec<u8> {
        let length = u8::try_from(name.len()).unwrap();
        [&[0x82, 0x80, 1, b't', length][..], name, &[2, b'i', b'd']].concat()
    }

    #[test]
    fn the_name_is_replaced_and_nothing_else() {
        let asking = block(b"amq.rabbitmq.reply-to");
        let properties = Properties::check(&asking).unwrap();
        let mut named = Vec::new();

        put_named(properties, place_of_name(properties).unwrap(), b"amq.rabbitmq.reply-to.7", &mut named);

        assert_eq!(named, block(b"amq.rabbitmq.reply-to.7"));
        assert!(Properties::check(&named).is_ok());
    }

    #[test]
    fn other_names_stay() {
        for name in [&b""[..], b"replies", b"amq.rabbitmq.reply-to.7"] {
            assert_eq!(place_of_name(Properties::check(&block(name)).unwrap()), None);
        }
        for none in [&b""[..], &[0, 0], &[0x80, 0, 1, b't']] {
            assert_eq!(place_of_name(Properties::check(none).unwrap()), None);
        }
    }

    #[test]
    fn a_reply_goes_to_a_name_through_the_default_exchange() {
        assert!(is_reply(b"", b"amq.rabbitmq.reply-to.7"));
        for (exchange, key) in [("", "amq.rabbitmq.reply-to"), ("x", "amq.rabbitmq.reply-to.7"), ("", "jobs")] {
            assert!(!is_reply(exchange.as_bytes(), key.as_bytes()));
        }
    }
}
