//! Disk space of a log: reserved in steps ahead of the records, and none for segments that one checkpoint knows are
//! dead.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_log::{FaultyDisk, Log, LogError, LogOptions, Outcome};
use support::{Model, fold, message, open_with};

const MIB: u64 = 1 << 20;
const BODY: usize = 100_000;

fn open(directory: &Path, disk: &Arc<FaultyDisk>) -> Log {
    let options = LogOptions {
        segment_bytes_min: 16 * MIB,
        segment_bytes_max: 16 * MIB,
        disk: Arc::clone(disk) as _,
        ..LogOptions::default()
    };
    open_with(directory, options).unwrap().log
}

fn disk_bytes(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
}

#[test]
fn a_segment_takes_its_room_in_steps_ahead_of_what_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path(), &Arc::default());
    let mut model = Model::default();
    assert!(disk_bytes(directory.path()) < 5 * MIB, "{}", disk_bytes(directory.path()));

    for seed in 0..140 {
        model.publish(&mut log, &[1], message(BODY, seed)).unwrap();
        log.write().unwrap();
        let (disk, end) = (disk_bytes(directory.path()), log.end().0);
        assert!((end..end + 5 * MIB).contains(&disk), "{disk} bytes for {end}");
    }

    model.check_messages(&log);
    drop(log);
    let opened = open_with(directory.path(), LogOptions::default()).unwrap();
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

#[test]
fn a_disk_that_fills_up_within_a_segment_refuses_messages_and_takes_settlements() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::<FaultyDisk>::default();
    let mut log = open(directory.path(), &disk);
    let mut model = Model::default();
    model.publish(&mut log, &[1], message(BODY, 0)).unwrap();
    disk.free_bytes.store(log.room().needed + MIB, Ordering::SeqCst);

    let mut stored = 0;
    let refused = loop {
        let mut after = model.clone();
        match after.publish(&mut log, &[1], message(BODY, stored)) {
            Ok(()) => (model, stored) = (after, stored + 1),
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, LogError::Full { .. }), "{refused:?}");
    assert!(stored > 30 && log.stats().segments == 1, "the first step of the segment was filled: {stored}");
    model.settle(&mut log, 1, Outcome::Ack, &[0, 1, 2]);
    log.write().unwrap();
    disk.free_bytes.store(0, Ordering::SeqCst);

    model.publish(&mut log, &[1], message(BODY, 99)).unwrap();
    log.write().unwrap();
    model.check_messages(&log);
    drop(log);
    model.check_state(&open_with(directory.path(), LogOptions::default()).unwrap().state);
}

#[test]
fn what_died_since_the_last_checkpoint_goes_with_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let options = LogOptions { segment_bytes_min: MIB, segment_bytes_max: 4 * MIB, ..LogOptions::default() };
    let mut log = open_with(directory.path(), options.clone()).unwrap().log;
    let mut model = Model::default();
    for seed in 0..200 {
        model.publish(&mut log, &[1], message(BODY, seed)).unwrap();
        model.settle(&mut log, 1, Outcome::Ack, &[0]);
        log.write().unwrap();
    }
    assert!(disk_bytes(directory.path()) > 16 * MIB);

    fold(&mut log).unwrap().perform().unwrap();

    assert!(disk_bytes(directory.path()) < 10 * MIB, "{}", disk_bytes(directory.path()));
    let checkpoints = || {
        let names = std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
        let mut found: Vec<_> = names.filter(|path| path.to_string_lossy().contains("checkpoint.")).collect();
        found.sort();
        found
    };
    assert_eq!(checkpoints().len(), 2, "the same state twice");
    drop(log);
    std::fs::write(checkpoints().pop().unwrap(), b"corrupt").unwrap();
    let opened = open_with(directory.path(), options).unwrap();
    model.check_state(&opened.state);
}
