//! Which consumers of a queue may take: priorities, and a single active one.
#![allow(clippy::unwrap_used)]

use penstock_queue::{
    CONSUMER_PRIORITIES_MAX, Queue, QueueError, Rank, Sequence, SequenceRange, Settle, SubscriptionId,
    SubscriptionSettings,
};

const SETTINGS: SubscriptionSettings = SubscriptionSettings { prefetch: 2, auto_ack: false, exclusive: false };

fn join(queue: &mut Queue, priority: i32) -> SubscriptionId {
    queue.subscribe_as(SETTINGS, Rank::Consumer(priority)).unwrap()
}

fn take(queue: &mut Queue, id: SubscriptionId) -> Vec<u64> {
    let mut taken = Vec::new();
    queue.take(id, 10, &mut taken);
    if taken.is_empty() {
        queue.wait(id);
    }
    queue.check_invariants();
    taken.iter().map(|taken| taken.sequence.0).collect()
}

fn publish(queue: &mut Queue, count: usize) {
    for _ in 0..count {
        queue.publish(1);
    }
}

#[test]
fn lower_priorities_take_once_the_higher_ones_have_no_credit() {
    let mut queue = Queue::new();
    let [low, high, middle] = [-1, 7, 3].map(|priority| join(&mut queue, priority));
    for id in [low, high, middle] {
        assert_eq!(take(&mut queue, id), [0; 0]);
    }
    publish(&mut queue, 6);

    assert_eq!(queue.wakes(), 1);
    assert_eq!(queue.next_to_wake(), Some(high));
    assert_eq!(queue.next_to_wake(), None, "others are woken when that one has taken");
    assert_eq!(take(&mut queue, middle), [0; 0]);
    assert_eq!(take(&mut queue, high), [1, 2]);
    assert_eq!(queue.next_to_wake(), Some(middle));
    assert_eq!(take(&mut queue, middle), [3, 4]);
    assert_eq!(take(&mut queue, low), [5, 6]);

    publish(&mut queue, 1);
    queue.settle(high, &[SequenceRange { first: Sequence(1), last: Sequence(1) }], Settle::Ack);
    queue.settle(low, &[SequenceRange::ALL], Settle::Ack);
    assert_eq!(take(&mut queue, low), [0; 0]);
    assert_eq!(take(&mut queue, high), [7]);
}

#[test]
fn consumers_of_one_priority_share_whatever_others_there_are() {
    let mut queue = Queue::new();
    let (_, one, other) = (join(&mut queue, 0), join(&mut queue, 5), join(&mut queue, 5));
    publish(&mut queue, 2);

    assert_eq!(take(&mut queue, one), [1]);
    assert_eq!(take(&mut queue, other), [2]);
}

#[test]
fn a_consumer_that_is_held_up_or_leaves_lets_lower_ones_take() {
    let mut queue = Queue::new();
    let (low, high) = (join(&mut queue, 0), join(&mut queue, 1));
    publish(&mut queue, 3);
    assert_eq!(take(&mut queue, low), [0; 0]);

    queue.hold_up(high, true);
    queue.check_invariants();
    assert_eq!(queue.next_to_wake(), Some(low));
    assert_eq!(take(&mut queue, low), [1, 2]);
    queue.settle(low, &[SequenceRange::ALL], Settle::Ack);
    assert_eq!(take(&mut queue, high), [3], "it has its turn again when it looks");

    publish(&mut queue, 1);
    assert_eq!(take(&mut queue, low), [0; 0]);
    queue.unsubscribe(high);
    queue.check_invariants();
    assert_eq!(take(&mut queue, low), [3, 4]);
}

#[test]
fn one_consumer_is_active_and_the_first_of_the_highest_priority_is_next() {
    let mut queue = Queue::new();
    queue.set_single_active(true);
    let [first, second, third, fourth] = [0, 1, 9, 9].map(|priority| join(&mut queue, priority));
    publish(&mut queue, 9);
    for id in [second, third, fourth] {
        assert_eq!(take(&mut queue, id), [0; 0]);
        assert!(queue.stands_by(id));
    }
    assert_eq!(queue.next_to_wake(), None, "the active one is busy");
    assert_eq!(take(&mut queue, first), [1, 2]);
    assert_eq!(take(&mut queue, first), [0; 0]);
    assert_eq!(queue.next_to_wake(), None, "the active one has no credit");

    queue.unsubscribe(first);
    assert_eq!((queue.active(), queue.next_to_wake()), (Some(third), Some(third)));
    assert_eq!(take(&mut queue, third), [1, 2]);
    queue.unsubscribe(second);
    queue.retire(third);
    assert_eq!(queue.active(), Some(fourth));
    assert_eq!(take(&mut queue, third), [0; 0]);
    assert_eq!(take(&mut queue, fourth), [3, 4]);
    queue.unsubscribe(fourth);
    assert_eq!(queue.active(), None);
    queue.check_invariants();
}

#[test]
fn a_consumer_that_retired_does_not_become_active() {
    let mut queue = Queue::new();
    let (first, second) = (join(&mut queue, 0), join(&mut queue, 0));
    queue.retire(first);
    queue.set_single_active(true);
    assert_eq!(queue.active(), Some(second));

    queue.retire(second);
    queue.check_invariants();

    assert_eq!(queue.active(), None);
    let third = join(&mut queue, 0);
    assert_eq!(queue.active(), Some(third));
}

#[test]
fn those_that_stand_by_are_not_about_to_take() {
    let mut queue = Queue::new();
    let (first, second) = (join(&mut queue, 0), join(&mut queue, 0));
    for id in [first, second] {
        assert_eq!(take(&mut queue, id), [0; 0]);
    }
    assert_eq!((queue.eager_credit(3), queue.eager_credit(9)), (3, 4));

    queue.set_single_active(true);
    assert_eq!((queue.eager_credit(1), queue.eager_credit(9)), (1, 2));

    publish(&mut queue, 2);
    assert_eq!(take(&mut queue, first), [1, 2]);
    assert_eq!(queue.eager_credit(9), 0);
}

#[test]
fn a_pull_takes_whoever_is_active() {
    let mut queue = Queue::new();
    queue.set_single_active(true);
    join(&mut queue, 0);
    let pull = queue.subscribe_as(SETTINGS, Rank::Pull).unwrap();
    publish(&mut queue, 1);

    assert_eq!(take(&mut queue, pull), [1]);
}

#[test]
fn the_number_of_priorities_is_bounded() {
    let mut queue = Queue::new();
    let ids: Vec<_> = (0..CONSUMER_PRIORITIES_MAX as i32).map(|priority| join(&mut queue, priority)).collect();

    assert_eq!(queue.subscribe_as(SETTINGS, Rank::Consumer(-1)), Err(QueueError::TooManyPriorities));
    join(&mut queue, 5);
    queue.unsubscribe(ids[0]);
    join(&mut queue, -1);
    queue.check_invariants();
}
