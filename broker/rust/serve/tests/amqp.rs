//! The listener for AMQP 0-9-1 over a socket, by frames that this test writes and reads itself; it decides instead of Python.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod amqp_client;
mod storage;

use std::sync::atomic::Ordering;
use std::time::Duration;

use penstock_serve::host::{Holder, QuotaLimits};
use penstock_wire::Name;
use penstock_wire::amqp::argument::{FieldTable, LongText};
use penstock_wire::amqp::frame::PROTOCOL_HEADER;
use penstock_wire::amqp::method::Method;

use crate::amqp_client::{Broker, Client, JOBS, MESSAGE_BYTES_MAX};

#[test]
fn a_client_declares_publishes_consumes_and_acks() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 0);
    let (queue, arguments) = (Name::cut("jobs"), FieldTable::default());
    let (passive, durable, exclusive, auto_delete, nowait) = (false, true, false, false, false);
    client.says(1, Method::QueueDeclare { queue, passive, durable, exclusive, auto_delete, nowait, arguments });
    client.expects(1, Method::QueueDeclareOk { queue, message_count: 3, consumer_count: 2 });

    client.publishes("", "jobs", false, b"before confirms");
    client.says(1, Method::ConfirmSelect { nowait: false });
    client.expects(1, Method::ConfirmSelectOk {});
    client.publishes("", "jobs", true, b"hello");
    client.expects(1, Method::BasicAck { delivery_tag: 1, multiple: false });
    client.publishes("", "nowhere", true, b"back");
    let (reply_code, reply_text) = (312, Name::cut("NO_ROUTE"));
    let (exchange, routing_key) = (Name::EMPTY, Name::cut("nowhere"));
    client.expects(1, Method::BasicReturn { reply_code, reply_text, exchange, routing_key });
    assert_eq!(client.expects_content(), b"back");
    client.expects(1, Method::BasicAck { delivery_tag: 2, multiple: false });

    client.consumes(false);
    assert_eq!(client.expects_delivery(), (1, false, b"before confirms".to_vec()));
    assert_eq!(client.expects_delivery(), (2, false, b"hello".to_vec()));
    client.says(1, Method::BasicAck { delivery_tag: 2, multiple: true });
    client.says(1, Method::ChannelClose { reply_code: 200, reply_text: Name::EMPTY, class: 0, method: 0 });
    client.expects(1, Method::ChannelCloseOk {});
    let counts = broker.shard.queue_counts(&[JOBS]).unwrap();
    assert_eq!((counts[0].ready_count, counts[0].unacked_count), (0, 0));

    client.says(0, Method::ConnectionClose { reply_code: 200, reply_text: Name::EMPTY, class: 0, method: 0 });
    client.expects(0, Method::ConnectionCloseOk {});
    client.expects_end();
    broker.stop();
}

#[test]
fn a_large_message_goes_through_many_frames() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 0);
    let body: Vec<u8> = (0..MESSAGE_BYTES_MAX).map(|at| (at % 251) as u8).collect();
    client.publishes("", "jobs", false, &body);

    client.consumes(true);

    assert_eq!(client.expects_delivery(), (1, false, body));
    drop(client);
    broker.stop();
}

#[test]
fn prefetch_bounds_what_is_unacked_and_a_reject_requeues() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 0);
    client.says(1, Method::BasicQos { prefetch_size: 0, prefetch_count: 1, global: false });
    client.expects(1, Method::BasicQosOk {});
    client.publishes("", "jobs", false, b"one");
    client.publishes("", "jobs", false, b"two");
    client.consumes(false);
    assert_eq!(client.expects_delivery(), (1, false, b"one".to_vec()));

    client.says(1, Method::BasicReject { delivery_tag: 1, requeue: true });
    assert_eq!(client.expects_delivery(), (2, true, b"one".to_vec()));
    client.says(1, Method::BasicAck { delivery_tag: 2, multiple: false });
    assert_eq!(client.expects_delivery(), (3, false, b"two".to_vec()));
    client.says(1, Method::BasicCancel { consumer_tag: Name::cut("ctag"), nowait: false });
    client.expects(1, Method::BasicCancelOk { consumer_tag: Name::cut("ctag") });
    client.says(1, Method::BasicNack { delivery_tag: 3, multiple: false, requeue: true });
    broker.until_ready(1);

    client.says(1, Method::BasicAck { delivery_tag: 3, multiple: false });
    let text = "PRECONDITION_FAILED - unknown delivery tag 3";
    assert_eq!(client.expects_close(1), (406, text.to_owned()));
    drop(client);
    broker.stop();
}

#[test]
fn what_a_channel_holds_returns_when_it_closes() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 0);
    client.publishes("", "jobs", false, b"one");
    client.consumes(false);
    client.expects_delivery();

    client.says(1, Method::ChannelClose { reply_code: 200, reply_text: Name::EMPTY, class: 0, method: 0 });
    client.expects(1, Method::ChannelCloseOk {});
    client.opens(1);
    client.consumes(true);

    assert_eq!(client.expects_delivery(), (1, true, b"one".to_vec()));
    drop(client);
    broker.stop();
}

