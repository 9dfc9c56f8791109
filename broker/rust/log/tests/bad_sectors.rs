//! Sectors that the disk does not give back: what they cost at a start, and what is said of it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;
use std::sync::Arc;

use penstock_log::{Damage, Log, LogOptions, Opened};
use penstock_queue::{QueueId, Sequence};
use support::{BadSectors, Model, message, sync};

const COUNT: u64 = 40;

/// A log of one segment with messages of a page each, of which the first half is synced.
fn half_synced(directory: &Path) -> (Model, u64) {
    let options = LogOptions { segment_bytes_min: 1 << 18, ..LogOptions::default() };
    let mut log = Log::open(directory, options).unwrap().log;
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
    Log::open(directory, LogOptions { disk, raise, ..LogOptions::default() }).unwrap()
}

/// The numbers whose messages can be read; each of them is the one that was stored.
fn readable(opened: &Opened, model: &Model) -> Vec<u64> {
    let is_there = |number: &u64| {
        let located = opened.log.locate(QueueId(1), Sequence(*number), 1).unwrap();
        let Some(located) = located else { return false };
        let found = located.segment.message(located.offsets[0]).unwrap();
        let is_whole = found.verify().is_ok();
        assert!(!is_whole || found.body == model.queues[&1].messages[number].body);
        is_whole
    };
    (1..=COUNT).filter(is_there).collect()
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
        for damaged in &opened.quarantined {
            assert_eq!((damaged.file.as_str(), damaged.why), ("msgs.0000000001", Damage::Unreadable));
            assert!((20_480 - 4_100..24_576).contains(&damaged.at));
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
        assert_eq!(opened.quarantined[0].why, Damage::Unreadable);
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
        assert_eq!(opened.quarantined[0].why, Damage::Unreadable);
        assert!(directory.path().join("msgs.0000000001.aside").exists(), "the file as the disk gives it back is kept");
    }
}
