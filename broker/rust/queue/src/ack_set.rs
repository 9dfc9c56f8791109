//! The settled messages of a queue: all below a sequence, and blocks above it.
//!
//! A block stands for 65,536 sequences. Blocks without a settled sequence are absent, and neighbouring blocks without an
//! unsettled one are one entry, however many: a start skips 2^32 sequences. The others are runs or a bitmap, at most
//! 8 KiB each, so that acks in any order cost little. Everything below a queue's cursor is settled, unsettled or
//! returned, so memory depends on messages in flight, not on past ones. Skipped sequences count as settled. The
//! largest number is no sequence and is never settled.

use crate::block::Block;
use crate::ids::{Sequence, SequenceRange};

const BLOCK_BITS: u32 = 16;

/// Invariants:
/// * entries ascend and are disjoint, and what they hold is above `below`, which is unsettled;
/// * a part is neither empty nor full, and whole entries do not touch.
#[derive(Clone, Debug)]
pub struct AckSet {
    below: u64,
    entries: Vec<Entry>,
}

/// Settled sequences of a block, or of several whole ones.
#[derive(Clone, Debug)]
struct Entry {
    first: u64,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// Everything up to the block `last`.
    Whole {
        last: u64,
    },
    Part(Block),
}

impl Default for AckSet {
    fn default() -> Self {
        AckSet::starting_at(Sequence::FIRST)
    }
}

/// Sets are equal when they hold the same sequences, in whatever form.
impl PartialEq for AckSet {
    fn eq(&self, other: &Self) -> bool {
        self.below == other.below && self.ranges().eq(other.ranges())
    }
}

impl Eq for AckSet {}

impl Entry {
    fn last(&self) -> u64 {
        match self.content {
            Content::Whole { last } => last,
            Content::Part(_) => self.first,
        }
    }

    fn is_whole(&self) -> bool {
        matches!(self.content, Content::Whole { .. })
    }
}

impl AckSet {
    /// A set with only the sequences below `below` settled.
    #[must_use]
    pub const fn starting_at(below: Sequence) -> Self {
        AckSet { below: below.0, entries: Vec::new() }
    }

    /// The same set in a lane.
    #[must_use]
    pub fn in_lane(mut self, lane: u16) -> AckSet {
        let moved = |block: u64| block_of(Sequence(start_of(block)).in_lane(lane).0);
        self.below = Sequence(self.below).in_lane(lane).0;
        for entry in &mut self.entries {
            entry.first = moved(entry.first);
            if let Content::Whole { last } = &mut entry.content {
                *last = moved(*last);
            }
        }
        self
    }

    /// The smallest unsettled sequence.
    #[must_use]
    pub fn below(&self) -> Sequence {
        Sequence(self.below)
    }

