//! Dead letters: rejected, expired and overdelivered messages move to the queues of a dead-letter exchange, in one step within a
//! log, as copies with their sources to other logs. After any failure of power each is in one place, and in that once.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "house/crashing.rs"]
mod crashing;
mod house;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crashing::CrashingDisk;
use house::{House, open_queue, open_queue_on, publish, publish_at};
use penstock_engine::{
    Attributes, DeadLetters, Destination, ExchangeKind, LengthLimit, Overflow, Payload, Publication, QueueId,
    SequenceRange, Settle, Subscription, SubscriptionOptions,
};
use penstock_wire::amqp::deaths::left_without_rejection;
use penstock_wire::amqp::properties::headers_of;
use penstock_wire::amqp::table::{ValueRef, entries};
use proptest::prelude::*;

/// The queue "s" of shard 0.
const JOBS: QueueId = house::STREAM;
const DEAD: QueueId = QueueId(2);
const LATE: QueueId = QueueId(3);

fn routed(exchange: &str, key: Option<&str>) -> Option<DeadLetters> {
    Some(DeadLetters { exchange: exchange.into(), routing_key: key.map(Into::into), at_least_once: false })
}

/// Dead letters of "s" go to "dead", and those of "dead" to "late".
fn with_queues(house: House) -> House {
    for (id, name) in [(DEAD, "dead"), (LATE, "late")] {
        house.shard.put_queue(id, name, false, None).unwrap();
    }
    house.shard.put_exchange("dlx", ExchangeKind::Fanout, None).unwrap();
    house.shard.add_route("dlx", "", None, Destination::Queue("dead")).unwrap();
    house.shard.route_dead_letters([(JOBS, routed("dlx", None)), (DEAD, routed("", Some("late")))]).unwrap();
    house
}

fn subscribe(house: &House, queue: QueueId, prefetch: u32) -> Subscription {
    let options = SubscriptionOptions { prefetch, auto_ack: false, exclusive: false, pull: false };
    house.shard.home_of(queue).subscribe(queue, options).unwrap()
}

/// Takes messages, all of which are delivered; returns their bodies.
fn deliver(subscription: &Subscription) -> Vec<String> {
    read(subscription).into_iter().map(|(body, ..)| body).collect()
}

/// Body, properties, exchange and key of each.
fn read(subscription: &Subscription) -> Vec<(String, Vec<u8>, String, String)> {
    let (mut filled, mut found, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    subscription.fill(10_000, &mut filled).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    for run in &filled {
        for picked in &run.picked {
            let view = run.segment.message(picked.offset).unwrap();
            sizes.push((picked.taken.sequence, view.body.len() as u32));
            found.push((text(view.body), view.properties.to_vec(), text(view.exchange), text(view.routing_key)));
        }
    }
    subscription.sent(&sizes).unwrap();
    found
}

fn settle_all(subscription: &Subscription, how: Settle) {
    subscription.settle(&[SequenceRange::ALL], how).unwrap();
}

fn ready(house: &House, queue: QueueId) -> u64 {
    house.shard.queue_counts(&[queue]).unwrap()[0].ready_count
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn header(properties: &[u8], wanted: &str) -> Option<String> {
    let mut all = entries(headers_of(properties).unwrap()?).map(Result::unwrap);
    all.find_map(|(name, value)| match value {
        ValueRef::Text(text) if name == wanted.as_bytes() => Some(String::from_utf8(text.to_vec()).unwrap()),
        _ => None,
    })
}

fn counted(house: &House, name: &str) -> u64 {
    house.engine.counters().all().find(|(found, _)| *found == name).unwrap().1
}

#[test]
fn rejected_messages_move_in_their_order_with_their_history() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_queues(open_queue(directory.path()));
    publish(&house, &["a", "b", "c"]);
    let subscription = subscribe(&house, JOBS, 10);
    assert_eq!(deliver(&subscription), ["a", "b", "c"]);

    settle_all(&subscription, Settle::Reject);
    until("the letters", || ready(&house, DEAD) == 3);

    let found = read(&subscribe(&house, DEAD, 10));
    let places: Vec<_> = found.iter().map(|(body, _, exchange, key)| (&body[..], &exchange[..], &key[..])).collect();
    assert_eq!(places, [("a", "dlx", "s"), ("b", "dlx", "s"), ("c", "dlx", "s")]);
    assert_eq!(header(&found[0].1, "x-first-death-queue"), Some("s".into()));
    assert_eq!(header(&found[0].1, "x-last-death-reason"), Some("rejected".into()));
    assert_eq!(ready(&house, JOBS), 0);
    // They are counted after they were stored.
    until("they count", || counted(&house, "dead_lettered_rejected_total") == 3);
    house.close();
}

#[test]
fn a_message_without_a_route_is_dropped_and_counted_or_stays_and_moves_later() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_queues(open_queue(directory.path()));
    let reject = |body: &str, at_least_once: bool| {
        let settings = DeadLetters { exchange: "none".into(), routing_key: None, at_least_once };
        house.shard.route_dead_letters([(JOBS, Some(settings))]).unwrap();
        publish(&house, &[body]);
        let subscription = subscribe(&house, JOBS, 10);
        assert_eq!(deliver(&subscription), [body]);
        settle_all(&subscription, Settle::Reject);
    };
    reject("gone", false);
    until("it is dropped", || counted(&house, "dead_letters_dropped_total") == 1);
    reject("stays", true);

    house.shard.put_exchange("none", ExchangeKind::Direct, None).unwrap();
    house.shard.add_route("none", "s", None, Destination::Queue("dead")).unwrap();

    until("it moves", || ready(&house, DEAD) == 1);
    assert_eq!(deliver(&subscribe(&house, DEAD, 10)), ["stays"]);
    house.close();
}

