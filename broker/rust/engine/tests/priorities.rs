//! Queues with priorities: what the model does not have. Times, limits, further logs, skipped sequences, deletions.
#![allow(clippy::unwrap_used)]

mod house;

use std::path::Path;

use house::{House, engine, said};
use penstock_engine::{
    Attributes, Fate, LeaseLimits, LeasePart, LeaseReader, LengthLimit, LogError, Overflow, Payload, Publication,
    QueueCounts, QueueId, Sequence, SequenceRange, Settle, Shard, Subscription, SubscriptionOptions,
};
use penstock_log::Corruption;

const QUEUE: QueueId = QueueId(3);
const HIGHEST: u8 = 255;
/// Far in the future, so that the thread that expires messages in the background does nothing by itself.
const YEAR_3000: u64 = 32_503_680_000_000;

fn open(directory: &Path) -> House {
    open_raised(directory, false)
}

fn open_raised(directory: &Path, raise: bool) -> House {
    let engine = engine();
    let shard = engine.open_shard("/", directory, raise).unwrap();
    shard.retain_with_lanes(&[QUEUE], &[(QUEUE, HIGHEST)]).unwrap();
    put(&shard);
    House { engine, shard }
}

fn put(shard: &Shard) {
    shard.prioritize_queues([(QUEUE, HIGHEST)]).unwrap();
    shard.put_queue(QUEUE, "s", false, None).unwrap();
}

fn publish(house: &House, bodies: &[(u8, &str)]) -> Vec<Fate> {
    publish_with(house, 1, bodies, &Attributes::default())
}

fn publish_with(house: &House, now_ms: u64, bodies: &[(u8, &str)], times: &Attributes) -> Vec<Fate> {
    let attributes: Vec<_> =
        bodies.iter().map(|(priority, _)| Attributes { priority: Some(*priority), ..*times }).collect();
    let batch = bodies.iter().zip(&attributes).map(|((_, body), attributes)| {
        let payload = Payload::new(b"", b"s", b"", body.as_bytes()).unwrap().with_attributes(attributes);
        Publication { payload, exchange: b"", key: b"s", headers: None, persistent: false, mandatory: false }
    });
    let batch: Vec<_> = batch.collect();
    let mut fates = Vec::new();
    house.shard.publish(&batch, None, now_ms, &mut fates).unwrap();
    fates
}

fn subscribe(house: &House) -> Subscription {
    let options = SubscriptionOptions { prefetch: 100, auto_ack: false, exclusive: false, pull: false };
    house.shard.home_of(QUEUE).subscribe(QUEUE, options).unwrap()
}

fn deliver(subscription: &Subscription) -> Vec<(String, Sequence, bool)> {
    let mut filled = Vec::new();
    subscription.fill(100, &mut filled).unwrap();
    let taken = filled.iter().flat_map(|run| run.picked.iter().map(|one| one.taken));
    let found: Vec<_> = taken
        .zip(filled.iter().flat_map(said))
        .map(|(taken, say)| (say.body, taken.sequence, taken.redelivered))
        .collect();
    let sizes: Vec<_> = found.iter().map(|(body, sequence, _)| (*sequence, body.len() as u32)).collect();
    subscription.sent(&sizes).unwrap();
    found
}

fn bodies(subscription: &Subscription) -> Vec<String> {
    deliver(subscription).into_iter().map(|(body, _, _)| body).collect()
}

fn counts(house: &House) -> QueueCounts {
    house.shard.queue_counts(&[QUEUE]).unwrap()[0]
}

#[test]
fn a_message_keeps_its_priority_over_a_start_that_skips_sequences() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &[(0, "a"), (7, "b"), (255, "c")]);
    house.close();

    let house = open_raised(directory.path(), true);
    publish(&house, &[(7, "d"), (9, "e"), (0, "f")]);
    let found = deliver(&subscribe(&house));

    let found: Vec<_> = found.iter().map(|(body, sequence, _)| (body.as_str(), sequence.lane())).collect();
    assert_eq!(found, [("c", 255), ("e", 9), ("b", 7), ("d", 7), ("a", 0), ("f", 0)]);
    assert_eq!(counts(&house).published_count, 6, "none that the start skipped");
    let again: Vec<_> = deliver(&subscribe(&house)).iter().map(|(_, sequence, _)| sequence.within().0).collect();
    assert_eq!(again.iter().filter(|&&within| within > 1 << 32).count(), 3, "{again:?}");
}

#[test]
fn a_queue_that_is_deleted_leaves_no_lane() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &[(0, "a"), (7, "b"), (255, "c")]);

    assert_eq!(house.shard.delete_queue(QUEUE).unwrap(), 3);
    house.close();

    let again = engine();
    let shard = again.open_shard("/", directory.path(), false).unwrap();
    assert_eq!(shard.retain_queues(&[]).unwrap(), 0, "neither the queue nor a lane");
    again.close().unwrap();
    let house = open(directory.path());
    assert_eq!((counts(&house).ready_count, counts(&house).published_count), (0, 0));
}

