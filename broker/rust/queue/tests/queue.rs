//! Behaviour of a queue, one sentence per test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use penstock_queue::{
    AckSet, Queue, QueueError, Sequence, SequenceRange, Settle, Settling, SubscriptionId, SubscriptionSettings, Taken,
};

fn settings(prefetch: u32) -> SubscriptionSettings {
    SubscriptionSettings { prefetch, auto_ack: false, exclusive: false }
}

fn queue_of(count: u32) -> Queue {
    let mut queue = Queue::new();
    for _ in 0..count {
        queue.publish(10);
    }
    queue
}

/// Takes its share, reports sizes and sending, as a delivery does.
fn deliver(queue: &mut Queue, id: SubscriptionId) -> Vec<(u64, u32)> {
    let mut taken: Vec<Taken> = Vec::new();
    queue.take(id, 1_000, &mut taken);
    queue.sized(id, &taken.iter().map(|message| (message.sequence, 10)).collect::<Vec<_>>());
    taken.iter().for_each(|message| queue.sent(id, &[range(message.sequence.0, message.sequence.0)]));
    taken.iter().map(|message| (message.sequence.0, message.delivery_count)).collect()
}

fn range(first: u64, last: u64) -> SequenceRange {
    SequenceRange { first: Sequence(first), last: Sequence(last) }
}

#[test]
fn messages_are_delivered_in_the_order_they_were_published() {
    let mut queue = queue_of(3);
    let id = queue.subscribe(settings(10)).unwrap();

    assert_eq!(deliver(&mut queue, id), [(1, 0), (2, 0), (3, 0)]);
}

#[test]
fn a_requeued_message_returns_to_its_place_and_says_that_it_was_delivered_before() {
    let mut queue = queue_of(4);
    let id = queue.subscribe(settings(2)).unwrap();
    deliver(&mut queue, id);

    let settled = queue.settle(id, &[range(2, 2)], Settle::Requeue);

    assert_eq!(settled.ranges, [range(2, 2)]);
    assert_eq!(deliver(&mut queue, id), [(2, 1)]);
    assert_eq!(queue.ready_count(), 2);
}

#[test]
fn a_queue_that_counts_failures_counts_no_message_that_its_consumer_returns() {
    let mut queue = queue_of(3);
    queue.set_counts_failures(true);
    let id = queue.subscribe(settings(3)).unwrap();
    deliver(&mut queue, id);
    queue.settle(id, &[range(1, 1)], Settle::Requeue);
    queue.settle(id, &[range(2, 2)], Settle::RequeueFailed);
    queue.unsubscribe(id);

    let id = queue.subscribe(settings(3)).unwrap();
    let mut taken = Vec::new();
    queue.take(id, 3, &mut taken);

    let found: Vec<_> = taken.iter().map(|one| (one.sequence.0, one.delivery_count, one.redelivered)).collect();
    assert_eq!(found, [(1, 0, true), (2, 1, true), (3, 1, true)]);
}

#[test]
fn a_message_that_waits_uncounted_is_redelivered_when_it_is_ready() {
    let mut queue = queue_of(2);
    queue.set_counts_failures(true);
    let id = queue.subscribe(settings(2)).unwrap();
    deliver(&mut queue, id);

    queue.settle(id, &[range(1, 1)], Settle::RequeueAt(0));
    queue.settle(id, &[range(2, 2)], Settle::FailedAside);
    assert_eq!((queue.ready_count(), queue.delayed_count()), (0, 2));
    queue.release(&[Sequence(1), Sequence(2)]);
    let mut taken = Vec::new();
    queue.take(id, 2, &mut taken);

    let found: Vec<_> = taken.iter().map(|one| (one.sequence.0, one.delivery_count, one.redelivered)).collect();
    assert_eq!(found, [(1, 0, true), (2, 1, true)]);
}

#[test]
fn what_an_ended_subscription_held_goes_to_another_one_first() {
    let mut queue = queue_of(5);
    let gone = queue.subscribe(settings(2)).unwrap();
    deliver(&mut queue, gone);
    queue.settle(gone, &[range(1, 1)], Settle::Ack);

    assert_eq!(queue.unsubscribe(gone), [range(2, 2)]);

    let id = queue.subscribe(settings(10)).unwrap();
    assert_eq!(deliver(&mut queue, id), [(2, 1), (3, 0), (4, 0), (5, 0)]);
}

