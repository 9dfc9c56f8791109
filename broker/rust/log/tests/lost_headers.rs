//! Segments with an unreadable header: whose copy replaces it, and which file may be removed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};

use penstock_log::{Corruption, LogOptions, Outcome, Retired};
use penstock_queue::{QueueId, Sequence};
use support::{Model, compact_all, fold, message, open, open_with, small_segments, sync};

const HEADER_BYTES: usize = 64;

fn segment(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("msgs.{number:010}"))
}

fn newest(directory: &Path) -> u64 {
    (1..60).rfind(|&number| segment(directory, number).exists()).unwrap()
}

/// A closed log of one queue in several segments.
fn closed(directory: &Path) -> Model {
    let mut log = open(directory).log;
    let mut model = Model::default();
    for seed in 0..100 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    log.close().unwrap();
    model
}

fn change(path: &Path, change: impl FnOnce(&mut [u8])) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// A start that died before its epoch's record left a segment of the same epoch and position as the next start's.
#[test]
fn a_copy_counts_behind_a_segment_that_a_start_made_and_never_wrote_to() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = closed(directory.path());
    drop(open(directory.path()));
    let unused = newest(directory.path());
    change(&segment(directory.path(), unused), |bytes| {
        let end = bytes.len() - HEADER_BYTES;
        bytes[HEADER_BYTES..end].fill(0);
    });
    let mut log = open(directory.path()).log;
    for seed in 0..8 {
        model.publish(&mut log, &[1], message(60, seed)).unwrap();
    }
    log.write().unwrap();
    sync(&mut log);
    drop(log);
    change(&segment(directory.path(), unused + 1), |bytes| bytes[20] ^= 1);

    let opened = open(directory.path());

    let found: Vec<_> = opened.quarantined.iter().map(|found| (found.file.clone(), found.why)).collect();
    assert_eq!(found, [(format!("msgs.{:010}", unused + 1), Corruption::SegmentHeader)]);
    model.check_messages(&opened.log);
}

/// A segment that was written again left its old bytes to the next segment's reserved space.
#[test]
fn a_copy_of_the_segment_before_does_not_count_where_a_start_made_both() {
    let directory = tempfile::tempdir().unwrap();
    let model = closed(directory.path());
    drop(open(directory.path()));
    let unused = newest(directory.path());
    change(&segment(directory.path(), unused), |bytes| {
        let end = bytes.len() - HEADER_BYTES;
        bytes[HEADER_BYTES..end].fill(0);
    });
    let copied = segment(directory.path(), unused + 1);
    std::fs::copy(segment(directory.path(), unused), &copied).unwrap();
    change(&copied, |bytes| bytes[..HEADER_BYTES].fill(0));

    let opened = open_with(directory.path(), LogOptions { raise: true, ..small_segments() }).unwrap();

    assert_eq!(opened.quarantined, []);
    model.check_messages(&opened.log);
}

/// Without its index file a live segment in the checkpoint was taken for one that never reached the disk.
#[test]
fn a_segment_that_the_checkpoint_lists_stays_without_its_header_and_its_index() {
    for has_copy in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let model = closed(directory.path());
        let path = segment(directory.path(), 3);
        change(&path, |bytes| {
            bytes[..512].fill(0);
            let end = bytes.len();
            if !has_copy {
                bytes[end - HEADER_BYTES..].fill(0);
            }
        });
        std::fs::remove_file(directory.path().join("msgs.0000000003.idx")).unwrap();

        let opened = open_with(directory.path(), LogOptions { raise: true, ..small_segments() }).unwrap();

        assert!(path.exists());
        let found: Vec<_> = opened.quarantined.iter().map(|found| (found.file.as_str(), found.why)).collect();
        assert_eq!(found[0], ("msgs.0000000003", Corruption::SegmentHeader));
        if has_copy {
            let all = model.queues[&1].messages.keys();
            let is_stored = |number: u64| opened.log.locate(QueueId(1), Sequence(number), 1).unwrap().is_some();
            let missing = all.filter(|&&number| !is_stored(number)).count();
            assert!(missing <= 6, "{missing}: no more than what stood in the sector");
        }
    }
}

/// A segment whose header a failing power lost, in space where one had stood that was rewritten since.
#[test]
fn a_stale_copy_does_not_make_a_segment_one_that_was_rewritten() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    for seed in 0..200 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    log.write().unwrap();
    let mut stale = std::fs::read(segment(directory.path(), 3)).unwrap();
    let picks: Vec<usize> = (0..200).filter(|at| at % 4 != 0).collect();
    model.settle(&mut log, 1, Outcome::Ack, &picks);
    for _ in 0..4 {
        for seed in 0..30 {
            model.publish(&mut log, &[2], message(100, seed)).unwrap();
        }
        log.write().unwrap();
        fold(&mut log).map(Retired::perform).transpose().unwrap();
    }
    assert!(compact_all(&mut log) > 0);
    sync(&mut log);
    drop(log);
    assert!(!segment(directory.path(), 3).exists(), "it was rewritten");
    stale[..512].fill(0);
    let next = newest(directory.path()) + 1;
    std::fs::write(segment(directory.path(), next), &stale).unwrap();

    let opened = open_with(directory.path(), LogOptions { raise: true, ..small_segments() }).unwrap();

    assert_eq!(opened.set_aside, [format!("msgs.{next:010}.aside")]);
    assert_eq!(opened.quarantined, []);
    model.check_messages(&opened.log);
}
