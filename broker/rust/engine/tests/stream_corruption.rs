//! Corrupt bytes of a stopped shard: the messages that the readers of its stream get, and the report of the rest.
#![allow(clippy::unwrap_used)]

mod house;

use std::path::Path;

use house::{House, STREAM, open, open_with, reader};
use penstock_engine::{
    Filled, LogError, Progress, QueueLevels, QueueSettings, ReadFrom, StreamReader, StreamSettings, Target,
};

const COUNT: u64 = 1200;
const BODY_BYTES: u64 = 510;

/// A stopped shard with a stream over several segments.
fn filled(directory: &Path) {
    let house = open(directory);
    for number in 1..=COUNT {
        house::publish(&house, &[&format!("body {number:04} {}", "x".repeat(500))]);
    }
    house.close();
}

/// As a server does: finds, sends readable messages, drops the others and goes on after them.
fn drain(reader: &mut StreamReader) -> Vec<u64> {
    let mut got = Vec::new();
    loop {
        let mut filled = Vec::new();
        if reader.fill(100, &mut filled).unwrap() != Progress::Found {
            return got;
        }
        if let Some((sequence, error)) = filled.iter().find_map(|filled| send(filled, &mut got)) {
            reader.drop_corrupt(sequence, &error).unwrap();
        }
    }
}

fn send(filled: &Filled, got: &mut Vec<u64>) -> Option<(penstock_engine::Sequence, LogError)> {
    for one in &filled.picked {
        let sequence = one.taken.sequence;
        match filled.segment.message_for(one.offset, Target { queue: STREAM, sequence }) {
            Ok(message) => {
                assert!(message.body.starts_with(format!("body {:04}", sequence.0).as_bytes()));
                got.push(sequence.0);
            }
            Err(error) => return Some((sequence, error)),
        }
    }
    None
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_bad_record_is_dropped_for_every_reader_told_once_and_stays_dropped() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    change(&directory.path().join("msgs.0000000002"), |bytes| bytes[3000] ^= 1);
    let dropped = {
        let house = open(directory.path());
        let (mut first, mut second) = (reader(&house, ReadFrom::First), reader(&house, ReadFrom::First));

        let (got, again) = (drain(&mut first), drain(&mut second));

        assert_eq!(got.len() as u64, COUNT - 1);
        assert!(got.is_sorted());
        assert_eq!(got, again);
        let corruptions = house.shard.corruptions();
        assert_eq!(
            (corruptions.len(), corruptions[0].records, corruptions[0].file.as_str()),
            (1, 1, "msgs.0000000002")
        );
        drop((first, second));
        house.close();
        (1..=COUNT).find(|offset| !got.contains(offset)).unwrap()
    };

    let House { engine: _engine, shard } = open(directory.path());

    let standing = shard.stream_states(&[STREAM]).unwrap()[0];
    assert_eq!((standing.first, standing.next, standing.count), (1, COUNT + 1, COUNT - 1));
    let mut behind = shard.read(STREAM, house::settings(ReadFrom::Offset(dropped), None)).unwrap();
    assert_eq!(drain(&mut behind)[0], dropped + 1);
}

#[test]
fn what_lay_in_a_segment_that_is_gone_is_dropped_and_what_follows_is_read() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    std::fs::remove_file(directory.path().join("msgs.0000000002")).unwrap();
    let house = open(directory.path());

    let got = drain(&mut reader(&house, ReadFrom::First));

    let lost = COUNT - got.len() as u64;
    assert!(lost > 50, "{lost} are lost");
    assert_eq!(got.last(), Some(&COUNT));
    let standing = house.shard.stream_states(&[STREAM]).unwrap()[0];
    assert_eq!(standing.count, got.len() as u64);
    assert_eq!(house.shard.offset_at(STREAM, 1).unwrap(), 1);
}

#[test]
fn a_directory_with_wrong_offsets_loses_nothing_and_nothing_comes_twice() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    change(&directory.path().join("msgs.0000000002.idx"), |bytes| {
        let place = bytes.len() - 400;
        bytes[place..place + 4].copy_from_slice(&64_u32.to_le_bytes());
    });
    let house = open(directory.path());

    let got = drain(&mut reader(&house, ReadFrom::First));

    assert_eq!(got, (1..=COUNT).collect::<Vec<u64>>());
    assert_eq!(house.shard.corruptions(), []);
}

