//! A delivery's properties with one header more, which is not stored: a message's offset in its stream.

use super::block;
use super::properties::PERSISTENT_ONLY;

/// Appends a properties block with the header `name` of a 64-bit number at the end of its headers. An empty block is that of a
/// message without properties. A block that cannot be read is appended as it is: what is stored was checked.
pub fn put_with_header(properties: &[u8], name: &str, value: u64, out: &mut Vec<u8>) {
    let properties = if properties.is_empty() { &PERSISTENT_ONLY[..] } else { properties };
    let Some(place) = Place::find(properties) else { return out.extend_from_slice(properties) };
    let name_bytes = u8::try_from(name.len()).unwrap_or(u8::MAX);
    let name = name.get(..usize::from(name_bytes)).unwrap_or_default();
    let entry_bytes = 1 + name.len() + 1 + 8;
    let table_bytes = u32::try_from(place.table.len() + entry_bytes).unwrap_or(u32::MAX);
    out.extend_from_slice(&(place.flags | block::HEADERS).to_be_bytes());
    out.extend_from_slice(place.before);
    out.extend_from_slice(&table_bytes.to_be_bytes());
    out.extend_from_slice(place.table);
    out.push(name_bytes);
    out.extend_from_slice(name.as_bytes());
    out.push(b'l');
    out.extend_from_slice(&value.to_be_bytes());
    out.extend_from_slice(place.after);
}

/// The parts of a block around its headers.
struct Place<'a> {
    flags: u16,
    before: &'a [u8],
    table: &'a [u8],
    after: &'a [u8],
}

impl<'a> Place<'a> {
    fn find(properties: &'a [u8]) -> Option<Place<'a>> {
        let (flags, fields) = properties.split_first_chunk::<2>()?;
        let flags = u16::from_be_bytes(*flags);
        let mut rest = fields;
        for flag in [block::CONTENT_TYPE, block::CONTENT_ENCODING] {
            if flags & flag != 0 {
                rest = rest.get(1 + usize::from(*rest.first()?)..)?;
            }
        }
        let before = fields.get(..fields.len() - rest.len())?;
        if flags & block::HEADERS == 0 {
            return Some(Place { flags, before, table: &[], after: rest });
        }
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (table, after) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        Some(Place { flags, before, table, after })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::put_with_header;
    use crate::amqp::block;
    use crate::amqp::table::{ValueRef, check, entries};

    fn headers(properties: &[u8]) -> Vec<(Vec<u8>, u64)> {
        let fields: Vec<_> = block::fields(properties).unwrap().map(Result::unwrap).collect();
        let table = fields.iter().find_map(|(_, field)| match field {
            block::Field::Table(table) => Some(*table),
            _ => None,
        });
        check(table.unwrap()).unwrap();
        let number = |value| match value {
            ValueRef::I64(number) => number as u64,
            _ => 0,
        };
        entries(table.unwrap()).map(Result::unwrap).map(|(name, value)| (name.to_vec(), number(value))).collect()
    }

    #[test]
    fn the_header_is_added_behind_those_there_are() {
        let own = [&b"\xf0\x00\x02ab\x02cd"[..], &[0, 0, 0, 3, 1, b'a', b'V'], &[2]].concat();
        for (properties, expected) in [
            (&b""[..], vec![(b"x-o".to_vec(), 7)]),
            (&[0x90, 0, 1, b'a', 1], vec![(b"x-o".to_vec(), 7)]),
            (&own, vec![(b"a".to_vec(), 0), (b"x-o".to_vec(), 7)]),
        ] {
            let mut out = Vec::new();
            put_with_header(properties, "x-o", 7, &mut out);
            assert_eq!(headers(&out), expected);
        }
    }

    #[test]
    fn other_properties_stay() {
        let mut out = Vec::new();
        put_with_header(&[0x90, 0, 1, b'a', 1], "o", 1, &mut out);

        let expected = [&[0xb0, 0, 1, b'a'][..], &[0, 0, 0, 11, 1, b'o', b'l', 0, 0, 0, 0, 0, 0, 0, 1], &[1]].concat();
        assert_eq!(out, expected);
    }
}
