//! The consumer and the load generator against a minimal broker.
#![allow(clippy::unwrap_used)]

mod fake;

use std::sync::Arc;

use fake::{Broker, ConsumePlan};
use penstock_client::{Consumer, ConsumerSettings, Delivery, Message, Publisher, PublisherSettings, perf};
use tonic::Code;

fn settings() -> ConsumerSettings {
    ConsumerSettings {
        vhost: "v".to_owned(),
        queue: "q".to_owned(),
        consumer_tag: String::new(),
        prefetch: 500,
        auto_ack: false,
        exclusive: false,
        priority: 0,
        ack_timeout_ms: None,
        reconnect: true,
    }
}

fn publisher_settings() -> PublisherSettings {
    PublisherSettings {
        vhost: "v".to_owned(),
        level: 1,
        in_flight_max: 1_000,
        batch_max: 100,
        reconnect: true,
        producer: String::new(),
        numbers_itself: false,
    }
}

fn consumer(broker: &Broker, change: impl FnOnce(&mut ConsumerSettings)) -> Consumer {
    let mut settings = settings();
    change(&mut settings);
    Consumer::new(broker.channel(), settings).unwrap()
}

/// A test's copy of a delivery.
struct Taken {
    sequence: u64,
    connection: u64,
}

/// Takes until `count` deliveries are there, and passes each to `look`.
fn take_with<T>(consumer: &Consumer, count: usize, mut look: impl FnMut(u64, &Delivery<'_>) -> T) -> Vec<T> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let more = consumer.wait(count - taken.len(), 10_000).unwrap();
        assert!(!more.is_empty(), "only {} of {count} arrived", taken.len());
        for batch in &more {
            taken.extend(batch.iter().map(|delivery| look(batch.connection(), &delivery)));
        }
    }
    taken
}

fn take(consumer: &Consumer, count: usize) -> Vec<Taken> {
    take_with(consumer, count, |connection, delivery| Taken { sequence: delivery.sequence, connection })
}

fn deliver(sequences: impl IntoIterator<Item = u64>) -> ConsumePlan {
    ConsumePlan::Deliver { sequences: sequences.into_iter().collect(), batch: 10 }
}

fn acked(settled: &[(u32, Vec<(u64, u64)>)]) -> u64 {
    settled.iter().flat_map(|(_, ranges)| ranges).map(|(first, last)| last - first + 1).sum()
}

#[test]
fn deliveries_carry_what_the_broker_sent() {
    let broker = Broker::start(|seen| seen.consume_plans.push_back(deliver([5, 6])));
    let consumer = consumer(&broker, |_| {});

    let deliveries = take_with(&consumer, 2, |connection, delivery| {
        let names = [delivery.exchange, delivery.routing_key].map(<[u8]>::to_vec);
        let properties = delivery.properties.map(<[u8]>::to_vec);
        let counts = (delivery.redelivered, delivery.delivery_count);
        (connection, delivery.sequence, delivery.body.to_vec(), names, properties, counts, delivery.stored_at_ms)
    });

    assert_eq!(broker.seen(|seen| seen.opens.clone()), vec!["v q 500"]);
    assert_eq!(consumer.consumer_tag(), "made-up");
    let (names, stored_at_ms) = ([b"e".to_vec(), b"k.k".to_vec()], 1_700_000_000_000);
    let five = (1, 5, b"5".to_vec(), names.clone(), None, (false, 0), stored_at_ms);
    let six = (1, 6, b"6".to_vec(), names, Some(b"\x28\x07\x20\x01".to_vec()), (true, 1), stored_at_ms);
    assert_eq!(deliveries, [five, six]);
}

#[test]
fn a_response_is_taken_in_pieces_of_the_size_asked() {
    let broker = Broker::start(|seen| seen.consume_plans.push_back(deliver(1..=25)));
    let consumer = consumer(&broker, |_| {});

    let mut sizes = Vec::new();
    let mut sequences = Vec::new();
    while sequences.len() < 25 {
        let taken = consumer.wait(4, 10_000).unwrap();
        sizes.push(taken.iter().map(|batch| batch.len()).sum::<usize>());
        sequences.extend(taken.iter().flat_map(|batch| batch.iter()).map(|delivery| delivery.sequence));
    }

    assert!(sequences.iter().copied().eq(1..=25));
    assert!(sizes.iter().all(|size| (1..=4).contains(size)));
}

#[test]
fn settlements_arrive_as_ranges() {
    let broker = Broker::start(|seen| seen.consume_plans.push_back(deliver(1..=300)));
    let consumer = consumer(&broker, |_| {});

    for delivery in take(&consumer, 300) {
        consumer.settle_delivered(delivery.connection, delivery.sequence, 1);
    }

    broker.wait_until(|seen| acked(&seen.settled) == 300);
    assert!(broker.seen(|seen| seen.settled.iter().all(|(outcome, _)| *outcome == 1)));
    assert!(broker.seen(|seen| seen.settled.iter().all(|(_, ranges)| ranges.len() == 1)));
}

