//! The routes of a partitioned stream: one of them for each message, by the hash of its key.
//!
//! Invariant: the same key leads to the same partition for as long as their number stays the same, on every broker and
//! in every version: the hash is Murmur3 (x86, 32 bits, seed 0), the partitions are in the order of the numbers in
//! their binding keys.

use super::targets::{Target, Targets};

/// Binding keys in order: by number, then others by their bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Partitions {
    by_key: Vec<(Place, Targets)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    number: u64,
    key: Box<[u8]>,
}

impl Place {
    fn of(key: &[u8]) -> Place {
        let number = std::str::from_utf8(key).ok().and_then(|key| key.parse().ok());
        Place { number: number.unwrap_or(u64::MAX), key: key.into() }
    }
}

impl Partitions {
    pub(super) fn add(&mut self, key: &[u8], target: Target) {
        let place = Place::of(key);
        match self.by_key.binary_search_by(|(held, _)| held.cmp(&place)) {
            Ok(at) => self.by_key.get_mut(at).into_iter().for_each(|(_, targets)| targets.add(target)),
            Err(at) => self.by_key.insert(at, (place, Targets::of(target))),
        }
    }

    pub(super) fn remove(&mut self, key: &[u8], target: Target) {
        let place = Place::of(key);
        let Ok(at) = self.by_key.binary_search_by(|(held, _)| held.cmp(&place)) else { return };
        let Some((_, targets)) = self.by_key.get_mut(at) else { return };
        targets.remove(target);
        if targets.is_empty() {
            self.by_key.remove(at);
        }
    }

    /// The targets of a key; `None` without partitions.
    pub(super) fn pick(&self, key: &[u8]) -> Option<&Targets> {
        let at = (murmur3_32(key) as usize).checked_rem(self.by_key.len())?;
        self.by_key.get(at).map(|(_, targets)| targets)
    }
}

/// Murmur3 for x86 with 32 bits and seed 0.
fn murmur3_32(bytes: &[u8]) -> u32 {
    let mix = |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (words, rest) = bytes.as_chunks::<4>();
    let mut hash = 0_u32;
    for word in words {
        hash = (hash ^ mix(u32::from_le_bytes(*word))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let tail = rest.iter().rev().fold(0, |tail, &byte| tail << 8 | u32::from(byte));
    hash ^= mix(tail);
    hash ^= bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::{Partitions, murmur3_32};
    use crate::ids::QueueId;
    use crate::routing::targets::Target;

    #[test]
    fn the_hash_is_murmur3() {
        for (text, hash) in [
            ("", 0),
            ("a", 0x3c25_69b2),
            ("hello", 0x248b_fa47),
            ("hello, world", 0x149b_bb7f),
            ("The quick brown fox jumps over the lazy dog", 0x2e4f_f723),
        ] {
            assert_eq!(murmur3_32(text.as_bytes()), hash, "{text}");
        }
    }

    #[test]
    fn partitions_are_counted_by_the_numbers_in_their_keys() {
        let mut partitions = Partitions::default();
        for number in (0..11_u64).rev() {
            partitions.add(number.to_string().as_bytes(), Target::Queue(QueueId(number)));
        }

        for key in [&b"a"[..], b"hello", b"another key", b""] {
            let picked: Vec<QueueId> = partitions.pick(key).into_iter().flat_map(|targets| targets.queues()).collect();
            assert_eq!(picked, [QueueId(u64::from(murmur3_32(key) % 11))]);
        }
    }

    #[test]
    fn a_partition_that_is_unbound_takes_part_no_more() {
        let mut partitions = Partitions::default();
        partitions.add(b"0", Target::Queue(QueueId(1)));
        partitions.add(b"1", Target::Queue(QueueId(2)));
        partitions.remove(b"0", Target::Queue(QueueId(1)));
        let picked = partitions.pick(b"x").map(|targets| targets.queues().collect::<Vec<_>>());
        assert_eq!(picked, Some(vec![QueueId(2)]));

        partitions.remove(b"1", Target::Queue(QueueId(2)));

        assert!(partitions.pick(b"x").is_none());
    }
}
