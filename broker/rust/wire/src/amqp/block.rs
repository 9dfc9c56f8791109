//! The layout of an AMQP 0-9-1 content-properties block: a u16 of flags, then the fields that the flags announce, in
//! the order of their flags, all big-endian. It finds fields and checks that they are inside the block; it knows no
//! protobuf.

use crate::WireError;

const BLOCK: &str = "an AMQP properties block";

pub(super) const CONTENT_TYPE: u16 = 0x8000;
pub(super) const CONTENT_ENCODING: u16 = 0x4000;
pub(super) const HEADERS: u16 = 0x2000;
pub(super) const DELIVERY_MODE: u16 = 0x1000;
pub(super) const PRIORITY: u16 = 0x0800;
pub(super) const CORRELATION_ID: u16 = 0x0400;
pub(super) const REPLY_TO: u16 = 0x0200;
pub(super) const EXPIRATION: u16 = 0x0100;
pub(super) const MESSAGE_ID: u16 = 0x0080;
pub(super) const TIMESTAMP: u16 = 0x0040;
pub(super) const TYPE: u16 = 0x0020;
pub(super) const USER_ID: u16 = 0x0010;
pub(super) const APP_ID: u16 = 0x0008;
/// `cluster-id` of AMQP 0-9, which 0-9-1 reserves: read and skipped.
const RESERVED: u16 = 0x0004;
/// Announces a further u16 of flags, or stands for an undefined property: refused.
const UNDEFINED: u16 = 0x0003;

/// One field of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field<'a> {
    /// A short string: at most 255 bytes, not checked to be UTF-8.
    Text(&'a [u8]),
    /// The header table without its length.
    Table(&'a [u8]),
    Octet(u8),
    Timestamp(u64),
}

/// Iterator over (flag, field) in the order of the wire; ends after its first error.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    /// Flags not read yet.
    flags: u16,
}

/// Reads the flags; the fields are read when asked for. An empty block has no fields.
pub(super) fn fields(block: &[u8]) -> Result<Fields<'_>, WireError> {
    if block.is_empty() {
        return Ok(Fields { rest: block, flags: 0 });
    }
    let Some((flags, rest)) = block.split_first_chunk::<2>() else { return Err(truncated(block, 2)) };
    let flags = u16::from_be_bytes(*flags);
    if flags & UNDEFINED != 0 {
        return Err(WireError::OutOfRange { what: BLOCK, rule: "the two lowest flags are not defined" });
    }
    Ok(Fields { rest, flags })
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u16, Field<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.flags == 0 {
            return None;
        }
        let flag = 0x8000 >> self.flags.leading_zeros();
        self.flags &= !flag;
        let field = self.read(flag);
        if field.is_err() {
            self.flags = 0;
        }
        Some(field.map(|field| (flag, field)))
    }
}

impl<'a> Fields<'a> {
    /// How many bytes of the block are not read yet.
    pub(super) fn rest_bytes(&self) -> usize {
        self.rest.len()
    }

    /// Whether nothing is behind the fields that were read.
    pub(super) fn is_read(&self) -> bool {
        self.rest.is_empty()
    }

    fn read(&mut self, flag: u16) -> Result<Field<'a>, WireError> {
        Ok(match flag {
            HEADERS => {
                let length = u32::from_be_bytes(self.array()?);
                Field::Table(self.slice(length as usize)?)
            }
            DELIVERY_MODE | PRIORITY => {
                let [octet] = self.array()?;
                Field::Octet(octet)
            }
            TIMESTAMP => Field::Timestamp(u64::from_be_bytes(self.array()?)),
            _ => {
                let [length] = self.array()?;
                Field::Text(self.slice(usize::from(length))?)
            }
        })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else { return Err(truncated(self.rest, N)) };
        self.rest = rest;
        Ok(*taken)
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else { return Err(truncated(self.rest, length)) };
        self.rest = rest;
        Ok(taken)
    }
}

pub(super) fn is_reserved(flag: u16) -> bool {
    flag == RESERVED
}

fn truncated(rest: &[u8], wanted: usize) -> WireError {
    WireError::Truncated { what: BLOCK, wanted: wanted as u64, left: rest.len() as u64 }
}
