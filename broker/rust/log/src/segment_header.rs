//! The header of a segment: its bytes, and what they say about the records. See `docs/format.md`, "Segments".
//!
//! Invariant: a header with a flag or a format that this version does not know is refused, never taken for a known one.

use std::path::Path;

use crate::epochs::{Codings, Epochs};
use crate::error::{Corruption, LogError};
use crate::format::{Coding, Format};
use crate::record::{Position, le_u32, le_u64};

pub(crate) const SEGMENT_HEADER_BYTES: u64 = 64;
const MAGIC: &[u8; 8] = b"PNSTKSEG";
const FLAG_REWRITTEN: u16 = 1;
/// Where the shard is.
const SHARD_AT: u64 = 56;

/// The first 64 bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) format: Format,
    pub(crate) log_id: [u8; 16],
    pub(crate) segment_id: u64,
    pub(crate) first: Position,
    /// In format 2 that of all its records, or of the first one of a rewritten segment.
    pub(crate) epoch: u64,
    /// Of the log in its virtual host; 0 in format 1.
    pub(crate) shard: u16,
    /// Only format 2 says it here.
    pub(crate) is_rewritten: bool,
}

impl SegmentHeader {
    /// That of a segment of the first shard, as it is appended to.
    pub(crate) fn new(format: Format, log_id: [u8; 16], segment_id: u64, (epoch, first): (u64, Position)) -> Self {
        SegmentHeader { format, log_id, segment_id, first, epoch, shard: 0, is_rewritten: false }
    }

    /// The same in a further shard, where the format has that.
    pub(crate) fn of_shard(self, shard: u16) -> Self {
        SegmentHeader { shard: if self.format == Format::One { 0 } else { shard }, ..self }
    }

    /// # Errors
    /// When the segment is of another shard than that. 0 passes everywhere: before headers had the shard, all had 0.
    pub(crate) fn check_shard(&self, shard: u16, path: &Path) -> Result<(), LogError> {
        if self.shard == 0 || self.shard == shard {
            return Ok(());
        }
        Err(LogError::corrupt(path, SHARD_AT, Corruption::OtherShard { found: self.shard, expected: shard }))
    }

    /// How its records are coded; in a rewritten segment those of its first epoch.
    pub(crate) fn coding(&self) -> Coding {
        match self.format {
            Format::One => Coding::of_segment(self.segment_id),
            Format::Two => Coding::of_epoch(&self.log_id, self.epoch),
        }
    }

