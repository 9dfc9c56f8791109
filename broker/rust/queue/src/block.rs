//! The settled sequences of one block of 65,536, as runs or as a bitmap.
//!
//! Runs are the form of nearly every block: acks come in order, or almost. They take 4 bytes each, so from 2,048 runs on
//! a bitmap is smaller. A bitmap becomes runs again when few enough are left: half as many, so that a block on the edge
//! does not change its form with each ack. A list of single sequences, the third form in checkpoints, saves at most
//! 4 KiB of memory a block and is no form of its own here.

use crate::bitmap::Bitmap;

/// As many runs take as much memory as a bitmap.
const RUNS_MAX: usize = 2048;
/// A bitmap with at most as many runs becomes runs.
const RUNS_OF_BITMAP_MIN: u32 = 1024;
/// Least changes between two counts of a bitmap's runs: a count reads 8 KiB.
const CHANGES_MIN: u32 = 256;
/// So many runs keep their memory when others go.
const RUNS_KEPT: usize = 8;

/// From `first` to `last`, both included: the lower 16 bits of sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    first: u16,
    last: u16,
}

/// Invariant: runs ascend and do not touch.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    Runs(Vec<Run>),
    Bits(Box<Bits>),
}

/// A bitmap, and how many of its bits may change before its runs have to be counted. As many changes at least lie
/// between it and few runs.
#[derive(Clone, Debug)]
pub(crate) struct Bits {
    bitmap: Bitmap,
    changes_left: u32,
}

impl Block {
    pub(crate) fn new(first: u16, last: u16) -> Self {
        Block::Runs(vec![Run { first, last }])
    }

    pub(crate) fn is_full(&self) -> bool {
        match self {
            Block::Runs(runs) => matches!(runs.as_slice(), [Run { first: 0, last: u16::MAX }]),
            Block::Bits(bits) => bits.bitmap.count() > u32::from(u16::MAX),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Block::Runs(runs) => runs.is_empty(),
            Block::Bits(bits) => bits.bitmap.count() == 0,
        }
    }

    pub(crate) fn contains(&self, low: u16) -> bool {
        match self {
            Block::Runs(runs) => run_at(runs, low).is_some_and(|run| run.first <= low),
            Block::Bits(bits) => bits.bitmap.contains(low),
        }
    }

    /// The first settled sequence at or above `from`.
    pub(crate) fn next_settled(&self, from: u16) -> Option<u16> {
        match self {
            Block::Runs(runs) => run_at(runs, from).map(|run| run.first.max(from)),
            Block::Bits(bits) => bits.bitmap.next_set(from),
        }
    }

    /// The first unsettled sequence at or above `from`.
    pub(crate) fn next_unsettled(&self, from: u16) -> Option<u16> {
        match self {
            Block::Runs(runs) => match run_at(runs, from) {
                Some(run) if run.first <= from => run.last.checked_add(1),
                _ => Some(from),
            },
            Block::Bits(bits) => bits.bitmap.next_clear(from),
        }
    }

    /// The last unsettled sequence at or below `to`.
    pub(crate) fn last_unsettled(&self, to: u16) -> Option<u16> {
        match self {
            Block::Runs(runs) => match run_at(runs, to) {
                Some(run) if run.first <= to => run.first.checked_sub(1),
                _ => Some(to),
            },
            Block::Bits(bits) => bits.bitmap.last_clear(to),
        }
    }

    pub(crate) fn insert(&mut self, first: u16, last: u16) {
        match self {
            Block::Runs(runs) => insert_run(runs, Run { first, last }),
            Block::Bits(bits) => bits.change(|bitmap| bitmap.insert(first, last)),
        }
        self.fit();
    }

    pub(crate) fn remove(&mut self, first: u16, last: u16) {
        match self {
            Block::Runs(runs) => remove_run(runs, Run { first, last }),
            Block::Bits(bits) => bits.change(|bitmap| bitmap.remove(first, last)),
        }
        self.fit();
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Block::Runs(runs) => runs.capacity() * size_of::<Run>(),
            Block::Bits(_) => size_of::<Bits>(),
        }
    }

    /// Takes the smaller form when the present one has become too large.
    fn fit(&mut self) {
        match self {
            Block::Runs(runs) if runs.len() > RUNS_MAX => *self = Block::Bits(bits_of(runs)),
            Block::Runs(runs) if runs.len().max(RUNS_KEPT) < runs.capacity() / 4 => runs.shrink_to(2 * runs.len()),
            Block::Bits(bits) if bits.changes_left == 0 => {
                let count = bits.bitmap.count_runs();
                if count <= RUNS_OF_BITMAP_MIN {
                    *self = Block::Runs(runs_of(&bits.bitmap, count as usize));
                } else {
                    // One changed bit takes away one run at most.
                    bits.changes_left = (count - RUNS_OF_BITMAP_MIN).max(CHANGES_MIN);
                }
            }
            _ => (),
        }
    }
}

