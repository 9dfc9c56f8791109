//! How much of a log's files is in this process's memory: bounded by a few segments, whatever the log's size.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;

use penstock_log::{Log, LogOptions};
use penstock_queue::{QueueId, Sequence};
use support::{Model, fold, message, open_with};

const MIB: usize = 1 << 20;
const SEGMENT: usize = 4 * MIB;
const BODY: usize = 10_000;
const COUNT: usize = 3000;

/// The bytes of a directory's files that are mapped and in memory.
fn resident(directory: &Path) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let directory = directory.to_str().unwrap();
    let (mut is_own, mut kib) = (false, 0);
    for line in smaps.lines() {
        if let Some(resident) = line.strip_prefix("Rss:") {
            kib += if is_own { resident.trim().trim_end_matches(" kB").parse::<usize>().unwrap() } else { 0 };
        } else if line.split_once('-').is_some_and(|(begin, _)| usize::from_str_radix(begin, 16).is_ok()) {
            is_own = line.contains(directory);
        }
    }
    kib * 1024
}

fn filled(directory: &Path) -> (Log, Model) {
    let bytes = SEGMENT as u64;
    let options = LogOptions { segment_bytes_min: bytes, segment_bytes_max: bytes, ..LogOptions::default() };
    let mut log = open_with(directory, options).unwrap().log;
    let mut model = Model::default();
    for number in 0..COUNT {
        model.publish(&mut log, &[1], message(BODY, (number % 251) as u8)).unwrap();
        log.write().unwrap();
    }
    (log, model)
}

#[test]
fn a_fold_leaves_nothing_of_what_it_read_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, model) = filled(directory.path());

    fold(&mut log).unwrap().perform().unwrap();

    assert_eq!((log.stats().mapped_bytes, resident(directory.path())), (0, 0));
    model.check_messages(&log);
}

#[test]
fn who_reads_a_long_log_keeps_three_segments_of_it_in_memory_at_most() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = filled(directory.path());
    fold(&mut log).unwrap().perform().unwrap();

    let (mut next, mut most) = (1, 0);
    while let Some(located) = log.locate(QueueId(1), Sequence(next), 100).unwrap() {
        let (first, last) = (*located.offsets.first().unwrap(), *located.offsets.last().unwrap());
        located.segment.populate(first, last).unwrap();
        drop(log.take_passed());
        for &offset in &located.offsets {
            let expected = message(BODY, ((next - 1) % 251) as u8);
            assert_eq!(located.segment.message(offset).unwrap().body, expected.body);
            next += 1;
        }
        most = most.max(resident(directory.path()));
    }

    assert_eq!(next as usize, COUNT + 1);
    assert!((SEGMENT..=3 * SEGMENT).contains(&most), "{most} bytes");
}
