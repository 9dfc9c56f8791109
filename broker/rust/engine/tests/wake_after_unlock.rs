//! Consumers are woken after the shard's lock is released: a task that runs at once does not wait for it.
//!
//! A consumer listens with a waker that asks for the lock in its turn, as a task would that runs on another core. It waits
//! for the lock for a while only because the shard's own threads may have it too.
#![allow(clippy::unwrap_used)]

mod house;

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::sleep;
use std::time::Duration;

use house::{House, STREAM, open, open_queue, publish};
use penstock_engine::{
    LeaseLimits, Progress, QueueId, ReadFrom, ReadSettings, ReadyList, SequenceRange, Settle, Shard, Signal,
    StreamReader, Subscription, SubscriptionOptions,
};

const LOOKS: u32 = 5_000;

/// Whether the lock was free, at each wake.
struct Asking {
    shard: Arc<Shard>,
    found_free: Mutex<Vec<bool>>,
}

impl Wake for Asking {
    fn wake(self: Arc<Self>) {
        let is_free = (0..LOOKS).any(|_| {
            let is_free = self.shard.is_free();
            if !is_free {
                sleep(Duration::from_millis(1));
            }
            is_free
        });
        self.found_free.lock().unwrap().push(is_free);
    }
}

/// Checks that the signal wakes its listener during the act, with the lock free.
fn check(shard: &Arc<Shard>, signal: &Signal, act: impl FnOnce()) {
    let asking = Arc::new(Asking { shard: Arc::clone(shard), found_free: Mutex::default() });
    let waker = Waker::from(Arc::clone(&asking));
    let mut heard = pin!(signal.heard());
    assert_eq!(heard.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    act();
    assert_eq!(*asking.found_free.lock().unwrap(), [true]);
    assert_eq!(heard.poll(&mut Context::from_waker(&waker)), Poll::Ready(()));
}

fn subscribe(shard: &Arc<Shard>) -> Subscription {
    let options = SubscriptionOptions { prefetch: 10, auto_ack: false, exclusive: false, pull: false };
    shard.subscribe(STREAM, options).unwrap()
}

/// Takes one message, if there is one.
fn take(subscription: &Subscription) -> usize {
    let mut filled = Vec::new();
    subscription.fill(1, &mut filled).unwrap();
    filled.iter().map(|filled| filled.picked.len()).sum()
}

/// A consumer with a message, and another one that waits for the next.
fn busy_and_waiting(house: &House) -> (Subscription, Subscription) {
    let (busy, waiting) = (subscribe(&house.shard), subscribe(&house.shard));
    publish(house, &["a"]);
    assert_eq!((take(&busy), take(&waiting)), (1, 0));
    (busy, waiting)
}

#[test]
fn for_a_publish() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let waiting = subscribe(&house.shard);
    assert_eq!(take(&waiting), 0);

    check(&house.shard, waiting.signal(), || publish(&house, &["a"]));

    drop(waiting);
    house.close();
}

#[test]
fn for_a_publish_to_many_consumers() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let [one, two, three] = [(); 3].map(|()| subscribe(&house.shard));
    assert_eq!([&one, &two, &three].map(take), [0; 3]);

    check(&house.shard, one.signal(), || {
        check(&house.shard, two.signal(), || {
            check(&house.shard, three.signal(), || publish(&house, &["a", "b", "c"]));
        });
    });

    drop((one, two, three));
    house.close();
}

#[test]
fn for_messages_that_come_back() {
    type Return = fn(&Subscription);
    let requeue: Return = |busy| assert_eq!(busy.settle(&[SequenceRange::ALL], Settle::Requeue).unwrap(), 1);
    let put_back: Return = |busy| assert_eq!(busy.put_back(&[SequenceRange::ALL]).unwrap(), 1);
    let close: Return = |busy| drop(busy.close());
    for give_back in [requeue, put_back, close] {
        let directory = tempfile::tempdir().unwrap();
        let house = open_queue(directory.path());
        let (busy, waiting) = busy_and_waiting(&house);

        check(&house.shard, waiting.signal(), || give_back(&busy));

        drop((busy, waiting));
        house.close();
    }
}

