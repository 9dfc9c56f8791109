//! Deadlines of a log with a bound, in any order of appends, bounds, folds, rewrites, cuts and starts: each of a message below
//! the bound comes in every life of a process, and none of a message above it. Proptest prints the case that fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use penstock_log::{Attributes, Begun, Deadline, DeadlineKind, Log, LogOptions, Outcome, Payload, Position, Target};
use penstock_queue::{QueueId, Sequence, SequenceRange};
use proptest::prelude::*;
use support::replicas::{directory, epoch};
use support::{compact_all, fold, small_segments, sync};

const QUEUES: [QueueId; 2] = [QueueId(1), QueueId(2)];
const BODY: [u8; 20] = [7; 20];

#[derive(Clone, Debug)]
enum Step {
    /// Messages of both queues, each with its times.
    Append(Vec<(Option<u64>, Option<u64>)>),
    /// Settles most of the messages below the bound.
    Settle(u64),
    Bound(prop::sample::Index),
    Cut(prop::sample::Index),
    Take(u64),
    Fold,
    Rewrite,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let time = || prop::option::of(0..1000_u64);
    let step = prop_oneof![
        8 => prop::collection::vec((time(), time()), 1..40).prop_map(Step::Append),
        2 => (2..9_u64).prop_map(Step::Settle),
        4 => any::<prop::sample::Index>().prop_map(Step::Bound),
        1 => any::<prop::sample::Index>().prop_map(Step::Cut),
        5 => (0..1000_u64).prop_map(Step::Take),
        2 => Just(Step::Fold),
        1 => Just(Step::Rewrite),
        2 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..40)
}

/// The content of the log at the end of a record.
#[derive(Clone, Default)]
struct Content {
    next: u64,
    settled: BTreeSet<u64>,
}

struct House<'a> {
    directory: &'a Path,
    log: Log,
    epochs: u64,
    past: BTreeMap<Position, Content>,
    times: BTreeMap<(Sequence, DeadlineKind), u64>,
    /// In this life.
    came: BTreeSet<Deadline>,
}

