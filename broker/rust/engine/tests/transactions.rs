//! Transactions: messages and settlements of one log are applied together, as a whole or not at all, whatever fails.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

#[path = "house/crashing.rs"]
mod crashing;
mod house;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crashing::{CrashingDisk, DyingDisk};
use house::{House, open_queue, open_queue_on, publish};
use penstock_engine::{
    Committed, Credit, DeadLetters, EngineError, Fate, Joining, LengthLimit, Level, Overflow, Payload, Publication,
    QueueId, Sequence, SequenceRange, Settle, Subscription, SubscriptionOptions, Transaction, TransactionSettlement,
};
use penstock_log::Disk;
use proptest::prelude::*;

/// The queue "s".
const JOBS: QueueId = house::STREAM;
const DONE: QueueId = QueueId(2);
const FAR: QueueId = QueueId(3);

fn open(directory: &Path) -> House {
    with_queues(open_queue(directory))
}

fn open_on(directory: &Path, disk: Arc<dyn Disk>) -> House {
    with_queues(open_queue_on(directory, disk))
}

fn with_queues(house: House) -> House {
    house.shard.put_queue(DONE, "done", false, None).unwrap();
    house
}

fn publication<'a>(key: &'a str, body: &'a str) -> Publication<'a> {
    let payload = Payload::new(b"", key.as_bytes(), b"", body.as_bytes()).unwrap();
    let (exchange, key) = (&b""[..], key.as_bytes());
    Publication { payload, exchange, key, headers: None, persistent: true, mandatory: true }
}

fn subscribe(house: &House, queue: QueueId) -> Subscription {
    let options = SubscriptionOptions { prefetch: 100_000, auto_ack: false, exclusive: false, pull: false };
    house.shard.home_of(queue).subscribe(queue, options).unwrap()
}

/// Takes messages, all of which are delivered; returns their bodies with whether they were delivered before.
fn deliver(subscription: &Subscription) -> Vec<(String, bool)> {
    let (mut filled, mut found, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    subscription.fill(100_000, &mut filled).unwrap();
    for run in &filled {
        for picked in &run.picked {
            let view = run.segment.message(picked.offset).unwrap();
            sizes.push((picked.taken.sequence, view.body.len() as u32));
            found.push((String::from_utf8(view.body.to_vec()).unwrap(), picked.taken.redelivered));
        }
    }
    subscription.sent(&sizes).unwrap();
    found
}

fn bodies(subscription: &Subscription) -> Vec<String> {
    deliver(subscription).into_iter().map(|(body, _)| body).collect()
}

fn run(first: u64, last: u64) -> SequenceRange {
    SequenceRange { first: Sequence(first), last: Sequence(last) }
}

type Settled<'a> = (&'a Subscription, &'a [SequenceRange], Settle);

fn commit(
    house: &House,
    batch: &[Publication<'_>],
    settled: &[Settled<'_>],
) -> Result<(Committed, Vec<Fate>), EngineError> {
    let settled = settled.iter();
    let settlements = settled.map(|&(subscription, ranges, how)| TransactionSettlement { subscription, ranges, how });
    let settlements: Vec<TransactionSettlement<'_>> = settlements.collect();
    let mut fates = Vec::new();
    let transaction = Transaction { batch, settlements: &settlements, now_ms: 1 };
    house.shard.commit(transaction, &mut fates).map(|committed| (committed, fates))
}

/// How many messages are ready and unacked.
fn counts(house: &House, queue: QueueId) -> (u64, u64) {
    let counts = house.shard.queue_counts(&[queue]).unwrap()[0];
    (counts.ready_count, counts.unacked_count)
}

#[test]
fn a_transaction_publishes_and_settles() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &["a", "b", "c", "d"]);
    let (one, other) = (subscribe(&house, JOBS), subscribe(&house, DONE));
    assert_eq!(deliver(&one).len(), 4);

    let batch = [publication("done", "x"), publication("s", "e"), publication("nowhere", "y")];
    let [acked, returned] = [[run(1, 1), run(3, 3)], [run(2, 2), run(9, 9)]];
    let settled = [(&one, &acked[..], Settle::Ack), (&one, &returned[..], Settle::Requeue)];
    let (committed, fates) = commit(&house, &batch, &settled).unwrap();

    assert_eq!(fates, [Fate::Stored(Level::Disk), Fate::Stored(Level::Disk), Fate::Returned]);
    assert_eq!(committed.settled, [(2, 2), (1, 1)], "what is not held is passed over");
    assert_eq!((counts(&house, JOBS), bodies(&other)), ((2, 1), vec!["x".to_owned()]));
    assert_eq!(deliver(&one), [("b".to_owned(), true), ("e".to_owned(), false)]);
    drop((one, other));
    house.close();

    let house = open(directory.path());
    let again = subscribe(&house, JOBS);
    assert_eq!(deliver(&again), [("b".into(), true), ("d".into(), true), ("e".into(), true)]);
    assert_eq!(bodies(&subscribe(&house, DONE)), ["x"]);
    drop(again);
    house.close();
}

#[test]
fn acks_free_credit_that_consumers_share() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &["a", "b", "c"]);
    let credit = Arc::new(Credit::new(2));
    let options = SubscriptionOptions { prefetch: 100, auto_ack: false, exclusive: false, pull: false };
    let joining = Joining { credit: Some(&credit), ..Joining::default() };
    let one = house.shard.subscribe_as(JOBS, options, joining).unwrap();
    assert_eq!(bodies(&one), ["a", "b"]);
    assert_eq!(bodies(&one), [""; 0]);

    commit(&house, &[], &[(&one, &[run(1, 2)], Settle::Ack)]).unwrap();

    assert_eq!(bodies(&one), ["c"]);
    drop(one);
    house.close();
}

