//! Messages that come back to a queue with a retry schedule are ready again after their back-off, also after a kill.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod house;

use std::path::Path;

use house::{House, engine, said};
use penstock_engine::{
    Attributes, BackOff, DeadLetters, LengthLimit, Overflow, Payload, Publication, QueueCounts, QueueId, RetrySchedule,
    RetryType, Sequence, SequenceRange, Settle, Subscription, SubscriptionOptions, Transaction, TransactionSettlement,
};

const QUEUE: QueueId = QueueId(3);
const DEAD: QueueId = QueueId(20);
/// Far in the future, so that the thread that releases messages in the background does nothing by itself.
const YEAR_3000: u64 = 32_503_680_000_000;

fn open(directory: &Path) -> House {
    let engine = engine();
    let shard = engine.open_shard("/", directory, false).unwrap();
    shard.retain_with_lanes(&[QUEUE, DEAD], &[(QUEUE, 9)]).unwrap();
    shard.prioritize_queues([(QUEUE, 9)]).unwrap();
    shard.put_queue(QUEUE, "s", false, None).unwrap();
    shard.put_queue(DEAD, "dead", false, None).unwrap();
    shard.expire_due(YEAR_3000).unwrap();
    House { engine, shard }
}

fn steps(house: &House, of: RetryType, steps: &[u64]) {
    let schedule = RetrySchedule { of, back_off: BackOff::Steps(steps.to_vec()) };
    house.shard.schedule_retries([(QUEUE, Some(schedule))]).unwrap();
}

fn publish(house: &House, bodies: &[(u8, &str)]) {
    publish_with(house, bodies, Attributes::default());
}

fn publish_with(house: &House, bodies: &[(u8, &str)], times: Attributes) {
    let attributes = bodies.iter().map(|(priority, _)| Attributes { priority: Some(*priority), ..times });
    let attributes: Vec<_> = attributes.collect();
    let batch = bodies.iter().zip(&attributes).map(|((_, body), attributes)| {
        let payload = Payload::new(b"", b"s", b"", body.as_bytes()).unwrap().with_attributes(attributes);
        Publication { payload, exchange: b"", key: b"s", headers: None, persistent: false, mandatory: false }
    });
    house.shard.publish(&batch.collect::<Vec<_>>(), None, YEAR_3000, &mut Vec::new()).unwrap();
}

fn subscribe(house: &House, queue: QueueId) -> Subscription {
    let options = SubscriptionOptions { prefetch: 100, auto_ack: false, exclusive: false, pull: false };
    house.shard.subscribe(queue, options).unwrap()
}

/// The bodies of what it gets, and how often each was delivered before.
fn deliver(subscription: &Subscription) -> Vec<(String, u32)> {
    let mut filled = Vec::new();
    subscription.fill(100, &mut filled).unwrap();
    let taken: Vec<_> = filled.iter().flat_map(|run| run.picked.iter().map(|one| one.taken)).collect();
    let bodies: Vec<_> = filled.iter().flat_map(said).map(|say| say.body).collect();
    let sizes: Vec<_> = taken.iter().zip(&bodies).map(|(one, body)| (one.sequence, body.len() as u32)).collect();
    subscription.sent(&sizes).unwrap();
    bodies.into_iter().zip(taken).map(|(body, one)| (body, one.delivery_count)).collect()
}

fn bodies(subscription: &Subscription) -> Vec<String> {
    deliver(subscription).into_iter().map(|(body, _)| body).collect()
}

fn settle_all(subscription: &Subscription, how: Settle) {
    subscription.settle(&[SequenceRange::ALL], how).unwrap();
}

fn counts(house: &House, queue: QueueId) -> QueueCounts {
    house.shard.queue_counts(&[queue]).unwrap()[0]
}

/// Ready ones, the waiting ones among them, and unacked ones.
fn numbers(house: &House) -> (u64, u64, u64) {
    let QueueCounts { ready_count, delayed_count, unacked_count, .. } = counts(house, QUEUE);
    (ready_count, delayed_count, unacked_count)
}

fn pass(house: &House, ms: u64) {
    house.shard.expire_due(YEAR_3000 + ms).unwrap();
}

