//! Exchanges of a replicated log that keep their last messages: what is copied to queues while messages, or copies, are not committed.
#![allow(clippy::unwrap_used)]

mod replica;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use penstock_engine::{Destination, ExchangeKind, ExchangeSettings, Level, Payload, Publication, QueueId, Shard};
use replica::*;

/// Declares an exchange that keeps messages.
fn keep(shard: &Shard) {
    let fanout = ExchangeSettings::new(ExchangeKind::Fanout, None);
    shard.put_keeping_exchange("kept", &fanout, 10).unwrap();
}

/// Begins a term, everything of it committed, with such an exchange.
fn lead_keeping(house: &mut House) -> Arc<Shard> {
    let log = house.open();
    let shard = house.lead_declared(log, keep);
    commit(&shard);
    shard.set_delivers(true);
    shard
}

fn publish_kept(shard: &Arc<Shard>, body: &str) {
    let publication = Publication {
        payload: Payload::new(b"kept", b"", b"", body.as_bytes()).unwrap(),
        exchange: b"kept",
        key: b"",
        headers: None,
        persistent: true,
        mandatory: false,
    };
    shard.publish(&[publication], Some(Level::Disk), 1, &mut Vec::new()).unwrap();
}

fn bind(shard: &Shard, queue: &str) {
    shard.add_route("kept", "", None, Destination::Queue(queue)).unwrap();
}

#[test]
fn a_queue_bound_before_the_commit_of_a_kept_message_gets_it() {
    let mut house = House::new();
    let shard = lead_keeping(&mut house);
    publish_kept(&shard, "one");
    commit(&shard);
    publish_kept(&shard, "two");
    bind(&shard, "jobs");
    assert_eq!(ready(&shard, QUEUE), 0);

    commit(&shard);

    assert!(happens(|| ready(&shard, QUEUE) == 2), "it has {}", ready(&shard, QUEUE));
    commit(&shard);
    bind(&shard, "jobs");
    assert_eq!(drain(&shard, QUEUE), fresh(&["one", "two"]));
}

/// The records of the earlier term are committed with the first one of the next.
#[test]
fn a_queue_that_waited_for_a_kept_message_gets_it_in_the_next_term() {
    let mut house = House::new();
    let shard = lead_keeping(&mut house);
    publish_kept(&shard, "one");
    bind(&shard, "jobs");
    let log = end(&shard);
    drop(shard);
    let shard = house.lead_declared(log, |shard| {
        keep(shard);
        bind(shard, "jobs");
    });
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(ready(&shard, QUEUE), 0);

    commit(&shard);
    shard.set_delivers(true);

    assert!(happens(|| ready(&shard, QUEUE) == 1), "it does not come");
    commit(&shard);
    assert_eq!(drain(&shard, QUEUE), fresh(&["one"]));
}

#[test]
fn a_bind_waits_a_short_time_for_another_log_and_kept_messages_are_copied_to_it_once() {
    let mut house = House::new();
    let (first, second) = (house.open(), house.open_further(1));
    let [shard, further] = house.lead_two(first, second);
    keep(&shard);
    publish_kept(&shard, "one");
    commit(&shard);

    let (told, bound) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            bind(&shard, "more");
            told.send(()).unwrap();
        });
        let returns = bound.recv_timeout(Duration::from_secs(20));
        // Without it the test would wait as well.
        commit(&further);
        assert!(returns.is_ok(), "it waits");
    });
    // The thread tries it again, and notes that it is done.
    std::thread::sleep(Duration::from_millis(1500));
    bind(&shard, "more");
    [&shard, &further].into_iter().for_each(|each| commit(each));

    assert_eq!(drain(&shard, STREAM), fresh(&["one"]));
}

/// A virtual host with two shards, whose exchange "kept" has kept a message, and another one leads to a queue in each shard.
fn keeping_with_two(house: &mut House) -> [Arc<Shard>; 2] {
    let (first, second) = (house.open(), house.open_further(1));
    let [shard, further] = house.lead_two(first, second);
    keep_for(&shard, &["jobs", "more"]);
    [shard, further]
}

