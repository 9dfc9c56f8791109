//! A JSON value as text: without white space, numbers as they were written, texts with as few escapes as possible.

use jiter::{Jiter, Peek};

use crate::fault::Fault;

/// As deep as a value may be nested that is skipped.
const DEPTH_MAX: usize = 200;

/// Appends the next value.
pub(crate) fn write(json: &mut Jiter<'_>, peek: Peek, out: &mut Vec<u8>) -> Result<(), Fault> {
    write_within(json, peek, out, 0)
}

fn write_within(json: &mut Jiter<'_>, peek: Peek, out: &mut Vec<u8>, depth: usize) -> Result<(), Fault> {
    match peek {
        Peek::Null => {
            json.known_null()?;
            out.extend_from_slice(b"null");
        }
        Peek::True | Peek::False => out.extend_from_slice(if json.known_bool(peek)? { b"true" } else { b"false" }),
        Peek::String => quote(json.known_str()?, out),
        Peek::Array | Peek::Object if depth == DEPTH_MAX => {
            return Err(Fault::of_body(&format!("more than {DEPTH_MAX} levels")));
        }
        Peek::Array => write_array(json, out, depth + 1)?,
        Peek::Object => write_object(json, out, depth + 1)?,
        number => out.extend_from_slice(json.known_number_bytes(number)?),
    }
    Ok(())
}

fn write_array(json: &mut Jiter<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), Fault> {
    let mut separator = b'[';
    let mut item = json.known_array()?;
    while let Some(peek) = item {
        out.push(separator);
        write_within(json, peek, out, depth)?;
        separator = b',';
        item = json.array_step()?;
    }
    out.extend_from_slice(if separator == b'[' { b"[]" } else { b"]" });
    Ok(())
}

fn write_object(json: &mut Jiter<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), Fault> {
    let mut separator = b'{';
    let mut is_open = json.known_object()?.map(|key| name(key, separator, out)).is_some();
    while is_open {
        let peek = json.peek()?;
        write_within(json, peek, out, depth)?;
        separator = b',';
        is_open = json.next_key()?.map(|key| name(key, separator, out)).is_some();
    }
    out.extend_from_slice(if separator == b'{' { b"{}" } else { b"}" });
    Ok(())
}

fn name(key: &str, separator: u8, out: &mut Vec<u8>) {
    out.push(separator);
    quote(key, out);
    out.push(b':');
}

fn quote(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}
