//! Leases through a shard's interface: reserve, read, acknowledge, release, and their state after a restart.
#![allow(clippy::unwrap_used)]

#[path = "house/crashing.rs"]
mod crashing;
mod house;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crashing::DyingDisk;
use house::{House, STREAM, open, open_queue, open_queue_on, publish, said};
use penstock_engine::{
    EngineError, LEASE_RANGES_MAX, LEASES_MAX, LeaseLimits, LeasePart, QueueCounts, Sequence, SequenceRange, Settle,
    Subscription, SubscriptionOptions,
};
use penstock_log::{Disk, Outcome, marks};

const ANY: LeaseLimits = LeaseLimits { messages_max: 0, bytes_max: 0 };
const YEAR_3000: u64 = 32_503_680_000_000;

fn reserve(house: &House, owner: &str, number: u64, limits: LeaseLimits) -> Result<(u64, u64, bool), EngineError> {
    let reserved = house.shard.reserve_lease(STREAM, owner, number, limits, 9)?;
    house.shard.sync_to(reserved.position)?;
    Ok((reserved.lease.count, reserved.lease.bytes, reserved.is_new))
}

fn some(messages_max: u64) -> LeaseLimits {
    LeaseLimits { messages_max, bytes_max: 0 }
}

fn read_part(house: &House, owner: &str, number: u64, part: u32, parts: u32) -> Result<Vec<String>, EngineError> {
    let mut reader = house.shard.read_lease(STREAM, LeasePart { owner, number, part, parts })?;
    let mut found = Vec::new();
    loop {
        let mut filled = Vec::new();
        if !reader.fill(7, &mut filled)? {
            return Ok(found);
        }
        found.extend(filled.iter().flat_map(said).map(|say| say.body));
    }
}

fn read(house: &House, owner: &str, number: u64) -> Result<Vec<String>, EngineError> {
    read_part(house, owner, number, 0, 1)
}

fn consumer(house: &House, exclusive: bool) -> Result<Subscription, EngineError> {
    let options = SubscriptionOptions { prefetch: 100, auto_ack: false, exclusive, pull: false };
    house.shard.subscribe(STREAM, options)
}

/// The messages of a consumer: body and delivery count.
fn take(consumer: &Subscription) -> Vec<(String, u32)> {
    let mut filled = Vec::new();
    consumer.fill(100, &mut filled).unwrap();
    let counts = filled.iter().flat_map(|filled| filled.picked.iter().map(|one| one.taken.delivery_count));
    filled.iter().flat_map(said).map(|say| say.body).zip(counts).collect()
}

fn counts(house: &House) -> QueueCounts {
    house.shard.queue_counts(&[STREAM]).unwrap()[0]
}

fn ready_and_unacked(house: &House) -> (u64, u64) {
    (counts(house).ready_count, counts(house).unacked_count)
}

#[test]
fn a_lease_takes_ready_messages_and_is_given_again_when_it_is_asked_for_again() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one", "two", "three"]);

    assert_eq!(reserve(&house, "o", 1, some(2)).unwrap(), (2, 6, true));
    assert_eq!(reserve(&house, "o", 1, ANY).unwrap(), (2, 6, false));

    assert_eq!(ready_and_unacked(&house), (1, 2));
    assert_eq!(counts(&house).unacked_bytes, 6);
    assert_eq!(counts(&house).consumer_count, 0);
    assert_eq!(read(&house, "o", 1).unwrap(), ["one", "two"]);
    assert_eq!(read(&house, "o", 1).unwrap(), ["one", "two"]);
    assert_eq!(take(&consumer(&house, false).unwrap()), [("three".to_owned(), 0)]);
}

#[test]
fn a_lease_ends_with_the_message_that_reaches_its_bytes_and_the_rest_was_never_taken() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["12345", "12345", "12345", "12345"]);

    let limits = LeaseLimits { messages_max: 0, bytes_max: 6 };
    assert_eq!(reserve(&house, "o", 1, limits).unwrap(), (2, 10, true));

    assert_eq!((counts(&house).ready_bytes, counts(&house).unacked_bytes), (10, 10));
    assert_eq!(take(&consumer(&house, false).unwrap()), [("12345".to_owned(), 0), ("12345".to_owned(), 0)]);
}

