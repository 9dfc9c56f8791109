//! Errors of untrusted bytes. Every variant names the thing and the rule it broke, so that a front end can pass the
//! text to the client unchanged; it does not know status codes.

/// Why bytes could not be read (or properties could not be converted).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("{what} ends early: {wanted} bytes are announced and {left} are left")]
    Truncated { what: &'static str, wanted: u64, left: u64 },
    #[error("{what} holds a number of more than 64 bits; encode it as the protocol says")]
    Varint { what: &'static str },
    #[error(
        "field {field} of {what} has wire type {wire_type}, which differs from its definition; regenerate the client"
    )]
    WireType { what: &'static str, field: u32, wire_type: u8 },
    #[error("{what} is not valid UTF-8; names and texts must be UTF-8")]
    NotUtf8 { what: &'static str },
    #[error("{what} has {size} bytes; at most {max} are allowed")]
    TooLong { what: &'static str, size: usize, max: usize },
    #[error("{what} nests deeper than {max} levels; flatten it")]
    TooDeep { what: &'static str, max: usize },
    #[error("{what} has the unknown type tag {tag:#04x}; known are t b B s U u I i l L f d D S x A T F V")]
    UnknownTag { what: &'static str, tag: u8 },
    #[error("{what} is out of range: {rule}")]
    OutOfRange { what: &'static str, rule: &'static str },
    #[error("{what} has more than {max} {of}; send several")]
    TooMany { what: &'static str, of: &'static str, max: usize },
    #[error("{what} is empty; set exactly one of its contents")]
    Empty { what: &'static str },
    #[error("{what} is set more than once; set it once")]
    Repeated { what: &'static str },
}
