//! Appends protobuf fields to a vector. Fields with their default are left out, as in proto3. An unknown length is
//! reserved as five bytes and patched, so that its content is never moved.

/// A length reserved before its contents are written: a varint padded to five bytes, which every reader accepts.
pub const LENGTH_PADDED_BYTES: usize = 5;

/// How many bytes `value` takes as a varint.
#[inline]
pub const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The key and length of a length-delimited field whose contents follow.
#[inline]
pub fn put_len_head(out: &mut Vec<u8>, field: u32, length: usize) {
    put_varint(out, u64::from(field << 3 | 2));
    put_varint(out, length as u64);
}

/// A length-delimited field, even when it is empty.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_len_head(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// A text field; left out when empty.
#[inline]
pub fn put_text(out: &mut Vec<u8>, field: u32, text: &str) {
    if !text.is_empty() {
        put_bytes(out, field, text.as_bytes());
    }
}

/// A number; left out when zero.
#[inline]
pub fn put_uint(out: &mut Vec<u8>, field: u32, value: u64) {
    if value != 0 {
        put_varint(out, u64::from(field << 3));
        put_varint(out, value);
    }
}

/// A truth value; left out when false.
#[inline]
pub fn put_bool(out: &mut Vec<u8>, field: u32, value: bool) {
    put_uint(out, field, u64::from(value));
}

/// Starts a length-delimited field of unknown length; returns where its content begins, for `end_length`.
#[inline]
pub fn begin_length(out: &mut Vec<u8>, field: u32) -> usize {
    put_varint(out, u64::from(field << 3 | 2));
    out.extend_from_slice(&[0; LENGTH_PADDED_BYTES]);
    out.len()
}

/// Patches the length of everything written since `begin_length` returned `contents`.
#[inline]
pub fn end_length(out: &mut [u8], contents: usize) {
    let length = (out.len() - contents) as u64;
    debug_assert!(length < 1 << (7 * LENGTH_PADDED_BYTES));
    let Some(slot) = out.get_mut(contents - LENGTH_PADDED_BYTES..contents) else { return };
    let last = slot.len() - 1;
    for (index, byte) in slot.iter_mut().enumerate() {
        *byte = (length >> (7 * index)) as u8 & 0x7f | if index == last { 0 } else { 0x80 };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::protobuf::Reader;

    #[test]
    fn a_reserved_length_reads_back() {
        for size in [0usize, 1, 127, 128, 70_000] {
            let mut out = Vec::new();

            let contents = begin_length(&mut out, 2);
            out.resize(out.len() + size, 7);
            end_length(&mut out, contents);

            let mut reader = Reader::new(&out, "a test");
            assert_eq!(reader.field().unwrap().unwrap().0, 2);
            assert_eq!(reader.bytes().unwrap().len(), size);
            assert!(reader.field().unwrap().is_none());
        }
    }

    #[test]
    fn defaults_are_left_out() {
        let mut out = Vec::new();

        put_uint(&mut out, 1, 0);
        put_text(&mut out, 2, "");
        put_bool(&mut out, 3, false);

        assert!(out.is_empty());
    }
}