#[test]
fn a_subscription_cannot_settle_what_another_one_holds() {
    let mut queue = queue_of(2);
    let (one, other) = (queue.subscribe(settings(1)).unwrap(), queue.subscribe(settings(1)).unwrap());
    assert_eq!(deliver(&mut queue, one), [(1, 0)]);
    assert_eq!(deliver(&mut queue, other), [(2, 0)]);

    let settled = queue.settle(one, &[range(0, u64::MAX)], Settle::Ack);

    assert_eq!((settled.count, settled.bytes, settled.ranges), (1, 10, vec![range(1, 1)]));
    assert_eq!(queue.unacked_count(), 1);
}

#[test]
fn a_consumer_gets_no_more_than_its_share_while_others_have_credit() {
    let mut queue = queue_of(12);
    let ids: Vec<_> = (0..3).map(|_| queue.subscribe(settings(100)).unwrap()).collect();

    assert_eq!(deliver(&mut queue, ids[0]).len(), 4);
}

#[test]
fn turns_go_round_among_consumers_that_wait_and_have_credit() {
    let mut queue = queue_of(10);
    let ids: Vec<_> = [5, 0, 5, 5].map(|prefetch| queue.subscribe(settings(prefetch)).unwrap()).into();
    ids[..3].iter().for_each(|&id| queue.wait(id));
    assert_eq!(queue.wakes(), 2);

    assert_eq!(queue.next_to_wake(), Some(ids[0]));
    queue.wait(ids[0]);

    assert_eq!(queue.next_to_wake(), Some(ids[2]));
    assert_eq!(queue.next_to_wake(), Some(ids[0]));
    assert_eq!((queue.wakes(), queue.next_to_wake()), (0, None), "who was woken does not wait any more");
    queue.set_prefetch(ids[1], 1);
    assert_eq!(queue.next_to_wake(), Some(ids[1]), "it waited for credit");
}

#[test]
fn who_took_something_is_not_woken_before_it_waits_again() {
    let mut queue = queue_of(2);
    let [busy, idle] = [0, 5].map(|prefetch| queue.subscribe(settings(prefetch)).unwrap());
    queue.wait(busy);
    queue.set_prefetch(busy, 5);
    queue.take(busy, 1, &mut Vec::new());
    queue.wait(idle);

    assert_eq!(queue.next_to_wake(), Some(idle));
}

#[test]
fn nobody_is_woken_when_nothing_is_ready() {
    let mut queue = Queue::new();
    let id = queue.subscribe(settings(1)).unwrap();
    queue.wait(id);

    assert_eq!(queue.next_to_wake(), None);
}

#[test]
fn a_purge_leaves_unacked_messages_where_they_are() {
    let mut queue = queue_of(5);
    let id = queue.subscribe(settings(2)).unwrap();
    deliver(&mut queue, id);

    let purged = queue.purge(usize::MAX);

    assert_eq!((purged.count, purged.bytes, purged.ranges), (3, 30, vec![range(3, 5)]));
    assert_eq!((queue.ready_count(), queue.ready_bytes(), queue.unacked_count()), (0, 0, 2));
}

/// After a start a queue may have a settled message beside each ready one, and a purge was one settlement of all of them.
#[test]
fn a_purge_of_scattered_messages_goes_in_parts() {
    let mut settled = AckSet::starting_at(Sequence(1));
    (1..=10).for_each(|number| settled.insert(range(2 * number, 2 * number)));
    let mut queue = Queue::recovered(Sequence(22), settled, 11, 25, BTreeMap::new());

    let first = queue.purge(4);
    queue.check_invariants();
    assert_eq!((first.count, first.bytes, first.ranges.last()), (4, 9, Some(&range(7, 7))));
    assert_eq!((queue.ready_count(), queue.ready_bytes()), (7, 16));
    queue.publish(3);

    let rest = [queue.purge(4), queue.purge(4), queue.purge(4)];
    queue.check_invariants();
    assert_eq!(rest.each_ref().map(|part| (part.count, part.ranges.len())), [(4, 4), (4, 3), (0, 0)]);
    assert_eq!(rest[1].ranges[2], range(21, 22));
    assert_eq!(rest.iter().map(|part| part.bytes).sum::<u64>(), 19);
    assert_eq!((queue.ready_count(), queue.ready_bytes()), (0, 0));
}