impl Bits {
    fn change(&mut self, change: impl FnOnce(&mut Bitmap)) {
        let before = self.bitmap.count();
        change(&mut self.bitmap);
        self.changes_left = self.changes_left.saturating_sub(self.bitmap.count().abs_diff(before));
    }
}

fn bits_of(runs: &[Run]) -> Box<Bits> {
    let mut bits = Box::new(Bits { bitmap: Bitmap::new(), changes_left: RUNS_OF_BITMAP_MIN });
    for run in runs {
        bits.bitmap.insert(run.first, run.last);
    }
    bits
}

fn runs_of(bitmap: &Bitmap, count: usize) -> Vec<Run> {
    let mut runs = Vec::with_capacity(count);
    let mut from = Some(0);
    while let Some(first) = from.and_then(|from| bitmap.next_set(from)) {
        let end = bitmap.next_clear(first);
        runs.push(Run { first, last: end.map_or(u16::MAX, |end| end - 1) });
        from = end;
    }
    runs
}

/// The first run that does not lie below `low`: only this one can have it.
fn run_at(runs: &[Run], low: u16) -> Option<&Run> {
    runs.get(runs.partition_point(|run| run.last < low))
}

/// Adds a run, joined with those that it overlaps or touches.
fn insert_run(runs: &mut Vec<Run>, mut run: Run) {
    let from = runs.partition_point(|other| other.last < run.first.saturating_sub(1));
    let to = runs.partition_point(|other| other.first <= run.last.saturating_add(1));
    match runs.get_mut(from..to) {
        Some([first, others @ ..]) => {
            run.first = run.first.min(first.first);
            run.last = run.last.max(others.last().unwrap_or(first).last);
            *first = run;
            runs.drain(from + 1..to);
        }
        _ => runs.insert(from, run),
    }
}

/// Removes a run; one that it splits becomes two.
fn remove_run(runs: &mut Vec<Run>, run: Run) {
    let from = runs.partition_point(|other| other.last < run.first);
    let to = runs.partition_point(|other| other.first <= run.last);
    let below = runs.get(from).filter(|other| other.first < run.first);
    let below = below.map(|other| Run { first: other.first, last: run.first - 1 });
    let above = to.checked_sub(1).and_then(|last| runs.get(last)).filter(|other| other.last > run.last);
    let above = above.map(|other| Run { first: run.last + 1, last: other.last });
    runs.splice(from..to, below.into_iter().chain(above));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_second(count: u16) -> Block {
        let mut block = Block::new(0, 0);
        (1..count).for_each(|number| block.insert(2 * number, 2 * number));
        block
    }

    fn is_bitmap(block: &Block) -> bool {
        matches!(block, Block::Bits(_))
    }

    #[test]
    fn a_block_of_many_runs_is_a_bitmap_and_one_of_few_is_not() {
        let mut block = every_second(2048);
        assert!(!is_bitmap(&block));

        block.insert(9_001, 9_001);
        block.insert(50_000, 50_000);
        block.insert(50_002, 50_002);
        assert!(is_bitmap(&block));
        block.insert(0, 40_000);

        assert!(!is_bitmap(&block));
        assert_eq!(block.next_unsettled(0), Some(40_001));
        assert_eq!([block.next_settled(40_001), block.next_settled(50_001)], [Some(50_000), Some(50_002)]);
        assert!(block.heap_bytes() < 100);
    }

    #[test]
    fn a_block_on_the_edge_keeps_its_form() {
        let mut block = every_second(2049);
        assert!(is_bitmap(&block));

        for _ in 0..2_000 {
            block.remove(8, 8);
            assert!(is_bitmap(&block));
            block.insert(8, 8);
            assert!(is_bitmap(&block));
        }
    }

    #[test]
    fn a_full_block_is_full_in_both_forms() {
        let mut bits = every_second(32_768);
        assert!(is_bitmap(&bits) && !bits.is_full());
        bits.insert(0, u16::MAX);
        let mut bitmap = Bitmap::new();
        bitmap.insert(0, u16::MAX);

        assert!(bits.is_full());
        assert_eq!((bitmap.count(), bitmap.count_runs()), (65_536, 1));
        assert_eq!((bitmap.next_clear(0), bitmap.last_clear(u16::MAX)), (None, None));
        assert!(Block::new(0, u16::MAX).is_full());
    }
}
