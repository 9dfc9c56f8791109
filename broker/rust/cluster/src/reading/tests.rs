//! Readers of a replica that follows: what they find while its log grows, is cut, and is replaced.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use penstock_engine::{EngineError, Progress, ReadFrom, ReplicaRead, StreamReplica};
use penstock_log::{Begun, Corruption, Log, LogError, Position, RAISE};
use penstock_queue::Sequence;
use penstock_replica::{Leader, Role, ShardRecord, Version};
use penstock_replication::{CopySource, Input};

use crate::told_follower::{EPOCH, Follower, LEADER, LIMIT, QUEUE, append, log_of};

/// A follower that is in sync, as the coordinator says.
fn in_sync(follower: Follower) -> Follower {
    let record = ShardRecord {
        epoch: EPOCH,
        leader: Leader { broker: LEADER, replica: 102, boot: 0 },
        in_sync: [101, 102].into(),
        replicas: BTreeMap::from([(101, 1), (102, LEADER)]),
        min_in_sync: 2,
    };
    follower.shard.step(Input::Read { read: None, record: Some((record, Version(1))) });
    follower
}

fn reader(follower: &Follower, from: ReadFrom, end: Option<u64>) -> Box<dyn ReplicaRead> {
    follower.shard.look_after_readers();
    Arc::clone(&follower.shard).read(QUEUE, from, end).unwrap()
}

/// All that a reader finds now, by sequence and body.
fn found(reader: &mut Box<dyn ReplicaRead>) -> (Vec<(u64, String)>, Progress) {
    let mut messages = Vec::new();
    loop {
        let mut filled = Vec::new();
        let progress = reader.fill(7, &mut filled).unwrap();
        for one in filled {
            for picked in one.picked {
                let body = one.segment.message(picked.offset).unwrap().body.to_vec();
                messages.push((picked.taken.sequence.0, String::from_utf8(body).unwrap()));
            }
        }
        if progress != Progress::Found {
            return (messages, progress);
        }
    }
}

fn bodies(range: std::ops::RangeInclusive<u64>) -> Vec<(u64, String)> {
    range.map(|number| (number, number.to_string())).collect()
}

/// Appends messages with their numbers as bodies; returns the position after each.
fn append_all(log: &mut Log, range: std::ops::RangeInclusive<u64>) -> Vec<Position> {
    range.map(|number| append(log, number, number.to_string().as_bytes())).collect()
}

fn has_rung(reader: &dyn ReplicaRead) -> bool {
    pin!(reader.signal().heard()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn a_reader_finds_what_is_committed_and_is_woken_by_more() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut log = log_of(from.path());
    let ends = append_all(&mut log, 1..=20);
    let follower = in_sync(Follower::open(to.path()));
    let session = follower.follow_from(EPOCH, Position(0));
    follower.take_after(EPOCH, &mut log, Position(0), ends[9]);
    let mut reading = reader(&follower, ReadFrom::First, None);
    assert_eq!((reading.range().first, reading.range().next), (1, 11));

    assert_eq!(found(&mut reading), (bodies(1..=10), Progress::Waiting));
    assert!(!has_rung(&*reading));
    follower.hear_committed(EPOCH, session, ends[14]);
    assert!(has_rung(&*reading));

    assert_eq!(found(&mut reading), (bodies(11..=15), Progress::Waiting));
    let starts = [ReadFrom::Next, ReadFrom::Last, ReadFrom::LastCount(3), ReadFrom::Offset(4), ReadFrom::Timestamp(8)];
    let begins = starts.map(|start| reader(&follower, start, None).range().begin);
    assert_eq!(begins, [16, 15, 13, 4, 8]);
    let mut ending = reader(&follower, ReadFrom::Offset(12), Some(14));
    assert_eq!(found(&mut ending), (bodies(12..=13), Progress::Ended));
    let mut ending = reader(&follower, ReadFrom::Offset(14), Some(17));
    assert_eq!(found(&mut ending), (bodies(14..=15), Progress::Waiting));
    follower.hear_committed(EPOCH, session, ends[19]);
    assert_eq!(found(&mut ending), (bodies(16..=16), Progress::Ended));
}

#[test]
fn what_is_found_is_always_the_committed_part_however_the_log_grows() {
    for seed in 1..=20_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut log = log_of(from.path());
        let follower = in_sync(Follower::open(to.path()));
        let session = follower.follow_from(EPOCH, Position(0));
        let (mut sent, mut committed, mut ends) = (Position(0), 0, Vec::new());
        let mut readers: Vec<(Box<dyn ReplicaRead>, u64)> = Vec::new();
        for _ in 0..30 {
            match draw(4) {
                0 => {
                    let first = ends.len() as u64 + 1;
                    ends.extend(append_all(&mut log, first..=first + draw(5)));
                    let known = if committed == 0 { Position(0) } else { ends[committed - 1] };
                    follower.take_after(EPOCH, &mut log, sent, known);
                    sent = log.end();
                }
                1 if committed < ends.len() => {
                    committed += 1 + draw((ends.len() - committed) as u64) as usize;
                    follower.hear_committed(EPOCH, session, ends[committed - 1]);
                }
                2 => {
                    let start = 1 + draw(committed as u64 + 1);
                    readers.push((reader(&follower, ReadFrom::Offset(start), None), start));
                }
                _ => {
                    for (reading, next) in &mut readers {
                        let (messages, progress) = found(reading);
                        assert_eq!(messages, bodies(*next..=committed as u64), "seed {seed}");
                        assert_eq!(progress, Progress::Waiting);
                        *next = (*next).max(committed as u64 + 1);
                    }
                }
            }
        }
    }
}