#[test]
fn nothing_ready_is_no_lease_and_leaves_the_number_free() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    assert_eq!(reserve(&house, "o", 1, ANY).unwrap(), (0, 0, false));
    assert!(house.shard.leases(STREAM).unwrap().is_empty());
    publish(&house, &["one"]);

    assert_eq!(reserve(&house, "o", 1, ANY).unwrap(), (1, 3, true));
}

#[test]
fn only_the_next_number_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one", "two"]);
    reserve(&house, "o", 1, some(1)).unwrap();
    house.shard.ack_leases(STREAM, "o", 1).unwrap();

    for number in [0, 1, 3] {
        let refused = reserve(&house, "o", number, ANY);
        assert!(matches!(refused, Err(EngineError::LeaseNumber { last: 1, .. })), "{number}: {refused:?}");
    }
    assert!(matches!(house.shard.ack_leases(STREAM, "o", 2), Err(EngineError::LeaseNumber { .. })));
    assert!(matches!(read(&house, "o", 1), Err(EngineError::NoLease { .. })));
    assert_eq!(house.shard.ack_leases(STREAM, "o", 1).unwrap(), 0, "it is acknowledged already");
    assert_eq!(reserve(&house, "o", 2, ANY).unwrap(), (1, 3, true));
}

#[test]
fn acknowledged_leases_are_settled_and_later_ones_stay() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one", "two", "three", "four"]);
    for number in 1..=3 {
        reserve(&house, "o", number, some(1)).unwrap();
    }

    assert_eq!(house.shard.ack_leases(STREAM, "o", 2).unwrap(), 2);

    assert_eq!(ready_and_unacked(&house), (1, 1));
    assert_eq!(read(&house, "o", 3).unwrap(), ["three"]);
    let owners = house.shard.leases(STREAM).unwrap();
    assert_eq!((owners[0].owner.as_str(), owners[0].acked, owners[0].leases.len()), ("o", 2, 1));
    assert_eq!((owners[0].leases[0].count, owners[0].leases[0].reserved_at_ms), (1, 9));
}

#[test]
fn released_messages_come_first_and_say_that_they_were_delivered() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one", "two", "three"]);
    reserve(&house, "o", 1, some(1)).unwrap();
    reserve(&house, "o", 2, some(1)).unwrap();

    assert_eq!(house.shard.release_leases(STREAM, "o", 2).unwrap(), 1);

    let consumer = consumer(&house, false).unwrap();
    assert_eq!(take(&consumer), [("two".to_owned(), 1), ("three".to_owned(), 0)]);
    assert_eq!(read(&house, "o", 1).unwrap(), ["one"]);
    drop(consumer);
    assert_eq!(reserve(&house, "o", 2, ANY).unwrap(), (2, 8, true), "the number is free again");
}

#[test]
fn an_owner_whose_leases_are_all_released_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one", "two"]);
    reserve(&house, "o", 1, some(1)).unwrap();
    house.shard.ack_leases(STREAM, "o", 1).unwrap();
    reserve(&house, "o", 2, some(1)).unwrap();

    assert_eq!(house.shard.release_leases(STREAM, "o", 0).unwrap(), 1);
    assert_eq!(house.shard.release_leases(STREAM, "o", 0).unwrap(), 0, "nothing is left of it");

    assert!(house.shard.leases(STREAM).unwrap().is_empty());
    house.close();
    let house = open_queue(directory.path());
    assert!(house.shard.leases(STREAM).unwrap().is_empty());
    assert_eq!(reserve(&house, "o", 1, ANY).unwrap(), (1, 3, true));
}

