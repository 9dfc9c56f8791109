//! Messages that are acked at random places: they cost little in a checkpoint, and a start has them as they were.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;

use penstock_log::{FoldState, Format, LogOptions, Outcome, Payload, Target};
use penstock_queue::{QueueId, Sequence, SequenceRange};
use support::open_with;

const QUEUE: QueueId = QueueId(1);
const COUNT: u64 = 100_000;

fn checkpoint_bytes(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let checkpoints = files.filter(|file| file.file_name().to_string_lossy().starts_with("checkpoint."));
    checkpoints.map(|file| file.metadata().unwrap().len()).max().unwrap()
}

fn check(state: &FoldState) {
    let queue = &state.queues[&QUEUE];
    assert_eq!(queue.count, COUNT / 2);
    assert!((1..=COUNT).all(|number| queue.settled.contains(Sequence(number)) == number.is_multiple_of(2)));
    assert!(queue.settled.heap_bytes() < 1 << 16, "{} bytes", queue.settled.heap_bytes());
}

#[test]
fn scattered_acks_come_back_from_the_records_and_from_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let options = || LogOptions {
        format: Format::Two,
        segment_bytes_min: 1 << 20,
        segment_bytes_max: 1 << 20,
        ..LogOptions::default()
    };
    let mut log = open_with(directory.path(), options()).unwrap().log;
    let payload = Payload::new(b"", b"", b"", b"x").unwrap();
    for number in 1..=COUNT {
        log.append_message(&payload, 5, &[Target { queue: QUEUE, sequence: Sequence(number) }]).unwrap();
    }
    let acked: Vec<_> = (1..=COUNT / 2).map(|place| Sequence(2 * place)).collect();
    for part in acked.chunks(1000) {
        let ranges: Vec<_> = part.iter().map(|&number| SequenceRange { first: number, last: number }).collect();
        log.append_settle(QUEUE, Outcome::Ack, ranges.len() as u64, ranges.len() as u64, &ranges).unwrap();
    }
    log.write().unwrap();
    // As after a kill.
    drop(log);

    let mut opened = open_with(directory.path(), options()).unwrap();
    check(&opened.state);
    opened.log.close().unwrap();
    drop(opened);

    let opened = open_with(directory.path(), options()).unwrap();
    assert_eq!(opened.recovery.records, 0, "all of it is from the checkpoint");
    check(&opened.state);
    let bytes = checkpoint_bytes(directory.path());
    assert!(bytes < 1 << 16, "the checkpoint has {bytes} bytes");
}
