//! Where the messages go that leave a queue unprocessed, and which messages are about to: dead letters.
//!
//! Invariants: a message that is about to leave is put aside in its queue, so that no consumer gets it; runs do not overlap. A
//! run takes the same memory however long it is.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use penstock_log::Position;
use penstock_queue::{AckSet, QueueId, Sequence, SequenceRange};
use penstock_wire::amqp::deaths::Reason;
use rustc_hash::FxHashMap;

/// Where the dead letters of a queue go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetters {
    pub exchange: String,
    /// The keys of the message if there is none.
    pub routing_key: Option<String>,
    /// Whether a message stays in its queue as long as no queue takes it; otherwise it is dropped then.
    pub at_least_once: bool,
}

/// How the dead letters of a shard are moved.
#[derive(Debug)]
pub(crate) struct Moving {
    /// Whether the shard waits for the thread that moves them.
    pub waits: AtomicBool,
    /// Held while some are moved.
    pub alone: Mutex<()>,
    /// A position of the shard's own log: until that is synced, no copies are stored in it, and none is waited for.
    pub behind: AtomicU64,
}

impl Moving {
    /// The log may have copies below `behind` at the start.
    pub fn new(behind: Position) -> Moving {
        Moving { waits: AtomicBool::new(false), alone: Mutex::default(), behind: AtomicU64::new(behind.0) }
    }
}

/// The messages of a shard that are about to leave their queues.
#[derive(Debug, Default)]
pub(crate) struct Dying {
    /// By the first message of each run: its last one, and why.
    runs: BTreeMap<(QueueId, Sequence), (Sequence, Reason)>,
    /// How many runs are of messages that were too many: these never stay.
    too_long_runs: usize,
    /// How many messages they are of each queue.
    counts: FxHashMap<QueueId, u64>,
    /// Letters among them that were tried and stay: their sizes are known.
    tried: FxHashMap<QueueId, Tried>,
    /// The next part begins here, or with the first run.
    from: Option<(QueueId, Sequence)>,
}

/// Letters of a queue that were tried, their number and their bytes.
#[derive(Debug)]
struct Tried {
    letters: AckSet,
    count: u64,
    bytes: u64,
}

impl Default for Tried {
    fn default() -> Self {
        Tried { letters: AckSet::starting_at(Sequence(0)), count: 0, bytes: 0 }
    }
}

/// Messages of one queue that are about to leave it.
pub(crate) type DyingPart = (QueueId, Vec<(Sequence, Reason)>);

impl Dying {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// How many runs are of messages that were too many for their queues.
    pub fn too_long_runs(&self) -> usize {
        self.too_long_runs
    }

    /// How many messages of a queue are among them.
    pub fn count_of(&self, queue: QueueId) -> u64 {
        if self.runs.is_empty() { 0 } else { self.counts.get(&queue).copied().unwrap_or(0) }
    }

    /// How many messages of a queue are among them, and their bytes once all of them were tried.
    pub fn length_of(&self, queue: QueueId) -> (u64, Option<u64>) {
        let count = self.count_of(queue);
        if count == 0 {
            return (0, Some(0));
        }
        (count, self.tried.get(&queue).filter(|tried| tried.count == count).map(|tried| tried.bytes))
    }

    /// Notes the size of a letter that stays.
    pub fn note_size(&mut self, queue: QueueId, sequence: Sequence, bytes: u32) {
        if !self.contains(queue, sequence) {
            return;
        }
        let tried = self.tried.entry(queue).or_default();
        if !tried.letters.contains(sequence) {
            tried.letters.insert(SequenceRange::of(sequence));
            tried.count += 1;
            tried.bytes += u64::from(bytes);
        }
    }

    pub fn add(&mut self, queue: QueueId, range: SequenceRange, reason: Reason) {
        *self.counts.entry(queue).or_default() += range.count();
        let before = self.runs.range_mut(..(queue, range.first)).next_back();
        if let Some(((of, _), (last, why))) = before
            && *of == queue
            && *why == reason
            && last.next() == range.first
        {
            *last = range.last;
            return;
        }
        self.put((queue, range.first), (range.last, reason));
    }

