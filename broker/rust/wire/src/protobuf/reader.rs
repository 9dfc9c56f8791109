//! Reads protobuf fields from a slice without copying. A reader only moves forward and never past its slice, so reading
//! is bounded by the input's length, whatever its content.

use crate::WireError;

/// Layout of a field's value. Groups (3 and 4) are not part of proto3 and are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireType {
    Varint,
    Fixed64,
    Bytes,
    Fixed32,
}

/// The key of a number field.
pub const fn varint_key(field: u64) -> u64 {
    field << 3
}

/// The key of a length-delimited field.
pub const fn bytes_key(field: u64) -> u64 {
    field << 3 | 2
}

/// A cursor over the fields of one message; `what` names the message in errors.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    pub fn what(&self) -> &'static str {
        self.what
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next field's key (see `varint_key` and `bytes_key`); `None` at the end. Matching on it is the fast way to
    /// read a message; pass unmatched keys to `pass`.
    #[inline]
    pub fn key(&mut self) -> Result<Option<u64>, WireError> {
        match self.rest.split_first() {
            None => Ok(None),
            // Fields 1 to 15, which are nearly all of them, have a key of one byte.
            Some((&byte, rest)) if byte < 0x80 => {
                self.rest = rest;
                Ok(Some(u64::from(byte)))
            }
            Some(_) => self.varint().map(Some),
        }
    }

    /// Skips the field of an unmatched key; refuses it when fields up to `known_max` are known, because then it has
    /// another wire type than its definition.
    #[cold]
    pub fn pass(&mut self, key: u64, known_max: u32) -> Result<(), WireError> {
        let (number, wire_type) = self.split_key(key)?;
        if number <= known_max {
            return Err(self.mismatch(number, number_of(wire_type)));
        }
        self.skip(wire_type)
    }

    /// The next field's number and wire type; `None` at the end.
    #[inline]
    pub fn field(&mut self) -> Result<Option<(u32, WireType)>, WireError> {
        match self.key()? {
            None => Ok(None),
            Some(key) => self.split_key(key).map(Some),
        }
    }

    #[inline]
    fn split_key(&self, key: u64) -> Result<(u32, WireType), WireError> {
        let number = key >> 3;
        if number == 0 || number > 0x1fff_ffff {
            return Err(WireError::OutOfRange { what: self.what, rule: "field numbers are 1 to 536870911" });
        }
        let wire_type = match key & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Bytes,
            5 => WireType::Fixed32,
            other => return Err(self.mismatch(number as u32, other as u8)),
        };
        Ok((number as u32, wire_type))
    }

    #[inline]
    pub fn varint(&mut self) -> Result<u64, WireError> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            [low, high, rest @ ..] if *high < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*low & 0x7f) | u64::from(*high) << 7)
            }
            _ => self.varint_long(),
        }
    }

    /// Three to eight bytes are taken as one word: its first byte without the top bit ends the number.
    #[inline(never)]
    fn varint_long(&mut self) -> Result<u64, WireError> {
        let Some(word) = self.rest.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)) else {
            return self.varint_bytewise();
        };
        let ends = !word & 0x8080_8080_8080_8080;
        if ends == 0 {
            return self.varint_bytewise();
        }
        let bits = ends.trailing_zeros() + 1;
        let groups = word & (u64::MAX >> (64 - bits)) & 0x7f7f_7f7f_7f7f_7f7f;
        let pairs = groups & 0x007f_007f_007f_007f | (groups & 0x7f00_7f00_7f00_7f00) >> 1;
        let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
        self.rest = self.rest.get(bits as usize / 8..).unwrap_or_default();
        Ok(fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4)
    }

    fn varint_bytewise(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        let mut shift = 0u32;
        let mut rest = self.rest;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            if shift == 63 && byte > 1 {
                return Err(WireError::Varint { what: self.what });
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                self.rest = rest;
                return Ok(value);
            }
            shift += 7;
            if shift > 63 {
                return Err(WireError::Varint { what: self.what });
            }
        }
        Err(self.truncated(self.rest.len() as u64 + 1))
    }

    /// The contents of a length-delimited field.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.varint()?;
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let Some((bytes, rest)) = split else {
            return Err(self.truncated(length));
        };
        self.rest = rest;
        Ok(bytes)
    }

    pub fn fixed64(&mut self) -> Result<u64, WireError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk::<8>() else {
            return Err(self.truncated(8));
        };
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Skips the value of an unknown field.
    pub fn skip(&mut self, wire_type: WireType) -> Result<(), WireError> {
        match wire_type {
            WireType::Varint => self.varint().map(|_| ()),
            WireType::Fixed64 => self.fixed64().map(|_| ()),
            WireType::Bytes => self.bytes().map(|_| ()),
            WireType::Fixed32 => {
                let Some((_, rest)) = self.rest.split_first_chunk::<4>() else {
                    return Err(self.truncated(4));
                };
                self.rest = rest;
                Ok(())
            }
        }
    }

    /// A known field's number, after checking its wire type.
    #[inline]
    pub fn uint(&mut self, field: u32, wire_type: WireType) -> Result<u64, WireError> {
        self.expect(field, wire_type, WireType::Varint)?;
        self.varint()
    }

    #[inline]
    pub fn bool(&mut self, field: u32, wire_type: WireType) -> Result<bool, WireError> {
        Ok(self.uint(field, wire_type)? != 0)
    }

    #[inline]
    pub fn slice(&mut self, field: u32, wire_type: WireType) -> Result<&'a [u8], WireError> {
        self.expect(field, wire_type, WireType::Bytes)?;
        self.bytes()
    }

    /// A text field of at most `size_max` bytes, checked to be UTF-8; errors call it `name`.
    #[inline]
    pub fn text(
        &mut self,
        field: u32,
        wire_type: WireType,
        name: &'static str,
        size_max: usize,
    ) -> Result<&'a str, WireError> {
        self.expect(field, wire_type, WireType::Bytes)?;
        self.name(name, size_max)
    }

    /// The contents of a length-delimited field as a text of at most `size_max` bytes.
    #[inline]
    pub fn name(&mut self, name: &'static str, size_max: usize) -> Result<&'a str, WireError> {
        let bytes = self.bytes()?;
        if bytes.len() > size_max {
            return Err(WireError::TooLong { what: name, size: bytes.len(), max: size_max });
        }
        std::str::from_utf8(bytes).map_err(|_| WireError::NotUtf8 { what: name })
    }

    #[inline]
    pub fn expect(&self, field: u32, found: WireType, wanted: WireType) -> Result<(), WireError> {
        if found == wanted { Ok(()) } else { Err(self.mismatch(field, number_of(found))) }
    }

    #[cold]
    fn truncated(&self, wanted: u64) -> WireError {
        WireError::Truncated { what: self.what, wanted, left: self.rest.len() as u64 }
    }

    #[cold]
    fn mismatch(&self, field: u32, wire_type: u8) -> WireError {
        WireError::WireType { what: self.what, field, wire_type }
    }
}

