//! Comparison of two replicas of a shard: lists of positions and checksums of committed records, as bytes for another broker.
//!
//! Invariants: only committed records are listed, which every replica has or had at their positions with the same checksums. One that only one of two lists has was
//! removed from the other log. A list has at most [`RECORDS_MAX`] records, and bytes of another broker are checked before anything is taken from them.

use penstock_log::{Listed, LogError, Position};

use crate::shard::Shard;

/// The records of a list, which has 12 bytes for each.
pub const RECORDS_MAX: usize = 32_768;
/// Differences of which the records are named.
pub const NAMED_MAX: usize = 16;
const RECORD_BYTES: usize = 12;

/// A record that two logs have with other checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    pub position: u64,
    pub own: u32,
    pub other: u32,
}

/// The result of comparing two lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Everything before it is compared.
    pub until: u64,
    /// The records that both have.
    pub count: usize,
    pub differing: usize,
    /// The first of those.
    pub named: Vec<Difference>,
}

/// Why bytes are no list of the records from a position on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the list of records is malformed, or of another range than asked for")]
pub struct NotAList;

impl Shard {
    /// A list of the committed records from a position on up to another, of one segment. `None` where the replica is not open. Blocks.
    ///
    /// # Errors
    /// When they cannot be read from the disk, or are of format 1.
    pub fn list_checksums(&self, from: u64, until: u64) -> Option<Result<Vec<u8>, LogError>> {
        let work = || {
            let begun = self.with_log(|log| log.begin_listing(Position(from)..Position(until.max(from))))?;
            Some(begun.and_then(|ticket| ticket.perform(RECORDS_MAX)).map(|listed| encode(&listed)))
        };
        self.working.on(self.working.log(), work).flatten()
    }
}

fn encode(listed: &Listed) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + listed.records.len() * RECORD_BYTES);
    bytes.extend_from_slice(&listed.until.0.to_le_bytes());
    for (position, checksum) in &listed.records {
        bytes.extend_from_slice(&position.0.to_le_bytes());
        bytes.extend_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

/// A list of records from a position on: where it ends, and the records in their order.
fn decode(from: u64, bytes: &[u8]) -> Result<Listed, NotAList> {
    let (until, records) = bytes.split_first_chunk::<8>().ok_or(NotAList)?;
    let (until, count) = (u64::from_le_bytes(*until), records.len() / RECORD_BYTES);
    if until < from || records.len() % RECORD_BYTES != 0 || count > RECORDS_MAX {
        return Err(NotAList);
    }
    let mut listed = Listed { until: Position(until), records: Vec::with_capacity(count) };
    let mut least = from;
    for record in records.chunks_exact(RECORD_BYTES) {
        let (position, checksum) = record.split_first_chunk::<8>().ok_or(NotAList)?;
        let position = u64::from_le_bytes(*position);
        if position < least || position >= until {
            return Err(NotAList);
        }
        least = position + 1;
        let checksum = checksum.first_chunk::<4>().ok_or(NotAList)?;
        listed.records.push((Position(position), u32::from_le_bytes(*checksum)));
    }
    Ok(listed)
}

/// Compares a list with that of another broker, both from the same position on, as far as both go.
///
/// # Errors
/// Where one of them is no such list, or that of the other broker goes further than the own one, which it was asked for.
pub fn compare(from: u64, own: &[u8], other: &[u8]) -> Result<Compared, NotAList> {
    let (own, other) = (decode(from, own)?, decode(from, other)?);
    if other.until > own.until {
        return Err(NotAList);
    }
    let mut compared = Compared { until: other.until.0, count: 0, differing: 0, named: Vec::new() };
    for (position, own) in own.records {
        let found = other.records.binary_search_by_key(&position, |&(position, _)| position);
        let Some(&(_, other)) = found.ok().and_then(|at| other.records.get(at)) else { continue };
        compared.count += 1;
        if own != other {
            compared.differing += 1;
            if compared.named.len() < NAMED_MAX {
                compared.named.push(Difference { position: position.0, own, other });
            }
        }
    }
    Ok(compared)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn list(until: u64, records: &[(u64, u32)]) -> Vec<u8> {
        let records = records.iter().map(|&(position, checksum)| (Position(position), checksum)).collect();
        encode(&Listed { until: Position(until), records })
    }

    #[test]
    fn only_records_that_both_have_are_compared_and_only_as_far_as_both_lists_go() {
        let own = list(90, &[(10, 1), (20, 2), (30, 3), (60, 6), (70, 7)]);
        let other = list(70, &[(10, 1), (30, 4), (40, 5), (60, 6)]);

        let compared = compare(10, &own, &other).unwrap();

        let differs = Difference { position: 30, own: 3, other: 4 };
        assert_eq!(compared, Compared { until: 70, count: 3, differing: 1, named: vec![differs] });
    }

    #[test]
    fn all_differences_are_counted_and_the_first_are_named() {
        let records = |checksum| (0..100).map(|position| (position, checksum)).collect::<Vec<_>>();

        let compared = compare(0, &list(100, &records(1)), &list(100, &records(2))).unwrap();

        assert_eq!((compared.differing, compared.named.len()), (100, NAMED_MAX));
        assert_eq!(compared.named[1].position, 1);
    }

    #[test]
    fn a_list_of_another_range_or_without_an_order_is_refused() {
        let own = list(90, &[(10, 1)]);
        for other in [
            list(91, &[]),
            list(9, &[]),
            list(90, &[(9, 1)]),
            list(90, &[(90, 1)]),
            list(90, &[(20, 1), (20, 1)]),
            list(90, &[(20, 1), (15, 1)]),
            list(90, &[(u64::MAX, 1)]),
            vec![0; 7],
            list(90, &[(20, 1)])[..19].to_vec(),
            vec![0xff; 8 + RECORD_BYTES * (RECORDS_MAX + 1)],
        ] {
            assert_eq!(compare(10, &own, &other), Err(NotAList), "{:?}", &other[..other.len().min(40)]);
        }
    }

    #[test]
    fn any_bytes_are_compared_or_refused() {
        let own = list(90, &[(10, 1), (20, 2)]);
        let mut seed = 1_u64;
        for length in (0..64).cycle().take(100_000) {
            let mut other = list(60, &[(10, 1), (20, 2), (30, 3), (40, 4)]);
            other.resize(length, 0);
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if let Some(byte) = other.get_mut((seed >> 33) as usize % 64) {
                *byte = (seed >> 56) as u8;
            }
            if let Ok(compared) = compare(10, &own, &other) {
                assert!(compared.until <= 90 && compared.differing <= compared.count && compared.count <= 2);
            }
        }
    }
}
