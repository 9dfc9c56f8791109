//! Arrow Flight on the gRPC port: streams as tables for whoever speaks Arrow, and tables published.
//!
//! Every call is answered by the body that answers the broker's own streams, so that batches go to the socket without a copy.
//! What a caller may do Python says, as for every other call.

mod actions;
pub(crate) mod asks;
mod batches;
mod describe;
pub(crate) mod description;
mod ending;
mod get;
mod info;
mod lease;
mod live;
mod messages;
mod numbering;
pub(crate) mod protocol;
mod publishing;
mod put;
mod source;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use crate::grpc::gate::guard_as;
use crate::grpc::messaging::receive;
use crate::grpc::responses::{FramedMessage, respond};
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use info::{Asked, check_caller};
use messages::Answers;

/// A ticket or a descriptor is small.
const ASK_BYTES_MAX: usize = 64 << 10;

/// An action may name many streams, each with its end.
const ACTION_BYTES_MAX: usize = 1 << 20;

/// The largest batch of a DoPut. Clients cut tables into batches of a chosen number of rows.
pub(crate) const PUT_BYTES_MAX: usize = 64 << 20;

/// See the module.
#[derive(Clone)]
pub(crate) struct Flight {
    broker: Broker,
}

impl Flight {
    pub fn new(broker: Broker) -> Flight {
        Flight { broker }
    }
}

impl NamedService for Flight {
    const NAME: &'static str = "arrow.flight.protocol.FlightService";
}

impl Service<http::Request<Body>> for Flight {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let broker = self.broker.clone();
        Box::pin(async move { Ok(answer(broker, request).await.unwrap_or_else(Status::into_http)) })
    }
}

async fn answer(broker: Broker, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let bytes_max = match method.as_str() {
        "DoPut" => PUT_BYTES_MAX,
        "DoAction" => ACTION_BYTES_MAX,
        _ => ASK_BYTES_MAX,
    };
    let request = guard_as(request, &broker.calls, broker.first_request, with_token);
    let (caller, input) = receive(request, bytes_max)?;
    let caller = with_token(caller);
    let account = Arc::clone(&caller.state.account);
    Ok(match method.as_str() {
        "DoGet" => respond(&account, get::open(broker, caller, input)),
        "DoPut" => respond(&account, put::open(broker, caller, input)),
        "GetFlightInfo" => respond(&account, info::answer(broker, caller, input, Asked::Info)),
        "GetSchema" => respond(&account, info::answer(broker, caller, input, Asked::Schema)),
        "ListFlights" => respond(&account, info::answer(broker, caller, input, Asked::List)),
        "DoAction" => respond(&account, actions::perform(broker, caller, input)),
        "ListActions" => respond(&account, async { Ok(actions::list()) }),
        "Handshake" => shake_hands(broker, caller).await?,
        other => {
            let text = format!("{other} is not supported; read with DoGet and publish with DoPut");
            return Err(Status::unimplemented(text));
        }
    })
}

/// Checks the credentials and gives them back as the token of later calls.
async fn shake_hands(broker: Broker, caller: Caller) -> Result<http::Response<Body>, Status> {
    check_caller(&broker.calls, &caller).await?;
    let credentials = caller.authorization.split_once(' ').map_or("", |(_, credentials)| credentials);
    let token = HeaderValue::try_from(format!("Bearer {credentials}"));
    let token = token.map_err(|_| Status::unauthenticated("the credentials are not a valid header"))?;
    // An empty HandshakeResponse.
    let mut response = respond(&caller.state.account, async { Ok(Answers::of([FramedMessage::of(0, |_| ())])) });
    response.headers_mut().insert(AUTHORIZATION, token);
    Ok(response)
}

/// A handshake's token is the credentials themselves, so that the broker remembers nobody. An issuer's token has dots, which
/// no base64 has.
fn with_token(mut caller: Caller) -> Caller {
    if let Some(token) = caller.authorization.strip_prefix("Bearer ").filter(|token| !token.contains('.')) {
        caller.authorization = format!("Basic {token}");
    }
    caller
}