#[test]
fn a_lone_settlement_goes_without_a_flush_and_close_sends_the_rest() {
    let broker = Broker::start(|seen| seen.consume_plans.push_back(deliver(1..=3)));
    let consumer = consumer(&broker, |_| {});
    take(&consumer, 3);

    consumer.settle(1, 1, 2);
    broker.wait_until(|seen| seen.settled == vec![(2, vec![(1, 1)])]);
    consumer.settle(2, 3, 3);
    consumer.close();

    broker.wait_until(|seen| seen.closed_streams == 1);
    assert_eq!(broker.seen(|seen| seen.settled.last().cloned()), Some((3, vec![(2, 3)])));
    assert!(consumer.take(1).is_err());
}

#[test]
fn after_a_broken_connection_consuming_goes_on_and_old_deliveries_are_not_settled() {
    let broker = Broker::start(|seen| {
        seen.consume_plans.push_back(ConsumePlan::Break { sequences: vec![1] });
        seen.consume_plans.push_back(deliver([1, 2]));
    });
    let consumer = consumer(&broker, |_| {});
    let mut deliveries = Vec::new();
    while !deliveries.iter().any(|delivery: &Taken| delivery.sequence == 2) {
        deliveries.extend(take(&consumer, 1));
    }
    let (current, old): (Vec<_>, Vec<_>) =
        deliveries.iter().partition(|delivery| delivery.connection == deliveries.last().unwrap().connection);

    old.iter().for_each(|delivery| consumer.settle_delivered(delivery.connection, delivery.sequence, 2));
    current.iter().for_each(|delivery| consumer.settle_delivered(delivery.connection, delivery.sequence, 1));
    consumer.close();

    assert_eq!(
        broker.seen(|seen| (acked(&seen.settled), seen.settled.iter().all(|(outcome, _)| *outcome == 1))),
        (2, true)
    );
}

#[test]
fn a_cancelled_consumer_tells_why() {
    let broker = Broker::start(|seen| seen.consume_plans.push_back(ConsumePlan::Cancel("queue 'q' was deleted")));
    let consumer = consumer(&broker, |_| {});

    let error = consumer.wait(1, 10_000).unwrap_err();

    assert!(error.message.contains("queue 'q' was deleted"));
    assert_eq!(broker.seen(|seen| seen.opens.len()), 1);
}

/// Refusals that the client's own last connection may have caused.
const OF_OWN_PAST: [(Code, &str); 2] = [(Code::FailedPrecondition, ""), (Code::ResourceExhausted, "LIMIT_REACHED")];

#[test]
fn a_consumer_comes_back_when_the_broker_has_let_go_of_its_old_connection() {
    for (code, reason) in OF_OWN_PAST {
        let broker = Broker::start(|seen| {
            seen.consume_plans.push_back(ConsumePlan::Break { sequences: vec![1] });
            seen.consume_plans.extend(vec![ConsumePlan::Refuse(code, reason); 3]);
            seen.consume_plans.push_back(deliver([2]));
        });
        let consumer = consumer(&broker, |settings| (settings.exclusive, settings.auto_ack) = (true, true));

        let sequences: Vec<_> = take(&consumer, 2).iter().map(|taken| taken.sequence).collect();

        assert_eq!((sequences, broker.seen(|seen| seen.opens.len())), (vec![1, 2], 5));
    }
}

#[test]
fn a_consumer_that_never_was_open_is_told_of_a_refusal_at_once() {
    for (code, reason) in OF_OWN_PAST {
        let broker = Broker::start(|seen| seen.consume_plans.push_back(ConsumePlan::Refuse(code, reason)));
        let consumer = consumer(&broker, |_| {});

        let error = consumer.wait(1, 10_000).unwrap_err();

        assert_eq!((error.code, broker.seen(|seen| seen.opens.len())), (code as i32, 1));
    }
}

#[test]
fn a_consumer_of_a_full_broker_goes_on_trying() {
    let full = ConsumePlan::Refuse(Code::ResourceExhausted, "DISK_FULL");
    let broker = Broker::start(|seen| seen.consume_plans.extend([full, deliver([1])]));
    let consumer = consumer(&broker, |_| {});

    assert_eq!(take(&consumer, 1).len(), 1);
}

#[test]
fn without_reconnecting_a_refusal_after_a_break_is_not_waited_for() {
    let broker = Broker::start(|seen| seen.consume_plans.push_back(ConsumePlan::Break { sequences: vec![] }));
    let consumer = consumer(&broker, |settings| settings.reconnect = false);

    assert_eq!(consumer.wait(1, 10_000).unwrap_err().code, Code::Unavailable as i32);
}

