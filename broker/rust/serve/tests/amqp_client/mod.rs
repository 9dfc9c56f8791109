//! A broker with a listener for AMQP, and a client of frames that a test writes and reads itself; it decides instead of Python.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

pub mod relayed;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_engine::{Engine, QueueCounts, QueueId, Shard};
use penstock_serve::host::{
    Admitted, Answer, Call, CallRequest, Calls, HostOptions, Kind, Outcome, Refusal, TopologyRequest,
};
use penstock_serve::{AmqpOptions, GrpcOptions, Server, ServerOptions};
use penstock_wire::Name;
use penstock_wire::amqp::argument::{FieldTable, LongText};
use penstock_wire::amqp::content::{ContentHeader, put_content};
use penstock_wire::amqp::frame::{FrameKind, PROTOCOL_HEADER, next_frame};
use penstock_wire::amqp::method::Method;
use penstock_wire::amqp::table_writer::TableWriter;

use crate::storage;

pub const PATIENCE: Duration = Duration::from_secs(60);
pub const JOBS: QueueId = QueueId(1);
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

pub struct Broker {
    pub engine: Arc<Engine>,
    pub shard: Arc<Shard>,
    pub server: Server,
    pub address: SocketAddr,
    pub decider: Arc<Decider>,
    deciding: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Broker {
    pub fn start() -> Broker {
        Broker::start_with(|_| ())
    }

    /// A broker whose host has other options.
    pub fn start_with(change: impl FnOnce(&mut HostOptions)) -> Broker {
        Broker::start_at(None, change)
    }

    /// The same, also with a Unix socket.
    pub fn start_at(socket: Option<PathBuf>, change: impl FnOnce(&mut HostOptions)) -> Broker {
        let (engine, shard, directory) = storage::open(1 << 20, JOBS);
        let mut host = HostOptions {
            threads: 1,
            message_bytes_max: MESSAGE_BYTES_MAX,
            request_bytes_max: 2 * MESSAGE_BYTES_MAX,
            buffer_bytes_max: 64 << 20,
            calls_max: 64,
            connections_max: 20,
            first_request: PATIENCE,
            tls: None,
            proxies: Vec::new(),
            web_origins: Vec::new(),
        };
        change(&mut host);
        let grpc = GrpcOptions { address: "127.0.0.1:0".to_owned(), descriptors: Vec::new(), streams_max: 10 };
        let (address, web) = (Some("127.0.0.1:0".to_owned()), Some("127.0.0.1:0".to_owned()));
        let amqp = AmqpOptions { address, web, socket };
        let options = ServerOptions { host, grpc, amqp };
        let server = Server::start(Arc::clone(&engine), &options).unwrap();
        let address = server.amqp_address().unwrap();
        let (calls, decider) = (Arc::clone(server.calls()), Arc::<Decider>::default());
        let decides = Arc::clone(&decider);
        let deciding = std::thread::spawn(move || decides.run(&calls));
        Broker { engine, shard, server, address, decider, deciding, _directory: directory }
    }

    pub fn until_ready(&self, count: u64) {
        self.until(|counts| counts.ready_count == count);
    }

    /// Waits until the queue's counts are so.
    pub fn until(&self, is_so: impl Fn(&QueueCounts) -> bool) {
        for _ in 0..60_000 {
            if is_so(&self.shard.queue_counts(&[JOBS]).unwrap()[0]) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it never comes");
    }

    pub fn stop(self) {
        self.stop_within(PATIENCE);
    }

    pub fn stop_within(self, grace: Duration) {
        self.server.stop(grace);
        self.decider.is_over.store(true, Ordering::Release);
        self.deciding.join().unwrap();
        self.engine.close().unwrap();
    }
}

/// What decides instead of Python.
#[derive(Default)]
pub struct Decider {
    is_over: AtomicBool,
    /// Whether anna is no user any more.
    pub is_deleted: AtomicBool,
    /// How often exclusive queues were to be deleted.
    pub ends_of_queues: AtomicUsize,
    /// The other broker that leads every virtual host, if one does.
    pub leader: Mutex<Option<String>>,
}

impl Decider {
    fn run(&self, calls: &Calls) {
        while !self.is_over.load(Ordering::Acquire) {
            for mut call in calls.take() {
                let reply = call.reply.take();
                let is_deleted = self.is_deleted.load(Ordering::Acquire);
                if call.request == CallRequest::EndQueues {
                    self.ends_of_queues.fetch_add(1, Ordering::AcqRel);
                }
                let decided = match &call.request {
                    CallRequest::FindLeader { known, .. } => self.find_leader(call.again, known),
                    _ => decide(&call, is_deleted),
                };
                if let Some(reply) = reply {
                    reply.send(decided);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Decider {
    fn find_leader(&self, again: bool, known: &str) -> Result<Answer, Refusal> {
        let leader = self.leader.lock().unwrap().clone();
        match leader {
            Some(leader) if again && leader != known => Err(Refusal::new(Kind::LedElsewhere, "another broker leads")),
            leader => Ok(Answer::Leader(leader)),
        }
    }
}

fn decide(call: &Call, is_deleted: bool) -> Result<Answer, Refusal> {
    if is_deleted || call.caller.protocol != "amqp" || call.caller.authorization != "anna\0secret" {
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
        CallRequest::OpenConsume { queue, .. } | CallRequest::OpenGet { queue, .. } if queue == "jobs" => {
            queue_id = JOBS.0;
        }
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
    Ok(Answer::Admitted(Admitted {
        vhost: "/".to_owned(),
        queue_id,
        user: "anna".to_owned(),
        by_key: false,
        replica: None,
    }))
}

/// A frame that the broker sent.
pub struct Heard {
    pub kind: FrameKind,
    pub channel: u16,
    pub payload: Vec<u8>,
}

pub struct Client {
    pub stream: TcpStream,
    pub input: Vec<u8>,
    /// Whether it says that it wants to hear of alarms.
    pub hears_alarms: bool,
}

impl Client {
    pub fn connect(broker: &Broker) -> Client {
        let stream = TcpStream::connect(broker.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, input: Vec::new(), hears_alarms: false }
    }

    /// The same client, to write while another thread reads.
    pub fn same(&self) -> Client {
        Client { stream: self.stream.try_clone().unwrap(), input: Vec::new(), hears_alarms: false }
    }

    /// A client that has logged in, entered the virtual host and opened channel 1.
    pub fn open(broker: &Broker, heartbeat: u16) -> Client {
        Client::connect(broker).enter(heartbeat)
    }

    /// The same after it was set up.
    pub fn enter(mut self, heartbeat: u16) -> Client {
        let client = &mut self;
        client.log_in(b"\0anna\0secret");
        client.expects(0, Method::ConnectionTune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 });
        client.says(0, Method::ConnectionTuneOk { channel_max: 2047, frame_max: 131_072, heartbeat });
        client.says(0, Method::ConnectionOpen { virtual_host: Name::cut("/") });
        client.expects(0, Method::ConnectionOpenOk {});
        client.opens(1);
        self
    }

    pub fn opens(&mut self, channel: u16) {
        self.says(channel, Method::ChannelOpen {});
        self.expects(channel, Method::ChannelOpenOk {});
    }

    pub fn log_in(&mut self, response: &[u8]) {
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
                inner.bool("connection.blocked", self.hears_alarms);
            });
        });
        let client_properties = FieldTable::check(&properties).unwrap();
        let (mechanism, locale) = (Name::cut("PLAIN"), Name::cut("en_US"));
        let response = LongText(response);
        self.says(0, Method::ConnectionStartOk { client_properties, mechanism, response, locale });
    }

    pub fn sends(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn says(&mut self, channel: u16, method: Method<'_>) {
        let mut out = Vec::new();
        method.put(channel, &mut out);
        self.sends(&out);
    }

    pub fn publishes(&mut self, exchange: &str, key: &str, mandatory: bool, body: &[u8]) {
        self.publishes_as((1, mandatory), exchange, key, body);
    }

    pub fn publishes_on(&mut self, channel: u16, exchange: &str, key: &str, body: &[u8]) {
        self.publishes_as((channel, false), exchange, key, body);
    }

    fn publishes_as(&mut self, (channel, mandatory): (u16, bool), exchange: &str, key: &str, body: &[u8]) {
        let (exchange, routing_key) = (Name::cut(exchange), Name::cut(key));
        let mut out = Vec::new();
        Method::BasicPublish { exchange, routing_key, mandatory, immediate: false }.put(channel, &mut out);
        put_content(channel, &[0x10, 0, 1], body, 4096, &mut out);
        self.sends(&out);
    }

    pub fn gets(&mut self, no_ack: bool) {
        self.says(1, Method::BasicGet { queue: Name::cut("jobs"), no_ack });
    }

    /// The body of a message that was got, or that came back.
    pub fn expects_message(&mut self) -> Vec<u8> {
        let heard = self.hears();
        match Method::read(&heard.payload) {
            Ok(Method::BasicGetOk { .. } | Method::BasicReturn { .. }) => self.expects_content(),
            other => panic!("{other:?}"),
        }
    }

    /// Begins a message on channel 1, and sends about so many bytes of its body.
    pub fn sends_part(&mut self, count: usize) {
        assert!(self.tries_to_send_part(1, count));
    }

    /// The same on any channel; false when the connection is closed.
    pub fn tries_to_send_part(&mut self, channel: u16, count: usize) -> bool {
        let mut out = Vec::new();
        let (exchange, routing_key) = (Name::EMPTY, Name::cut("jobs"));
        Method::BasicPublish { exchange, routing_key, mandatory: false, immediate: false }.put(channel, &mut out);
        let mut content = Vec::new();
        put_content(channel, &[0x10, 0, 1], &vec![b'x'; MESSAGE_BYTES_MAX], 4096, &mut content);
        let mut end = 0;
        while end < count {
            let (_, length) = next_frame(&content[end..], 131_072).unwrap().unwrap();
            end += length;
        }
        out.extend_from_slice(&content[..end]);
        self.stream.write_all(&out).is_ok()
    }

    pub fn consumes(&mut self, no_ack: bool) {
        self.consumes_as(no_ack, false);
    }

    /// As the only consumer.
    pub fn consumes_alone(&mut self) {
        self.consumes_as(false, true);
    }

    fn consumes_as(&mut self, no_ack: bool, exclusive: bool) {
        let (queue, consumer_tag, arguments) = (Name::cut("jobs"), Name::cut("ctag"), FieldTable::default());
        let (no_local, nowait) = (false, false);
        self.says(1, Method::BasicConsume { queue, consumer_tag, no_local, no_ack, exclusive, nowait, arguments });
        self.expects(1, Method::BasicConsumeOk { consumer_tag });
    }

    /// The next frame; heartbeats are passed over.
    pub fn hears(&mut self) -> Heard {
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

    pub fn hears_more(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let count = self.stream.read(&mut bytes).unwrap();
        self.input.extend_from_slice(&bytes[..count]);
        count > 0
    }

    /// Whether something came, or comes within the time for reading; it stays to be heard.
    pub fn hears_if_any(&mut self) -> bool {
        !self.input.is_empty() || matches!(self.stream.peek(&mut [0]), Ok(1..))
    }

    pub fn expects(&mut self, channel: u16, method: Method<'_>) {
        let heard = self.hears();
        assert_eq!((heard.channel, Method::read(&heard.payload)), (channel, Ok(method)));
    }

    /// A delivery: its tag, whether it was delivered before, and its body.
    pub fn expects_delivery(&mut self) -> (u64, bool, Vec<u8>) {
        let heard = self.hears();
        match Method::read(&heard.payload) {
            Ok(Method::BasicDeliver { delivery_tag, redelivered, routing_key, .. }) => {
                assert_eq!(routing_key, Name::cut("jobs"));
                (delivery_tag, redelivered, self.expects_content())
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn expects_content(&mut self) -> Vec<u8> {
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
    pub fn expects_close(&mut self, channel: u16) -> (u16, String) {
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

    pub fn expects_end(&mut self) {
        while self.hears_more() {}
    }
}
