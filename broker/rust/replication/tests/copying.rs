//! A replica that lacks records which the leader's log does not have any more gets a copy of its files. A crash at any step leaves the
//! log before, or the whole copy.
#![allow(clippy::unwrap_used)]

#[path = "../../log/tests/support/crashed.rs"]
#[allow(dead_code, reason = "the tests of the log use all of it")]
mod crashed;
#[path = "../../log/tests/support/dice.rs"]
mod dice;
#[path = "../../log/tests/support/recorder.rs"]
#[allow(dead_code, reason = "the tests of the log use all of it")]
mod recorder;

use std::path::Path;
use std::sync::Arc;

use crashed::{Crash, Crashable, Image};
use dice::Dice;
use penstock_log::{Begun, Disk, FoldState, Log, LogOptions, Outcome, Payload, Position, RealDisk, Target};
use penstock_queue::{QueueId, Sequence, SequenceRange};
use penstock_replica::Settings;
use penstock_replication::{CopyError, CopyMessage, CopySource, CopyTarget, Now, Options, PARTS_AHEAD, ReplicatedLog};
use recorder::Recorder;
use tempfile::TempDir;

const LOG_ID: [u8; 16] = [9; 16];
const QUEUE: QueueId = QueueId(1);
const ID: u128 = 42;

fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn options(disk: Arc<dyn Disk>) -> LogOptions {
    LogOptions {
        segment_bytes_min: 512,
        segment_bytes_max: 4096,
        log_id: Some(LOG_ID),
        is_bounded: true,
        disk,
        ..LogOptions::default()
    }
}

fn open(directory: &Path, disk: Arc<dyn Disk>) -> (ReplicatedLog, FoldState) {
    open_after(None, directory, disk)
}

fn open_after(crash: Option<Crash>, directory: &Path, disk: Arc<dyn Disk>) -> (ReplicatedLog, FoldState) {
    let raise = crash.is_some_and(Crash::loses_page_cache);
    let options = Options {
        broker: 1,
        boot: 7,
        new_replica: ID,
        log_id: LOG_ID,
        log: LogOptions { raise, ..options(disk) },
        settings: Settings::default(),
    };
    ReplicatedLog::open(directory, options, Now::default()).unwrap()
}

fn fold(log: &mut Log) {
    if let Some(ticket) = log.begin_whole_fold().unwrap() {
        let folded = ticket.perform().unwrap();
        log.finish_fold(folded).perform().unwrap();
    }
}

/// A log whose first records are gone, all of it committed.
fn leader(directory: &Path) -> Log {
    let mut log = Log::open(directory, options(Arc::new(RealDisk))).unwrap().log;
    log.follow_epoch(3, 0, Begun::default()).unwrap();
    for sequence in 1..=40 {
        let body = [sequence as u8; 150];
        let payload = Payload::new(b"", b"", b"", &body).unwrap();
        log.append_message(&payload, 1, &[Target { queue: QUEUE, sequence: Sequence(sequence) }]).unwrap();
    }
    let settled = [SequenceRange::new(Sequence(1), Sequence(30)).unwrap()];
    log.append_settle(QUEUE, Outcome::Ack, 30, 30 * 150, &settled).unwrap();
    for _ in 0..3 {
        log.append_mark(b"x", b"key", b"value").unwrap();
        let end = log.write().unwrap();
        log.set_bound(end).unwrap();
        fold(&mut log);
    }
    assert!(log.begin_records(Position(0), log.end()).unwrap().is_none(), "its first segment is gone");
    log
}

/// Fetches a copy; each part comes twice.
fn fetch(source: &mut CopySource, directory: &Path, disk: Arc<dyn Disk>) {
    let mut target = CopyTarget::begin(directory, disk, LOG_ID, source.offer()).unwrap();
    while !target.is_whole() {
        for asked in target.ask() {
            let part = source.read(&asked).unwrap().unwrap();
            target.take(&part).unwrap();
            target.take(&part).unwrap();
        }
    }
    assert!(matches!(target.finish(), Ok(CopyMessage::Fetched { copy: 7 })));
}