#[test]
fn letters_that_no_queue_takes_do_not_hold_up_those_behind_them() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_queues(open_queue(directory.path()));
    house.shard.put_exchange("in", ExchangeKind::Fanout, None).unwrap();
    house.shard.add_route("in", "", None, Destination::Queue("s")).unwrap();
    let by_their_keys = DeadLetters { exchange: "".into(), routing_key: None, at_least_once: true };
    house.shard.route_dead_letters([(JOBS, Some(by_their_keys)), (DEAD, None)]).unwrap();
    // More than are read at once.
    let keys = std::iter::repeat_n("nobody", 1_000).chain(["dead"]);
    for key in keys {
        let payload = Payload::new(b"in", key.as_bytes(), b"", key.as_bytes()).unwrap();
        let (exchange, key) = (b"in".as_slice(), key.as_bytes());
        let one = Publication { payload, exchange, key, headers: None, persistent: true, mandatory: false };
        house.shard.publish(&[one], None, 1, &mut Vec::new()).unwrap();
    }
    let jobs = subscribe(&house, JOBS, 2_000);
    assert_eq!(deliver(&jobs).len(), 1_001);

    settle_all(&jobs, Settle::Reject);

    until("the last letter moves", || ready(&house, DEAD) == 1);
}

#[test]
fn a_full_queue_does_not_keep_letters_from_others_and_takes_what_it_has_room_for() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_queues(open_queue(directory.path()));
    house.shard.add_route("dlx", "", None, Destination::Queue("late")).unwrap();
    house.shard.route_dead_letters([(DEAD, None)]).unwrap();
    let limit = LengthLimit::of_messages(3, Overflow::RejectPublish);
    house.shard.limit_lengths([(LATE, Some(limit))]).unwrap();
    publish(&house, &["a", "b", "c", "d", "e"]);
    let jobs = subscribe(&house, JOBS, 10);
    assert_eq!(deliver(&jobs).len(), 5);

    settle_all(&jobs, Settle::Reject);

    until("the letters", || ready(&house, DEAD) == 5);
    assert_eq!(ready(&house, LATE), 3);
}

#[test]
fn many_messages_that_expire_at_once_move_all() {
    const COUNT: usize = 20_000;
    let directory = tempfile::tempdir().unwrap();
    let house = with_queues(open_queue(directory.path()));
    let bodies: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
    publish_at(&house, 1, &bodies.iter().map(String::as_str).collect::<Vec<_>>());

    house.shard.limit_ages([(JOBS, Some(10))]).unwrap();
    until("the letters", || ready(&house, DEAD) == COUNT as u64);

    assert_eq!(ready(&house, JOBS), 0);
    assert_eq!(deliver(&subscribe(&house, DEAD, u32::MAX)), bodies[..10_000]);
    house.close();
}

