//! A minimal broker for the client's tests: it keeps what it received, and does on each stream what the test planned.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes};
use penstock_client::{Channel, ChannelSettings};
use penstock_wire::grpc::{
    ConsumeFrame, DeliveriesEncoder, DeliveryRef, PublishFrame, encode_consume_cancelled, encode_consume_opened,
    encode_publish_response, parse_consume_request, parse_publish,
};
use penstock_wire::protobuf::put_bytes;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};

/// What a publish stream does; streams beyond the plan confirm everything.
#[derive(Debug, Clone)]
pub enum PublishPlan {
    Confirm,
    Refuse(tonic::Code),
    /// Ends with UNAVAILABLE once `received` messages are there; of those, the numbers from..=to are confirmed.
    Break {
        received: u64,
        confirmed: (u64, u64),
    },
    /// Ends with UNAVAILABLE once `received` messages are there; of those, this one is rejected, and no other has an
    /// outcome.
    RejectAndBreak {
        received: u64,
        rejected: u64,
    },
    /// Refuses the stream because this broker leads, if any.
    Elsewhere(String),
    /// Confirms the first of `received` messages, and rejects the others because another broker leads.
    Deposed {
        received: u64,
    },
    /// Even numbers are rejected, numbers divisible by 5 returned, others confirmed; one response for each.
    Mixed,
    /// Answers nothing.
    Silent,
}

/// What a consume stream does; streams beyond the plan deliver nothing.
#[derive(Debug, Clone)]
pub enum ConsumePlan {
    /// Delivers the sequences in responses of `batch`, then goes on listening.
    Deliver {
        sequences: Vec<u64>,
        batch: usize,
    },
    /// Delivers so many messages of so many bytes, in a response each.
    Large {
        count: u64,
        bytes: usize,
    },
    /// Delivers, then ends with UNAVAILABLE.
    Break {
        sequences: Vec<u64>,
    },
    Cancel(&'static str),
    /// Ends at once, without being opened.
    Refuse(tonic::Code, &'static str),
}

#[derive(Debug, Default)]
pub struct Seen {
    pub publish_plans: VecDeque<PublishPlan>,
    pub consume_plans: VecDeque<ConsumePlan>,
    pub opens: Vec<String>,
    pub producers: Vec<String>,
    pub authorizations: Vec<String>,
    pub messages: Vec<Message>,
    pub batches: Vec<usize>,
    pub settled: Vec<(u32, Vec<(u64, u64)>)>,
    pub flows: Vec<u32>,
    pub closed_streams: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub stream: usize,
    pub body: Vec<u8>,
    pub exchange: String,
    pub routing_key: String,
    pub has_properties: bool,
    pub mandatory: bool,
    pub key: Option<Vec<u8>>,
    /// 0 without a producer.
    pub sequence: u64,
}

pub struct Broker {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl Shared {
    fn note(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap());
        self.changed.notify_all();
    }
}

impl Broker {
    pub fn start(plan: impl FnOnce(&mut Seen)) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let shared = Arc::new(Shared::default());
        plan(&mut shared.seen.lock().unwrap());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let service = Messaging(Arc::clone(&shared), address);
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        runtime.spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
        Self { address, shared, _runtime: runtime }
    }

    pub fn channel(&self) -> Arc<Channel> {
        Arc::new(
            Channel::new(&ChannelSettings {
                targets: vec![self.address.to_string()],
                follows: true,
                vhost: "v".to_owned(),
                authorization: "Basic Z3Vlc3Q6Z3Vlc3Q=".to_owned(),
                connect_timeout_ms: 5_000,
                message_bytes_max: 1 << 20,
                tls: None,
            })
            .unwrap(),
        )
    }

    pub fn seen<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.shared.seen.lock().unwrap())
    }

    /// Waits until `is_done` holds; fails after ten seconds.
    pub fn wait_until(&self, mut is_done: impl FnMut(&Seen) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut seen = self.shared.seen.lock().unwrap();
        while !is_done(&seen) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the broker never saw it: {seen:?}");
            seen = self.shared.changed.wait_timeout(seen, left).unwrap().0;
        }
    }
}

#[derive(Clone)]
struct Messaging(Arc<Shared>, SocketAddr);

impl NamedService for Messaging {
    const NAME: &'static str = "penstock.v1.MessagingService";
}

impl Service<http::Request<Body>> for Messaging {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (shared, address) = (Arc::clone(&self.0), self.1);
        if let Some(value) = request.headers().get("authorization") {
            shared.note(|seen| seen.authorizations.push(value.to_str().unwrap().to_owned()));
        }
        Box::pin(async move {
            let mut grpc = Grpc::new(Raw);
            Ok(match request.uri().path().rsplit('/').next() {
                Some("Publish") => grpc.streaming(Publish(shared), request).await,
                Some("Consume") => grpc.streaming(Consume(shared), request).await,
                _ => grpc.unary(Echo(address), request).await,
            })
        })
    }
}

/// At its own address.
struct Echo(SocketAddr);

impl UnaryService<Vec<u8>> for Echo {
    type Response = Vec<u8>;
    type Future = BoxFuture<Response<Vec<u8>>, Status>;

