//! Bytes that change in a running log: bytes that are read from the disk again are checked again, and only records with
//! a correct checksum are folded.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_log::{Corruption, DecodeError, Log, LogError, Outcome, Segment, Target};
use penstock_queue::{QueueId, Sequence, SequenceRange};
use rustix::fs::{Advice, fadvise};
use support::{Model, message, open, sync};

const QUEUE: u64 = 1;
const TARGET_7: Target = Target { queue: QueueId(QUEUE), sequence: Sequence(7) };

/// Messages in segments of this process, all of them synced.
fn stored(directory: &Path, count: u8) -> (Log, Model) {
    let mut log = open(directory).log;
    let mut model = Model::default();
    for seed in 0..count {
        model.publish(&mut log, &[QUEUE], message(100, seed)).unwrap();
    }
    log.write().unwrap();
    sync(&mut log);
    (log, model)
}

fn place(log: &Log, number: u64) -> (Arc<Segment>, u32) {
    let located = log.locate(QueueId(QUEUE), Sequence(number), 1).unwrap().unwrap();
    (located.segment, located.offsets[0])
}

/// Changes a bit of a file on the disk.
fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    file.sync_all().unwrap();
}

/// Takes a file out of the page cache; nothing may have it mapped.
fn evict(path: &Path) {
    fadvise(File::open(path).unwrap(), 0, None, Advice::DontNeed).unwrap();
}

/// A file system in memory keeps its pages: nothing is read again.
fn is_in_memory(directory: &Path) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    rustix::fs::statfs(directory).unwrap().f_type as u64 == TMPFS_MAGIC
}

#[test]
fn a_body_that_changed_on_the_disk_is_not_delivered_once_it_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = stored(directory.path(), 30);
    let (segment, offset) = place(&log, 7);
    let path: PathBuf = segment.path().to_owned();
    assert!(segment.message_for(offset, TARGET_7).is_ok());
    drop(segment);
    for _ in 0..2 {
        drop(log.unmap_idle());
    }
    flip(&path, u64::from(offset) + 80);
    evict(&path);

    let (segment, offset) = place(&log, 7);
    segment.populate(offset, offset).unwrap();

    let read = segment.message_for(offset, TARGET_7);
    if is_in_memory(directory.path()) {
        return;
    }
    let Err(LogError::Corrupt { why, .. }) = read else { panic!("delivered") };
    assert_eq!(why, Corruption::Record(DecodeError::PayloadChecksum));
}

#[test]
fn a_body_that_a_backup_read_from_the_disk_again_is_checked_before_it_is_delivered() {
    let (directory, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut log, _) = stored(directory.path(), 30);
    let (segment, offset) = place(&log, 7);
    let path: PathBuf = segment.path().to_owned();
    drop(segment);
    for _ in 0..2 {
        drop(log.unmap_idle());
    }
    flip(&path, u64::from(offset) + 80);
    evict(&path);

    log.begin_backup().unwrap().perform(copy.path()).unwrap();

    let (segment, offset) = place(&log, 7);
    if !segment.is_resident(offset, offset) {
        segment.populate(offset, offset).unwrap();
    }
    let read = segment.message_for(offset, TARGET_7);
    assert!(is_in_memory(directory.path()) || matches!(read, Err(LogError::Corrupt { .. })), "delivered unchecked");
}

#[test]
fn a_settlement_that_changed_is_passed_over_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, mut model) = stored(directory.path(), 2);
    let (segment, _) = place(&log, 1);
    let before = log.end();
    let range = SequenceRange { first: Sequence(1), last: Sequence(1) };
    log.append_settle(QueueId(QUEUE), Outcome::Ack, 1, 100, &[range]).unwrap();
    log.write().unwrap();
    // The last byte of the range's last sequence: it would settle later messages.
    let at = 64 + before.0 + (log.end().0 - before.0) - 8;
    flip(segment.path(), at);
    for seed in 0..30 {
        model.publish(&mut log, &[QUEUE], message(100, seed)).unwrap();
    }
    log.write().unwrap();

    let folded = log.begin_fold().unwrap().perform().unwrap();

    let [corrupt] = &folded.corrupt[..] else { panic!("{:?}", folded.corrupt) };
    assert_eq!((corrupt.at, corrupt.why), (64 + before.0, Corruption::Record(DecodeError::HeadChecksum)));
    log.finish_fold(folded).perform().unwrap();
    log.close().unwrap();
    drop(log);
    let opened = open(directory.path());
    assert!(opened.state.has_live(QueueId(QUEUE), Sequence(1), 1), "what cannot be trusted settles nothing");
    assert!(!opened.quarantined.is_empty(), "a later start tells of it");
}

#[test]
fn a_length_that_changed_ends_no_fold_and_its_message_keeps_its_number() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = stored(directory.path(), 30);
    let (segment, offset) = place(&log, 7);
    let path: PathBuf = segment.path().to_owned();
    drop(segment);
    for _ in 0..2 {
        drop(log.unmap_idle());
    }
    flip(&path, u64::from(offset) + 1);
    evict(&path);
    if is_in_memory(directory.path()) {
        return;
    }

    let folded = log.begin_fold().unwrap().perform().unwrap();

    let [corrupt] = &folded.corrupt[..] else { panic!("{:?}", folded.corrupt) };
    assert_eq!((corrupt.at, &corrupt.queues[..]), (u64::from(offset), &[QueueId(QUEUE)][..]));
    log.finish_fold(folded).perform().unwrap();
    log.close().unwrap();
    drop(log);
    let opened = open(directory.path());
    let queue = &opened.state.queues[&QueueId(QUEUE)];
    assert_eq!(queue.count, 30);
    assert!(opened.state.has_live(QueueId(QUEUE), Sequence(7), 1));
    let (segment, offset) = place(&opened.log, 7);
    assert!(matches!(segment.message_for(offset, TARGET_7), Err(LogError::Corrupt { .. })));
}
