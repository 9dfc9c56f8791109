//! Deadlines and dead letters of a replicated log, whose messages are not committed yet.
#![allow(clippy::unwrap_used)]

mod replica;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_engine::{
    Attributes, DeadLetters, LengthLimit, Level, Overflow, Payload, Publication, Sequence, SequenceRange, Settle, Shard,
};
use replica::*;

#[test]
fn deadlines_that_come_before_their_commit_count_once_it_is_there() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let at_ms = Some(now_ms + 50);
    let attributes = [
        Attributes { due_at_ms: at_ms, ..Attributes::default() },
        Attributes { expires_at_ms: at_ms, ..Attributes::default() },
    ];
    let publications = attributes.each_ref().map(|attributes| Publication {
        payload: Payload::new(b"", b"jobs", b"", b"x").unwrap().with_attributes(attributes),
        exchange: b"",
        key: b"jobs",
        headers: None,
        persistent: true,
        mandatory: true,
    });
    shard.publish(&publications, Some(Level::Disk), now_ms, &mut Vec::new()).unwrap();
    // Delayed messages count as ready ones, too.
    let counts = || {
        let counts = shard.queue_counts(&[QUEUE]).unwrap();
        (counts[0].ready_count, counts[0].delayed_count)
    };
    // The round that finds both of them above the bound.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(counts(), (2, 1));

    commit(&shard);

    assert!(happens(|| counts() == (1, 0)), "ready and delayed: {:?}", counts());
}

/// Has the second message of "jobs" refused, which is a letter for "dead" then.
fn refuse_the_second(shard: &Shard) {
    shard.put_queue(DEAD, "dead", false, None).unwrap();
    shard.route_dead_letters([(QUEUE, letters_to("dead"))]).unwrap();
    shard.limit_lengths([(QUEUE, Some(LengthLimit::of_messages(1, Overflow::RejectPublishDlx)))]).unwrap();
}

/// Begins a term in which "two" was refused and is not committed, after "one".
fn lead_with_refused(house: &mut House) -> Arc<Shard> {
    let log = house.open();
    let shard = house.lead_on(log);
    refuse_the_second(&shard);
    publish(&shard, "one");
    commit(&shard);
    publish(&shard, "two");
    shard
}

fn letters_to(queue: &str) -> Option<DeadLetters> {
    Some(DeadLetters { exchange: String::new(), routing_key: Some(queue.into()), at_least_once: false })
}

/// It was given back to the queue that had refused it, because its record could not be read yet.
#[test]
fn a_refused_message_is_a_dead_letter_once_it_is_committed() {
    let mut house = House::new();
    let shard = lead_with_refused(&mut house);
    // It is tried before the commit.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(ready(&shard, DEAD), 0);

    commit(&shard);

    assert!(happens(|| ready(&shard, DEAD) == 1), "it does not move");
    commit(&shard);
    assert_eq!((drain(&shard, QUEUE), drain(&shard, DEAD)), (fresh(&["one"]), fresh(&["two"])));
}

/// All letters of earlier terms are tried when a term begins, before its first record is committed.
#[test]
fn a_refused_message_of_an_earlier_term_is_a_dead_letter_once_the_term_has_begun() {
    let mut house = House::new();
    let shard = lead_with_refused(&mut house);
    let log = end(&shard);
    drop(shard);
    let shard = house.lead_declared(log, refuse_the_second);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(ready(&shard, DEAD), 0);

    commit(&shard);
    shard.set_delivers(true);

    assert!(happens(|| ready(&shard, DEAD) == 1), "it does not move");
    commit(&shard);
    assert_eq!((drain(&shard, QUEUE), drain(&shard, DEAD)), (again(&["one"]), fresh(&["two"])));
}

/// Rejects the only message of "jobs", whose letter goes to another queue.
fn reject_one(shard: &Arc<Shard>, sequence: u64) {
    let consumer = consumer(shard);
    assert_eq!(take(&consumer).len(), 1);
    consumer.sent(&[(Sequence(sequence), 3)]).unwrap();
    consumer.settle(&[SequenceRange::of(Sequence(sequence))], Settle::Reject).unwrap();
}

/// A virtual host with two shards, of which the second one commits nothing, and has got a letter of the first one.
fn letter_without_commit(house: &mut House) -> [Arc<Shard>; 2] {
    let (first, second) = (house.open(), house.open_further(1));
    let [shard, further] = house.lead_two(first, second);
    shard.route_dead_letters([(QUEUE, letters_to("more"))]).unwrap();
    publish(&shard, "one");
    commit(&shard);
    reject_one(&shard, 1);
    assert!(happens(|| ready(&shard, STREAM) == 1), "it does not move");
    [shard, further]
}

/// The thread that moves letters waited for the commit, and closing the engine for the thread.
#[test]
fn a_shard_that_commits_nothing_holds_up_neither_letters_of_other_virtual_hosts_nor_the_end() {
    let mut house = House::new();
    let [_shard, further] = letter_without_commit(&mut house);
    let directory = tempfile::tempdir().unwrap();
    let other = house.engine.open_shard("other", directory.path(), false).unwrap();
    other.put_queue(QUEUE, "jobs", false, None).unwrap();
    other.put_queue(DEAD, "dead", false, None).unwrap();
    other.route_dead_letters([(QUEUE, letters_to("dead"))]).unwrap();
    publish(&other, "two");

    reject_one(&other, 1);

    let moves = happens(|| ready(&other, DEAD) == 1);
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| told.send(house.engine.close().is_ok()));
        let ends = ended.recv_timeout(Duration::from_secs(20));
        // Without it the test would wait as well.
        commit(&further);
        assert!(moves && ends == Ok(true), "moves: {moves}, ends: {ends:?}");
    });
}

#[test]
fn a_letter_whose_copy_is_committed_late_is_settled_then_and_copied_once() {
    let mut house = House::new();
    let [shard, further] = letter_without_commit(&mut house);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(ready(&shard, QUEUE), 1, "its copy may be lost");

    commit(&further);

    assert!(happens(|| ready(&shard, QUEUE) == 0), "it is not settled");
    [&shard, &further].into_iter().for_each(|each| commit(each));
    assert_eq!(drain(&shard, STREAM), fresh(&["one"]));
}