#[test]
fn the_parts_of_a_lease_are_read_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["1", "2", "3", "4", "5", "6", "7"]);
    reserve(&house, "o", 1, ANY).unwrap();

    let parts: Vec<_> = (0..3).map(|part| read_part(&house, "o", 1, part, 3).unwrap()).collect();

    assert_eq!(parts, [vec!["1", "2"], vec!["3", "4"], vec!["5", "6", "7"]]);
    assert!(matches!(read_part(&house, "o", 1, 3, 3), Err(EngineError::LeasePart { .. })));
    assert!(matches!(read_part(&house, "o", 1, 0, 0), Err(EngineError::LeasePart { .. })));
}

#[test]
fn after_a_start_leases_stand_and_hold_back_what_they_held() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one", "two", "three", "four", "five"]);
    let held = consumer(&house, false).unwrap();
    let mut filled = Vec::new();
    held.fill(1, &mut filled).unwrap();
    reserve(&house, "o", 1, some(1)).unwrap();
    reserve(&house, "p", 1, some(1)).unwrap();
    reserve(&house, "o", 2, some(1)).unwrap();
    std::mem::forget(held);
    house.close();

    let house = open_queue(directory.path());

    assert_eq!(ready_and_unacked(&house), (2, 3));
    assert_eq!(take(&consumer(&house, false).unwrap()), [("one".to_owned(), 0), ("five".to_owned(), 0)]);
    assert_eq!(read(&house, "o", 1).unwrap(), ["two"]);
    assert_eq!(read(&house, "p", 1).unwrap(), ["three"]);
    assert_eq!(read(&house, "o", 2).unwrap(), ["four"]);
    assert_eq!(reserve(&house, "o", 2, ANY).unwrap(), (1, 4, false));
    assert_eq!((counts(&house).ready_bytes, counts(&house).unacked_bytes), (7, 12));
}

/// The log has the time until which a message waited; such messages were ready again after a start.
#[test]
fn a_lease_holds_after_a_start_what_had_waited_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one", "two", "three"]);
    let held = consumer(&house, false).unwrap();
    assert_eq!(take(&held).len(), 3);
    held.sent(&[(Sequence(1), 3), (Sequence(2), 3)]).unwrap();
    held.settle(&[SequenceRange::ALL], Settle::RequeueAt(YEAR_3000)).unwrap();
    drop(held);
    house.shard.expire_due(YEAR_3000).unwrap();
    assert_eq!(reserve(&house, "o", 1, some(2)).unwrap(), (2, 6, true));
    house.close();

    let house = open_queue(directory.path());

    assert_eq!(ready_and_unacked(&house), (1, 2));
    house.shard.expire_due(YEAR_3000).unwrap();
    assert_eq!(ready_and_unacked(&house), (1, 2));
    assert_eq!(read(&house, "o", 1).unwrap(), ["one", "two"]);
    assert_eq!(house.shard.ack_leases(STREAM, "o", 1).unwrap(), 2);
    assert_eq!((counts(&house).ready_count, counts(&house).ready_bytes), (1, 5));
}

#[test]
fn a_lease_acknowledged_unread_after_a_start_leaves_no_bytes_behind() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one", "two", "three"]);
    reserve(&house, "o", 1, some(2)).unwrap();
    house.close();
    let house = open_queue(directory.path());

    assert_eq!(house.shard.ack_leases(STREAM, "o", 1).unwrap(), 2);

    assert_eq!((counts(&house).ready_count, counts(&house).ready_bytes), (1, 5));
    house.close();
    let house = open_queue(directory.path());
    assert_eq!((counts(&house).ready_count, counts(&house).ready_bytes), (1, 5));
}

#[test]
fn a_purge_after_a_start_leaves_leases_and_right_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one", "two", "three"]);
    reserve(&house, "o", 1, some(2)).unwrap();
    house.close();
    let house = open_queue(directory.path());

    assert_eq!(house.shard.purge_queue(STREAM).unwrap(), 1);
    publish(&house, &["four"]);
    assert_eq!((counts(&house).ready_bytes, counts(&house).unacked_bytes), (4, 6));

    assert_eq!(read(&house, "o", 1).unwrap(), ["one", "two"]);
    assert_eq!(house.shard.ack_leases(STREAM, "o", 1).unwrap(), 2);
    assert_eq!((counts(&house).ready_count, counts(&house).ready_bytes), (1, 4));
}

