//! Header tables for tests.

/// A field table of texts, without its length.
pub fn table_of(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut table = Vec::new();
    for (name, value) in headers {
        table.push(name.len() as u8);
        table.extend_from_slice(name.as_bytes());
        table.push(b'S');
        table.extend_from_slice(&(value.len() as u32).to_be_bytes());
        table.extend_from_slice(value.as_bytes());
    }
    table
}