#[test]
fn a_start_deletes_the_lanes_of_a_queue_that_the_definitions_do_not_name() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &[(0, "a"), (7, "b"), (255, "c")]);
    house.close();

    let engine = engine();
    let shard = engine.open_shard("/", directory.path(), false).unwrap();
    assert_eq!(shard.retain_with_lanes(&[QueueId(2)], &[(QueueId(2), 0)]).unwrap(), 3);
    engine.close().unwrap();
    let house = open(directory.path());
    assert_eq!((counts(&house).ready_count, counts(&house).published_count), (0, 0));
}

#[test]
fn lanes_that_nobody_used_cost_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &[(0, "a")]);
    house.close();

    let engine = engine();
    let shard = engine.open_shard("/", directory.path(), false).unwrap();

    assert_eq!(shard.highest_queue_id(), QUEUE.0);
    engine.close().unwrap();
}

#[test]
fn messages_of_any_priority_expire_and_wait() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let expires = |expires_at_ms| Attributes { expires_at_ms: Some(expires_at_ms), ..Attributes::default() };
    publish_with(&house, 1, &[(0, "goes"), (5, "goes, too")], &expires(YEAR_3000));
    publish_with(&house, 1, &[(0, "stays"), (5, "stays, too")], &expires(2 * YEAR_3000));
    let due = Attributes { due_at_ms: Some(YEAR_3000), ..Attributes::default() };
    publish_with(&house, 1, &[(5, "later"), (9, "first later")], &due);
    house.close();
    let house = open(directory.path());
    let consumer = subscribe(&house);

    assert_eq!(house.shard.expire_due(YEAR_3000 + 1).unwrap(), 2);

    assert_eq!(counts(&house).ready_count, 4);
    assert_eq!(bodies(&consumer), ["first later", "stays, too", "later", "stays"]);
    consumer.settle(&[SequenceRange::ALL], Settle::RequeueAt(YEAR_3000 + 500)).unwrap();
    assert_eq!(bodies(&consumer), [""; 0]);
    drop(consumer);
    house.close();
    let house = open(directory.path());
    let consumer = subscribe(&house);
    assert_eq!(bodies(&consumer), [""; 0], "they wait over a restart");
    house.shard.expire_due(YEAR_3000 + 501).unwrap();
    assert_eq!(bodies(&consumer), ["first later", "stays, too", "later", "stays"]);
}

#[test]
fn an_age_limit_holds_in_each_lane() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let none = Attributes::default();
    publish_with(&house, YEAR_3000, &[(9, "old"), (0, "old, too")], &none);
    publish_with(&house, YEAR_3000 + 500, &[(9, "new"), (4, "new, too")], &none);
    house.shard.limit_ages([(QUEUE, Some(100))]).unwrap();

    assert_eq!(house.shard.expire_due(YEAR_3000 + 550).unwrap(), 2);
    assert_eq!(counts(&house).ready_count, 2);
    assert_eq!(house.shard.expire_due(YEAR_3000 + 700).unwrap(), 2);
}

#[test]
fn a_limit_of_the_length_counts_all_lanes() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    house.shard.limit_lengths([(QUEUE, Some(LengthLimit::of_messages(3, Overflow::RejectPublish)))]).unwrap();

    let fates = publish(&house, &[(0, "a"), (9, "b"), (4, "c"), (9, "d"), (0, "e")]);

    assert!(matches!(fates[..], [Fate::Stored(_), Fate::Stored(_), Fate::Stored(_), Fate::Overflow, Fate::Overflow]));
}

#[test]
fn a_priority_queue_may_have_a_log_of_its_own_or_be_in_a_further_shard() {
    for is_dedicated in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let engine = engine();
            let shard = engine.open_shard("/", directory.path(), false).unwrap();
            shard.retain_with_lanes(&[QUEUE], &[(QUEUE, HIGHEST)]).unwrap();
            if is_dedicated {
                shard.dedicate(QUEUE).unwrap();
            } else {
                shard.grow(2).unwrap();
                shard.place_queues([(QUEUE, 1)]).unwrap();
            }
            put(&shard);
            House { engine, shard }
        };
        let house = open();
        publish(&house, &[(0, "a"), (7, "b"), (255, "c")]);
        house.close();

        let house = open();
        publish(&house, &[(8, "d")]);

        assert_eq!(bodies(&subscribe(&house)), ["c", "d", "b", "a"]);
        assert_eq!(house.shard.purge_queue(QUEUE).unwrap(), 4);
        assert_eq!(house.shard.delete_queue(QUEUE).unwrap(), 0);
        house.close();
    }
}

#[test]
fn those_that_were_delivered_before_a_kill_are_flagged_in_each_lane() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &[(7, "b"), (0, "a")]);
    let consumer = subscribe(&house);
    assert_eq!(bodies(&consumer), ["b", "a"]);
    // The process ends without a stop.
    std::mem::forget(consumer);
    std::mem::forget(house);

    let house = open(directory.path());
    publish(&house, &[(8, "new"), (0, "new")]);
    let found = deliver(&subscribe(&house));

    let flags: Vec<_> = found.iter().map(|(body, _, redelivered)| (body.as_str(), *redelivered)).collect();
    assert_eq!(flags, [("new", false), ("b", true), ("a", true), ("new", false)]);
}

