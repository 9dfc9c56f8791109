//! Calls of gRPC that another broker has to answer: two brokers in one process, with streams of bytes in place of their connections.
#![allow(clippy::unwrap_used)]

mod storage;

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes};
use futures_util::stream::{self, StreamExt};
use http::uri::PathAndQuery;
use penstock_engine::{Engine, QueueId, Shard};
use penstock_serve::host::{
    Admitted, Answer, CallRequest, Calls, Duplex, Entrance, HostOptions, Kind, Refusal, RelayOpening, RelayedClient,
    Relays,
};
use penstock_serve::{AmqpOptions, GrpcOptions, Server, ServerOptions};
use penstock_wire::grpc::{BatchEncoder, encode_publish_open};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

const PATIENCE: Duration = Duration::from_secs(60);
const LIMIT: usize = 16 << 20;
const MESSAGE_BYTES_MAX: usize = 4 << 20;
const PUBLISH: &str = "/penstock.v1.MessagingService/Publish";
const PURGE: &str = "/penstock.v1.AdminService/PurgeQueue";
const REFRESH: &str = "/penstock.v1.AdminService/RefreshToken";
const LEADER: &str = "penstock-leader";

/// Which broker a broker says leads; itself with `None`.
type Led = Arc<Mutex<Option<&'static str>>>;

struct Broker {
    engine: Arc<Engine>,
    shard: Option<Arc<Shard>>,
    server: Server,
    leader: Led,
    addresses: Arc<Mutex<Vec<String>>>,
    refreshed: Arc<Mutex<usize>>,
    is_over: Arc<AtomicBool>,
    deciding: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Broker {
    fn start(leader: Option<&'static str>) -> Broker {
        Broker::start_with(leader, PATIENCE)
    }

    fn start_with(leader: Option<&'static str>, first_request: Duration) -> Broker {
        let (engine, shard, directory) = storage::open(1 << 20, QueueId(1));
        let host = HostOptions {
            threads: 2,
            message_bytes_max: MESSAGE_BYTES_MAX,
            request_bytes_max: 2 * MESSAGE_BYTES_MAX,
            buffer_bytes_max: LIMIT,
            calls_max: 1000,
            connections_max: 1000,
            first_request,
            tls: None,
            proxies: Vec::new(),
            web_origins: Vec::new(),
        };
        let grpc = GrpcOptions { address: "127.0.0.1:0".to_owned(), descriptors: Vec::new(), streams_max: 1000 };
        let options = ServerOptions { host, grpc, amqp: AmqpOptions::default() };
        let server = Server::start(Arc::clone(&engine), &options).unwrap();
        let (leader, addresses, is_over) = (Arc::new(Mutex::new(leader)), Arc::default(), Arc::default());
        let refreshed = Arc::<Mutex<usize>>::default();
        let (calls, led, heard, stops, counted) = (
            Arc::clone(server.calls()),
            Arc::clone(&leader),
            Arc::clone(&addresses),
            Arc::clone(&is_over),
            Arc::clone(&refreshed),
        );
        let deciding = std::thread::spawn(move || decide(&calls, &led, &heard, &counted, &stops));
        Broker {
            engine,
            shard: Some(shard),
            server,
            leader,
            addresses,
            refreshed,
            is_over,
            deciding,
            _directory: directory,
        }
    }

    fn until(&self, is_so: impl Fn(&Broker) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < until, "it never comes: {:?}", self.server.memory_used());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn stop(self) {
        self.server.stop(Duration::from_millis(100));
        self.is_over.store(true, Ordering::Release);
        self.deciding.join().unwrap();
        self.engine.close().unwrap();
    }
}

/// Admits anna where the broker leads.
fn decide(calls: &Calls, leader: &Led, addresses: &Mutex<Vec<String>>, refreshed: &Mutex<usize>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        for mut call in calls.take() {
            let Some(reply) = call.reply.take() else { continue };
            addresses.lock().unwrap().push(call.caller.peer.clone());
            let led_by = *leader.lock().unwrap();
            reply.send(match (&call.request, led_by) {
                _ if call.caller.authorization != "anna" => Err(Refusal::new(Kind::Unauthenticated, "wrong user")),
                (CallRequest::Unary { method, payload }, led_by) if method == "RefreshToken" => {
                    *refreshed.lock().unwrap() += 1;
                    let no_streams = || Refusal::new(Kind::PreconditionFailed, "no stream has a token");
                    if led_by.is_none() { Ok(Answer::Payload(payload.to_vec())) } else { Err(no_streams()) }
                }
                (CallRequest::OpenPublish { .. } | CallRequest::Unary { .. }, Some(leader)) => Err(not_led(leader)),
                (CallRequest::Unary { payload, .. }, None) => Ok(Answer::Payload(payload.to_vec())),
                _ => {
                    let (vhost, user) = ("/".to_owned(), "anna".to_owned());
                    Ok(Answer::Admitted(Admitted { vhost, queue_id: 0, user, by_key: false, replica: None }))
                }
            });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// As Python's front end for gRPC refuses.
fn not_led(leader: &str) -> Refusal {
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }
    let entry = |key: &str, value: &str| field(3, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat());
    let info = [field(1, b"NOT_LEADER"), entry("name", "/"), entry("leader", leader), entry("grpc", "h:1")].concat();
    let any = [field(1, b"type.googleapis.com/google.rpc.ErrorInfo"), field(2, &info)].concat();
    Refusal { details: field(3, &any), ..Refusal::new(Kind::Unavailable, format!("led by broker '{leader}'")) }
}

/// The way from one broker to others.
#[derive(Clone, Default)]
struct Ways {
    brokers: Arc<Mutex<Vec<(&'static str, Entrance)>>>,
    opened: Arc<Mutex<Vec<RelayedClient>>>,
    /// The other ends of relays that no broker serves.
    silent: Arc<Mutex<Vec<tokio::io::DuplexStream>>>,
    is_silent: Arc<AtomicBool>,
}

impl Relays for Ways {
    fn open(&self, leader: &str, client: RelayedClient) -> RelayOpening {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        self.opened.lock().unwrap().push(client.clone());
        let brokers = self.brokers.lock().unwrap();
        let found = brokers.iter().find(|(name, _)| *name == leader).map(|(_, entrance)| entrance.clone());
        let opened = match found {
            _ if self.is_silent.load(Ordering::Acquire) => {
                self.silent.lock().unwrap().push(theirs);
                Ok(())
            }
            Some(entrance) => entrance.serve(client, "192.0.2.2:41000".parse().unwrap(), Box::new(theirs)),
            None => Err(Error::from(ErrorKind::NotFound)),
        };
        let stream: Box<dyn Duplex> = Box::new(ours);
        Box::pin(async move { opened.map(|()| stream) })
    }
}

/// Two brokers, of which the second one leads, and the ways of the first one.
fn pair() -> (Broker, Broker, Ways) {
    let (other, leader, ways) = (Broker::start(Some("mq-1")), Broker::start(None), Ways::default());
    ways.brokers.lock().unwrap().push(("mq-1", leader.server.entrance().clone()));
    other.server.set_relays(Arc::new(ways.clone()));
    (other, leader, ways)
}

/// Messages as bytes.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
    }
}

struct Client {
    runtime: Runtime,
    grpc: Grpc<Channel>,
    headers: Vec<(&'static str, &'static str)>,
}

/// A publish stream.
struct Publishing {
    says: mpsc::Sender<Vec<u8>>,
    answer: Response<Streaming<Bytes>>,
}

impl Client {
    fn of(broker: &Broker) -> Client {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address: SocketAddr = broker.server.address();
        let connecting = async { Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await };
        let grpc = Grpc::new(runtime.block_on(connecting).unwrap());
        let grpc = grpc.max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX);
        Client { runtime, grpc, headers: vec![("authorization", "anna")] }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        for (name, value) in &self.headers {
            request.metadata_mut().insert(*name, value.parse().unwrap());
        }
        request
    }

