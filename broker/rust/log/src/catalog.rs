//! The sealed segments below the newest checkpoint: which of them have live messages, how many, and which are worth
//! rewriting.
//!
//! Invariants: settled messages stay settled, so a directory is read on from where the last check ended, and a message
//! that was alive is checked again before any directory is opened. Measuring is bounded for each checkpoint: a log of
//! thousands of segments is measured in turn.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::directory::{Lookup, Span};
use crate::error::LogError;
use crate::fold::FoldState;
use crate::live_segments::LiveSegment;
use crate::manifest::Entry;
use crate::record::{HEADER_BYTES, MESSAGE_FIXED_BYTES, Position, TARGET_BYTES};
use crate::recovery::Sealed;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment};

/// The most segments that become one.
const RUN_MAX: usize = 16;
/// A merged run has at most this part of the largest segment, unless one of its segments has more live data: the
/// replaced segments go only at the end, and nothing else is rewritten until then.
const RUN_PART: u64 = 2;
/// Small segments are merged once this many are adjacent.
const MERGE_MIN: usize = 8;
/// A segment of at most this part of the largest is small.
const SMALL_PART: u64 = 8;
/// A merge moves at most a third of its bytes for the sake of the rest, so a message moves once for each such step in size.
const MERGE_TIMES: u64 = 3;
/// The number of directory entries that are measured per checkpoint: a few milliseconds.
const ENTRIES_MAX: usize = 1 << 18;
/// Overhead of a message of one target beside its body; names and properties come on top and even out.
const RECORD_BYTES: u64 = (HEADER_BYTES + MESSAGE_FIXED_BYTES + TARGET_BYTES) as u64;

/// A sealed segment that a checkpoint covers. It has maps of its own, so that reading it leaves none behind.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(crate) segment: Arc<Segment>,
    pub(crate) end: Position,
    pub(crate) lookup: Lookup,
    /// A run that had a live message; all runs before the one at `looked` are dead for ever.
    witness: Option<Span>,
    looked: usize,
    measured_at: Position,
    /// Live weight, according to the directory.
    live_weight: u64,
    /// Bytes of records and their weight: (`bytes`, `weight`).
    scale: (u64, u64),
    /// Some of its bytes, or of its directory, are corrupt: it is not rewritten.
    is_unfit: bool,
}

impl Holding {
    pub(crate) fn new(segment: &Segment, end: Position, lookup: &Lookup) -> Holding {
        Holding {
            segment: Arc::new(segment.unmapped()),
            end,
            lookup: lookup.apart(),
            witness: None,
            looked: 0,
            measured_at: Position(0),
            live_weight: 0,
            scale: (0, 0),
            is_unfit: false,
        }
    }

    /// Its manifest entry, when it was rewritten.
    pub(crate) fn entry(&self) -> Option<Entry> {
        Entry::of(&self.segment, self.end)
    }

    /// Excludes it from rewriting.
    pub(crate) fn refuse(&mut self) {
        self.is_unfit = true;
    }

    fn is_live(&mut self, state: &FoldState) -> Result<bool, LogError> {
        let has_live = |(queue, first, count): Span| state.has_live(queue, first, count);
        if self.witness.is_some_and(has_live) {
            return Ok(true);
        }
        let found = self.lookup.find_run(self.looked, has_live)?;
        self.lookup = self.lookup.apart();
        let Some((at, run)) = found else {
            (self.witness, self.lookup) = (None, Lookup::Nothing);
            return Ok(false);
        };
        (self.witness, self.looked) = (Some(run), at);
        Ok(true)
    }

    fn may_live(&mut self, state: &FoldState) -> Result<bool, LogError> {
        match self.is_live(state) {
            // The content of its directory is unknown; the segment stays until the directory is rebuilt.
            Err(LogError::Corrupt { .. }) => {
                self.refuse();
                Ok(true)
            }
            asked => asked,
        }
    }

