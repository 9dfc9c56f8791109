//! Settled sequences as the checkpoints of format 2 have them: blocks of 65,536. See `docs/format.md`, "Checkpoints of
//! format 2".
//!
//! Written blocks depend on the settled sequences alone, and not on how a set holds them in memory: equal sets have
//! equal bytes. Bytes that are read are not trusted: blocks and what is in them ascend and lie above the smallest
//! unsettled sequence, or they are refused. A reader takes a block in any form, not only in the smallest.

use penstock_queue::{AckSet, Sequence, SequenceRange};
use thiserror::Error;

const RUNS: u8 = 1;
const LIST: u8 = 2;
const BITMAP: u8 = 3;
const WHOLE: u8 = 4;

const BLOCK_BITS: u32 = 16;
const BITMAP_BYTES: usize = 1 << (BLOCK_BITS - 3);
/// Sequences have 56 bits.
const BLOCK_MAX: u64 = (1 << 40) - 1;

/// Why settled blocks were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SettledBlocksError {
    #[error("the settled blocks end in the middle of one")]
    Truncated,
    #[error("settled block {block} has kind {kind}, this version reads 1 to 4; start a newer version")]
    UnknownKind { block: u64, kind: u8 },
    #[error("settled block {block} lies beyond the largest sequence")]
    TooLarge { block: u64 },
    #[error("settled block {block} has sequences that do not ascend")]
    NotAscending { block: u64 },
    #[error("settled block {block} has {found} sequences where it counts {count}")]
    OtherCount { block: u64, count: u16, found: u32 },
}

/// Appends the sequences that are settled above the smallest unsettled one; returns the number of blocks.
pub fn encode(settled: &AckSet, out: &mut Vec<u8>) -> u32 {
    let mut writer = Writer { out, block: 0, runs: Vec::new(), count: 0 };
    for range in settled.ranges() {
        writer.put_range(range.first.0, range.last.0);
    }
    writer.end_block();
    writer.count
}

/// Reads so many blocks, and moves `bytes` past them. `below` is the smallest unsettled sequence.
///
/// # Errors
/// When the bytes are not such blocks.
pub fn decode(bytes: &mut &[u8], below: Sequence, count: u32) -> Result<AckSet, SettledBlocksError> {
    let mut reader = Reader { bytes, settled: AckSet::starting_at(below), free_from: below.next().0 };
    for _ in 0..count {
        reader.block()?;
    }
    Ok(reader.settled)
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    block: u64,
    /// Runs of that block that are not written yet.
    runs: Vec<(u16, u16)>,
    count: u32,
}

impl Writer<'_> {
    fn put_range(&mut self, mut first: u64, last: u64) {
        while first <= last {
            let block = first >> BLOCK_BITS;
            // Blocks before this one are all settled from the first sequence on.
            let partial = (last + 1) >> BLOCK_BITS;
            if first == block << BLOCK_BITS && block < partial {
                self.end_block();
                self.begin(block, WHOLE, 0);
                self.put_block(partial - 1);
                first = partial << BLOCK_BITS;
                continue;
            }
            if block != self.block {
                self.end_block();
                self.block = block;
            }
            let end = last.min(block << BLOCK_BITS | u64::from(u16::MAX));
            self.runs.push((first as u16, end as u16));
            first = end + 1;
        }
    }

    /// Writes the runs of a block in the smallest form.
    fn end_block(&mut self) {
        if self.runs.is_empty() {
            return;
        }
        let runs = std::mem::take(&mut self.runs);
        let settled: usize = runs.iter().map(|&(first, last)| usize::from(last - first) + 1).sum();
        let (runs_bytes, list_bytes) = (4 * runs.len(), 2 * settled);
        if runs_bytes <= list_bytes.min(BITMAP_BYTES) {
            self.begin(self.block, RUNS, runs.len());
            runs.iter().flat_map(|&(first, last)| [first, last]).for_each(|low| self.put_low(low));
        } else if list_bytes <= BITMAP_BYTES {
            self.begin(self.block, LIST, settled);
            runs.iter().flat_map(|&(first, last)| first..=last).for_each(|low| self.put_low(low));
        } else {
            self.begin(self.block, BITMAP, settled);
            self.out.extend_from_slice(&bitmap_of(&runs));
        }
        self.runs = runs;
        self.runs.clear();
    }

    fn begin(&mut self, block: u64, kind: u8, count: usize) {
        self.put_block(block);
        self.out.push(kind);
        self.put_low(count as u16);
        self.count += 1;
    }

    fn put_block(&mut self, block: u64) {
        let [low @ .., _, _] = block.to_le_bytes();
        self.out.extend_from_slice(&low);
    }

    fn put_low(&mut self, low: u16) {
        self.out.extend_from_slice(&low.to_le_bytes());
    }
}

fn bitmap_of(runs: &[(u16, u16)]) -> Vec<u8> {
    let mut bitmap = vec![0; BITMAP_BYTES];
    for low in runs.iter().flat_map(|&(first, last)| first..=last) {
        if let Some(byte) = bitmap.get_mut(usize::from(low / 8)) {
            *byte |= 1 << (low % 8);
        }
    }
    bitmap
}