#[test]
fn a_message_waits_longer_each_time_it_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let back_off = BackOff::Linear { min_ms: 100, max_ms: 250 };
    house.shard.schedule_retries([(QUEUE, Some(RetrySchedule { of: RetryType::All, back_off }))]).unwrap();
    publish(&house, &[(0, "a")]);
    let consumer = subscribe(&house, QUEUE);

    let mut now_ms = 0;
    for (count, delay_ms) in [(0, 100), (1, 200), (2, 250), (3, 250)] {
        assert_eq!(deliver(&consumer), [("a".to_owned(), count)]);
        settle_all(&consumer, if count % 2 == 0 { Settle::Requeue } else { Settle::RequeueFailed });
        assert_eq!((numbers(&house), bodies(&consumer).len()), ((1, 1, 0), 0));
        pass(&house, now_ms + delay_ms - 1);
        assert_eq!(bodies(&consumer).len(), 0);
        now_ms += delay_ms;
        pass(&house, now_ms);
        assert_eq!(numbers(&house), (1, 0, 0));
    }
    house.close();
}

#[test]
fn the_type_decides_who_waits_and_a_step_of_zero_does_not() {
    for (of, waits) in [(RetryType::Failed, [0, 1]), (RetryType::Returned, [1, 0]), (RetryType::All, [1, 1])] {
        for (how, waiting) in [Settle::Requeue, Settle::RequeueFailed].into_iter().zip(waits) {
            let directory = tempfile::tempdir().unwrap();
            let house = open(directory.path());
            steps(&house, of, &[1000]);
            publish(&house, &[(0, "a")]);
            let consumer = subscribe(&house, QUEUE);
            assert_eq!(bodies(&consumer), ["a"]);
            settle_all(&consumer, how);
            assert_eq!(numbers(&house), (1, waiting, 0), "{of:?} {how:?}");
            house.close();
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    steps(&house, RetryType::All, &[0, 1000]);
    publish(&house, &[(0, "a"), (0, "b")]);
    let consumer = subscribe(&house, QUEUE);
    assert_eq!(deliver(&consumer), [("a".into(), 0), ("b".into(), 0)]);
    settle_all(&consumer, Settle::Requeue);
    assert_eq!(deliver(&consumer), [("a".into(), 1), ("b".into(), 1)]);
    settle_all(&consumer, Settle::Requeue);
    assert_eq!(numbers(&house), (2, 2, 0));
    house.close();
}

#[test]
fn messages_of_a_lost_consumer_wait_and_those_that_it_never_got_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    steps(&house, RetryType::Failed, &[1000]);
    publish(&house, &[(0, "got"), (0, "taken")]);
    let consumer = subscribe(&house, QUEUE);
    let mut filled = Vec::new();
    consumer.fill(100, &mut filled).unwrap();
    consumer.sent(&[(Sequence(1), 3)]).unwrap();

    drop(consumer);

    assert_eq!(numbers(&house), (2, 1, 0));
    let next = subscribe(&house, QUEUE);
    assert_eq!(deliver(&next), [("taken".into(), 0)]);
    pass(&house, 1000);
    assert_eq!(deliver(&next), [("got".into(), 1)]);
    house.close();
}

#[test]
fn waiting_messages_keep_their_times_counts_and_priorities_over_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    steps(&house, RetryType::All, &[1000, 5000]);
    publish(&house, &[(0, "low"), (9, "high"), (0, "other")]);
    let consumer = subscribe(&house, QUEUE);
    assert_eq!(bodies(&consumer), ["high", "low", "other"]);
    settle_all(&consumer, Settle::Requeue);
    pass(&house, 1000);
    assert_eq!(bodies(&consumer), ["high", "low", "other"]);
    settle_all(&consumer, Settle::Requeue);
    std::mem::forget(consumer);
    std::mem::forget(house);

    let house = open(directory.path());
    let consumer = subscribe(&house, QUEUE);
    assert_eq!((numbers(&house), bodies(&consumer).len()), ((3, 3, 0), 0));
    pass(&house, 5999);
    assert_eq!(bodies(&consumer).len(), 0);
    pass(&house, 6000);
    assert_eq!(deliver(&consumer), [("high".into(), 2), ("low".into(), 2), ("other".into(), 2)]);
    house.close();
}

/// A transaction with one record was written without its time: after a kill the message was ready at once.
#[test]
fn a_message_that_a_transaction_returns_alone_keeps_its_time_over_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    steps(&house, RetryType::All, &[1000]);
    publish(&house, &[(0, "a")]);
    let consumer = subscribe(&house, QUEUE);
    assert_eq!(bodies(&consumer), ["a"]);
    let returned =
        TransactionSettlement { subscription: &consumer, ranges: &[SequenceRange::ALL], how: Settle::Requeue };
    let transaction = Transaction { batch: &[], settlements: &[returned], now_ms: YEAR_3000 };
    house.shard.commit(transaction, &mut Vec::new()).unwrap();
    assert_eq!(numbers(&house), (1, 1, 0));
    std::mem::forget(consumer);
    std::mem::forget(house);

    let house = open(directory.path());

    assert_eq!(numbers(&house), (1, 1, 0));
    pass(&house, 1000);
    assert_eq!(deliver(&subscribe(&house, QUEUE)), [("a".into(), 1)]);
    house.close();
}

