//! What a hash exchange hashes of a message: its routing key, one of its headers, or one of its properties.
//!
//! Numbers are hashed as decimal text, so that a publisher may send either. A message without the header or the property
//! has an empty content: all of them go the same way.

use std::borrow::Cow;

use penstock_wire::amqp::table::ValueRef;
use penstock_wire::amqp::view::PropertiesView;

use super::choice::hash;
use super::headers::HeaderIndex;
use super::routable::Routable;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HashOn {
    #[default]
    RoutingKey,
    /// The header of this name.
    Header(Box<[u8]>),
    MessageId,
    CorrelationId,
    Timestamp,
}

impl HashOn {
    /// Whether messages with one routing key and no headers all have one content.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self, HashOn::RoutingKey | HashOn::Header(_))
    }

    /// The hash of a message's content.
    pub(super) fn hash(&self, message: &Routable<'_>, headers: &mut HeaderIndex<'_>) -> u64 {
        let properties = || PropertiesView::of(message.properties);
        match self {
            HashOn::RoutingKey => hash(message.key),
            HashOn::Header(name) => headers.get(name).map_or_else(|| hash(b""), hash_of_value),
            HashOn::MessageId => hash(properties().message_id.unwrap_or_default()),
            HashOn::CorrelationId => hash(properties().correlation_id.unwrap_or_default()),
            HashOn::Timestamp => properties().timestamp.map_or_else(|| hash(b""), hash_of_number),
        }
    }
}

fn hash_of_value(value: ValueRef<'_>) -> u64 {
    hash(&content_of(value).unwrap_or_default())
}

/// The content of a header's value as text; `None` for values that are neither text nor whole numbers.
#[must_use]
pub fn content_of(value: ValueRef<'_>) -> Option<Cow<'_, [u8]>> {
    match value {
        ValueRef::Text(bytes) | ValueRef::Bytes(bytes) => Some(Cow::Borrowed(bytes)),
        ValueRef::Bool(value) => Some(Cow::Borrowed(if value { b"true" } else { b"false" })),
        ValueRef::I8(value) => number(value),
        ValueRef::U8(value) => number(value),
        ValueRef::I16(value) => number(value),
        ValueRef::U16(value) => number(value),
        ValueRef::I32(value) => number(value),
        ValueRef::U32(value) => number(value),
        ValueRef::I64(value) => number(value),
        ValueRef::Timestamp(seconds) => number(seconds),
        _ => None,
    }
}

fn number<'a>(number: impl ToString) -> Option<Cow<'a, [u8]>> {
    Some(Cow::Owned(number.to_string().into_bytes()))
}

fn hash_of_number(number: impl ToString) -> u64 {
    hash(number.to_string().as_bytes())
}