struct Reader<'a, 'b> {
    bytes: &'a mut &'b [u8],
    settled: AckSet,
    /// The smallest sequence that may come next.
    free_from: u64,
}

impl<'b> Reader<'_, 'b> {
    fn block(&mut self) -> Result<(), SettledBlocksError> {
        let block = self.block_number()?;
        let [kind] = self.take()?;
        let count = self.low()?;
        match kind {
            RUNS => self.runs(block, count),
            LIST => self.list(block, count),
            BITMAP => self.bitmap(block, count),
            WHOLE if count > 0 => Err(SettledBlocksError::OtherCount { block, count, found: 0 }),
            WHOLE => {
                let last = self.block_number()?;
                self.settle(block, block << BLOCK_BITS, last << BLOCK_BITS | u64::from(u16::MAX))
            }
            _ => Err(SettledBlocksError::UnknownKind { block, kind }),
        }
    }

    fn runs(&mut self, block: u64, count: u16) -> Result<(), SettledBlocksError> {
        for _ in 0..count {
            let (first, last) = (self.low()?, self.low()?);
            self.settle(block, block << BLOCK_BITS | u64::from(first), block << BLOCK_BITS | u64::from(last))?;
        }
        Ok(())
    }

    fn list(&mut self, block: u64, count: u16) -> Result<(), SettledBlocksError> {
        for _ in 0..count {
            let number = block << BLOCK_BITS | u64::from(self.low()?);
            self.settle(block, number, number)?;
        }
        Ok(())
    }

    fn bitmap(&mut self, block: u64, count: u16) -> Result<(), SettledBlocksError> {
        let bitmap: [u8; BITMAP_BYTES] = self.take()?;
        let found = bitmap.iter().map(|byte| byte.count_ones()).sum();
        if u32::from(count) != found {
            return Err(SettledBlocksError::OtherCount { block, count, found });
        }
        let mut numbers =
            (block << BLOCK_BITS..).zip(bitmap.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1)));
        while let Some((first, _)) = numbers.find(|&(_, bit)| bit == 1) {
            let last = numbers.by_ref().take_while(|&(_, bit)| bit == 1).last().map_or(first, |(last, _)| last);
            self.settle(block, first, last)?;
        }
        Ok(())
    }

    fn settle(&mut self, block: u64, first: u64, last: u64) -> Result<(), SettledBlocksError> {
        if first < self.free_from || last < first {
            return Err(SettledBlocksError::NotAscending { block });
        }
        self.settled.insert(SequenceRange { first: Sequence(first), last: Sequence(last) });
        self.free_from = last + 1;
        Ok(())
    }

    fn block_number(&mut self) -> Result<u64, SettledBlocksError> {
        let [a, b, c, d, e, f] = self.take()?;
        let block = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        if block > BLOCK_MAX { Err(SettledBlocksError::TooLarge { block }) } else { Ok(block) }
    }

    fn low(&mut self) -> Result<u16, SettledBlocksError> {
        self.take().map(u16::from_le_bytes)
    }

    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], SettledBlocksError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(SettledBlocksError::Truncated)?;
        *self.bytes = rest;
        Ok(*taken)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn range(first: u64, last: u64) -> SequenceRange {
        SequenceRange::new(Sequence(first), Sequence(last)).unwrap()
    }

    fn encoded(settled: &AckSet) -> (Vec<u8>, u32) {
        let mut bytes = Vec::new();
        let count = encode(settled, &mut bytes);
        (bytes, count)
    }

    fn read(mut bytes: &[u8], below: u64, count: u32) -> Result<AckSet, SettledBlocksError> {
        let settled = decode(&mut bytes, Sequence(below), count);
        assert!(settled.is_err() || bytes.is_empty(), "bytes are left");
        settled
    }

    fn block(number: u64, kind: u8, count: u16, rest: &[u8]) -> Vec<u8> {
        [&number.to_le_bytes()[..6], &[kind], &count.to_le_bytes(), rest].concat()
    }

    fn lows(lows: &[u16]) -> Vec<u8> {
        lows.iter().flat_map(|low| low.to_le_bytes()).collect()
    }

    /// Ranges, far or near, and parts of blocks with each second or third sequence settled.
    fn sets() -> impl Strategy<Value = AckSet> {
        let near = 0..6_u64 << 16;
        let first = || prop_oneof![4 => near.clone(), 1 => (0..5_u64).prop_map(|far| far << 33), 1 => 0..1_u64 << 55];
        let length = prop_oneof![0..4_u64, 0..300_000_u64, Just((1 << 32) - 1)];
        let some = (first(), prop_oneof![1..9_u64, 1..30_000_u64], 1..4_u64, length);
        (first(), prop::collection::vec(some, 0..8)).prop_map(|(below, parts)| {
            let mut set = AckSet::starting_at(Sequence(below));
            for (first, count, every, length) in parts {
                set.insert(range(first + (1 << 20), first + (1 << 20) + length));
                (0..count).map(|place| first + place * every).for_each(|number| set.insert(range(number, number)));
            }
            set
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn settled_blocks_are_read_back(settled in sets()) {
            let (bytes, count) = encoded(&settled);

            let found = read(&bytes, settled.below().0, count);

            prop_assert!(found.as_ref() == Ok(&settled));
            prop_assert_eq!(encoded(&found.unwrap()), (bytes.clone(), count));
            prop_assert!(read(&bytes[..bytes.len().saturating_sub(1)], settled.below().0, count).is_err() || count == 0);
        }

        #[test]
        fn any_bytes_are_refused_or_read_without_a_panic(bytes: Vec<u8>, below: u64, count: u32) {
            let _ = decode(&mut bytes.as_slice(), Sequence(below), count);
        }

        #[test]
        fn a_changed_bit_is_refused_or_read_as_another_set(
            settled in sets(), at in any::<prop::sample::Index>(), bit in 0..8_u32,
        ) {
            let (mut bytes, count) = encoded(&settled);
            prop_assume!(!bytes.is_empty());
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;

            if let Ok(found) = decode(&mut bytes.as_slice(), settled.below(), count) {
                prop_assert!(found != settled);
            }
        }
    }

    #[test]
    fn each_block_has_its_smallest_form() {
        let mut settled = AckSet::starting_at(Sequence(1));
        settled.insert(range(9, 20));
        (0..9).for_each(|place| settled.insert(range((1 << 16) + 3 * place, (1 << 16) + 3 * place)));
        (0..9_000).for_each(|place| settled.insert(range((2 << 16) + 3 * place, (2 << 16) + 3 * place)));
        settled.insert(range(4 << 16, (70_000 << 16) + 5));

        let (bytes, count) = encoded(&settled);

        assert_eq!(count, 5);
        let runs = block(0, RUNS, 1, &lows(&[9, 20]));
        let list = block(1, LIST, 9, &lows(&[0, 3, 6, 9, 12, 15, 18, 21, 24]));
        let bitmap: Vec<u8> = [0b0100_1001, 0b1001_0010, 0b0010_0100].repeat(27_000 / 24);
        let bitmap = block(2, BITMAP, 9_000, &[bitmap, vec![0; BITMAP_BYTES - 27_000 / 8]].concat());
        let whole = block(4, WHOLE, 0, &69_999_u64.to_le_bytes()[..6]);
        let rest = block(70_000, RUNS, 1, &lows(&[0, 5]));
        assert!(bytes == [runs, list, bitmap, whole, rest].concat());
    }

    #[test]
    fn half_a_million_scattered_sequences_take_128_kib() {
        let mut settled = AckSet::starting_at(Sequence(1));
        (1..=500_000).for_each(|place| settled.insert(range(2 * place + 1, 2 * place + 1)));

        assert!(encoded(&settled).0.len() <= 16 * (BITMAP_BYTES + 9));
    }

    #[test]
    fn blocks_that_are_none_are_refused() {
        use SettledBlocksError as Refused;
        let refused = |bytes: &[u8], below, count| read(bytes, below, count).unwrap_err();
        let descending = Refused::NotAscending { block: 3 };

        assert_eq!(refused(&block(3, 5, 0, &[]), 1, 1), Refused::UnknownKind { block: 3, kind: 5 });
        assert_eq!(refused(&block(3, 0, 0, &[]), 1, 1), Refused::UnknownKind { block: 3, kind: 0 });
        assert_eq!(refused(&block(1 << 40, RUNS, 0, &[]), 1, 1), Refused::TooLarge { block: 1 << 40 });
        assert_eq!(refused(&block(3, RUNS, 1, &lows(&[7])), 1, 1), Refused::Truncated);
        assert_eq!(refused(&block(3, RUNS, 1, &lows(&[7, 6])), 1, 1), descending);
        assert_eq!(refused(&block(3, RUNS, 2, &lows(&[7, 8, 8, 9])), 1, 1), descending);
        assert_eq!(refused(&block(3, LIST, 2, &lows(&[7, 7])), 1, 1), descending);
        assert_eq!(refused(&block(3, LIST, 1, &lows(&[7])), (3 << 16) + 7, 1), descending, "below is unsettled");
        assert_eq!(refused(&block(3, WHOLE, 0, &2_u64.to_le_bytes()[..6]), 1, 1), descending);
        let beyond = block(3, WHOLE, 0, &(1_u64 << 40).to_le_bytes()[..6]);
        assert_eq!(refused(&beyond, 1, 1), Refused::TooLarge { block: 1 << 40 });
        let counted = block(3, WHOLE, 1, &3_u64.to_le_bytes()[..6]);
        assert_eq!(refused(&counted, 1, 1), Refused::OtherCount { block: 3, count: 1, found: 0 });
        let twice = [block(4, LIST, 1, &lows(&[7])), block(3, LIST, 1, &lows(&[7]))].concat();
        assert_eq!(refused(&twice, 1, 2), descending);
        let bitmap = block(3, BITMAP, 2, &[&[1], &[0; BITMAP_BYTES - 1][..]].concat());
        assert_eq!(refused(&bitmap, 1, 1), Refused::OtherCount { block: 3, count: 2, found: 1 });
    }
}