#[test]
fn a_blank_replica_gets_the_files_of_a_log_whose_first_records_are_gone() {
    let (from, to) = (directory(), directory());
    let mut log = leader(from.path());
    drop(open(to.path(), Arc::new(RealDisk)));
    let mut source = CopySource::open(7, log.begin_backup().unwrap()).unwrap();
    let position = log.end();
    log.append_mark(b"x", b"later", b"value").unwrap();
    log.write().unwrap();
    std::fs::write(to.path().join("definitions.amqp"), b"of the folder").unwrap();

    fetch(&mut source, to.path(), Arc::new(RealDisk));
    let again = CopyTarget::begin(to.path(), Arc::new(RealDisk), LOG_ID, source.offer());
    assert!(matches!(again, Err(CopyError::Decided)));
    let (mut replica, state) = open(to.path(), Arc::new(RealDisk));

    assert_eq!((replica.id(), replica.log().end(), replica.log().bound()), (ID, position, position));
    assert!(replica.log().epochs().iter().eq(log.epochs().iter()));
    assert_eq!(state.queues[&QUEUE].count, 10);
    for sequence in 31..=40 {
        assert!(replica.log().locate(QUEUE, Sequence(sequence), 1).unwrap().is_some());
    }
    assert_eq!(std::fs::read(to.path().join("definitions.amqp")).unwrap(), b"of the folder");
    // The leader has what follows.
    let records = log.begin_records(position, log.end()).unwrap().unwrap().perform(1 << 20).unwrap().unwrap();
    let records = penstock_log::CheckedRecords::check(&LOG_ID, 3, position, records.bytes).unwrap();
    assert_eq!(replica.log().append_records(&records).unwrap(), log.end());
}

#[test]
fn parts_that_come_in_another_order_or_once_more_are_the_same_copy() {
    let (from, to) = (directory(), directory());
    let mut log = leader(from.path());
    drop(open(to.path(), Arc::new(RealDisk)));
    let mut source = CopySource::open(7, log.begin_backup().unwrap()).unwrap();
    let mut target = CopyTarget::begin(to.path(), Arc::new(RealDisk), LOG_ID, source.offer()).unwrap();

    let mut rounds = 0;
    while !target.is_whole() {
        let asked = target.ask();
        assert_eq!(asked, target.ask_again());
        assert!(target.ask().is_empty() && asked.len() <= PARTS_AHEAD, "no more than that are under way");
        // The first one comes last, and the others the wrong way round.
        for fetch in asked[1..].iter().rev().chain(&asked[..1]) {
            assert!(!target.is_whole());
            target.take(&source.read(fetch).unwrap().unwrap()).unwrap();
        }
        rounds += 1;
    }
    target.finish().unwrap();
    let (mut replica, state) = open(to.path(), Arc::new(RealDisk));

    assert!(rounds > 1, "one round has all files");
    assert_eq!((replica.log().end(), state.queues[&QUEUE].count), (log.end(), 10));
    assert!(replica.log().locate(QUEUE, Sequence(31), 1).unwrap().is_some());
}

#[test]
fn a_crash_at_any_step_leaves_the_log_before_or_the_whole_copy() {
    let (from, to) = (directory(), directory());
    let mut log = leader(from.path());
    let position = log.end();
    let recorder = Arc::new(Recorder::after(&Image::default(), to.path()));
    drop(open(to.path(), recorder.clone()));
    let begun = recorder.count();
    let mut source = CopySource::open(7, log.begin_backup().unwrap()).unwrap();
    fetch(&mut source, to.path(), recorder.clone());
    let decided = recorder.count();
    drop(open(to.path(), recorder.clone()));

    let (steps, mut dice) = (recorder.steps(), Dice::new(1));
    let mut disk = Crashable::of(&Image::default());
    let mut copies = 0;
    for (count, step) in steps.iter().enumerate() {
        disk.apply(step);
        if count + 1 < begun {
            continue;
        }
        for crash in [Crash::Kill, Crash::PowerKeepsNothing, Crash::PowerKeepsSome] {
            let place = directory();
            disk.crash(crash, &mut dice).write_to(place.path());
            let (mut replica, state) = open_after(Some(crash), place.path(), Arc::new(RealDisk));

            let end = replica.log().end();
            assert!(end == Position(0) || end == position, "after step {count}, {crash:?}: it ends at {end:?}");
            assert!(count + 1 < decided || end == position, "after step {count}, {crash:?}: the copy is lost");
            assert_eq!(replica.id(), ID);
            if end == position {
                copies += 1;
                assert_eq!(state.queues[&QUEUE].count, 10);
            }
        }
    }
    assert!(copies > 10);
}