#[test]
fn a_message_expires_with_its_own_time_and_in_a_cycle_only_once() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_queues(open_queue(directory.path()));
    // Back to the queue that it came from.
    house.shard.route_dead_letters([(JOBS, routed("", Some("dead"))), (DEAD, routed("", Some("s")))]).unwrap();
    house.shard.limit_ages([(DEAD, Some(0))]).unwrap();
    let attributes = Attributes { expires_at_ms: Some(2), ..Attributes::default() };
    let payload = Payload::new(b"", b"s", b"", b"body").unwrap().with_attributes(&attributes);
    let one = Publication { payload, exchange: b"", key: b"s", headers: None, persistent: false, mandatory: false };

    house.shard.publish(&[one], None, 1, &mut Vec::new()).unwrap();
    until("it is back", || {
        counted(&house, "dead_lettered_expired_total") == 2 || counted(&house, "dead_letters_dropped_total") == 1
    });

    // "s" has it again only if it left it by a rejection.
    until("it is dropped", || counted(&house, "dead_letters_dropped_total") == 1);
    assert_eq!([ready(&house, JOBS), ready(&house, DEAD)], [0, 0]);
    house.close();
}

#[test]
fn a_message_that_comes_back_too_often_leaves_also_when_its_consumers_die() {
    let directory = tempfile::tempdir().unwrap();
    let mut house = with_queues(open_queue(directory.path()));
    house.shard.limit_deliveries([(JOBS, Some(2))]).unwrap();
    publish(&house, &["a"]);
    let subscription = subscribe(&house, JOBS, 10);
    assert_eq!(deliver(&subscription), ["a"]);
    settle_all(&subscription, Settle::Requeue);
    drop(subscription);
    house.close();

    house = with_queues(open_queue(directory.path()));
    house.shard.limit_deliveries([(JOBS, Some(2))]).unwrap();
    for _ in 0..2 {
        assert_eq!(ready(&house, DEAD), 0);
        let subscription = subscribe(&house, JOBS, 10);
        assert_eq!(deliver(&subscription), ["a"]);
        drop(subscription);
    }

    until("it left", || ready(&house, DEAD) == 1);
    let found = read(&subscribe(&house, DEAD, 10));
    assert_eq!(header(&found[0].1, "x-first-death-reason"), Some("delivery_limit".into()));
    assert_eq!(ready(&house, JOBS), 0);
    house.close();
}

#[test]
fn a_lower_limit_counts_at_the_next_delivery_and_drops_without_an_exchange() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_queues(open_queue(directory.path()));
    house.shard.route_dead_letters([(JOBS, None)]).unwrap();
    publish(&house, &["a", "b"]);
    let subscription = subscribe(&house, JOBS, 1);
    assert_eq!(deliver(&subscription), ["a"]);
    settle_all(&subscription, Settle::Requeue);

    house.shard.limit_deliveries([(JOBS, Some(0))]).unwrap();

    assert_eq!(deliver(&subscription), ["b"]);
    until("it left", || house.shard.queue_counts(&[JOBS]).unwrap()[0].settled_count == 1);
    house.close();
}

#[test]
fn the_oldest_messages_of_a_queue_that_is_too_long_move() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_queues(open_queue(directory.path()));
    house.shard.limit_lengths([(JOBS, Some(LengthLimit::of_messages(1, Overflow::DropHead)))]).unwrap();

    publish(&house, &["a", "b", "c"]);

    until("the letters", || ready(&house, DEAD) == 2);
    assert_eq!(deliver(&subscribe(&house, JOBS, 10)), ["c"]);
    until("they count", || counted(&house, "dead_lettered_maxlen_total") == 2);
    assert_eq!(counted(&house, "overflow_dropped_total"), 0);
    let found = read(&subscribe(&house, DEAD, 10));
    assert_eq!(found.iter().map(|one| &one.0[..]).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(header(&found[0].1, "x-first-death-reason"), Some("maxlen".into()));
    house.close();
}

