//! Failing disks, truncated or changed files, and starts with them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_log::{FaultyDisk, Log, LogError, LogOptions, Outcome, Payload, Position, Target, inspect};
use penstock_queue::{QueueId, Sequence};
use proptest::prelude::*;
use support::{ForgetfulDisk, Model, fold, message, open, open_with, small_segments, sync};

fn with_disk(directory: &Path) -> (Arc<FaultyDisk>, Log, Model) {
    let disk = Arc::new(FaultyDisk::default());
    let options = LogOptions { disk: Arc::clone(&disk) as _, ..small_segments() };
    (disk, open_with(directory, options).unwrap().log, Model::default())
}

/// A log of one segment with `count` messages, and where each of its records ends.
fn one_segment(directory: &Path, count: u8) -> (Model, Vec<Position>) {
    let mut log = open_with(directory, LogOptions { segment_bytes_min: 1 << 16, ..LogOptions::default() }).unwrap().log;
    let mut model = Model::default();
    let mut ends = vec![log.end()];
    for seed in 0..count {
        model.publish(&mut log, &[1], message(usize::from(seed), seed)).unwrap();
        ends.push(log.end());
    }
    log.write().unwrap();
    (model, ends)
}

fn first_segment(directory: &Path) -> PathBuf {
    directory.join("msgs.0000000001")
}

fn offset_of(position: Position) -> usize {
    position.0 as usize + 64
}

#[test]
fn a_write_that_fails_is_made_up_for_by_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, mut log, mut model) = with_disk(directory.path());
    model.publish(&mut log, &[1], message(100, 1)).unwrap();
    let before = log.synced();

    disk.write_fails.store(true, Ordering::SeqCst);
    assert!(matches!(log.write(), Err(LogError::Io { action: "write", .. })));
    assert!(log.locate(QueueId(1), Sequence(1), 1).unwrap().is_none(), "unwritten bytes are not shown");
    let refused = model.clone().publish(&mut log, &[1], message(1, 2));
    assert!(matches!(refused, Err(LogError::WriteBehind)));
    assert!(log.begin_sync().is_none());
    assert_eq!(log.synced(), before);

    disk.write_fails.store(false, Ordering::SeqCst);
    log.write().unwrap();
    model.publish(&mut log, &[1], message(1, 3)).unwrap();
    log.write().unwrap();
    model.check_messages(&log);
    drop(log);
    model.check_state(&open(directory.path()).state);
}

#[test]
fn after_a_sync_that_failed_nothing_is_ever_called_synced() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, mut log, mut model) = with_disk(directory.path());
    sync(&mut log);
    let before = log.synced();
    model.publish(&mut log, &[1], message(100, 1)).unwrap();
    log.write().unwrap();
    let earlier = log.begin_sync().unwrap().perform().unwrap();

    disk.sync_fails.store(true, Ordering::SeqCst);
    let ticket = log.begin_sync().unwrap();
    assert!(matches!(ticket.perform(), Err(LogError::Io { action: "sync", .. })));
    disk.sync_fails.store(false, Ordering::SeqCst);

    assert!(matches!(log.begin_sync().unwrap().perform(), Err(LogError::Stopped { .. })));
    log.finish_sync(earlier);
    assert_eq!(log.synced(), before);
    assert!(matches!(log.append_delete(QueueId(1)), Err(LogError::Stopped { .. })));
    assert!(matches!(log.write(), Err(LogError::Stopped { .. })));
    assert!(log.close().is_err());
}