#[test]
fn for_a_wake_that_is_passed_on() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let (woken, waiting) = (subscribe(&house.shard), subscribe(&house.shard));
    assert_eq!((take(&woken), take(&waiting)), (0, 0));
    publish(&house, &["a"]);

    check(&house.shard, waiting.signal(), || woken.pass_on());

    drop((woken, waiting));
    house.close();
}

#[test]
fn for_a_changed_prefetch() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let waiting = subscribe(&house.shard);
    assert_eq!(take(&waiting), 0);

    check(&house.shard, waiting.signal(), || waiting.set_prefetch(5).unwrap());

    drop(waiting);
    house.close();
}

#[test]
fn for_a_released_lease() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, &["a"]);
    let limits = LeaseLimits { messages_max: 10, bytes_max: 1 << 20 };
    assert_eq!(house.shard.reserve_lease(STREAM, "o", 1, limits, 1).unwrap().lease.count, 1);
    let waiting = subscribe(&house.shard);
    assert_eq!(take(&waiting), 0);

    check(&house.shard, waiting.signal(), || {
        house.shard.release_leases(STREAM, "o", 0).unwrap();
    });

    drop(waiting);
    house.close();
}

#[test]
fn for_the_end_of_a_queue_or_of_its_shard() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let own = QueueId(7);
    house.shard.dedicate(own).unwrap();
    house.shard.put_queue(own, "own", false, None).unwrap();
    house.shard.put_queue(QueueId(8), "other", false, None).unwrap();
    let options = SubscriptionOptions { prefetch: 10, auto_ack: false, exclusive: false, pull: false };
    let home = house.shard.home_of(own);
    let [deleted, apart, closed] = [(&house.shard, STREAM), (&home, own), (&house.shard, QueueId(8))]
        .map(|(shard, id)| shard.subscribe(id, options));
    let [deleted, apart, closed] = [deleted, apart, closed].map(Result::unwrap);

    check(&house.shard, deleted.signal(), || assert_eq!(house.shard.delete_queue(STREAM).unwrap(), 0));
    check(&home, apart.signal(), || assert_eq!(house.shard.delete_queue(own).unwrap(), 0));
    check(&house.shard, closed.signal(), || house.shard.close(false).unwrap());

    for signal in [&deleted, &apart, &closed].map(Subscription::signal) {
        assert!(signal.cancelled().is_some());
    }
    drop((deleted, apart, closed));
    house.close();
}

fn read(house: &House, group: Option<&str>, single_active: bool) -> StreamReader {
    let settings = ReadSettings { from: ReadFrom::Next, end: None, group, single_active };
    house.shard.read(STREAM, settings).unwrap()
}

#[test]
fn for_readers_of_a_stream() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let mut reader = read(&house, None, false);
    let watcher = Arc::<Signal>::default();

    assert_eq!(reader.fill(1, &mut Vec::new()).unwrap(), Progress::Waiting);
    check(&house.shard, reader.signal(), || publish(&house, &["a"]));

    assert_eq!(house.shard.watch_stream(STREAM, &watcher).unwrap(), Some(2));
    check(&house.shard, &watcher, || publish(&house, &["b"]));

    let first = read(&house, Some("g"), true);
    let second = read(&house, Some("g"), true);
    check(&house.shard, second.signal(), || drop(first));

    check(&house.shard, second.signal(), || drop(read(&house, Some("g"), false)));
    assert!(second.signal().cancelled().is_some());

    drop((reader, second));
    house.close();
}

#[test]
fn for_a_ready_list() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let list = Arc::<ReadyList>::default();
    let options = SubscriptionOptions { prefetch: 10, auto_ack: false, exclusive: false, pull: false };
    let waiting = house.shard.subscribe_with(STREAM, options, list.signal(3), None).unwrap();
    assert_eq!(take(&waiting), 0);
    let asking = Arc::new(Asking { shard: Arc::clone(&house.shard), found_free: Mutex::default() });
    let waker = Waker::from(Arc::clone(&asking));
    let mut heard = pin!(list.heard());
    assert_eq!(heard.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);

    publish(&house, &["a"]);

    assert_eq!(*asking.found_free.lock().unwrap(), [true]);
    drop(waiting);
    house.close();
}
