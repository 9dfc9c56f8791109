//! Which rows of a stream are wanted: those with a key, a routing key or a header.
//!
//! Invariant: a row is judged by what it holds, before any column of it is built.

use penstock_wire::amqp::table::{self, ValueRef};
use penstock_wire::amqp::view::PropertiesView;

use crate::batch::MessageRow;
use crate::json::write_json;

/// Without any condition it takes every row; with several, those that meet them all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub key: Option<Vec<u8>>,
    pub routing_key: Option<Vec<u8>>,
    /// A header's name and its value as in the column `headers`.
    pub header: Option<(Vec<u8>, Vec<u8>)>,
}

impl Filter {
    #[must_use]
    pub fn takes_all(&self) -> bool {
        *self == Filter::default()
    }

    #[inline]
    #[must_use]
    pub fn takes(&self, row: &MessageRow<'_>) -> bool {
        self.key.as_ref().is_none_or(|key| row.key == Some(key))
            && self.routing_key.as_ref().is_none_or(|routing_key| row.routing_key == routing_key)
            && self.header.as_ref().is_none_or(|(name, value)| has_header(row.properties, name, value))
    }
}

/// Whether any header of that name has the value.
fn has_header(properties: &[u8], name: &[u8], value: &[u8]) -> bool {
    if properties.is_empty() {
        return false;
    }
    let Some(headers) = PropertiesView::of(properties).headers else { return false };
    let mut entries = table::entries(headers).map_while(Result::ok);
    entries.any(|(found, header)| found == name && is_value(header, value))
}

fn is_value(header: ValueRef<'_>, value: &[u8]) -> bool {
    match header {
        ValueRef::Text(bytes) | ValueRef::Bytes(bytes) => bytes == value,
        ValueRef::Void => false,
        other => {
            let mut json = Vec::new();
            write_json(other, &mut json);
            json == value
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Filter;
    use crate::batch::MessageRow;

    const ROW: MessageRow<'_> = MessageRow {
        offset: 1,
        stored_at_ms: 0,
        key: Some(b"k"),
        exchange: b"",
        routing_key: b"events",
        body: b"",
        // Headers alone: a = "x", a = true, n = nothing.
        properties: b"\x20\x00\x00\x00\x00\x0f\x01aS\x00\x00\x00\x01x\x01at\x01\x01nV",
    };

    fn header(name: &str, value: &str) -> Filter {
        Filter { header: Some((name.into(), value.into())), ..Filter::default() }
    }

    #[test]
    fn a_row_is_taken_that_meets_every_condition() {
        let key = Filter { key: Some(b"k".into()), ..Filter::default() };
        let both = Filter { routing_key: Some(b"events".into()), ..key.clone() };
        let neither = Filter { routing_key: Some(b"other".into()), ..key.clone() };

        assert!(Filter::default().takes(&ROW) && Filter::default().takes_all());
        assert!(key.takes(&ROW) && both.takes(&ROW) && !neither.takes(&ROW));
        assert!(!key.takes(&MessageRow { key: None, ..ROW }) && !key.takes(&MessageRow { key: Some(b"k2"), ..ROW }));
    }

    #[test]
    fn any_header_of_the_name_may_have_the_value() {
        assert!(header("a", "x").takes(&ROW) && header("a", "true").takes(&ROW));
        assert!(!header("a", "y").takes(&ROW) && !header("b", "x").takes(&ROW) && !header("n", "").takes(&ROW));
        assert!(!header("a", "x").takes(&MessageRow { properties: b"", ..ROW }));
        assert!(!header("a", "x").takes(&MessageRow { properties: b"\x20", ..ROW }));
    }
}