/// A disk that fails a sync forgets the pages; a repeated sync succeeds without them.
#[test]
fn a_start_writes_again_what_a_failed_sync_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(ForgetfulDisk::default());
    let options = |raise| LogOptions { raise, disk: Arc::clone(&disk) as _, ..small_segments() };
    let mut log = open_with(directory.path(), options(false)).unwrap().log;
    let mut model = Model::default();
    for seed in 0..20 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    log.write().unwrap();
    disk.sync_fails.store(true, Ordering::SeqCst);
    log.begin_sync().unwrap().perform().unwrap_err();
    disk.sync_fails.store(false, Ordering::SeqCst);
    drop(log);

    let mut opened = open_with(directory.path(), options(false)).unwrap();
    sync(&mut opened.log);
    model.check_state(&opened.state);
    let confirmed = opened.log.synced();
    drop(opened);
    disk.fail_power(directory.path());

    let opened = open_with(directory.path(), options(true)).unwrap();
    assert!(opened.log.end() >= confirmed);
    model.raise();
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

#[test]
fn a_segment_behind_a_torn_tail_is_set_aside_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    for seed in 0..8 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    log.write().unwrap();
    drop(log);
    let second = directory.path().join("msgs.0000000002");
    let bytes = std::fs::read(&second).unwrap();
    let path = first_segment(directory.path());
    let mut torn = std::fs::read(&path).unwrap();
    torn[64 + 55..512].fill(0);
    std::fs::write(&path, torn).unwrap();

    let opened = open_with(directory.path(), LogOptions { raise: true, ..small_segments() }).unwrap();

    assert_eq!(opened.set_aside, ["msgs.0000000002.aside"]);
    assert_eq!(std::fs::read(directory.path().join("msgs.0000000002.aside")).unwrap(), bytes);
    assert!(opened.quarantined.is_empty());
}

#[test]
fn a_segment_that_cannot_be_made_refuses_one_append_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, mut log, mut model) = with_disk(directory.path());
    model.publish(&mut log, &[1], message(300, 1)).unwrap();

    disk.create_fails.store(true, Ordering::SeqCst);
    let refused = model.clone().publish(&mut log, &[1], message(300, 2));
    assert!(matches!(refused, Err(LogError::Io { action: "create", .. })));
    disk.create_fails.store(false, Ordering::SeqCst);

    model.publish(&mut log, &[1], message(300, 3)).unwrap();
    log.write().unwrap();
    model.check_messages(&log);
    drop(log);
    model.check_state(&open(directory.path()).state);
}

#[test]
fn a_file_that_stands_where_a_segment_is_to_begin_is_not_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut log, mut model) = with_disk(directory.path());
    let path = directory.path().join("msgs.0000000002");
    std::fs::write(&path, b"of somebody else").unwrap();

    let refused = (0..50).find_map(|seed| model.publish(&mut log, &[1], message(100, seed)).err());

    assert!(matches!(refused, Some(LogError::Io { .. })), "{refused:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"of somebody else");
}

#[test]
fn a_disk_without_room_refuses_messages_and_takes_what_drains_it() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, mut log, mut model) = with_disk(directory.path());
    for seed in 0..40 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    let room = log.room();
    disk.free_bytes.store(room.needed + room.next - 1, Ordering::SeqCst);

    let mut refused = None;
    for seed in 40..60 {
        let mut after = model.clone();
        match after.publish(&mut log, &[1], message(100, seed)) {
            Ok(()) => model = after,
            Err(error) => refused = Some(error),
        }
    }
    assert!(matches!(&refused, Some(LogError::Full { .. })), "{refused:?}");
    assert!(refused.unwrap().is_full());
    let segments = log.stats().segments;
    for _ in 0..40 {
        model.settle(&mut log, 1, Outcome::Ack, &[0]);
    }
    log.write().unwrap();
    assert!(log.stats().segments > segments, "settlements rolled to a segment of their own");
    let retired = fold(&mut log).expect("there is something to fold");
    retired.perform().unwrap();
    disk.free_bytes.store(0, Ordering::SeqCst);

    model.publish(&mut log, &[1], message(100, 61)).unwrap();
    log.write().unwrap();
    model.check_messages(&log);
    drop(log);
    model.check_state(&open(directory.path()).state);
}

