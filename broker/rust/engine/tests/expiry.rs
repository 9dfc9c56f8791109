//! Messages that expire: at a time of their own, or by the age limit of their queue.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod house;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use house::{House, STREAM as QUEUE, open, open_queue};
use penstock_engine::{
    Attributes, Filled, LeaseLimits, LeasePart, Moment, Payload, Publication, QueueCounts, Sequence, SequenceRange,
    Settle, Shard, Subscription, SubscriptionOptions,
};

/// Far in the future, so that the thread that expires messages in the background does nothing by itself.
const YEAR_3000: u64 = 32_503_680_000_000;

fn publish(house: &House, now_ms: u64, bodies: &[&str], expires_at_ms: Option<u64>) {
    publish_with(house, now_ms, bodies, &Attributes { expires_at_ms, ..Attributes::default() });
}

fn publish_delayed(house: &House, now_ms: u64, bodies: &[&str], due_at_ms: u64) {
    publish_with(house, now_ms, bodies, &Attributes { due_at_ms: Some(due_at_ms), ..Attributes::default() });
}

fn publish_with(house: &House, now_ms: u64, bodies: &[&str], attributes: &Attributes) {
    let batch = bodies.iter().map(|body| {
        let payload = Payload::new(b"", b"s", b"", body.as_bytes()).unwrap();
        let payload = if *attributes == Attributes::default() { payload } else { payload.with_attributes(attributes) };
        Publication { payload, exchange: b"", key: b"s", headers: None, persistent: false, mandatory: false }
    });
    let batch: Vec<_> = batch.collect();
    house.shard.publish(&batch, None, now_ms, &mut Vec::new()).unwrap();
}

fn counts(house: &House) -> QueueCounts {
    house.shard.queue_counts(&[QUEUE]).unwrap()[0]
}

fn ready(house: &House) -> (u64, u64) {
    (counts(house).ready_count, counts(house).ready_bytes)
}

fn subscribe(house: &House, prefetch: u32) -> Subscription {
    let options = SubscriptionOptions { prefetch, auto_ack: false, exclusive: false, pull: false };
    house.shard.subscribe(QUEUE, options).unwrap()
}

/// Takes messages as a session does: those whose time is over go, the others are sent.
fn deliver(subscription: &Subscription) -> Vec<String> {
    let mut filled: Vec<Filled> = Vec::new();
    subscription.fill(100, &mut filled).unwrap();
    let freshness = subscription.freshness();
    let (mut bodies, mut sent, mut stale, mut early) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for run in &filled {
        for picked in &run.picked {
            let view = run.segment.message(picked.offset).unwrap();
            let size = (picked.taken.sequence, view.body.len() as u32);
            match freshness.moment(&view) {
                Moment::Now => {
                    bodies.push(String::from_utf8(view.body.to_vec()).unwrap());
                    sent.push(size);
                }
                Moment::Later(due_at_ms) => early.push((size.0, due_at_ms)),
                Moment::Never => stale.push(size),
            }
        }
    }
    subscription.expire(&stale).unwrap();
    subscription.put_aside(&early).unwrap();
    subscription.sent(&sent).unwrap();
    bodies
}

fn settle_all(subscription: &Subscription, how: Settle) {
    subscription.settle(&[SequenceRange { first: Sequence(0), last: Sequence(u64::MAX) }], how).unwrap();
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what} takes too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn expired_total(house: &House) -> u64 {
    house.engine.counters().all().find(|(name, _)| *name == "expired_total").unwrap().1
}

/// The background checks once after a start, too.
fn until_next_is(house: &House, at_ms: u64) {
    until(&format!("the next check at {at_ms}"), || house.shard.next_expiry_ms() == at_ms);
}

fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

#[test]
fn a_message_expires_at_its_time_without_a_consumer_and_no_other_does() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, 1, &["stays"], None);
    publish(&house, 1, &["goes"], Some(YEAR_3000 + 10));
    publish(&house, 1, &["goes later"], Some(YEAR_3000 + 20));
    publish(&house, 1, &["stays, too"], None);

    assert_eq!(house.shard.expire_due(YEAR_3000 + 9).unwrap(), 0);
    until_next_is(&house, YEAR_3000 + 10);
    assert_eq!(house.shard.expire_due(YEAR_3000 + 10).unwrap(), 1);
    assert_eq!(ready(&house), (3, 25));
    assert_eq!(house.shard.expire_due(YEAR_3000 + 500).unwrap(), 1);

    assert_eq!(ready(&house), (2, 15));
    until_next_is(&house, u64::MAX);
    assert_eq!(expired_total(&house), 2);
    assert_eq!(deliver(&subscribe(&house, 10)), ["stays", "stays, too"]);
    house.close();
}

