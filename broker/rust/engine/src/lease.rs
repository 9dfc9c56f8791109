//! The leases of one queue: which owner holds which numbered lease, the next number, and their form in marks; see
//! `docs/format.md`, "mark".
//!
//! Invariants: an owner's leases have consecutive numbers after the last acknowledged one; a lease is in here only once
//! its mark is in the log's tail. This module knows neither the log nor the messages.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use penstock_queue::{QueueId, Sequence, SequenceRange, SubscriptionId};
use rustc_hash::FxHashMap;

use crate::error::EngineError;

/// The longest name of an owner.
pub const OWNER_BYTES_MAX: usize = 255;
/// Owners of leases of one queue.
pub const OWNERS_MAX: usize = 256;
/// Unacknowledged leases of one owner. A query has two at most.
pub const LEASES_MAX: usize = 64;
/// Messages of one lease; each takes 16 bytes of memory.
pub const LEASE_MESSAGES_MAX: u64 = 1 << 20;
/// Runs of sequences of one lease: its mark has 16 bytes for each. A lease with more runs ends earlier.
pub const LEASE_RANGES_MAX: usize = 4096;

const RANGE_BYTES: usize = 16;

/// The bits of a sequence by which the parts of a lease are in order: those of the priority, or of a key's lane.
const PRIORITY_SHIFT: u32 = 56;

/// One lease.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Holder of its messages in the queue's machine.
    pub holder: SubscriptionId,
    /// The reserved sequences, ascending. Messages that were dropped since as corrupt still count.
    pub ranges: Vec<SequenceRange>,
    pub bytes: u64,
    pub reserved_at_ms: u64,
}

impl Lease {
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(SequenceRange::count).sum()
    }

    /// The ranges of one of so many parts, each with about as many messages: the highest priority first.
    pub fn part(&self, part: u32, parts: u32) -> Vec<SequenceRange> {
        let (count, parts) = (u128::from(self.count()), u128::from(parts.max(1)));
        let cut = |part: u128| u64::try_from(count * part / parts).unwrap_or(u64::MAX);
        let (mut skipped, mut left) = (cut(u128::from(part)), cut(u128::from(part) + 1) - cut(u128::from(part)));
        let mut found = Vec::new();
        let mut ranges: Vec<&SequenceRange> = self.ranges.iter().collect();
        // In each of these that of a lane of keys is behind the other.
        ranges.sort_by_key(|range| Reverse(range.first.0 >> PRIORITY_SHIFT));
        for range in ranges {
            let passed = skipped.min(range.count());
            skipped -= passed;
            let wanted = left.min(range.count() - passed);
            if wanted > 0 {
                let first = Sequence(range.first.0 + passed);
                found.push(SequenceRange { first, last: Sequence(first.0 + wanted - 1) });
                left -= wanted;
            }
        }
        found
    }

    pub fn mark(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(16 + RANGE_BYTES * self.ranges.len());
        value.extend_from_slice(&self.reserved_at_ms.to_le_bytes());
        value.extend_from_slice(&self.bytes.to_le_bytes());
        for range in &self.ranges {
            value.extend_from_slice(&range.first.0.to_le_bytes());
            value.extend_from_slice(&range.last.0.to_le_bytes());
        }
        value
    }
}

/// An owner of leases of one queue.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    /// Leases up to this number are settled and removed.
    pub acked: u64,
    pub leases: BTreeMap<u64, Lease>,
}

impl Owner {
    /// The highest number ever assigned, unless it was released.
    pub fn last(&self) -> u64 {
        self.leases.last_key_value().map_or(self.acked, |(&number, _)| number)
    }
}

/// All leases of one queue.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    pub owners: BTreeMap<String, Owner>,
}

impl Leases {
    pub fn has_any(&self) -> bool {
        self.owners.values().any(|owner| !owner.leases.is_empty())
    }

    /// The lease when it is there; `None` when it is the one that comes next.
    ///
    /// # Errors
    /// `LeaseOwner`; `LeaseNumber` when it is neither; `TooMany`.
    pub fn find(&self, queue: &str, owner: &str, number: u64) -> Result<Option<&Lease>, EngineError> {
        check_owner(owner)?;
        let found = self.owners.get(owner);
        if let Some(lease) = found.and_then(|found| found.leases.get(&number)) {
            return Ok(Some(lease));
        }
        let last = found.map_or(0, Owner::last);
        if number == 0 || number != last.saturating_add(1) {
            return Err(wrong_number(queue, owner, number, last));
        }
        if found.is_none() && self.owners.len() >= OWNERS_MAX {
            return Err(EngineError::TooMany { what: "owners of leases of this queue", max: OWNERS_MAX });
        }
        if found.is_some_and(|found| found.leases.len() >= LEASES_MAX) {
            return Err(EngineError::TooMany { what: "leases of this owner", max: LEASES_MAX });
        }
        Ok(None)
    }

