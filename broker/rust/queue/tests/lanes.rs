//! Queues with lanes: which messages are taken first, and that each lane is settled by itself.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use penstock_queue::{AckSet, Queue, Sequence, SequenceRange, Settle, Settling, SubscriptionSettings, Taken};

const SETTINGS: SubscriptionSettings = SubscriptionSettings { prefetch: 1000, auto_ack: false, exclusive: false };

fn publish(queue: &mut Queue, lanes: &[u16]) {
    for &lane in lanes {
        let sequence = queue.publish_in(lane, Sequence::FIRST, 10, false);
        assert_eq!(sequence.lane(), lane);
    }
    queue.check_invariants();
}

fn take(queue: &mut Queue, id: penstock_queue::SubscriptionId, count: u32) -> Vec<(u16, u64)> {
    let mut taken: Vec<Taken> = Vec::new();
    queue.take(id, count, &mut taken);
    queue.check_invariants();
    taken.iter().map(|taken| (taken.sequence.lane(), taken.sequence.within().0)).collect()
}

#[test]
fn the_highest_lane_is_taken_first_and_each_in_its_order() {
    let mut queue = Queue::new();
    publish(&mut queue, &[0, 2, 0, 255, 2, 1]);
    let id = queue.subscribe(SETTINGS).unwrap();

    assert_eq!(take(&mut queue, id, 2), [(255, 1), (2, 1)]);
    publish(&mut queue, &[255, 0]);

    assert_eq!(take(&mut queue, id, 100), [(255, 2), (2, 2), (1, 1), (0, 1), (0, 2), (0, 3)]);
    assert_eq!((queue.ready_count(), queue.unacked_count()), (0, 8));
}

#[test]
fn a_settlement_of_everything_is_done_lane_by_lane() {
    let mut queue = Queue::new();
    publish(&mut queue, &[0, 2, 0, 255, 2, 1]);
    let id = queue.subscribe(SETTINGS).unwrap();
    take(&mut queue, id, 100);
    let all = [SequenceRange::ALL];
    let (mut settling, mut parts) = (Settling::of(&all), Vec::new());

    while !settling.is_done() {
        let part = queue.settle_some(id, &mut settling, Settle::Ack, 100);
        queue.check_invariants();
        parts.push((part.ranges[0].first.lane(), part.count));
    }

    assert_eq!(parts, [(0, 2), (1, 1), (2, 2), (255, 1)]);
    assert_eq!(queue.unacked_count(), 0);
}

#[test]
fn what_comes_back_has_its_place_in_its_lane() {
    let mut queue = Queue::new();
    publish(&mut queue, &[0, 2, 2, 2]);
    let id = queue.subscribe(SETTINGS).unwrap();
    assert_eq!(take(&mut queue, id, 2), [(2, 1), (2, 2)]);
    let second = Sequence(2).in_lane(2);

    queue.settle(id, &[SequenceRange { first: second, last: second }], Settle::Requeue);
    queue.check_invariants();

    assert_eq!(take(&mut queue, id, 9), [(2, 2), (2, 3), (0, 1)]);
}

#[test]
fn a_queue_found_by_a_start_becomes_a_lane_with_all_it_has() {
    let settled = {
        let mut settled = AckSet::starting_at(Sequence(3));
        settled.insert(SequenceRange { first: Sequence(5), last: Sequence(70_000) });
        settled.insert(SequenceRange { first: Sequence(70_002), last: Sequence(1 << 32) });
        settled
    };
    let counts = BTreeMap::from([(Sequence(4), 2)]);
    let next = Sequence((1 << 32) + 3);
    let mut found = Queue::recovered(next, settled, 5, 500, counts);
    found.set_perhaps_delivered_below(Sequence(5));
    found.delay_recovered(Sequence(70_001));
    let mut queue = Queue::new();
    publish(&mut queue, &[0]);

    queue.put_lane(7, found);
    queue.check_invariants();

    assert_eq!((queue.ready_count(), queue.free_count(), queue.ready_bytes()), (5, 6, 510));
    let id = queue.subscribe(SETTINGS).unwrap();
    let mut taken = Vec::new();
    queue.take(id, 100, &mut taken);
    queue.check_invariants();
    let found: Vec<_> = taken
        .iter()
        .map(|one| (one.sequence.lane(), one.sequence.within().0, one.delivery_count, one.redelivered))
        .collect();
    let after = (1 << 32) + 1;
    let lane = [(7, 3, 0, true), (7, 4, 2, true), (7, after, 0, false), (7, after + 1, 0, false)];
    assert_eq!(found, [&lane[..], &[(0, 1, 0, false)]].concat());
    assert_eq!(queue.release(&[Sequence(70_001).in_lane(7)]), 1);
    assert_eq!(take(&mut queue, id, 100), [(7, 70_001)]);
}

#[test]
fn a_lane_is_purged_alone() {
    let mut queue = Queue::new();
    publish(&mut queue, &[0, 2, 2, 3]);

    let purged = queue.purge_lane(2, 10);
    queue.check_invariants();

    assert_eq!((purged.count, purged.bytes), (2, 20));
    assert_eq!(queue.ready_count(), 2);
    assert_eq!(queue.lanes().collect::<Vec<_>>(), [2, 3]);
}
