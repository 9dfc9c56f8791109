//! Reading as little of a message as folding needs.

use super::{
    HEADER_BYTES, KIND_MESSAGE, MESSAGE_FIXED_BYTES, Position, TARGET_BYTES, Target, le_u32, le_u64, targets_in,
    verify_head,
};
use crate::format::Format;

/// The parts of a message that folding needs: its targets and its body's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outline<'a> {
    pub(crate) length: u32,
    pub(crate) body_bytes: u64,
    pub(crate) position: Position,
    targets: &'a [u8],
    format: Format,
}

impl<'a> Outline<'a> {
    /// Whether the checksum of the head matches, and the record ends within these bytes that it was read from.
    #[inline]
    pub(crate) fn holds(&self, bytes: &[u8], seed: u32) -> bool {
        let head_bytes = HEADER_BYTES + MESSAGE_FIXED_BYTES + self.targets.len();
        self.length as usize <= bytes.len() && verify_head(bytes, head_bytes, seed).is_ok()
    }

    pub(crate) fn targets(&self) -> impl Iterator<Item = Target> + use<'a> {
        targets_in(self.targets, self.format)
    }
}

/// The outline of a message without flags: folding reads every record of a log, and nearly all are of this kind. `None`
/// for all others, which [`decode_with`] reads.
pub(crate) fn outline(bytes: &[u8], format: Format) -> Option<Outline<'_>> {
    let fixed: &[u8; HEADER_BYTES + MESSAGE_FIXED_BYTES] = bytes.first_chunk()?;
    if fixed[4..6] != [KIND_MESSAGE, 0] {
        return None;
    }
    let length = le_u32(fixed);
    let targets_bytes = usize::from(u16::from_le_bytes([fixed[6], fixed[7]])) * TARGET_BYTES;
    let targets = bytes.get(fixed.len()..fixed.len() + targets_bytes)?;
    let before_body =
        usize::from(fixed[30]) + usize::from(fixed[31]) + usize::from(u16::from_le_bytes([fixed[32], fixed[33]]));
    let body_bytes = u64::from(length).checked_sub((fixed.len() + targets_bytes + before_body) as u64)?;
    Some(Outline { length, body_bytes, position: Position(le_u64(&fixed[8..16])), targets, format })
}
