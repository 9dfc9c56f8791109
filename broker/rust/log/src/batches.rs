//! Batches of producers: the sequences of numbered batches, the digest of a batch so far, and what is known of the last
//! batches of each producer. See `docs/format.md`, "Batches of producers".
//!
//! Invariants: what is known depends on the records alone, so that folding from the beginning, from a checkpoint, or
//! while the broker runs has the same result. Of a producer at most [`BATCHES_MAX`] batches are kept, and of all together
//! at most [`BATCHES_OF_ALL_MAX`]: the more producers number batches, the fewer are kept of each. The oldest are forgotten
//! first, and that something was forgotten is known.

use std::num::NonZeroU32;

use rustc_hash::FxHashMap;

/// The most batches that are kept of a producer.
pub const BATCHES_MAX: usize = 128;
/// The most that are kept of all producers of a log: 3 MiB.
pub const BATCHES_OF_ALL_MAX: usize = 1 << 18;
/// The highest number of a batch: its sequences stay below those that clients may send.
pub const BATCH_MAX: u32 = (1 << 30) - 2;

const BATCH_BYTES: usize = 12;

/// The sequence of a row, counted from 1, of a batch, counted from 0.
#[must_use]
pub fn sequence_in(batch: u32, row: u32) -> u64 {
    ((u64::from(batch) + 1) << 32) | u64::from(row)
}

/// Batch and row of a sequence; `None` when it is below those of batches.
#[must_use]
pub fn batch_and_row(sequence: u64) -> Option<(u32, u32)> {
    let batch = u32::try_from(sequence >> 32).ok()?.checked_sub(1)?;
    Some((batch, (sequence & u64::from(u32::MAX)) as u32))
}

/// A digest of rows. In their order, as a batch of a producer has, or in any order, as the attempts of a stage have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowsDigest(pub u64);

impl RowsDigest {
    /// Add a row behind the others: its checksum and number of bytes, and its key.
    #[must_use]
    pub fn then(self, row: RowDigest) -> RowsDigest {
        RowsDigest(mixed(self.0.wrapping_add(row.0)))
    }

    /// Add a row, in no order.
    #[must_use]
    pub fn and(self, row: RowDigest) -> RowsDigest {
        RowsDigest(self.0.wrapping_add(mixed(row.0)))
    }

    /// Its short form, as records have it.
    #[must_use]
    pub fn short(self) -> NonZeroU32 {
        NonZeroU32::new((self.0 ^ (self.0 >> 32)) as u32).unwrap_or(NonZeroU32::MIN)
    }
}

/// The digest of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowDigest(u64);

impl RowDigest {
    /// Of the checksum of a payload, its bytes and those of its body, and a key. No key is not an empty key.
    pub(crate) fn of(crc: u32, [bytes, body_bytes]: [u32; 2], key: Option<&[u8]>) -> RowDigest {
        let payload = mixed(u64::from(crc) | (u64::from(bytes) << 32)).wrapping_add(u64::from(body_bytes));
        let key = key.map_or(0, |key| u64::from(crc32c::crc32c(key)) | ((key.len() as u64 + 1) << 32));
        RowDigest(mixed(payload).wrapping_add(key))
    }

    /// Of a number instead of a row.
    #[must_use]
    pub fn of_number(number: u64) -> RowDigest {
        RowDigest(mixed(number))
    }
}

/// The last step of murmur3: any change of the input changes each bit of the output with probability one half.
fn mixed(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ (bits >> 33)
}

/// What is stored of a batch: the last row, and the digest of the rows up to it, those that reached no queue included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    pub batch: u32,
    pub row: u32,
    pub digest: u32,
}

/// The last batches of a producer, ascending; never empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    kept: Vec<StoredBatch>,
    forgotten: Option<u32>,
}

impl Batches {
    #[must_use]
    pub fn get(&self, batch: u32) -> Option<StoredBatch> {
        let at = self.kept.binary_search_by_key(&batch, |one| one.batch).ok()?;
        self.kept.get(at).copied()
    }