#[test]
fn a_refused_publish_closes_its_channel_alone() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 0);
    client.opens(2);
    client.publishes("closed", "jobs", false, b"x");
    let text = "ACCESS_REFUSED - access to exchange 'closed' refused";
    assert_eq!(client.expects_close(1), (403, text.to_owned()));
    client.says(1, Method::ChannelCloseOk {});
    client.opens(1);

    client.publishes("nowhere", "jobs", false, b"x");
    assert_eq!(client.expects_close(1).0, 404);
    let queue = Name::cut("absent");
    let (consumer_tag, no_local, no_ack, exclusive, nowait) = (Name::cut("ctag"), false, false, false, false);
    let arguments = FieldTable::default();
    client.says(2, Method::BasicConsume { queue, consumer_tag, no_local, no_ack, exclusive, nowait, arguments });
    assert_eq!(client.expects_close(2), (404, "NOT_FOUND - no queue 'absent' in vhost '/'".to_owned()));
    drop(client);
    broker.stop();
}

#[test]
fn a_code_that_was_decided_is_sent() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 0);
    let (queue, arguments) = (Name::cut("locked"), FieldTable::default());
    let (passive, durable, exclusive, auto_delete, nowait) = (false, true, false, false, true);
    client.says(1, Method::QueueDeclare { queue, passive, durable, exclusive, auto_delete, nowait, arguments });

    assert_eq!(client.expects_close(1), (405, "RESOURCE_LOCKED - cannot obtain exclusive access".to_owned()));
    drop(client);
    broker.stop();
}

#[test]
fn a_wrong_password_and_an_unknown_virtual_host_are_refused() {
    let broker = Broker::start();
    let mut client = Client::connect(&broker);
    client.log_in(b"\0anna\0wrong");
    let (code, text) = client.expects_close(0);
    assert_eq!(code, 403);
    assert!(text.starts_with("ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN"), "{text}");
    drop(client);

    let mut client = Client::connect(&broker);
    client.log_in(b"\0anna\0secret");
    client.hears();
    client.says(0, Method::ConnectionTuneOk { channel_max: 1, frame_max: 4096, heartbeat: 0 });
    client.says(0, Method::ConnectionOpen { virtual_host: Name::cut("other") });
    assert_eq!(client.expects_close(0), (530, "NOT_ALLOWED - vhost other not found".to_owned()));
    drop(client);
    broker.stop();
}

#[test]
fn another_protocol_is_told_which_one_is_served() {
    let broker = Broker::start();
    let mut client = Client::connect(&broker);
    client.sends(b"GET / HTTP/1.1\r\n");
    client.expects_end();
    assert_eq!(client.input, PROTOCOL_HEADER);
    drop(client);
    broker.stop();
}

#[test]
fn bytes_that_are_no_frame_end_the_connection() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 0);
    client.sends(&[9, 0, 1, 0, 0, 0, 0, 0xce]);
    assert_eq!(client.expects_close(0), (501, "FRAME_ERROR - type 9: unknown frame type".to_owned()));
    client.says(0, Method::ConnectionCloseOk {});
    drop(client);
    broker.stop();
}

#[test]
fn a_silent_client_is_gone_after_two_heartbeats_and_gets_some() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 1);
    client.expects_end();
    let heartbeat = [8, 0, 0, 0, 0, 0, 0, 0xce];
    assert!(client.input.len() >= heartbeat.len() && client.input.chunks(8).all(|frame| frame == heartbeat));
    drop(client);
    broker.stop();
}

#[test]
fn clients_are_told_when_the_broker_stops() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 0);
    let stopping = std::thread::spawn(move || broker.stop());

    let text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'";
    assert_eq!(client.expects_close(0), (320, text.to_owned()));
    client.says(0, Method::ConnectionCloseOk {});
    client.expects_end();
    stopping.join().unwrap();
}

#[test]
fn a_cancelled_consumer_counts_no_more_and_what_it_has_can_be_settled() {
    let broker = Broker::start();
    let (mut client, mut other) = (Client::open(&broker, 0), Client::open(&broker, 0));
    client.publishes("", "jobs", false, b"one");
    client.publishes("", "jobs", false, b"two");
    client.says(1, Method::BasicQos { prefetch_size: 0, prefetch_count: 1, global: false });
    client.expects(1, Method::BasicQosOk {});
    client.consumes(false);
    assert_eq!(client.expects_delivery(), (1, false, b"one".to_vec()));

    client.says(1, Method::BasicCancel { consumer_tag: Name::cut("ctag"), nowait: false });
    client.expects(1, Method::BasicCancelOk { consumer_tag: Name::cut("ctag") });

    broker.until(|counts| (counts.consumer_count, counts.unacked_count, counts.ready_count) == (0, 1, 1));
    other.consumes_alone();
    assert_eq!(other.expects_delivery(), (1, false, b"two".to_vec()));
    client.says(1, Method::BasicAck { delivery_tag: 1, multiple: false });
    broker.until(|counts| (counts.consumer_count, counts.unacked_count, counts.ready_count) == (1, 1, 0));
    drop((client, other));
    broker.stop();
}

