//! Many consumers of one task: a ready list names those that have something to look at, and wakes the task once.
#![allow(clippy::unwrap_used)]

mod house;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use house::{House, STREAM};
use penstock_engine::{
    Payload, Progress, Publication, QueueId, ReadFrom, ReadSettings, ReadyList, Sequence, Shard, Subscription,
    SubscriptionOptions,
};

const QUEUES: u64 = 2_000;

#[derive(Default)]
struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn name_of(number: u64) -> String {
    format!("q{number}")
}

/// Queues besides the house's own; they are numbered from 10.
fn put_queues(house: &House, count: u64) {
    (0..count).for_each(|number| house.shard.put_queue(QueueId(10 + number), &name_of(number), false, None).unwrap());
}

fn publication(name: &str) -> Publication<'_> {
    Publication {
        payload: Payload::new(b"", name.as_bytes(), b"", b"x").unwrap(),
        exchange: b"",
        key: name.as_bytes(),
        headers: None,
        persistent: false,
        mandatory: false,
    }
}

fn publish(shard: &Shard, numbers: &[u64]) {
    let names: Vec<String> = numbers.iter().copied().map(name_of).collect();
    let batch: Vec<Publication<'_>> = names.iter().map(|name| publication(name)).collect();
    shard.publish(&batch, None, 1, &mut Vec::new()).unwrap();
}

fn subscribe(house: &House, list: &Arc<ReadyList>, number: u64) -> Subscription {
    let options = SubscriptionOptions { prefetch: 10, auto_ack: true, exclusive: false, pull: false };
    house.shard.subscribe_with(QueueId(10 + number), options, list.signal(number), None).unwrap()
}

/// Takes all there is; returns how many messages that were.
fn drain(subscription: &Subscription) -> usize {
    let mut count = 0;
    loop {
        let mut filled = Vec::new();
        subscription.fill(10, &mut filled).unwrap();
        let picked = filled.iter().flat_map(|filled| &filled.picked);
        let sizes: Vec<(Sequence, u32)> = picked.map(|picked| (picked.taken.sequence, 1)).collect();
        if sizes.is_empty() {
            return count;
        }
        count += sizes.len();
        subscription.sent(&sizes).unwrap();
    }
}

fn taken(list: &ReadyList) -> Vec<u64> {
    let mut tokens = Vec::new();
    list.take(&mut tokens);
    tokens
}

#[test]
fn one_wake_names_exactly_the_consumers_that_have_messages() {
    let directory = tempfile::tempdir().unwrap();
    let house = house::open(directory.path());
    put_queues(&house, QUEUES);
    let list = Arc::<ReadyList>::default();
    let subscriptions: Vec<_> = (0..QUEUES).map(|number| subscribe(&house, &list, number)).collect();
    assert!(subscriptions.iter().all(|subscription| drain(subscription) == 0));
    let counted = Arc::<Counted>::default();
    let waker = Waker::from(Arc::clone(&counted));
    let mut heard = pin!(list.heard());
    assert_eq!(heard.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);

    publish(&house.shard, &[7, 1_999, 7]);
    publish(&house.shard, &[0, 1_000, 7]);

    assert_eq!(counted.0.load(Ordering::SeqCst), 1, "wakes of the task");
    assert_eq!(heard.poll(&mut Context::from_waker(&waker)), Poll::Ready(()));
    assert_eq!(taken(&list), [7, 1_999, 0, 1_000]);
    let found: Vec<usize> = [7, 1_999, 0, 1_000].map(|number: usize| drain(&subscriptions[number])).into();
    assert_eq!(found, [3, 1, 1, 1]);
    assert_eq!(taken(&list), [0; 0]);

    publish(&house.shard, &[7]);
    assert_eq!(taken(&list), [7]);
    drop(subscriptions);
    house.close();
}

#[test]
fn a_consumer_that_ended_is_named_and_one_that_left_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let house = house::open(directory.path());
    put_queues(&house, 3);
    let list = Arc::<ReadyList>::default();
    let [stays, left, ends] = [0, 1, 2].map(|number| subscribe(&house, &list, number));
    assert_eq!([&stays, &left, &ends].map(drain), [0; 3]);
    publish(&house.shard, &[1, 0]);

    drop(left);
    house.shard.delete_queue(QueueId(12)).unwrap();

    assert_eq!(taken(&list), [0, 2]);
    assert!(stays.signal().cancelled().is_none());
    assert!(ends.signal().cancelled().is_some_and(|reason| reason.contains("deleted")));
    drop((stays, ends));
    house.close();
}

#[test]
fn a_reader_of_a_stream_is_named_too() {
    let directory = tempfile::tempdir().unwrap();
    let house = house::open(directory.path());
    let list = Arc::<ReadyList>::default();
    let settings = ReadSettings { from: ReadFrom::Next, end: None, group: None, single_active: false };
    let mut reader = house.shard.read_with(STREAM, settings, list.signal(5)).unwrap();
    assert_eq!(reader.fill(10, &mut Vec::new()).unwrap(), Progress::Waiting);
    assert_eq!(taken(&list), [0; 0]);

    house::publish(&house, &["a"]);

    assert_eq!(taken(&list), [5]);
    assert_eq!(reader.fill(10, &mut Vec::new()).unwrap(), Progress::Found);
    drop(reader);
    house.close();
}

/// Threads publish while the task takes: a lost ring would leave messages, and the task would wait for ever.
#[tokio::test]
async fn no_ring_is_lost_beside_publishers() {
    const OF_EACH: usize = 2_000;
    let directory = tempfile::tempdir().unwrap();
    let house = house::open(directory.path());
    put_queues(&house, 8);
    let list = Arc::<ReadyList>::default();
    let subscriptions: Vec<_> = (0..8).map(|number| subscribe(&house, &list, number)).collect();
    assert!(subscriptions.iter().all(|subscription| drain(subscription) == 0));
    let publishers: Vec<_> = (0..4_u64)
        .map(|first| {
            let shard = Arc::clone(&house.shard);
            std::thread::spawn(move || (0..OF_EACH).for_each(|_| publish(&shard, &[first, first + 4])))
        })
        .collect();

    let mut count = 0;
    let all = async {
        while count < 8 * OF_EACH {
            list.heard().await;
            count += taken(&list).iter().map(|&token| drain(&subscriptions[token as usize])).sum::<usize>();
        }
    };
    let is_done = tokio::time::timeout(Duration::from_secs(120), all).await.is_ok();

    assert!(is_done, "{count} of {} messages came", 8 * OF_EACH);
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    drop(subscriptions);
    house.close();
}