    /// The newest batch.
    #[must_use]
    pub fn newest(&self) -> Option<u32> {
        self.kept.last().map(|one| one.batch)
    }

    /// The last row of the newest batch.
    #[must_use]
    pub fn last(&self) -> Option<StoredBatch> {
        self.kept.last().copied()
    }

    /// The newest batch that is not kept any more.
    #[must_use]
    pub fn forgotten(&self) -> Option<u32> {
        self.forgotten
    }

    fn stored(&mut self, stored: StoredBatch) {
        match self.kept.last_mut() {
            Some(last) if last.batch > stored.batch => {}
            Some(last) if last.batch == stored.batch => {
                if stored.row > last.row {
                    *last = stored;
                }
            }
            _ => self.kept.push(stored),
        }
    }

    fn keep(&mut self, count_max: usize) {
        let too_many = self.kept.len().saturating_sub(count_max.max(1));
        if let Some(last) = self.kept.drain(..too_many).next_back() {
            self.forgotten = Some(last.batch);
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let forgotten = self.forgotten.map_or(0, |batch| batch.saturating_add(1));
        out.extend_from_slice(&forgotten.to_le_bytes());
        for one in &self.kept {
            for number in [one.batch, one.row, one.digest] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    /// `None` unless the bytes are some ascending batches.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Batches> {
        let (forgotten, rest) = bytes.split_first_chunk()?;
        let mut batches = Batches { kept: Vec::new(), forgotten: u32::from_le_bytes(*forgotten).checked_sub(1) };
        let mut before = batches.forgotten;
        let (stored, rest) = rest.as_chunks::<BATCH_BYTES>();
        for &[a, b, c, d, e, f, g, h, i, j, k, l] in stored {
            let [batch, row, digest] = [[a, b, c, d], [e, f, g, h], [i, j, k, l]].map(u32::from_le_bytes);
            if before.is_some_and(|before| before >= batch) {
                return None;
            }
            before = Some(batch);
            batches.kept.push(StoredBatch { batch, row, digest });
        }
        (rest.is_empty() && (1..=BATCHES_MAX).contains(&batches.kept.len())).then_some(batches)
    }
}

/// The last batches of all producers of a log that number them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerBatches {
    by_id: FxHashMap<u64, Batches>,
}

impl ProducerBatches {
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&Batches> {
        self.by_id.get(&id)
    }

    /// Note a stored row, with the digest of its batch up to it.
    pub fn stored(&mut self, id: u64, sequence: u64, digest: NonZeroU32) {
        let Some((batch, row)) = batch_and_row(sequence) else { return };
        if !self.by_id.contains_key(&id) {
            self.make_room();
        }
        let count_max = kept_of_each(self.by_id.len().max(1));
        let batches = self.by_id.entry(id).or_default();
        batches.stored(StoredBatch { batch, row, digest: digest.get() });
        batches.keep(count_max);
    }

    pub fn remove(&mut self, id: u64) {
        self.by_id.remove(&id);
    }

    pub(crate) fn insert(&mut self, id: u64, batches: Batches) {
        self.by_id.insert(id, batches);
    }

