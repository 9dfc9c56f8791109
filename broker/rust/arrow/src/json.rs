//! AMQP values as JSON text. Bytes become base64, times seconds, and a number that JSON lacks (NaN, infinity) null.

use std::io::Write;

use penstock_wire::amqp::table::ValueRef;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The table's reader bounds the depth of the recursion; unreadable parts of a table or an array are left out.
pub(crate) fn write_json(value: ValueRef<'_>, out: &mut Vec<u8>) {
    match value {
        ValueRef::Bool(value) => put(out, value),
        ValueRef::I8(value) => put(out, value),
        ValueRef::U8(value) => put(out, value),
        ValueRef::I16(value) => put(out, value),
        ValueRef::U16(value) => put(out, value),
        ValueRef::I32(value) => put(out, value),
        ValueRef::U32(value) => put(out, value),
        ValueRef::I64(value) => put(out, value),
        ValueRef::Timestamp(seconds) => put(out, seconds),
        ValueRef::F32(value) if value.is_finite() => put(out, value),
        ValueRef::F64(value) if value.is_finite() => put(out, value),
        ValueRef::F32(_) | ValueRef::F64(_) | ValueRef::Void => out.extend_from_slice(b"null"),
        ValueRef::Decimal { scale, value } => put(out, format_args!("{value}e-{scale}")),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => write_text(text, out),
            Err(_) => write_base64(text, out),
        },
        ValueRef::Bytes(bytes) => write_base64(bytes, out),
        ValueRef::Array(array) => {
            write_all(b"[]", array.values().map_while(Result::ok), out, write_json);
        }
        ValueRef::Table(table) => {
            write_all(b"{}", table.entries().map_while(Result::ok), out, |(name, value), out| {
                write_text(&String::from_utf8_lossy(name), out);
                out.push(b':');
                write_json(value, out);
            });
        }
    }
}

fn put(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{value}");
}

fn write_all<T>(
    [open, close]: &[u8; 2],
    items: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    write: impl Fn(T, &mut Vec<u8>),
) {
    out.push(*open);
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(*close);
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => put(out, format_args!("\\u{byte:04x}")),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4_usize {
            let digit = (word >> (18 - 6 * place) & 63) as usize;
            out.push(if place > chunk.len() { b'=' } else { BASE64.get(digit).copied().unwrap_or(b'=') });
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use penstock_wire::amqp::table::ValueRef;

    use super::write_json;

    fn json(value: ValueRef<'_>) -> String {
        let mut out = Vec::new();
        write_json(value, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn scalars_are_written_as_json_has_them() {
        assert_eq!(json(ValueRef::Bool(true)), "true");
        assert_eq!(json(ValueRef::I64(i64::MIN)), "-9223372036854775808");
        assert_eq!(json(ValueRef::F64(0.5)), "0.5");
        assert_eq!(json(ValueRef::F64(f64::NAN)), "null");
        assert_eq!(json(ValueRef::Decimal { scale: 2, value: -314 }), "-314e-2");
        assert_eq!(json(ValueRef::Text(b"a \"b\"\\\n")), r#""a \"b\"\\\u000a""#);
    }

    #[test]
    fn bytes_are_padded_base64() {
        assert_eq!(json(ValueRef::Bytes(b"")), r#""""#);
        assert_eq!(json(ValueRef::Bytes(b"f")), r#""Zg==""#);
        assert_eq!(json(ValueRef::Bytes(b"fo")), r#""Zm8=""#);
        assert_eq!(json(ValueRef::Bytes(&[0xff, 0xef, 0xbe])), r#""/+++""#);
        assert_eq!(json(ValueRef::Text(&[0xff])), r#""/w==""#);
    }
}