#[test]
fn expired_messages_are_gone_after_a_kill_and_the_others_still_expire() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, 1, &["a"], Some(YEAR_3000 + 10));
    publish(&house, 1, &["b"], Some(YEAR_3000 + 20));
    publish(&house, 1, &["c"], None);
    house.shard.expire_due(YEAR_3000 + 10).unwrap();
    drop(house);

    let house = open_queue(directory.path());

    assert_eq!(counts(&house).ready_count, 2);
    assert_eq!(house.shard.expire_due(YEAR_3000 + 20).unwrap(), 1);
    assert_eq!(deliver(&subscribe(&house, 10)), ["c"]);
    house.close();
}

#[test]
fn a_message_is_not_delivered_after_its_time_even_if_nothing_removed_it() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let subscription = subscribe(&house, 10);
    let at_ms = now_ms() + 300;
    publish(&house, 1, &["late"], Some(at_ms));
    publish(&house, 1, &["fresh"], Some(YEAR_3000));
    // Taken before its time, as if the client were slow.
    let mut filled = Vec::new();
    subscription.fill(100, &mut filled).unwrap();
    let has = |at: usize| {
        let picked = filled[0].picked[at];
        subscription.freshness().moment(&filled[0].segment.message(picked.offset).unwrap()) == Moment::Now
    };
    until("the time of a message", || now_ms() > at_ms);

    assert!(!has(0) && has(1));
    let size = (filled[0].picked[0].taken.sequence, 4);
    subscription.expire(&[size]).unwrap();
    assert_eq!((counts(&house).unacked_count, counts(&house).ready_count), (1, 0));
    drop(subscription);
    assert_eq!(ready(&house), (1, 5));
    house.close();
}

#[test]
fn a_message_that_a_consumer_has_at_its_time_expires_when_it_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, 1, &["a"], Some(YEAR_3000));
    publish(&house, 1, &["b"], None);
    let subscription = subscribe(&house, 10);
    assert_eq!(deliver(&subscription), ["a", "b"]);
    assert_eq!(house.shard.expire_due(YEAR_3000).unwrap(), 0);
    assert_eq!(counts(&house).unacked_count, 2, "it is the consumer's");
    until_next_is(&house, YEAR_3000 + 1000);

    settle_all(&subscription, Settle::Requeue);

    assert_eq!(house.shard.expire_due(YEAR_3000 + 2000).unwrap(), 1);
    assert_eq!(ready(&house), (1, 1));
    until_next_is(&house, u64::MAX);
    house.close();
}

#[test]
fn an_acked_message_does_not_expire() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, 1, &["a"], Some(YEAR_3000));
    let subscription = subscribe(&house, 10);
    deliver(&subscription);
    house.shard.expire_due(YEAR_3000).unwrap();
    settle_all(&subscription, Settle::Ack);

    assert_eq!(house.shard.expire_due(YEAR_3000 + 5000).unwrap(), 0);
    assert_eq!(expired_total(&house), 0);
    until_next_is(&house, u64::MAX);
    house.close();
}

fn limit(shard: &Shard, max_age_ms: Option<u64>) {
    shard.limit_ages([(QUEUE, max_age_ms)]).unwrap();
}

#[test]
fn a_queue_drops_messages_over_its_age_limit_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    for number in 0..200 {
        publish(&house, YEAR_3000 + number, &["old"], None);
    }
    limit(&house.shard, Some(1000));

    assert_eq!(house.shard.expire_due(YEAR_3000 + 999).unwrap(), 0);
    // The index says it.
    until_next_is(&house, YEAR_3000 + 1000);
    assert_eq!(house.shard.expire_due(YEAR_3000 + 1099).unwrap(), 100);
    until_next_is(&house, YEAR_3000 + 1100);
    assert_eq!(ready(&house), (100, 300));
    house.close();

    let house = open_queue(directory.path());
    limit(&house.shard, Some(1000));
    assert_eq!(house.shard.expire_due(YEAR_3000 + 1149).unwrap(), 50);
    assert_eq!(ready(&house), (50, 150));
    house.close();
}