    /// Returns the payload; an empty one is refused, "wait" is never answered, and "at HOST:PORT" only there.
    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        let address = self.0.to_string();
        Box::pin(async move {
            match request.into_inner() {
                payload if payload.is_empty() => {
                    Err(Status::with_details(tonic::Code::NotFound, "no queue 'a'", Bytes::from_static(b"\x08\x05")))
                }
                payload if payload.starts_with(b"at ") && payload[3..] != *address.as_bytes() => {
                    Err(not_leader(std::str::from_utf8(&payload[3..]).unwrap()))
                }
                payload if payload == b"wait" => std::future::pending().await,
                payload => Ok(Response::new(payload)),
            }
        })
    }
}

type Answers = mpsc::UnboundedSender<Result<Vec<u8>, Status>>;
type AnswerStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<Vec<u8>, Status>> + Send>>;

fn answer_stream() -> (Answers, Result<Response<AnswerStream>, Status>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let stream: AnswerStream = Box::pin(tokio_stream::wrappers::UnboundedReceiverStream::new(receiver));
    (sender, Ok(Response::new(stream)))
}

struct Publish(Arc<Shared>);

impl StreamingService<Vec<u8>> for Publish {
    type Response = Vec<u8>;
    type ResponseStream = AnswerStream;
    type Future = BoxFuture<Response<AnswerStream>, Status>;

    fn call(&mut self, request: Request<Streaming<Vec<u8>>>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let mut requests = request.into_inner();
            let mut plan = PublishPlan::Confirm;
            if let Some(open) = requests.message().await? {
                let PublishFrame::Open { vhost, producer, .. } = parse_publish(&open).unwrap() else {
                    panic!("no open")
                };
                shared.note(|seen| {
                    seen.opens.push(vhost.to_owned());
                    seen.producers.push(producer.to_owned());
                    plan = seen.publish_plans.pop_front().unwrap_or(PublishPlan::Confirm);
                });
            }
            if let PublishPlan::Elsewhere(leader) = &plan {
                return Err(not_leader(leader));
            }
            if let PublishPlan::Refuse(code) = plan {
                return Err(Status::new(code, "refused by plan"));
            }
            let (answers, stream) = answer_stream();
            tokio::spawn(take_messages(shared, requests, plan, answers));
            stream
        })
    }
}

async fn take_messages(shared: Arc<Shared>, mut requests: Streaming<Vec<u8>>, plan: PublishPlan, answers: Answers) {
    let mut received = 0;
    while let Ok(Some(request)) = requests.message().await {
        let PublishFrame::Batch(batch) = parse_publish(&request).unwrap() else { panic!("no batch") };
        let first = received + 1;
        received += batch.message_count as u64;
        shared.note(|seen| {
            let stream = seen.opens.len();
            seen.batches.push(batch.message_count);
            seen.messages.extend(batch.messages().zip(0..).map(|(message, at)| {
                let message = message.unwrap();
                Message {
                    stream,
                    body: message.body.to_vec(),
                    exchange: message.exchange.to_text(),
                    routing_key: message.routing_key.to_text(),
                    has_properties: message.properties.is_some(),
                    mandatory: batch.mandatory,
                    key: message.key.map(<[u8]>::to_vec),
                    sequence: if batch.producer_sequence > 0 { batch.producer_sequence + at } else { 0 },
                }
            }));
        });
        if answer(&plan, first, received, &answers).is_none() {
            return;
        }
    }
    shared.note(|seen| seen.closed_streams += 1);
}

fn answer(plan: &PublishPlan, first: u64, received: u64, answers: &Answers) -> Option<()> {
    let mut response = Vec::new();
    match *plan {
        PublishPlan::Break { received: limit, confirmed } => {
            if received < limit {
                return Some(());
            }
            encode_publish_response(&mut response, &[confirmed], &[], &[]);
            answers.send(Ok(response)).ok()?;
            answers.send(Err(Status::unavailable("broken by plan"))).ok()?;
            None
        }
        PublishPlan::RejectAndBreak { received: limit, rejected } => {
            if received < limit {
                return Some(());
            }
            encode_publish_response(&mut response, &[], &[], &[(rejected, rejected, 5, "no exchange 'x'")]);
            answers.send(Ok(response)).ok()?;
            answers.send(Err(Status::unavailable("broken by plan"))).ok()?;
            None
        }
        PublishPlan::Deposed { received: limit } => {
            if received < limit {
                return Some(());
            }
            let rejected =
                [(2, received - 1, 14, "another broker leads"), (received, received, 9, "sequence 2 was refused")];
            encode_publish_response(&mut response, &[(1, 1)], &[], &rejected);
            answers.send(Ok(response)).ok()
        }
        PublishPlan::Mixed => {
            for number in (first..=received).rev() {
                let mut response = Vec::new();
                match number {
                    _ if number % 2 == 0 => {
                        encode_publish_response(&mut response, &[], &[], &[(number, number, 5, "no exchange 'x'")]);
                    }
                    _ if number % 5 == 0 => encode_publish_response(&mut response, &[], &[(number, "no queue")], &[]),
                    _ => encode_publish_response(&mut response, &[(number, number)], &[], &[]),
                }
                answers.send(Ok(response)).ok()?;
            }
            Some(())
        }
        PublishPlan::Silent => Some(()),
        _ => {
            encode_publish_response(&mut response, &[(first, received)], &[], &[]);
            answers.send(Ok(response)).ok()
        }
    }
}