    /// Forgets batches of all producers where one more means that fewer are kept of each.
    fn make_room(&mut self) {
        let count = self.by_id.len() + 1;
        let count_max = kept_of_each(count);
        if count_max < kept_of_each(self.by_id.len().max(1)) {
            self.by_id.values_mut().for_each(|batches| batches.keep(count_max));
        }
    }
}

/// How many batches are kept of each of so many producers. It changes only where their number passes a power of two, so
/// that most new names cost nothing.
fn kept_of_each(producers: usize) -> usize {
    (BATCHES_OF_ALL_MAX / producers.next_power_of_two()).clamp(1, BATCHES_MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    fn store(batches: &mut ProducerBatches, id: u64, batch: u32, row: u32) {
        batches.stored(id, sequence_in(batch, row), digest(1000 * (batch + 1) + row));
    }

    fn row(body: &[u8], key: Option<&[u8]>) -> RowDigest {
        RowDigest::of(crc32c::crc32c(body), [body.len() as u32; 2], key)
    }

    #[test]
    fn a_sequence_is_taken_apart_as_it_was_made() {
        for (batch, row) in [(0, 1), (7, u32::MAX), (BATCH_MAX, 5)] {
            assert_eq!(batch_and_row(sequence_in(batch, row)), Some((batch, row)));
        }
        assert!(sequence_in(BATCH_MAX, u32::MAX) < 1 << 62);
        assert_eq!(batch_and_row(u64::from(u32::MAX)), None);
    }

    #[test]
    fn the_last_row_of_each_batch_is_kept_and_older_rows_change_nothing() {
        let mut batches = ProducerBatches::default();
        for (batch, row) in [(0, 1), (0, 2), (3, 1), (3, 4), (3, 2), (0, 9), (1, 1)] {
            store(&mut batches, 7, batch, row);
        }

        let of_one = batches.get(7).unwrap();

        assert_eq!(of_one.get(0), Some(StoredBatch { batch: 0, row: 2, digest: 1002 }));
        assert_eq!(of_one.get(1), None);
        assert_eq!(of_one.get(3), Some(StoredBatch { batch: 3, row: 4, digest: 4004 }));
        assert_eq!((of_one.newest(), of_one.forgotten()), (Some(3), None));
    }

    #[test]
    fn only_the_last_batches_are_kept_and_that_others_were_is_known() {
        let mut batches = ProducerBatches::default();
        (0..200).for_each(|batch| store(&mut batches, 7, batch, 1));

        let of_one = batches.get(7).unwrap();

        assert_eq!(of_one.forgotten(), Some(71));
        assert_eq!((of_one.get(71), of_one.get(72).map(|one| one.row)), (None, Some(1)));
    }

    #[test]
    fn many_producers_have_fewer_batches_each() {
        let mut batches = ProducerBatches::default();
        for id in 1..=5000 {
            (0..130).for_each(|batch| store(&mut batches, id, batch, 1));
        }

        let all: usize = batches.by_id.values().map(|one| one.kept.len()).sum();

        assert!(all <= BATCHES_OF_ALL_MAX, "{all}");
        assert_eq!(batches.get(1).unwrap().kept.len(), 32);
        assert_eq!([1, 2048, 2049, 65_536, 1 << 20].map(kept_of_each), [128, 128, 64, 4, 1]);
    }

    #[test]
    fn a_digest_depends_on_order_keys_and_bodies() {
        let (a, b) = (row(b"a", None), row(b"b", None));
        let empty = RowsDigest::default();

        assert_ne!(empty.then(a).then(b), empty.then(b).then(a));
        assert_eq!(empty.and(a).and(b), empty.and(b).and(a));
        assert_ne!(empty.and(a).and(a), empty.and(b).and(b));
        let keys =
            [row(b"a", None), row(b"a", Some(b"")), row(b"a", Some(b"k")), row(b"ak", None), row(b"", Some(b"a"))];
        for (at, one) in keys.iter().enumerate() {
            assert!(keys[..at].iter().all(|other| empty.then(*other).short() != empty.then(*one).short()));
        }
    }

    proptest! {
        #[test]
        fn batches_are_read_back(rows in prop::collection::vec((0..300_u32, 1..9_u32), 1..400)) {
            let mut batches = ProducerBatches::default();
            rows.into_iter().for_each(|(batch, row)| store(&mut batches, 1, batch, row));
            let mut bytes = Vec::new();
            batches.get(1).unwrap().encode(&mut bytes);
            let found = Batches::decode(&bytes);

            prop_assert_eq!(found.as_ref(), batches.get(1));
        }

        #[test]
        fn any_bytes_are_refused_or_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(batches) = Batches::decode(&bytes) {
                let mut again = Vec::new();
                batches.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
