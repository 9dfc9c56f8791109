//! Bytes that change on a disk below the synced position: which are skipped, which are still served, and the report.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};

use penstock_log::{Corruption, DecodeError, Log, LogError, LogOptions, Opened, Outcome, Target, inspect, repair};
use penstock_queue::{QueueId, Sequence};
use proptest::prelude::*;
use support::{Model, fold, message, open, open_with, small_segments, sync};

const QUEUE: u64 = 1;
/// Behind the header of a segment and the record of an epoch.
const FIRST_RECORD: usize = 64 + 55;

fn segment(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("msgs.{number:010}"))
}

fn newest(directory: &Path) -> PathBuf {
    (1..60).map(|number| segment(directory, number)).rfind(|path| path.exists()).unwrap()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Makes a segment's header unreadable, and the copy of it at the file's end.
fn lose_headers(path: &Path) {
    let copy = std::fs::metadata(path).unwrap().len() as usize - 64;
    flip(path, 20);
    flip(path, copy + 20);
}

/// How many bytes are written before the copy of the header.
fn written(bytes: &[u8]) -> usize {
    bytes[..bytes.len() - 64].iter().rposition(|&byte| byte != 0).unwrap() + 1
}

/// A log that was synced and not folded, and its content.
fn synced_log(directory: &Path, count: u8) -> Model {
    let mut log = open(directory).log;
    let mut model = Model::default();
    for seed in 0..count {
        model.publish(&mut log, &[QUEUE], message(100, seed)).unwrap();
    }
    log.write().unwrap();
    sync(&mut log);
    model
}

/// A closed log: its checkpoint covers everything, and a start reads no record.
fn closed_log(directory: &Path, queues: &[u64], count: u8) -> Model {
    let mut log = open(directory).log;
    let mut model = Model::default();
    for seed in 0..count {
        model.publish(&mut log, queues, message(100, seed)).unwrap();
    }
    log.close().unwrap();
    model
}

/// The place of a message: its file and its record's offset there.
fn place(directory: &Path, number: u64) -> (PathBuf, u32) {
    let log = open(directory).log;
    let located = log.locate(QueueId(QUEUE), Sequence(number), 1).unwrap().unwrap();
    (located.segment.path().to_owned(), located.offsets[0])
}

fn read(log: &Log, number: u64) -> Option<Result<Vec<u8>, LogError>> {
    let target = Target { queue: QueueId(QUEUE), sequence: Sequence(number) };
    let located = log.locate(target.queue, target.sequence, 1).unwrap()?;
    Some(located.segment.message_for(located.offsets[0], target).map(|message| message.body.to_vec()))
}

/// The sequences whose messages can be read, each of them as it was stored.
fn readable(opened: &Opened, model: &Model) -> Vec<u64> {
    let messages = &model.queues[&QUEUE].messages;
    let mut found = Vec::new();
    for (&number, stored) in messages {
        if let Some(Ok(body)) = read(&opened.log, number) {
            assert_eq!(body, stored.body, "message {number} is another one");
            found.push(number);
        }
    }
    found
}

#[test]
fn a_bad_head_below_what_was_synced_is_passed_over_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let model = synced_log(directory.path(), 30);
    flip(&segment(directory.path(), 1), FIRST_RECORD + 30);

    let opened = open(directory.path());

    let [corrupt] = &opened.quarantined[..] else { panic!("{:?}", opened.quarantined) };
    assert_eq!((corrupt.file.as_str(), corrupt.at), ("msgs.0000000001", FIRST_RECORD as u64));
    assert_eq!(corrupt.why, Corruption::Record(DecodeError::HeadChecksum));
    let all: Vec<u64> = model.queues[&QUEUE].messages.keys().copied().collect();
    assert_eq!(readable(&opened, &model), all[1..]);
    let queue = &opened.state.queues[&QueueId(QUEUE)];
    assert_eq!(queue.count, 29);
    assert!(queue.next.0 > penstock_log::RAISE, "numbers may have been given that nothing tells of");
}

#[test]
fn the_queue_of_a_record_that_is_gone_is_named_by_the_hole_it_leaves() {
    let directory = tempfile::tempdir().unwrap();
    let model = synced_log(directory.path(), 30);
    let path = segment(directory.path(), 2);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[64..64 + 200].fill(0xFF);
    std::fs::write(&path, bytes).unwrap();

    let opened = open(directory.path());

    assert_eq!(opened.quarantined[0].queues, [QueueId(QUEUE)]);
    assert_eq!(readable(&opened, &model).len(), 30 - 2);
}

