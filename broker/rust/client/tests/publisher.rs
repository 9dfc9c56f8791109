//! The publisher and the channel against a minimal broker.
#![allow(clippy::unwrap_used)]

mod fake;

use std::sync::Arc;
use std::time::Duration;

use fake::{Broker, PublishPlan};
use penstock_client::{Channel, ChannelSettings, Message, OutcomeRange, Publisher, PublisherSettings, RETURNED};
use tonic::Code;

fn settings() -> PublisherSettings {
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

/// A channel to an address without a listener.
fn unanswered() -> Arc<Channel> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let settings = ChannelSettings {
        targets: vec![target],
        follows: true,
        vhost: "v".to_owned(),
        authorization: String::new(),
        connect_timeout_ms: 1_000,
        message_bytes_max: 1 << 20,
        tls: None,
    };
    Arc::new(Channel::new(&settings).unwrap())
}

fn publisher(broker: &Broker, change: impl FnOnce(&mut PublisherSettings)) -> Publisher {
    let mut settings = settings();
    change(&mut settings);
    Publisher::new(broker.channel(), settings).unwrap()
}

fn to<'a>(exchange: &'a str, routing_key: &'a str) -> Message<'a> {
    Message { exchange, routing_key, ..Message::default() }
}

fn bodies(count: u64) -> Vec<[u8; 8]> {
    (1..=count).map(u64::to_le_bytes).collect()
}

fn publish_many(publisher: &Publisher, count: u64) -> u64 {
    publisher.publish_many(bodies(count).iter().map(|body| &body[..]), &to("e", "k")).unwrap()
}

fn numbers(broker: &Broker) -> Vec<u64> {
    broker.seen(|seen| {
        seen.messages.iter().map(|message| u64::from_le_bytes(message.body.as_slice().try_into().unwrap())).collect()
    })
}

fn confirmed(outcomes: &[OutcomeRange]) -> Vec<u64> {
    outcomes.iter().filter(|outcome| outcome.code == 0).flat_map(|outcome| outcome.first..=outcome.last).collect()
}

#[test]
fn messages_arrive_in_order_and_are_confirmed_as_one_range() {
    let broker = Broker::start(|_| {});
    let publisher = publisher(&broker, |_| {});

    assert_eq!(publish_many(&publisher, 25_000), 25_000);

    assert!(publisher.flush(10_000));
    assert_eq!(numbers(&broker), (1..=25_000).collect::<Vec<_>>());
    let outcome = OutcomeRange { first: 1, last: 25_000, code: 0, reason: String::new() };
    assert_eq!(publisher.take(), vec![outcome]);
    assert!(broker.seen(|seen| seen.batches.iter().all(|&count| count <= 100)));
    assert_eq!(
        broker.seen(|seen| (seen.opens.clone(), seen.authorizations[0].clone())),
        (vec!["v".to_owned()], "Basic Z3Vlc3Q6Z3Vlc3Q=".to_owned())
    );
}

#[test]
fn names_properties_and_mandatory_travel_with_each_message() {
    let broker = Broker::start(|_| {});
    let publisher = publisher(&broker, |_| {});

    publisher.publish(b"1", &to("e", "k")).unwrap();
    publisher.publish(b"2", &Message { properties: Some(b"\x20\x01"), ..to("", "other") }).unwrap();
    publisher.publish(b"3", &Message { mandatory: true, ..to("e", "k") }).unwrap();
    assert!(publisher.flush(10_000));

    let seen = broker.seen(|seen| seen.messages.clone());
    let names: Vec<_> =
        seen.iter().map(|m| (m.exchange.as_str(), m.routing_key.as_str(), m.has_properties, m.mandatory)).collect();
    assert_eq!(names, vec![("e", "k", false, false), ("", "other", true, false), ("e", "k", false, true)]);
}

