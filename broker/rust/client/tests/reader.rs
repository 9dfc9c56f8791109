//! Readers of a stream over the network, served by the broker's own listener.
#![allow(clippy::unwrap_used)]

mod listener;

use std::time::{Duration, Instant};

use listener::{Broker, STREAM};
use penstock_client::{Consumer, ConsumerSettings, Reader, ReaderSettings, RpcError, Start};
use tonic::Code;

const PATIENCE: Duration = Duration::from_secs(20);

fn settings(start: Start) -> ReaderSettings {
    ReaderSettings {
        from_replica: false,
        vhost: "/".to_owned(),
        partition: "s".to_owned(),
        start,
        end: None,
        credit: 4,
        group: String::new(),
        single_active: false,
        reconnect: true,
    }
}

/// Takes until there are so many messages, the reader is at its end, or it failed.
fn take(reader: &Reader, count: usize) -> Result<Vec<(u64, Vec<u8>)>, RpcError> {
    let (mut found, begun) = (Vec::new(), Instant::now());
    while found.len() < count && !reader.is_finished() {
        assert!(begun.elapsed() < PATIENCE, "{} of {count} came", found.len());
        for batch in reader.take(count - found.len())? {
            found.extend(batch.iter().map(|delivery| (delivery.sequence, delivery.body.to_vec())));
        }
        listener::look_again();
    }
    Ok(found)
}

fn offsets(reader: &Reader, count: usize) -> Vec<u64> {
    take(reader, count).unwrap().into_iter().map(|(offset, _)| offset).collect()
}

fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE);
        listener::look_again();
    }
}

#[test]
fn a_reader_gets_what_was_there_and_what_comes() {
    let broker = Broker::start();
    broker.publish(&["one", "two"]);
    let reader = broker.reader(settings(Start::First));
    assert_eq!(take(&reader, 2).unwrap(), [(1, b"one".to_vec()), (2, b"two".to_vec())]);

    broker.publish(&["three"]);

    assert_eq!(offsets(&reader, 1), [3]);
    assert_eq!(offsets(&broker.reader(settings(Start::LastCount(2))), 2), [2, 3]);
}

#[test]
fn credit_is_given_back_so_that_many_responses_come_in_order() {
    let broker = Broker::start();
    let body = "x".repeat(10_000);
    for _ in 0..60 {
        broker.publish(&[body.as_str(); 10]);
    }

    let reader = broker.reader(ReaderSettings { credit: 1, ..settings(Start::First) });

    assert_eq!(offsets(&reader, 600), (1..=600).collect::<Vec<_>>());
}

#[test]
fn a_reader_with_an_end_finishes_there() {
    let broker = Broker::start();
    broker.publish(&["one", "two", "three"]);
    let reader = broker.reader(ReaderSettings { end: Some(3), ..settings(Start::First) });

    assert_eq!(offsets(&reader, 9), [1, 2]);

    assert!(reader.is_finished());
}

#[test]
fn after_a_broken_connection_a_reader_goes_on_behind_the_last_message() {
    let mut broker = Broker::start();
    broker.publish(&["one", "two"]);
    let reader = broker.reader(settings(Start::First));
    assert_eq!(offsets(&reader, 2), [1, 2]);

    broker.restart();
    broker.publish(&["three"]);

    assert_eq!(offsets(&reader, 1), [3]);
}

#[test]
fn a_deleted_stream_ends_its_readers() {
    let broker = Broker::start();
    broker.publish(&["one"]);
    let reader = broker.reader(settings(Start::First));
    assert_eq!(offsets(&reader, 1), [1]);

    broker.shard.delete_queue(STREAM).unwrap();

    let error = take(&reader, 1).unwrap_err();
    assert_eq!(error.code, Code::Cancelled as i32);
    assert!(error.message.contains("was deleted"), "{error}");
}

#[test]
fn a_group_stores_its_offset_in_passing_and_the_next_reader_begins_behind_it() {
    let broker = Broker::start();
    broker.publish(&["one", "two", "three"]);
    let of_group = ReaderSettings { group: "g".to_owned(), ..settings(Start::First) };
    let reader = broker.reader(of_group.clone());
    assert_eq!(offsets(&reader, 3), [1, 2, 3]);

    reader.store(2);

    let stored = || broker.shard.stream_groups(STREAM).unwrap().first().and_then(|group| group.offset);
    until(|| stored() == Some(2));
    assert_eq!(offsets(&broker.reader(of_group), 1), [3]);
}

#[test]
fn one_reader_of_a_group_is_active_and_the_next_takes_over() {
    let broker = Broker::start();
    broker.publish(&["one", "two"]);
    let of_group = ReaderSettings { group: "g".to_owned(), single_active: true, ..settings(Start::First) };
    let first = broker.reader(of_group.clone());
    assert_eq!(offsets(&first, 2), [1, 2]);
    assert!(first.is_active());
    let second = broker.reader(of_group);
    until(|| broker.shard.stream_groups(STREAM).unwrap()[0].reader_count == 2);
    assert!(!second.is_active());
    first.store(1);
    until(|| broker.shard.stream_groups(STREAM).unwrap()[0].offset == Some(1));

    drop(first);

    assert_eq!(offsets(&second, 1), [2]);
    assert!(second.is_active());
}

#[test]
fn what_cannot_be_read_is_refused_for_good() {
    let broker = Broker::start();
    let refusal = |settings| take(&broker.reader(settings), 1).unwrap_err();

    let of_queue = refusal(ReaderSettings { partition: "jobs".to_owned(), ..settings(Start::First) });
    assert_eq!(of_queue.code, Code::InvalidArgument as i32);
    assert!(of_queue.message.contains("MessagingService.Consume"), "{of_queue}");
    let nameless = refusal(ReaderSettings { single_active: true, ..settings(Start::First) });
    assert_eq!(nameless.code, Code::InvalidArgument as i32);
}

#[test]
fn an_offset_that_is_not_there_yet_ends_the_reader_that_stores_it() {
    let broker = Broker::start();
    broker.publish(&["one"]);
    let reader = broker.reader(ReaderSettings { group: "g".to_owned(), ..settings(Start::First) });
    assert_eq!(offsets(&reader, 1), [1]);

    reader.store(2);

    assert_eq!(take(&reader, 1).unwrap_err().code, Code::InvalidArgument as i32);
}

#[test]
fn a_stream_is_not_consumed() {
    let broker = Broker::start();
    let settings = ConsumerSettings {
        vhost: "/".to_owned(),
        queue: "s".to_owned(),
        consumer_tag: String::new(),
        prefetch: 1,
        auto_ack: false,
        exclusive: false,
        priority: 0,
        ack_timeout_ms: None,
        reconnect: true,
    };

    let consumer = Consumer::new(broker.channel(), settings).unwrap();

    let refused = consumer.wait(1, 20_000).unwrap_err();
    assert_eq!(refused.code, Code::InvalidArgument as i32);
    assert!(refused.message.contains("StreamService.Read"), "{refused}");
}
