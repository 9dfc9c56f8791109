//! `penstock.v1.MessagingService`: opens streams after Python admitted them, and answers pulls.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use penstock_engine::Level;
use penstock_wire::Name;
use penstock_wire::grpc::consume::{ConsumeFrame, parse_consume_request};
use penstock_wire::grpc::publish::{PublishFrame, parse_publish};
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status, Streaming};

use crate::grpc::admin::ask;
use crate::grpc::codec::BytesCodec;
use crate::grpc::consume::ConsumeStream;
use crate::grpc::deliveries::Responses;
use crate::grpc::input::Input;
use crate::grpc::peer::{caller_of, caller_of_headers};
use crate::grpc::publish::PublishStream;
use crate::grpc::pull::PullContext;
use crate::grpc::responses::respond;
use crate::grpc::service::Answers;
use crate::grpc::status;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::consuming::{ConsumeOptions, Consuming};
use crate::host::memory::Share;
use crate::host::peer::Peer;
use crate::host::publishing::Publishing;
use crate::host::pulls::Pulls;

/// Messages a consumer may hold when it does not say.
const PREFETCH_DEFAULT: u32 = 1000;

/// What a request may hold beside a message's body: its properties, key and names.
pub(crate) const ENVELOPE_BYTES_MAX: usize = (1 << 20) + (128 << 10);

#[derive(Clone)]
pub(crate) struct Messaging {
    pub broker: Broker,
}

impl Answers for Messaging {
    const NAME: &'static str = "penstock.v1.MessagingService";

    fn broker(&self) -> &Broker {
        &self.broker
    }

    async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        let bytes_max = self.broker.message_bytes_max.saturating_add(ENVELOPE_BYTES_MAX);
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        match method {
            // Python decides these: they are not on the way of messages.
            "ReserveLease" | "AckLeases" | "ReleaseLeases" | "ListLeases" => {
                ask(self.broker.calls, bytes_max, request).await
            }
            "Publish" => self.publish(request, bytes_max).unwrap_or_else(Status::into_http),
            "Consume" => self.consume(request, bytes_max).unwrap_or_else(Status::into_http),
            "Get" => self.get(request, bytes_max).unwrap_or_else(Status::into_http),
            "Peek" => self.peek(request, bytes_max).unwrap_or_else(Status::into_http),
            "Settle" => {
                let mut grpc = Grpc::new(BytesCodec).max_decoding_message_size(bytes_max);
                grpc.unary(Settling { messaging: self }, request).await
            }
            other => Status::unimplemented(format!("MessagingService has no method {other}")).into_http(),
        }
    }
}

struct Settling {
    messaging: Messaging,
}

impl UnaryService<Bytes> for Settling {
    type Response = Vec<u8>;
    type Future = BoxFuture<'static, Result<Response<Vec<u8>>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let messaging = self.messaging.clone();
        Box::pin(async move {
            let pulls =
                request.extensions().get::<Peer>().map(|peer| Arc::clone(&peer.pulls)).ok_or_else(no_connection)?;
            let context = messaging.pulling(caller_of(&request)?, pulls);
            context.settle(request.into_inner()).await.map(Response::new)
        })
    }
}

impl Messaging {
    fn publish(self, request: http::Request<Body>, bytes_max: usize) -> Result<http::Response<Body>, Status> {
        let (caller, input) = receive(request, bytes_max)?;
        let account = Arc::clone(&caller.state.account);
        Ok(respond(&account, self.open_publish(caller, input)))
    }

    fn consume(self, request: http::Request<Body>, bytes_max: usize) -> Result<http::Response<Body>, Status> {
        let (caller, input) = receive(request, bytes_max)?;
        let account = Arc::clone(&caller.state.account);
        Ok(respond(&account, self.open_consume(caller, input)))
    }

    /// The answer is a body, as a stream's: it knows when the transport took it.
    fn get(self, request: http::Request<Body>, bytes_max: usize) -> Result<http::Response<Body>, Status> {
        let pulls = request.extensions().get::<Peer>().map(|peer| Arc::clone(&peer.pulls)).ok_or_else(no_connection)?;
        let (caller, input) = receive(request, bytes_max)?;
        let account = Arc::clone(&caller.state.account);
        Ok(respond(&account, self.pulling(caller, pulls).get(input)))
    }

