//! Logs of format 2, and those with segments of both formats.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};

use penstock_log::{Begun, Format, Log, LogError, LogOptions, Outcome, Position, Retired, Target, inspect};
use penstock_queue::{QueueId, Sequence};
use support::{Model, compact_all, epoch_record_bytes, fold, message, open_with, small_segments, sync};

fn options(format: Format) -> LogOptions {
    LogOptions { format, ..small_segments() }
}

fn open(directory: &Path, format: Format) -> Log {
    open_with(directory, options(format)).unwrap().log
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> = files
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with("msgs.") && !name.ends_with(".idx")
        })
        .collect();
    segments.sort();
    segments
}

fn formats(directory: &Path) -> Vec<u8> {
    segments(directory).iter().map(|path| std::fs::read(path).unwrap()[8]).collect()
}

fn fill(model: &mut Model, log: &mut Log, count: u8) {
    for seed in 0..count {
        model.publish(log, &[1, 2], message(90, seed)).unwrap();
        model.settle(log, 1, Outcome::Ack, &[0]);
    }
    log.write().unwrap();
}

#[test]
fn opening_a_log_of_format_2_appends_nothing_and_only_an_epoch_may_come_first() {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = Log::open(directory.path(), options(Format::Two)).unwrap();
    assert_eq!((opened.log.end(), opened.state.position), (Position(0), Position(0)));
    let refused = Model::default().publish(&mut opened.log, &[1], message(1, 1));
    assert!(matches!(refused, Err(LogError::NoEpoch { .. })), "{refused:?}");

    let begun = opened.begin_epoch(Begun { at_ms: 5, leader: [7; 16] }).unwrap();

    assert_eq!(begun.0, epoch_record_bytes(Format::Two));
    assert_eq!(opened.begin_epoch(Begun::default()).unwrap(), begun, "it begins once");
    let mut model = Model::default();
    fill(&mut model, &mut opened.log, 30);
    let end = opened.log.end();
    drop(opened);
    for _ in 0..3 {
        let again = Log::open(directory.path(), options(Format::Two)).unwrap();
        assert_eq!((again.log.end(), again.state.position), (end, end));
        model.check_state(&again.state);
        model.check_messages(&again.log);
        assert_eq!(again.state.epochs.iter().map(|(_, first)| first.0).collect::<Vec<_>>(), [0]);
    }
}

#[test]
fn every_epoch_begins_a_segment_and_a_checkpoint_knows_where() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let mut begins = Vec::new();
    for _ in 0..3 {
        let mut log = open(directory.path(), Format::Two);
        begins.push(log.end().0 - epoch_record_bytes(Format::Two));
        fill(&mut model, &mut log, 7);
        begins.push(log.end().0);
        log.begin_epoch(0, Begun::default()).unwrap();
        fill(&mut model, &mut log, 7);
        log.close().unwrap();
    }

    let opened = Log::open(directory.path(), options(Format::Two)).unwrap();

    let epochs: Vec<_> = opened.state.epochs.iter().collect();
    assert_eq!(epochs.iter().map(|(_, first)| first.0).collect::<Vec<_>>(), begins);
    assert!(epochs.is_sorted() && epochs.last().unwrap().0 == opened.state.epoch);
    let firsts: Vec<_> =
        segments(directory.path()).iter().map(|path| std::fs::read(path).unwrap()[40..48].to_vec()).collect();
    let lived = opened.state.epochs.of(opened.log.end()).is_some();
    assert!(lived && begins.iter().skip(2).all(|begin| firsts.contains(&begin.to_le_bytes().to_vec())), "{begins:?}");
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