/// Letters that are on their way counted, and as many others went with them.
#[test]
fn letters_on_their_way_do_not_make_their_queue_too_long() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_queues(open_queue(directory.path()));
    let settings = DeadLetters { exchange: "".into(), routing_key: Some("nobody".into()), at_least_once: true };
    house.shard.route_dead_letters([(JOBS, Some(settings))]).unwrap();
    house.shard.limit_lengths([(JOBS, Some(LengthLimit::of_messages(3, Overflow::DropHead)))]).unwrap();
    publish(&house, &["a", "b"]);
    let subscription = subscribe(&house, JOBS, 2);
    assert_eq!(deliver(&subscription), ["a", "b"]);
    settle_all(&subscription, Settle::Reject);
    drop(subscription);

    publish(&house, &["c", "d", "e"]);
    assert_eq!(counted(&house, "dead_letters_dropped_total"), 0, "the rejected ones stay");
    publish(&house, &["f"]);

    until("the oldest", || counted(&house, "dead_letters_dropped_total") == 1);
    assert_eq!(deliver(&subscribe(&house, JOBS, 10)), ["d", "e", "f"]);
    house.close();
}

/// A start knew no dead-letter exchange yet when it found the queue too long, and dropped its messages.
#[test]
fn no_queue_is_shortened_before_a_start_has_its_queues_and_routes() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_queues(open_queue(directory.path()));
    publish(&house, &["a", "b", "c"]);
    house.close();

    let engine = house::engine();
    let shard = engine.open_incomplete("/", directory.path(), false).unwrap();
    shard.put_queue(JOBS, "s", false, None).unwrap();
    shard.put_queue(DEAD, "dead", false, None).unwrap();
    shard.limit_lengths([(JOBS, Some(LengthLimit::of_messages(1, Overflow::DropHead)))]).unwrap();
    shard.expire_due(1).unwrap();
    let house = House { engine, shard };
    assert_eq!(ready(&house, JOBS), 3);
    house.shard.route_dead_letters([(JOBS, routed("", Some("dead")))]).unwrap();
    house.shard.complete();

    until("the letters", || ready(&house, DEAD) == 2 && ready(&house, JOBS) == 1);
    house.close();
}

#[test]
fn letters_of_several_priorities_keep_theirs() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let (first, second) = (QueueId(10), QueueId(20));
    house.shard.prioritize_queues([(first, 5), (second, 5)]).unwrap();
    house.shard.put_queue(first, "first", false, None).unwrap();
    house.shard.put_queue(second, "second", false, None).unwrap();
    house.shard.route_dead_letters([(first, routed("", Some("second")))]).unwrap();
    for (body, priority) in [("low", 0), ("high", 5), ("middle", 2)] {
        let attributes = Attributes { priority: Some(priority), ..Attributes::default() };
        let payload = Payload::new(b"", b"first", b"", body.as_bytes()).unwrap().with_attributes(&attributes);
        let one =
            Publication { payload, exchange: b"", key: b"first", headers: None, persistent: false, mandatory: false };
        house.shard.publish(&[one], None, 1, &mut Vec::new()).unwrap();
    }
    let subscription = subscribe(&house, first, 10);
    assert_eq!(deliver(&subscription), ["high", "middle", "low"]);

    settle_all(&subscription, Settle::Reject);
    until("the letters", || ready(&house, second) == 3);

    assert_eq!(deliver(&subscribe(&house, second, 10)), ["high", "middle", "low"]);
    house.close();
}

/// "s" in shard 0 and "second" in shard 1, with queues of their dead letters in shards 0, 1 and 2.
fn with_shards(house: House) -> House {
    house.shard.grow(3).unwrap();
    let queues =
        [(DEAD, "dead", 0), (QueueId(5), "dead1", 1), (QueueId((1 << 32) + 6), "dead2", 2), (LATE, "second", 1)];
    house.shard.place_queues(queues.map(|(id, _, shard)| (id, shard))).unwrap();
    house.shard.put_exchange("dlx", ExchangeKind::Fanout, None).unwrap();
    for (id, name, _) in queues {
        house.shard.put_queue(id, name, false, None).unwrap();
        if name != "second" {
            house.shard.add_route("dlx", "", None, Destination::Queue(name)).unwrap();
        }
    }
    house.shard.route_dead_letters([(JOBS, routed("dlx", None)), (LATE, routed("dlx", None))]).unwrap();
    house
}

