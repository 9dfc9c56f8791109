//! Index files that are missing, truncated or changed in a running log: they are derived from their segments again.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use penstock_log::{Log, Outcome, inspect};
use penstock_queue::{QueueId, Sequence};
use support::{Model, compact, fold, message, open};

fn indexes(directory: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|part| part == "idx")).collect();
    found.sort();
    found
}

/// A log whose sealed segments have their index files, all of them mapped.
fn log_with_indexes(directory: &Path) -> (Log, Model) {
    let mut log = open(directory).log;
    let mut model = Model::default();
    for seed in 0..60 {
        model.publish(&mut log, &[1, 3], message(100, seed)).unwrap();
    }
    log.close().unwrap();
    drop(log);
    let log = open(directory).log;
    model.check_messages(&log);
    assert!(indexes(directory).len() > 3);
    (log, model)
}

/// Goes on until the derived indexes have been written, and reads everything.
fn check_rewritten(directory: &Path, mut log: Log, mut model: Model) {
    model.check_messages(&log);
    for seed in 0..60 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
        model.settle(&mut log, 3, Outcome::Ack, &[0]);
    }
    log.write().unwrap();
    while fold(&mut log).is_some_and(|retired| retired.perform().is_ok()) {}
    while compact(&mut log, 1 << 20).unwrap() {}
    model.check_messages(&log);
    log.close().unwrap();
    let wrong: Vec<_> = inspect(directory, true).unwrap().into_iter().filter(|report| report.error.is_some()).collect();
    assert_eq!(wrong, []);
    assert!(indexes(directory).iter().all(|path| path.metadata().unwrap().len() > 64), "one is not written again");
}

#[test]
fn one_whose_pages_cannot_be_read_any_more_is_derived() {
    let directory = tempfile::tempdir().unwrap();
    let (log, model) = log_with_indexes(directory.path());
    // To a map, an unreadable sector and a page after the file's end are the same.
    for path in indexes(directory.path()) {
        OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
    }

    check_rewritten(directory.path(), log, model);
}

#[test]
fn one_that_is_gone_is_derived() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, model) = log_with_indexes(directory.path());
    for _ in 0..2 {
        drop(log.unmap_idle());
    }
    for path in indexes(directory.path()) {
        std::fs::remove_file(path).unwrap();
    }

    check_rewritten(directory.path(), log, model);
}

#[test]
fn one_whose_checksum_does_not_match_is_derived() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, model) = log_with_indexes(directory.path());
    for _ in 0..2 {
        drop(log.unmap_idle());
    }
    for (at, path) in indexes(directory.path()).into_iter().enumerate() {
        let mut bytes = std::fs::read(&path).unwrap();
        // In turn an entry, which look-ups check, and an offset, which leads to no record of the message.
        let place = if at % 2 == 0 { 64 + 8 } else { bytes.len() - 3 };
        bytes[place] ^= 1;
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    let files: Vec<String> =
        indexes(directory.path()).iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    let mut log = log;
    for file in files {
        // What a reader does when it finds no record of its message.
        let _ = log.rebuild_directory(&file).unwrap();
    }

    check_rewritten(directory.path(), log, model);
}

#[test]
fn a_message_is_found_without_a_look_at_every_index() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    for seed in 0..600_u32 {
        model.publish(&mut log, &[1], message(100, (seed % 251) as u8)).unwrap();
    }
    log.close().unwrap();
    drop(log);
    let mut log = open(directory.path()).log;
    for _ in 0..2 {
        drop(log.unmap_idle());
    }
    let paths = indexes(directory.path());
    assert!(paths.len() > 15, "{} are too few", paths.len());
    let all: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
    let before = log.stats().mapped_bytes;

    let located = log.locate(QueueId(1), Sequence(595), 1).unwrap().unwrap();

    let mapped = log.stats().mapped_bytes - before - located.segment.path().metadata().unwrap().len();
    assert!(mapped < all / 2, "{mapped} of {all} bytes of indexes are mapped");
}

/// A process that died between removing a segment and its index left the index for ever.
#[test]
fn one_whose_segment_was_removed_is_removed_by_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, model) = log_with_indexes(directory.path());
    log.close().unwrap();
    let kept = indexes(directory.path());
    let orphans = ["msgs.0000000070.idx", "msgs.0000000070.2.idx", "msgs.0000000001.9.idx"];
    for name in orphans {
        std::fs::copy(&kept[0], directory.path().join(name)).unwrap();
    }

    let opened = open(directory.path());

    let removed: Vec<&str> = opened.removed_indexes.iter().map(String::as_str).collect();
    assert_eq!(removed, ["msgs.0000000070.idx"]);
    assert_eq!(indexes(directory.path()), kept);
    model.check_messages(&opened.log);
    drop(opened);
    assert!(directory.path().join("msgs.0000000071").exists(), "a number that a file had is not given again");
    assert_eq!(open(directory.path()).removed_indexes, [""; 0]);
}

#[test]
fn one_whose_segment_is_missed_stays() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, model) = log_with_indexes(directory.path());
    log.close().unwrap();
    drop(log);
    let (segment, away) = (directory.path().join("msgs.0000000003"), directory.path().join("away"));
    std::fs::rename(&segment, &away).unwrap();

    let opened = open(directory.path());

    assert_eq!(opened.quarantined.len(), 1);
    assert_eq!(opened.removed_indexes, [""; 0]);
    assert!(segment.with_extension("0000000003.idx").exists());
    drop(opened);
    std::fs::rename(&away, &segment).unwrap();
    model.check_messages(&open(directory.path()).log);
}