#[test]
fn what_is_corrupt_above_what_was_synced_is_a_torn_tail_still() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    model.publish(&mut log, &[QUEUE], message(100, 1)).unwrap();
    log.write().unwrap();
    drop(log);
    flip(&segment(directory.path(), 1), FIRST_RECORD + 30);

    let opened = open(directory.path());

    assert!(opened.quarantined.is_empty());
    assert!(opened.recovery.torn_bytes > 0);
}

#[test]
fn a_whole_record_behind_a_bad_one_proves_corruption_while_the_page_cache_is_that_of_the_writer() {
    for raise in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let mut log = open(directory.path()).log;
        let mut model = Model::default();
        for seed in 0..2 {
            model.publish(&mut log, &[QUEUE], message(100, seed)).unwrap();
        }
        log.write().unwrap();
        assert_eq!(log.stats().segments, 1, "another one would prove it, too");
        drop(log);
        // The first message's head.
        flip(&segment(directory.path(), 1), FIRST_RECORD + 30);

        let opened = open_with(directory.path(), LogOptions { raise, ..small_segments() }).unwrap();

        let left: &[u64] = if raise { &[] } else { &[2] };
        assert_eq!((readable(&opened, &model), opened.quarantined.len()), (left.to_vec(), usize::from(!raise)));
        assert_eq!(opened.recovery.torn_bytes > 0, raise);
    }
}

#[test]
fn what_was_confirmed_at_disk_is_never_called_torn() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    model.publish(&mut log, &[QUEUE], message(100, 1)).unwrap();
    log.write().unwrap();
    sync(&mut log);
    drop(log);
    // The last record's length: no later record shows where it ends.
    flip(&segment(directory.path(), 1), FIRST_RECORD + 1);

    let opened = open_with(directory.path(), LogOptions { raise: true, ..small_segments() }).unwrap();

    let [corrupt] = &opened.quarantined[..] else { panic!("{:?}", opened.quarantined) };
    assert_eq!((corrupt.file.as_str(), corrupt.at), ("msgs.0000000001", FIRST_RECORD as u64));
    assert_eq!(opened.recovery.torn_bytes, 0);
}

#[test]
fn a_segment_that_another_one_follows_was_written_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    for seed in 0..30 {
        model.publish(&mut log, &[QUEUE], message(100, seed)).unwrap();
    }
    log.write().unwrap();
    drop(log);
    let path = segment(directory.path(), 2);
    let mut bytes = std::fs::read(&path).unwrap();
    let written = written(&bytes);
    bytes[written - 140..written].fill(0);
    std::fs::write(&path, bytes).unwrap();

    let opened = open(directory.path());

    assert_eq!(opened.quarantined[0].file, "msgs.0000000002");
    assert_eq!(readable(&opened, &model).len(), 29);
}

#[test]
fn a_changed_body_is_never_given_out_and_its_neighbours_are() {
    let directory = tempfile::tempdir().unwrap();
    let model = closed_log(directory.path(), &[QUEUE], 30);
    let (path, offset) = place(directory.path(), 7);
    flip(&path, offset as usize + 80);

    let opened = open(directory.path());

    assert!(opened.quarantined.is_empty(), "a start reads no record");
    let error = read(&opened.log, 7).unwrap().unwrap_err();
    let LogError::Corrupt { path: found, at, why } = error else { panic!("{error}") };
    assert_eq!((found, at), (path, u64::from(offset)));
    assert_eq!(why, Corruption::Record(DecodeError::PayloadChecksum));
    assert_eq!(readable(&opened, &model).len(), 29);
}

