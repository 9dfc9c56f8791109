//! Writes AMQP 0-9-1 field tables, and the values in them that other codecs write, too. It knows no depth and no limit:
//! its callers write tables of their own, or have bounded them.

use crate::Name;

/// A table that is written entry after entry behind its length, for frames and for tables in it.
#[derive(Debug)]
pub struct TableWriter<'o> {
    out: &'o mut Vec<u8>,
}

impl TableWriter<'_> {
    /// Return a table's entries, as `write` makes them, without their length.
    #[must_use]
    pub fn entries(write: impl FnOnce(&mut TableWriter<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut TableWriter { out: &mut out });
        out
    }

    pub fn bool(&mut self, name: &str, value: bool) {
        self.name(name);
        put_tagged(self.out, b't', &[u8::from(value)]);
    }

    pub fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        put_long_bytes(self.out, b'S', value.as_bytes());
    }

    pub fn table(&mut self, name: &str, write: impl FnOnce(&mut TableWriter<'_>)) {
        self.name(name);
        self.out.push(b'F');
        let start = begin_long(self.out);
        write(&mut TableWriter { out: self.out });
        end_long(self.out, start);
    }

    fn name(&mut self, name: &str) {
        put_short(self.out, Name::cut(name));
    }
}

/// Appends a short string: its length in one octet, and its bytes.
#[inline]
pub(super) fn put_short(out: &mut Vec<u8>, text: Name<'_>) {
    // A name has at most 255 bytes.
    out.push(text.as_bytes().len() as u8);
    out.extend_from_slice(text.as_bytes());
}

pub(super) fn put_tagged(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

pub(super) fn put_long_bytes(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    let start = begin_long(out);
    out.extend_from_slice(bytes);
    end_long(out, start);
}

/// Leaves place for a u32 length; [`end_long`] fills it in.
pub(super) fn begin_long(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len()
}

/// Fills in the length of everything since [`begin_long`]. Frames and properties are far below 4 GiB.
pub(super) fn end_long(out: &mut [u8], start: usize) {
    let length = (out.len() - start) as u32;
    if let Some(slot) = out.get_mut(start - 4..start) {
        slot.copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests {
    use super::TableWriter;
    use crate::amqp::table::{ValueRef, check, entries};

    #[test]
    fn a_written_table_is_read() {
        let table = TableWriter::entries(|table| {
            table.text("product", "Penstock");
            table.table("capabilities", |inner| inner.bool("basic.nack", true));
            table.bool("last", false);
        });

        assert_eq!(check(&table), Ok(()));
        let read: Vec<_> = entries(&table).map(Result::unwrap).collect();
        assert_eq!(read[0], (&b"product"[..], ValueRef::Text(b"Penstock")));
        let ValueRef::Table(capabilities) = read[1].1 else { panic!("{read:?}") };
        assert_eq!(capabilities.entries().next(), Some(Ok((&b"basic.nack"[..], ValueRef::Bool(true)))));
        assert_eq!(read[2], (&b"last"[..], ValueRef::Bool(false)));
    }
}
