//! A message for many targets: one record, or several where it has more targets than one names, of which the last alone
//! names the producer.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::num::NonZeroU64;
use std::path::Path;

use penstock_log::{
    FoldState, Format, Log, LogError, LogOptions, Opened, Payload, Position, Producer, TARGETS_MAX, Target,
};
use penstock_queue::{QueueId, Sequence};
use support::open_with;

const PRODUCER: Producer = Producer { id: NonZeroU64::new(3).unwrap(), sequence: 7 };

fn targets(count: u64) -> Vec<Target> {
    (1..=count).map(|queue| Target { queue: QueueId(queue), sequence: Sequence(1) }).collect()
}

/// Appends a message for that many queues; returns where it ends.
fn append(log: &mut Log, count: usize) -> Result<Position, LogError> {
    let payload = Payload::new(b"", b"key", b"", b"a body").unwrap().with_producer(PRODUCER);
    log.append_message(&payload, 1, &targets(count as u64))
}

/// A log of a format.
fn open_as(directory: &Path, format: Format) -> Opened {
    open_with(directory, LogOptions { format, ..support::small_segments() }).unwrap()
}

/// The state of a log with such a message, the last `missing` bytes of which were not written.
fn torn(format: Format, count: usize, missing: usize) -> FoldState {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open_as(directory.path(), format).log;
    let end = append(&mut log, count).unwrap();
    assert_eq!(log.write().unwrap(), end);
    drop(log);
    // All records are in one segment.
    let path = directory.path().join("msgs.0000000002");
    let mut bytes = std::fs::read(&path).unwrap();
    let records_end = bytes.len() - 64;
    let last_byte = bytes[..records_end].iter().rposition(|&byte| byte != 0).unwrap();
    bytes[last_byte + 1 - missing..records_end].fill(0);
    std::fs::write(&path, bytes).unwrap();
    open_as(directory.path(), format).state
}

#[test]
fn a_message_for_many_targets_counts_for_its_producer_when_all_its_records_are_there() {
    for format in [Format::One, Format::Two] {
        let targets_max = format.targets_max();
        for (missing, queues, highest) in [(0, 2 * targets_max + 5, Some(&7)), (1, 2 * targets_max, None)] {
            let state = torn(format, 2 * targets_max + 5, missing);
            assert_eq!((state.queues.len(), state.producers.get(&3)), (queues, highest), "{format:?}");
        }
    }
}

#[test]
fn a_message_for_as_many_targets_as_a_record_of_format_2_names_is_whole_or_not_there() {
    let targets_max = Format::Two.targets_max();
    let whole = torn(Format::Two, targets_max, 0);
    assert_eq!((whole.queues.len(), whole.producers.get(&3)), (targets_max, Some(&7)));
    for missing in [1, 10, 5_000, 12 * targets_max] {
        let state = torn(Format::Two, targets_max, missing);
        assert_eq!((state.queues.len(), state.producers.get(&3)), (0, None), "{missing} bytes are missing");
    }
}

#[test]
fn a_message_for_many_targets_is_refused_as_a_whole_where_there_is_no_room() {
    let directory = tempfile::tempdir().unwrap();
    let disk = std::sync::Arc::new(penstock_log::FaultyDisk::default());
    let options = LogOptions { disk: std::sync::Arc::clone(&disk) as _, ..support::small_segments() };
    let mut log = open_with(directory.path(), options).unwrap().log;
    let before = log.end();
    disk.free_bytes.store(1, std::sync::atomic::Ordering::SeqCst);

    let refused = append(&mut log, TARGETS_MAX + 1);

    assert!(matches!(refused, Err(LogError::Full { .. })), "{refused:?}");
    assert_eq!(log.end(), before);
}
