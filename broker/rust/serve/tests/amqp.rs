//! The listener for AMQP 0-9-1 over a socket, by frames that this test writes and reads itself; it decides instead of Python.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod storage;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_engine::{Engine, QueueId, Shard};
use penstock_serve::host::{
    Admitted, Answer, Call, CallRequest, Calls, HostOptions, Kind, Outcome, Refusal, TopologyRequest,
};
use penstock_serve::{GrpcOptions, Server, ServerOptions};
use penstock_wire::Name;
use penstock_wire::amqp::argument::{FieldTable, LongText};
use penstock_wire::amqp::content::{ContentHeader, put_content};
use penstock_wire::amqp::frame::{FrameKind, PROTOCOL_HEADER, next_frame};
use penstock_wire::amqp::method::Method;
use penstock_wire::amqp::table_writer::TableWriter;

const PATIENCE: Duration = Duration::from_secs(60);
const JOBS: QueueId = QueueId(1);
const MESSAGE_BYTES_MAX: usize = 1 << 20;

struct Broker {
    engine: Arc<Engine>,
    shard: Arc<Shard>,
    server: Server,
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    deciding: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Broker {
    fn start() -> Broker {
        let (engine, shard, directory) = storage::open(1 << 20, JOBS);
        let host = HostOptions {
            threads: 1,
            message_bytes_max: MESSAGE_BYTES_MAX,
            request_bytes_max: 2 * MESSAGE_BYTES_MAX,
            buffer_bytes_max: 64 << 20,
            calls_max: 64,
            connections_max: 20,
            first_request: PATIENCE,
            tls: None,
            proxies: Vec::new(),
        };
        let grpc = GrpcOptions { address: "127.0.0.1:0".to_owned(), descriptors: Vec::new(), streams_max: 10 };
        let options = ServerOptions { host, grpc, amqp: Some("127.0.0.1:0".to_owned()) };
        let server = Server::start(Arc::clone(&engine), &options).unwrap();
        let address = server.amqp_address().unwrap();
        let (calls, is_over) = (Arc::clone(server.calls()), Arc::<AtomicBool>::default());
        let stops = Arc::clone(&is_over);
        let deciding = std::thread::spawn(move || decide_all(&calls, &stops));
        Broker { engine, shard, server, address, is_over, deciding, _directory: directory }
    }

    fn until_ready(&self, count: u64) {
        for _ in 0..60_000 {
            if self.shard.queue_counts(&[JOBS]).unwrap()[0].ready_count == count {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it never comes");
    }

    fn stop(self) {
        self.server.stop(PATIENCE);
        self.is_over.store(true, Ordering::Release);
        self.deciding.join().unwrap();
        self.engine.close().unwrap();
    }
}

fn decide_all(calls: &Calls, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        for mut call in calls.take() {
            let reply = call.reply.take();
            reply.into_iter().for_each(|reply| reply.send(decide(&call)));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn decide(call: &Call) -> Result<Answer, Refusal> {
    if call.caller.protocol != "amqp" || call.caller.authorization != "anna\0secret" {
        return Err(Refusal::new(Kind::Unauthenticated, "wrong user or password"));
    }
    let mut queue_id = 0;
    match &call.request {
        CallRequest::PermitExchange { exchange, .. } if exchange == "closed" => {
            return Err(Refusal::new(Kind::AccessRefused, "access to exchange 'closed' refused"));
        }
        CallRequest::OpenPublish { vhost } if vhost != "/" => {
            return Err(Refusal::new(Kind::NotFound, format!("vhost {vhost} not found")));
        }
        CallRequest::OpenConsume { queue, .. } if queue == "jobs" => queue_id = JOBS.0,
        CallRequest::OpenConsume { queue, .. } => {
            return Err(Refusal::new(Kind::NotFound, format!("no queue '{queue}' in vhost '/'")));
        }
        CallRequest::Topology { wanted: TopologyRequest::DeclareQueue { name, .. }, .. } if name == "locked" => {
            let details = 405_u16.to_be_bytes().to_vec();
            return Err(Refusal {
                kind: Kind::PreconditionFailed,
                text: "cannot obtain exclusive access".into(),
                details,
            });
        }
        CallRequest::Topology { wanted: TopologyRequest::DeclareQueue { name, .. }, .. } => {
            return Ok(Answer::Topology(Outcome { name: name.clone(), message_count: 3, consumer_count: 2 }));
        }
        _ => {}
    }
    Ok(Answer::Admitted(Admitted { vhost: "/".to_owned(), queue_id, user: "anna".to_owned(), by_key: false }))
}

/// A frame that the broker sent.
struct Heard {
    kind: FrameKind,
    channel: u16,
    payload: Vec<u8>,
}

struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    fn connect(broker: &Broker) -> Client {
        let stream = TcpStream::connect(broker.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, input: Vec::new() }
    }

    /// A client that has logged in, entered the virtual host and opened channel 1.
    fn open(broker: &Broker, heartbeat: u16) -> Client {
        let mut client = Client::connect(broker);
        client.log_in(b"\0anna\0secret");
        client.expects(0, Method::ConnectionTune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 });
        client.says(0, Method::ConnectionTuneOk { channel_max: 2047, frame_max: 131_072, heartbeat });
        client.says(0, Method::ConnectionOpen { virtual_host: Name::cut("/") });
        client.expects(0, Method::ConnectionOpenOk {});
        client.opens(1);
        client
    }

    fn opens(&mut self, channel: u16) {
        self.says(channel, Method::ChannelOpen {});
        self.expects(channel, Method::ChannelOpenOk {});
    }

    fn log_in(&mut self, response: &[u8]) {
        self.sends(&PROTOCOL_HEADER);
        let heard = self.hears();
        let start = Method::read(&heard.payload).unwrap();
        let Method::ConnectionStart { server_properties, mechanisms, .. } = start else { panic!("{start:?}") };
        assert!(server_properties.has_flag("capabilities", "basic.nack"));
        assert_eq!(mechanisms, LongText(b"PLAIN AMQPLAIN"));
        let properties = TableWriter::entries(|table| {
            table.table("capabilities", |inner| {
                inner.bool("authentication_failure_close", true);
                inner.bool("consumer_cancel_notify", true);
            });
        });
        let client_properties = FieldTable::check(&properties).unwrap();
        let (mechanism, locale) = (Name::cut("PLAIN"), Name::cut("en_US"));
        let response = LongText(response);
        self.says(0, Method::ConnectionStartOk { client_properties, mechanism, response, locale });
    }

    fn sends(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn says(&mut self, channel: u16, method: Method<'_>) {
        let mut out = Vec::new();
        method.put(channel, &mut out);
        self.sends(&out);
    }

    fn publishes(&mut self, exchange: &str, key: &str, mandatory: bool, body: &[u8]) {
        let (exchange, routing_key) = (Name::cut(exchange), Name::cut(key));
        let mut out = Vec::new();
        Method::BasicPublish { exchange, routing_key, mandatory, immediate: false }.put(1, &mut out);
        put_content(1, &[0x10, 0, 1], body, 4096, &mut out);
        self.sends(&out);
    }

    fn consumes(&mut self, no_ack: bool) {
        let (queue, consumer_tag, arguments) = (Name::cut("jobs"), Name::cut("ctag"), FieldTable::default());
        let (no_local, exclusive, nowait) = (false, false, false);
        self.says(1, Method::BasicConsume { queue, consumer_tag, no_local, no_ack, exclusive, nowait, arguments });
        self.expects(1, Method::BasicConsumeOk { consumer_tag });
    }

    /// The next frame; heartbeats are passed over.
    fn hears(&mut self) -> Heard {
        loop {
            if let Some((frame, length)) = next_frame(&self.input, 131_072).unwrap() {
                let heard = Heard { kind: frame.kind, channel: frame.channel, payload: frame.payload.to_vec() };
                self.input.drain(..length);
                if heard.kind != FrameKind::Heartbeat {
                    return heard;
                }
                continue;
            }
            assert!(self.hears_more(), "the connection is closed");
        }
    }

    fn hears_more(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let count = self.stream.read(&mut bytes).unwrap();
        self.input.extend_from_slice(&bytes[..count]);
        count > 0
    }

    fn expects(&mut self, channel: u16, method: Method<'_>) {
        let heard = self.hears();
        assert_eq!((heard.channel, Method::read(&heard.payload)), (channel, Ok(method)));
    }

    /// A delivery: its tag, whether it was delivered before, and its body.
    fn expects_delivery(&mut self) -> (u64, bool, Vec<u8>) {
        let heard = self.hears();
        match Method::read(&heard.payload) {
            Ok(Method::BasicDeliver { delivery_tag, redelivered, routing_key, .. }) => {
                assert_eq!(routing_key, Name::cut("jobs"));
                (delivery_tag, redelivered, self.expects_content())
            }
            other => panic!("{other:?}"),
        }
    }

    fn expects_content(&mut self) -> Vec<u8> {
        let heard = self.hears();
        assert_eq!(heard.kind, FrameKind::Header);
        let header = ContentHeader::read(&heard.payload).unwrap();
        assert_eq!(header.properties, [0x10, 0, 1]);
        let mut body = Vec::new();
        while (body.len() as u64) < header.body_bytes {
            body.extend(self.hears().payload);
        }
        body
    }

    /// A close of a channel, or of the connection as channel 0.
    fn expects_close(&mut self, channel: u16) -> (u16, String) {
        let heard = self.hears();
        match (heard.channel, Method::read(&heard.payload)) {
            (0, Ok(Method::ConnectionClose { reply_code, reply_text, .. })) if channel == 0 => {
                (reply_code, reply_text.to_text())
            }
            (number, Ok(Method::ChannelClose { reply_code, reply_text, .. })) if channel == number => {
                (reply_code, reply_text.to_text())
            }
            other => panic!("{other:?}"),
        }
    }

    fn expects_end(&mut self) {
        while self.hears_more() {}
    }
}

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