    /// Opens a publish stream, and returns it once the headers of the answer have come.
    fn publish(&mut self) -> Result<Publishing, Status> {
        let (says, said) = mpsc::channel(4);
        let mut open = Vec::new();
        encode_publish_open(&mut open, "/", 0, "");
        says.try_send(open).unwrap();
        self.open(says, said)
    }

    fn open(&mut self, says: mpsc::Sender<Vec<u8>>, said: mpsc::Receiver<Vec<u8>>) -> Result<Publishing, Status> {
        let messages = stream::unfold(said, |mut said| async move { said.recv().await.map(|next| (next, said)) });
        let request = self.request(messages.boxed());
        let Client { runtime, grpc, .. } = self;
        runtime.block_on(async {
            grpc.ready().await.unwrap();
            let answer = grpc.streaming(request, PathAndQuery::from_static(PUBLISH), Raw).await?;
            Ok(Publishing { says, answer })
        })
    }

    fn say(&self, publishing: &Publishing, message: Vec<u8>) {
        self.runtime.block_on(publishing.says.send(message)).unwrap();
    }

    fn hear(&self, publishing: &mut Publishing) -> Result<Option<Bytes>, Status> {
        let heard = publishing.answer.get_mut().message();
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, heard).await.unwrap() })
    }

    fn publishes(&self, publishing: &mut Publishing) {
        self.say(publishing, batch(5));
        assert!(self.hear(publishing).unwrap().is_some(), "a confirm");
    }

    fn purge(&mut self, payload: Vec<u8>) -> Result<Response<Bytes>, Status> {
        self.ask(PURGE, payload)
    }

    fn ask(&mut self, method: &'static str, payload: Vec<u8>) -> Result<Response<Bytes>, Status> {
        let request = self.request(payload);
        let Client { runtime, grpc, .. } = self;
        runtime.block_on(async {
            grpc.ready().await.unwrap();
            grpc.unary(request, PathAndQuery::from_static(method), Raw).await
        })
    }
}