#[test]
fn messages_of_a_lease_stay_reserved_until_the_queue_has_its_lanes() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let expires = Attributes { expires_at_ms: Some(YEAR_3000), ..Attributes::default() };
    publish_with(&house, 1, &[(7, "b"), (9, "a")], &expires);
    house.shard.reserve_lease(QUEUE, "o", 1, LeaseLimits::default(), 1).unwrap();
    house.close();

    let engine = engine();
    let shard = engine.open_shard("/", directory.path(), false).unwrap();
    assert_eq!(shard.expire_due(YEAR_3000 + 1).unwrap(), 0, "nothing is known to be free");
    put(&shard);
    let house = House { engine, shard };

    assert_eq!((counts(&house).ready_count, counts(&house).unacked_count), (0, 2));
    assert_eq!(house.shard.ack_leases(QUEUE, "o", 1).unwrap(), 2);
    house.close();
}

/// Where no message had the lowest priority, a start forgot the owner, which then began with lease 1 again.
#[test]
fn the_owner_of_leases_is_known_after_a_restart_whatever_the_priorities() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &[(7, "a"), (7, "b")]);
    house.shard.reserve_lease(QUEUE, "o", 1, LeaseLimits::default(), 1).unwrap();
    house.shard.ack_leases(QUEUE, "o", 1).unwrap();
    house.close();

    let house = open(directory.path());

    publish(&house, &[(3, "c")]);
    assert!(house.shard.reserve_lease(QUEUE, "o", 1, LeaseLimits::default(), 1).is_err(), "it was acked");
    house.shard.reserve_lease(QUEUE, "o", 2, LeaseLimits::default(), 1).unwrap();
    assert_eq!(house.shard.ack_leases(QUEUE, "o", 2).unwrap(), 1);
    house.close();
}

/// Its rows began with the lowest priority.
#[test]
fn a_lease_is_read_from_the_highest_priority_on_also_behind_a_corrupt_message() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    publish(&house, &[(0, "e"), (9, "b"), (255, "a"), (4, "d"), (9, "c"), (0, "f")]);
    house.shard.reserve_lease(QUEUE, "o", 1, LeaseLimits::default(), 1).unwrap();
    let read = |part, parts| {
        let part = LeasePart { owner: "o", number: 1, part, parts };
        house.shard.read_lease(QUEUE, part).unwrap()
    };
    let rest = |reader: &mut LeaseReader| {
        let mut filled = Vec::new();
        while reader.fill(1, &mut filled).unwrap() {}
        filled.iter().flat_map(said).map(|say| say.body).collect::<String>()
    };
    assert_eq!(rest(&mut read(0, 1)), "abcdef");
    assert_eq!([0, 1, 2].map(|part| rest(&mut read(part, 3))), ["ab", "cd", "ef"]);

    let mut reader = read(0, 1);
    assert_eq!(rest(&mut reader), "abcdef");
    let error = LogError::Corrupt { path: "msgs.0000000001".into(), at: 1, why: Corruption::Unreadable };
    reader.drop_corrupt(Sequence(1).in_lane(9), &error).unwrap();

    assert_eq!(rest(&mut reader), "cdef", "what was found behind it is found again");
    house.close();
}

#[test]
fn a_message_for_several_queues_has_a_priority_in_each() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let others = [QueueId(1000), QueueId(2000)];
    house.shard.prioritize_queues([(others[0], 2)]).unwrap();
    house.shard.put_exchange("all", penstock_engine::ExchangeKind::Fanout, None).unwrap();
    for (id, name) in [(others[0], "few"), (others[1], "plain")] {
        house.shard.put_queue(id, name, false, None).unwrap();
    }
    for name in ["s", "few", "plain"] {
        house.shard.add_route("all", "", None, penstock_engine::Destination::Queue(name)).unwrap();
    }
    for priority in [5, 0, 2] {
        let attributes = Attributes { priority: Some(priority), ..Attributes::default() };
        let body = priority.to_string();
        let payload = Payload::new(b"all", b"", b"", body.as_bytes()).unwrap().with_attributes(&attributes);
        let one =
            Publication { payload, exchange: b"all", key: b"", headers: None, persistent: false, mandatory: false };
        house.shard.publish(&[one], None, 1, &mut Vec::new()).unwrap();
    }

    let options = SubscriptionOptions { prefetch: 100, auto_ack: false, exclusive: false, pull: false };
    let found = [QUEUE, others[0], others[1]].map(|id| bodies(&house.shard.subscribe(id, options).unwrap()));
    assert_eq!(found, [["5", "2", "0"], ["5", "2", "0"], ["5", "0", "2"]].map(|some| some.map(String::from).to_vec()));
}