/// The log of `ack_leases` when the process dies after the settlement and before the marks.
#[test]
fn a_death_between_the_settlement_and_its_marks_gives_nobody_the_messages_again() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one", "two", "three"]);
    reserve(&house, "o", 1, some(2)).unwrap();
    house.close();
    let mut log = house::open_log(directory.path());
    let ranges = [SequenceRange { first: Sequence(1), last: Sequence(2) }];
    log.append_settle(STREAM, Outcome::Ack, 2, 6, &ranges).unwrap();
    log.write().unwrap();
    log.close().unwrap();

    let house = open_queue(directory.path());

    assert_eq!(ready_and_unacked(&house), (1, 0));
    assert!(read(&house, "o", 1).unwrap().is_empty());
    assert_eq!(house.shard.ack_leases(STREAM, "o", 1).unwrap(), 0, "what is acknowledged again is settled once");
    assert_eq!(reserve(&house, "o", 2, ANY).unwrap(), (1, 5, true));
    assert_eq!(read(&house, "o", 2).unwrap(), ["three"]);
}

/// The same in the middle of a lease.
#[test]
fn a_death_within_a_settlement_leaves_the_lease_with_what_is_not_settled() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one", "two", "three"]);
    reserve(&house, "o", 1, ANY).unwrap();
    house.close();
    let mut log = house::open_log(directory.path());
    let ranges = [SequenceRange { first: Sequence(1), last: Sequence(1) }];
    log.append_settle(STREAM, Outcome::Ack, 1, 3, &ranges).unwrap();
    log.write().unwrap();
    log.close().unwrap();

    let house = open_queue(directory.path());

    assert_eq!(ready_and_unacked(&house), (0, 2));
    assert_eq!(read(&house, "o", 1).unwrap(), ["two", "three"]);
    assert_eq!(house.shard.ack_leases(STREAM, "o", 1).unwrap(), 2);
    assert_eq!(ready_and_unacked(&house), (0, 0));
}

const MANY: u64 = 20_000;
/// Holds of the lock for so many messages, at most 4,096 each.
const HOLDS: u64 = MANY / 4096;

fn publish_many(house: &House) {
    publish(house, &vec!["x"; MANY as usize]);
}

#[test]
fn long_leases_are_acknowledged_in_parts_and_short_ones_together() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish_many(&house);
    for number in 1..=8 {
        reserve(&house, "o", number, some(if number == 4 { MANY - 10 } else { 1 })).unwrap();
    }

    let before = house.shard.holds();
    assert_eq!(house.shard.ack_leases(STREAM, "o", 5).unwrap(), MANY - 6);

    assert!(house.shard.holds() - before > HOLDS);
    assert_eq!(ready_and_unacked(&house), (3, 3));
    house.close();
    let house = open_queue(directory.path());
    let [owner] = house.shard.leases(STREAM).unwrap().try_into().unwrap();
    assert_eq!((owner.acked, owner.leases.len()), (5, 3));
    assert_eq!(ready_and_unacked(&house), (3, 3));
}

#[test]
fn long_leases_are_released_in_parts_and_what_came_back_is_purged_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish_many(&house);
    for (number, count) in [(1, 2), (2, MANY - 10), (3, 3)] {
        reserve(&house, "o", number, some(count)).unwrap();
    }

    let before = house.shard.holds();
    assert_eq!(house.shard.release_leases(STREAM, "o", 2).unwrap(), MANY - 7);

    assert!(house.shard.holds() - before > HOLDS);
    assert_eq!(ready_and_unacked(&house), (MANY - 2, 2));
    assert!(matches!(read(&house, "o", 2), Err(EngineError::NoLease { .. })));
    let delivered = take(&consumer(&house, false).unwrap());
    assert_eq!((delivered[0].1, delivered.len()), (1, 100), "they count as delivered");

    let before = house.shard.holds();
    assert_eq!(house.shard.purge_queue(STREAM).unwrap(), MANY - 2);
    assert!(house.shard.holds() - before > HOLDS);
    assert_eq!((counts(&house).ready_count, counts(&house).ready_bytes, counts(&house).unacked_count), (0, 0, 2));
    house.close();
    assert_eq!(ready_and_unacked(&open_queue(directory.path())), (0, 2));
}