#[test]
fn a_directory_whose_offsets_changed_never_leads_to_another_message() {
    let directory = tempfile::tempdir().unwrap();
    let model = closed_log(directory.path(), &[QUEUE, 2], 30);
    let path = directory.path().join("msgs.0000000001.idx");
    let mut bytes = std::fs::read(&path).unwrap();
    // The first section of the table after the header.
    let [from, size] = [72, 80].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize);
    let at = from + size - 4;
    let (first, last) = (bytes[from..from + 4].to_vec(), bytes[at..at + 4].to_vec());
    bytes[from..from + 4].copy_from_slice(&last);
    bytes[at..at + 4].copy_from_slice(&first);
    std::fs::write(&path, bytes).unwrap();
    let mut opened = open(directory.path());
    assert!(readable(&opened, &model).len() < 30);

    assert!(opened.log.rebuild_directory("msgs.0000000001").unwrap());

    assert_eq!(readable(&opened, &model).len(), 30);
    assert!(!opened.log.rebuild_directory("msgs.0000000001").unwrap(), "it is whole now");
}

#[test]
fn a_segment_without_its_header_is_kept_and_the_rest_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let model = synced_log(directory.path(), 30);
    let path = segment(directory.path(), 2);
    lose_headers(&path);

    let opened = open(directory.path());

    assert_eq!(opened.quarantined[0].file, "msgs.0000000002");
    assert!(path.exists());
    let found = readable(&opened, &model);
    assert!(found.contains(&1) && found.contains(&30));
    assert!(found.len() < 30);
    assert_eq!(opened.state.queues[&QueueId(QUEUE)].count, found.len() as u64);
}

#[test]
fn the_copy_of_a_header_stands_in_for_it() {
    for is_closed in [false, true] {
        for header in [[0; 64], [0xFF; 64]] {
            let directory = tempfile::tempdir().unwrap();
            let fill =
                if is_closed { |path: &_| closed_log(path, &[QUEUE], 30) } else { |path: &_| synced_log(path, 30) };
            let model = fill(directory.path());
            let newest = newest(directory.path());
            for path in [segment(directory.path(), 2), newest.clone()] {
                let mut bytes = std::fs::read(&path).unwrap();
                bytes[..64].copy_from_slice(&header);
                std::fs::write(&path, bytes).unwrap();
            }

            let opened = open(directory.path());

            let told: Vec<(&str, u64)> = opened.quarantined.iter().map(|one| (one.file.as_str(), one.at)).collect();
            assert_eq!(told, [("msgs.0000000002", 0), (newest.file_name().unwrap().to_str().unwrap(), 0)]);
            assert_eq!(readable(&opened, &model).len(), 30);
            drop(opened);
            repair(directory.path(), small_segments()).unwrap();
            let again = open(directory.path());
            assert!(again.quarantined.is_empty(), "{:?}", again.quarantined);
            assert_eq!(readable(&again, &model).len(), 30);
        }
    }
}

#[test]
fn a_newest_segment_without_any_header_is_kept_and_told_by_every_start() {
    for is_closed in [false, true] {
        for header in [[0; 64], [0xFF; 64]] {
            let directory = tempfile::tempdir().unwrap();
            let fill =
                if is_closed { |path: &_| closed_log(path, &[QUEUE], 30) } else { |path: &_| synced_log(path, 30) };
            fill(directory.path());
            let newest = newest(directory.path());
            let mut bytes = std::fs::read(&newest).unwrap();
            let copy = bytes.len() - 64;
            bytes[..64].copy_from_slice(&header);
            bytes[copy..].copy_from_slice(&header);
            std::fs::write(&newest, &bytes).unwrap();

            for _ in 0..2 {
                let opened = open(directory.path());
                let told: Vec<&str> = opened.quarantined.iter().map(|one| one.file.as_str()).collect();
                assert_eq!(told, [newest.file_name().unwrap().to_str().unwrap()]);
                assert_eq!(std::fs::read(&newest).unwrap(), bytes);
                let next = opened.state.queues[&QueueId(QUEUE)].next;
                assert!(next.0 > penstock_log::RAISE, "numbers in it may have been given");
            }
        }
    }
}

#[test]
fn a_second_file_is_set_aside_beside_the_first() {
    let directory = tempfile::tempdir().unwrap();
    synced_log(directory.path(), 30);
    let aside = directory.path().join("msgs.0000000002.aside");
    std::fs::write(&aside, b"an earlier one").unwrap();
    lose_headers(&segment(directory.path(), 2));

    repair(directory.path(), small_segments()).unwrap();

    assert_eq!(std::fs::read(aside).unwrap(), b"an earlier one");
    assert!(directory.path().join("msgs.0000000002.aside.2").exists());
}