#[test]
fn with_auto_ack_no_more_than_the_prefetch_is_taken_off_the_stream_by_much() {
    let broker = Broker::start(|seen| seen.consume_plans.push_back(deliver(1..=1_000)));
    let consumer = consumer(&broker, |settings| (settings.auto_ack, settings.prefetch) = (true, 25));

    let deliveries = take(&consumer, 1_000);

    assert!(deliveries.iter().map(|delivery| delivery.sequence).eq(1..=1_000));
}

#[test]
fn consumers_that_nobody_reads_do_not_keep_a_confirm_from_coming() {
    const CONSUMERS: usize = 8;
    let plan = ConsumePlan::Large { count: 40, bytes: 1 << 18 };
    let broker = Broker::start(|seen| seen.consume_plans.extend(vec![plan; CONSUMERS]));
    let channel = broker.channel();
    let settings = ConsumerSettings { prefetch: 2, auto_ack: true, ..settings() };
    let consumers: Vec<_> =
        (0..CONSUMERS).map(|_| Consumer::new(Arc::clone(&channel), settings.clone()).unwrap()).collect();
    for consumer in &consumers {
        // A message arrived; it is not taken.
        assert!(consumer.wait(0, 10_000).is_ok_and(|taken| taken.is_empty()));
    }
    let publisher = Publisher::new(channel, publisher_settings()).unwrap();

    for round in 0..100 {
        publisher.publish(b"answer", &Message::default()).unwrap();
        assert!(publisher.flush(10_000), "no confirm in round {round}");
    }
}

#[test]
fn a_changed_prefetch_is_told_to_the_broker() {
    let broker = Broker::start(|seen| seen.consume_plans.push_back(deliver([1])));
    let consumer = consumer(&broker, |_| {});
    take(&consumer, 1);

    consumer.flow(7);

    broker.wait_until(|seen| seen.flows == vec![7]);
}

#[test]
fn nothing_within_the_time_limit_is_an_empty_list() {
    let broker = Broker::start(|_| {});
    let consumer = consumer(&broker, |_| {});

    assert!(consumer.wait(1, 20).unwrap().is_empty());
    assert!(consumer.take(1).unwrap().is_empty());
}

#[test]
fn a_throughput_run_counts_what_was_confirmed_and_consumed() {
    let broker = Broker::start(|seen| seen.consume_plans.push_back(deliver(1..=40)));
    let options = format!(
        r#"{{"targets": ["{}"], "size": 20, "batch": 7, "messages": 1000, "in_flight": 50, "until_empty": true, "authorization": "Basic eA=="}}"#,
        broker.address
    );

    let report: serde_json::Value = serde_json::from_str(&perf::throughput(&options)).unwrap();

    assert_eq!(
        (&report["published"], &report["confirmed"], &report["consumed"]),
        (&1000.into(), &1000.into(), &40.into())
    );
    assert_eq!(report["errors"], serde_json::json!([]));
    assert_eq!(acked(&broker.seen(|seen| seen.settled.clone())), 40);
    assert!(broker.seen(|seen| seen.messages.iter().all(|m| m.body.len() == 20 && m.routing_key == "perf-1")));
}

#[test]
fn without_consumers_a_run_times_confirms() {
    let broker = Broker::start(|_| {});
    let options = format!(
        r#"{{"targets": ["{}"], "messages": 300, "queues": 3, "publishers": 2, "consumers": 0, "batch": 1}}"#,
        broker.address
    );

    let report: serde_json::Value = serde_json::from_str(&perf::throughput(&options)).unwrap();

    assert_eq!(report["confirmed"], 300);
    assert!(report["latency_us"]["p50"].as_f64().unwrap() > 0.0);
    let per_queue = |queue: &str| broker.seen(|seen| seen.messages.iter().filter(|m| m.routing_key == queue).count());
    assert_eq!((per_queue("perf-1"), per_queue("perf-2"), per_queue("perf-3")), (100, 100, 100));
}

#[test]
fn a_latency_run_times_each_confirm() {
    let broker = Broker::start(|_| {});
    let options =
        format!(r#"{{"targets": ["{}"], "messages": 20, "rate": 2000, "consumers": 0, "size": 100}}"#, broker.address);

    let report: serde_json::Value = serde_json::from_str(&perf::latency(&options)).unwrap();

    assert_eq!((&report["published"], &report["confirmed"]), (&20.into(), &20.into()));
    assert!(report["latency_us"]["p99"].as_f64().unwrap() > 0.0);
    assert!(broker.seen(|seen| seen.batches.iter().all(|&count| count == 1)));
}

#[test]
fn a_run_against_nobody_reports_the_error() {
    let report = perf::throughput(r#"{"targets": ["127.0.0.1:1"], "messages": 10, "consumers": 0}"#);

    assert!(report.contains("refused"), "{report}");
}
