//! Consumers that share a credit hold no more than it allows together, and none of them is forgotten.
#![allow(clippy::unwrap_used)]

mod house;

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use house::{House, open, open_queue, publish};
use penstock_engine::{
    Credit, Payload, Publication, QueueId, Sequence, SequenceRange, Settle, Shard, Subscription, SubscriptionOptions,
};

/// The house's own queue.
const QUEUE: QueueId = house::STREAM;

fn subscribe(shard: &Arc<Shard>, queue: QueueId, prefetch: u32, credit: &Arc<Credit>) -> Subscription {
    let options = SubscriptionOptions { prefetch, auto_ack: false, exclusive: false, pull: false };
    shard.home_of(queue).subscribe_with(queue, options, Arc::default(), Some(credit)).unwrap()
}

/// Takes at most so many messages; returns their sequences.
fn take(subscription: &Subscription, count_max: u32) -> Vec<Sequence> {
    let mut filled = Vec::new();
    subscription.fill(count_max, &mut filled).unwrap();
    filled.iter().flat_map(|filled| &filled.picked).map(|picked| picked.taken.sequence).collect()
}

fn is_woken(subscription: &Subscription) -> bool {
    let heard = pin!(subscription.signal().heard());
    heard.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn with_messages(directory: &Path, count: usize) -> House {
    let house = open_queue(directory);
    publish(&house, &vec!["a"; count]);
    house
}

#[test]
fn they_hold_no_more_together_than_it_allows() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_messages(directory.path(), 60);
    let credit = Arc::new(Credit::new(5));
    let [one, other] = [3, 100].map(|prefetch| subscribe(&house.shard, QUEUE, prefetch, &credit));
    let free = house
        .shard
        .subscribe(QUEUE, SubscriptionOptions { prefetch: 100, auto_ack: false, exclusive: false, pull: false });
    let free = free.unwrap();

    assert_eq!([&one, &other].map(|subscription| take(subscription, 10).len()), [3, 2]);
    assert_eq!(take(&other, 10), []);
    assert_eq!(credit.held_count(), 5);
    assert!(!take(&free, 10).is_empty(), "another one has nothing to do with it");
    assert_eq!(one.settle(&[SequenceRange::ALL], Settle::Ack).unwrap(), 3);
    assert_eq!((credit.held_count(), take(&other, 10).len()), (2, 3));

    drop((one, other, free));
    house.close();
}

#[test]
fn whatever_ends_a_delivery_gives_the_credit_back() {
    type Return = fn(&House, &Subscription);
    let ack: Return = |_, busy| assert_eq!(busy.settle(&[SequenceRange::ALL], Settle::Ack).unwrap(), 4);
    let reject: Return = |_, busy| assert_eq!(busy.settle(&[SequenceRange::ALL], Settle::Reject).unwrap(), 4);
    let requeue: Return = |_, busy| assert_eq!(busy.settle(&[SequenceRange::ALL], Settle::Requeue).unwrap(), 4);
    let put_back: Return = |_, busy| assert!(busy.put_back(&[SequenceRange::ALL]).unwrap() >= 4);
    let close: Return = |_, busy| drop(busy.close());
    let delete: Return = |house, busy| {
        house.shard.delete_queue(QUEUE).unwrap();
        drop(busy.close());
    };
    for (way, give_back) in [ack, reject, requeue, put_back, close, delete].into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let house = with_messages(directory.path(), 20);
        let credit = Arc::new(Credit::new(4));
        let busy = subscribe(&house.shard, QUEUE, 100, &credit);
        assert_eq!((take(&busy, 10).len(), credit.held_count()), (4, 4));

        give_back(&house, &busy);

        assert_eq!(credit.held_count(), 0, "way {way}");
        drop(busy);
        house.close();
    }
}