#[test]
fn sizes_told_after_a_purge_take_nothing_from_what_was_published_since() {
    let mut queue = queue_of(2);
    let id = queue.subscribe(settings(1)).unwrap();
    let mut taken = Vec::new();
    queue.take(id, 1, &mut taken);
    queue.purge(usize::MAX);
    queue.publish(7);

    queue.sized(id, &[(Sequence(1), 10)]);

    assert_eq!((queue.ready_bytes(), queue.unacked_bytes()), (7, 10));
}

#[test]
fn an_exclusive_subscription_has_the_queue_for_itself() {
    let mut queue = Queue::new();
    let exclusive = SubscriptionSettings { exclusive: true, ..settings(1) };
    let first = queue.subscribe(settings(1)).unwrap();
    assert_eq!(queue.subscribe(exclusive), Err(QueueError::AlreadyConsumed { count: 1 }));

    queue.unsubscribe(first);
    let only = queue.subscribe(exclusive).unwrap();
    assert_eq!(queue.subscribe(settings(1)), Err(QueueError::HeldExclusively));

    queue.unsubscribe(only);
    assert!(queue.subscribe(settings(1)).is_ok());
}

#[test]
fn a_subscription_that_retired_keeps_what_it_holds_and_hinders_no_exclusive_one() {
    let mut queue = Queue::new();
    queue.publish(1);
    queue.publish(1);
    let exclusive = SubscriptionSettings { exclusive: true, ..settings(10) };
    let first = queue.subscribe(exclusive).unwrap();
    let mut taken = Vec::new();
    queue.take(first, 1, &mut taken);

    queue.retire(first);
    let second = queue.subscribe(exclusive).unwrap();
    queue.take(first, 1, &mut taken);
    queue.take(second, 10, &mut taken);
    queue.check_invariants();

    assert_eq!(taken.len(), 2, "the first one took more");
    assert_eq!((queue.unsettled_of(first), queue.unsettled_of(second)), (1, 1));
    queue.unsubscribe(first);
    queue.check_invariants();
    assert_eq!(queue.subscribe(settings(1)), Err(QueueError::HeldExclusively), "the second one is alone still");
    assert_eq!(queue.ready_count(), 1);
}

#[test]
fn the_id_of_an_ended_subscription_does_not_find_the_next_one() {
    let mut queue = queue_of(1);
    let ended = queue.subscribe(settings(1)).unwrap();
    queue.unsubscribe(ended);
    let id = queue.subscribe(settings(1)).unwrap();

    queue.set_prefetch(ended, 0);
    assert_eq!(deliver(&mut queue, ended), []);
    assert_eq!(deliver(&mut queue, id), [(1, 0)]);
    assert!(queue.unsubscribe(ended).is_empty());
}

#[test]
fn after_a_start_skipped_numbers_are_passed_over_and_counts_are_remembered() {
    let mut settled = AckSet::default();
    settled.insert(range(2, 3));
    settled.insert(range(6, 1 << 32));
    let next = Sequence((1 << 32) + 1);
    let counts = BTreeMap::from([(Sequence(4), 2), (Sequence(2), 9)]);
    let mut queue = Queue::recovered(next, settled, 3, 30, counts);
    let id = queue.subscribe(settings(10)).unwrap();

    assert_eq!(queue.publish(10), next);
    assert_eq!(deliver(&mut queue, id), [(1, 0), (4, 2), (5, 0), (next.0, 0)]);
    assert_eq!((queue.ready_bytes(), queue.unacked_bytes()), (0, 40));
}

/// The next take underflowed, which stopped the log of the queue.
#[test]
fn a_message_that_waits_from_a_start_on_keeps_its_count() {
    let counts = BTreeMap::from([(Sequence(1), 1), (Sequence(2), 3)]);
    let mut queue = Queue::recovered(Sequence(5), AckSet::default(), 4, 40, counts);
    let id = queue.subscribe(settings(10)).unwrap();

    queue.delay_recovered(Sequence(1));
    queue.delay_recovered(Sequence(2));

    queue.check_invariants();
    assert_eq!(deliver(&mut queue, id), [(3, 0), (4, 0)]);
    assert_eq!(queue.release(&[Sequence(1), Sequence(2)]), 2);
    queue.check_invariants();
    assert_eq!(deliver(&mut queue, id), [(1, 1), (2, 3)]);
    queue.check_invariants();
}