#[test]
fn a_queue_that_counts_failures_keeps_the_counts_of_returned_messages_over_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    house.shard.count_failures([(QUEUE, true)]).unwrap();
    steps(&house, RetryType::All, &[1000, 5000]);
    publish(&house, &[(0, "a"), (9, "b"), (0, "c")]);
    let consumer = subscribe(&house, QUEUE);
    assert_eq!(bodies(&consumer), ["b", "a", "c"]);
    settle_all(&consumer, Settle::RequeueFailed);
    pass(&house, 1000);
    assert_eq!(deliver(&consumer), [("b".into(), 1), ("a".into(), 1), ("c".into(), 1)]);
    settle_all(&consumer, Settle::Requeue);
    assert_eq!(numbers(&house), (3, 3, 0), "the delay of the first delivery");
    std::mem::forget(consumer);
    std::mem::forget(house);

    let house = open(directory.path());
    let consumer = subscribe(&house, QUEUE);
    pass(&house, 1999);
    assert_eq!((numbers(&house), bodies(&consumer).len()), ((3, 3, 0), 0));
    pass(&house, 2000);
    assert_eq!(deliver(&consumer), [("b".into(), 1), ("a".into(), 1), ("c".into(), 1)]);
    house.close();
}

#[test]
fn messages_that_are_returned_are_never_over_the_limit_of_a_queue_that_counts_failures() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    house.shard.limit_deliveries([(QUEUE, Some(1))]).unwrap();
    house.shard.count_failures([(QUEUE, true)]).unwrap();
    publish(&house, &[(0, "a")]);
    let consumer = subscribe(&house, QUEUE);
    for how in [Settle::Requeue, Settle::Requeue, Settle::RequeueAt(YEAR_3000), Settle::RequeueFailed] {
        assert_eq!(deliver(&consumer), [("a".into(), 0)], "{how:?}");
        settle_all(&consumer, how);
    }

    assert_eq!(deliver(&consumer), [("a".into(), 1)]);
    settle_all(&consumer, Settle::Requeue);
    assert_eq!(deliver(&consumer), [("a".into(), 1)]);
    drop(consumer);
    while numbers(&house) != (0, 0, 0) {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    house.close();
}

#[test]
fn a_message_over_the_delivery_limit_leaves_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    steps(&house, RetryType::All, &[1000]);
    house.shard.limit_deliveries([(QUEUE, Some(1))]).unwrap();
    let to_dead = DeadLetters { exchange: String::new(), routing_key: Some("dead".into()), at_least_once: false };
    house.shard.route_dead_letters([(QUEUE, Some(to_dead))]).unwrap();
    publish(&house, &[(0, "a"), (0, "b")]);
    let consumer = subscribe(&house, QUEUE);
    bodies(&consumer);
    settle_all(&consumer, Settle::Requeue);
    pass(&house, 1000);
    assert_eq!(bodies(&consumer), ["a", "b"]);

    consumer.settle(&[SequenceRange::of(Sequence(1))], Settle::Requeue).unwrap();
    drop(consumer);
    while counts(&house, DEAD).ready_count < 2 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }

    assert_eq!(numbers(&house), (0, 0, 0));
    pass(&house, 9000);
    assert_eq!(bodies(&subscribe(&house, QUEUE)).len(), 0);
    house.close();
}

#[test]
fn waiting_messages_expire_by_their_own_times_and_age_once_they_are_ready() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    steps(&house, RetryType::All, &[1000]);
    let expires = Attributes { expires_at_ms: Some(YEAR_3000 + 500), ..Attributes::default() };
    publish_with(&house, &[(0, "expires")], expires);
    publish(&house, &[(0, "ages")]);
    let consumer = subscribe(&house, QUEUE);
    assert_eq!(bodies(&consumer), ["expires", "ages"]);
    settle_all(&consumer, Settle::Requeue);
    drop(consumer);
    house.shard.limit_ages([(QUEUE, Some(700))]).unwrap();

    pass(&house, 501);
    assert_eq!(numbers(&house), (1, 1, 0));
    pass(&house, 999);
    assert_eq!(numbers(&house), (1, 1, 0));
    pass(&house, 1000);
    assert_eq!(numbers(&house), (0, 0, 0));
    house.close();
}

