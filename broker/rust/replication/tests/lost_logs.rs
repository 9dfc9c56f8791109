//! A folder in which only the promise of a replica is left: it is not opened as an empty log, which would count as one in sync.
#![allow(clippy::unwrap_used, reason = "a test")]

mod alone;

use std::path::Path;

use alone::{Alone, record};
use penstock_replica::Message;
use penstock_replication::OpenError;

/// Removes the files of a folder whose names begin with one of these; returns how many.
fn lose(directory: &Path, begins: &[&str]) -> usize {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let of_these = |name: &std::ffi::OsString| begins.iter().any(|begin| name.to_string_lossy().starts_with(begin));
    let lost: Vec<_> = names.filter(of_these).collect();
    lost.iter().for_each(|name| std::fs::remove_file(directory.join(name)).unwrap());
    lost.len()
}

/// The replica opened as one that has everything up to the position 0, and could lead without what it had acknowledged.
#[test]
fn a_replica_whose_log_is_gone_is_refused_at_each_start() {
    let directory = tempfile::tempdir().unwrap();
    let mut alone = Alone::start(directory.path(), 1, record(), 1);
    alone.append(b"confirmed", 1);
    let (record, epoch) = (alone.record.clone(), alone.record.epoch);
    drop(alone);
    assert!(lose(directory.path(), &["msgs.", "synced"]) > 1);

    for boot in 2..4 {
        let refused = Alone::open(directory.path(), boot, record.clone(), 9).map(|_| ());
        let Err(OpenError::LogGone { path, promised }) = &refused else { panic!("it is opened: {refused:?}") };
        assert_eq!((path.as_path(), *promised), (directory.path(), epoch));
    }

    let text = Alone::open(directory.path(), 4, record, 9).map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("is gone") && text.contains("move the folder away"), "{text}");
}

#[test]
fn a_replica_that_promised_and_had_no_record_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let mut alone = Alone::open(directory.path(), 1, record(), 1).unwrap();
    alone.hear(Message::Beat { epoch: 3, high_watermark: 0, sent: 1, session: 0 });
    drop(alone);

    for boot in 2..4 {
        // An empty segment is removed when a log is closed.
        lose(directory.path(), &["msgs."]);
        drop(Alone::open(directory.path(), boot, record(), 1).unwrap());
    }
}

#[test]
fn a_replica_that_promised_nothing_may_be_empty() {
    let directory = tempfile::tempdir().unwrap();
    drop(Alone::open(directory.path(), 1, record(), 1).unwrap());
    lose(directory.path(), &["msgs.", "synced"]);

    drop(Alone::open(directory.path(), 2, record(), 1).unwrap());
}