const SHARDED: [QueueId; 3] = [DEAD, QueueId(5), QueueId((1 << 32) + 6)];

fn publish_to(house: &House, queue: &str, bodies: &[String]) {
    let publication = |body: &String| {
        let payload = Payload::new(b"", queue.as_bytes(), b"", body.as_bytes()).unwrap();
        // The body lives as long as the batch.
        (payload.body_bytes(), body.clone())
    };
    let owned: Vec<(u64, String)> = bodies.iter().map(publication).collect();
    let batch: Vec<Publication<'_>> = owned
        .iter()
        .map(|(_, body)| Publication {
            payload: Payload::new(b"", queue.as_bytes(), b"", body.as_bytes()).unwrap(),
            exchange: b"",
            key: queue.as_bytes(),
            headers: None,
            persistent: true,
            mandatory: false,
        })
        .collect();
    house.shard.publish(&batch, None, 1, &mut Vec::new()).unwrap();
}

fn sync_all(house: &House) {
    for shard in house.shard.family() {
        let end = shard.publish(&[], None, 1, &mut Vec::new()).unwrap().end;
        shard.sync_to(end).unwrap();
    }
}

#[test]
fn letters_of_any_shard_reach_queues_of_all_shards_once() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_shards(open_queue(directory.path()));
    for (queue, name) in [(JOBS, "s"), (LATE, "second")] {
        let bodies: Vec<String> = (0..600).map(|number| format!("{name}{number}")).collect();
        publish_to(&house, name, &bodies);
        let subscription = subscribe(&house, queue, 1000);
        assert_eq!(deliver(&subscription), bodies);
        settle_all(&subscription, Settle::Reject);
        for dead in SHARDED {
            until("the letters", || ready(&house, dead) == 600);
            let subscription = subscribe(&house, dead, 1000);
            assert_eq!(deliver(&subscription), bodies);
            settle_all(&subscription, Settle::Ack);
        }
    }
    house.close();
}

fn open_on(directory: &Path, disk: &Arc<CrashingDisk>, is_sharded: bool) -> House {
    let house = open_queue_on(directory, Arc::clone(disk) as _);
    if is_sharded { with_shards(house) } else { with_queues(house) }
}

/// How often each message is in a queue.
fn copies(house: &House, queue: QueueId) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for body in deliver(&subscribe(house, queue, 100_000)) {
        *found.entry(body).or_insert(0) += 1;
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Power fails: of what was not synced, each log keeps another part. What was not moved is rejected again.
    #[test]
    fn no_message_is_lost_or_doubled_by_failures_of_power(
        is_sharded: bool,
        lives in prop::collection::vec((0..40_i64, any::<[u8; 3]>(), 1..400_u32), 1..5),
    ) {
        let (mut directory, mut all) = (tempfile::tempdir().unwrap(), Vec::new());
        for (writes, kept, count) in lives {
            let disk = Arc::new(CrashingDisk::default());
            let house = open_on(directory.path(), &disk, is_sharded);
            let some: Vec<String> = (0..count).map(|number| format!("m{}", all.len() as u32 + number)).collect();
            publish_to(&house, "s", &some);
            sync_all(&house);
            all.extend(some);
            // Threads of the engine write, too, and may use up the writes at once.
            let subscription = subscribe(&house, JOBS, 100_000);
            disk.writes_left.store(writes, Ordering::SeqCst);
            let mut filled = Vec::new();
            let _ = subscription.fill(10_000, &mut filled);
            let _ = subscription.settle(&[SequenceRange::ALL], Settle::Reject);
            let began = Instant::now();
            while disk.writes_left.load(Ordering::SeqCst) > 0 && began.elapsed() < Duration::from_millis(20) {
                std::thread::yield_now();
            }
            let after = tempfile::tempdir().unwrap();
            disk.image(directory.path(), after.path(), &kept);
            drop(subscription);
            let _ = house.engine.close();
            directory = after;
        }
        let house = open_on(directory.path(), &Arc::new(CrashingDisk::default()), is_sharded);
        let subscription = subscribe(&house, JOBS, 100_000);
        deliver(&subscription);
        settle_all(&subscription, Settle::Reject);
        until("all moved", || ready(&house, JOBS) == 0);
        let queues = if is_sharded { &SHARDED[..] } else { &[DEAD] };
        let expected: BTreeMap<String, usize> = all.into_iter().map(|body| (body, 1)).collect();
        for &queue in queues {
            prop_assert_eq!(&copies(&house, queue), &expected);
        }
        house.close();
    }
}