#[test]
fn keys_and_sequences_travel_with_each_message_of_a_producer() {
    let broker = Broker::start(|_| {});
    let publisher = publisher(&broker, |settings| settings.producer = "p".to_owned());

    for (key, sequence) in [(Some(&b"a"[..]), 7), (None, 8), (Some(b""), 10), (None, 0)] {
        publisher.publish(b"x", &Message { key, sequence, ..to("e", "k") }).unwrap();
    }
    let many = Message { key: Some(b"b"), sequence: 20, ..to("e", "k") };
    publisher.publish_many([&b"1"[..], b"2", b"3"], &many).unwrap();
    assert!(publisher.flush(10_000));

    let seen = broker.seen(|seen| seen.messages.clone());
    let found: Vec<_> = seen.iter().map(|message| (message.key.as_deref(), message.sequence)).collect();
    let b = Some(&b"b"[..]);
    let expected = [(Some(&b"a"[..]), 7), (None, 8), (Some(b""), 10), (None, 0), (b, 20), (b, 21), (b, 22)];
    assert_eq!(found, expected);
    assert_eq!(broker.seen(|seen| seen.producers.clone()), ["p"]);
}

#[test]
fn what_is_sent_again_keeps_its_key_and_its_sequence() {
    let broker =
        Broker::start(|seen| seen.publish_plans.push_back(PublishPlan::Break { received: 30, confirmed: (11, 20) }));
    let publisher = publisher(&broker, |settings| settings.producer = "p".to_owned());

    let message = Message { key: Some(b"a"), sequence: 101, ..to("e", "k") };
    publisher.publish_many(bodies(30).iter().map(|body| &body[..]), &message).unwrap();
    assert!(publisher.flush(10_000));

    let seen = broker.seen(|seen| seen.messages.clone());
    let again: Vec<_> = seen.iter().skip(30).map(|message| (message.key.as_deref(), message.sequence)).collect();
    let expected: Vec<_> = (101..=110).chain(121..=130).map(|sequence| (Some(&b"a"[..]), sequence)).collect();
    assert_eq!(again, expected);
    assert_eq!(broker.seen(|seen| seen.producers.clone()), ["p", "p"]);
}

#[test]
fn what_comes_behind_a_refused_message_is_not_sent_again_before_it() {
    let broker =
        Broker::start(|seen| seen.publish_plans.push_back(PublishPlan::RejectAndBreak { received: 4, rejected: 2 }));
    let publisher = publisher(&broker, |settings| settings.producer = "p".to_owned());
    let message = Message { sequence: 101, ..to("e", "k") };

    publisher.publish_many(bodies(4).iter().map(|body| &body[..]), &message).unwrap();
    assert!(publisher.flush(10_000));
    publisher.publish(b"passed", &Message { sequence: 105, ..message }).unwrap();
    publisher.publish(b"again", &Message { sequence: 102, ..message }).unwrap();
    publisher.publish(b"again", &Message { sequence: 103, ..message }).unwrap();
    assert!(publisher.flush(10_000));

    let behind = Code::FailedPrecondition as i32;
    let mut codes: Vec<_> =
        publisher.take().iter().flat_map(|one| (one.first..=one.last).map(|number| (number, one.code))).collect();
    codes.sort_unstable();
    assert_eq!(codes, [(1, 0), (2, 5), (3, behind), (4, behind), (5, behind), (6, 0), (7, 0)]);
    let seen = broker.seen(|seen| seen.messages.clone());
    let again: Vec<_> = seen.iter().filter(|message| message.stream == 2).map(|message| message.sequence).collect();
    assert_eq!(again, [101, 102, 103]);
}

#[test]
fn a_full_publisher_gives_no_number() {
    let broker = Broker::start(|seen| seen.publish_plans.push_back(PublishPlan::Silent));
    let publisher = publisher(&broker, |settings| settings.in_flight_max = 2);

    let given: Vec<u64> = (0..3).map(|_| publisher.publish(b"x", &to("", "k")).unwrap()).collect();

    assert_eq!(given, vec![1, 2, 0]);
    assert!(!publisher.flush(20));
}