fn batch(body_bytes: usize) -> Vec<u8> {
    let mut batch = BatchEncoder::begin(Vec::new(), "", "jobs", false);
    batch.push(&vec![b'x'; body_bytes], None);
    batch.finish()
}

#[test]
fn a_call_goes_to_the_leader_which_has_the_client_under_its_own_address() {
    let (other, leader, ways) = pair();
    let mut client = Client::of(&other);

    let mut publishing = client.publish().unwrap();
    assert_eq!(publishing.answer.metadata().get(LEADER).unwrap(), "h:1");
    client.publishes(&mut publishing);
    let mut again = client.publish().unwrap();
    client.publishes(&mut again);

    // The client is on this machine, which is that of the broker that relays it only in a test.
    assert!(leader.addresses.lock().unwrap().iter().all(|address| address == "192.0.2.2:41000"));
    let opened = ways.opened.lock().unwrap().clone();
    assert_eq!(opened.len(), 1, "one for all calls of a connection");
    assert!(opened[0].address.unwrap().ip().is_loopback() && opened[0].protocol == "grpc");
    drop((publishing, again, client));
    leader.until(|leader| leader.engine.counters().all().any(|found| found == ("connections", 0)));
    leader.stop();
    other.stop();
}

#[test]
fn a_call_whose_virtual_host_is_closed_after_it_was_admitted_may_be_tried_again() {
    let mut leader = Broker::start(None);
    let mut client = Client::of(&leader);
    leader.shard = None;

    let mut refused = client.publish().unwrap();
    let status = client.hear(&mut refused).unwrap_err();

    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    drop((refused, client));
    leader.stop();
}

#[test]
fn a_unary_call_with_the_largest_request_goes_to_the_leader_and_its_bytes_are_given_back() {
    let (other, leader, _ways) = pair();
    let mut client = Client::of(&other);
    let payload: Vec<u8> = (0..MESSAGE_BYTES_MAX - 100).map(|at| at as u8).collect();

    for _ in 0..3 {
        let answer = client.purge(payload.clone()).unwrap();
        assert_eq!(answer.metadata().get(LEADER).unwrap(), "h:1");
        assert!(answer.into_inner() == payload);
    }

    for broker in [&other, &leader] {
        broker.until(|broker| {
            let used = broker.server.memory_used();
            used.request_bytes + used.response_bytes + used.unauthenticated_bytes == 0
        });
    }
    leader.stop();
    other.stop();
}

#[test]
fn a_client_whose_calls_are_all_relayed_keeps_its_connection() {
    let (other, leader, ways) =
        (Broker::start_with(Some("mq-1"), Duration::from_secs(2)), Broker::start(None), Ways::default());
    ways.brokers.lock().unwrap().push(("mq-1", leader.server.entrance().clone()));
    other.server.set_relays(Arc::new(ways.clone()));
    let mut client = Client::of(&other);
    let mut publishing = client.publish().unwrap();

    // More than log-ins may fail, and for longer than a client has for its log-in.
    for _ in 0..20 {
        client.purge(vec![0; 20]).unwrap();
    }
    std::thread::sleep(Duration::from_secs(3));

    client.publishes(&mut publishing);
    assert_eq!(ways.opened.lock().unwrap().len(), 1);
    leader.stop();
    other.stop();
}

#[test]
fn a_call_that_was_relayed_is_not_relayed_again() {
    let (other, leader, ways) = pair();
    *leader.leader.lock().unwrap() = Some("mq-0");
    leader.server.set_relays(Arc::new(ways.clone()));
    ways.brokers.lock().unwrap().push(("mq-0", other.server.entrance().clone()));
    let mut client = Client::of(&other);

    let refused = client.purge(vec![0; 20]).unwrap_err();

    assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "led by broker 'mq-0'"));
    assert!(!refused.details().is_empty());
    assert_eq!(ways.opened.lock().unwrap().len(), 1);
    leader.stop();
    other.stop();
}