/// The same after the owner's mark and before those of its leases.
#[test]
fn a_death_between_the_marks_of_an_acknowledgement_leaves_no_lease() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one", "two"]);
    reserve(&house, "o", 1, some(1)).unwrap();
    house.close();
    let mut log = house::open_log(directory.path());
    let ranges = [SequenceRange { first: Sequence(1), last: Sequence(1) }];
    log.append_settle(STREAM, Outcome::Ack, 1, 3, &ranges).unwrap();
    let key = [&0_u64.to_le_bytes()[..], b"o"].concat();
    log.append_mark(&marks::owner_of_leases(STREAM), &key, &1_u64.to_le_bytes()).unwrap();
    log.write().unwrap();
    log.close().unwrap();

    let house = open_queue(directory.path());

    assert!(matches!(read(&house, "o", 1), Err(EngineError::NoLease { .. })));
    assert_eq!(reserve(&house, "o", 2, ANY).unwrap(), (1, 3, true));
}

#[test]
fn leases_outlive_the_segments_that_their_marks_were_in() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["kept"]);
    reserve(&house, "o", 1, ANY).unwrap();
    let body = "x".repeat(10_000);
    let consumer = consumer(&house, false).unwrap();
    for _ in 0..200 {
        publish(&house, &[&body]);
        take(&consumer);
        consumer.settle(&[SequenceRange { first: Sequence(2), last: Sequence(u64::MAX) }], Settle::Ack).unwrap();
    }
    drop(consumer);
    house.close();

    let house = open_queue(directory.path());

    assert_eq!(read(&house, "o", 1).unwrap(), ["kept"]);
    assert_eq!(ready_and_unacked(&house), (0, 1));
}

#[test]
fn a_lease_and_an_exclusive_consumer_refuse_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one"]);
    let alone = consumer(&house, true).unwrap();
    assert!(matches!(reserve(&house, "o", 1, ANY), Err(EngineError::Queue(_))));
    drop(alone);

    reserve(&house, "o", 1, ANY).unwrap();

    assert!(matches!(consumer(&house, true), Err(EngineError::Queue(_))));
}

#[test]
fn a_stream_has_no_leases_and_those_of_a_deleted_queue_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    assert!(matches!(reserve(&house, "o", 1, ANY), Err(EngineError::IsStream(_))));
    house.close();
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["one"]);
    reserve(&house, "o", 1, ANY).unwrap();
    let mut reader = house.shard.read_lease(STREAM, LeasePart { owner: "o", number: 1, part: 0, parts: 1 }).unwrap();

    assert_eq!(house.shard.delete_queue(STREAM).unwrap(), 1);

    assert!(matches!(reader.fill(1, &mut Vec::new()), Err(EngineError::NoQueue(..))));
    house.close();
    let house = open_queue(directory.path());
    assert!(house.shard.leases(STREAM).unwrap().is_empty());
}

#[test]
fn a_lease_has_no_more_runs_than_its_mark_may_hold() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let count = 2 * LEASE_RANGES_MAX + 8;
    for _ in 0..count / 10 {
        publish(&house, &["x"; 10]);
    }
    let options = SubscriptionOptions { prefetch: 65_535, auto_ack: false, exclusive: false, pull: false };
    let holder = house.shard.subscribe(STREAM, options).unwrap();
    let mut filled = Vec::new();
    holder.fill(u32::MAX, &mut filled).unwrap();
    let every_other: Vec<SequenceRange> =
        (1..=count as u64).step_by(2).map(|n| SequenceRange { first: Sequence(n), last: Sequence(n) }).collect();
    holder.settle(&every_other, Settle::Requeue).unwrap();

    let (reserved, _, _) = reserve(&house, "o", 1, ANY).unwrap();

    assert_eq!(reserved, LEASE_RANGES_MAX as u64);
    assert_eq!(counts(&house).ready_count, every_other.len() as u64 - reserved);
}

