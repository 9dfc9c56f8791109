//! A queue with a limit refuses messages beyond it, and its publisher is told.
#![allow(clippy::unwrap_used)]

mod house;

use std::path::Path;

use house::{House, STREAM as QUEUE, open_queue};
use penstock_engine::{
    Destination, EngineError, ExchangeKind, Fate, LengthLimit, Overflow, Payload, Producer, ProducerSession,
    Publication, QueueId, Sequence, SequenceRange, Settle, SubscriptionOptions,
};

const OTHER: QueueId = QueueId(2);
/// A queue with a log of its own.
const OWN: QueueId = QueueId(7);

/// The house's queue "s" with the limit, "other" and "own", all behind "all".
fn opened(directory: &Path, ready_max: u64) -> House {
    let house = open_queue(directory);
    let shard = &house.shard;
    shard.put_queue(OTHER, "other", false, None).unwrap();
    shard.dedicate(OWN).unwrap();
    shard.put_queue(OWN, "own", false, None).unwrap();
    shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
    for name in ["s", "other", "own"] {
        shard.add_route("all", "", None, Destination::Queue(name)).unwrap();
    }
    limit(&house, QUEUE, Some(ready_max));
    house
}

fn limit(house: &House, queue: QueueId, messages_max: Option<u64>) {
    let limit = messages_max.map(|messages_max| LengthLimit::of_messages(messages_max, Overflow::RejectPublish));
    house.shard.limit_lengths([(queue, limit)]).unwrap();
}

/// Exchange, key, and the producer's sequence unless it is 0.
type Sent = (&'static str, &'static str, u64);

fn send(house: &House, session: Option<&ProducerSession>, sent: &[Sent]) -> Vec<Fate> {
    let publication = |&(exchange, key, sequence): &Sent| {
        let (exchange, key) = (exchange.as_bytes(), key.as_bytes());
        let mut payload = Payload::new(exchange, key, b"", b"x").unwrap();
        if let Some(session) = session.filter(|_| sequence > 0) {
            payload = payload.with_producer(Producer { id: session.id(), sequence });
        }
        Publication { payload, exchange, key, headers: None, persistent: false, mandatory: false }
    };
    let batch: Vec<Publication<'_>> = sent.iter().map(publication).collect();
    let mut fates = Vec::new();
    assert!(house.shard.publish_as(session, &batch, None, 1, &mut fates).unwrap().refused.is_none());
    fates
}

fn overflows(house: &House, sent: &[Sent]) -> Vec<bool> {
    send(house, None, sent).iter().map(|fate| *fate == Fate::Overflow).collect()
}

fn ready_counts(house: &House) -> Vec<u64> {
    house.shard.queue_counts(&[QUEUE, OTHER, OWN]).unwrap().iter().map(|counts| counts.ready_count).collect()
}

#[test]
fn messages_beyond_the_limit_are_refused_within_a_batch_too() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 2);

    let sent = [("", "s", 0), ("", "other", 0), ("", "s", 0), ("", "s", 0), ("", "other", 0)];

    assert_eq!(overflows(&house, &sent), [false, false, false, true, false]);
    assert_eq!(ready_counts(&house), [2, 2, 0]);
    house.close();
}

#[test]
fn there_is_room_again_once_a_consumer_takes_messages_or_the_limit_goes() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 1);
    assert_eq!(overflows(&house, &[("", "s", 0); 2]), [false, true]);
    let options = SubscriptionOptions { prefetch: 10, auto_ack: false, exclusive: false, pull: false };
    let consumer = house.shard.subscribe(QUEUE, options).unwrap();
    consumer.fill(10, &mut Vec::new()).unwrap();

    assert_eq!(overflows(&house, &[("", "s", 0); 2]), [false, true], "unacked ones do not count");
    let first = SequenceRange::new(Sequence(1), Sequence(1)).unwrap();
    assert_eq!(consumer.settle(&[first], Settle::Requeue).unwrap(), 1);
    assert_eq!(ready_counts(&house), [2, 0, 0], "what comes back is not refused");

    limit(&house, QUEUE, None);
    assert_eq!(overflows(&house, &[("", "s", 0); 2]), [false, false]);
    drop(consumer);
    house.close();
}

#[test]
fn the_other_queues_of_a_refused_message_have_it_and_its_publisher_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 1);

    assert_eq!(overflows(&house, &[("all", "", 0); 3]), [false, true, true]);

    assert_eq!(ready_counts(&house), [1, 3, 3]);
    let counted = house.shard.counters().all().find(|(name, _)| *name == "overflow_refused_total");
    assert_eq!(counted, Some(("overflow_refused_total", 2)));
    house.close();
}

#[test]
fn a_message_of_a_named_producer_goes_to_all_queues_of_a_log_or_to_none() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 1);
    house.shard.remove_route("all", "", None, Destination::Queue("own")).unwrap();
    let session = house.shard.open_producer("p", "u").unwrap();

    let fates = send(&house, Some(&session), &[("all", "", 1), ("all", "", 2)]);

    assert!(matches!(fates[..], [Fate::Stored(_), Fate::Overflow]), "{fates:?}");
    assert_eq!(ready_counts(&house), [1, 1, 0], "sent again, it reaches both");
    drop(session);
    house.close();
}

#[test]
fn bytes_have_a_limit_too_and_a_larger_message_never_has_room() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 1);
    let bytes = |bytes_max| LengthLimit { messages_max: u64::MAX, bytes_max, overflow: Overflow::RejectPublish };

    house.shard.limit_lengths([(QUEUE, Some(bytes(2)))]).unwrap();
    assert_eq!(overflows(&house, &[("", "s", 0); 3]), [false, false, true]);
    house.shard.limit_lengths([(OWN, Some(bytes(0)))]).unwrap();
    assert_eq!(overflows(&house, &[("", "own", 0)]), [true]);
    house.close();
}

#[test]
fn a_queue_with_its_own_log_answers_for_itself() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 10);
    limit(&house, OWN, Some(1));

    assert_eq!(overflows(&house, &[("", "own", 0), ("all", "", 0)]), [false, true]);

    assert_eq!(ready_counts(&house), [1, 1, 1], "the other log has it");
    house.close();
}

#[test]
fn a_named_producer_sends_a_refused_message_again_before_later_ones() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 1);
    let session = house.shard.open_producer("p", "u").unwrap();

    let fates = send(&house, Some(&session), &[("", "s", 1), ("", "s", 2), ("", "other", 3)]);

    assert!(matches!(fates[..], [Fate::Stored(_), Fate::Overflow, Fate::Behind(2)]), "{fates:?}");
    assert!(matches!(fates[1].held_back(), Some(EngineError::QueueLength)));
    house.shard.purge_queue(QUEUE).unwrap();
    let fates = send(&house, Some(&session), &[("", "s", 2), ("", "other", 3)]);
    assert!(matches!(fates[..], [Fate::Stored(_), Fate::Stored(_)]), "{fates:?}");
    drop(session);
    house.close();
}

#[test]
fn a_limit_of_a_queue_that_is_not_there_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 1);

    limit(&house, QueueId(99), Some(1));
    house.shard.delete_queue(QUEUE).unwrap();
    limit(&house, QUEUE, Some(0));
    house.shard.put_queue(QUEUE, "s", false, None).unwrap();

    assert_eq!(overflows(&house, &[("", "s", 0); 2]), [false, false]);
    house.close();
}