#[test]
fn a_settlement_takes_the_smallest_segment_when_a_larger_one_finds_no_room() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, mut log, mut model) = with_disk(directory.path());
    for seed in 0..60 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    disk.free_bytes.store(small_segments().segment_bytes_min, Ordering::SeqCst);

    for _ in 0..50 {
        model.settle(&mut log, 1, Outcome::Ack, &[0]);
    }

    log.write().unwrap();
    model.check_messages(&log);
}

#[test]
fn a_fold_that_failed_goes_on_where_it_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, mut log, mut model) = with_disk(directory.path());
    for seed in 0..60 {
        model.publish(&mut log, &[1, 2], message(100, seed)).unwrap();
        model.settle(&mut log, 1, Outcome::Ack, &[0]);
    }
    log.write().unwrap();

    disk.rename_fails.store(true, Ordering::SeqCst);
    assert!(log.begin_fold().unwrap().perform().is_err());
    disk.rename_fails.store(false, Ordering::SeqCst);
    fold(&mut log).expect("there is still something to fold").perform().unwrap();

    model.check_messages(&log);
    drop(log);
    let opened = open(directory.path());
    assert!(opened.recovery.bytes_read < 10_000, "the checkpoint was used");
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

#[test]
fn only_one_fold_is_under_way_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut log, mut model) = with_disk(directory.path());
    for seed in 0..60 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }

    let ticket = log.begin_fold().expect("several segments are sealed");
    assert!(log.begin_fold().is_none());
    drop(ticket);
    assert!(log.begin_fold().is_some());
}

#[test]
fn segments_that_nobody_needs_go() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut log, mut model) = with_disk(directory.path());
    for round in 0..200 {
        model.publish(&mut log, &[1], message(100, round)).unwrap();
        model.settle(&mut log, 1, Outcome::Ack, &[0]);
        log.write().unwrap();
        if let Some(retired) = fold(&mut log) {
            retired.perform().unwrap();
        }
    }

    let files = std::fs::read_dir(directory.path()).unwrap().count();
    assert!(log.stats().segments < 8, "{} segments are left", log.stats().segments);
    assert!(files < 16, "{files} files are left");
}

#[test]
fn a_closed_log_opens_without_reading_records() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut log, mut model) = with_disk(directory.path());
    for seed in 0..60 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    log.close().unwrap();
    assert!(matches!(log.append_delete(QueueId(1)), Err(LogError::Closed { .. })));
    drop(log);

    let opened = open(directory.path());

    assert_eq!(opened.recovery, penstock_log::Recovery::default());
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

#[test]
fn a_reader_keeps_its_bytes_while_the_log_lets_go_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut log, mut model) = with_disk(directory.path());
    for seed in 0..60 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    log.write().unwrap();
    let located = log.locate(QueueId(1), Sequence(1), 1).unwrap().unwrap();
    model.purge(&mut log, 1);
    for seed in 0..60 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
        model.purge(&mut log, 1);
        fold(&mut log).map(penstock_log::Retired::perform).transpose().unwrap();
    }
    drop(log.unmap_idle());
    drop(log.unmap_idle());

    assert!(!located.segment.path().exists());
    assert_eq!(located.segment.message(located.offsets[0]).unwrap().body, message(100, 0).body);
}

#[test]
fn idle_segments_are_unmapped_and_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut log, mut model) = with_disk(directory.path());
    for seed in 0..60 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    log.write().unwrap();
    fold(&mut log).unwrap().perform().unwrap();
    model.check_messages(&log);
    assert!(log.stats().mapped_bytes > 0);

    drop(log.unmap_idle());
    assert!(log.stats().mapped_bytes > 0, "what was used since the last call stays");
    drop(log.unmap_idle());
    assert_eq!(log.stats().mapped_bytes, 0);
    model.check_messages(&log);
}

