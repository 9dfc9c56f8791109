//! The checksums of records. See `docs/format.md`, "Records".
//!
//! Invariant: whichever way a head's checksum is computed, it is that of its bytes one behind the other.

use super::{DecodeError, HEADER_BYTES, ONE_TARGET_BYTES, le_u32};

/// Position of the checksum in a head.
pub(crate) const CRC_AT: usize = 20;
const CRC_BYTES: usize = HEADER_BYTES - CRC_AT;
/// The head of a message for one queue with both of its times.
const SHORT_HEAD_BYTES: usize = ONE_TARGET_BYTES + 12;
/// Parts of at most this size together are copied side by side for their checksum.
const GATHERED_BYTES_MAX: usize = 128;

/// The checksum of a head that ends at `head_bytes`; the checksum's own four bytes are left out.
#[inline]
pub(crate) fn head_crc(record: &[u8], head_bytes: usize, seed: u32) -> u32 {
    if head_bytes == ONE_TARGET_BYTES
        && let Some(head) = record.first_chunk::<ONE_TARGET_BYTES>()
    {
        // Nearly every head takes this path. Parts of a known length are moved by a few instructions.
        let mut gathered = Gathered([0; ONE_TARGET_BYTES - CRC_BYTES]);
        gathered.0[..CRC_AT].copy_from_slice(&head[..CRC_AT]);
        gathered.0[CRC_AT..].copy_from_slice(&head[HEADER_BYTES..]);
        return crc32c::crc32c_append(seed, &gathered.0);
    }
    if (HEADER_BYTES..=SHORT_HEAD_BYTES).contains(&head_bytes)
        && let Some(head) = record.first_chunk::<SHORT_HEAD_BYTES>()
    {
        let mut gathered = Gathered([0; SHORT_HEAD_BYTES - CRC_BYTES]);
        gathered.0[..CRC_AT].copy_from_slice(&head[..CRC_AT]);
        gathered.0[CRC_AT..].copy_from_slice(&head[HEADER_BYTES..]);
        return crc32c::crc32c_append(seed, gathered.0.get(..head_bytes - CRC_BYTES).unwrap_or_default());
    }
    crc_of(seed, [record.get(..CRC_AT).unwrap_or_default(), record.get(HEADER_BYTES..head_bytes).unwrap_or_default()])
}

/// The same for a head of [`ONE_TARGET_BYTES`], whose bytes without the checksum's own are those of numbers of 16, 16 and 10 bytes.
#[inline]
pub(crate) fn short_head_crc([first, second, last]: [u128; 3], seed: u32) -> u32 {
    let mut gathered = Gathered([0; ONE_TARGET_BYTES - CRC_BYTES]);
    gathered.0[..16].copy_from_slice(&first.to_le_bytes());
    gathered.0[16..32].copy_from_slice(&second.to_le_bytes());
    gathered.0[32..].copy_from_slice(&last.to_le_bytes()[..ONE_TARGET_BYTES - CRC_BYTES - 32]);
    crc32c::crc32c_append(seed, &gathered.0)
}

/// A buffer for small inputs: one pass over aligned words takes a third of the time of several over odd bytes.
#[repr(align(8))]
struct Gathered<const N: usize>([u8; N]);

/// The checksum of several parts, one after the other.
#[inline]
pub(crate) fn crc_of<const N: usize>(seed: u32, parts: [&[u8]; N]) -> u32 {
    let mut gathered = Gathered([0; GATHERED_BYTES_MAX]);
    let mut bytes = 0;
    for part in parts {
        let Some(into) = gathered.0.get_mut(bytes..).and_then(|rest| rest.get_mut(..part.len())) else {
            return parts.iter().fold(seed, |crc, part| crc32c::crc32c_append(crc, part));
        };
        into.copy_from_slice(part);
        bytes += part.len();
    }
    crc32c::crc32c_append(seed, gathered.0.get(..bytes).unwrap_or_default())
}

pub(super) fn verify_head(record: &[u8], head_bytes: usize, seed: u32) -> Result<(), DecodeError> {
    let stored = record.get(20..24).map_or(0, le_u32);
    if head_crc(record, head_bytes, seed) == stored { Ok(()) } else { Err(DecodeError::HeadChecksum) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn the_checksum_of_a_head_is_that_of_its_bytes_without_its_own() {
        let record: Vec<u8> = (0..300).map(|at| (at * 7 % 251) as u8).collect();
        for head_bytes in HEADER_BYTES..=250 {
            for record in [&record[..], &record[..head_bytes]] {
                let head = [&record[..CRC_AT], &record[HEADER_BYTES..head_bytes]].concat();

                assert_eq!(head_crc(record, head_bytes, 77), crc32c::crc32c_append(77, &head), "{head_bytes}");
            }
        }
    }
}