#[test]
fn a_reader_goes_on_with_the_records_that_took_the_place_of_cut_ones() {
    let [from, later, to] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mut log = log_of(from.path());
    let ends = append_all(&mut log, 1..=5);
    let follower = in_sync(Follower::open(to.path()));
    follower.follow_from(EPOCH, Position(0));
    follower.take_after(EPOCH, &mut log, Position(0), ends[2]);
    let mut reading = reader(&follower, ReadFrom::First, None);
    assert_eq!(found(&mut reading), (bodies(1..=3), Progress::Waiting));

    let mut log = log_of(later.path());
    assert_eq!(append_all(&mut log, 1..=3), ends[..3]);
    log.follow_epoch(EPOCH + 1, 0, Begun::default()).unwrap();
    log.write().unwrap();
    for number in 4..=6 {
        append(&mut log, number, format!("other {number}").as_bytes());
    }
    follower.follow_from(EPOCH + 1, ends[2]);
    assert_eq!(found(&mut reading), (Vec::new(), Progress::Waiting));
    let end = log.end();
    follower.take_after(EPOCH + 1, &mut log, ends[2], end);

    let others: Vec<_> = (4..=6).map(|number| (number, format!("other {number}"))).collect();
    assert_eq!(found(&mut reading), (others, Progress::Waiting));
}

#[test]
fn a_reader_goes_on_in_a_copy_that_takes_the_place_of_the_log() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut log = log_of(from.path());
    let ends = append_all(&mut log, 1..=4);
    let follower = in_sync(Follower::open(to.path()));
    follower.follow_from(EPOCH, Position(0));
    follower.take_after(EPOCH, &mut log, Position(0), ends[3]);
    let mut reading = reader(&follower, ReadFrom::First, None);
    assert_eq!(found(&mut reading), (bodies(1..=4), Progress::Waiting));

    append_all(&mut log, 5..=9);
    let mut source = CopySource::open(8, log.begin_backup().unwrap()).unwrap();
    follower.fetch(&mut source);

    assert_eq!(follower.end(), log.end(), "the copy is in its place");
    assert!(has_rung(&*reading));
    assert_eq!(found(&mut reading), (bodies(5..=9), Progress::Waiting));
}

#[test]
fn sequences_that_no_message_has_are_passed_over() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut log = log_of(from.path());
    append_all(&mut log, 1..=3);
    append_all(&mut log, 7..=7);
    let follower = in_sync(Follower::open(to.path()));
    follower.follow_from(EPOCH, Position(0));
    let end = append_all(&mut log, 9..=10)[1];
    follower.take_after(EPOCH, &mut log, Position(0), end);

    let mut reading = reader(&follower, ReadFrom::First, Some(10));

    let expected = [bodies(1..=3), bodies(7..=7), bodies(9..=9)].concat();
    assert_eq!(found(&mut reading), (expected, Progress::Ended));
    let begins = [4, 6, 7].map(|count| reader(&follower, ReadFrom::LastCount(count), None).range().begin);
    assert_eq!(begins, [3, 1, 1], "they are not counted");
}

#[test]
fn a_reader_ends_among_sequences_that_a_restored_log_skips() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut log = log_of(from.path());
    let end = append_all(&mut log, 1..=3)[2];
    let follower = in_sync(Follower::open(to.path()));
    follower.follow_from(EPOCH, Position(0));
    follower.take_after(EPOCH, &mut log, Position(0), end);
    log.follow_epoch(EPOCH + 1, 1, Begun::default()).unwrap();
    let raised = log.write().unwrap();
    follower.follow_from(EPOCH + 1, end);
    follower.take_after(EPOCH + 1, &mut log, end, raised);

    // Where the leader's next message will be.
    let mut reading = reader(&follower, ReadFrom::First, Some(4 + RAISE));

    assert_eq!(found(&mut reading), (bodies(1..=3), Progress::Ended));
}