#[test]
fn a_changed_age_limit_counts_for_the_messages_that_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, YEAR_3000, &["a"], None);
    publish(&house, YEAR_3000 + 500, &["b"], None);
    limit(&house.shard, Some(10_000));
    assert_eq!(house.shard.expire_due(YEAR_3000 + 600).unwrap(), 0);

    limit(&house.shard, Some(100));
    assert_eq!(house.shard.expire_due(YEAR_3000 + 550).unwrap(), 1);
    limit(&house.shard, None);

    assert_eq!(house.shard.expire_due(YEAR_3000 + 90_000).unwrap(), 0);
    assert_eq!(deliver(&subscribe(&house, 10)), ["b"]);
    house.close();
}

#[test]
fn a_message_over_the_age_limit_of_its_queue_is_not_delivered() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let subscription = subscribe(&house, 10);
    // By the clock of this test the first is years old.
    publish(&house, 1, &["old"], None);
    publish(&house, now_ms(), &["new"], None);
    limit(&house.shard, Some(600_000));

    let mut found = Vec::new();
    until("the delivery", || {
        found.extend(deliver(&subscription));
        !found.is_empty()
    });

    assert_eq!(found, ["new"]);
    until("the expiry", || expired_total(&house) == 1);
    house.close();
}

#[test]
fn messages_expire_in_the_background_by_the_clock() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, now_ms(), &["short"], Some(now_ms() + 100));
    publish(&house, now_ms(), &["long"], Some(now_ms() + 600_000));

    until("an expiry by its own time", || counts(&house).ready_count == 1);
    limit(&house.shard, Some(50));

    until("an expiry by the queue's limit", || counts(&house).ready_count == 0);
    house.close();
}

#[test]
fn expired_messages_free_their_places_while_others_are_published() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut at_ms = YEAR_3000;
            while !is_over.load(Ordering::Relaxed) {
                at_ms += 100;
                house.shard.expire_due(at_ms).unwrap();
            }
        });
        for number in 0..3000 {
            publish(&house, 1, &["some body of a message"], Some(YEAR_3000 + (number * 7919) % 5000));
        }
        is_over.store(true, Ordering::Relaxed);
    });

    house.shard.expire_due(YEAR_3000 + 1_000_000).unwrap();

    assert_eq!(ready(&house), (0, 0));
    assert_eq!(expired_total(&house), 3000);
    house.close();
    let house = open_queue(directory.path());
    assert_eq!(ready(&house), (0, 0));
    house.close();
}

#[test]
fn a_stream_keeps_messages_with_a_time_of_expiry() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, 1, &["a"], Some(YEAR_3000));

    assert_eq!(house.shard.expire_due(YEAR_3000 + 1).unwrap(), 0);

    assert_eq!(counts(&house).ready_count, 1);
    house.close();
}

#[test]
fn a_delayed_message_is_delivered_at_its_time_and_others_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let subscription = subscribe(&house, 10);
    publish_delayed(&house, 1, &["later"], YEAR_3000 + 20);
    publish_delayed(&house, 1, &["sooner"], YEAR_3000 + 10);
    publish(&house, 1, &["now"], None);
    assert_eq!(deliver(&subscription), ["now"]);
    assert_eq!(deliver(&subscription), [""; 0]);
    assert_eq!(counts(&house).ready_count, 2, "they are not gone");

    house.shard.expire_due(YEAR_3000 + 10).unwrap();
    assert_eq!(deliver(&subscription), ["sooner"]);
    house.shard.expire_due(YEAR_3000 + 500).unwrap();

    assert_eq!(deliver(&subscription), ["later"]);
    settle_all(&subscription, Settle::Ack);
    assert_eq!(ready(&house), (0, 0));
    house.close();
}

#[test]
fn a_delayed_message_waits_also_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    for number in 0..50 {
        publish_delayed(&house, 1, &["delayed"], YEAR_3000 + number);
        publish(&house, 1, &["now"], None);
    }
    drop(house);

    let house = open_queue(directory.path());

    let subscription = subscribe(&house, 200);
    assert_eq!(deliver(&subscription), ["now"; 50]);
    assert_eq!(deliver(&subscription), [""; 0]);
    house.shard.expire_due(YEAR_3000 + 9).unwrap();
    assert_eq!(deliver(&subscription), ["delayed"; 10]);
    house.shard.expire_due(YEAR_3000 + 90).unwrap();
    assert_eq!(deliver(&subscription), ["delayed"; 40]);
    house.close();
}

#[test]
fn a_delayed_message_wakes_a_consumer_by_the_clock() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let subscription = subscribe(&house, 10);
    assert_eq!(deliver(&subscription), [""; 0]);
    publish_delayed(&house, 1, &["soon"], now_ms() + 200);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();

    runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(30), subscription.signal().heard()).await })
        .expect("nobody wakes the consumer");

    assert_eq!(deliver(&subscription), ["soon"]);
    house.close();
}