#[test]
fn a_letter_knows_the_queues_that_it_left() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_queues(open_queue(directory.path()));
    house.shard.limit_ages([(JOBS, Some(1)), (DEAD, Some(1))]).unwrap();

    publish_at(&house, 1, &["a"]);
    until("it is late", || ready(&house, LATE) == 1);

    let found = read(&subscribe(&house, LATE, 10));
    assert_eq!(left_without_rejection(&found[0].1), [&b"dead"[..], b"s"]);
    assert_eq!((&found[0].2[..], &found[0].3[..]), ("", "late"));
    house.close();
}

/// A start had no routes yet when messages expired, and dropped them.
#[test]
fn nothing_expires_before_a_start_has_its_queues_and_routes() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_queues(open_queue(directory.path()));
    house.shard.limit_ages([(JOBS, None)]).unwrap();
    let attributes = Attributes { expires_at_ms: Some(32_503_680_000_000), ..Attributes::default() };
    let payload = Payload::new(b"", b"s", b"", b"body").unwrap().with_attributes(&attributes);
    let one = Publication { payload, exchange: b"", key: b"s", headers: None, persistent: true, mandatory: false };
    house.shard.publish(&[one, one], None, 1, &mut Vec::new()).unwrap();
    house.close();

    let engine = house::engine();
    let shard = engine.open_incomplete("/", directory.path(), false).unwrap();
    assert_eq!(shard.expire_due(u64::MAX >> 16).unwrap(), 0);
    shard.put_queue(JOBS, "s", false, None).unwrap();
    shard.put_queue(DEAD, "dead", false, None).unwrap();
    shard.route_dead_letters([(JOBS, routed("", Some("dead")))]).unwrap();
    assert_eq!(shard.expire_due(u64::MAX >> 16).unwrap(), 0);
    shard.complete();
    assert_eq!(shard.expire_due(32_503_680_000_001).unwrap(), 2);

    let house = House { engine, shard };
    until("the letters", || ready(&house, DEAD) == 2);
    house.close();
}

/// A message whose copy was in another log was delivered again, and acked.
#[test]
fn a_start_ends_what_a_crash_left_half_done() {
    let (directory, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = Arc::new(CrashingDisk::default());
    let house = open_on(directory.path(), &disk, true);
    let bodies: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    publish_to(&house, "s", &bodies);
    sync_all(&house);
    let subscription = subscribe(&house, JOBS, 1000);
    let mut filled = Vec::new();
    subscription.fill(1000, &mut filled).unwrap();
    // The copies in the other logs are written, and the settlement is not.
    disk.writes_left.store(2, Ordering::SeqCst);
    let _ = subscription.settle(&[SequenceRange::ALL], Settle::Reject);
    until("the copies", || disk.writes_left.load(Ordering::SeqCst) <= 0);
    std::thread::sleep(Duration::from_millis(20));
    disk.image(directory.path(), after.path(), &[255]);
    drop(subscription);
    let _ = house.engine.close();

    let house = open_on(after.path(), &Arc::new(CrashingDisk::default()), true);
    let taken = deliver(&subscribe(&house, JOBS, 1000));
    let expected: BTreeMap<String, usize> = bodies.iter().map(|body| (body.clone(), 1)).collect();
    until("the letters", || taken.len() + ready(&house, DEAD) as usize == 20);
    assert!(taken.is_empty(), "{taken:?}");
    for queue in SHARDED {
        until("the letters", || ready(&house, queue) == 20);
        assert_eq!(copies(&house, queue), expected);
    }
    house.close();
}