    /// Measures it; returns the number of entries read.
    fn measure(&mut self, state: &FoldState) -> usize {
        self.measured_at = state.position;
        let Lookup::File(directory) = &self.lookup else { return 0 };
        let (mut entries, mut all, mut live) = (0, 0, 0);
        match directory.entries() {
            Ok(found) => {
                for entry in found {
                    entries += 1;
                    let count = u64::from(entry.count).max(1);
                    let weight = entry.body_bytes.saturating_add(RECORD_BYTES * count);
                    all += weight;
                    live += share(weight, state.live_count(entry.queue, entry.first, count), count);
                }
            }
            Err(_) => self.is_unfit = true,
        }
        self.lookup = self.lookup.apart();
        self.live_weight = live;
        if self.scale.1 == 0 {
            self.scale = (self.segment.readable() - SEGMENT_HEADER_BYTES, all);
        }
        entries
    }

    /// Corrects the live bytes to this number, whatever the directory said.
    pub(crate) fn correct(&mut self, live_bytes: u64) {
        self.scale = (live_bytes, self.live_weight);
    }

    fn live_bytes(&self) -> u64 {
        share(self.scale.0, self.live_weight, self.scale.1)
    }

    fn can_move(&self, floor: Position) -> bool {
        !self.is_unfit && self.end <= floor && self.measured_at > Position(0) && matches!(self.lookup, Lookup::File(_))
    }

    /// Whether rewriting it frees enough: two fifths of it, and more than a trifle.
    fn is_wasteful(&self, trifle: u64) -> bool {
        let (bytes, live) = (self.segment.room_bytes(), self.live_bytes());
        bytes.saturating_sub(live) > trifle && live.saturating_mul(5) < bytes.saturating_mul(3)
    }
}

fn share(of: u64, part: u64, whole: u64) -> u64 {
    (u128::from(of) * u128::from(part)).checked_div(u128::from(whole)).unwrap_or(0) as u64
}

/// Candidates for a choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice<'a> {
    /// Segments above it are excluded.
    pub(crate) floor: Position,
    pub(crate) sizes: Sizes,
    /// Numbers of segments that are never chosen, nor chosen across.
    pub(crate) barriers: &'a BTreeSet<u64>,
    /// Whether small ones are merged, which frees no space.
    pub(crate) merges: bool,
}

/// All segments, ascending.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    holdings: Vec<Holding>,
    /// The checkpoint that `entries_left` is for.
    measured_at: Position,
    entries_left: usize,
}

/// Limits of a log's segment sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) bytes_min: u64,
    pub(crate) bytes_max: u64,
}

impl Catalog {
    pub(crate) fn of(sealed: &[Sealed]) -> Catalog {
        let holding = |sealed: &Sealed| Holding::new(&sealed.segment, sealed.end, &sealed.lookup);
        Catalog { holdings: sealed.iter().map(holding).collect(), ..Catalog::default() }
    }

    /// Adds one, or replaces the one with its number.
    pub(crate) fn put(&mut self, holding: Holding) {
        let number = holding.segment.number();
        self.replace(number, number, holding);
    }

    /// Replaces all from one number to another by one.
    pub(crate) fn replace(&mut self, first: u64, last: u64, holding: Holding) {
        let from = self.holdings.partition_point(|held| held.segment.number() < first);
        let to = self.holdings.partition_point(|held| held.segment.number() <= last);
        self.holdings.splice(from..to, [holding]);
    }

