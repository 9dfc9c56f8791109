//! Clients of AMQP 0-9-1 whose bytes are wrong, or that say nothing: each is told the reply code, or its socket is closed, and a
//! client beside it is served.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod amqp_client;
mod storage;

use std::time::Duration;

use penstock_wire::Name;
use penstock_wire::amqp::argument::FieldTable;
use penstock_wire::amqp::content::ContentHeader;
use penstock_wire::amqp::frame::{FrameKind, PROTOCOL_HEADER, put_frame};
use penstock_wire::amqp::method::Method;

use crate::amqp_client::{Broker, Client, MESSAGE_BYTES_MAX};

fn method(channel: u16, method: Method<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    method.put(channel, &mut out);
    out
}

fn publish(channel: u16) -> Vec<u8> {
    let (exchange, routing_key) = (Name::EMPTY, Name::cut("nowhere"));
    method(channel, Method::BasicPublish { exchange, routing_key, mandatory: false, immediate: false })
}

fn header(channel: u16, body_bytes: u64) -> Vec<u8> {
    let payload = [&[0, 60, 0, 0][..], &body_bytes.to_be_bytes(), &[0, 0]].concat();
    assert_eq!(ContentHeader::read(&payload).unwrap().body_bytes, body_bytes);
    frame(FrameKind::Header, channel, &payload)
}

fn frame(kind: FrameKind, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(&mut out, kind, channel, |out| out.extend_from_slice(payload));
    out
}

fn declare(channel: u16) -> Vec<u8> {
    let (queue, arguments) = (Name::cut("q"), FieldTable::default());
    let (passive, durable, exclusive, auto_delete, nowait) = (false, false, false, false, false);
    method(channel, Method::QueueDeclare { queue, passive, durable, exclusive, auto_delete, nowait, arguments })
}

/// A declaration whose arguments are these bytes, with their length.
fn declare_with(arguments: &[u8]) -> Vec<u8> {
    frame(FrameKind::Method, 1, &[&[0, 50, 0, 10, 0, 0, 1, b'q', 0][..], arguments].concat())
}

fn with_length(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

/// A table in a table, so many times.
fn deep(levels: usize) -> Vec<u8> {
    let mut inner = b"V".to_vec();
    for _ in 0..levels {
        inner = [b"F".to_vec(), with_length(&[b"\x01a", &inner[..]].concat())].concat();
    }
    with_length(&[b"\x01a", &inner[..]].concat())
}

#[test]
fn what_a_client_does_wrong_closes_the_connection_or_channel_with_its_code() {
    let broker = Broker::start();
    let mut neighbour = Client::open(&broker, 0);
    let mut no_end = declare(1);
    *no_end.last_mut().unwrap() = 0;
    let body = |bytes: &[u8]| frame(FrameKind::Body, 1, bytes);
    let cases: [(&str, Vec<u8>, u16, u16); 16] = [
        ("an unknown kind of frame", vec![4, 0, 1, 0, 0, 0, 0, 0xce], 0, 501),
        ("a frame beyond what was agreed", vec![1, 0, 1, 0, 2, 0, 1], 0, 501),
        ("a frame of 4 GB", vec![3, 0, 1, 0xff, 0xff, 0xff, 0xff], 0, 501),
        ("a frame without its end", no_end, 0, 501),
        ("a channel that is not open", declare(7), 0, 504),
        ("a method of a channel on channel 0", declare(0), 0, 504),
        ("content on channel 0", header(0, 1), 0, 505),
        ("content without a publish", header(1, 1), 0, 505),
        ("a body without a header", [publish(1), body(b"x")].concat(), 0, 505),
        ("a publish in a publish", [publish(1), publish(1)].concat(), 0, 505),
        ("a body that is longer than announced", [publish(1), header(1, 2), body(b"abc")].concat(), 0, 501),
        ("a body after all", [publish(1), header(1, 0), body(b"x")].concat(), 0, 505),
        ("a message above the bound", [publish(1), header(1, MESSAGE_BYTES_MAX as u64 + 1)].concat(), 1, 406),
        ("a table that is too deep", declare_with(&deep(5_000)), 0, 502),
        ("a table that lies", declare_with(b"\xff\xff\xff\xff\x01aV"), 0, 502),
        ("a long string that lies", declare_with(&with_length(b"\x01aS\x7f\xff\xff\xffx")), 0, 502),
    ];
    for (what, sent, channel, code) in cases {
        let mut client = Client::open(&broker, 0);
        client.sends(&sent);
        assert_eq!(client.expects_close(channel).0, code, "{what}");
        if channel == 0 {
            client.says(0, Method::ConnectionCloseOk {});
            client.expects_end();
        }
    }

    neighbour.publishes("", "jobs", false, b"still served");
    neighbour.consumes(true);
    assert_eq!(neighbour.expects_delivery().2, b"still served");
    drop(neighbour);
    broker.stop();
}

#[test]
fn half_a_frame_keeps_a_silent_client_no_longer() {
    let broker = Broker::start();
    let mut client = Client::open(&broker, 1);
    client.sends(&declare(1)[..9]);

    client.expects_end();

    broker.stop();
}

#[test]
fn a_client_that_does_not_log_in_is_closed_whatever_it_has_sent() {
    let broker = Broker::start_with(|host| host.first_request = Duration::from_millis(200));
    let begun = [&PROTOCOL_HEADER[..3], &PROTOCOL_HEADER, &[&PROTOCOL_HEADER[..], &[1, 0, 0, 0, 0, 0, 99, 0]].concat()];
    for sent in begun {
        let mut client = Client::connect(&broker);
        client.sends(sent);
        client.expects_end();
    }
    broker.stop();
}