#[test]
fn what_lived_in_a_segment_that_is_gone_is_told_apart_from_what_follows() {
    let directory = tempfile::tempdir().unwrap();
    let model = closed_log(directory.path(), &[QUEUE], 30);
    let (path, _) = place(directory.path(), 10);
    std::fs::remove_file(path).unwrap();

    let opened = open(directory.path());

    let found = readable(&opened, &model);
    let lost = (1..=30).find(|number| !found.contains(number)).unwrap();
    let next = found.iter().copied().find(|&number| number > lost).unwrap();
    assert_eq!(opened.log.next_stored(QueueId(QUEUE), Sequence(lost)).unwrap(), Some(Sequence(next)));
    assert_eq!(opened.log.next_stored(QueueId(QUEUE), Sequence(31)).unwrap(), None);
}

#[test]
fn a_log_whose_synced_end_is_missing_goes_on_above_it() {
    let directory = tempfile::tempdir().unwrap();
    let model = synced_log(directory.path(), 30);
    let mut numbers: Vec<_> = (1..40).filter(|&number| segment(directory.path(), number).exists()).collect();
    std::fs::remove_file(segment(directory.path(), numbers.pop().unwrap())).unwrap();

    let opened = open(directory.path());
    let kept = readable(&opened, &model);
    let end = opened.log.end();
    drop(opened);

    assert!(kept.len() < 30);
    let again = open(directory.path());
    assert!(again.log.end() > end);
    assert_eq!(readable(&again, &model), kept);
}

#[test]
fn a_corrupt_segment_is_set_aside_when_nothing_in_it_lives() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = synced_log(directory.path(), 30);
    flip(&segment(directory.path(), 1), FIRST_RECORD + 30);
    let mut log = open(directory.path()).log;
    model.raise();
    model.purge(&mut log, QUEUE);

    for seed in 0..60 {
        model.publish(&mut log, &[2], message(100, seed)).unwrap();
        log.write().unwrap();
        fold(&mut log).map(penstock_log::Retired::perform).transpose().unwrap();
    }

    assert!(!segment(directory.path(), 1).exists());
    assert!(directory.path().join("msgs.0000000001.aside").exists());
    assert!(!directory.path().join("msgs.0000000002.aside").exists());
}

#[test]
fn an_inspection_names_the_segment_the_position_and_the_queue() {
    let directory = tempfile::tempdir().unwrap();
    closed_log(directory.path(), &[3, QUEUE], 30);
    let (path, offset) = place(directory.path(), 7);
    for changed in [80, 30] {
        flip(&path, offset as usize + changed);

        let reports = inspect(directory.path(), true).unwrap();

        let file = path.file_name().unwrap().to_str().unwrap();
        let [report] = &reports.iter().filter(|report| report.error.is_some()).collect::<Vec<_>>()[..] else {
            panic!("{reports:?}")
        };
        assert_eq!((report.file.as_str(), report.error_at), (file, Some(u64::from(offset))));
        let [corrupt] = &report.corrupt[..] else { panic!("{report:?}") };
        assert_eq!(corrupt.position, report.first_position + u64::from(offset) - 64);
        let mut queues: Vec<u64> = corrupt.targets.iter().map(|target| target.queue.0).collect();
        queues.sort_unstable();
        assert_eq!(queues, [QUEUE, 3]);
        assert!(corrupt.targets.iter().all(|target| target.sequence == Sequence(7)));
    }
}