/// The refusal of a broker that does not lead the virtual host "v"; it names the leader.
pub fn not_leader(leader: &str) -> Status {
    let mut info = Vec::new();
    put_bytes(&mut info, 1, b"NOT_LEADER");
    for (key, value) in [("kind", "vhost"), ("name", "v"), ("grpc", leader)] {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, key.as_bytes());
        put_bytes(&mut entry, 2, value.as_bytes());
        put_bytes(&mut info, 3, &entry);
    }
    let (mut any, mut details) = (Vec::new(), Vec::new());
    put_bytes(&mut any, 1, b"type.googleapis.com/google.rpc.ErrorInfo");
    put_bytes(&mut any, 2, &info);
    put_bytes(&mut details, 3, &any);
    Status::with_details(tonic::Code::Unavailable, "led by another broker", details.into())
}

struct Consume(Arc<Shared>);

impl StreamingService<Vec<u8>> for Consume {
    type Response = Vec<u8>;
    type ResponseStream = AnswerStream;
    type Future = BoxFuture<Response<AnswerStream>, Status>;

    fn call(&mut self, request: Request<Streaming<Vec<u8>>>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let mut requests = request.into_inner();
            let mut plan = None;
            if let Some(open) = requests.message().await? {
                let ConsumeFrame::Open(open) = parse_consume_request(&open).unwrap() else { panic!("no open") };
                shared.note(|seen| {
                    seen.opens.push(format!("{} {} {}", open.vhost, open.queue, open.prefetch));
                    plan = seen.consume_plans.pop_front();
                });
            }
            if let Some(ConsumePlan::Refuse(code, reason)) = plan {
                return Err(Status::with_details(code, "refused by plan", Bytes::from_static(reason.as_bytes())));
            }
            let (answers, stream) = answer_stream();
            let mut opened = Vec::new();
            encode_consume_opened(&mut opened, "made-up");
            let _ = answers.send(Ok(opened));
            perform(plan, &answers);
            tokio::spawn(take_settlements(shared, requests, answers));
            stream
        })
    }
}

fn perform(plan: Option<ConsumePlan>, answers: &Answers) {
    let deliver = |sequences: &[u64], batch: usize| {
        for sequences in sequences.chunks(batch) {
            let _ = answers.send(Ok(deliveries(sequences)));
        }
    };
    match plan {
        None | Some(ConsumePlan::Refuse(..)) => {}
        Some(ConsumePlan::Deliver { sequences, batch }) => deliver(&sequences, batch),
        Some(ConsumePlan::Large { count, bytes }) => {
            for sequence in 1..=count {
                let _ = answers.send(Ok(encoded(&[(sequence, vec![b'x'; bytes])])));
            }
        }
        Some(ConsumePlan::Break { sequences }) => {
            deliver(&sequences, 1);
            let _ = answers.send(Err(Status::unavailable("broken by plan")));
        }
        Some(ConsumePlan::Cancel(reason)) => {
            let mut response = Vec::new();
            encode_consume_cancelled(&mut response, reason);
            let _ = answers.send(Ok(response));
        }
    }
}

/// The body is the sequence in decimal; even ones have properties.
fn deliveries(sequences: &[u64]) -> Vec<u8> {
    let messages: Vec<_> = sequences.iter().map(|sequence| (*sequence, sequence.to_string().into_bytes())).collect();
    encoded(&messages)
}

fn encoded(messages: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut response = Vec::new();
    let mut encoder = DeliveriesEncoder::begin(&mut response);
    for (sequence, body) in messages {
        let sequence = *sequence;
        let properties: &[u8] = if sequence % 2 == 0 { b"\x08\x00\x07" } else { b"" };
        encoder
            .push(&DeliveryRef {
                sequence,
                body,
                exchange: b"e",
                routing_key: b"k.k",
                properties_amqp: properties,
                redelivered: sequence % 3 == 0,
                delivery_count: (sequence % 3 == 0).into(),
                stored_at_ms: 1_700_000_000_000,
                key: None,
            })
            .unwrap();
    }
    encoder.finish();
    response
}

async fn take_settlements(shared: Arc<Shared>, mut requests: Streaming<Vec<u8>>, answers: Answers) {
    while let Ok(Some(request)) = requests.message().await {
        match parse_consume_request(&request).unwrap() {
            ConsumeFrame::Settlement(view) => {
                shared.note(|seen| seen.settled.push((view.outcome, view.ranges().collect())));
            }
            ConsumeFrame::Flow { prefetch } => shared.note(|seen| seen.flows.push(prefetch)),
            ConsumeFrame::Open(_) => panic!("a second open"),
        }
    }
    drop(answers);
    shared.note(|seen| seen.closed_streams += 1);
}

#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
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
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining()).to_vec()))
    }
}