#[test]
fn an_auto_ack_consumer_gives_it_back_once_its_messages_were_sent() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_messages(directory.path(), 20);
    let credit = Arc::new(Credit::new(4));
    let options = SubscriptionOptions { prefetch: 100, auto_ack: true, exclusive: false, pull: false };
    let consumer = house.shard.subscribe_with(QUEUE, options, Arc::default(), Some(&credit)).unwrap();
    let sizes: Vec<(Sequence, u32)> = take(&consumer, 10).into_iter().map(|sequence| (sequence, 1)).collect();
    assert_eq!((sizes.len(), credit.held_count()), (4, 4));

    consumer.sent(&sizes).unwrap();

    assert_eq!(credit.held_count(), 0);
    drop(consumer);
    house.close();
}

#[test]
fn messages_that_it_cannot_take_go_to_another_consumer() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let credit = Arc::new(Credit::new(0));
    let refused = subscribe(&house.shard, QUEUE, 10, &credit);
    let other = subscribe(&house.shard, QUEUE, 10, &Arc::new(Credit::new(10)));
    assert_eq!([&refused, &other].map(|subscription| take(subscription, 10).len()), [0; 2]);
    publish(&house, &["a"]);

    assert_eq!(take(&refused, 10), []);

    assert!(is_woken(&other));
    assert_eq!(take(&other, 10).len(), 1);
    drop((refused, other));
    house.close();
}

#[test]
fn a_paused_consumer_takes_nothing_and_keeps_what_it_holds() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_messages(directory.path(), 20);
    let consumer = subscribe(&house.shard, QUEUE, 3, &Arc::new(Credit::new(u32::MAX)));
    assert_eq!(take(&consumer, 2).len(), 2);

    consumer.pause().unwrap();
    consumer.set_prefetch(5).unwrap();

    assert_eq!((take(&consumer, 10).len(), consumer.unacked_count()), (0, 2));
    consumer.resume().unwrap();
    assert_eq!(take(&consumer, 10).len(), 3);
    drop(consumer);
    house.close();
}

/// Consumers on threads of their own, of queues with different locks: each message comes, and never too many are unacked.
#[test]
fn none_is_forgotten_when_credit_comes_back_on_other_threads() {
    const LIMIT: u64 = 3;
    const OF_EACH: usize = 500;
    const CONSUMERS: u64 = 4;
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let credit = Arc::new(Credit::new(3));
    let ids = || (10..10 + CONSUMERS).map(QueueId);
    for id in ids() {
        house.shard.dedicate(id).unwrap();
        house.shard.put_queue(id, &format!("q{}", id.0), false, None).unwrap();
    }
    let held_most = Arc::new(AtomicU64::new(0));
    let consumers: Vec<_> = ids()
        .map(|id| {
            let subscription = subscribe(&house.shard, id, 100, &credit);
            let (credit, held_most) = (Arc::clone(&credit), Arc::clone(&held_most));
            std::thread::spawn(move || consume(&subscription, OF_EACH, &credit, &held_most))
        })
        .collect();

    for _ in 0..OF_EACH {
        for id in ids() {
            let key = format!("q{}", id.0);
            let payload = Payload::new(b"", key.as_bytes(), b"", b"x").unwrap();
            let (exchange, key) = (&b""[..], key.as_bytes());
            let one = Publication { payload, exchange, key, headers: None, persistent: false, mandatory: false };
            house.shard.publish(&[one], None, 1, &mut Vec::new()).unwrap();
        }
    }

    assert!(consumers.into_iter().all(|consumer| consumer.join().unwrap()), "a consumer was forgotten");
    let most = held_most.load(Ordering::SeqCst);
    assert!(most <= LIMIT, "{most} were unacked");
    assert_eq!(credit.held_count(), 0);
    house.close();
}

/// Takes and acks so many messages; false when it was not woken for the next one.
fn consume(subscription: &Subscription, count: usize, credit: &Credit, held_most: &AtomicU64) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut left = count;
    while left > 0 {
        let taken = take(subscription, 10);
        held_most.fetch_max(credit.held_count(), Ordering::SeqCst);
        if taken.is_empty() {
            let heard = async { tokio::time::timeout(Duration::from_secs(120), subscription.signal().heard()).await };
            if runtime.block_on(heard).is_err() {
                return false;
            }
            continue;
        }
        left -= taken.len();
        subscription.settle(&[SequenceRange::ALL], Settle::Ack).unwrap();
    }
    true
}