#[test]
fn only_files_of_a_log_are_copied_and_only_whole_parts() {
    let (from, to) = (directory(), directory());
    let mut log = leader(from.path());
    let mut source = CopySource::open(7, log.begin_backup().unwrap()).unwrap();
    let begin = |offer: CopyMessage| CopyTarget::begin(to.path(), Arc::new(RealDisk), LOG_ID, offer);
    let CopyMessage::Offer { copy, position, files } = source.offer() else { panic!("no offer") };
    for name in ["../msgs.0000000001", "replica", "definitions.amqp", "msgs.0000000001/x", "installing", ""] {
        let mut files = files.clone();
        files[0].name = name.to_owned();
        assert!(matches!(begin(CopyMessage::Offer { copy, position, files }), Err(CopyError::Offer)), "{name}");
    }

    let mut target = begin(source.offer()).unwrap();
    let part = source.read(&target.ask()[0]).unwrap().unwrap();
    let CopyMessage::Part { copy, file, at, bytes, crc } = part else { panic!("no part") };
    let changed = CopyMessage::Part { copy, file, at, bytes: bytes.clone(), crc: crc ^ 1 };
    assert!(matches!(target.take(&changed), Err(CopyError::Part)));
    let empty = CopyMessage::Part { copy, file, at, bytes: Vec::new(), crc: 0 };
    assert!(matches!(target.take(&empty), Err(CopyError::Part)));
    assert!(matches!(target.finish(), Err(CopyError::Part)), "files are missing");
}

/// Changes a bit of a message in a file of a log, as a disk may; returns the file's name.
fn change_a_bit(directory: &Path, body: &[u8]) -> String {
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let mut bytes = std::fs::read(entry.path()).unwrap();
        if let Some(at) = bytes.windows(body.len()).position(|window| window == body) {
            bytes[at] ^= 1;
            std::fs::write(entry.path(), &bytes).unwrap();
            return entry.file_name().into_string().unwrap();
        }
    }
    panic!("no file has the message");
}

/// Returns the error that ends a copy from a leader that does not check its parts, as in an earlier version.
fn failed(source: &mut CopySource, directory: &Path) -> CopyError {
    let mut target = CopyTarget::begin(directory, Arc::new(RealDisk), LOG_ID, source.offer()).unwrap();
    loop {
        let asked = target.ask();
        assert!(!asked.is_empty(), "the copy is whole");
        for fetch in asked {
            if let Err(error) = target.take(&source.read(&fetch).unwrap().unwrap()) {
                return error;
            }
        }
    }
}

#[test]
fn a_log_that_the_disk_of_its_leader_has_changed_is_not_copied_and_the_log_before_stays() {
    let (from, to) = (directory(), directory());
    let mut log = leader(from.path());
    let (mut before, _) = open(to.path(), Arc::new(RealDisk));
    let end = before.log().end();
    drop(before);
    let changed = change_a_bit(from.path(), &[35; 150]);
    let mut source = CopySource::open(7, log.begin_backup().unwrap()).unwrap();

    let error = failed(&mut source, to.path());
    let (mut replica, _) = open(to.path(), Arc::new(RealDisk));

    assert!(matches!(&error, CopyError::Corrupt { file, .. } if *file == changed), "{error}");
    assert_eq!((replica.id(), replica.log().end()), (ID, end), "nothing was installed");
}

#[test]
fn a_leader_checks_a_file_before_it_sends_it() {
    let from = directory();
    let mut log = leader(from.path());
    let changed = change_a_bit(from.path(), &[35; 150]);
    let mut source = CopySource::open(7, log.begin_backup().unwrap()).unwrap();
    let CopyMessage::Offer { copy, files, .. } = source.offer() else { panic!("no offer") };

    let mut found = Vec::new();
    for (number, file) in (0..).zip(&files) {
        let whole = CopyMessage::Fetch { copy, file: number, at: 0, length: 1 << 20 };
        let checked = source.check(&whole);
        assert_eq!(checked.is_err(), file.name == changed, "{}", file.name);
        found.extend(checked.err());
    }

    assert_eq!(found.len(), 1);
    assert_eq!(found[0].file, changed);
    let other = CopyMessage::Fetch { copy: copy + 1, file: 0, at: 0, length: 1 << 20 };
    assert!(source.check(&other).is_ok(), "a question for another copy");
}

#[test]
fn a_log_that_is_marked_as_corrupt_is_not_copied() {
    let (from, to) = (directory(), directory());
    let mut log = leader(from.path());
    let changed = change_a_bit(from.path(), &[35; 150]);
    log.quarantine(&changed, 64);
    let mut source = CopySource::open(7, log.begin_backup().unwrap()).unwrap();

    let error = failed(&mut source, to.path());

    assert!(matches!(&error, CopyError::Corrupt { file, .. } if *file == format!("{changed}.corrupt")), "{error}");
}