#[test]
fn a_client_is_refused_where_there_is_no_way_to_the_leader_and_where_it_asks_for_that() {
    let (other, leader, ways) = pair();
    let mut client = Client::of(&other);
    client.headers.push(("penstock-follows", "1"));
    let refused = |client: &mut Client| {
        let unary = client.purge(vec![0; 20]).unwrap_err();
        let publishing = client.publish().and_then(|mut publishing| client.hear(&mut publishing)).unwrap_err();
        for status in [&unary, &publishing] {
            assert_eq!((status.code(), status.message()), (Code::Unavailable, "led by broker 'mq-1'"));
            assert!(!status.details().is_empty());
        }
    };
    refused(&mut client);
    assert!(ways.opened.lock().unwrap().is_empty());

    client.headers.pop();
    ways.brokers.lock().unwrap().clear();
    refused(&mut client);

    assert_eq!(ways.opened.lock().unwrap().len(), 2);
    leader.stop();
    other.stop();
}

#[test]
fn a_wrong_password_is_refused_and_not_relayed() {
    let (other, leader, ways) = pair();
    let mut client = Client::of(&other);
    client.headers[0].1 = "walter";

    assert_eq!(client.purge(vec![0; 20]).unwrap_err().code(), Code::Unauthenticated);

    assert!(ways.opened.lock().unwrap().is_empty());
    leader.stop();
    other.stop();
}

#[test]
fn a_call_ends_with_a_status_when_the_way_to_the_leader_breaks_and_another_one_is_made() {
    let (other, leader, ways) = pair();
    ways.is_silent.store(true, Ordering::Release);
    let mut client = Client::of(&other);
    let (says, said) = mpsc::channel(4);
    // The headers come before it is opened.
    let mut publishing = client.open(says, said).unwrap();
    assert!(publishing.answer.metadata().get(LEADER).is_none());
    let mut open = Vec::new();
    encode_publish_open(&mut open, "/", 0, "");
    client.say(&publishing, open);
    other.until(|_| ways.silent.lock().unwrap().len() == 1);

    ways.is_silent.store(false, Ordering::Release);
    ways.silent.lock().unwrap().clear();

    let broken = client.hear(&mut publishing).unwrap_err();
    assert_eq!(broken.code(), Code::Unavailable);
    assert!(broken.message().contains("the connection to broker 'mq-1'"), "{broken}");
    let mut publishing = client.publish().unwrap();
    client.publishes(&mut publishing);
    leader.stop();
    other.stop();
}

#[test]
fn a_new_token_is_shown_to_the_leader_as_well() {
    let (other, leader, ways) = pair();
    let mut client = Client::of(&other);
    let refreshed = || (*other.refreshed.lock().unwrap(), *leader.refreshed.lock().unwrap());
    let refused = client.ask(REFRESH, Vec::new()).unwrap_err();
    assert_eq!((refused.code(), refreshed()), (Code::FailedPrecondition, (1, 0)));
    client.purge(vec![0; 20]).unwrap();

    client.ask(REFRESH, Vec::new()).unwrap();

    assert_eq!(refreshed(), (2, 1));
    assert_eq!(ways.opened.lock().unwrap().len(), 1);
    leader.stop();
    other.stop();
}

#[test]
fn a_relayed_call_ends_when_the_broker_that_relays_it_stops() {
    let (other, leader, _ways) = pair();
    let mut client = Client::of(&other);
    let mut publishing = client.publish().unwrap();
    client.publishes(&mut publishing);

    let ended = std::thread::scope(|threads| {
        // It waits for its calls.
        threads.spawn(|| other.server.stop(PATIENCE));
        client.hear(&mut publishing).unwrap_err()
    });

    assert_eq!((ended.code(), ended.message()), (Code::Unavailable, "the broker is stopping; connect again"));
    leader.stop();
    other.stop();
}

#[test]
fn a_leader_that_takes_nothing_bounds_what_its_clients_send() {
    let (other, leader, ways) = pair();
    ways.is_silent.store(true, Ordering::Release);
    let mut client = Client::of(&other);
    let (says, said) = mpsc::channel(1);
    let mut publishing = client.open(says, said).unwrap();
    let mut open = Vec::new();
    encode_publish_open(&mut open, "/", 0, "");
    client.say(&publishing, open);

    let mut sent = 0;
    // A short pause is enough for a fault to be seen.
    while sent < 64 {
        let saying = publishing.says.send(batch(1 << 20));
        let said = client.runtime.block_on(async { tokio::time::timeout(Duration::from_millis(500), saying).await });
        if said.is_err() {
            break;
        }
        sent += 1;
    }

    assert!(sent < 8, "{sent} MiB were taken");
    let used = other.server.memory_used().request_bytes;
    assert!(used < 1 << 20, "{used} bytes");
    ways.silent.lock().unwrap().clear();
    client.hear(&mut publishing).unwrap_err();
    other.until(|other| other.server.memory_used().request_bytes == 0);
    leader.stop();
    other.stop();
}