    /// # Errors
    /// `NoLease`.
    pub fn get(&self, queue: &str, owner: &str, number: u64) -> Result<&Lease, EngineError> {
        let lease = self.owners.get(owner).and_then(|found| found.leases.get(&number));
        lease.ok_or_else(|| EngineError::NoLease { queue: queue.to_owned(), owner: owner.to_owned(), number })
    }

    /// The owner, when it may acknowledge up to a number; `None` when there is nothing to do.
    ///
    /// # Errors
    /// `LeaseNumber` when that number was never assigned.
    pub fn acking(&mut self, queue: &str, owner: &str, up_to: u64) -> Result<Option<&mut Owner>, EngineError> {
        let last = self.owners.get(owner).map_or(0, Owner::last);
        if up_to > last {
            return Err(wrong_number(queue, owner, up_to, last));
        }
        Ok(self.owners.get_mut(owner).filter(|found| found.acked < up_to))
    }

    /// Notes that some of a lease's messages were dropped.
    pub fn shrink(&mut self, owner: &str, number: u64, bytes: u64) {
        if let Some(lease) = self.owners.get_mut(owner).and_then(|found| found.leases.get_mut(&number)) {
            lease.bytes = lease.bytes.saturating_sub(bytes);
        }
    }

    pub fn insert(&mut self, owner: &str, number: u64, lease: Lease) {
        self.owners.entry(owner.to_owned()).or_default().leases.insert(number, lease);
    }
}

pub(crate) fn check_owner(owner: &str) -> Result<(), EngineError> {
    if owner.is_empty() || owner.len() > OWNER_BYTES_MAX {
        return Err(EngineError::LeaseOwner { bytes: owner.len(), bytes_max: OWNER_BYTES_MAX });
    }
    Ok(())
}

fn wrong_number(queue: &str, owner: &str, number: u64, last: u64) -> EngineError {
    EngineError::LeaseNumber { queue: queue.to_owned(), owner: owner.to_owned(), number, last }
}

/// The mark's key of a lease; number 0 is for the last acknowledged one.
pub(crate) fn key_of(owner: &str, number: u64) -> Vec<u8> {
    [&number.to_le_bytes(), owner.as_bytes()].concat()
}

/// A queue's leases found by a start, by owner and number: nothing is held yet.
pub(crate) type Found = BTreeMap<String, FoundOwner>;

