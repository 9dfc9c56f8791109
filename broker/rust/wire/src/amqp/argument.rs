//! The arguments of AMQP 0-9-1 methods: how a type is read from a frame and written to one, big-endian.
//!
//! Bits that follow each other share octets. Short strings are UTF-8, as RabbitMQ demands of clients; tables are checked with
//! everything nested in them. Reading never allocates.

use super::table::{self, ValueRef};
use super::table_writer::{begin_long, end_long, put_short};
use crate::{Name, WireError};

const METHOD: &str = "a method";
const SHORT: &str = "a short string";

/// The types that arguments of methods have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bit,
    Octet,
    Short,
    Long,
    LongLong,
    ShortText,
    LongText,
    Table,
}

/// One argument of a method.
pub trait Argument<'a>: Sized {
    const KIND: Kind;

    /// # Errors
    /// When the method ends before its end, or its content breaks a rule.
    fn read(reader: &mut Reader<'a>) -> Result<Self, WireError>;

    fn write(&self, writer: &mut Writer<'_>);
}

/// Bytes with a length of four bytes before them: a password, an answer to a challenge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongText<'a>(pub &'a [u8]);

/// A table that was checked whole, without its length. There is no other way to make one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldTable<'a>(&'a [u8]);

impl<'a> FieldTable<'a> {
    /// Checks a table without its length.
    ///
    /// # Errors
    /// The first thing in it that cannot be read, or is above a limit.
    pub fn check(table: &'a [u8]) -> Result<FieldTable<'a>, WireError> {
        table::check(table)?;
        Ok(FieldTable(table))
    }

    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Return the value of the first entry of a name.
    #[must_use]
    pub fn get(self, name: &str) -> Option<ValueRef<'a>> {
        find(table::entries(self.0), name)
    }

    /// Return whether `name` is a table in this one, with a true `flag` in it.
    #[must_use]
    pub fn has_flag(self, name: &str, flag: &str) -> bool {
        let Some(ValueRef::Table(inner)) = self.get(name) else { return false };
        find(inner.entries(), flag) == Some(ValueRef::Bool(true))
    }
}

fn find<'a>(mut entries: table::Entries<'a>, name: &str) -> Option<ValueRef<'a>> {
    entries.find_map(|entry| entry.ok().filter(|(found, _)| *found == name.as_bytes()).map(|(_, value)| value))
}

/// Reads the arguments of one method, one after the other.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// The octet that bits are taken from, lowest first, and how many of them were taken.
    bits: u8,
    taken: u8,
}

impl<'a> Reader<'a> {
    #[must_use]
    pub fn new(arguments: &'a [u8]) -> Reader<'a> {
        Reader { rest: arguments, bits: 0, taken: 8 }
    }

    /// # Errors
    /// When bytes are left.
    pub fn finish(&self) -> Result<(), WireError> {
        if !self.rest.is_empty() {
            return Err(WireError::OutOfRange { what: METHOD, rule: "no bytes follow its arguments" });
        }
        Ok(())
    }

    #[inline]
    fn bit(&mut self) -> Result<bool, WireError> {
        if self.taken == 8 {
            let [octet] = self.array()?;
            (self.bits, self.taken) = (octet, 0);
        }
        let bit = self.bits >> self.taken & 1 == 1;
        self.taken += 1;
        Ok(bit)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.taken = 8;
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else { return Err(self.truncated(N)) };
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    fn slice(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        self.taken = 8;
        let Some((taken, rest)) = self.rest.split_at_checked(length) else { return Err(self.truncated(length)) };
        self.rest = rest;
        Ok(taken)
    }

    fn long_slice(&mut self) -> Result<&'a [u8], WireError> {
        let length = u32::from_be_bytes(self.array()?);
        self.slice(usize::try_from(length).unwrap_or(usize::MAX))
    }

    #[cold]
    fn truncated(&self, wanted: usize) -> WireError {
        WireError::Truncated { what: METHOD, wanted: wanted as u64, left: self.rest.len() as u64 }
    }
}

/// Writes the arguments of one method, one after the other.
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    /// How many bits of the last octet are used; 0 when the next bit needs a new one.
    bits: u8,
}