#[test]
fn a_message_that_is_due_while_its_consumer_puts_it_aside_is_not_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish_delayed(&house, 1, &["a"], YEAR_3000);
    house.close();
    let house = open_queue(directory.path());
    let subscription = subscribe(&house, 10);
    let mut filled = Vec::new();
    subscription.fill(10, &mut filled).unwrap();
    let sequence = filled[0].picked[0].taken.sequence;
    // Its deadline comes between a look at the message and its return.
    house.shard.expire_due(YEAR_3000).unwrap();

    subscription.put_aside(&[(sequence, YEAR_3000)]).unwrap();

    assert_eq!(deliver(&subscription), ["a"]);
    house.close();
}

#[test]
fn a_delayed_message_expires_by_its_own_time_and_ages_from_the_time_it_is_due() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let both =
        |due, expires| Attributes { due_at_ms: Some(due), expires_at_ms: Some(expires), ..Attributes::default() };
    publish_with(&house, 1, &["never"], &both(YEAR_3000 + 50, YEAR_3000 + 40));
    publish_delayed(&house, 1, &["ages"], YEAR_3000 + 100);
    limit(&house.shard, Some(1000));

    assert_eq!(house.shard.expire_due(YEAR_3000 + 60).unwrap(), 1);
    assert_eq!(house.shard.expire_due(YEAR_3000 + 1099).unwrap(), 0);
    assert_eq!(ready(&house), (1, 4));

    // The queue is looked at again within its limit.
    assert_eq!(house.shard.expire_due(YEAR_3000 + 3000).unwrap(), 1);
    assert_eq!(ready(&house), (0, 0));
    house.close();
}

#[test]
fn a_purge_leaves_delayed_messages_and_a_queue_with_some_is_not_empty() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish_delayed(&house, 1, &["delayed"], YEAR_3000);
    publish(&house, 1, &["now"], None);

    assert_eq!(house.shard.purge_queue(QUEUE).unwrap(), 1);
    assert_eq!(house.shard.shut_empty_queue(QUEUE).unwrap().ready_count, 1);

    house.shard.expire_due(YEAR_3000).unwrap();
    assert_eq!(deliver(&subscribe(&house, 10)), ["delayed"]);
    house.close();
}

#[test]
fn a_message_that_is_requeued_at_a_time_waits_also_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish(&house, 1, &["a", "b", "c"], None);
    let subscription = subscribe(&house, 10);
    assert_eq!(deliver(&subscription), ["a", "b", "c"]);
    let settle = |sequence, how| {
        subscription.settle(&[SequenceRange { first: Sequence(sequence), last: Sequence(sequence) }], how).unwrap();
    };
    settle(1, Settle::RequeueAt(YEAR_3000 + 10));
    settle(2, Settle::RequeueAt(YEAR_3000 + 20));
    settle(3, Settle::Ack);
    assert_eq!(deliver(&subscription), [""; 0]);
    house.shard.expire_due(YEAR_3000 + 10).unwrap();
    assert_eq!(deliver(&subscription), ["a"]);
    settle(1, Settle::RequeueAt(YEAR_3000 + 30));
    drop(subscription);
    drop(house);

    for is_clean in [true, false] {
        let house = open_queue(directory.path());
        until_next_is(&house, YEAR_3000 + 20);
        let subscription = subscribe(&house, 10);
        assert_eq!(deliver(&subscription), [""; 0]);
        if is_clean {
            drop(subscription);
            house.close();
            continue;
        }
        house.shard.expire_due(YEAR_3000 + 20).unwrap();
        assert_eq!(deliver(&subscription), ["b"]);
        house.shard.expire_due(YEAR_3000 + 30).unwrap();
        assert_eq!(deliver(&subscription), ["a"]);
        settle_all(&subscription, Settle::Ack);
        assert_eq!(ready(&house), (0, 0));
        house.close();
    }
}

fn reserve(house: &House) -> Vec<String> {
    let any = LeaseLimits { messages_max: 0, bytes_max: 0 };
    let reserved = house.shard.reserve_lease(QUEUE, "anna", 1, any, 1).unwrap();
    let part = LeasePart { owner: "anna", number: 1, part: 0, parts: 1 };
    let (mut reader, mut filled) = (house.shard.read_lease(QUEUE, part).unwrap(), Vec::new());
    while reader.fill(100, &mut filled).unwrap() {}
    let bodies: Vec<String> = filled.iter().flat_map(house::said).map(|said| said.body).collect();
    assert_eq!(bodies.len() as u64, reserved.lease.count);
    bodies
}

