//! A channel with several targets: the next one is used when one cannot be reached, and no request is made twice.
#![allow(clippy::unwrap_used)]

mod fake;

use std::sync::Arc;

use fake::{Broker, PublishPlan};
use penstock_client::{Channel, ChannelSettings, Message, Publisher, PublisherSettings};

fn unanswered() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn settings(targets: &[String]) -> ChannelSettings {
    ChannelSettings {
        targets: targets.to_vec(),
        follows: true,
        vhost: "v".to_owned(),
        authorization: "Basic Z3Vlc3Q6Z3Vlc3Q=".to_owned(),
        connect_timeout_ms: 5_000,
        message_bytes_max: 1 << 20,
        tls: None,
    }
}

fn channel(targets: &[String]) -> Arc<Channel> {
    Arc::new(Channel::new(&settings(targets)).unwrap())
}

fn publisher(targets: &[String]) -> Publisher {
    let settings = PublisherSettings {
        vhost: "v".to_owned(),
        level: 1,
        in_flight_max: 1_000,
        batch_max: 100,
        reconnect: true,
        producer: String::new(),
        numbers_itself: false,
    };
    Publisher::new(channel(targets), settings).unwrap()
}

fn count(broker: &Broker) -> usize {
    broker.seen(|seen| seen.messages.len())
}

#[test]
fn a_publisher_passes_over_a_target_without_a_broker_and_moves_on_when_one_goes() {
    let (first, second) = (Broker::start(|_| {}), Broker::start(|_| {}));
    let publisher = publisher(&[unanswered(), first.address.to_string(), second.address.to_string()]);

    publisher.publish(b"1", &Message::default()).unwrap();
    assert!(publisher.flush(10_000));
    assert_eq!((count(&first), count(&second)), (1, 0));
    drop(first);
    publisher.publish(b"2", &Message::default()).unwrap();

    assert!(publisher.flush(10_000));
    assert_eq!(count(&second), 1);
}

#[test]
fn a_call_that_reaches_no_target_names_them_all() {
    let targets = [unanswered(), unanswered()];

    let error = channel(&targets).call("/penstock.v1.AdminService/GetStatus", Vec::new(), 5_000, false).unwrap_err();

    let told = targets.iter().all(|target| error.message.contains(&format!("{target}: ")));
    assert!(told && error.code == tonic::Code::Unavailable as i32, "{error:?}");
}

#[test]
fn a_publisher_goes_to_the_leader_that_a_broker_names_and_sends_what_has_no_outcome_there() {
    let leader = Broker::start(|_| {});
    let hint = leader.address.to_string();
    let given = Broker::start(|seen| seen.publish_plans.extend([PublishPlan::Elsewhere(hint)]));
    let publisher = publisher(&[given.address.to_string()]);

    publisher.publish(b"1", &Message::default()).unwrap();

    assert!(publisher.flush(10_000));
    assert_eq!((count(&given), count(&leader)), (0, 1));
    assert!(leader.seen(|seen| seen.authorizations.iter().all(|sent| sent == "Basic Z3Vlc3Q6Z3Vlc3Q=")));
}

#[test]
fn what_a_former_leader_could_not_store_is_sent_again_with_what_comes_behind_it() {
    let broker = Broker::start(|seen| seen.publish_plans.extend([PublishPlan::Deposed { received: 4 }]));
    let publisher = publisher(&[broker.address.to_string()]);

    publisher.publish_many([b"1", b"2", b"3", b"4"].map(|body| &body[..]), &Message::default()).unwrap();

    assert!(publisher.flush(10_000));
    let outcomes = publisher.take();
    assert!(outcomes.iter().all(|range| range.code == penstock_client::CONFIRMED), "{outcomes:?}");
    let again = broker.seen(|seen| {
        seen.messages.iter().filter(|one| one.stream == 2).map(|one| one.body.clone()).collect::<Vec<_>>()
    });
    assert_eq!(again, [b"2", b"3", b"4"]);
}

#[test]
fn a_hint_out_of_reach_is_left_for_the_given_targets() {
    let second = Broker::start(|_| {});
    let first = Broker::start(|seen| {
        seen.publish_plans.extend([PublishPlan::Elsewhere(unanswered()), PublishPlan::Elsewhere(String::new())])
    });
    let publisher = publisher(&[first.address.to_string(), second.address.to_string()]);

    publisher.publish(b"1", &Message::default()).unwrap();

    assert!(publisher.flush(10_000));
    assert_eq!(count(&second), 1);
}

#[test]
fn brokers_that_name_each_other_for_ever_end_a_call_at_its_time_limit() {
    // Each names an address where nothing leads, so neither answers.
    let (first, second) = (Broker::start(|_| {}), Broker::start(|_| {}));
    let payload = format!("at {}", unanswered()).into_bytes();

    let error = channel(&[first.address.to_string(), second.address.to_string()])
        .call("/penstock.v1.MessagingService/Peek", payload, 1_000, false)
        .unwrap_err();

    assert!(
        error.message.contains("led by another broker") || error.code == tonic::Code::DeadlineExceeded as i32,
        "{error:?}"
    );
}

#[test]
fn a_call_is_made_again_at_the_leader_unless_hints_are_not_followed() {
    let (given, leader) = (Broker::start(|_| {}), Broker::start(|_| {}));
    let payload = format!("at {}", leader.address).into_bytes();
    let method = "/penstock.v1.MessagingService/Peek";

    assert_eq!(channel(&[given.address.to_string()]).call(method, payload.clone(), 10_000, false).unwrap(), payload);

    let staying = ChannelSettings { follows: false, ..settings(&[given.address.to_string()]) };
    let refused = Channel::new(&staying).unwrap().call(method, payload, 10_000, false).unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (tonic::Code::Unavailable as i32, "led by another broker"));
}

#[test]
fn a_channel_needs_a_target() {
    let settings = ChannelSettings {
        targets: Vec::new(),
        follows: true,
        vhost: "v".to_owned(),
        authorization: String::new(),
        connect_timeout_ms: 1,
        message_bytes_max: 1,
        tls: None,
    };

    assert_eq!(Channel::new(&settings).unwrap_err().code, tonic::Code::InvalidArgument as i32);
}