/// A check of ages finds out later than a consumer takes it.
#[test]
fn a_message_that_came_back_may_wait_as_well_and_one_that_was_released_stays_ready() {
    let mut queue = Queue::recovered(Sequence(5), AckSet::default(), 4, 40, BTreeMap::new());
    let id = queue.subscribe(settings(10)).unwrap();
    let mut taken = Vec::new();
    queue.take(id, 2, &mut taken);
    queue.put_back(id, &[SequenceRange::of(Sequence(1))]);

    for sequence in [1, 2, 3] {
        queue.delay_recovered(Sequence(sequence));
        queue.check_invariants();
    }

    assert_eq!((queue.ready_count(), queue.delayed_count(), queue.ready_bytes()), (1, 2, 40));
    assert_eq!(queue.release(&[Sequence(1), Sequence(2), Sequence(3)]), 2);
    queue.delay_recovered(Sequence(3));
    queue.check_invariants();
    queue.put_back(id, &[SequenceRange::of(Sequence(2))]);
    assert_eq!(deliver(&mut queue, id), [(1, 0), (2, 0), (3, 0), (4, 0)]);
    queue.check_invariants();
}

#[test]
fn a_purge_leaves_delayed_messages_their_counts() {
    let counts = BTreeMap::from([(Sequence(2), 2)]);
    let mut queue = Queue::recovered(Sequence(5), AckSet::default(), 4, 40, counts);
    let id = queue.subscribe(settings(10)).unwrap();
    queue.delay_recovered(Sequence(2));

    assert_eq!(queue.purge(usize::MAX >> 1).count, 3);

    queue.check_invariants();
    assert_eq!(queue.release(&[Sequence(2)]), 1);
    assert_eq!(deliver(&mut queue, id), [(2, 2)]);
    queue.check_invariants();
}

#[test]
fn a_checkpoint_that_settles_numbers_not_given_yet_makes_them_given() {
    let queue = Queue::recovered(Sequence(1), AckSet::starting_at(Sequence(9)), 0, 5, BTreeMap::new());

    assert_eq!((queue.next(), queue.ready_count(), queue.ready_bytes()), (Sequence(9), 0, 0));
    queue.check_invariants();
}

#[test]
fn a_queue_holds_after_a_start_what_a_lease_held_and_the_rest_is_ready() {
    let settled = AckSet::starting_at(Sequence(3));
    let mut queue = Queue::recovered(Sequence(11), settled, 8, 80, BTreeMap::from([(Sequence(4), 2)]));
    let ranges = [range(4, 5), range(8, 9)];

    let lease = queue.hold(&ranges, 40);

    queue.check_invariants();
    assert_eq!((queue.held(lease).count, queue.held(lease).ranges), (4, ranges.to_vec()));
    assert_eq!((queue.ready_count(), queue.unacked_count()), (4, 4));
    assert_eq!((queue.ready_bytes(), queue.unacked_bytes()), (40, 40));
    let other = queue.subscribe(settings(10)).unwrap();
    assert_eq!(deliver(&mut queue, other), [(3, 0), (6, 0), (7, 0), (10, 0)]);
    assert_eq!(queue.unsubscribe(lease), ranges);
    assert_eq!(deliver(&mut queue, other), [(4, 3), (5, 1), (8, 1), (9, 1)]);
    queue.check_invariants();
}