/// The check of ages had no time for the queue while its first ready message was young, and came late for one that was released.
#[test]
fn an_old_message_that_becomes_ready_expires_before_younger_ones() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    steps(&house, RetryType::All, &[1000]);
    house.shard.limit_ages([(QUEUE, Some(900))]).unwrap();
    publish(&house, &[(0, "old")]);
    let consumer = subscribe(&house, QUEUE);
    assert_eq!(bodies(&consumer), ["old"]);
    settle_all(&consumer, Settle::Requeue);
    drop(consumer);
    pass(&house, 800);
    let payload = Payload::new(b"", b"s", b"", b"young").unwrap();
    let young = Publication { payload, exchange: b"", key: b"s", headers: None, persistent: false, mandatory: false };
    house.shard.publish(&[young], None, YEAR_3000 + 800, &mut Vec::new()).unwrap();
    pass(&house, 900);

    pass(&house, 1000);

    assert_eq!(numbers(&house), (1, 0, 0));
    assert_eq!(bodies(&subscribe(&house, QUEUE)), ["young"]);
    house.close();
}

#[test]
fn waiting_messages_count_for_the_length_and_are_left_by_a_purge() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    steps(&house, RetryType::All, &[1000]);
    publish(&house, &[(0, "a"), (0, "b")]);
    let consumer = subscribe(&house, QUEUE);
    bodies(&consumer);
    settle_all(&consumer, Settle::Requeue);
    drop(consumer);

    house.shard.limit_lengths([(QUEUE, Some(LengthLimit::of_messages(3, Overflow::DropHead)))]).unwrap();
    publish(&house, &[(0, "c"), (0, "d")]);
    assert_eq!(numbers(&house), (3, 2, 0), "the oldest ready message is dropped");
    assert_eq!(house.shard.purge_queue(QUEUE).unwrap(), 1);
    assert_eq!(numbers(&house), (2, 2, 0));

    pass(&house, 1000);
    assert_eq!(bodies(&subscribe(&house, QUEUE)), ["a", "b"]);
    house.close();
}

#[test]
fn the_next_active_consumer_gets_what_the_lost_one_had_after_the_back_off() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    steps(&house, RetryType::Failed, &[1000]);
    let rules = penstock_engine::ConsumerRules { single_active: true, ack_timeout_ms: None };
    house.shard.rule_consumers([(QUEUE, rules)]).unwrap();
    publish(&house, &[(0, "a"), (0, "b")]);
    let (first, second) = (subscribe(&house, QUEUE), subscribe(&house, QUEUE));
    assert_eq!((bodies(&first), bodies(&second)), (vec!["a".into(), "b".into()], vec![]));

    drop(first);
    publish(&house, &[(0, "c")]);
    assert_eq!(bodies(&second), ["c"]);
    pass(&house, 1000);
    assert_eq!(bodies(&second), ["a", "b"]);
    house.close();
}

/// While a dead letter stayed in any queue, they were looked for among the messages without a priority: they waited until the next
/// start, and others were ready before their time.
#[test]
fn messages_of_a_priority_are_ready_at_their_times_while_a_dead_letter_stays() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let nowhere = DeadLetters { exchange: "nowhere".to_owned(), routing_key: None, at_least_once: true };
    house.shard.route_dead_letters([(DEAD, Some(nowhere))]).unwrap();
    let payload = Payload::new(b"", b"dead", b"", b"stays").unwrap();
    let stays =
        Publication { payload, exchange: b"", key: b"dead", headers: None, persistent: false, mandatory: false };
    house.shard.publish(&[stays], None, YEAR_3000, &mut Vec::new()).unwrap();
    let rejecting = subscribe(&house, DEAD);
    assert_eq!(bodies(&rejecting), ["stays"]);
    settle_all(&rejecting, Settle::Reject);
    publish(&house, &[(5, "high"), (0, "low")]);
    let consumer = subscribe(&house, QUEUE);
    steps(&house, RetryType::All, &[1000]);
    assert_eq!(bodies(&consumer), ["high", "low"]);
    let [low, high] = [Sequence(1), Sequence(1).in_lane(5)].map(SequenceRange::of);
    consumer.settle(&[low], Settle::RequeueAt(YEAR_3000 + 5000)).unwrap();
    consumer.settle(&[high], Settle::Requeue).unwrap();
    assert_eq!(numbers(&house), (2, 2, 0));

    pass(&house, 1000);
    assert_eq!((numbers(&house), bodies(&consumer)), ((2, 1, 0), vec!["high".to_owned()]));
    pass(&house, 5000);
    assert_eq!(bodies(&consumer), ["low"]);
    assert_eq!(counts(&house, DEAD).ready_count, 1);
    house.close();
}
