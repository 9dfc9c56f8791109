//! A channel with several targets: the next one is used when one cannot be reached, and no request is made twice.
#![allow(clippy::unwrap_used)]

mod fake;

use std::sync::Arc;

use fake::Broker;
use penstock_client::{Channel, ChannelSettings, Message, Publisher, PublisherSettings};

fn unanswered() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn channel(targets: &[String]) -> Arc<Channel> {
    let settings = ChannelSettings {
        targets: targets.to_vec(),
        authorization: "Basic Z3Vlc3Q6Z3Vlc3Q=".to_owned(),
        connect_timeout_ms: 5_000,
        message_bytes_max: 1 << 20,
        tls: None,
    };
    Arc::new(Channel::new(&settings).unwrap())
}

fn publisher(targets: &[String]) -> Publisher {
    let settings = PublisherSettings {
        vhost: "v".to_owned(),
        level: 1,
        in_flight_max: 1_000,
        batch_max: 100,
        reconnect: true,
        producer: String::new(),
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

    let error = channel(&targets).call("/penstock.v1.AdminService/GetStatus", Vec::new(), 5_000).unwrap_err();

    let told = targets.iter().all(|target| error.message.contains(&format!("{target}: ")));
    assert!(told && error.code == tonic::Code::Unavailable as i32, "{error:?}");
}

#[test]
fn a_channel_needs_a_target() {
    let settings = ChannelSettings {
        targets: Vec::new(),
        authorization: String::new(),
        connect_timeout_ms: 1,
        message_bytes_max: 1,
        tls: None,
    };

    assert_eq!(Channel::new(&settings).unwrap_err().code, tonic::Code::InvalidArgument as i32);
}