#[derive(Debug, Default)]
pub(crate) struct FoundOwner {
    pub acked: u64,
    pub leases: BTreeMap<u64, FoundLease>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FoundLease {
    pub ranges: Vec<SequenceRange>,
    pub bytes: u64,
    pub reserved_at_ms: u64,
}

impl FoundLease {
    fn parse(value: &[u8]) -> Option<FoundLease> {
        let (head, ranges) = value.split_first_chunk::<16>()?;
        let ranges = ranges.chunks_exact(RANGE_BYTES).filter_map(|range| {
            let (first, last) = (number_at(range, 0)?, number_at(range, 8)?);
            SequenceRange::new(Sequence(first), Sequence(last))
        });
        Some(FoundLease { ranges: ranges.collect(), bytes: number_at(head, 8)?, reserved_at_ms: number_at(head, 0)? })
    }
}

/// The leases in marks, by queue, without those that an acknowledgement left over, because the process died in the
/// middle of it.
pub(crate) fn leases_in(marks: &BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>) -> FxHashMap<QueueId, Found> {
    let mut queues: FxHashMap<QueueId, Found> = FxHashMap::default();
    for ((mark_owner, key), value) in marks {
        let (Some(queue), Some((number, name))) =
            (penstock_log::marks::queue_of_leases(mark_owner), key.split_first_chunk::<8>())
        else {
            continue;
        };
        let (number, name) = (u64::from_le_bytes(*number), String::from_utf8_lossy(name).into_owned());
        let owner = queues.entry(queue).or_default().entry(name).or_default();
        if number == 0 {
            owner.acked = number_at(value, 0).unwrap_or_default();
        } else if let Some(lease) = FoundLease::parse(value) {
            owner.leases.insert(number, lease);
        }
    }
    for owner in queues.values_mut().flat_map(BTreeMap::values_mut) {
        owner.leases = owner.leases.split_off(&owner.acked.saturating_add(1));
    }
    queues
}

fn number_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|number| u64::from_le_bytes(*number))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use penstock_log::marks::owner_of_leases;
    use penstock_queue::{Queue, SubscriptionSettings};

    use super::*;

    fn lease(ranges: &[(u64, u64)]) -> Lease {
        let settings = SubscriptionSettings { prefetch: 0, auto_ack: false, exclusive: false };
        let ranges = ranges.iter().map(|&(first, last)| SequenceRange { first: Sequence(first), last: Sequence(last) });
        Lease {
            holder: Queue::new().subscribe(settings).unwrap(),
            ranges: ranges.collect(),
            bytes: 77,
            reserved_at_ms: 5,
        }
    }

    #[test]
    fn the_parts_of_a_lease_are_all_of_it_in_order() {
        let lease = lease(&[(3, 5), (9, 9), (20, 25)]);
        for parts in 1..14 {
            let found: Vec<u64> = (0..parts)
                .flat_map(|part| lease.part(part, parts))
                .flat_map(|range| range.first.0..=range.last.0)
                .collect();
            assert_eq!(found, [3, 4, 5, 9, 20, 21, 22, 23, 24, 25], "{parts} parts");
        }
        assert!(lease.part(5, 5).is_empty(), "there is no sixth part");
    }

    #[test]
    fn the_parts_of_a_lease_begin_with_the_highest_priority() {
        let in_lane = |lane, number| Sequence(number).in_lane(lane).0;
        let lanes = [(1, 2), (in_lane(4, 1), in_lane(4, 1)), (in_lane(200, 7), in_lane(200, 8))];
        let lease = lease(&[lanes[0], (5, 5), lanes[1], lanes[2]]);
        for parts in 1..8 {
            let found: Vec<(u16, u64)> = (0..parts)
                .flat_map(|part| lease.part(part, parts))
                .flat_map(|range| range.first.0..=range.last.0)
                .map(|number| (Sequence(number).lane(), Sequence(number).within().0))
                .collect();
            assert_eq!(found, [(200, 7), (200, 8), (4, 1), (0, 1), (0, 2), (0, 5)], "{parts} parts");
        }
    }

    #[test]
    fn the_next_number_is_the_only_new_one() {
        let mut leases = Leases::default();
        assert!(leases.find("q", "o", 1).unwrap().is_none());
        leases.insert("o", 1, lease(&[(1, 2)]));

        assert!(leases.find("q", "o", 1).unwrap().is_some());
        assert!(leases.find("q", "o", 2).unwrap().is_none());
        for number in [0, 3, u64::MAX] {
            assert!(matches!(leases.find("q", "o", number), Err(EngineError::LeaseNumber { last: 1, .. })));
        }
        assert!(matches!(leases.find("q", "", 1), Err(EngineError::LeaseOwner { .. })));
        assert!(matches!(leases.find("q", &"x".repeat(256), 1), Err(EngineError::LeaseOwner { .. })));
    }

    #[test]
    fn owners_and_leases_are_bounded() {
        let mut leases = Leases::default();
        for number in 1..=LEASES_MAX as u64 {
            leases.insert("o", number, lease(&[(number, number)]));
        }
        assert!(matches!(leases.find("q", "o", LEASES_MAX as u64 + 1), Err(EngineError::TooMany { .. })));
        for owner in 1..OWNERS_MAX {
            leases.insert(&owner.to_string(), 1, lease(&[(1, 1)]));
        }
        assert!(matches!(leases.find("q", "one more", 1), Err(EngineError::TooMany { .. })));
    }

    #[test]
    fn marks_are_read_back_without_what_was_acknowledged() {
        let queue = QueueId(7);
        let mut marks = BTreeMap::new();
        let mut put =
            |number, value: Vec<u8>| marks.insert((owner_of_leases(queue).to_vec(), key_of("o", number)), value);
        put(0, 4_u64.to_le_bytes().to_vec());
        put(4, lease(&[(1, 1)]).mark());
        put(5, lease(&[(2, 3), (8, 8)]).mark());
        put(6, b"too short".to_vec());

        let found = leases_in(&marks);

        let owner = &found[&queue]["o"];
        assert_eq!(owner.acked, 4);
        assert_eq!(owner.leases.keys().copied().collect::<Vec<_>>(), [5]);
        assert_eq!((owner.leases[&5].bytes, owner.leases[&5].reserved_at_ms), (77, 5));
        assert_eq!(owner.leases[&5].ranges, lease(&[(2, 3), (8, 8)]).ranges);
    }
}
