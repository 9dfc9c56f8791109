//! State of one subscription: its credit, and its unacked messages with the sizes known so far.
//!
//! Held messages are in one run sorted by sequence, because they are mostly taken and settled in order: taking pushes
//! at the back, settling drains from the front, anything else is found by binary search. It does not know other
//! subscriptions.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use crate::held::Held;
use crate::ids::{Sequence, SequenceRange};
use crate::settled::{Settled, extend};

/// A subscription of one queue. A number is never reused in that queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u64);

/// How a subscription stands beside the others of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// A consumer with this priority.
    Consumer(i32),
    /// It takes on request only.
    Pull,
}

impl Default for Rank {
    fn default() -> Rank {
        Rank::Consumer(0)
    }
}

/// Settings of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionSettings {
    /// How many messages it may hold unacked; 0 pauses it.
    pub prefetch: u32,
    /// Messages count as acknowledged once they were sent.
    pub auto_ack: bool,
    /// No other subscription may exist beside it.
    pub exclusive: bool,
}

/// Invariant: `held` ascends by sequence without repeats.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) settings: SubscriptionSettings,
    pub(crate) rank: Rank,
    held: VecDeque<Held>,
    /// Settled before their size was reported: their bytes leave the ready ones when it is.
    awaited: BTreeSet<Sequence>,
    /// It found nothing to take and waits to be woken.
    pub(crate) waits: bool,
    /// It counts among those with credit.
    pub(crate) is_willing: bool,
    /// It has credit and cannot use it until it takes again: others come first no longer.
    pub(crate) is_held_up: bool,
    /// It only keeps what it holds, and hinders no consumer that wants to be the only one.
    pub(crate) is_retired: bool,
    /// It was woken, or took something, and did not find out since that there is nothing for it.
    pub(crate) is_busy: bool,
}

/// Result of a reported size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sizing {
    /// The message is held, and its bytes were unknown until now.
    Held,
    /// The message was settled in the meantime.
    Settled,
    /// It is not held, or its size was known.
    Nothing,
}

impl Subscription {
    pub(crate) fn new(settings: SubscriptionSettings, rank: Rank) -> Self {
        Subscription {
            settings,
            rank,
            held: VecDeque::new(),
            awaited: BTreeSet::new(),
            waits: false,
            is_willing: false,
            is_held_up: false,
            is_retired: false,
            is_busy: false,
        }
    }