#[test]
fn a_log_goes_on_in_format_2_and_serves_and_rewrites_segments_of_both() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let mut log = open(directory.path(), Format::One);
    fill(&mut model, &mut log, 60);
    sync(&mut log);
    drop(log);
    let mut log = open(directory.path(), Format::Two);
    assert_eq!(log.format(), Format::Two);
    fill(&mut model, &mut log, 60);
    model.check_messages(&log);
    drop(log);
    let found = formats(directory.path());
    assert!(found.is_sorted() && found.contains(&1) && found.contains(&2), "{found:?}");

    // Without saying so: a log never goes back.
    let mut log = open(directory.path(), Format::One);
    assert_eq!(log.format(), Format::Two);
    model.settle(&mut log, 2, Outcome::Ack, &(0..100).filter(|at| at % 5 > 0).collect::<Vec<_>>());
    for _ in 0..3 {
        let folded = log.begin_whole_fold().unwrap().unwrap().perform().unwrap();
        log.finish_fold(folded).perform().unwrap();
        model.publish(&mut log, &[3], message(10, 1)).unwrap();
        fold(&mut log).map(Retired::perform).transpose().unwrap();
    }
    log.write().unwrap();
    assert!(compact_all(&mut log) > 1);
    model.check_messages(&log);
    let rewritten: Vec<_> =
        segments(directory.path()).into_iter().filter(|path| path.to_str().unwrap().matches('.').count() > 1).collect();
    let formats =
        rewritten.iter().map(|path| std::fs::read(path).unwrap()[8]).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(formats.into_iter().collect::<Vec<_>>(), [1, 2], "both are rewritten, each as it is");
    drop(log);
    let reports = inspect(directory.path(), true).unwrap();
    assert!(reports.iter().all(|report| report.error.is_none()), "{reports:?}");

    let opened = open_with(directory.path(), options(Format::Two)).unwrap();

    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

/// Positions and checksums of the messages of some queues.
fn listed(log: &Log, model: &Model) -> Vec<(u64, u32)> {
    let mut listed = Vec::new();
    for (&queue, messages) in &model.queues {
        for &number in messages.messages.keys() {
            let target = Target { queue: QueueId(queue), sequence: Sequence(number) };
            let found = log.locate(target.queue, target.sequence, 1).unwrap().unwrap();
            let message = found.segment.message_for(found.offsets[0], target).unwrap();
            listed.push((message.position().0, message.checksum()));
        }
    }
    listed.sort_unstable();
    listed
}

#[test]
fn a_message_keeps_position_and_checksum_however_often_it_is_rewritten() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let mut log = open(directory.path(), Format::Two);
    fill(&mut model, &mut log, 60);
    log.begin_epoch(0, Begun::default()).unwrap();
    fill(&mut model, &mut log, 60);
    for settled in [60, 20, 10] {
        let picks = (0..settled).map(|at| 2 * at).collect::<Vec<_>>();
        model.settle(&mut log, 2, Outcome::Ack, &picks);
        log.write().unwrap();
        let before = listed(&log, &model);
        for _ in 0..2 {
            let folded = log.begin_whole_fold().unwrap().unwrap().perform().unwrap();
            log.finish_fold(folded).perform().unwrap();
        }
        assert!(compact_all(&mut log) > 1);
        assert_eq!(listed(&log, &model), before);
    }
    let before = listed(&log, &model);
    log.close().unwrap();

    let opened = Log::open(directory.path(), options(Format::Two)).unwrap();

    assert!(before.len() > 20);
    assert_eq!(listed(&opened.log, &model), before);
}

/// A flag that a later version adds was taken for a corrupt record, and a start dropped it with everything after it.
#[test]
fn a_record_of_a_newer_version_refuses_the_start_and_nothing_is_changed() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path(), Format::Two);
    Model::default().publish(&mut log, &[1], message(300, 1)).unwrap();
    log.write().unwrap();
    drop(log);
    let path = directory.path().join("msgs.0000000001");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = 64 + epoch_record_bytes(Format::Two) as usize;
    let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    // A kind that does not exist yet.
    bytes[at + 4] = 9;
    let seed = crc32c::crc32c_append(crc32c::crc32c(&bytes[16..32]), &bytes[48..56]);
    let head = crc32c::crc32c_append(crc32c::crc32c_append(seed, &bytes[at..at + 20]), &bytes[at + 24..at + 46]);
    bytes[at + 20..at + 24].copy_from_slice(&head.to_le_bytes());
    assert!(length > 300);
    std::fs::write(&path, &bytes).unwrap();

    for raise in [false, true] {
        let error = Log::open(directory.path(), LogOptions { raise, ..options(Format::Two) }).unwrap_err();

        assert!(matches!(error, LogError::Newer { at: found, .. } if found == at as u64), "{error:?}");
        assert!(error.to_string().contains(env!("CARGO_PKG_VERSION")), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    // Not whole, it is a torn tail.
    bytes[at + length - 1] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(Log::open(directory.path(), options(Format::Two)).unwrap().recovery.torn_bytes > 300);
}
