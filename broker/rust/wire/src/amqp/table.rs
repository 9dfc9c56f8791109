//! Reads AMQP 0-9-1 field tables and arrays in place, without copying and without allocating.
//!
//! A table comes without its four length bytes. Every length is checked against the bytes left, nesting is bounded by
//! [`DEPTH_MAX`], and a reader ends after its first error. It knows the type tags that RabbitMQ and LavinMQ use, and
//! not the meaning of an entry.

use crate::error::WireError;

/// The nesting limit of tables and arrays, the outermost included.
pub const DEPTH_MAX: usize = 64;

/// The most values that a table has in all, nested ones included. A table with more has more than twice as many bytes.
pub const VALUES_MAX: usize = 32_768;

const TABLE: &str = "an AMQP field table";

/// Reads the entries of a table without its length.
#[must_use]
pub fn entries(table: &[u8]) -> Entries<'_> {
    TableRef { bytes: table, depth: 1 }.entries()
}

/// Reads a whole table, with everything nested in it, and returns the first error.
///
/// # Errors
/// The first error of any of its entries.
pub fn check(table: &[u8]) -> Result<(), WireError> {
    check_with(table, |_| ())
}

/// The same, and shows the names of its own entries.
pub(super) fn check_with(table: &[u8], mut see: impl FnMut(&[u8])) -> Result<(), WireError> {
    let mut left = VALUES_MAX;
    entries(table).try_for_each(|entry| {
        let (name, value) = entry?;
        see(name);
        value.check(&mut left)
    })
}

/// One value of a table or an array. Numbers keep their width; text is not checked to be UTF-8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// `t`
    Bool(bool),
    /// `b`
    I8(i8),
    /// `B`
    U8(u8),
    /// `s`, or `U` of clients that follow the specification instead of RabbitMQ
    I16(i16),
    /// `u`
    U16(u16),
    /// `I`
    I32(i32),
    /// `i`
    U32(u32),
    /// `l`, or `L`, which RabbitMQ reads as signed, too
    I64(i64),
    /// `f`
    F32(f32),
    /// `d`
    F64(f64),
    /// `D`: `value` divided by ten to the power of `scale`
    Decimal { scale: u8, value: i32 },
    /// `S`
    Text(&'a [u8]),
    /// `x`
    Bytes(&'a [u8]),
    /// `A`
    Array(ArrayRef<'a>),
    /// `T`: seconds since 1970
    Timestamp(u64),
    /// `F`
    Table(TableRef<'a>),
    /// `V`
    Void,
}

/// A table inside a value; its content is not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRef<'a> {
    bytes: &'a [u8],
    depth: usize,
}

impl<'a> TableRef<'a> {
    /// The table as on the wire, without its length.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    #[must_use]
    pub fn entries(self) -> Entries<'a> {
        Entries { rest: Reader { bytes: self.bytes, depth: self.depth } }
    }

    fn check(self, left: &mut usize) -> Result<(), WireError> {
        self.entries().try_for_each(|entry| entry?.1.check(left))
    }
}

/// An array inside a value; its content is not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayRef<'a> {
    bytes: &'a [u8],
    depth: usize,
}

impl<'a> ArrayRef<'a> {
    /// The array as on the wire, without its length.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    #[must_use]
    pub fn values(self) -> Values<'a> {
        Values { rest: Reader { bytes: self.bytes, depth: self.depth } }
    }

    fn check(self, left: &mut usize) -> Result<(), WireError> {
        self.values().try_for_each(|value| value?.check(left))
    }
}

impl ValueRef<'_> {
    /// Recursion is bounded by [`DEPTH_MAX`].
    fn check(self, left: &mut usize) -> Result<(), WireError> {
        *left = left.checked_sub(1).ok_or(WireError::TooMany { what: TABLE, of: "values", max: VALUES_MAX })?;
        match self {
            ValueRef::Table(table) => table.check(left),
            ValueRef::Array(array) => array.check(left),
            _ => Ok(()),
        }
    }
}

