//! Envelopes: records that are applied as a whole or not at all.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};

use penstock_log::{
    ENVELOPE_RANGES_MAX, ENVELOPE_RECORDS_MAX, ENVELOPE_TARGETS_MAX, FoldState, Format, Log, LogError, LogOptions,
    Opened, Operation, Outcome, Payload, RANGES_MAX, Settlement, Target, inspect,
};
use penstock_queue::{QueueId, Sequence, SequenceRange};
use support::{open_with, sync};

const QUEUE: QueueId = QueueId(1);
const DEAD_LETTERS: QueueId = QueueId(2);
const BODY: &[u8] = &[7; 300];

fn options() -> LogOptions {
    LogOptions { format: Format::Two, segment_bytes_min: 1 << 16, segment_bytes_max: 1 << 20, ..LogOptions::default() }
}

fn open(directory: &Path) -> Opened {
    open_with(directory, options()).unwrap()
}

fn payload() -> Payload<'static> {
    Payload::new(b"e", b"key", b"", BODY).unwrap()
}

fn target(queue: QueueId, sequence: u64) -> Target {
    Target { queue, sequence: Sequence(sequence) }
}

fn range(first: u64, last: u64) -> SequenceRange {
    SequenceRange { first: Sequence(first), last: Sequence(last) }
}

fn settlement(count: u64) -> Settlement {
    Settlement { queue: QUEUE, outcome: Outcome::Drop, count, bytes: count * BODY.len() as u64, due_at_ms: None }
}

/// Moves the first two messages of a queue to another one, in one step.
fn move_two(log: &mut Log) -> Result<u64, LogError> {
    let targets = [[target(DEAD_LETTERS, 1)], [target(DEAD_LETTERS, 2)]];
    let [first, second] = &targets;
    let message = |targets| Operation::Message { payload: payload(), stored_at_ms: 5, targets };
    let settle = Operation::Settle { settlement: settlement(2), ranges: &[range(1, 2)] };
    log.append_envelope(&[message(first), settle, message(second)]).map(|end| end.0)
}

fn store_three(log: &mut Log) {
    (1..=3).for_each(|sequence| {
        log.append_message(&payload(), 5, &[target(QUEUE, sequence)]).unwrap();
    });
}

fn counts(state: &FoldState) -> [Option<(u64, u64)>; 2] {
    [QUEUE, DEAD_LETTERS].map(|queue| state.queues.get(&queue).map(|queue| (queue.count, queue.bytes)))
}

fn bodies(log: &Log, queue: QueueId, sequences: std::ops::RangeInclusive<u64>) -> usize {
    let find = |sequence| {
        let found = log.locate(queue, Sequence(sequence), 1).unwrap().unwrap();
        found.segment.message_for(found.offsets[0], target(queue, sequence)).unwrap().body.len()
    };
    sequences.map(find).sum()
}

fn segment(directory: &Path) -> PathBuf {
    directory.join("msgs.0000000001")
}

const BEFORE: [Option<(u64, u64)>; 2] = [Some((3, 900)), None];
const AFTER: [Option<(u64, u64)>; 2] = [Some((1, 300)), Some((2, 600))];

#[test]
fn messages_and_settlements_of_an_envelope_are_stored_read_and_folded() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    store_three(&mut log);
    move_two(&mut log).unwrap();
    log.write().unwrap();
    assert_eq!(bodies(&log, DEAD_LETTERS, 1..=2), 600);
    drop(log);

    let mut opened = open(directory.path());
    assert_eq!(counts(&opened.state), AFTER);
    assert_eq!(bodies(&opened.log, DEAD_LETTERS, 1..=2), 600);
    opened.log.close().unwrap();
    let report = &inspect(directory.path(), true).unwrap()[0];
    assert_eq!((report.messages, report.settles, &report.error), (5, 1, &None));

    let again = open(directory.path());
    assert_eq!(counts(&again.state), AFTER, "from the checkpoint");
    assert_eq!(bodies(&again.log, DEAD_LETTERS, 1..=2), 600, "by the index");
}

