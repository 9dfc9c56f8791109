//! AMQP in WebSockets, by a small client that frames and masks its bytes itself.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod amqp_client;
mod storage;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use penstock_wire::Name;
use penstock_wire::amqp::method::Method;

use crate::amqp_client::relayed::Pair;
use crate::amqp_client::{Broker, Client, MESSAGE_BYTES_MAX, PATIENCE};

const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

const REQUEST: &str = "GET /ws/amqp HTTP/1.1\r\nHost: mq\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                       Sec-WebSocket-Protocol: amqp\r\n\r\n";

fn connect(broker: &Broker) -> TcpStream {
    let stream = TcpStream::connect(broker.server.amqp_web_address().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A socket that has asked for a WebSocket and got one.
fn upgrade(broker: &Broker) -> TcpStream {
    let mut stream = connect(broker);
    stream.write_all(REQUEST.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
    assert!(head.contains("Sec-WebSocket-Protocol: amqp\r\n"), "{head}");
    stream
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x11, 0x22, 0x33, 0x44];
    let mut out = vec![first, 0x80 | 127];
    out.extend((payload.len() as u64).to_be_bytes());
    if payload.len() < 126 {
        out.truncate(1);
        out.push(0x80 | payload.len() as u8);
    }
    out.extend(mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    out
}

/// The next frame of the broker; `None` at the end of the socket.
fn read_frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).ok()?;
    let length = match head[1] {
        126 => {
            let mut length = [0; 2];
            stream.read_exact(&mut length).ok()?;
            u64::from(u16::from_be_bytes(length))
        }
        127 => {
            let mut length = [0; 8];
            stream.read_exact(&mut length).ok()?;
            u64::from_be_bytes(length)
        }
        short => u64::from(short),
    };
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).ok()?;
    Some((head[0], payload))
}

/// A client of frames whose bytes go through a WebSocket: a pair of threads packs and unpacks them, some bytes to a message.
fn client(broker: &Broker, message_bytes: usize) -> Client {
    let mut web = upgrade(broker);
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(between.local_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut plain, _) = between.accept().unwrap();
    let (mut plain_out, mut web_out) = (plain.try_clone().unwrap(), web.try_clone().unwrap());
    std::thread::spawn(move || {
        let mut bytes = vec![0; message_bytes];
        while let Ok(count @ 1..) = plain.read(&mut bytes) {
            let parts = bytes[..count].split_at(count / 2);
            // A message in two frames, with a ping between them.
            let sent = [frame(0x02, parts.0), frame(PING, b"?"), frame(0x80, parts.1)].concat();
            if web_out.write_all(&sent).is_err() {
                return;
            }
        }
        let _ = web_out.write_all(&frame(CLOSE, &1000_u16.to_be_bytes()));
    });
    std::thread::spawn(move || {
        while let Some((first, payload)) = read_frame(&mut web) {
            match first {
                BINARY => plain_out.write_all(&payload).unwrap(),
                PONG => assert_eq!(payload, b"?"),
                CLOSE => break,
                other => panic!("a frame of kind {other:x}"),
            }
        }
        let _ = plain_out.shutdown(Shutdown::Write);
    });
    Client { stream, input: Vec::new(), hears_alarms: false }
}

#[test]
fn a_client_publishes_and_consumes_in_messages_of_any_size() {
    let broker = Broker::start();
    for message_bytes in [7, 100_000] {
        let mut client = client(&broker, message_bytes).enter(0);
        client.publishes("", "jobs", false, b"in a web socket");
        client.consumes(true);
        let (_, _, body) = client.expects_delivery();
        assert_eq!(body, b"in a web socket");
        client.says(0, Method::ConnectionClose { reply_code: 200, reply_text: Name::EMPTY, class: 0, method: 0 });
        client.expects(0, Method::ConnectionCloseOk {});
        client.expects_end();
    }
    broker.stop();
}

#[test]
fn a_large_message_goes_both_ways() {
    let broker = Broker::start();
    let mut client = client(&broker, 1 << 20).enter(0);
    let body: Vec<u8> = (0..MESSAGE_BYTES_MAX).map(|at| (at % 251) as u8).collect();
    client.publishes("", "jobs", false, &body);

    client.consumes(true);

    assert_eq!(client.expects_delivery(), (1, false, body));
    drop(client);
    broker.stop();
}

#[test]
fn a_client_is_relayed_to_the_leader() {
    let pair = Pair::start();
    let mut client = client(&pair.here, 1 << 20).enter(0);
    let body: Vec<u8> = (0..MESSAGE_BYTES_MAX).map(|at| (at % 251) as u8).collect();
    client.publishes("", "jobs", false, &body);
    pair.leader.until_ready(1);

    client.consumes(true);

    assert_eq!(client.expects_delivery(), (1, false, body));
    drop(client);
    pair.stop();
}

#[test]
fn frames_that_are_wrong_are_answered_with_a_close() {
    let broker = Broker::start();
    let cases = [
        (vec![0x82, 1, 0], 1002_u16),
        (frame(0x81, b"text"), 1003),
        (vec![0x82, 0xff, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1009),
    ];
    for (sent, code) in cases {
        let mut stream = upgrade(&broker);
        stream.write_all(&sent).unwrap();
        assert_eq!(read_frame(&mut stream), Some((CLOSE, code.to_be_bytes().to_vec())));
        assert_eq!(read_frame(&mut stream), None);
    }
    broker.stop();
}

#[test]
fn a_client_that_asks_for_no_web_socket_or_for_nothing_is_not_kept() {
    let broker = Broker::start_with(|host| host.first_request = Duration::from_secs(2));
    for sent in ["GET / HTTP/1.1\r\nHost: mq\r\n\r\n", "GET / HT"] {
        let mut stream = connect(&broker);
        stream.write_all(sent.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer.starts_with("HTTP/1.1 426 "), sent.ends_with("\r\n\r\n"), "{answer}");
    }
    let mut silent = upgrade(&broker);
    assert_eq!(read_frame(&mut silent), None, "nothing but pings is no log-in");
    broker.stop();
}

#[test]
fn pings_whose_answers_are_not_read_are_not_read_without_end() {
    let broker = Broker::start();
    let mut stream = upgrade(&broker);
    stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let flood = frame(PING, &[7; 125]).repeat(1000);
    let taken = (0..1000).take_while(|_| stream.write_all(&flood).is_ok()).count();
    assert!(taken < 1000, "the broker took all of {} MB", (flood.len() * 1000) >> 20);
    drop(stream);
    broker.stop();
}
