//! A message for more targets than one record names: several records, of which the last alone names the producer.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::num::NonZeroU64;

use penstock_log::{Format, Log, LogError, LogOptions, Payload, Position, Producer, Target};
use penstock_queue::{QueueId, Sequence};
use support::{open, open_with, small_segments};

const PRODUCER: Producer = Producer { id: NonZeroU64::new(3).unwrap(), sequence: 7 };

fn targets(count: u32) -> Vec<Target> {
    (1..=count).map(|queue| Target { queue: QueueId(queue), sequence: Sequence(1) }).collect()
}

/// Appends a message for that many queues; returns where it ends.
fn append(log: &mut Log, count: usize) -> Result<Position, LogError> {
    let payload = Payload::new(b"", b"key", b"", b"a body").unwrap().with_producer(PRODUCER);
    log.append_message(&payload, 1, &targets(count as u32))
}

#[test]
fn a_message_for_many_targets_counts_for_its_producer_when_all_its_records_are_there() {
    for (missing, format) in [(0, Format::One), (1, Format::One), (0, Format::Two), (1, Format::Two)] {
        let directory = tempfile::tempdir().unwrap();
        let mut log = open_with(directory.path(), LogOptions { format, ..small_segments() }).unwrap().log;
        let whole = 2 * format.targets_max();
        let end = append(&mut log, whole + 5).unwrap();
        assert_eq!(log.write().unwrap(), end);
        drop(log);
        // All records are in one segment.
        let path = directory.path().join("msgs.0000000002");
        let written = std::fs::read(&path).unwrap();
        let last_byte = written[..written.len() - 64].iter().rposition(|&byte| byte != 0).unwrap();
        let mut cut = written.clone();
        cut[last_byte + 1 - missing..written.len() - 64].fill(0);
        std::fs::write(&path, cut).unwrap();

        let state = open(directory.path()).state;

        let (queues, highest) = if missing == 0 { (whole + 5, Some(&7)) } else { (whole, None) };
        assert_eq!(state.queues.len(), queues);
        assert_eq!(state.producers.get(&3), highest);
    }
}

#[test]
fn a_message_for_many_targets_is_refused_as_a_whole_where_there_is_no_room() {
    let directory = tempfile::tempdir().unwrap();
    let disk = std::sync::Arc::new(penstock_log::FaultyDisk::default());
    let options = LogOptions { disk: std::sync::Arc::clone(&disk) as _, ..small_segments() };
    let mut log = open_with(directory.path(), options).unwrap().log;
    let before = log.end();
    disk.free_bytes.store(1, std::sync::atomic::Ordering::SeqCst);

    let refused = append(&mut log, Format::NEWEST.targets_max() + 1);

    assert!(matches!(refused, Err(LogError::Full { .. })), "{refused:?}");
    assert_eq!(log.end(), before);
}