fn bind_behind(shard: &Shard) {
    shard.add_route("kept", "", None, Destination::Exchange("behind")).unwrap();
}

/// Each try waited for the newest messages of the other log, and none of them was committed in time.
#[test]
fn copies_are_made_also_while_another_log_commits_late_and_is_never_without_traffic() {
    let mut house = House::new();
    let [shard, further] = keeping_with_two(&mut house);
    bind_behind(&shard);
    let has_ended = AtomicBool::new(false);

    let is_copied = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut ends = VecDeque::new();
            while !has_ended.load(Ordering::SeqCst) {
                try_publish(&shard, "more", "x").unwrap();
                ends.push_back(further.with_log(|log| log.write().unwrap()).unwrap());
                std::thread::sleep(Duration::from_millis(50));
                if ends.len() > 14
                    && let Some(end) = ends.pop_front()
                {
                    further.with_log(|log| log.set_bound(end).unwrap());
                    further.committed(end);
                }
            }
        });
        let is_copied = happens(|| ready(&shard, QUEUE) == 1);
        has_ended.store(true, Ordering::SeqCst);
        is_copied
    });

    assert!(is_copied, "the queue of the first shard has no copy");
}

#[test]
fn nothing_is_copied_any_more_once_the_exchange_is_deleted() {
    let mut house = House::new();
    let [shard, further] = keeping_with_two(&mut house);

    std::thread::scope(|scope| {
        // It waits for the copy in the other log meanwhile.
        scope.spawn(|| bind_behind(&shard));
        assert!(happens(|| ready(&shard, STREAM) == 1), "it has not begun");
        shard.delete_exchange("kept").unwrap();
        assert_eq!(ready(&shard, QUEUE), 0);
        [&shard, &further].into_iter().for_each(|each| commit(each));
    });
    std::thread::sleep(Duration::from_millis(1500));

    assert_eq!(ready(&shard, QUEUE), 0);
}

/// The thread that copies what waits may be at work before all that a start finds is compared with the definitions.
#[test]
fn a_start_copies_nothing_to_a_queue_that_is_not_bound_any_more() {
    for _ in 0..10 {
        let mut house = House::new();
        let shard = lead_keeping(&mut house);
        publish_kept(&shard, "one");
        bind(&shard, "jobs");
        let log = end(&shard);
        drop(shard);
        let shard = house.lead_declared(log, |shard| {
            keep(shard);
            commit(shard);
            shard.set_delivers(true);
        });
        commit(&shard);
        std::thread::sleep(Duration::from_millis(30));

        assert_eq!(ready(&shard, QUEUE), 0);
    }
}

/// Each of them was waited for alone, and neither an unbind nor dead letters of other virtual hosts went on meanwhile.
#[test]
fn an_unbind_does_not_wait_for_the_copies_of_many_queues_one_after_the_other() {
    const QUEUES: u64 = 100;
    let mut house = House::new();
    let (first, second) = (house.open(), house.open_further(1));
    let [shard, further] = house.lead_two(first, second);
    keep(&shard);
    publish_kept(&shard, "one");
    for number in 100..100 + QUEUES {
        let (id, name) = (QueueId(number), number.to_string());
        shard.place_queues([(id, 1)]).unwrap();
        shard.put_queue(id, &name, false, None).unwrap();
        bind(&shard, &name);
    }
    let copied = || (100..100 + QUEUES).filter(|&number| ready(&shard, QueueId(number)) == 1).count() as u64;
    let (commits, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));

    let needed = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(200));
                commits.fetch_add(1, Ordering::SeqCst);
                commit(&further);
            }
        });
        commit(&shard);
        let is_begun = happens(|| copied() > 0);
        shard.remove_route("kept", "", None, Destination::Queue("100")).unwrap();
        let of_unbind = commits.load(Ordering::SeqCst);
        let is_copied = happens(|| copied() == QUEUES);
        has_ended.store(true, Ordering::SeqCst);
        assert!(is_begun && is_copied, "{} of {QUEUES} have their copy", copied());
        of_unbind
    });

    assert!(needed < QUEUES / 4, "{needed} commits until the answer");
}