#[test]
fn after_a_repair_nothing_that_lives_is_corrupt() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = closed_log(directory.path(), &[QUEUE], 40);
    let mut log = open(directory.path()).log;
    model.settle(&mut log, QUEUE, Outcome::Ack, &[2]);
    log.close().unwrap();
    drop(log);
    let (path, offset) = place(directory.path(), 7);
    let (gone, _) = place(directory.path(), 39);
    flip(&path, offset as usize + 80);
    lose_headers(&gone);

    let repaired = repair(directory.path(), small_segments()).unwrap();

    assert_eq!(repaired.set_aside, [gone.file_name().unwrap().to_str().unwrap()]);
    let dropped: Vec<u64> = repaired.dropped.iter().map(|(target, _)| target.sequence.0).collect();
    assert!(dropped.contains(&7) && dropped.contains(&39) && !dropped.contains(&3));
    let opened = open(directory.path());
    assert!(opened.quarantined.is_empty());
    let found = readable(&opened, &model);
    assert_eq!(found.len() + dropped.len(), 39);
    let queue = &opened.state.queues[&QueueId(QUEUE)];
    assert_eq!(queue.count, found.len() as u64);
    assert!(dropped.iter().all(|&number| queue.settled.contains(Sequence(number))));
    assert!(repair(directory.path(), small_segments()).unwrap().is_nothing());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_byte_changed_anywhere_in_a_synced_segment_costs_no_more_than_one_record(
        number in 1..5_u64, part in 0.0..1.0_f64, bit in 0..8_u32, is_closed: bool,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let model =
            if is_closed { closed_log(directory.path(), &[QUEUE], 40) } else { synced_log(directory.path(), 40) };
        let path = segment(directory.path(), number);
        let mut bytes = std::fs::read(&path).unwrap();
        let written = written(&bytes);
        let changed = 64 + ((written - 65) as f64 * part) as usize;
        bytes[changed] ^= 1 << bit;
        std::fs::write(&path, bytes).unwrap();

        let opened = open_with(directory.path(), small_segments()).unwrap();

        let found = readable(&opened, &model);
        prop_assert!(found.len() >= 39, "{} of 40 messages are served", found.len());
        for sequence in (1..=40).filter(|sequence| !found.contains(sequence)) {
            let is_settled = opened.state.queues[&QueueId(QUEUE)].settled.contains(Sequence(sequence));
            prop_assert!(is_settled || !matches!(read(&opened.log, sequence), Some(Ok(_))));
        }
    }
}

#[test]
fn a_corrupt_segment_is_told_by_every_start_and_kept_when_nothing_in_it_lives() {
    let directory = tempfile::tempdir().unwrap();
    synced_log(directory.path(), 30);
    flip(&segment(directory.path(), 1), FIRST_RECORD + 30);
    let mut opened = open(directory.path());
    assert_eq!(opened.quarantined.len(), 1);
    opened.log.close().unwrap();
    drop(opened);

    // Its checkpoint covers the segment: no record of it is read again.
    let mut opened = open(directory.path());

    let [told] = &opened.quarantined[..] else { panic!("{:?}", opened.quarantined) };
    assert_eq!((told.file.as_str(), told.at, told.why), ("msgs.0000000001", FIRST_RECORD as u64, Corruption::Marked));
    opened.log.append_delete(QueueId(QUEUE)).unwrap();
    opened.log.close().unwrap();
    drop(opened);
    let mut opened = open(directory.path());
    opened.log.close().unwrap();
    assert!(!segment(directory.path(), 1).exists());
    assert!(directory.path().join("msgs.0000000001.aside").exists());
    assert!(!directory.path().join("msgs.0000000001.corrupt").exists());
    drop(opened);
    assert!(open(directory.path()).quarantined.is_empty());
}

#[test]
fn what_a_repair_fixed_is_not_reported_again() {
    let directory = tempfile::tempdir().unwrap();
    synced_log(directory.path(), 30);
    flip(&segment(directory.path(), 1), FIRST_RECORD + 30);

    repair(directory.path(), small_segments()).unwrap();

    assert!(open(directory.path()).quarantined.is_empty());
}

#[test]
fn a_log_whose_segments_all_vanished_is_refused_until_they_are_back() {
    let directory = tempfile::tempdir().unwrap();
    let model = closed_log(directory.path(), &[QUEUE], 5);
    let away = tempfile::tempdir().unwrap();
    let segments: Vec<PathBuf> = (1..60).map(|number| segment(directory.path(), number)).collect();
    let there: Vec<&PathBuf> = segments.iter().filter(|path| path.exists()).collect();
    let moved = |path: &Path| away.path().join(path.file_name().unwrap());
    there.iter().for_each(|path| std::fs::rename(path, moved(path)).unwrap());

    for _ in 0..2 {
        let refused = open_with(directory.path(), small_segments()).unwrap_err();
        assert!(matches!(refused, LogError::Corrupt { why: Corruption::NoSegment, .. }), "{refused}");
    }

    there.iter().for_each(|path| std::fs::rename(moved(path), path).unwrap());
    let opened = open(directory.path());
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}
