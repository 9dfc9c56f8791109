//! Findings of an inspection of a stopped log, and no false ones.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;

use penstock_log::{Log, LogOptions, Outcome, Retired, SegmentReport, Target, inspect};
use penstock_queue::{QueueId, Sequence};
use support::{Model, fold, message, open, open_with, small_segments};

const SLOW: u64 = 1;
const FAST: u64 = 2;

/// A log from whose middle whole segments went: a slow queue kept its first and its last message, a fast one none.
fn log_with_removed_segments(directory: &Path) -> Model {
    let mut log = open(directory).log;
    let mut model = Model::default();
    model.publish(&mut log, &[SLOW], message(100, 0)).unwrap();
    for seed in 0..60 {
        model.publish(&mut log, &[FAST], message(100, seed)).unwrap();
        model.settle(&mut log, FAST, Outcome::Ack, &[0]);
        log.write().unwrap();
        fold(&mut log);
    }
    model.publish(&mut log, &[SLOW], message(100, 1)).unwrap();
    log.close().unwrap();
    model
}

fn numbers(directory: &Path) -> Vec<u64> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut numbers: Vec<u64> = names.filter_map(|name| name.strip_prefix("msgs.")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

fn errors(directory: &Path) -> Vec<SegmentReport> {
    inspect(directory, true).unwrap().into_iter().filter(|report| report.error.is_some()).collect()
}

/// The file that holds a message.
fn file_of(log: &Log, queue: u64, number: u64) -> String {
    let located = log.locate(QueueId(queue), Sequence(number), 1).unwrap().unwrap();
    located.segment.path().file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_segment_that_was_removed_because_nothing_in_it_lived_is_not_missing() {
    let directory = tempfile::tempdir().unwrap();
    log_with_removed_segments(directory.path());
    let numbers = numbers(directory.path());
    assert!(numbers.windows(2).any(|pair| pair[0] + 1 < pair[1]), "nothing was removed between others: {numbers:?}");

    assert_eq!(errors(directory.path()), []);
}

#[test]
fn a_segment_that_is_missing_although_messages_in_it_live_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    for seed in 0..30 {
        model.publish(&mut log, &[SLOW, FAST], message(100, seed)).unwrap();
    }
    log.close().unwrap();
    let file = file_of(&log, SLOW, 10);
    std::fs::remove_file(directory.path().join(&file)).unwrap();

    let found = errors(directory.path());

    let [report] = &found[..] else { panic!("{found:?}") };
    let queues: Vec<QueueId> =
        report.corrupt.iter().flat_map(|each| &each.targets).map(|target| target.queue).collect();
    assert_eq!(queues, [QueueId(SLOW), QueueId(FAST)]);
    let Target { sequence: Sequence(first), .. } = report.corrupt[0].targets[0];
    assert!((1..=10).contains(&first), "{report:?}");
    assert!(report.corrupt[0].why.contains("have no record in any segment"), "{report:?}");
}

#[test]
fn records_that_are_missing_at_the_end_of_a_segment_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    for seed in 0..30 {
        model.publish(&mut log, &[SLOW], message(100, seed)).unwrap();
    }
    log.close().unwrap();
    let path = directory.path().join(file_of(&log, SLOW, 5));
    let mut bytes = std::fs::read(&path).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(0);
    std::fs::write(&path, bytes).unwrap();

    assert!(!errors(directory.path()).is_empty());
}

/// Only the next segment knew where the one with the torn end stopped.
#[test]
fn a_torn_end_is_not_called_corrupt_when_the_segment_behind_it_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    model.publish(&mut log, &[SLOW], message(100, 0)).unwrap();
    model.publish(&mut log, &[FAST], message(100, 1)).unwrap();
    log.write().unwrap();
    let located = log.locate(QueueId(FAST), Sequence(1), 1).unwrap().unwrap();
    let (path, torn) = (located.segment.path().to_owned(), located.offsets[0] as usize + 60);
    drop((located, log));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[torn..torn + 40].fill(0);
    std::fs::write(&path, bytes).unwrap();
    let mut opened = open_with(directory.path(), LogOptions { raise: true, ..small_segments() }).unwrap();
    assert!(opened.recovery.torn_bytes > 0);
    let next = opened.state.first_sequence.0;
    let mut model = Model { first: next, ..Model::default() };
    for seed in 0..60 {
        model.publish(&mut opened.log, &[FAST], message(100, seed)).unwrap();
        model.settle(&mut opened.log, FAST, Outcome::Ack, &[0]);
        opened.log.write().unwrap();
        fold(&mut opened.log).map(Retired::perform).transpose().unwrap();
    }
    opened.log.close().unwrap();
    assert!(path.exists() && !path.with_file_name("msgs.0000000002").exists());

    assert_eq!(errors(directory.path()), []);
}