/// A start makes returned messages wait, also when their time has passed since and a lease took them.
#[test]
fn a_lease_holds_after_a_start_also_what_would_wait() {
    let counts = BTreeMap::from([(Sequence(1), 2), (Sequence(3), 1), (Sequence(4), 1), (Sequence(6), 3)]);
    let mut queue = Queue::recovered(Sequence(9), AckSet::default(), 8, 80, counts);
    [1, 2, 4, 6, 7, 8].into_iter().for_each(|number| queue.delay_recovered(Sequence(number)));
    // It is ready below the first one that was never taken.
    assert_eq!(queue.release(&[Sequence(2)]), 1);
    let ranges = [range(1, 4), range(6, 6), range(8, 8)];

    let lease = queue.hold(&ranges, 60);

    queue.check_invariants();
    assert_eq!((queue.held(lease).count, queue.held(lease).ranges), (6, ranges.to_vec()));
    assert_eq!((queue.ready_count(), queue.delayed_count(), queue.unacked_count()), (1, 1, 6));
    assert_eq!((queue.ready_bytes(), queue.unacked_bytes()), (20, 60));
    // Their times have no effect while the lease has them.
    assert_eq!(queue.release(&(1..=8).map(Sequence).collect::<Vec<_>>()), 1);
    let other = queue.subscribe(settings(10)).unwrap();
    assert_eq!(deliver(&mut queue, other), [(5, 0), (7, 0)]);
    assert_eq!(queue.unsubscribe(lease), ranges);
    assert_eq!(deliver(&mut queue, other), [(1, 3), (2, 1), (3, 2), (4, 2), (6, 4), (8, 1)]);
    queue.check_invariants();
}

#[test]
fn what_is_put_back_was_never_delivered() {
    let mut queue = queue_of(4);
    let id = queue.subscribe(settings(10)).unwrap();
    deliver(&mut queue, id);

    assert_eq!(queue.put_back(id, &[range(2, 3)]), 2);

    queue.check_invariants();
    assert_eq!((queue.ready_bytes(), queue.unacked_bytes()), (20, 20));
    assert_eq!(deliver(&mut queue, id), [(2, 0), (3, 0)]);
}

#[test]
fn what_never_went_out_comes_back_as_if_nobody_had_had_it() {
    let mut queue = queue_of(3);
    let gone = queue.subscribe(settings(3)).unwrap();
    queue.take(gone, 3, &mut Vec::new());
    queue.sent(gone, &[range(1, 1)]);

    assert_eq!(queue.unsubscribe(gone), [range(1, 1)]);

    let id = queue.subscribe(settings(3)).unwrap();
    assert_eq!(deliver(&mut queue, id), [(1, 1), (2, 0), (3, 0)]);
}

#[test]
fn what_may_have_gone_out_before_a_start_is_flagged_and_not_counted() {
    let mut queue = Queue::recovered(Sequence(5), AckSet::default(), 4, 40, BTreeMap::new());
    queue.set_perhaps_delivered_below(Sequence(3));
    let id = queue.subscribe(settings(10)).unwrap();

    let mut taken = Vec::new();
    queue.take(id, 10, &mut taken);

    let flags: Vec<_> = taken.iter().map(|one| (one.sequence.0, one.redelivered, one.delivery_count)).collect();
    assert_eq!(flags, [(1, true, 0), (2, true, 0), (3, false, 0), (4, false, 0)]);
}

/// How many parts it takes to settle every message of these ranges, each at most so many messages.
fn parts(queue: &mut Queue, id: SubscriptionId, ranges: &[SequenceRange], steps_max: usize) -> (u64, u64) {
    let (mut count, mut parts) = (0, 0);
    let mut settling = Settling::of(ranges);
    while !settling.is_done() {
        count += queue.settle_some(id, &mut settling, Settle::Ack, steps_max).count;
        parts += 1;
    }
    (count, parts)
}

#[test]
fn messages_settled_out_of_the_middle_go_in_parts_that_move_little() {
    let mut queue = queue_of(65_535);
    let id = queue.subscribe(settings(65_535)).unwrap();
    queue.take(id, 65_535, &mut Vec::new());
    let singles: Vec<_> = (0..4_096).map(|number| range(28_673 + 2 * number, 28_673 + 2 * number)).collect();

    let (count, parts) = parts(&mut queue, id, &singles, 4_096);

    assert_eq!(count, 4_096);
    // Each of them makes at least 28,672 others move, so ten of them are more than a part may cost.
    assert!(parts >= 4_096 / 10, "{parts} parts");
    queue.check_invariants();
}

#[test]
fn messages_settled_in_the_order_they_were_taken_need_no_further_parts() {
    let mut queue = queue_of(65_535);
    let id = queue.subscribe(settings(65_535)).unwrap();
    queue.take(id, 65_535, &mut Vec::new());

    assert_eq!(parts(&mut queue, id, &[SequenceRange::ALL], 4_096), (65_535, 16));
}
