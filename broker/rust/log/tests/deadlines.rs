//! Deadlines of messages: they come in their order, also after a kill, a fold and a rewrite, and are not kept in memory.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use penstock_log::{
    Attributes, Deadline, DeadlineKind, Format, Log, LogOptions, Operation, Outcome, Payload, Target, inspect,
};
use penstock_queue::{QueueId, Sequence, SequenceRange};
use support::dice::Dice;
use support::{compact_all, fold, open_with, sync};

const QUEUE: QueueId = QueueId(1);
const OTHER: QueueId = QueueId(2);

fn options() -> LogOptions {
    LogOptions { format: Format::Two, segment_bytes_min: 1 << 12, segment_bytes_max: 1 << 16, ..LogOptions::default() }
}

fn open(directory: &Path) -> Log {
    open_with(directory, options()).unwrap().log
}

/// The deadlines that the log is to have, by message and kind.
#[derive(Clone, Default)]
struct Expected {
    next: u64,
    all: BTreeMap<(QueueId, Sequence, DeadlineKind), u64>,
}

impl Expected {
    fn append(&mut self, log: &mut Log, queues: &[QueueId], due_at_ms: Option<u64>, expires_at_ms: Option<u64>) {
        self.next += 1;
        let attributes = Attributes { due_at_ms, expires_at_ms, ..Attributes::default() };
        let payload = Payload::new(b"", b"jobs", b"", &[7; 20]).unwrap().with_attributes(&attributes);
        let targets: Vec<_> = queues.iter().map(|&queue| Target { queue, sequence: Sequence(self.next) }).collect();
        log.append_message(&payload, 5, &targets).unwrap();
        for &queue in queues {
            let kinds = [(DeadlineKind::Due, due_at_ms), (DeadlineKind::Expires, expires_at_ms)];
            for (kind, at_ms) in kinds {
                self.all.extend(at_ms.map(|at_ms| ((queue, Sequence(self.next), kind), at_ms)));
            }
        }
    }

    fn append_without(&mut self, log: &mut Log) {
        self.next += 1;
        let target = Target { queue: QUEUE, sequence: Sequence(self.next) };
        log.append_message(&Payload::new(b"", b"jobs", b"", &[7; 20]).unwrap(), 5, &[target]).unwrap();
    }

    /// Those of a time and before, by time.
    fn up_to(&self, to_ms: u64) -> Vec<Deadline> {
        let all = self.all.iter().map(|(&(queue, sequence, kind), &at_ms)| Deadline { at_ms, queue, sequence, kind });
        let mut found: Vec<_> = all.filter(|deadline| deadline.at_ms <= to_ms).collect();
        found.sort();
        found
    }
}

/// Takes all deadlines up to a time, a few at a time; those of each segment come by time.
fn take(log: &mut Log, to_ms: u64) -> Vec<Deadline> {
    let mut found = Vec::new();
    while let Some(ticket) = log.begin_deadlines(to_ms, 7) {
        let read = ticket.perform().unwrap();
        let part = log.finish_deadlines(read);
        assert!((1..=7).contains(&part.len()) && part.is_sorted_by_key(|one| one.at_ms), "{part:?}");
        found.extend(part);
    }
    found.sort();
    found
}

fn fold_all(log: &mut Log) {
    while let Some(retired) = fold(log) {
        retired.perform().unwrap();
    }
}

fn indexes(directory: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|part| part == "idx")).collect()
}

/// Messages with times all over, some without any.
fn fill(log: &mut Log, expected: &mut Expected, count: u64, dice: &mut Dice) {
    for _ in 0..count {
        let mut time = || Some(1000 + dice.below(100_000) as u64);
        let (due, expires) = (time(), time());
        match expected.next % 4 {
            0 => expected.append(log, &[QUEUE], due, None),
            1 => expected.append(log, &[QUEUE, OTHER], None, expires),
            2 => expected.append(log, &[OTHER], due, expires),
            _ => expected.append_without(log),
        }
    }
    log.write().unwrap();
}

