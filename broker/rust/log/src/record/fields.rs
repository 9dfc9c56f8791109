//! Reading fields one after the other, and those that both formats have.

use std::num::NonZeroU32;

use super::{Attributes, DecodeError, MarkView, Producer};

/// The remaining bytes of a head.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(DecodeError::Fields)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], DecodeError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(DecodeError::Fields)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|&[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(|bytes| u16::from_le_bytes(*bytes))
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// A time, or another number of six bytes.
    pub(super) fn u48(&mut self) -> Result<u64, DecodeError> {
        self.array().map(|&[a, b, c, d, e, f]| u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }
}

/// The parts of a message that flags announce.
#[derive(Default)]
pub(super) struct Optional<'a> {
    /// Where they are more than the fixed part can say.
    pub(super) properties_bytes: Option<u32>,
    pub(super) key: Option<&'a [u8]>,
    pub(super) producer: Option<Producer>,
    pub(super) batch_digest: Option<NonZeroU32>,
    pub(super) original: Option<u32>,
    pub(super) attributes: Attributes,
}

pub(super) fn key_in<'a>(head: &mut Fields<'a>) -> Result<&'a [u8], DecodeError> {
    let bytes = head.u16()?;
    head.take(usize::from(bytes))
}

pub(super) fn mark_in<'a>(head: &mut Fields<'a>) -> Result<MarkView<'a>, DecodeError> {
    let (owner_bytes, key_bytes, value_bytes) = (head.u16()?, head.u16()?, head.u32()?);
    let owner = head.take(usize::from(owner_bytes))?;
    let key = head.take(usize::from(key_bytes))?;
    Ok(MarkView { owner, key, value: head.take(value_bytes as usize)? })
}