    /// The codings of all its records, up to its end.
    pub(crate) fn codings(&self, epochs: &Epochs, end: Position) -> Codings {
        match self.format {
            Format::One => Codings::of_one(self.coding()),
            Format::Two => epochs.codings(&self.log_id, self.coding(), self.first, end),
        }
    }

    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.format.number().to_le_bytes());
        bytes[12..16].copy_from_slice(&(SEGMENT_HEADER_BYTES as u32).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.log_id);
        bytes[32..40].copy_from_slice(&self.segment_id.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.epoch.to_le_bytes());
        if self.format == Format::Two {
            let flags = if self.is_rewritten { FLAG_REWRITTEN } else { 0 };
            bytes[56..58].copy_from_slice(&self.shard.to_le_bytes());
            bytes[58..60].copy_from_slice(&flags.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES as usize], path: &Path) -> Result<SegmentHeader, LogError> {
        if &bytes[..8] != MAGIC || le_u32(&bytes[60..]) != crc32c::crc32c(&bytes[..60]) {
            return Err(LogError::corrupt(path, 0, Corruption::SegmentHeader));
        }
        let found = le_u32(&bytes[8..12]);
        let supported = Format::NEWEST.number();
        let format = Format::of_number(found).ok_or_else(|| LogError::NewerFormat {
            path: path.to_owned(),
            found,
            supported,
        })?;
        let mut log_id = [0; 16];
        log_id.copy_from_slice(&bytes[16..32]);
        let (shard, is_rewritten) = match format {
            Format::One => (0, false),
            Format::Two => {
                let flags = u16::from_le_bytes([bytes[58], bytes[59]]);
                if flags & !FLAG_REWRITTEN != 0 {
                    return Err(LogError::newer_flags(path));
                }
                (u16::from_le_bytes([bytes[56], bytes[57]]), flags == FLAG_REWRITTEN)
            }
        };
        Ok(SegmentHeader {
            format,
            log_id,
            segment_id: le_u64(&bytes[32..40]),
            first: Position(le_u64(&bytes[40..48])),
            epoch: le_u64(&bytes[48..56]),
            shard,
            is_rewritten,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES as usize]) -> Result<SegmentHeader, LogError> {
        SegmentHeader::decode(bytes, Path::new("msgs.0000000001"))
    }

    fn headers() -> impl Strategy<Value = SegmentHeader> {
        (any::<[u8; 16]>(), any::<[u64; 3]>(), any::<u16>(), any::<bool>(), any::<bool>()).prop_map(
            |(log_id, [segment_id, first, epoch], shard, is_rewritten, is_two)| {
                let format = if is_two { Format::Two } else { Format::One };
                let (shard, is_rewritten) = if is_two { (shard, is_rewritten) } else { (0, false) };
                SegmentHeader { format, log_id, segment_id, first: Position(first), epoch, shard, is_rewritten }
            },
        )
    }

    fn with_checksum(mut bytes: [u8; SEGMENT_HEADER_BYTES as usize]) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn one() -> SegmentHeader {
        let (log_id, segment_id, first) = ([7; 16], 0x0102_0304_0506_0708, Position(99));
        SegmentHeader { format: Format::Two, log_id, segment_id, first, epoch: 5, shard: 0x0201, is_rewritten: true }
    }

    #[test]
    fn a_header_of_format_2_is_laid_out_as_the_format_draws_it() {
        let bytes = one().encode();

        assert_eq!(bytes[..8], *b"PNSTKSEG");
        assert_eq!(bytes[8..16], [2, 0, 0, 0, 64, 0, 0, 0]);
        assert_eq!(bytes[16..32], [7; 16]);
        assert_eq!(bytes[32..40], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!((le_u64(&bytes[40..48]), le_u64(&bytes[48..56])), (99, 5));
        assert_eq!(bytes[56..60], [1, 2, 1, 0], "shard and flags");
        assert_eq!(le_u32(&bytes[60..]), crc32c::crc32c(&bytes[..60]));
    }

    #[test]
    fn unknown_flags_and_formats_are_refused_and_are_not_corrupt() {
        let mut flagged = one().encode();
        flagged[58] |= 2;
        let mut newer = one().encode();
        newer[8] = 3;

        let error = decode(&with_checksum(flagged)).unwrap_err();

        assert!(matches!(error, LogError::Newer { .. }));
        assert!(error.to_string().contains(env!("CARGO_PKG_VERSION")), "{error}");
        let error = decode(&with_checksum(newer)).unwrap_err();
        assert!(matches!(error, LogError::NewerFormat { found: 3, supported: 2, .. }));
    }

    #[test]
    fn records_of_one_epoch_are_coded_alike_in_all_segments_of_all_replicas() {
        let other = SegmentHeader { segment_id: 1, first: Position(3), shard: 0, is_rewritten: false, ..one() };

        assert_eq!(one().coding(), other.coding());
        assert_ne!(one().coding(), SegmentHeader { epoch: 6, ..one() }.coding());
        assert_ne!(one().coding(), SegmentHeader { log_id: [8; 16], ..one() }.coding());
        let first = SegmentHeader { format: Format::One, ..one() };
        assert_ne!(first.coding(), SegmentHeader { segment_id: 1, ..first }.coding());
    }

    proptest! {
        #[test]
        fn headers_are_read_back_and_any_change_is_noticed(header in headers(), bit in 0..512_usize) {
            let mut bytes = header.encode();
            prop_assert_eq!(decode(&bytes).unwrap(), header);

            bytes[bit / 8] ^= 1 << (bit % 8);

            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_refused_or_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 64), format in 0..4_u8) {
            let mut bytes: [u8; 64] = bytes.try_into().unwrap();
            bytes[..8].copy_from_slice(MAGIC);
            bytes[8..12].copy_from_slice(&[format, 0, 0, 0]);
            let _ = decode(&with_checksum(bytes));
        }
    }
}
