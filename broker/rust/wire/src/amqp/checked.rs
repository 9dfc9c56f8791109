//! A properties block that was checked when it came, as a type: whoever has one may read all of it.
//!
//! Limits: [`PROPERTIES_BYTES_MAX`] bytes, and of header tables [`DEPTH_MAX`](super::table::DEPTH_MAX) levels and
//! [`VALUES_MAX`](super::table::VALUES_MAX) values. Texts need not be UTF-8, as AMQP has it.

use super::block::{self, Field};
use super::properties::{PROPERTIES_BYTES_MAX, headers_of, properties_to_amqp};
use super::routing_headers::{RoutingHeaders, is_of_routing};
use super::table;
use crate::WireError;

/// See the module. There is no other way to make one than to check it, or to convert protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties<'a> {
    block: &'a [u8],
    /// Whether its headers say something about the routing.
    has_routing_headers: bool,
}

impl<'a> Properties<'a> {
    /// Reads a whole block, with everything nested in its headers.
    ///
    /// # Errors
    /// The first thing in it that cannot be read, or is above a limit.
    pub fn check(block: &'a [u8]) -> Result<Properties<'a>, WireError> {
        const WHAT: &str = "the properties of a message";
        if block.len() > PROPERTIES_BYTES_MAX {
            return Err(WireError::TooLong { what: WHAT, size: block.len(), max: PROPERTIES_BYTES_MAX });
        }
        let mut fields = block::fields(block)?;
        let mut has_routing_headers = false;
        for field in fields.by_ref() {
            if let (_, Field::Table(headers)) = field? {
                table::check_with(headers, |name| has_routing_headers |= is_of_routing(name))?;
            }
        }
        if !fields.is_read() {
            return Err(WireError::OutOfRange {
                what: WHAT,
                rule: "no bytes follow the fields that the flags announce",
            });
        }
        Ok(Properties { block, has_routing_headers })
    }

    /// Bytes that were checked before, with what was found.
    #[inline]
    pub(super) fn checked(block: &'a [u8], has_routing_headers: bool) -> Properties<'a> {
        Properties { block, has_routing_headers }
    }

    #[inline]
    pub(super) fn has_routing_headers(self) -> bool {
        self.has_routing_headers
    }

    /// What its headers say about the routing; `None` for most messages.
    #[inline]
    #[must_use]
    pub fn routing_headers(self) -> Option<RoutingHeaders<'a>> {
        if !self.has_routing_headers {
            return None;
        }
        headers_of(self.block).ok().flatten().map(RoutingHeaders::of)
    }

    #[inline]
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.block
    }
}

/// The properties of several messages, converted from protobuf, in the order of the messages that have any.
#[derive(Debug, Default)]
pub struct Converted {
    bytes: Vec<u8>,
    /// Where each ends, and whether its headers say something about the routing.
    ends: Vec<(usize, bool)>,
    /// After how many milliseconds a message may be delivered, by its index; of those that have a delay.
    delays: Vec<(usize, u64)>,
}

impl Converted {
    /// Forgets all of them; the memory is used again.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.delays.clear();
    }

    /// Converts a serialised `penstock.v1.Properties`.
    ///
    /// # Errors
    /// When it cannot be converted; then nothing is added.
    pub fn push(&mut self, protobuf: &[u8]) -> Result<(), WireError> {
        let start = self.bytes.len();
        match properties_to_amqp(Some(protobuf), &mut self.bytes) {
            Ok(delay_ms) => {
                self.delays.extend(delay_ms.map(|delay_ms| (self.ends.len(), delay_ms)));
                let headers = self.bytes.get(start..).and_then(|block| headers_of(block).ok().flatten());
                let mut names = headers.into_iter().flat_map(table::entries).map_while(Result::ok);
                self.ends.push((self.bytes.len(), names.any(|(name, _)| is_of_routing(name))));
                Ok(())
            }
            Err(error) => {
                self.bytes.truncate(start);
                Err(error)
            }
        }
    }

    #[must_use]
    pub fn delay_of(&self, index: usize) -> Option<u64> {
        let found = self.delays.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        self.delays.get(found).map(|(_, delay_ms)| *delay_ms)
    }

    #[must_use]
    pub fn get(&self, index: usize) -> Option<Properties<'_>> {
        let start = index.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).map(|(end, _)| *end))?;
        let (end, has_routing_headers) = *self.ends.get(index)?;
        Some(Properties { block: self.bytes.get(start..end)?, has_routing_headers })
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::super::table::{DEPTH_MAX, VALUES_MAX};
    use super::{Converted, PROPERTIES_BYTES_MAX, Properties};
    use crate::WireError;

    /// A block with a header table.
    fn with_headers(table: &[u8]) -> Vec<u8> {
        let length = u32::try_from(table.len()).unwrap_or(u32::MAX).to_be_bytes();
        [&[0x20, 0][..], &length, table].concat()
    }

    fn nested(depth: usize) -> Vec<u8> {
        (1..depth).fold(Vec::new(), |inner, _| {
            let length = u32::try_from(inner.len()).unwrap_or(u32::MAX).to_be_bytes();
            [&[1, b'n', b'F'][..], &length, &inner].concat()
        })
    }

    #[test]
    fn a_block_is_read_to_its_end() {
        let block = with_headers(b"\x01aV");
        assert_eq!(Properties::check(&block).map(Properties::as_bytes), Ok(&block[..]));
        assert!(Properties::check(b"").is_ok());

        let longer = [&block[..], b"x"].concat();
        assert!(matches!(Properties::check(&longer), Err(WireError::OutOfRange { .. })));
        for end in 1..block.len() {
            assert!(Properties::check(&block[..end]).is_err(), "{end} bytes of it");
        }
    }

    #[test]
    fn tables_have_bounds_of_depth_of_values_and_of_bytes() {
        assert!(Properties::check(&with_headers(&nested(DEPTH_MAX))).is_ok());
        assert!(matches!(Properties::check(&with_headers(&nested(DEPTH_MAX + 1))), Err(WireError::TooDeep { .. })));
        assert!(Properties::check(&with_headers(&b"\0V".repeat(VALUES_MAX))).is_ok());
        let many = with_headers(&b"\0V".repeat(VALUES_MAX + 1));
        assert!(matches!(Properties::check(&many), Err(WireError::TooMany { .. })));
        let large = vec![0; PROPERTIES_BYTES_MAX + 1];
        assert!(matches!(Properties::check(&large), Err(WireError::TooLong { .. })));
    }

    #[test]
    fn properties_of_protobuf_are_converted_one_after_the_other() {
        let mut converted = Converted::default();
        assert_eq!(converted.push(b"\x0a\x01a"), Ok(()));
        assert!(converted.push(b"\x0a\x05a").is_err());
        assert_eq!(converted.push(b"\x12\x01b"), Ok(()));

        for (index, text) in [(0, b'a'), (1, b'b')] {
            let block = converted.get(index).map(Properties::as_bytes).unwrap_or_default();
            assert!(block.contains(&text) && Properties::check(block).is_ok(), "{block:?}");
        }
        assert_eq!(converted.get(2), None);
    }

    #[test]
    fn protobuf_with_too_many_headers_is_refused() {
        let many = b"\x1a\0".repeat(VALUES_MAX + 1);

        assert!(matches!(Converted::default().push(&many), Err(WireError::TooMany { .. })));
    }
}