#[test]
fn outcomes_in_any_order_reach_their_numbers() {
    let broker = Broker::start(|seen| seen.publish_plans.push_back(PublishPlan::Mixed));
    let publisher = publisher(&broker, |settings| settings.batch_max = 7);
    publish_many(&publisher, 30);
    assert!(publisher.flush(10_000));

    let mut outcomes = publisher.take();
    outcomes.sort_by_key(|outcome| outcome.first);

    let found: Vec<_> = outcomes
        .iter()
        .flat_map(|outcome| (outcome.first..=outcome.last).map(|number| (number, outcome.code)))
        .collect();
    let expected: Vec<_> = (1..=30)
        .map(|number| {
            (
                number,
                if number % 2 == 0 {
                    5
                } else if number % 5 == 0 {
                    RETURNED
                } else {
                    0
                },
            )
        })
        .collect();
    assert_eq!(found, expected);
    assert!(outcomes.iter().all(|outcome| outcome.code != 5 || outcome.reason == "no exchange 'x'"));
}

#[test]
fn after_a_broken_connection_only_what_has_no_outcome_is_sent_again() {
    let broker = Broker::start(|seen| {
        seen.publish_plans.push_back(PublishPlan::Break { received: 50, confirmed: (11, 20) });
        seen.publish_plans.push_back(PublishPlan::Refuse(Code::Unavailable));
    });
    let publisher = publisher(&broker, |settings| settings.batch_max = 1_000);

    publish_many(&publisher, 50);

    assert!(publisher.flush(10_000));
    let outcomes = publisher.take();
    let mut found = confirmed(&outcomes);
    found.sort_unstable();
    assert_eq!(found, (1..=50).collect::<Vec<_>>());
    let again: Vec<u64> = broker.seen(|seen| {
        let again = seen.messages.iter().filter(|message| message.stream == 3);
        again.map(|message| u64::from_le_bytes(message.body.as_slice().try_into().unwrap())).collect()
    });
    assert_eq!(again, (1..=10).chain(21..=50).collect::<Vec<_>>());
}

#[test]
fn a_lost_connection_says_why_until_there_is_another_one() {
    let broker = Broker::start(|seen| seen.publish_plans.push_back(PublishPlan::Refuse(Code::Unavailable)));
    let publisher = publisher(&broker, |_| {});
    publisher.publish(b"x", &to("", "k")).unwrap();

    assert!(publisher.flush(10_000));
    assert_eq!(publisher.lost(), None);

    let nobody = Publisher::new(unanswered(), settings()).unwrap();
    let reason = (0..10_000).find_map(|_| {
        nobody.wait(1);
        nobody.lost()
    });
    assert!(reason.is_some_and(|reason| reason.contains("refused")));
}

#[test]
fn a_publisher_without_a_connection_ends_when_it_is_closed() {
    let publisher = Publisher::new(unanswered(), settings()).unwrap();
    publisher.publish(b"x", &to("", "k")).unwrap();
    while publisher.lost().is_none() {
        publisher.wait(1);
    }

    publisher.close_within(Duration::from_secs(60));

    assert_eq!(publisher.take().first().map(|outcome| outcome.code), Some(Code::Cancelled as i32));
}

#[test]
fn a_close_waits_no_longer_than_it_is_told() {
    let broker = Broker::start(|seen| seen.publish_plans.push_back(PublishPlan::Silent));
    let publisher = publisher(&broker, |_| {});
    publisher.publish(b"x", &to("", "k")).unwrap();

    publisher.close_within(Duration::ZERO);

    assert_eq!(publisher.take().first().map(|outcome| outcome.code), Some(Code::Cancelled as i32));
}

#[test]
fn refused_credentials_end_the_publisher_for_good() {
    let broker = Broker::start(|seen| seen.publish_plans.push_back(PublishPlan::Refuse(Code::Unauthenticated)));
    let publisher = publisher(&broker, |_| {});
    let _ = publisher.publish(b"x", &to("", "k"));

    assert!(publisher.flush(10_000));
    while publisher.error().is_none() {
        publisher.wait(10);
    }

    let error = publisher.publish(b"x", &to("", "k")).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::Unauthenticated as i32, "refused by plan"));
    assert!(publisher.take().iter().all(|outcome| outcome.code == Code::Unauthenticated as i32));
}