/// The second commit came while the round that the first one began had many receivers left, and none of these was tried again.
#[test]
fn a_commit_in_the_middle_of_a_round_begins_another_one() {
    const QUEUES: u64 = 400;
    for trial in 0..6 {
        let mut house = House::new();
        let shard = lead_keeping(&mut house);
        for number in 100..100 + QUEUES {
            shard.put_queue(QueueId(number), &number.to_string(), false, None).unwrap();
        }
        commit(&shard);
        let committed = shard.synced();
        publish_kept(&shard, "one");
        (100..100 + QUEUES).for_each(|number| bind(&shard, &number.to_string()));

        // One that commits nothing of them, and the one that they wait for.
        shard.committed(committed);
        std::thread::sleep(Duration::from_micros(100 + 150 * trial));
        commit(&shard);

        let lacking = || (100..100 + QUEUES).filter(|&number| ready(&shard, QueueId(number)) == 0).count();
        assert!(happens(|| lacking() == 0), "{} have no copy", lacking());
    }
}

/// Has an exchange keep a message, which another one leads to the queues of some shards.
fn keep_for(shard: &Arc<Shard>, queues: &[&str]) {
    keep(shard);
    shard.put_exchange("behind", ExchangeKind::Fanout, None).unwrap();
    for queue in queues {
        shard.add_route("behind", "", None, Destination::Queue(queue)).unwrap();
    }
    publish_kept(shard, "one");
    commit(shard);
}

/// Its copies were not waited for, as another log was behind.
#[test]
fn copies_in_a_log_that_commits_nothing_are_not_taken_for_safe() {
    const OTHER: QueueId = QueueId(50);
    let mut house = House::new();
    let [shard, _one, two] = house.lead_three();
    shard.place_queues([(OTHER, 2)]).unwrap();
    shard.put_queue(OTHER, "other", false, None).unwrap();
    keep_for(&shard, &["jobs", "more", "third"]);
    // The third log gets behind.
    bind(&shard, "other");
    bind_behind(&shard);
    assert_eq!((ready(&shard, STREAM), ready(&shard, THIRD)), (1, 0));

    let third_has_it = happens(|| {
        commit(&two);
        ready(&shard, THIRD) == 1
    });
    commit(&two);
    std::thread::sleep(Duration::from_millis(1500));

    assert!(third_has_it);
    assert_eq!(ready(&shard, QUEUE), 0, "it is done, and the copies in the second log are not committed");
}

/// A log that has copies only since the others were waited for was not waited for itself.
#[test]
fn copies_for_a_route_that_came_meanwhile_are_waited_for_as_well() {
    let mut house = House::new();
    let [shard, one, _two] = house.lead_three();
    keep_for(&shard, &["jobs", "more"]);

    std::thread::scope(|scope| {
        scope.spawn(|| bind_behind(&shard));
        assert!(happens(|| ready(&shard, STREAM) == 1), "it has not begun");
        shard.add_route("behind", "", None, Destination::Queue("third")).unwrap();
        commit(&one);
    });
    std::thread::sleep(Duration::from_millis(1500));

    assert_eq!(ready(&shard, QUEUE), 0, "it is done, and the copies in the third log are not committed");
}

#[test]
fn nothing_is_appended_to_a_log_whose_term_is_over() {
    let mut house = House::new();
    let shard = lead_keeping(&mut house);
    publish_kept(&shard, "one");
    commit(&shard);
    shard.end_term();
    let end = || shard.with_log(|log| log.end()).unwrap();
    let before = end();

    bind(&shard, "jobs");
    shard.delete_exchange("kept").unwrap();

    assert_eq!(end(), before);
}