#[test]
fn a_number_that_does_not_ascend_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let payload = Payload::new(b"", b"a", b"", b"body").unwrap();
    let target = |sequence| [Target { queue: QueueId(7), sequence: Sequence(sequence) }];
    log.append_message(&payload, 0, &target(5)).unwrap();
    let end = log.end();

    let refused = log.append_message(&payload, 0, &target(5));

    assert!(matches!(refused, Err(LogError::NotAscending { queue: 7, sequence: 5, last: 5 })));
    assert_eq!(log.end(), end);
    assert!(matches!(log.append_message(&payload, 0, &[]), Err(LogError::CountOutOfBounds { .. })));
    assert!(matches!(Payload::new(&[0; 256], b"", b"", b""), Err(LogError::FieldTooLong { .. })));
}

#[test]
fn a_directory_that_is_gone_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut log, mut model) = with_disk(directory.path());
    for seed in 0..60 {
        model.publish(&mut log, &[1, 3], message(100, seed)).unwrap();
    }
    log.close().unwrap();
    drop(log);
    let mut removed = 0;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "idx") {
            removed += 1;
            if removed % 2 == 0 {
                std::fs::remove_file(&path).unwrap();
            } else {
                std::fs::write(&path, b"not a directory").unwrap();
            }
        }
    }
    assert!(removed > 3);

    let opened = open(directory.path());

    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

#[test]
fn a_corrupt_checkpoint_is_passed_over_for_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut log, mut model) = with_disk(directory.path());
    for seed in 0..120 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
        model.settle(&mut log, 1, Outcome::Ack, &[0, 1]);
        log.write().unwrap();
        fold(&mut log).map(penstock_log::Retired::perform).transpose().unwrap();
    }
    drop(log);
    let checkpoints = |name: &str| name.starts_with("checkpoint");
    let mut names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| checkpoints(path.file_name().unwrap().to_str().unwrap()));
    names.sort();
    assert_eq!(names.len(), 2);
    let mut bytes = std::fs::read(&names[1]).unwrap();
    bytes[40] ^= 4;
    std::fs::write(&names[1], bytes).unwrap();

    let opened = open(directory.path());

    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

#[test]
fn a_newer_format_is_refused_by_number() {
    let directory = tempfile::tempdir().unwrap();
    one_segment(directory.path(), 1);
    let path = first_segment(directory.path());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 3;
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();

    let error = open_with(directory.path(), LogOptions::default()).unwrap_err();

    assert!(matches!(error, LogError::NewerFormat { found: 3, supported: 2, .. }));
}

#[test]
fn a_segment_of_another_log_is_refused() {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    one_segment(directory.path(), 1);
    one_segment(other.path(), 1);
    std::fs::copy(first_segment(other.path()), directory.path().join("msgs.0000000002")).unwrap();

    let error = open_with(directory.path(), LogOptions::default()).unwrap_err();

    assert!(matches!(error, LogError::Corrupt { why: penstock_log::Corruption::OtherLog, .. }));
}