fn number_of(wire_type: WireType) -> u8 {
    match wire_type {
        WireType::Varint => 0,
        WireType::Fixed64 => 1,
        WireType::Bytes => 2,
        WireType::Fixed32 => 5,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_of_eleven_bytes_is_refused() {
        let mut reader = Reader::new(&[0xff; 11], "a test");

        assert_eq!(reader.varint(), Err(WireError::Varint { what: "a test" }));
    }

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        let mut reader = Reader::new(&[5, 1, 2], "a test");

        assert_eq!(reader.bytes(), Err(WireError::Truncated { what: "a test", wanted: 5, left: 2 }));
    }

    #[test]
    fn groups_are_refused() {
        let mut reader = Reader::new(&[0x0b], "a test");

        assert_eq!(reader.field(), Err(WireError::WireType { what: "a test", field: 1, wire_type: 3 }));
    }

    #[test]
    fn field_zero_is_refused() {
        assert!(Reader::new(&[0x00, 0x00], "a test").field().is_err());
    }

    proptest! {
        #[test]
        fn every_number_reads_back_whatever_follows(value: u64, shift in 0..64u32, rest in 0..9usize, byte: u8) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            crate::protobuf::put_varint(&mut bytes, value);
            prop_assert_eq!(bytes.len(), crate::protobuf::varint_len(value));
            bytes.resize(bytes.len() + rest, byte);

            let mut reader = Reader::new(&bytes, "a test");
            prop_assert_eq!(reader.varint().unwrap(), value);
            prop_assert_eq!(reader.rest().len(), rest);
        }

        #[test]
        fn numbers_agree_with_prost(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0x80..=0xffu8], 0..12)) {
            let theirs = prost::encoding::decode_varint(&mut bytes.as_slice()).ok();

            prop_assert_eq!(Reader::new(&bytes, "a test").varint().ok(), theirs);
        }

        #[test]
        fn walking_over_any_bytes_ends(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Reader::new(&bytes, "a test");
            while let Ok(Some((_, wire_type))) = reader.field() {
                let before = reader.rest().len();
                if reader.skip(wire_type).is_err() {
                    break;
                }
                prop_assert!(reader.rest().len() < before);
            }
        }
    }
}
