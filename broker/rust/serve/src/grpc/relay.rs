//! Calls that another broker of the cluster has to answer, because it leads their virtual host: they are relayed to it as they came.
//!
//! A service answers that its broker does not lead before it has answered anything else. Then the call goes to the leader that the refusal
//! names: what was read of the request, then the rest, and the answer as it comes back. The leader authenticates and authorizes it by
//! itself. Where no relay can be made the client gets the refusal. A call that was relayed is not relayed again, and one of a client that
//! [follows](FOLLOWS) refusals is not relayed at all.
//!
//! The answer names the leader in the header [`LEADER`]. So the headers of an answer wait for the decision, unless the client waits for
//! them before it sends the message that opens the call.

mod forwarded;
mod late;
pub(super) mod leaders;
mod recorded;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use http::header::HeaderValue;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, Method, Uri};
use http_body::{Body as _, Frame};
use penstock_wire::grpc::refusal::parse_leader_hint;
use tokio::time::{sleep, timeout};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower_service::Service;

use crate::grpc::relay::forwarded::{Begun, Cut, Downwards, STATUS, Upwards, broken, trailers};
use crate::grpc::relay::late::{Late, Next, next, without_headers};
use crate::grpc::relay::leaders::{Leaders, Slot};
use crate::grpc::relay::recorded::{Recording, record};
use crate::grpc::responses::Opened;
use crate::host::broker::Broker;
use crate::host::peer::Peer;

/// The header of a client that goes to the leader by itself, and wants refusals.
pub(crate) const FOLLOWS: &str = "penstock-follows";
/// The header of an answer that names the leader's address for clients.
pub(crate) const LEADER: &str = "penstock-leader";

/// The call that shows a new token on a connection, and its request, which has no fields.
const REFRESH: &str = "/penstock.v1.AdminService/RefreshToken";
const FAILED_PRECONDITION: &[u8] = b"9";
const EMPTY_MESSAGE: &[u8] = &[0; 5];
const REFRESHED_WITHIN: Duration = Duration::from_secs(5);

/// A client that has not opened a call within this time may wait for the headers of the answer.
const OPENING: Duration = Duration::from_millis(50);

/// The leader that a refusal names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Leader {
    name: String,
    address: String,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Relaying<S> {
    service: S,
    broker: Broker,
    leaders: Leaders,
    request_bytes_max: usize,
}

impl<S> Relaying<S> {
    /// `request_bytes_max` is the largest message that the service takes.
    pub fn new(service: S, broker: &Broker, leaders: &Leaders, request_bytes_max: usize) -> Relaying<S> {
        Relaying { service, broker: broker.clone(), leaders: leaders.clone(), request_bytes_max }
    }
}

impl<S: NamedService> NamedService for Relaying<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Relaying<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let peer = request.extensions().get::<Peer>().filter(|peer| !peer.is_relayed).cloned();
        let Some(peer) = peer.filter(|_| self.broker.relays().is_some() && !request.headers().contains_key(FOLLOWS))
        else {
            return self.service.call(request).boxed();
        };
        let (parts, body) = request.into_parts();
        let (method, uri, headers) = (parts.method.clone(), parts.uri.clone(), parts.headers.clone());
        let (recorded, recording) = record(body, self.request_bytes_max.saturating_add(FRAMES_BYTES_MAX));
        let call = RelayedCall {
            broker: self.broker.clone(),
            leaders: self.leaders.clone(),
            peer,
            head: (method, uri, headers),
            recording,
        };
        let answer = self.service.call(http::Request::from_parts(parts, Body::new(recorded)));
        Box::pin(async move { Ok(call.decide(answer.await?).await) })
    }
}

/// What may come with a message that is whole.
const FRAMES_BYTES_MAX: usize = 128 << 10;

/// A call until it is known who answers it.
struct RelayedCall {
    broker: Broker,
    leaders: Leaders,
    peer: Peer,
    head: (Method, Uri, HeaderMap),
    recording: Recording,
}

/// How a call stands.
enum Standing {
    /// This broker answers, with this frame first.
    Answers(Next),
    /// It does not lead, and this frame says so.
    Refuses(Leader, Frame<Bytes>),
    /// It has opened the call, and sends nothing yet.
    Opened,
    /// The client has not opened the call.
    Waits,
}

impl RelayedCall {
    async fn decide(self, answer: http::Response<Body>) -> http::Response<Body> {
        if let Some(leader) = leader_in(answer.headers()) {
            return self.relay(&leader).await.unwrap_or(answer);
        }
        let (mut parts, mut body) = answer.into_parts();
        let Some(opened) = parts.extensions.remove::<Opened>() else {
            self.recording.settle();
            if self.head.1.path() == REFRESH {
                return self.refresh(http::Response::from_parts(parts, body)).await;
            }
            return http::Response::from_parts(parts, body);
        };
        match self.standing(&mut body, &opened, true).await {
            Standing::Refuses(leader, refusal) => {
                let refused = Body::new(Begun { first: Some(refusal), body });
                self.relay(&leader).await.unwrap_or_else(|| http::Response::from_parts(parts, refused))
            }
            Standing::Answers(first) => http::Response::from_parts(parts, begun(first, body)),
            Standing::Opened => http::Response::from_parts(parts, body),
            Standing::Waits => http::Response::from_parts(parts, Body::new(Late::new(self.answer_late(body, opened)))),
        }
    }