#[test]
fn rejected_messages_move_to_their_dead_letter_exchange() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let settings = DeadLetters { exchange: String::new(), routing_key: Some("done".into()), at_least_once: false };
    house.shard.route_dead_letters([(JOBS, Some(settings))]).unwrap();
    publish(&house, &["a", "b"]);
    let one = subscribe(&house, JOBS);
    assert_eq!(deliver(&one).len(), 2);

    commit(&house, &[publication("done", "x")], &[(&one, &[run(1, 2)], Settle::Reject)]).unwrap();

    let began = std::time::Instant::now();
    while counts(&house, DONE) != (3, 0) {
        assert!(began.elapsed() < std::time::Duration::from_secs(60));
        std::thread::yield_now();
    }
    drop(one);
    house.close();
}

/// Nothing of a refused transaction happens.
#[test]
fn a_transaction_is_refused_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &["a"]);
    let one = subscribe(&house, JOBS);
    assert_eq!(deliver(&one).len(), 1);
    let ack = [(&one, &[run(1, 1)][..], Settle::Ack)];
    let refuse = |batch: &[Publication<'_>]| {
        let refused = commit(&house, batch, &ack).unwrap_err();
        assert_eq!((counts(&house, JOBS), counts(&house, DONE)), ((0, 1), (0, 0)));
        refused
    };

    let gone = Publication { exchange: b"gone", ..publication("done", "x") };
    assert!(
        matches!(refuse(&[publication("done", "x"), gone]), EngineError::TransactionExchange(name) if name == "gone")
    );

    let limit = LengthLimit::of_messages(2, Overflow::RejectPublish);
    house.shard.limit_lengths([(DONE, Some(limit))]).unwrap();
    assert!(matches!(refuse(&[publication("done", "x"); 3]), EngineError::QueueLength));
    house.shard.limit_lengths([(DONE, None)]).unwrap();

    assert!(matches!(refuse(&vec![publication("done", "x"); 4097]), EngineError::TransactionTooLarge));
    // One record more than an envelope has: the settlement is one, too.
    assert!(matches!(refuse(&vec![publication("done", "x"); 4096]), EngineError::TransactionTooLarge));

    house.shard.grow(2).unwrap();
    house.shard.place_queues([(FAR, 1)]).unwrap();
    house.shard.put_queue(FAR, "far", false, None).unwrap();
    let refused = refuse(&[publication("far", "x")]);
    assert_eq!(
        refused.to_string(),
        "a transaction is applied in one log, and queues 's' and 'far' are in different ones, so nothing of it was applied; use queues \
         of one shard, or publisher confirms"
    );
    let far = subscribe(&house, FAR);
    assert!(matches!(refuse(&[publication("far", "x"), publication("done", "x")]), EngineError::TransactionLogs(..)));
    commit(&house, &[publication("far", "x")], &[]).unwrap();
    assert_eq!(bodies(&far), ["x"], "one shard is enough, whichever it is");
    commit(&house, &[publication("far", "y")], &[(&far, &[run(1, 1)], Settle::Ack)]).unwrap();
    assert_eq!(counts(&house, FAR), (1, 0));

    commit(&house, &vec![publication("done", "x"); 4095], &ack).unwrap();
    assert_eq!((counts(&house, JOBS), counts(&house, DONE)), ((0, 0), (4095, 0)));
    drop((one, far));
    house.close();
}