#[test]
fn deadlines_come_by_time_and_not_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path());
    let mut expected = Expected::default();
    fill(&mut log, &mut expected, 400, &mut Dice::new(1));

    assert_eq!(log.next_deadline(), expected.up_to(u64::MAX).first().map(|first| first.at_ms));
    assert_eq!(take(&mut log, 999), []);
    let early = take(&mut log, 50_000);
    assert_eq!(early, expected.up_to(50_000));
    assert!(log.next_deadline().unwrap() > 50_000);
    assert_eq!(take(&mut log, 50_000), [], "none comes twice");

    let rest = take(&mut log, u64::MAX);
    assert_eq!([early, rest].concat(), expected.up_to(u64::MAX));
    assert_eq!(log.next_deadline(), None);
}

#[test]
fn a_deadline_that_is_over_when_its_message_comes_comes_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path());
    let mut expected = Expected::default();
    expected.append(&mut log, &[QUEUE], None, Some(5000));
    assert_eq!(take(&mut log, 9000).len(), 1);

    expected.append(&mut log, &[QUEUE], None, Some(3000));

    assert_eq!(take(&mut log, 9000).iter().map(|deadline| deadline.at_ms).collect::<Vec<_>>(), [3000]);
}

#[test]
fn deadlines_are_in_index_files_and_not_in_memory_and_a_start_finds_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path());
    let mut expected = Expected::default();
    let mut dice = Dice::new(2);
    for _ in 0..30 {
        fill(&mut log, &mut expected, 400, &mut dice);
        fold_all(&mut log);
    }
    let in_memory = log.stats().deadlines_in_memory;
    assert!(in_memory * 4 < expected.all.len() as u64, "{in_memory} of {} are in memory", expected.all.len());
    assert!(indexes(directory.path()).iter().all(|path| std::fs::read(path).unwrap()[8] == 2));
    // As after a kill.
    drop(log);

    let mut log = open(directory.path());

    let in_memory = log.stats().deadlines_in_memory;
    assert!(in_memory * 4 < expected.all.len() as u64, "{in_memory} of {} are in memory", expected.all.len());
    assert_eq!(log.next_deadline(), expected.up_to(u64::MAX).first().map(|first| first.at_ms));
    assert_eq!(take(&mut log, 30_000), expected.up_to(30_000));
    log.close().unwrap();
    drop(log);
    let mut log = open(directory.path());
    assert_eq!(log.stats().deadlines_in_memory, 0, "a clean stop leaves a checkpoint");
    assert_eq!(take(&mut log, u64::MAX), expected.up_to(u64::MAX));
}

/// A log with some segments that no fold has taken, as a kill leaves it; and its deadlines.
fn killed(directory: &Path, seed: u64) -> Expected {
    let mut log = open(directory);
    let mut expected = Expected::default();
    fill(&mut log, &mut expected, 2000, &mut Dice::new(seed));
    assert!(log.stats().unfolded_segments > 2);
    expected
}

#[test]
fn deadlines_that_a_start_finds_come_by_time_with_those_of_new_messages() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = killed(directory.path(), 5);
    let mut log = open(directory.path());
    let in_memory = log.stats().deadlines_in_memory;
    assert_eq!(in_memory, expected.all.len() as u64);

    assert_eq!(take(&mut log, 20_000), expected.up_to(20_000));
    expected.all.retain(|_, at_ms| *at_ms > 20_000);
    assert_eq!(log.stats().deadlines_in_memory, expected.all.len() as u64);
    assert_eq!(log.next_deadline(), expected.up_to(u64::MAX).first().map(|first| first.at_ms));
    fill(&mut log, &mut expected, 500, &mut Dice::new(6));

    assert_eq!(take(&mut log, 60_000), expected.up_to(60_000));
    expected.all.retain(|_, at_ms| *at_ms > 60_000);
    assert_eq!(take(&mut log, u64::MAX), expected.up_to(u64::MAX));
    assert_eq!((log.next_deadline(), log.stats().deadlines_in_memory), (None, 0));
}

#[test]
fn a_fold_while_the_deadlines_of_its_segments_are_put_in_order_loses_none() {
    let directory = tempfile::tempdir().unwrap();
    let expected = killed(directory.path(), 7);
    let mut log = open(directory.path());
    let before = log.begin_deadlines(u64::MAX, 7).unwrap();
    fold_all(&mut log);
    assert_eq!(log.stats().deadlines_in_memory, 0);

    let read = before.perform().unwrap();
    assert_eq!(log.finish_deadlines(read), []);

    assert_eq!(log.stats().deadlines_in_memory, 0);
    assert_eq!(take(&mut log, u64::MAX), expected.up_to(u64::MAX));
}