impl House<'_> {
    fn open(directory: &Path) -> Log {
        Log::open(directory, LogOptions { is_bounded: true, ..small_segments() }).unwrap().log
    }

    fn begin(directory: &Path) -> House<'_> {
        let log = House::open(directory);
        let past = BTreeMap::from([(log.bound(), Content::default())]);
        let (times, came) = (BTreeMap::new(), BTreeSet::new());
        let mut house = House { directory, log, epochs: 0, past, times, came };
        house.begin_epoch(Content::default());
        house
    }

    fn begin_epoch(&mut self, content: Content) {
        self.epochs += 1;
        self.log.follow_epoch(epoch(self.epochs), 0, Begun::default()).unwrap();
        self.past.insert(self.log.end(), content);
    }

    fn last(&self) -> Content {
        self.past.last_key_value().unwrap().1.clone()
    }

    fn committed(&self) -> &Content {
        self.past.range(..=self.log.bound()).next_back().unwrap().1
    }

    fn append(&mut self, all: &[(Option<u64>, Option<u64>)]) {
        let mut content = self.last();
        for &(due_at_ms, expires_at_ms) in all {
            content.next += 1;
            let sequence = Sequence(content.next);
            let attributes = Attributes { due_at_ms, expires_at_ms, ..Attributes::default() };
            let payload = Payload::new(b"", b"", b"", &BODY).unwrap().with_attributes(&attributes);
            self.log.append_message(&payload, 5, &QUEUES.map(|queue| Target { queue, sequence })).unwrap();
            for (kind, at_ms) in [(DeadlineKind::Due, due_at_ms), (DeadlineKind::Expires, expires_at_ms)] {
                self.times.remove(&(sequence, kind));
                self.times.extend(at_ms.map(|at_ms| ((sequence, kind), at_ms)));
            }
            self.past.insert(self.log.end(), content.clone());
        }
        self.log.write().unwrap();
    }

    fn settle(&mut self, rest: u64) {
        let committed = self.committed().next;
        let mut content = self.last();
        let gone = (1..=committed).filter(|number| number % rest != 0 && !content.settled.contains(number));
        let gone: Vec<u64> = gone.collect();
        let ranges: Vec<_> =
            gone.iter().map(|&number| SequenceRange { first: Sequence(number), last: Sequence(number) }).collect();
        content.settled.extend(&gone);
        for queue in QUEUES {
            let count = ranges.len() as u64;
            self.log.append_settle(queue, Outcome::Ack, count, count * BODY.len() as u64, &ranges).unwrap();
        }
        self.log.write().unwrap();
        self.past.insert(self.log.end(), content);
    }

    fn ends_from(&self, from: Position) -> Vec<Position> {
        self.past.range(from..).map(|(&end, _)| end).collect()
    }

    fn bound(&mut self, at: &prop::sample::Index) {
        self.log.write().unwrap();
        let ends = self.ends_from(self.log.bound());
        if !ends.is_empty() {
            self.log.set_bound(ends[at.index(ends.len())]).unwrap();
        }
    }

    fn cut(&mut self, at: &prop::sample::Index) {
        let ends = self.ends_from(self.log.bound());
        if let Some(&position) = ends.get(at.index(ends.len().max(1))) {
            self.log.truncate_to(position).unwrap();
            self.past.split_off(&Position(position.0 + 1));
            let content = self.last();
            self.times.retain(|(sequence, _), _| sequence.0 <= content.next);
            self.begin_epoch(content);
        }
    }

    /// Deadlines of messages below the bound that are not settled.
    fn expected(&self, to_ms: u64) -> BTreeSet<Deadline> {
        let (committed, last) = (self.committed(), self.last());
        let is_live = |sequence: &Sequence| sequence.0 <= committed.next && !last.settled.contains(&sequence.0);
        let live = self.times.iter().filter(|((sequence, _), at_ms)| is_live(sequence) && **at_ms <= to_ms);
        let all =
            live.flat_map(|(&(sequence, kind), &at_ms)| QUEUES.map(|queue| Deadline { at_ms, queue, sequence, kind }));
        all.collect()
    }

    fn take(&mut self, to_ms: u64) {
        while let Some(ticket) = self.log.begin_deadlines(to_ms, 5) {
            let read = ticket.perform().unwrap();
            for deadline in self.log.finish_deadlines(read) {
                let at_ms = self.times.get(&(deadline.sequence, deadline.kind));
                assert_eq!(at_ms, Some(&deadline.at_ms), "{deadline:?} is not there");
                assert!(deadline.at_ms <= to_ms && deadline.sequence.0 <= self.committed().next, "{deadline:?}");
                self.came.insert(deadline);
            }
        }
        let missing: Vec<_> = self.expected(to_ms).difference(&self.came).copied().collect();
        assert_eq!(missing, []);
        assert!(self.log.next_deadline().is_none_or(|next_ms| next_ms > to_ms));
    }

    fn restart(&mut self) {
        self.log = House::open(self.directory);
        self.came.clear();
        let content = self.last();
        self.begin_epoch(content);
    }

    fn rewrite(&mut self) {
        sync(&mut self.log);
        for _ in 0..2 {
            if let Some(ticket) = self.log.begin_whole_fold().unwrap() {
                let folded = ticket.perform().unwrap();
                self.log.finish_fold(folded).perform().unwrap();
            }
        }
        compact_all(&mut self.log);
    }
}

/// A few by default; more with `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn each_deadline_below_the_bound_comes_in_every_life_and_none_above_it(steps in steps()) {
        let directory = directory();
        let mut house = House::begin(directory.path());
        for step in &steps {
            match step {
                Step::Append(times) => house.append(times),
                Step::Settle(rest) => house.settle(*rest),
                Step::Bound(at) => house.bound(at),
                Step::Cut(at) => house.cut(at),
                Step::Take(to_ms) => house.take(*to_ms),
                Step::Fold => fold(&mut house.log).map(penstock_log::Retired::perform).transpose().map(|_| ()).unwrap(),
                Step::Rewrite => house.rewrite(),
                Step::Restart => house.restart(),
            }
        }
        house.take(u64::MAX);
        house.log.set_bound(house.log.end()).unwrap();
        house.take(u64::MAX);
        house.restart();
        house.take(u64::MAX);
    }
}