    /// The settled ranges above [`AckSet::below`], ascending; they do not touch.
    pub fn ranges(&self) -> impl Iterator<Item = SequenceRange> + '_ {
        let mut from = Sequence(self.below);
        std::iter::from_fn(move || {
            let first = self.next_settled(from)?;
            from = self.next_unsettled(first);
            SequenceRange::new(first, Sequence(from.0 - 1))
        })
    }

    #[must_use]
    pub fn contains(&self, sequence: Sequence) -> bool {
        let number = sequence.0;
        number < self.below
            || self.entry_of(block_of(number)).is_some_and(|entry| match &entry.content {
                Content::Whole { .. } => true,
                Content::Part(block) => block.contains(low_of(number)),
            })
    }

    /// The smallest unsettled sequence at or above `from`.
    #[must_use]
    pub fn next_unsettled(&self, from: Sequence) -> Sequence {
        let mut number = from.0.max(self.below);
        while let Some(entry) = self.entry_of(block_of(number)) {
            if let Content::Part(block) = &entry.content
                && let Some(low) = block.next_unsettled(low_of(number))
            {
                return Sequence(start_of(entry.first) | u64::from(low));
            }
            number = start_of(entry.last() + 1);
        }
        Sequence(number)
    }

    /// The first settled sequence at or above `from`, if any is above [`AckSet::below`].
    #[must_use]
    pub fn next_settled(&self, from: Sequence) -> Option<Sequence> {
        if from.0 < self.below {
            return Some(from);
        }
        for entry in self.entries.get(self.index_of(block_of(from.0))..)? {
            let number = from.0.max(start_of(entry.first));
            match &entry.content {
                Content::Whole { .. } => return Some(Sequence(number)),
                Content::Part(block) => {
                    if let Some(low) = block.next_settled(low_of(number)) {
                        return Some(Sequence(start_of(entry.first) | u64::from(low)));
                    }
                }
            }
        }
        None
    }

    /// The largest unsettled sequence below `end`.
    #[must_use]
    pub fn last_unsettled(&self, end: Sequence) -> Option<Sequence> {
        let mut number = end.0.checked_sub(1)?;
        while number >= self.below {
            let Some(entry) = self.entry_of(block_of(number)) else { return Some(Sequence(number)) };
            if let Content::Part(block) = &entry.content
                && let Some(low) = block.last_unsettled(low_of(number))
            {
                let number = start_of(entry.first) | u64::from(low);
                return (number >= self.below).then_some(Sequence(number));
            }
            number = start_of(entry.first).checked_sub(1)?;
        }
        None
    }

    /// Settles a range; sequences that are settled already are skipped, and a backward range is empty.
    #[inline]
    pub fn insert(&mut self, range: SequenceRange) {
        let (first, last) = (range.first.0, range.last.0.min(u64::MAX - 1));
        if last < first || last < self.below {
            return;
        }
        if first > self.below {
            self.insert_above(first, last);
            return;
        }
        let before = std::mem::replace(&mut self.below, last + 1);
        if !self.entries.is_empty() {
            self.pass_settled(before);
        }
    }

    /// Removes a sequence from the settled ones.
    pub fn remove(&mut self, sequence: Sequence) {
        let number = sequence.0;
        if number < self.below {
            let last = std::mem::replace(&mut self.below, number) - 1;
            if number < last {
                self.insert_above(number + 1, last);
            }
            return;
        }
        let (block, low) = (block_of(number), low_of(number));
        let at = self.index_of(block);
        let Some(entry) = self.entries.get_mut(at).filter(|entry| entry.first <= block) else { return };
        match &mut entry.content {
            Content::Part(part) => {
                part.remove(low, low);
                if part.is_empty() {
                    self.entries.remove(at);
                }
            }
            Content::Whole { last } => {
                let (first, last) = (entry.first, *last);
                let mut part = Block::new(0, u16::MAX);
                part.remove(low, low);
                let part = Some(Entry { first: block, content: Content::Part(part) });
                let split = [whole(first, block.checked_sub(1)), part, whole(block + 1, Some(last))];
                self.entries.splice(at..=at, split.into_iter().flatten());
            }
        }
    }

    /// Bytes of memory that it takes beside its own.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let of_entry = |entry: &Entry| match &entry.content {
            Content::Whole { .. } => 0,
            Content::Part(block) => block.heap_bytes(),
        };
        self.entries.capacity() * size_of::<Entry>() + self.entries.iter().map(of_entry).sum::<usize>()
    }

    /// Settles a range above the smallest unsettled sequence.
    fn insert_above(&mut self, first: u64, last: u64) {
        let (head, tail) = (block_of(first), block_of(last));
        if head == tail {
            self.insert_part(head, low_of(first), low_of(last));
            return;
        }
        self.insert_part(head, low_of(first), u16::MAX);
        if head + 1 < tail {
            self.insert_whole(head + 1, tail - 1);
        }
        self.insert_part(tail, 0, low_of(last));
    }

    fn insert_part(&mut self, block: u64, first: u16, last: u16) {
        if (first, last) == (0, u16::MAX) {
            self.insert_whole(block, block);
            return;
        }
        let at = self.index_of(block);
        let Some(entry) = self.entries.get_mut(at).filter(|entry| entry.first <= block) else {
            self.entries.insert(at, Entry { first: block, content: Content::Part(Block::new(first, last)) });
            return;
        };
        if let Content::Part(part) = &mut entry.content {
            part.insert(first, last);
            if part.is_full() {
                self.insert_whole(block, block);
            }
        }
    }

    /// Replaces the entries of these blocks by one, joined with whole neighbours.
    fn insert_whole(&mut self, mut first: u64, mut last: u64) {
        let touching = |entry: &Entry| u64::from(entry.is_whole());
        let from = self.entries.partition_point(|entry| entry.last() + touching(entry) < first);
        let to = self.entries.partition_point(|entry| entry.first <= last + touching(entry));
        if let Some(joined) = self.entries.get(from..to) {
            first = joined.first().map_or(first, |entry| entry.first.min(first));
            last = joined.last().map_or(last, |entry| entry.last().max(last));
        }
        self.entries.splice(from..to, whole(first, Some(last)));
    }

    /// Moves the smallest unsettled sequence past settled ones, and removes what is below it. It was `before`.
    fn pass_settled(&mut self, before: u64) {
        let mut passed = 0;
        for entry in &mut self.entries {
            if entry.last() >= block_of(self.below) {
                if entry.first > block_of(self.below) {
                    break;
                }
                let next = match &entry.content {
                    Content::Whole { .. } => None,
                    Content::Part(block) => block.next_unsettled(low_of(self.below)),
                };
                if let (Some(low), Content::Part(block)) = (next, &mut entry.content) {
                    self.below = start_of(entry.first) | u64::from(low);
                    if block.next_settled(low).is_none() {
                        passed += 1;
                    } else if low > 0 {
                        block.remove(low_of(before.max(start_of(entry.first))), low - 1);
                    }
                    break;
                }
                self.below = start_of(entry.last() + 1);
            }
            passed += 1;
        }
        self.entries.drain(..passed);
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(2 * self.entries.len());
        }
    }

    /// The index of the first entry that does not end below a block: only this one can have it.
    fn index_of(&self, block: u64) -> usize {
        self.entries.partition_point(|entry| entry.last() < block)
    }

    fn entry_of(&self, block: u64) -> Option<&Entry> {
        self.entries.get(self.index_of(block)).filter(|entry| entry.first <= block)
    }
}

/// The entry of whole blocks; `None` when there are none.
fn whole(first: u64, last: Option<u64>) -> Option<Entry> {
    let last = last.filter(|&last| first <= last)?;
    Some(Entry { first, content: Content::Whole { last } })
}

fn block_of(number: u64) -> u64 {
    number >> BLOCK_BITS
}

fn low_of(number: u64) -> u16 {
    number as u16
}

fn start_of(block: u64) -> u64 {
    block << BLOCK_BITS
}