#[test]
fn a_rewritten_segment_has_the_deadlines_of_its_messages() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path());
    let mut expected = Expected::default();
    let mut dice = Dice::new(3);
    fill(&mut log, &mut expected, 2000, &mut dice);
    // Nine of ten messages are settled in both queues.
    for queue in [QUEUE, OTHER] {
        let gone = (1..=2000).filter(|number| number % 10 != 0).map(Sequence);
        let ranges: Vec<_> = gone.map(|number| SequenceRange { first: number, last: number }).collect();
        log.append_settle(queue, Outcome::Ack, 0, 0, &ranges).unwrap();
    }
    expected.all.retain(|(_, sequence, _), _| sequence.0 % 10 == 0 || sequence.0 > 2000);
    for _ in 0..4 {
        fill(&mut log, &mut expected, 600, &mut dice);
        sync(&mut log);
        fold_all(&mut log);
    }
    compact_all(&mut log);
    assert!(log.stats().bytes_rewritten > 0);
    let is_there = |deadline: &Deadline| expected.all.contains_key(&(deadline.queue, deadline.sequence, deadline.kind));

    let found = take(&mut log, 40_000);

    assert_eq!(found.iter().copied().filter(is_there).collect::<Vec<_>>(), expected.up_to(40_000));
    log.close().unwrap();
    drop(log);
    let found = take(&mut open(directory.path()), u64::MAX);
    assert_eq!(found.iter().copied().filter(is_there).collect::<Vec<_>>(), expected.up_to(u64::MAX));
    assert!(found.len() < expected.all.len() + 1500, "deadlines of settled messages were not left out");
    let reports = inspect(directory.path(), true).unwrap();
    assert!(reports.iter().all(|report| report.error.is_none()), "{reports:?}");
}

#[test]
fn deadlines_of_a_corrupt_index_are_derived_from_the_segment() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path());
    let mut expected = Expected::default();
    fill(&mut log, &mut expected, 400, &mut Dice::new(4));
    log.close().unwrap();
    drop(log);
    for path in indexes(directory.path()) {
        let mut bytes = std::fs::read(&path).unwrap();
        // The queue of the last deadline.
        let at = bytes.len() - 12;
        bytes[at] ^= 8;
        std::fs::write(&path, bytes).unwrap();
    }

    assert_eq!(take(&mut open(directory.path()), u64::MAX), expected.up_to(u64::MAX));
}

#[test]
fn messages_of_envelopes_have_deadlines_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path());
    let attributes = Attributes { expires_at_ms: Some(700), ..Attributes::default() };
    let payload = Payload::new(b"", b"jobs", b"", b"body").unwrap().with_attributes(&attributes);
    let targets = [Target { queue: QUEUE, sequence: Sequence(1) }, Target { queue: OTHER, sequence: Sequence(1) }];

    log.append_envelope(&[Operation::Message { payload, stored_at_ms: 5, targets: &targets }]).unwrap();
    log.write().unwrap();

    let expires = |queue| Deadline { at_ms: 700, queue, sequence: Sequence(1), kind: DeadlineKind::Expires };
    assert_eq!(take(&mut log, 700), [expires(QUEUE), expires(OTHER)]);
    drop(log);
    assert_eq!(take(&mut open(directory.path()), 700), [expires(QUEUE), expires(OTHER)]);
}

#[test]
fn an_index_says_since_when_a_message_may_be_stored() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path());
    let payload = Payload::new(b"", b"jobs", b"", &[7; 90]).unwrap();
    for number in 1..=500 {
        log.append_message(&payload, 1000 + number, &[Target { queue: QUEUE, sequence: Sequence(number) }]).unwrap();
    }
    let check = |log: &Log| {
        for number in 1..=500 {
            let from = log.stored_from(QUEUE, Sequence(number)).unwrap().unwrap();
            assert!((1001..=1000 + number).contains(&from), "{number}: {from}");
        }
        assert_eq!(log.stored_from(QUEUE, Sequence(501)).unwrap(), None);
        assert!(log.stored_from(QUEUE, Sequence(500)).unwrap() > Some(1100), "a segment has its own");
    };
    check(&log);

    log.close().unwrap();
    drop(log);

    check(&open(directory.path()));
}