/// Leaves a log whose last record is an envelope that was written and not synced; returns where it begins and ends.
fn envelope_above_synced(directory: &Path) -> (u64, u64) {
    let mut log = open(directory).log;
    store_three(&mut log);
    log.write().unwrap();
    sync(&mut log);
    let begin = log.end().0;
    let end = move_two(&mut log).unwrap();
    log.write().unwrap();
    (begin, end)
}

/// A process was killed within the write, or a power failure lost a part of it: whole records were left in the envelope.
#[test]
fn an_envelope_that_is_torn_anywhere_was_never_there() {
    let directory = tempfile::tempdir().unwrap();
    let (begin, end) = envelope_above_synced(directory.path());
    let whole = std::fs::read(segment(directory.path())).unwrap();
    let synced = std::fs::read(directory.path().join("synced")).unwrap();
    for (at, raise) in (begin..end).step_by(7).flat_map(|at| [(at, false), (at, true)]) {
        let left = tempfile::tempdir().unwrap();
        let mut bytes = whole.clone();
        bytes[at as usize + 64..].fill(0);
        std::fs::write(segment(left.path()), bytes).unwrap();
        std::fs::write(left.path().join("synced"), &synced).unwrap();

        let opened = Log::open(left.path(), LogOptions { raise, ..options() }).unwrap();

        assert_eq!(counts(&opened.state), BEFORE, "torn at {at}");
        assert_eq!((opened.state.position.0, &opened.quarantined[..]), (begin, &[][..]), "torn at {at}");
    }
}

#[test]
fn any_changed_byte_of_an_envelope_that_was_not_synced_takes_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let (begin, end) = envelope_above_synced(directory.path());
    let whole = std::fs::read(segment(directory.path())).unwrap();
    for at in (begin..end).step_by(5) {
        let left = tempfile::tempdir().unwrap();
        std::fs::copy(directory.path().join("synced"), left.path().join("synced")).unwrap();
        let mut bytes = whole.clone();
        bytes[at as usize + 64] ^= 0x10;
        std::fs::write(segment(left.path()), bytes).unwrap();

        let opened = Log::open(left.path(), LogOptions { raise: true, ..options() }).unwrap();

        assert_eq!(counts(&opened.state)[1], None, "byte {at}");
        assert_eq!(opened.state.queues[&QUEUE].settled.next_unsettled(Sequence(1)), Sequence(1), "byte {at}");
    }
}

#[test]
fn what_is_above_a_limit_is_refused_and_nothing_is_appended() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let end = log.end();
    let targets: Vec<_> = (1..=ENVELOPE_TARGETS_MAX as u64).map(|queue| target(QueueId(queue), 1)).collect();
    let message = |targets| Operation::Message { payload: payload(), stored_at_ms: 5, targets };
    let ranges: Vec<_> = (1..=RANGES_MAX as u64).map(|number| range(2 * number, 2 * number)).collect();
    let settle = |ranges| Operation::Settle { settlement: settlement(0), ranges };
    let (other, large) = ([target(QueueId(1 << 20), 1)], vec![0; 60_000]);
    let mark = penstock_log::MarkView { owner: &large, key: b"", value: b"" };
    let too_much: [Vec<Operation<'_>>; 5] = [
        vec![],
        vec![Operation::Delete(QUEUE); ENVELOPE_RECORDS_MAX + 1],
        vec![message(&targets[..]), message(&other[..])],
        [vec![settle(&ranges[..]); ENVELOPE_RANGES_MAX / RANGES_MAX], vec![settle(&ranges[..1])]].concat(),
        vec![Operation::Mark(mark); 80],
    ];
    for operations in too_much {
        let refused = log.append_envelope(&operations);
        assert!(matches!(refused, Err(LogError::CountOutOfBounds { .. })), "{refused:?}");
        assert_eq!(log.end(), end);
    }
    let twice = [message(&targets[..1]), message(&targets[..1])];
    assert!(matches!(log.append_envelope(&twice), Err(LogError::NotAscending { .. })));
    assert!(matches!(open_one(), Err(LogError::NotInFormat { .. })));
    log.append_envelope(&[message(&targets[..])]).unwrap();
    log.append_envelope(&vec![settle(&ranges[..]); ENVELOPE_RANGES_MAX / RANGES_MAX]).unwrap();
    log.write().unwrap();
}

