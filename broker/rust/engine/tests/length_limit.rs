//! A queue with a limit refuses messages beyond it, and its publisher is told.
#![allow(clippy::unwrap_used)]

mod house;

use std::path::Path;

use house::{House, STREAM as QUEUE, open_queue};
use penstock_engine::{
    Destination, EngineError, ExchangeKind, Fate, Payload, Producer, ProducerSession, Publication, QueueId, Sequence,
    SequenceRange, Settle, SubscriptionOptions,
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
    shard.limit_length(QUEUE, Some(ready_max)).unwrap();
    house
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

    house.shard.limit_length(QUEUE, None).unwrap();
    assert_eq!(overflows(&house, &[("", "s", 0); 2]), [false, false]);
    drop(consumer);
    house.close();
}

#[test]
fn a_message_for_several_queues_of_a_log_goes_to_all_or_to_none() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 1);
    house.shard.remove_route("all", "", None, Destination::Queue("own")).unwrap();

    assert_eq!(overflows(&house, &[("all", "", 0); 2]), [false, true]);

    assert_eq!(ready_counts(&house), [1, 1, 0]);
    house.close();
}

#[test]
fn a_queue_with_its_own_log_answers_for_itself() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 10);
    house.shard.limit_length(OWN, Some(1)).unwrap();

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
fn a_queue_that_is_not_there_has_no_limit() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path(), 1);

    assert!(matches!(house.shard.limit_length(QueueId(99), Some(1)), Err(EngineError::NoQueue(99, _))));
    house.shard.delete_queue(QUEUE).unwrap();
    assert!(matches!(house.shard.limit_length(QUEUE, None), Err(EngineError::NoQueue(..))));
    house.close();
}