    pub(crate) fn held_count(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = &Held> {
        self.held.iter()
    }

    /// The number of messages, held or settled, with their size outstanding. It checks everything held.
    pub(crate) fn unsized_count(&self) -> usize {
        self.held.iter().filter(|held| held.bytes().is_none()).count() + self.awaited.len()
    }

    pub(crate) fn credit(&self) -> u64 {
        u64::from(self.settings.prefetch).saturating_sub(self.held.len() as u64)
    }

    pub(crate) fn hold(&mut self, message: Held) {
        match self.held.back() {
            Some(last) if last.sequence >= message.sequence => {
                let place = self.held.partition_point(|other| other.sequence < message.sequence);
                self.held.insert(place, message);
            }
            _ => self.held.push_back(message),
        }
    }

    /// Adds a run of messages above everything held of its lane.
    pub(crate) fn hold_run(&mut self, run: Range<u64>, delivery_count: u32) {
        let above = match self.held.back() {
            Some(last) if last.sequence.0 >= run.start => {
                let place = self.held.partition_point(|other| other.sequence.0 < run.start);
                self.held.split_off(place)
            }
            _ => VecDeque::new(),
        };
        self.held.extend(run.map(|number| Held::new(Sequence(number), delivery_count)));
        self.held.extend(above);
    }

    /// Notes a size. `guess` is the probable index of the message, and moves on: sizes come in the order of taking.
    #[inline]
    pub(crate) fn size(&mut self, sequence: Sequence, bytes: u32, guess: &mut usize) -> Sizing {
        if self.held.get(*guess).is_none_or(|held| held.sequence != sequence) {
            *guess = self.held.partition_point(|held| held.sequence < sequence);
        }
        let Some(held) = self.held.get_mut(*guess).filter(|held| held.sequence == sequence) else {
            return if self.awaited.remove(&sequence) { Sizing::Settled } else { Sizing::Nothing };
        };
        *guess += 1;
        if held.bytes().is_some() {
            return Sizing::Nothing;
        }
        *held = held.with_bytes(bytes);
        Sizing::Held
    }

    /// The indexes of held messages in `range`. The cost depends on the held messages, not on the width of the range.
    pub(crate) fn places(&self, range: SequenceRange) -> Range<usize> {
        let first = match self.held.front() {
            Some(front) if front.sequence >= range.first => 0,
            _ => self.held.partition_point(|held| held.sequence < range.first),
        };
        let end = match self.held.back() {
            Some(back) if back.sequence <= range.last => self.held.len(),
            _ => self.held.partition_point(|held| held.sequence <= range.last),
        };
        first..end.max(first)
    }

    /// The part of `range` with the held messages of one lane: that of the first of them.
    pub(crate) fn in_one_lane(&self, range: SequenceRange) -> SequenceRange {
        if range.first.lane() == range.last.lane() {
            return range;
        }
        let Some(first) = self.held.get(self.places(range).start).filter(|first| first.sequence <= range.last) else {
            return range;
        };
        let lane = first.sequence.lane();
        let (begin, end) = (Sequence(0).in_lane(lane), Sequence(u64::MAX).in_lane(lane));
        let is_last = self.held.get(self.places(range).end.saturating_sub(1)).is_none_or(|last| last.sequence <= end);
        SequenceRange { first: range.first.max(begin), last: if is_last { range.last } else { range.last.min(end) } }
    }

    /// The part of `range` with at most so many held messages, their number, and whether that is all of it.
    pub(crate) fn clip(&self, range: SequenceRange, count_max: usize) -> (SequenceRange, usize, bool) {
        let places = self.places(range);
        match self.held.get(places.start + count_max.saturating_sub(1)) {
            Some(last) if places.len() > count_max => {
                (SequenceRange { last: last.sequence, ..range }, count_max, false)
            }
            _ => (range, places.len(), true),
        }
    }

    /// How many messages move at most when those in `range` are removed: those on the shorter side of it.
    pub(crate) fn moves(&self, range: SequenceRange) -> usize {
        let places = self.places(range);
        if places.is_empty() { 0 } else { places.start.min(self.held.len() - places.end) }
    }

    /// Adds the messages at `places` to `settled`; returns how many of them have no size yet.
    pub(crate) fn add_up(&self, places: Range<usize>, settled: &mut Settled) -> u64 {
        let mut ends = self.held.range(places.clone());
        let Some(first) = ends.next() else { return 0 };
        let last = ends.next_back().unwrap_or(first);
        let held = || self.held.range(places.clone());
        let mut unsized_count = 0;
        for message in held() {
            match message.bytes() {
                Some(bytes) => settled.bytes += u64::from(bytes),
                None => unsized_count += 1,
            }
        }
        settled.count += places.len() as u64;
        let run = SequenceRange { first: first.sequence, last: last.sequence };
        if run.count() == places.len() as u64 {
            extend(&mut settled.ranges, run);
        } else {
            held().for_each(|message| {
                extend(&mut settled.ranges, SequenceRange { first: message.sequence, last: message.sequence });
            });
        }
        unsized_count
    }

    /// Notes that held messages in `range` were sent.
    pub(crate) fn sent(&mut self, range: SequenceRange) {
        let places = self.places(range);
        self.held.range_mut(places).for_each(|held| *held = held.sent());
    }

    /// Removes the messages at `places`, ascending.
    pub(crate) fn release(&mut self, places: Range<usize>) -> impl Iterator<Item = Held> {
        self.held.drain(places)
    }

    /// Remembers those at `places` with their size outstanding.
    pub(crate) fn await_sizes(&mut self, places: Range<usize>) {
        let waiting = self.held.range(places).filter(|message| message.bytes().is_none());
        self.awaited.extend(waiting.map(|message| message.sequence));
    }
}