    /// How the call stands, once that is known or, `for_headers`, its client may wait for them.
    async fn standing(&self, body: &mut Body, opened: &Opened, for_headers: bool) -> Standing {
        let mut patience = pin!(sleep(OPENING));
        let standing = poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                return Poll::Ready(standing_of(frame));
            }
            if opened.is_open() {
                return Poll::Ready(Standing::Opened);
            }
            if for_headers && patience.as_mut().poll(cx).is_ready() && self.recording.waits() {
                return Poll::Ready(Standing::Waits);
            }
            Poll::Pending
        })
        .await;
        if matches!(standing, Standing::Answers(_) | Standing::Opened) {
            self.recording.settle();
        }
        standing
    }

    /// The first frame of an answer whose headers went before its call was opened, and the rest.
    async fn answer_late(self, mut body: Body, opened: Opened) -> (Next, Option<Body>) {
        match self.standing(&mut body, &opened, false).await {
            Standing::Answers(first) => (first, Some(body)),
            Standing::Refuses(leader, refusal) => match self.relay(&leader).await {
                Some(answer) => without_headers(answer).await,
                None => (Some(Ok(refusal)), None),
            },
            Standing::Opened | Standing::Waits => (next(&mut body).await, Some(body)),
        }
    }

    /// Shows the client's new token on its connections to leaders, too, whose streams else end with the old one. A broker without streams
    /// of the client has refused it: then the answer is that of a leader which has some.
    async fn refresh(&self, answer: http::Response<Body>) -> http::Response<Body> {
        let refused = answer.headers().get(STATUS).map(HeaderValue::as_bytes);
        if refused.is_some_and(|status| status != FAILED_PRECONDITION) {
            return answer;
        }
        let leaders = self.leaders.all_of(&self.peer);
        let asking = leaders.into_iter().map(|(leader, slot)| timeout(REFRESHED_WITHIN, self.refresh_at(leader, slot)));
        let mut answers = join_all(asking).await.into_iter().filter_map(|answer| answer.ok()?);
        if refused.is_some() { answers.next().unwrap_or(answer) } else { answer }
    }

    /// A leader's answer to a new token; `None` when it does not take it.
    async fn refresh_at(&self, leader: String, slot: Slot) -> Option<http::Response<Body>> {
        let RelayedCall { peer, head: (method, uri, headers), .. } = self;
        let mut connection = slot.lock().await.clone()?;
        let message = Some(Frame::data(Bytes::from_static(EMPTY_MESSAGE)));
        let mut request = http::Request::new(Body::new(Begun { first: message, body: Body::empty() }));
        *request.method_mut() = method.clone();
        *request.uri_mut() = whole(uri.clone());
        *request.headers_mut() = headers.clone();
        let answer = connection.send_request(request).await.ok()?;
        let is_taken = !answer.headers().contains_key(STATUS);
        let account = &peer.state.account;
        is_taken.then(|| answer.map(|body| Body::new(Downwards::new(body, false, Cut::default(), &leader, account))))
    }

    /// The leader's answer; `None` where there is no way to it.
    async fn relay(self, leader: &Leader) -> Option<http::Response<Body>> {
        let relays = self.broker.relays()?;
        // Who leads is said to clients alone that have logged in.
        self.peer.state.has_logged_in();
        let RelayedCall { leaders, peer, recording, head: (method, uri, headers), .. } = &self;
        let mut connection = leaders.connection(relays, peer, &leader.name).await.ok()?;
        let (account, is_cut) = (&peer.state.account, Cut::default());
        let stopping = self.broker.stopping.clone();
        let body = Upwards::new(recording.replay()?, account, stopping, &is_cut);
        let mut request = http::Request::new(Body::new(body));
        *request.method_mut() = method.clone();
        *request.uri_mut() = whole(uri.clone());
        *request.headers_mut() = headers.clone();
        let mut answer = match connection.send_request(request).await {
            Ok(answer) => {
                let has_status = answer.headers().contains_key(STATUS);
                answer.map(|body| Body::new(Downwards::new(body, has_status, is_cut, &leader.name, account)))
            }
            Err(error) => broken(&leader.name, &error).into_http(),
        };
        // Where that one does not lead any more, its refusal names the next one.
        if let Ok(address) = HeaderValue::from_str(&leader.address)
            && leader_in(answer.headers()).is_none()
        {
            answer.headers_mut().insert(LEADER, address);
        }
        Some(answer)
    }
}

/// Clients of HTTP/2 send whole addresses, of which only the path matters to the leader.
fn whole(uri: Uri) -> Uri {
    let mut parts = uri.into_parts();
    parts.scheme.get_or_insert(Scheme::HTTP);
    parts.authority.get_or_insert_with(|| Authority::from_static("leader"));
    // With all three it does not fail.
    Uri::from_parts(parts).unwrap_or_default()
}

fn standing_of(frame: Next) -> Standing {
    match frame {
        Some(Ok(frame)) => match frame.trailers_ref().and_then(leader_in) {
            Some(leader) => Standing::Refuses(leader, frame),
            None => Standing::Answers(Some(Ok(frame))),
        },
        other => Standing::Answers(other),
    }
}

fn begun(first: Next, body: Body) -> Body {
    match first {
        Some(Ok(first)) => Body::new(Begun { first: Some(first), body }),
        // Nothing comes behind it.
        Some(Err(failed)) => Body::new(Begun { first: trailers(&failed).ok(), body: Body::empty() }),
        None => Body::empty(),
    }
}

/// The leader that a status names, when it says that the broker does not lead.
fn leader_in(headers: &HeaderMap) -> Option<Leader> {
    if headers.get(STATUS)?.as_bytes() != b"14" {
        return None;
    }
    let status = Status::from_header_map(headers).filter(|status| status.code() == Code::Unavailable)?;
    let hint = parse_leader_hint(status.details()).ok()??;
    (!hint.leader.is_empty()).then(|| Leader { name: hint.leader.to_owned(), address: hint.target.to_owned() })
}