/// In format 1.
fn open_one() -> Result<u64, LogError> {
    let directory = tempfile::tempdir().unwrap();
    move_two(&mut open_with(directory.path(), LogOptions { format: Format::One, ..options() }).unwrap().log)
}

/// The totals of such a settlement were in the first of several records: a tear behind it counted messages as settled
/// that were not.
#[test]
fn a_settlement_of_more_ranges_than_a_record_has_is_whole_or_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let count = RANGES_MAX as u64 + 9;
    for sequence in 1..=2 * count {
        log.append_message(&Payload::new(b"", b"", b"", b"12").unwrap(), 5, &[target(QUEUE, sequence)]).unwrap();
    }
    log.write().unwrap();
    let ranges: Vec<_> = (1..=count).map(|number| range(2 * number, 2 * number)).collect();
    let begin = log.end();
    log.append_settle(QUEUE, Outcome::Ack, count, 2 * count, &ranges).unwrap();
    log.write().unwrap();
    drop(log);
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let state = Log::open(copy.path(), options()).unwrap().state;
    assert_eq!(counts(&state)[0], Some((count, 2 * count)));
    let (path, at) = place_of(directory.path(), begin.0);
    let mut bytes = std::fs::read(&path).unwrap();
    let end = at + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    bytes[end - 50..end].fill(0);
    std::fs::write(&path, bytes).unwrap();

    let torn = Log::open(directory.path(), LogOptions { raise: true, ..options() }).unwrap();

    assert_eq!(counts(&torn.state)[0], Some((2 * count, 4 * count)));
}

/// The segment of a position, and its place there.
fn place_of(directory: &Path, position: u64) -> (PathBuf, usize) {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let first = |path: &PathBuf| u64::from_le_bytes(std::fs::read(path).unwrap()[40..48].try_into().unwrap());
    let is_before = |path: &PathBuf| path.to_str().unwrap().contains("msgs.") && first(path) <= position;
    let path = names.filter(is_before).max().unwrap();
    let at = 64 + position - first(&path);
    (path, at as usize)
}

/// The totals of all were in the first of several envelopes.
#[test]
fn of_a_settlement_that_is_several_envelopes_each_has_the_totals_of_its_ranges() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let count = ENVELOPE_RANGES_MAX as u64 + 9;
    for sequence in 1..=2 * count {
        log.append_message(&Payload::new(b"", b"", b"", b"12").unwrap(), 5, &[target(QUEUE, sequence)]).unwrap();
    }
    log.write().unwrap();
    let ranges: Vec<_> = (1..=count).map(|number| range(2 * number, 2 * number)).collect();
    let begin = log.end();
    log.append_settle(QUEUE, Outcome::Ack, count, 2 * count, &ranges).unwrap();
    log.write().unwrap();
    drop(log);
    let (path, at) = place_of(directory.path(), begin.0);
    let bytes = std::fs::read(&path).unwrap();
    let second = begin.0 + u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
    let (path, at) = place_of(directory.path(), second);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at..at + 50].fill(0);
    std::fs::write(&path, bytes).unwrap();

    let state = Log::open(directory.path(), LogOptions { raise: true, ..options() }).unwrap().state;

    let left = 2 * count - ENVELOPE_RANGES_MAX as u64;
    assert_eq!(counts(&state)[0], Some((left, 2 * left)));
}