#[test]
fn a_deleted_user_is_told_that_the_connection_ends() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 0);

    broker.decider.is_deleted.store(true, Ordering::Release);
    broker.server.calls().recheck(Some("anna"), None);

    assert_eq!(client.expects_close(0), (320, "CONNECTION_FORCED - wrong user or password".to_owned()));
    client.says(0, Method::ConnectionCloseOk {});
    client.expects_end();
    broker.stop();
}

#[test]
fn a_publisher_above_its_rate_is_not_read() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 0);
    let limits = QuotaLimits { publish_rate: Some(1), ..QuotaLimits::default() };
    broker.server.quotas().set(Holder::User, "anna", limits);
    (0..50).for_each(|_| client.publishes("", "jobs", false, b"x"));
    broker.until(|counts| counts.ready_count > 0);

    client.publishes("", "jobs", false, b"one too many");
    std::thread::sleep(Duration::from_millis(500));
    broker.until(|counts| counts.ready_count < 51);

    broker.server.quotas().set(Holder::User, "anna", QuotaLimits::default());
    broker.until_ready(51);
    drop(client);
    broker.stop();
}

#[test]
fn two_thousand_channels_publish_and_consume() {
    const CHANNELS: u16 = 2000;
    let broker = Broker::start();
    let mut client = Client::open(&broker, 0);
    (2..=CHANNELS).for_each(|channel| client.opens(channel));
    for channel in 1..=CHANNELS {
        client.says(channel, Method::ConfirmSelect { nowait: true });
        client.publishes_on(channel, "", "jobs", b"x");
    }
    let mut confirmed = std::collections::BTreeSet::new();
    while confirmed.len() < usize::from(CHANNELS) {
        let heard = client.hears();
        assert!(matches!(Method::read(&heard.payload), Ok(Method::BasicAck { delivery_tag: 1, .. })));
        confirmed.insert(heard.channel);
    }
    broker.until_ready(u64::from(CHANNELS));
    drop(client);
    broker.stop();
}

#[test]
fn a_channel_without_flow_delivers_nothing_until_its_client_wants_more() {
    let broker = Broker::start();
    let (mut client, mut other) = (Client::open(&broker, 0), Client::open(&broker, 0));
    client.consumes(true);
    client.says(1, Method::ChannelFlow { active: false });
    client.expects(1, Method::ChannelFlowOk { active: false });
    other.publishes("", "jobs", false, b"one");
    broker.until_ready(1);
    other.gets(true);
    assert_eq!(other.expects_message(), b"one");
    other.publishes("", "jobs", false, b"two");
    broker.until_ready(1);

    client.says(1, Method::ChannelFlow { active: true });
    client.expects(1, Method::ChannelFlowOk { active: true });

    assert_eq!(client.expects_delivery(), (1, false, b"two".to_vec()));
    drop((client, other));
    broker.stop();
}

#[test]
fn a_newer_secret_is_taken_when_it_is_right() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 0);
    let reason = Name::cut("soon over");
    client.says(0, Method::ConnectionUpdateSecret { new_secret: LongText(b"secret"), reason });
    client.expects(0, Method::ConnectionUpdateSecretOk {});
    client.publishes("", "jobs", false, b"one");
    broker.until_ready(1);

    client.says(0, Method::ConnectionUpdateSecret { new_secret: LongText(b"wrong"), reason });

    let text = "NOT_ALLOWED - New secret was refused by one of the backends";
    assert_eq!(client.expects_close(0), (530, text.to_owned()));
    drop(client);
    broker.stop();
}

#[test]
fn exclusive_queues_are_deleted_before_a_close_is_confirmed() {
    let broker = Broker::start();
    for (exclusive, count) in [(false, 0), (true, 1)] {
        let mut client = Client::open(&broker, 0);
        let (queue, arguments) = (Name::cut("mine"), FieldTable::default());
        let (passive, durable, auto_delete, nowait) = (false, true, false, false);
        client.says(1, Method::QueueDeclare { queue, passive, durable, exclusive, auto_delete, nowait, arguments });
        client.expects(1, Method::QueueDeclareOk { queue, message_count: 3, consumer_count: 2 });

        client.says(0, Method::ConnectionClose { reply_code: 200, reply_text: Name::EMPTY, class: 0, method: 0 });
        client.expects(0, Method::ConnectionCloseOk {});

        assert_eq!(broker.decider.ends_of_queues.load(Ordering::Acquire), count);
    }
    broker.stop();
}

#[test]
fn a_client_that_still_sends_after_the_close_hears_that_it_was_confirmed() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 0);
    client.says(0, Method::ConnectionClose { reply_code: 200, reply_text: Name::EMPTY, class: 0, method: 0 });
    client.expects(0, Method::ConnectionCloseOk {});
    // With a socket that the broker has closed, the second one of these would fail.
    for _ in 0..2 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        client.says(1, Method::BasicAck { delivery_tag: 1, multiple: false });
    }
    broker.stop();
}
