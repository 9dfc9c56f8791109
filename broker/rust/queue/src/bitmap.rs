//! The settled sequences of one block as 65,536 bits.
//!
//! It knows bits from 0 to 65,535, and neither sequences nor blocks.

use std::ops::Not;

const WORDS: usize = 1024;
const WORD_BITS: usize = u64::BITS as usize;

/// Invariant: `count` is the number of set bits.
#[derive(Clone, Debug)]
pub(crate) struct Bitmap {
    words: [u64; WORDS],
    count: u32,
}

impl Bitmap {
    pub(crate) const fn new() -> Self {
        Bitmap { words: [0; WORDS], count: 0 }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn contains(&self, bit: u16) -> bool {
        let (word, place) = position(bit);
        self.words.get(word).is_some_and(|word| word >> place & 1 == 1)
    }

    pub(crate) fn insert(&mut self, first: u16, last: u16) {
        self.each_word(first, last, |word, mask| *word |= mask);
    }

    pub(crate) fn remove(&mut self, first: u16, last: u16) {
        self.each_word(first, last, |word, mask| *word &= !mask);
    }

    /// The first set bit at or above `from`.
    pub(crate) fn next_set(&self, from: u16) -> Option<u16> {
        self.search_up(from, |word| word)
    }

    /// The first clear bit at or above `from`.
    pub(crate) fn next_clear(&self, from: u16) -> Option<u16> {
        self.search_up(from, u64::not)
    }

    /// The last clear bit at or below `to`.
    pub(crate) fn last_clear(&self, to: u16) -> Option<u16> {
        let (at, place) = position(to);
        let mut mask = u64::MAX >> (WORD_BITS - 1 - place);
        for (number, word) in self.words.iter().enumerate().take(at + 1).rev() {
            let clear = !word & mask;
            if clear != 0 {
                return Some((number * WORD_BITS) as u16 + (WORD_BITS - 1) as u16 - clear.leading_zeros() as u16);
            }
            mask = u64::MAX;
        }
        None
    }

    /// The number of runs of set bits.
    pub(crate) fn count_runs(&self) -> u32 {
        let mut carried = 0;
        let mut runs = 0;
        for word in &self.words {
            // A run begins at each set bit whose lower neighbour is clear.
            runs += (word & !(word << 1 | carried)).count_ones();
            carried = word >> (WORD_BITS - 1);
        }
        runs
    }

    fn search_up(&self, from: u16, of_interest: fn(u64) -> u64) -> Option<u16> {
        let (at, place) = position(from);
        let mut mask = u64::MAX << place;
        for (number, &word) in self.words.iter().enumerate().skip(at) {
            let found = of_interest(word) & mask;
            if found != 0 {
                return Some((number * WORD_BITS) as u16 + found.trailing_zeros() as u16);
            }
            mask = u64::MAX;
        }
        None
    }

    /// Changes the bits of a range word by word, and counts.
    fn each_word(&mut self, first: u16, last: u16, change: fn(&mut u64, u64)) {
        let ((from, first_place), (to, last_place)) = (position(first), position(last));
        for number in from..=to {
            let Some(word) = self.words.get_mut(number) else { return };
            let mut mask = u64::MAX;
            if number == from {
                mask &= u64::MAX << first_place;
            }
            if number == to {
                mask &= u64::MAX >> (WORD_BITS - 1 - last_place);
            }
            let before = word.count_ones();
            change(word, mask);
            self.count = self.count - before + word.count_ones();
        }
    }
}

/// The word of a bit, and its place there.
fn position(bit: u16) -> (usize, usize) {
    (usize::from(bit) / WORD_BITS, usize::from(bit) % WORD_BITS)
}