/// The entries of a table, in their order on the wire; a name may come twice.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: Reader<'a>,
}

impl Entries<'_> {
    /// How many bytes are not read yet.
    pub(super) fn left(&self) -> usize {
        self.rest.bytes.len()
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(&'a [u8], ValueRef<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.bytes.is_empty() {
            return None;
        }
        let entry = self.rest.entry();
        if entry.is_err() {
            self.rest.bytes = &[];
        }
        Some(entry)
    }
}

/// The values of an array, in order.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    rest: Reader<'a>,
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<ValueRef<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.bytes.is_empty() {
            return None;
        }
        let value = self.rest.value();
        if value.is_err() {
            self.rest.bytes = &[];
        }
        Some(value)
    }
}

#[derive(Clone, Debug)]
struct Reader<'a> {
    bytes: &'a [u8],
    depth: usize,
}

impl<'a> Reader<'a> {
    fn entry(&mut self) -> Result<(&'a [u8], ValueRef<'a>), WireError> {
        let [length] = self.array()?;
        let name = self.slice(usize::from(length))?;
        Ok((name, self.value()?))
    }

    fn value(&mut self) -> Result<ValueRef<'a>, WireError> {
        let [tag] = self.array()?;
        Ok(match tag {
            b't' => ValueRef::Bool(self.array::<1>()? != [0]),
            b'b' => ValueRef::I8(i8::from_be_bytes(self.array()?)),
            b'B' => ValueRef::U8(u8::from_be_bytes(self.array()?)),
            b's' | b'U' => ValueRef::I16(i16::from_be_bytes(self.array()?)),
            b'u' => ValueRef::U16(u16::from_be_bytes(self.array()?)),
            b'I' => ValueRef::I32(i32::from_be_bytes(self.array()?)),
            b'i' => ValueRef::U32(u32::from_be_bytes(self.array()?)),
            b'l' | b'L' => ValueRef::I64(i64::from_be_bytes(self.array()?)),
            b'f' => ValueRef::F32(f32::from_be_bytes(self.array()?)),
            b'd' => ValueRef::F64(f64::from_be_bytes(self.array()?)),
            b'D' => self.decimal()?,
            b'S' => ValueRef::Text(self.long_slice()?),
            b'x' => ValueRef::Bytes(self.long_slice()?),
            b'A' => ValueRef::Array(ArrayRef { depth: self.deeper()?, bytes: self.long_slice()? }),
            b'T' => ValueRef::Timestamp(u64::from_be_bytes(self.array()?)),
            b'F' => ValueRef::Table(TableRef { depth: self.deeper()?, bytes: self.long_slice()? }),
            b'V' => ValueRef::Void,
            _ => return Err(WireError::UnknownTag { what: TABLE, tag }),
        })
    }

    fn decimal(&mut self) -> Result<ValueRef<'a>, WireError> {
        let [scale] = self.array()?;
        Ok(ValueRef::Decimal { scale, value: i32::from_be_bytes(self.array()?) })
    }

    fn deeper(&self) -> Result<usize, WireError> {
        if self.depth >= DEPTH_MAX {
            return Err(WireError::TooDeep { what: TABLE, max: DEPTH_MAX });
        }
        Ok(self.depth + 1)
    }

    fn long_slice(&mut self) -> Result<&'a [u8], WireError> {
        let length = u32::from_be_bytes(self.array()?);
        self.slice(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let Some((taken, rest)) = self.bytes.split_first_chunk::<N>() else { return Err(self.truncated(N)) };
        self.bytes = rest;
        Ok(*taken)
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(length) else { return Err(self.truncated(length)) };
        self.bytes = rest;
        Ok(taken)
    }

    fn truncated(&self, wanted: usize) -> WireError {
        WireError::Truncated { what: TABLE, wanted: wanted as u64, left: self.bytes.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use proptest::prelude::*;

    use super::*;

    fn named(name: &str, value: &[u8]) -> Vec<u8> {
        [&[u8::try_from(name.len()).unwrap()], name.as_bytes(), value].concat()
    }

    fn long(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag], &u32::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
    }

    fn only(value: &[u8]) -> Result<ValueRef<'_>, WireError> {
        let mut values = ArrayRef { bytes: value, depth: 1 }.values();
        let first = values.next().unwrap();
        assert!(values.next().is_none());
        first
    }

    #[test]
    fn every_tag_is_read_big_endian() {
        let cases: [(&[u8], ValueRef<'_>); 18] = [
            (b"t\x01", ValueRef::Bool(true)),
            (b"b\xff", ValueRef::I8(-1)),
            (b"B\xff", ValueRef::U8(255)),
            (b"s\xff\xfe", ValueRef::I16(-2)),
            (b"U\xff\xfe", ValueRef::I16(-2)),
            (b"u\x01\x02", ValueRef::U16(0x0102)),
            (b"I\xff\xff\xff\xfd", ValueRef::I32(-3)),
            (b"i\x01\x02\x03\x04", ValueRef::U32(0x0102_0304)),
            (b"l\xff\xff\xff\xff\xff\xff\xff\xfc", ValueRef::I64(-4)),
            (b"L\xff\xff\xff\xff\xff\xff\xff\xfc", ValueRef::I64(-4)),
            (b"f\x3f\x80\x00\x00", ValueRef::F32(1.0)),
            (b"d\x3f\xf0\x00\x00\x00\x00\x00\x00", ValueRef::F64(1.0)),
            (b"D\x02\x00\x00\x00\x7b", ValueRef::Decimal { scale: 2, value: 123 }),
            (b"S\x00\x00\x00\x02hi", ValueRef::Text(b"hi")),
            (b"x\x00\x00\x00\x01\x00", ValueRef::Bytes(b"\x00")),
            (b"T\x00\x00\x00\x00\x00\x00\x01\x00", ValueRef::Timestamp(256)),
            (b"A\x00\x00\x00\x01V", ValueRef::Array(ArrayRef { bytes: b"V", depth: 2 })),
            (b"F\x00\x00\x00\x03\x01aV", ValueRef::Table(TableRef { bytes: b"\x01aV", depth: 2 })),
        ];
        for (bytes, value) in cases {
            assert_eq!(only(bytes), Ok(value));
        }
        assert_eq!(only(b"V"), Ok(ValueRef::Void));
    }

    #[test]
    fn entries_come_in_their_order_with_their_names() {
        let table = [named("a", b"t\x00"), named("", b"V"), named("a", b"B\x07")].concat();

        let read: Result<Vec<_>, _> = entries(&table).collect();

        let expected: Vec<(&[u8], _)> =
            vec![(b"a", ValueRef::Bool(false)), (b"", ValueRef::Void), (b"a", ValueRef::U8(7))];
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn reading_ends_after_the_first_error() {
        let table = [named("a", b"V"), named("b", b"?"), named("c", b"V")].concat();

        let read: Vec<_> = entries(&table).collect();

        assert_eq!(read.len(), 2);
        assert_eq!(read.last(), Some(&Err(WireError::UnknownTag { what: TABLE, tag: b'?' })));
    }

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        let table = named("a", b"S\xff\xff\xff\xffhi");

        let error = WireError::Truncated { what: TABLE, wanted: u64::from(u32::MAX), left: 2 };
        assert_eq!(check(&table), Err(error));
    }

    #[test]
    fn a_table_cut_anywhere_inside_an_entry_is_refused() {
        let table = named("key", &long(b'F', &named("k", &long(b'A', b"D\x02\x00\x00\x00\x7b"))));

        assert_eq!(check(&table), Ok(()));
        for length in 1..table.len() {
            assert!(check(table.get(..length).unwrap()).is_err(), "{length}");
        }
    }

    #[test]
    fn nesting_is_read_to_its_bound_and_refused_beyond() {
        let nested = |depth: usize| (1..depth).fold(Vec::new(), |inner, _| named("k", &long(b'F', &inner)));

        assert_eq!(check(&nested(DEPTH_MAX)), Ok(()));
        assert_eq!(check(&nested(DEPTH_MAX + 1)), Err(WireError::TooDeep { what: TABLE, max: DEPTH_MAX }));
    }

    #[derive(Clone, Debug)]
    enum Value {
        Leaf(Vec<u8>),
        Array(Vec<Value>),
        Table(Vec<(String, Value)>),
    }

    impl Value {
        fn bytes(&self) -> Vec<u8> {
            match self {
                Value::Leaf(bytes) => bytes.clone(),
                Value::Array(values) => long(b'A', &values.iter().flat_map(Value::bytes).collect::<Vec<_>>()),
                Value::Table(entries) => long(b'F', &table_bytes(entries)),
            }
        }

        fn is(&self, read: ValueRef<'_>) -> bool {
            match (self, read) {
                (Value::Array(values), ValueRef::Array(array)) => {
                    let read: Vec<_> = array.values().map(Result::unwrap).collect();
                    read.len() == values.len() && values.iter().zip(read).all(|(value, read)| value.is(read))
                }
                (Value::Table(entries), ValueRef::Table(table)) => is_table(entries, table.entries()),
                (Value::Leaf(bytes), read) => only(bytes) == Ok(read),
                _ => false,
            }
        }
    }

    fn table_bytes(entries: &[(String, Value)]) -> Vec<u8> {
        entries.iter().flat_map(|(name, value)| named(name, &value.bytes())).collect()
    }

    fn is_table(written: &[(String, Value)], read: Entries<'_>) -> bool {
        let read: Vec<_> = read.map(Result::unwrap).collect();
        let is_same = |((name, value), (read_name, read)): (&(String, Value), &(&[u8], ValueRef<'_>))| {
            name.as_bytes() == *read_name && value.is(*read)
        };
        read.len() == written.len() && written.iter().zip(&read).all(is_same)
    }

    fn tables() -> impl Strategy<Value = Vec<(String, Value)>> {
        let leaf = prop_oneof![
            Just(b"V".to_vec()),
            any::<bool>().prop_map(|value| vec![b't', u8::from(value)]),
            any::<i64>().prop_map(|value| [b"l", &value.to_be_bytes()[..]].concat()),
            any::<u32>().prop_map(|value| [b"i", &value.to_be_bytes()[..]].concat()),
            any::<Vec<u8>>().prop_map(|content| long(b'x', &content)),
            ".{0,8}".prop_map(|text| long(b'S', text.as_bytes())),
        ];
        let value = leaf.prop_map(Value::Leaf).prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::vec(("[a-z]{0,5}", inner), 0..4).prop_map(Value::Table),
            ]
        });
        prop::collection::vec(("[a-zé]{0,9}", value), 0..6)
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(table in tables()) {
            let bytes = table_bytes(&table);
            prop_assert_eq!(check(&bytes), Ok(()));
            prop_assert!(is_table(&table, entries(&bytes)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let is_good = entries(&bytes).all(|entry| entry.is_ok());
            prop_assert!(check(&bytes).is_err() || is_good);
        }

        #[test]
        fn a_corrupt_table_is_read_or_refused(table in tables(), place: prop::sample::Index, byte: u8) {
            let mut bytes = table_bytes(&table);
            if let Some(length) = std::num::NonZeroUsize::new(bytes.len())
                && let Some(corrupt) = bytes.get_mut(place.index(length.get()))
            {
                *corrupt = byte;
            }
            let _read_or_refused = check(&bytes);
        }
    }
}
