//! Copies of a log with corruption: unreadable parts are copied unchanged, and a start of the copy reports them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};

use penstock_log::{Corruption, LogOptions, Opened, Retired};
use support::{Model, fold, message, open, open_with, small_segments};

fn segment(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("msgs.{number:010}"))
}

/// A closed log of several segments; each message takes a part of one.
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

fn told(opened: &Opened) -> Vec<(String, Corruption)> {
    opened.quarantined.iter().map(|found| (found.file.clone(), found.why)).collect()
}

fn backup(opened: &mut Opened) -> tempfile::TempDir {
    let target = tempfile::tempdir().unwrap();
    opened.log.begin_backup().unwrap().perform(target.path()).unwrap();
    target
}

fn restored(directory: &Path) -> Opened {
    open_with(directory, LogOptions { raise: true, ..small_segments() }).unwrap()
}

/// A log with a segment without any header, and with a checkpoint of a later start.
fn with_a_headless_segment(directory: &Path) -> Opened {
    let mut model = closed(directory);
    let path = segment(directory, 3);
    change(&path, |bytes| {
        bytes[8] ^= 1;
        let copy = bytes.len() - 40;
        bytes[copy] ^= 1;
    });
    let mut opened = open(directory);
    assert_eq!(told(&opened), [("msgs.0000000003".to_owned(), Corruption::SegmentHeader)]);
    for seed in 0..60 {
        model.publish(&mut opened.log, &[1], message(100, seed)).unwrap();
    }
    opened.log.write().unwrap();
    fold(&mut opened.log).map(Retired::perform).transpose().unwrap();
    opened
}

/// It is not among the served segments, so copies left it out, and no start of a copy missed it.
#[test]
fn a_segment_whose_header_cannot_be_read_is_in_a_copy() {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = with_a_headless_segment(directory.path());

    let target = backup(&mut opened);

    for name in ["msgs.0000000003", "msgs.0000000003.idx"] {
        let read = |directory: &Path| std::fs::read(directory.join(name)).unwrap();
        assert_eq!(read(target.path()), read(directory.path()));
    }
    assert_eq!(told(&restored(target.path())), [("msgs.0000000003".to_owned(), Corruption::SegmentHeader)]);
}

#[test]
fn a_copy_tells_of_corruption_that_an_earlier_start_met() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    for seed in 0..100 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    log.write().unwrap();
    support::sync(&mut log);
    drop(log);
    change(&segment(directory.path(), 3), |bytes| bytes[200..260].iter_mut().for_each(|byte| *byte ^= 0x55));
    open(directory.path()).log.close().unwrap();
    let mut opened = open(directory.path());
    let marked = [("msgs.0000000003".to_owned(), Corruption::Marked)];
    assert_eq!(told(&opened), marked);

    let target = backup(&mut opened);

    assert_eq!(told(&restored(target.path())), marked);
}

/// The checkpoint that was made while its header could not be read did not list it.
#[test]
fn a_segment_without_a_header_that_vanishes_later_is_missed() {
    let directory = tempfile::tempdir().unwrap();
    with_a_headless_segment(directory.path()).log.close().unwrap();
    std::fs::remove_file(segment(directory.path(), 3)).unwrap();

    for _ in 0..2 {
        let mut opened = open(directory.path());

        let [(file, Corruption::Gone(missing))] = &told(&opened)[..] else { panic!("{:?}", told(&opened)) };
        assert_eq!(file, "msgs.0000000003");
        assert!((10..20).contains(&missing.messages), "{}", missing.messages);
        assert!(directory.path().join("msgs.0000000003.idx").exists());
        opened.log.close().unwrap();
    }
}