#[test]
fn without_reconnecting_a_broken_connection_fails_what_is_unanswered() {
    let broker = Broker::start(|seen| {
        seen.publish_plans.push_back(PublishPlan::Break { received: 4, confirmed: (1, 2) });
    });
    let publisher = publisher(&broker, |settings| settings.reconnect = false);

    publish_many(&publisher, 4);

    assert!(publisher.flush(10_000));
    let codes: Vec<_> = publisher.take().iter().map(|outcome| (outcome.first, outcome.last, outcome.code)).collect();
    assert_eq!(codes, vec![(1, 2, 0), (3, 4, Code::Unavailable as i32)]);
}

#[test]
fn close_sends_what_waits_and_takes_its_outcomes() {
    let broker = Broker::start(|_| {});
    let publisher = publisher(&broker, |_| {});
    publish_many(&publisher, 500);

    publisher.close();

    assert_eq!(confirmed(&publisher.take()).len(), 500);
    assert_eq!(broker.seen(|seen| seen.closed_streams), 1);
    assert_eq!(publisher.publish(b"x", &to("", "k")).unwrap_err().code, Code::Cancelled as i32);
}

#[test]
fn wait_is_woken_by_an_outcome() {
    let broker = Broker::start(|_| {});
    let publisher = publisher(&broker, |_| {});
    publisher.publish(b"x", &to("", "k")).unwrap();

    let outcomes = publisher.wait(10_000);

    assert_eq!(confirmed(&outcomes), vec![1]);
    assert!(publisher.wait(1).is_empty());
}

#[test]
fn what_the_broker_would_refuse_is_refused_at_once() {
    let broker = Broker::start(|_| {});
    let publisher = publisher(&broker, |_| {});

    let long_key = publisher.publish(b"x", &to("", &"k".repeat(256))).unwrap_err();
    let key = vec![0; 1 << 16];
    let long_message_key = publisher.publish(b"x", &Message { key: Some(&key), ..to("", "k") }).unwrap_err();
    let large = publisher.publish(&vec![0; (1 << 20) + 1], &to("", "k")).unwrap_err();

    assert_eq!(long_key.code, Code::InvalidArgument as i32);
    assert_eq!(long_message_key.code, Code::InvalidArgument as i32);
    assert_eq!(large.code, Code::ResourceExhausted as i32);
    assert_eq!(publisher.publish(b"x", &to("", "k")).unwrap(), 1);
}

#[test]
fn a_call_is_answered_or_refused_or_late() {
    let broker = Broker::start(|_| {});
    let channel = broker.channel();
    let method = "/penstock.v1.MessagingService/Echo";

    assert_eq!(channel.call(method, b"hello".to_vec(), 10_000, false).unwrap(), b"hello");
    let refused = channel.call(method, Vec::new(), 10_000, false).unwrap_err();
    assert_eq!((refused.code, refused.message.as_str(), &refused.details[..]), (5, "no queue 'a'", &b"\x08\x05"[..]));
    assert_eq!(channel.call(method, b"wait".to_vec(), 30, false).unwrap_err().code, Code::DeadlineExceeded as i32);
    channel.close();
    assert_eq!(
        channel.call(method, b"hello".to_vec(), 10_000, false).unwrap_err().code,
        Code::FailedPrecondition as i32
    );
}

#[test]
fn nobody_listening_is_told_by_its_cause() {
    let channel = unanswered();

    let error = channel.call("/penstock.v1.AdminService/GetStatus", Vec::new(), 5_000, false).unwrap_err();

    assert_eq!(error.code, Code::Unavailable as i32);
    assert!(error.message.contains("refused"), "{}", error.message);
}