#[test]
fn an_owner_has_a_bounded_number_of_leases() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["x"; LEASES_MAX + 1]);
    for number in 1..=LEASES_MAX as u64 {
        reserve(&house, "o", number, some(1)).unwrap();
    }

    assert!(matches!(reserve(&house, "o", LEASES_MAX as u64 + 1, some(1)), Err(EngineError::TooMany { .. })));
    assert_eq!(counts(&house).ready_count, 1, "what was not leased is not held");
}

#[test]
fn of_two_reservations_of_a_number_at_a_time_both_get_the_same_lease() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let bodies: Vec<String> = (0..3_000).map(|number| number.to_string()).collect();
    publish(&house, &bodies.iter().map(String::as_str).collect::<Vec<_>>());

    for number in 1..=20 {
        let found: Vec<_> = std::thread::scope(|scope| {
            let ask = |_| {
                let shard = Arc::clone(&house.shard);
                scope.spawn(move || shard.reserve_lease(STREAM, "o", number, some(100), 1).unwrap().lease)
            };
            (0..3).map(ask).collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|lease| *lease == found[0]), "{found:?}");
        assert_eq!(house.shard.totals().unwrap().0, 3_000 - 100 * number);
    }
}

/// A queue of which three messages are in two leases, on a disk that dies at each write of a step in turn. Returns what
/// the next process finds each time: the leases, the numbers of ready and of unacked messages, and delivery counts.
fn dying(step: impl Fn(&House) -> Result<u64, EngineError>) -> Vec<(Vec<u64>, (u64, u64), u32)> {
    let mut found = Vec::new();
    for writes in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(DyingDisk::default());
        let house = open_queue_on(directory.path(), Arc::clone(&disk) as Arc<dyn Disk>);
        publish(&house, &["one", "two", "three", "four"]);
        reserve(&house, "o", 1, some(2)).unwrap();
        reserve(&house, "o", 2, some(1)).unwrap();
        disk.writes_left.store(writes, Ordering::SeqCst);
        let was_enough = step(&house).is_ok();
        // Closing a stopped shard fails as it should.
        let _ = house.engine.close();
        drop(house);

        let house = open_queue(directory.path());
        let leases = house.shard.leases(STREAM).unwrap();
        let numbers = leases.iter().flat_map(|owner| owner.leases.iter().map(|lease| lease.number)).collect();
        let counts = ready_and_unacked(&house);
        let deliveries = take(&consumer(&house, false).unwrap()).iter().map(|(_, count)| count).sum();
        found.push((numbers, counts, deliveries));
        if was_enough {
            return found;
        }
    }
    found
}

#[test]
fn an_acknowledgement_that_dies_at_any_write_is_whole_or_not_there() {
    let found = dying(|house| house.shard.ack_leases(STREAM, "o", 2));

    let (before, after) = ((vec![1, 2], (1, 3), 0), (vec![], (1, 0), 0));
    assert!(found.iter().all(|one| [&before, &after].contains(&one)), "{found:?}");
    assert_eq!((found.first(), found.last()), (Some(&before), Some(&after)));
}

/// Its messages were ready again without a sign that they may have been delivered.
#[test]
fn a_release_that_dies_at_any_write_counts_the_deliveries_or_is_not_there() {
    let found = dying(|house| house.shard.release_leases(STREAM, "o", 0));

    let (before, after) = ((vec![1, 2], (1, 3), 0), (vec![], (4, 0), 3));
    assert!(found.iter().all(|one| [&before, &after].contains(&one)), "{found:?}");
    assert_eq!((found.first(), found.last()), (Some(&before), Some(&after)));
}