#[test]
fn a_message_that_the_log_lacks_ends_its_readers_and_the_log_is_not_read_any_more() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut log = log_of(from.path());
    let end = append_all(&mut log, 1..=3)[2];
    let follower = in_sync(Follower::open(to.path()));
    follower.follow_from(EPOCH, Position(0));
    follower.take_after(EPOCH, &mut log, Position(0), end);
    let other = reader(&follower, ReadFrom::First, None);
    let mut reading = Arc::clone(&follower.shard).open_reader(QUEUE, ReadFrom::First, None).unwrap();
    let ticket = follower.shard.with_log(|log| log.begin_state_at_bound()).unwrap();

    // As if the log had found message 3 where it looked for 2.
    let missed = reading.pass_settled(follower.shard.working.log(), (Sequence(2), Sequence(3)), ticket);

    assert!(matches!(missed, Err(EngineError::Replica(why)) if why.contains("lacks message 2")));
    assert!(other.signal().cancelled().is_some() && other.goes_on_elsewhere());
    assert!(!follower.shard.may_be_read());
}

#[test]
fn a_stream_that_its_log_has_deleted_ends_its_reader_alone() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut log = log_of(from.path());
    append_all(&mut log, 1..=3);
    log.append_delete(QUEUE).unwrap();
    let end = log.write().unwrap();
    log.set_bound(end).unwrap();
    let follower = in_sync(Follower::open(to.path()));
    follower.follow_from(EPOCH, Position(0));
    follower.take_after(EPOCH, &mut log, Position(0), end);
    let other = reader(&follower, ReadFrom::Next, None);
    let mut reading = Arc::clone(&follower.shard).open_reader(QUEUE, ReadFrom::First, None).unwrap();
    let ticket = follower.shard.with_log(|log| log.begin_state_at_bound()).unwrap();

    // As if a fold had removed messages 1 and 2, before the broker hears of the deletion from the metadata.
    let goes_on = reading.pass_settled(follower.shard.working.log(), (Sequence(1), Sequence(3)), ticket).unwrap();

    assert!(!goes_on && reading.signal().cancelled().is_some() && !reading.goes_on_elsewhere());
    assert!(other.signal().cancelled().is_none());
    assert!(follower.shard.may_be_read(), "nothing is missing");
}

#[test]
fn a_corrupt_record_ends_its_readers_and_is_left_to_the_leader() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut log = log_of(from.path());
    let end = append_all(&mut log, 1..=3)[2];
    let follower = in_sync(Follower::open(to.path()));
    follower.follow_from(EPOCH, Position(0));
    follower.take_after(EPOCH, &mut log, Position(0), end);
    let mut reading = reader(&follower, ReadFrom::First, None);
    let mut filled = Vec::new();
    assert_eq!(reading.fill(7, &mut filled).unwrap(), Progress::Found);
    let path = filled[0].segment.path().to_owned();

    let corrupt = LogError::Corrupt { path, at: 100, why: Corruption::Short };
    assert!(matches!(reading.report_corrupt(Sequence(2), &corrupt), Err(EngineError::Replica(_))));

    assert!(reading.signal().cancelled().is_some() && reading.goes_on_elsewhere());
    assert!(!follower.shard.may_be_read());
    let limit = Instant::now() + LIMIT;
    while !matches!(follower.shard.role(), Role::Halted(_)) {
        assert!(Instant::now() < limit, "the replica does not halt, though another one is in sync");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(follower.shard.with_log(|log| log.end()), Some(end), "nothing was settled");
}

#[test]
fn readers_of_a_replica_that_is_closed_go_on_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let follower = in_sync(Follower::open(directory.path()));
    follower.follow();
    let reading = reader(&follower, ReadFrom::First, None);

    follower.shard.close();

    assert!(reading.signal().cancelled().is_some() && reading.goes_on_elsewhere());
    assert!(!follower.shard.may_be_read());
}

#[test]
fn a_replica_that_is_not_in_sync_or_hears_no_leader_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let follower = Follower::open(directory.path());
    follower.follow();
    follower.shard.look_after_readers();
    assert!(!follower.shard.may_be_read(), "no record says that it is in sync");

    let follower = in_sync(follower);

    assert!(follower.shard.may_be_read());
    let reading = reader(&follower, ReadFrom::First, None);
    follower.shard.end_readers(QUEUE, "queue 'events' was deleted");
    assert_eq!(reading.signal().cancelled(), Some("queue 'events' was deleted"));
    assert!(!reading.goes_on_elsewhere());
}
