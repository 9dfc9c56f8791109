//! The sequences that a publisher's messages got: a confirm may name them, as Kafka's does.
#![allow(clippy::unwrap_used)]

mod house;

use std::path::Path;

use house::{House, STREAM, open, publish};
use penstock_engine::{
    Assigned, Destination, ExchangeKind, Fate, Payload, Producer, ProducerSession, Publication, QueueId, QueueLevels,
    QueueSettings, Sequence, StreamSettings,
};

/// A stream with a log of its own; an exchange has it and the house's stream.
const OWN: QueueId = QueueId(7);

fn opened(directory: &Path) -> House {
    let house = open(directory);
    house.shard.dedicate(OWN).unwrap();
    let (levels, stream) = (QueueLevels::default(), Some(StreamSettings::default()));
    house.shard.put_queues([QueueSettings { id: OWN, name: "own", auto_delete: false, levels, stream }]).unwrap();
    house.shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
    for name in ["s", "own"] {
        house.shard.add_route("all", "", None, Destination::Queue(name)).unwrap();
    }
    house
}

/// Exchange, key, and the producer's sequence unless it is 0.
type Sent = (&'static str, &'static str, u64);

fn send(house: &House, session: Option<&ProducerSession>, sent: &[Sent]) -> (Vec<Fate>, Vec<Assigned>) {
    let publication = |&(exchange, key, sequence): &Sent| {
        let (exchange, key) = (exchange.as_bytes(), key.as_bytes());
        let mut payload = Payload::new(exchange, key, b"", b"x").unwrap();
        if let Some(session) = session.filter(|_| sequence > 0) {
            payload = payload.with_producer(Producer { id: session.id(), sequence });
        }
        Publication { payload, exchange, key, headers: None, persistent: true, mandatory: false }
    };
    let batch: Vec<Publication<'_>> = sent.iter().map(publication).collect();
    let mut fates = Vec::new();
    let published = house.shard.publish_with_sequences(session, &batch, None, 1, &mut fates).unwrap();
    assert!(published.refused.is_none());
    (fates, published.assigned)
}

fn run(queue: QueueId, place: usize, first: u64, count: usize) -> Assigned {
    Assigned { queue, place, first: Sequence(first), count }
}

fn is_stored(fate: &Fate) -> bool {
    matches!(fate, Fate::Stored(_))
}

#[test]
fn a_long_batch_for_one_stream_is_one_run_after_what_was_there() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    publish(&house, &["a", "b", "c"]);

    let (fates, assigned) = send(&house, None, &[("", "s", 0); 3_000]);

    assert!(fates.len() == 3_000 && fates.iter().all(is_stored));
    assert_eq!(assigned, [run(STREAM, 0, 4, 3_000)]);
    house.close();
}

#[test]
fn messages_that_went_nowhere_have_none() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());

    let (fates, assigned) = send(&house, None, &[("", "s", 0), ("", "nowhere", 0), ("no", "s", 0), ("", "s", 0)]);

    assert_eq!(fates.get(1..3), Some(&[Fate::Unroutable, Fate::NoExchange][..]));
    assert_eq!(assigned, [run(STREAM, 0, 1, 1), run(STREAM, 3, 2, 1)]);
    house.close();
}

#[test]
fn queues_with_own_logs_are_named_by_the_messages_of_the_whole_batch() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());

    let sent = [("", "s", 0), ("", "own", 0), ("all", "", 0), ("all", "", 0), ("", "s", 0)];
    let (fates, assigned) = send(&house, None, &sent);

    assert!(fates.iter().all(is_stored));
    assert_eq!(assigned, [run(STREAM, 0, 1, 1), run(STREAM, 2, 2, 3), run(OWN, 1, 1, 3)]);
    house.close();
}

#[test]
fn a_message_that_was_stored_before_has_none() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let session = house.shard.open_producer("p", "u").unwrap();
    let sent = [("", "s", 1), ("", "s", 2), ("", "s", 3)];
    let [one, two, three] = sent;
    assert_eq!(send(&house, Some(&session), &[one, two]).1, [run(STREAM, 0, 1, 2)]);

    let (fates, assigned) = send(&house, Some(&session), &[one, two, three]);

    assert!(fates.iter().all(is_stored));
    assert_eq!(assigned, [run(STREAM, 2, 3, 1)]);
    drop(session);
    house.close();
}

#[test]
fn a_publisher_that_does_not_ask_gets_none() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let payload = Payload::new(b"", b"s", b"", b"x").unwrap();
    let one = Publication { payload, exchange: b"", key: b"s", headers: None, persistent: true, mandatory: false };
    send(&house, None, &[("", "s", 0)]);

    let published = house.shard.publish(&[one], None, 1, &mut Vec::new()).unwrap();

    assert_eq!(published.assigned, []);
    house.close();
}
