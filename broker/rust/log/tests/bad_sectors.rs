//! Unreadable sectors: their cost for a start or a fold, and the report of them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use penstock_log::{Corruption, Log, LogOptions, Opened, Target, repair};
use penstock_queue::{QueueId, Sequence};
use support::{BadSectors, Model, ModelQueue, message, open_with, sync};

const COUNT: u64 = 40;

/// A log of one segment with messages of a page each, of which the first half is synced.
fn half_synced(directory: &Path) -> (Model, u64) {
    let options = LogOptions { segment_bytes_min: 1 << 18, ..LogOptions::default() };
    let mut log = open_with(directory, options).unwrap().log;
    let mut model = Model::default();
    let mut synced = 0;
    for seed in 0..COUNT {
        if seed == COUNT / 2 {
            log.write().unwrap();
            sync(&mut log);
            synced = log.synced().0;
        }
        model.publish(&mut log, &[1], message(4000, seed as u8)).unwrap();
    }
    log.write().unwrap();
    (model, synced)
}

/// Opens it with one bad sector around an offset.
fn open(directory: &Path, from: u64, raise: bool) -> Opened {
    let file = directory.join("msgs.0000000001");
    let disk = Arc::new(BadSectors { file, from, bytes: 512 });
    open_with(directory, LogOptions { disk, raise, ..LogOptions::default() }).unwrap()
}

fn readable(opened: &Opened, model: &Model) -> Vec<u64> {
    readable_of(opened, model, 1..=COUNT)
}

/// The sequences whose messages can be read, each of them as it was stored.
fn readable_of(opened: &Opened, model: &Model, numbers: RangeInclusive<u64>) -> Vec<u64> {
    let is_there = |number: &u64| {
        let located = opened.log.locate(QueueId(1), Sequence(*number), 1).unwrap();
        let Some(located) = located else { return false };
        let found = located.segment.message(located.offsets[0]).unwrap();
        let is_whole = found.verify().is_ok();
        assert!(!is_whole || found.body == model.queues[&1].messages[number].body);
        is_whole
    };
    numbers.filter(is_there).collect()
}

#[test]
fn a_bad_sector_below_what_was_synced_costs_the_records_in_it() {
    for raise in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (model, _) = half_synced(directory.path());

        let opened = open(directory.path(), 20_480, raise);

        let found = readable(&opened, &model);
        assert!(found.len() as u64 >= COUNT - 2, "{found:?}");
        assert_eq!(opened.quarantined.len() as u64, 2, "{:?}", opened.quarantined);
        for corrupt in &opened.quarantined {
            assert_eq!((corrupt.file.as_str(), corrupt.why), ("msgs.0000000001", Corruption::Unreadable));
            assert!((20_480 - 4_100..24_576).contains(&corrupt.at));
        }
    }
}

#[test]
fn a_bad_sector_at_the_end_of_what_was_synced_does_not_cost_what_is_behind_it() {
    for raise in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (model, synced) = half_synced(directory.path());

        let opened = open(directory.path(), synced + 64 - 600, raise);

        let found = readable(&opened, &model);
        assert!(found.len() as u64 >= COUNT - 3, "{found:?}");
        assert_eq!(found.last(), Some(&COUNT));
        assert_eq!(opened.quarantined[0].why, Corruption::Unreadable);
    }
}

#[test]
fn a_bad_sector_above_what_was_synced_stops_no_start() {
    for raise in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (model, synced) = half_synced(directory.path());

        let opened = open(directory.path(), synced + 40_000, raise);

        let found = readable(&opened, &model);
        assert!(found.len() as u64 >= COUNT - 2, "{found:?}");
        assert_eq!(opened.quarantined[0].why, Corruption::Unreadable);
        assert!(directory.path().join("msgs.0000000001.aside").exists(), "the file as the disk gives it back is kept");
    }
}

/// A log of several segments with messages of about a page each, on a disk with a bad sector in the first segment.
fn on_bad_disk(directory: &Path, from: u64, count: u64) -> (Log, Model) {
    let disk = Arc::new(BadSectors { file: directory.join("msgs.0000000001"), from, bytes: 512 });
    let options = LogOptions { segment_bytes_min: 1 << 17, segment_bytes_max: 1 << 18, disk, ..LogOptions::default() };
    let mut log = open_with(directory, options).unwrap().log;
    let mut model = Model::default();
    for seed in 0..count {
        model.publish(&mut log, &[1], message(4000, seed as u8)).unwrap();
    }
    log.write().unwrap();
    sync(&mut log);
    (log, model)
}