    fn peek(self, request: http::Request<Body>, bytes_max: usize) -> Result<http::Response<Body>, Status> {
        let pulls = request.extensions().get::<Peer>().map(|peer| Arc::clone(&peer.pulls)).ok_or_else(no_connection)?;
        let (caller, input) = receive(request, bytes_max)?;
        let account = Arc::clone(&caller.state.account);
        Ok(respond(&account, self.pulling(caller, pulls).peek(input)))
    }

    fn pulling(self, caller: Caller, pulls: Arc<Pulls>) -> PullContext {
        PullContext { broker: self.broker, caller, pulls }
    }

    async fn open_publish(self, caller: Caller, mut input: Input) -> Result<PublishStream, Status> {
        let first = input.message().await?.ok_or_else(status::not_opened)?;
        let parsed = parse_publish(&first).map_err(|error| status::of_wire(&error))?;
        let PublishFrame::Open { vhost, level, producer } = parsed else { return Err(status::not_opened()) };
        let (vhost, producer) = (name(VHOST, vhost)?, name("the name of a producer", producer)?);
        let wanted = level_of(level)?;
        let publishing = Publishing::open(&self.broker, caller, vhost, wanted, producer).await?;
        if level == REPLICATED {
            publishing.require_replicas()?;
        }
        Ok(PublishStream::new(input, self.broker.stopping, publishing))
    }

    async fn open_consume(self, caller: Caller, mut input: Input) -> Result<ConsumeStream, Status> {
        let first = input.message().await?.ok_or_else(status::not_opened)?;
        let ConsumeFrame::Open(open) = parse_consume_request(&first).map_err(|error| status::of_wire(&error))? else {
            return Err(status::not_opened());
        };
        let options = ConsumeOptions {
            vhost: name(VHOST, open.vhost)?,
            queue: name("the name of a queue", open.queue)?,
            consumer_tag: name("the tag of a consumer", open.consumer_tag)?,
            prefetch: if open.prefetch == 0 { PREFETCH_DEFAULT } else { open.prefetch },
            auto_ack: open.auto_ack,
            exclusive: open.exclusive,
            priority: open.priority,
            ack_timeout_ms: open.ack_timeout_ms,
        };
        let responses = Responses::new(&caller.state.account);
        let consuming = Consuming::open(&self.broker, caller, options).await?;
        Ok(ConsumeStream::new(input, self.broker.stopping, consuming, responses))
    }
}

/// Who calls, and the messages of the request.
pub(crate) fn receive(request: http::Request<Body>, bytes_max: usize) -> Result<(Caller, Input), Status> {
    let (parts, body) = request.into_parts();
    let peer = parts.extensions.get::<Peer>().ok_or_else(no_connection)?.clone();
    let caller = caller_of_headers(&peer, &parts.headers);
    let share = parts.extensions.get::<Arc<Share>>().cloned();
    Ok((caller, Input::new(Streaming::new_request(BytesCodec, body, None, Some(bytes_max)), share)))
}

const VHOST: &str = "the name of a vhost";

fn name<'a>(what: &'static str, text: &'a str) -> Result<Name<'a>, Status> {
    Name::new(what, text.as_bytes()).map_err(|error| status::of_wire(&error))
}

fn no_connection() -> Status {
    Status::internal("a request without a connection")
}

/// The disk of each replica in sync: with replicas nothing less counts as the disk.
const REPLICATED: u32 = 3;

/// Levels as `penstock.v1.Durability` numbers them.
fn level_of(number: u32) -> Result<Option<Level>, Status> {
    match number {
        0 => Ok(None),
        1 => Ok(Some(Level::Os)),
        2 | REPLICATED => Ok(Some(Level::Disk)),
        other => {
            let known = "use 0 (default), 1 (os), 2 (disk) or 3 (replicated)";
            Err(Status::invalid_argument(format!("unknown level {other}; {known}")))
        }
    }
}