#[test]
fn the_bytes_of_a_dropped_message_leave_with_its_segment() {
    // Within the first record of the segment, and within a later one.
    for place in [200, 3000] {
        let directory = tempfile::tempdir().unwrap();
        filled(directory.path());
        change(&directory.path().join("msgs.0000000002"), |bytes| bytes[place] ^= 1);
        let house = open_with(directory.path(), StreamSettings { max_age_ms: 0, max_bytes: 200_000 });
        let got = drain(&mut reader(&house, ReadFrom::First));
        let dropped = (1..=COUNT).find(|offset| !got.contains(offset)).unwrap();

        house.shard.retain(2).unwrap();

        let standing = house.shard.stream_states(&[STREAM]).unwrap()[0];
        assert!(standing.first > dropped, "{} is not behind {dropped}", standing.first);
        let left = got.iter().filter(|offset| **offset >= standing.first).count() as u64;
        assert_eq!((standing.count, standing.bytes), (left, left * BODY_BYTES));
    }
}

/// A time in the far future: the fold thread uses the real clock, and finds nothing too old.
const LATER: u64 = 1 << 42;

/// An unreadable last message of a segment counted as one of time 0, and all of its segment expired.
#[test]
fn what_can_be_read_of_a_segment_stays_for_its_time_when_the_last_message_cannot() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    for number in 1..=COUNT {
        house::publish_at(&house, LATER, &[&format!("body {number:04} {}", "x".repeat(500))]);
    }
    house.close();
    change(&directory.path().join("msgs.0000000001"), |bytes| {
        let last = bytes.windows(5).rposition(|found| found == b"body ").unwrap();
        bytes[last + 20] ^= 1;
    });
    let house = open_with(directory.path(), StreamSettings { max_age_ms: 1000, max_bytes: 0 });

    assert_eq!(house.shard.retain(LATER + 999).unwrap(), 0);
    assert_eq!(drain(&mut reader(&house, ReadFrom::First)).len() as u64, COUNT - 1);

    let expired = house.shard.retain(LATER + 1000).unwrap();
    assert!(expired > 50, "{expired} went when their time was over");
    house.close();
}

/// Unreadable sectors end a process that touches a map of them.
#[test]
fn retention_does_not_touch_sectors_that_cannot_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let body = "x".repeat(1000);
    let house = open(directory.path());
    house::publish(&house, &[body.as_str(); 20]);
    house.shard.purge_queue(STREAM).unwrap();
    (0..10).for_each(|_| house::publish(&house, &[body.as_str(); 60]));
    house.close();
    let house = open(directory.path());
    let mut filled = Vec::new();
    assert_eq!(reader(&house, ReadFrom::First).fill(1, &mut filled).unwrap(), Progress::Found);
    // An earlier map then behaves like a bad sector: it cannot be read.
    let mapped = std::fs::File::options().write(true).open(filled[0].segment.path()).unwrap();
    mapped.set_len(4096).unwrap();
    let stream = Some(StreamSettings { max_age_ms: 0, max_bytes: 100_000 });
    let (levels, name) = (QueueLevels::default(), "s");
    house.shard.put_queues([QueueSettings { id: STREAM, name, auto_delete: false, levels, stream }]).unwrap();

    house.shard.retain(2).unwrap();

    let standing = house.shard.stream_states(&[STREAM]).unwrap()[0];
    assert!(standing.first > 300, "{standing:?}");
    assert_eq!(standing.next, 621);
}

/// As with a disk that hangs: a query for the extent of a stream reads nothing of it.
#[test]
fn where_a_stream_begins_and_ends_is_told_without_reading() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    let house = open(directory.path());
    let read = house.shard.stream_states(&[STREAM]).unwrap()[0];
    assert_eq!((read.first_timestamp_ms, read.last_timestamp_ms), (1, 1));

    let told = house.shard.stream_extents(&[STREAM]).unwrap()[0];

    assert_eq!((told.first, told.next, told.count, told.bytes), (read.first, read.next, read.count, read.bytes));
    assert_eq!((told.first_timestamp_ms, told.last_timestamp_ms), (0, 0));
}

/// Only so many of the last messages of a segment are tried. When none of those could be read, the segment counted as a
/// new one each time, and nothing of the stream ever expired.
#[test]
fn a_segment_with_a_large_unreadable_end_goes_when_what_follows_it_is_too_old() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    for _ in 0..60 {
        house::publish_at(&house, LATER, &["x"; 100]);
    }
    house.close();
    change(&directory.path().join("msgs.0000000002"), |bytes| bytes[8000..].iter_mut().for_each(|byte| *byte ^= 1));
    let house = open_with(directory.path(), StreamSettings { max_age_ms: 1000, max_bytes: 0 });

    assert_eq!(house.shard.retain(LATER + 999).unwrap(), 0);

    let expired = house.shard.retain(LATER + 1999).unwrap();
    assert!(expired > 3000, "{expired} went when their time was over");
    house.close();
}