impl<'o> Writer<'o> {
    #[must_use]
    pub fn new(out: &'o mut Vec<u8>) -> Writer<'o> {
        Writer { out, bits: 0 }
    }

    fn bit(&mut self, bit: bool) {
        if self.bits == 0 {
            self.out.push(0);
        }
        if let Some(octet) = self.out.last_mut() {
            *octet |= u8::from(bit) << self.bits;
        }
        self.bits = (self.bits + 1) % 8;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.bits = 0;
        self.out.extend_from_slice(bytes);
    }

    fn long_bytes(&mut self, bytes: &[u8]) {
        self.bits = 0;
        let start = begin_long(self.out);
        self.out.extend_from_slice(bytes);
        end_long(self.out, start);
    }
}

impl<'a> Argument<'a> for bool {
    const KIND: Kind = Kind::Bit;

    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        reader.bit()
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.bit(*self);
    }
}

macro_rules! numbers {
    ($($number:ty: $kind:ident),*) => {$(
        impl<'a> Argument<'a> for $number {
            const KIND: Kind = Kind::$kind;

            #[inline]
            fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
                Ok(<$number>::from_be_bytes(reader.array()?))
            }

            #[inline]
            fn write(&self, writer: &mut Writer<'_>) {
                writer.bytes(&self.to_be_bytes());
            }
        }
    )*};
}

numbers! { u8: Octet, u16: Short, u32: Long, u64: LongLong }

impl<'a> Argument<'a> for Name<'a> {
    const KIND: Kind = Kind::ShortText;

    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let [length] = reader.array()?;
        Name::new(SHORT, reader.slice(usize::from(length))?)
    }

    #[inline]
    fn write(&self, writer: &mut Writer<'_>) {
        writer.bits = 0;
        put_short(writer.out, *self);
    }
}

impl<'a> Argument<'a> for LongText<'a> {
    const KIND: Kind = Kind::LongText;

    fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        reader.long_slice().map(LongText)
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.long_bytes(self.0);
    }
}

impl<'a> Argument<'a> for FieldTable<'a> {
    const KIND: Kind = Kind::Table;

    fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        FieldTable::check(reader.long_slice()?)
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.long_bytes(self.0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests {
    use super::{Argument, FieldTable, LongText, Reader, Writer};
    use crate::amqp::table_writer::TableWriter;
    use crate::{Name, WireError};

    #[test]
    fn bits_share_octets_until_another_argument_comes() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        for bit in [true, false, true, false, false, false, false, true, true] {
            bit.write(&mut writer);
        }
        7u8.write(&mut writer);
        true.write(&mut writer);
        assert_eq!(out, [0b1000_0101, 1, 7, 1]);

        let mut reader = Reader::new(&out);
        let bits: Vec<bool> = (0..9).filter_map(|_| bool::read(&mut reader).ok()).collect();
        assert_eq!(bits, [true, false, true, false, false, false, false, true, true]);
        assert_eq!(u8::read(&mut reader), Ok(7));
        assert_eq!(bool::read(&mut reader), Ok(true));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn an_argument_that_is_cut_off_or_no_utf8_is_refused() {
        assert!(matches!(u32::read(&mut Reader::new(&[0; 3])), Err(WireError::Truncated { wanted: 4, left: 3, .. })));
        assert!(matches!(bool::read(&mut Reader::new(&[])), Err(WireError::Truncated { .. })));
        assert!(matches!(Name::read(&mut Reader::new(b"\x02a")), Err(WireError::Truncated { .. })));
        assert!(matches!(Name::read(&mut Reader::new(b"\x01\xff")), Err(WireError::NotUtf8 { .. })));
        assert!(matches!(LongText::read(&mut Reader::new(&[255; 9])), Err(WireError::Truncated { .. })));
        assert!(matches!(FieldTable::read(&mut Reader::new(b"\0\0\0\x02\0?")), Err(WireError::UnknownTag { .. })));
    }

    #[test]
    fn flags_are_found_in_a_table_of_a_table() {
        let table = TableWriter::entries(|table| {
            table.text("product", "client");
            table.table("capabilities", |inner| {
                inner.bool("basic.nack", true);
                inner.bool("off", false);
            });
        });
        let table = FieldTable::check(&table).unwrap();

        assert!(table.has_flag("capabilities", "basic.nack"));
        assert!(!table.has_flag("capabilities", "off"));
        assert!(!table.has_flag("capabilities", "absent"));
        assert!(!table.has_flag("product", "basic.nack"));
        assert!(!table.has_flag("absent", "basic.nack"));
    }
}