#[test]
fn inspecting_counts_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut log, mut model) = with_disk(directory.path());
    for seed in 0..50 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
        model.settle(&mut log, 1, Outcome::Requeue, &[0]);
    }
    log.close().unwrap();
    let end = log.end();

    let reports = inspect(directory.path(), true).unwrap();

    assert!(reports.len() > 3);
    assert_eq!(reports.iter().map(|report| report.messages).sum::<u64>(), 50);
    assert_eq!(reports.iter().map(|report| report.settles).sum::<u64>(), 50);
    assert_eq!(reports.iter().map(|report| report.records).sum::<u64>(), 101);
    assert_eq!(reports.iter().map(|report| report.bytes).sum::<u64>(), end.0);
    assert!(reports.iter().all(|report| report.error.is_none()), "{reports:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_file_cut_anywhere_loses_only_the_records_from_there_on(part in 0.0..1.0_f64) {
        let directory = tempfile::tempdir().unwrap();
        let (model, ends) = one_segment(directory.path(), 40);
        let path = first_segment(directory.path());
        let mut bytes = std::fs::read(&path).unwrap();
        let written = offset_of(*ends.last().unwrap());
        let cut = 64 + ((written - 64) as f64 * part) as usize;
        bytes[cut..].fill(0);
        std::fs::write(&path, bytes).unwrap();

        let opened = open_with(directory.path(), LogOptions::default()).unwrap();

        // The bytes cut may have been zeros already, so a record that ends a little above may be whole.
        let kept = ends.iter().filter(|&&end| offset_of(end) <= cut).count();
        let found = opened.state.queues.get(&QueueId(1)).map_or(0, |queue| queue.count as usize);
        prop_assert!(found + 1 >= kept && found <= kept, "{found} of {kept} whole records");
        for number in 1..=found as u64 {
            let located = opened.log.locate(QueueId(1), Sequence(number), 1).unwrap().unwrap();
            let view = located.segment.message(located.offsets[0]).unwrap();
            prop_assert_eq!(view.body, &model.queues[&1].messages[&number].body);
        }
        let torn = opened.recovery.torn_bytes > 0;
        let next = opened.state.queues.get(&QueueId(1)).map_or(0, |queue| queue.next.0);
        prop_assert!(!torn || found == 0 || next > penstock_log::RAISE, "a cut tail raises the next numbers");
    }

    #[test]
    fn after_a_lost_page_cache_a_bad_byte_above_what_was_synced_ends_the_log(part in 0.0..1.0_f64, bit in 0..8_u32) {
        let directory = tempfile::tempdir().unwrap();
        let (_, ends) = one_segment(directory.path(), 40);
        let changed = change(directory.path(), &ends, part, bit);

        let options = LogOptions { raise: true, ..LogOptions::default() };
        let opened = open_with(directory.path(), options).unwrap();

        let kept = ends.iter().filter(|&&end| offset_of(end) <= changed).count().saturating_sub(1);
        let found = opened.state.queues.get(&QueueId(1)).map_or(0, |queue| queue.count as usize);
        prop_assert_eq!(found, kept);
        prop_assert!(opened.recovery.torn_bytes > 0);
        prop_assert!(opened.quarantined.is_empty());
    }

    #[test]
    fn after_a_kill_a_bad_byte_costs_the_record_that_it_is_in(part in 0.0..1.0_f64, bit in 0..8_u32) {
        let directory = tempfile::tempdir().unwrap();
        let (_, ends) = one_segment(directory.path(), 40);
        let changed = change(directory.path(), &ends, part, bit);

        let opened = open_with(directory.path(), LogOptions::default()).unwrap();

        let is_last = changed >= offset_of(ends[ends.len() - 2]);
        let queue = &opened.state.queues[&QueueId(1)];
        prop_assert_eq!(queue.count, 39);
        prop_assert!(queue.next.0 > penstock_log::RAISE, "numbers may have been given that nothing tells of");
        let lost = ends.iter().filter(|&&end| offset_of(end) <= changed).count() as u64;
        for number in (1..=40).filter(|&number| number != lost) {
            prop_assert!(opened.log.locate(QueueId(1), Sequence(number), 1).unwrap().is_some());
        }
        // No record after the last one distinguishes corruption from a torn tail.
        prop_assert_eq!(opened.quarantined.len(), usize::from(!is_last));
        prop_assert_eq!(opened.recovery.torn_bytes > 0, is_last);
        for corrupt in &opened.quarantined {
            let record = ends[lost as usize - 1];
            prop_assert_eq!((corrupt.file.as_str(), corrupt.at), ("msgs.0000000001", offset_of(record) as u64));
        }
    }
}

/// Changes a bit after the epoch's record, which a start syncs; returns its byte.
fn change(directory: &Path, ends: &[Position], part: f64, bit: u32) -> usize {
    let (first, written) = (offset_of(ends[0]), offset_of(*ends.last().unwrap()));
    let path = first_segment(directory);
    let mut bytes = std::fs::read(&path).unwrap();
    let changed = first + ((written - 1 - first) as f64 * part) as usize;
    bytes[changed] ^= 1 << bit;
    std::fs::write(&path, bytes).unwrap();
    changed
}