/// It had them, and whoever read the lease got them.
#[test]
fn a_lease_has_no_messages_that_are_over_their_time() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    house.shard.expire_due(YEAR_3000 + 10).unwrap();
    publish(&house, 1, &["late"], Some(YEAR_3000 + 5));
    publish(&house, 1, &["fresh"], Some(YEAR_3000 + 15));
    publish(&house, 1, &["late, too"], Some(YEAR_3000 + 9));

    assert_eq!(reserve(&house), ["fresh"]);

    assert_eq!((counts(&house).unacked_count, ready(&house)), (1, (0, 0)));
    assert_eq!(expired_total(&house), 2);
    house.close();
}

/// After a start it had them before their time.
#[test]
fn a_lease_has_no_messages_that_are_still_delayed() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish_delayed(&house, 1, &["later"], YEAR_3000);
    publish(&house, 1, &["now"], None);
    publish_delayed(&house, 1, &["later, too"], YEAR_3000);
    house.close();
    let house = open_queue(directory.path());

    assert_eq!(reserve(&house), ["now"]);

    assert_eq!((counts(&house).unacked_count, counts(&house).ready_count), (1, 2));
    house.shard.expire_due(YEAR_3000).unwrap();
    assert_eq!(deliver(&subscribe(&house, 10)), ["later", "later, too"]);
    house.close();
}

/// It kept the ones behind it until its own time.
#[test]
fn messages_behind_a_delayed_one_expire_by_age_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish_delayed(&house, YEAR_3000, &["later"], YEAR_3000 + 10_000);
    publish(&house, YEAR_3000, &["old", "old, too"], None);
    publish_delayed(&house, YEAR_3000, &["latest"], YEAR_3000 + 20_000);
    publish(&house, YEAR_3000 + 1500, &["new"], None);
    house.close();
    let house = open_queue(directory.path());
    limit(&house.shard, Some(1000));

    assert_eq!(house.shard.expire_due(YEAR_3000 + 1000).unwrap(), 2);

    assert_eq!((counts(&house).ready_count, counts(&house).unacked_count), (3, 0), "delayed ones count");
    until_next_is(&house, YEAR_3000 + 2500);
    assert_eq!(house.shard.expire_due(YEAR_3000 + 2500).unwrap(), 1);
    assert_eq!(house.shard.expire_due(YEAR_3000 + 10_000).unwrap(), 0);
    limit(&house.shard, None);
    let subscription = subscribe(&house, 10);
    assert_eq!(deliver(&subscription), ["later"]);
    house.shard.expire_due(YEAR_3000 + 20_000).unwrap();
    assert_eq!(deliver(&subscription), ["latest"]);
    house.close();
}

#[test]
fn however_many_delayed_messages_are_in_front_the_ones_behind_expire() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    for _ in 0..40 {
        publish_delayed(&house, YEAR_3000, &["later"; 1000], YEAR_3000 + 10_000);
    }
    publish(&house, YEAR_3000, &["old"], None);
    house.close();
    let house = open_queue(directory.path());
    limit(&house.shard, Some(1000));

    let mut checks = 1;
    while house.shard.expire_due(YEAR_3000 + 1000 + checks).unwrap() == 0 {
        checks += 1;
        assert!(checks < 10, "the messages behind the delayed ones stay");
    }

    assert!(checks > 1, "one check is bounded");
    assert_eq!(ready(&house), (40_000, 200_000));
    house.shard.expire_due(YEAR_3000 + 10_000).unwrap();
    assert_eq!(house.shard.expire_due(YEAR_3000 + 11_000).unwrap(), 40_000);
    house.close();
}

/// It has a lower sequence and ages from its own time on.
#[test]
fn a_message_that_was_delayed_keeps_no_older_ones_from_expiring() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    publish_delayed(&house, YEAR_3000, &["later"], YEAR_3000 + 1000);
    publish(&house, YEAR_3000 + 500, &["old"], None);
    publish(&house, YEAR_3000 + 800, &["new"], None);
    limit(&house.shard, Some(1000));
    house.shard.expire_due(YEAR_3000 + 1000).unwrap();

    assert_eq!(house.shard.expire_due(YEAR_3000 + 1500).unwrap(), 1);

    assert_eq!(ready(&house), (2, 8));
    until_next_is(&house, YEAR_3000 + 1800);
    assert_eq!(house.shard.expire_due(YEAR_3000 + 1999).unwrap(), 1);
    assert_eq!(house.shard.expire_due(YEAR_3000 + 2000).unwrap(), 1);
    house.close();
}