    /// Live bytes of all that were measured.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.holdings.iter().map(Holding::live_bytes).sum()
    }

    pub(crate) fn holdings(&self) -> &[Holding] {
        &self.holdings
    }

    pub(crate) fn get_mut(&mut self, segment: &Segment) -> Option<&mut Holding> {
        let at = self.holdings.binary_search_by_key(&segment.number(), |held| held.segment.number()).ok()?;
        self.holdings.get_mut(at).filter(|held| held.segment.id() == segment.id())
    }

    /// Removes and returns those without live messages that end at or below `floor`.
    pub(crate) fn take_dead(&mut self, state: &FoldState, floor: Position) -> Result<Vec<Arc<Segment>>, LogError> {
        let mut is_dead = Vec::with_capacity(self.holdings.len());
        for held in &mut self.holdings {
            is_dead.push(!held.may_live(state)? && held.end <= floor);
        }
        let mut dead = Vec::new();
        let mut at = 0;
        self.holdings.retain(|held| {
            let goes = is_dead.get(at).copied().unwrap_or(false);
            at += 1;
            if goes {
                dead.push(Arc::clone(&held.segment));
            }
            !goes
        });
        Ok(dead)
    }

    /// Those with live messages.
    pub(crate) fn live(&mut self, state: &FoldState) -> Result<Vec<LiveSegment>, LogError> {
        let mut live = Vec::new();
        for held in &mut self.holdings {
            if held.may_live(state)? {
                live.push(LiveSegment::of(&held.segment));
            }
        }
        Ok(live)
    }

    /// Measures the ones not measured for the longest, within the limit for a checkpoint.
    pub(crate) fn measure(&mut self, state: &FoldState, floor: Position) {
        if self.measured_at != state.position {
            (self.measured_at, self.entries_left) = (state.position, ENTRIES_MAX);
        }
        let is_due = |held: &Holding| held.end <= floor && !held.is_unfit && held.measured_at < state.position;
        let mut due: Vec<&mut Holding> = self.holdings.iter_mut().filter(|held| is_due(held)).collect();
        due.sort_by_key(|held| held.measured_at);
        for held in due {
            if self.entries_left == 0 {
                return;
            }
            self.entries_left = self.entries_left.saturating_sub(held.measure(state).max(1));
        }
    }

    /// Neighbours that should become one: mostly dead ones first, then many small ones.
    pub(crate) fn choose(&self, choice: Choice<'_>) -> Option<Range<usize>> {
        let Choice { floor, sizes, barriers, .. } = choice;
        let trifle = sizes.bytes_min / 8;
        let can_move = |held: &Holding| held.can_move(floor) && !barriers.contains(&held.segment.number());
        let wasteful = |held: &Holding| can_move(held) && held.is_wasteful(trifle);
        let run_from = |first: usize, belongs: &dyn Fn(&Holding) -> bool| {
            let to = self.run_from(first, sizes.bytes_max / RUN_PART, belongs);
            first..self.up_to_barrier(first..to, barriers)
        };
        if let Some(first) = self.holdings.iter().position(wasteful) {
            return Some(run_from(first, &wasteful));
        }
        if !choice.merges {
            return None;
        }
        let small = |held: &Holding| {
            can_move(held) && held.segment.is_rewritten() && held.segment.bytes() <= sizes.bytes_max / SMALL_PART
        };
        let is_worth_it = |run: &[Holding]| {
            let bytes = run.iter().map(|held| held.segment.bytes());
            let largest = bytes.clone().max().unwrap_or(0);
            run.len() >= MERGE_MIN && bytes.sum::<u64>() >= largest.saturating_mul(MERGE_TIMES)
        };
        (0..self.holdings.len())
            .map(|first| run_from(first, &small))
            .find(|range| self.holdings.get(range.clone()).is_some_and(is_worth_it))
    }

    /// Where a run ends before the first barrier after its beginning.
    fn up_to_barrier(&self, run: Range<usize>, barriers: &BTreeSet<u64>) -> usize {
        let Some(first) = self.holdings.get(run.start) else { return run.end };
        let barrier = barriers.range(first.segment.number()..).next().copied().unwrap_or(u64::MAX);
        run.end.min(self.holdings.partition_point(|held| held.segment.number() < barrier))
    }

    /// Where a run of neighbours of one format ends whose live bytes fit in one segment; it always has the first of them.
    fn run_from(&self, first: usize, bytes_max: u64, belongs: impl Fn(&Holding) -> bool) -> usize {
        let mut bytes = 0_u64;
        let mut to = first;
        let format = self.holdings.get(first).map(|held| held.segment.format());
        let belongs = |held: &&Holding| Some(held.segment.format()) == format && belongs(held);
        for held in self.holdings.iter().skip(first).take(RUN_MAX).take_while(belongs) {
            bytes = bytes.saturating_add(held.live_bytes());
            if to > first && bytes > bytes_max {
                break;
            }
            to += 1;
        }
        to
    }
}