/// The bodies of both queues after a failure.
fn found(directory: &Path) -> (Vec<String>, Vec<String>) {
    let house = open(directory);
    let found = (bodies(&subscribe(&house, JOBS)), bodies(&subscribe(&house, DONE)));
    house.close();
    found
}

/// A process dies in the middle of the write of a transaction that takes jobs and stores their results.
#[test]
fn a_transaction_whose_write_is_cut_has_not_happened() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(DyingDisk::default());
    let house = open_on(directory.path(), disk.clone());
    publish(&house, &["a", "b"]);
    let one = subscribe(&house, JOBS);
    assert_eq!(deliver(&one).len(), 2);
    commit(&house, &[publication("done", "A")], &[(&one, &[run(1, 1)], Settle::Ack)]).unwrap();

    disk.writes_left.store(0, Ordering::SeqCst);
    let cut = commit(&house, &[publication("done", "B"); 20], &[(&one, &[run(2, 2)], Settle::Ack)]);
    assert!(matches!(cut, Err(EngineError::Log(_))), "{cut:?}");
    drop(one);
    let _ = house.engine.close();

    assert_eq!(found(directory.path()), (vec!["b".to_owned()], vec!["A".to_owned()]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Power fails, and of what was not synced a part is left: each job is waiting, or all its results are there.
    #[test]
    fn a_transaction_is_there_as_a_whole_or_not_at_all(
        sizes in prop::collection::vec(1..30_usize, 1..20),
        writes in 0..25_i64,
        kept: u8,
    ) {
        let (directory, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disk = Arc::new(CrashingDisk::default());
        let house = open_on(directory.path(), disk.clone());
        let jobs: Vec<String> = (0..sizes.len()).map(|number| number.to_string()).collect();
        publish(&house, &jobs.iter().map(String::as_str).collect::<Vec<_>>());
        let end = house.shard.publish(&[], None, 1, &mut Vec::new()).unwrap().end;
        house.shard.sync_to(end).unwrap();
        let one = subscribe(&house, JOBS);
        prop_assert_eq!(deliver(&one).len(), sizes.len());
        disk.writes_left.store(writes, Ordering::SeqCst);
        for (number, (count, job)) in sizes.iter().zip(&jobs).enumerate() {
            let job_range = run(number as u64 + 1, number as u64 + 1);
            let _ = commit(&house, &vec![publication("done", job); *count], &[(&one, &[job_range], Settle::Ack)]);
        }
        disk.image(directory.path(), after.path(), &[kept]);
        drop(one);
        let _ = house.engine.close();

        let (left, results) = found(after.path());
        for (count, job) in sizes.iter().zip(&jobs) {
            let of_job = results.iter().filter(|body| *body == job).count();
            prop_assert_eq!(of_job, if left.contains(job) { 0 } else { *count });
        }
    }
}
