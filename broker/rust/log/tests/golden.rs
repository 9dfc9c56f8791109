//! A directory that format 1 wrote is opened for ever. `golden/1` is never written again; a new format gets a new one, by
//! `cargo test -p penstock-log --test golden -- --ignored`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use penstock_log::{Format, Log, LogOptions, Outcome, Retired, inspect};
use support::{Model, fold, message, open, sync};

fn of_format_1() -> LogOptions {
    LogOptions { format: Format::One, ..support::small_segments() }
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/1")
}

/// The content of the directory: settled, requeued, purged, deleted and live messages, over several segments and a
/// raise.
fn write(directory: &Path) -> Model {
    let mut model = Model::default();
    let mut log = Log::open(directory, of_format_1()).unwrap().log;
    for seed in 0..40 {
        model.publish(&mut log, &[1, 2], message(usize::from(seed), seed)).unwrap();
        model.publish(&mut log, &[3], message(90, seed)).unwrap();
        model.settle(&mut log, 3, Outcome::Ack, &[0]);
        log.write().unwrap();
    }
    model.settle(&mut log, 1, Outcome::Ack, &[0, 1, 5, 20]);
    model.settle(&mut log, 2, Outcome::Requeue, &[3, 4]);
    log.write().unwrap();
    sync(&mut log);
    fold(&mut log).map(Retired::perform).transpose().unwrap();
    drop(log);

    let mut log = Log::open(directory, LogOptions { raise: true, ..of_format_1() }).unwrap().log;
    model.raise();
    for seed in 0..10 {
        model.publish(&mut log, &[1, 4], message(3 * usize::from(seed), seed)).unwrap();
        model.publish(&mut log, &[5], message(1, seed)).unwrap();
    }
    model.purge(&mut log, 5);
    model.delete(&mut log, 4);
    model.settle(&mut log, 1, Outcome::Drop, &[7]);
    log.write().unwrap();
    fold(&mut log).map(Retired::perform).transpose().unwrap();
    model.publish(&mut log, &[6], message(5000, 1)).unwrap();
    model.publish(&mut log, &[6], message(1, 2)).unwrap();
    log.write().unwrap();
    sync(&mut log);
    model
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn what_format_1_wrote_is_read() {
    let (directory, fresh) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    copy(&golden(), directory.path());
    let model = write(fresh.path());
    let reports = inspect(directory.path(), true).unwrap();
    assert!(reports.len() > 3 && reports.iter().all(|report| report.error.is_none()), "{reports:?}");

    let opened = open(directory.path());

    assert_eq!(opened.recovery.torn_bytes, 0);
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

#[test]
fn what_is_written_today_has_the_same_files_of_the_same_sizes() {
    let fresh = tempfile::tempdir().unwrap();
    write(fresh.path());
    let listed = |directory: &Path| {
        let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap()).collect();
        files.sort_by_key(|file| file.file_name());
        files.iter().map(|file| (file.file_name(), file.metadata().unwrap().len())).collect::<Vec<_>>()
    };
    // A segment as it was appended ends with a copy of its header today, and a checkpoint with a list of the live ones.
    let more_bytes = |name: &OsString| match name.to_str().unwrap() {
        "checkpoint.0000000001" => 21 + 5 * 20,
        "checkpoint.0000000002" => 21 + 7 * 20,
        name if name.len() == "msgs.0000000001".len() => 64,
        _ => 0,
    };
    let expected: Vec<_> =
        listed(&golden()).into_iter().map(|(name, bytes)| (name.clone(), bytes + more_bytes(&name))).collect();

    assert_eq!(listed(fresh.path()), expected);
}

#[test]
#[ignore = "writes the golden directory of a new format"]
fn write_the_golden_directory() {
    assert!(!golden().exists(), "a golden directory is never written again");
    std::fs::create_dir_all(golden()).unwrap();
    write(&golden());
}