#[test]
fn a_bad_sector_costs_a_fold_the_records_in_it() {
    for from in [20_480, 65] {
        let directory = tempfile::tempdir().unwrap();
        let (mut log, model) = on_bad_disk(directory.path(), from, 150);

        let folded = log.begin_fold().unwrap().perform().unwrap();

        // The page may have the ends and the beginnings of a few records.
        assert!((1..=3).contains(&folded.corrupt.len()), "{:?}", folded.corrupt);
        for corrupt in &folded.corrupt {
            assert_eq!((corrupt.file.as_str(), corrupt.why), ("msgs.0000000001", Corruption::Unreadable));
        }
        assert!(folded.corrupt.iter().any(|corrupt| corrupt.queues == [QueueId(1)]));
        log.finish_fold(folded).perform().unwrap();
        log.close().unwrap();
        drop(log);
        let opened = open_with(directory.path(), LogOptions::default()).unwrap();
        let queue = &opened.state.queues[&QueueId(1)];
        assert_eq!((queue.next, queue.count), (Sequence(151), 150), "every message keeps its number");
        assert_eq!(readable_of(&opened, &model, 1..=150).len(), 150, "what is on the disk was not touched");
        assert_eq!(opened.quarantined[0].file, "msgs.0000000001", "a later start tells of it");
    }
}

/// It went on, and its readable part replaced the only file that might still be read later.
#[test]
fn a_segment_with_a_bad_sector_that_cannot_be_kept_is_not_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let (_, synced) = half_synced(directory.path());
    let path = directory.path().join("msgs.0000000001");
    let whole = std::fs::read(&path).unwrap();
    // A name that is taken but does not exist for `exists`.
    std::os::unix::fs::symlink("nowhere", directory.path().join("msgs.0000000001.aside")).unwrap();
    let disk = Arc::new(BadSectors { file: path.clone(), from: synced + 40_000, bytes: 512 });

    let refused = open_with(directory.path(), LogOptions { disk, ..LogOptions::default() }).map(|_| ()).unwrap_err();

    assert!(refused.to_string().starts_with("cannot keep the file as "), "{refused}");
    assert!(std::fs::read(&path).unwrap() == whole, "the file was replaced");
}

/// Messages that were stored while the newest one could not be read had sequences that the next start, which read it,
/// counted as skipped: they were lost without a report.
#[test]
fn what_was_stored_while_a_sector_could_not_be_read_is_there_when_it_can() {
    let directory = tempfile::tempdir().unwrap();
    let (mut model, _) = half_synced(directory.path());
    let mut log = open_with(directory.path(), LogOptions::default()).unwrap().log;
    let newest = log.locate(QueueId(1), Sequence(COUNT), 1).unwrap().unwrap().offsets[0];
    sync(&mut log);
    drop(log);
    let mut opened = open(directory.path(), u64::from(newest) + 100, false);
    assert!(!opened.quarantined.is_empty());
    let mut since = Model::default();
    let next = opened.state.queues[&QueueId(1)].next.0;
    since.queues.insert(1, Arc::new(ModelQueue { next, ..ModelQueue::default() }));
    (0..3).for_each(|seed| since.publish(&mut opened.log, &[1], message(100, seed)).unwrap());
    opened.log.write().unwrap();
    sync(&mut opened.log);
    drop(opened);
    let queue = Arc::make_mut(model.queues.get_mut(&1).unwrap());
    queue.messages.extend(since.queues[&1].messages.clone());

    let opened = open_with(directory.path(), LogOptions::default()).unwrap();

    assert_eq!(opened.state.queues[&QueueId(1)].count, COUNT + 3);
    model.check_messages(&opened.log);
    let live = |&number: &u64| !opened.state.queues[&QueueId(1)].settled.contains(Sequence(number));
    assert_eq!(model.queues[&1].messages.keys().filter(|number| live(number)).count() as u64, COUNT + 3);
}

/// It gave up at the first segment with such a sector, so that nothing was repaired.
#[test]
fn a_repair_drops_what_lies_in_a_bad_sector() {
    let directory = tempfile::tempdir().unwrap();
    let (model, _) = half_synced(directory.path());
    let mut log = open_with(directory.path(), LogOptions::default()).unwrap().log;
    let at = u64::from(log.locate(QueueId(1), Sequence(7), 1).unwrap().unwrap().offsets[0]) + 1_000;
    log.close().unwrap();
    drop(log);
    let file = directory.path().join("msgs.0000000001");
    let disk = Arc::new(BadSectors { file, from: at, bytes: 512 });

    let repaired = repair(directory.path(), LogOptions { disk, ..LogOptions::default() }).unwrap();

    // The page may have the end of one and the beginning of another.
    assert!((1..=3).contains(&repaired.dropped.len()), "{:?}", repaired.dropped);
    let is_unreadable = |(target, why): &(Target, String)| {
        target.queue == QueueId(1) && (6..=8).contains(&target.sequence.0) && why == "its sectors cannot be read"
    };
    assert!(repaired.dropped.iter().all(is_unreadable), "{:?}", repaired.dropped);
    let opened = open_with(directory.path(), LogOptions::default()).unwrap();
    assert_eq!(opened.state.queues[&QueueId(1)].count, COUNT - repaired.dropped.len() as u64);
    assert_eq!(model.queues[&1].messages.len() as u64, COUNT);
}
