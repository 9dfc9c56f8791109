//! Segments say of which shard they are, also rewritten ones, and are refused in the log of another.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;

use penstock_log::{Corruption, LogError, LogOptions, Outcome, Retired, inspect_shard, repair};
use support::{Model, compact_all, fold, message, open_with, small_segments, sync};

fn options(shard: u16) -> LogOptions {
    LogOptions { shard, ..small_segments() }
}

/// A log of shard 3 with plain segments, and with rewritten ones: a slow queue keeps a few messages in each.
fn filled(directory: &Path) {
    let (mut log, mut model) = (open_with(directory, options(3)).unwrap().log, Model::default());
    for round in 0..300_u64 {
        if round % 10 == 0 {
            model.publish(&mut log, &[1], message(60, round as u8)).unwrap();
        }
        let fast = 2 + round % 5;
        model.publish(&mut log, &[fast], message(100, round as u8)).unwrap();
        model.settle(&mut log, fast, Outcome::Ack, &[0]);
        log.write().unwrap();
        if let Some(retired) = fold(&mut log) {
            retired.perform().unwrap();
        }
    }
    sync(&mut log);
    fold(&mut log).map(Retired::perform).transpose().unwrap();
    compact_all(&mut log);
    log.close().unwrap();
}

fn is_refused(directory: &Path, shard: u16) -> bool {
    match open_with(directory, options(shard)) {
        Err(LogError::Corrupt { at: 56, why: Corruption::OtherShard { found: 3, expected }, .. }) => expected == shard,
        _ => false,
    }
}

/// The folders of two shards were exchanged, and a broker served the messages of one as those of the other.
#[test]
fn a_log_in_the_folder_of_another_shard_is_refused_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    let names =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().any(|name| name.starts_with("msgs.") && name.ends_with(".2")), "something was rewritten");

    for shard in [0, 2] {
        let error = open_with(directory.path(), options(shard)).unwrap_err();
        assert!(
            error.to_string().contains(&format!("it is of shard 3, and this log is shard {shard}; put")),
            "{error}"
        );
        assert!(is_refused(directory.path(), shard));
        assert!(repair(directory.path(), options(shard)).is_err());
        let reports = inspect_shard(directory.path(), shard, true).unwrap();
        assert!(!reports.is_empty());
        for report in reports {
            assert!(report.error.unwrap().contains("it is of shard 3"), "{}", report.file);
        }
    }

    assert!(inspect_shard(directory.path(), 3, true).unwrap().iter().all(|report| report.error.is_none()));
    drop(open_with(directory.path(), options(3)).unwrap());
}

#[test]
fn a_rewritten_segment_of_another_shard_is_refused_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    for entry in std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let is_plain = name.starts_with("msgs.") && name.matches('.').count() == 1;
        if is_plain {
            set_shard(&entry.path(), 0);
        }
    }

    assert!(is_refused(directory.path(), 2));
    drop(open_with(directory.path(), options(3)).unwrap());
}

/// Earlier versions wrote 0 in the headers of all shards.
#[test]
fn a_segment_without_a_shard_is_read_in_all() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    for entry in std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("msgs.") && !name.ends_with(".idx") {
            set_shard(&entry.path(), 0);
        }
    }

    assert!(inspect_shard(directory.path(), 2, true).unwrap().iter().all(|report| report.error.is_none()));
    drop(open_with(directory.path(), options(2)).unwrap());
    assert!(open_with(directory.path(), options(1)).is_err(), "the start began a segment of shard 2");
}

/// Writes a header, and its copy if there is one, with another shard.
fn set_shard(path: &Path, shard: u16) {
    let mut bytes = std::fs::read(path).unwrap();
    let header: Vec<u8> = bytes[..64].to_vec();
    let mut places = vec![0];
    places.extend((bytes.len() > 128 && bytes[bytes.len() - 64..] == header).then(|| bytes.len() - 64));
    for at in places {
        bytes[at + 56..at + 58].copy_from_slice(&shard.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[at..at + 60]);
        bytes[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(path, bytes).unwrap();
}