    pub fn contains(&self, queue: QueueId, sequence: Sequence) -> bool {
        self.run_of(queue, sequence).is_some()
    }

    /// Removes a message, of a size if that is known: without it, the sizes of the queue's letters have to be noted again.
    pub fn remove(&mut self, queue: QueueId, sequence: Sequence, bytes: Option<u32>) {
        let Some((first, last, reason)) = self.run_of(queue, sequence) else { return };
        self.forget_size(queue, sequence, bytes);
        if let Some(count) = self.counts.get_mut(&queue) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&queue);
            }
        }
        self.take((queue, first));
        if first < sequence {
            self.put((queue, first), (Sequence(sequence.0 - 1), reason));
        }
        if sequence < last {
            self.put((queue, sequence.next()), (last, reason));
        }
    }

    fn put(&mut self, first: (QueueId, Sequence), run: (Sequence, Reason)) {
        self.too_long_runs += usize::from(run.1 == Reason::MaxLength);
        self.runs.insert(first, run);
    }

    fn take(&mut self, first: (QueueId, Sequence)) {
        let taken = self.runs.remove(&first);
        self.too_long_runs -= usize::from(taken.is_some_and(|(_, reason)| reason == Reason::MaxLength));
    }

    fn forget_size(&mut self, queue: QueueId, sequence: Sequence, bytes: Option<u32>) {
        let Some(tried) = self.tried.get_mut(&queue).filter(|tried| tried.letters.contains(sequence)) else { return };
        tried.letters.remove(sequence);
        tried.count -= 1;
        tried.bytes = tried.bytes.saturating_sub(bytes.unwrap_or(0).into());
        if bytes.is_none() || tried.count == 0 {
            self.tried.remove(&queue);
        }
    }

    pub fn forget(&mut self, queue: QueueId) {
        self.counts.remove(&queue);
        self.tried.remove(&queue);
        let of_queue = (queue, Sequence(0))..=(queue, Sequence(u64::MAX));
        let firsts: Vec<_> = self.runs.range(of_queue).map(|(&first, _)| first).collect();
        firsts.into_iter().for_each(|first| self.take(first));
    }

    /// The next messages of one queue, at most so many.
    pub fn next_part(&mut self, count_max: usize) -> Option<DyingPart> {
        let from = self.from.take().unwrap_or((QueueId(0), Sequence(0)));
        let inside = self.run_of(from.0, from.1).map(|(first, ..)| (from.0, first));
        let begin = inside.unwrap_or(from);
        let (&(queue, _), _) = self.runs.range(begin..).next().or_else(|| self.runs.iter().next())?;
        let begin = if begin.0 == queue { begin } else { (queue, Sequence(0)) };
        let mut part = Vec::new();
        for (&(_, first), &(last, reason)) in self.runs.range(begin..=(queue, Sequence(u64::MAX))) {
            let first = if from.0 == queue { first.max(from.1) } else { first };
            let left = (count_max - part.len()) as u64;
            part.extend((first.0..=last.0).take(left as usize).map(|number| (Sequence(number), reason)));
            if part.len() >= count_max {
                break;
            }
        }
        self.from = part.last().map(|&(last, _)| (queue, last.next()));
        Some((queue, part))
    }

    /// The next part begins behind a message.
    pub fn go_on_after(&mut self, queue: QueueId, sequence: Sequence) {
        self.from = Some((queue, sequence.next()));
    }

    /// The next part is of another queue, if there is one.
    pub fn pass(&mut self, queue: QueueId) {
        self.from = Some((QueueId(queue.0 + 1), Sequence(0)));
    }

    /// Whether the next part begins with the first run again.
    pub fn is_at_end(&self) -> bool {
        let from = self.from.unwrap_or((QueueId(0), Sequence(0)));
        self.run_of(from.0, from.1).is_none() && self.runs.range(from..).next().is_none()
    }

    fn run_of(&self, queue: QueueId, sequence: Sequence) -> Option<(Sequence, Sequence, Reason)> {
        let until = (Bound::Unbounded, Bound::Included((queue, sequence)));
        let (&(of, first), &(last, reason)) = self.runs.range(until).next_back()?;
        (of == queue && sequence <= last).then_some((first, last, reason))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn run(first: u64, last: u64) -> SequenceRange {
        SequenceRange { first: Sequence(first), last: Sequence(last) }
    }

    #[test]
    fn parts_go_through_all_queues_in_turns() {
        let mut dying = Dying::default();
        dying.add(QueueId(1), run(1, 5), Reason::Expired);
        dying.add(QueueId(2), run(7, 7), Reason::Rejected);
        let mut next = || {
            let (queue, part) = dying.next_part(3).unwrap();
            (queue.0, part.iter().map(|(sequence, _)| sequence.0).collect::<Vec<_>>())
        };

        assert_eq!(next(), (1, vec![1, 2, 3]));
        assert_eq!(next(), (1, vec![4, 5]));
        assert_eq!(next(), (2, vec![7]));
        assert_eq!(next(), (1, vec![1, 2, 3]));
        dying.pass(QueueId(1));
        assert_eq!(dying.next_part(3).unwrap().0, QueueId(2));
        assert!(dying.is_at_end());
    }

    #[test]
    fn messages_that_follow_each_other_are_one_run() {
        let mut dying = Dying::default();
        (1..=100_000).for_each(|number| dying.add(QueueId(1), run(number, number), Reason::Expired));

        assert_eq!(dying.run_count(), 1);
    }

    #[test]
    fn bytes_are_known_once_all_letters_of_a_queue_were_tried() {
        let (queue, mut dying) = (QueueId(1), Dying::default());
        dying.add(queue, run(1, 3), Reason::Rejected);
        [1, 2, 2, 9].into_iter().for_each(|number| dying.note_size(queue, Sequence(number), 10));
        assert_eq!(dying.length_of(queue), (3, None));

        dying.note_size(queue, Sequence(3), 5);
        assert_eq!(dying.length_of(queue), (3, Some(25)));
        dying.remove(queue, Sequence(2), Some(10));
        assert_eq!(dying.length_of(queue), (2, Some(15)));
        dying.add(queue, run(7, 7), Reason::MaxLength);
        assert_eq!((dying.length_of(queue), dying.too_long_runs()), ((3, None), 1));
        dying.remove(queue, Sequence(1), None);
        dying.remove(queue, Sequence(7), None);
        assert_eq!((dying.length_of(queue), dying.too_long_runs()), ((1, None), 0));
        dying.add(queue, run(8, 9), Reason::MaxLength);
        dying.forget(queue);
        assert_eq!((dying.length_of(queue), dying.too_long_runs()), ((0, Some(0)), 0));
    }

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((0..3_u64, 1..30_u64, 0..4_u64, any::<bool>()), 1..60)) {
            let (mut dying, mut expected) = (Dying::default(), BTreeSet::new());
            for (queue, first, more, is_added) in steps {
                for number in first..=first + more {
                    let (id, sequence) = (QueueId(queue), Sequence(number));
                    if !is_added {
                        dying.remove(id, sequence, None);
                        expected.remove(&(queue, number));
                    } else if expected.insert((queue, number)) {
                        dying.add(id, run(number, number), Reason::Rejected);
                    }
                }
            }
            for queue in 0..3 {
                let count = expected.iter().filter(|(of, _)| *of == queue).count() as u64;
                prop_assert_eq!(dying.count_of(QueueId(queue)), count);
            }
            for (queue, number) in (0..3).flat_map(|queue| (1..40).map(move |number| (queue, number))) {
                let is_in = dying.contains(QueueId(queue), Sequence(number));
                prop_assert_eq!(is_in, expected.contains(&(queue, number)));
            }
            let mut seen = BTreeSet::new();
            while !expected.is_empty() {
                let (queue, part) = dying.next_part(4).unwrap();
                let fresh = part.iter().filter(|(sequence, _)| seen.insert((queue.0, sequence.0))).count();
                if fresh == 0 {
                    break;
                }
            }
            prop_assert_eq!(seen, expected);
        }
    }
}
