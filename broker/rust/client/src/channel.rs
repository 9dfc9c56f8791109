//! One HTTP/2 connection to a broker, made at the first use and again after it broke. All holders of a channel share
//! it; the broker sees one client connection.
//!
//! A broker may have several addresses, and another broker of its cluster may lead. Invariant: a request is made again only
//! when an attempt to connect failed, the broker refused it because it does not lead, or it only reads and its connection broke, so
//! none is carried out twice.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::Stream;
use http::uri::PathAndQuery;
use penstock_wire::grpc::parse_leader_hint;
use serde::Deserialize;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Request, Status, Streaming};

use crate::back_off::BackOff;
use crate::codec::BytesCodec;
use crate::error::RpcError;
use crate::following::{End, Following, is_target};
use crate::lock::lock;
use crate::runtime;

/// Lets a megabyte and more of one stream be in transit at once. It also limits the memory of a stream that the
/// application does not read, beside the messages that its consumer holds.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
/// A response of deliveries fits into one frame, which is one system call of the broker.
const FRAME_BYTES_MAX: u32 = 64 << 10;
/// The maximum of HTTP/2, which a thousand full streams do not use up: unread streams must not block the others
/// (confirms, answers).
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
const ALONE: Pings = Pings { interval: Duration::from_secs(20), timeout: Duration::from_secs(10) };
/// Another broker leads about three seconds after a leader has gone silent.
const IN_CLUSTER: Pings = Pings { interval: Duration::from_secs(2), timeout: Duration::from_secs(2) };
/// Size of a response beside one message of the largest size.
const FRAME_BYTES_EXTRA: usize = 4 << 20;
/// Has a broker that does not lead refuse a call and name the leader; it relays the call without.
const FOLLOWS: &str = "penstock-follows";
/// The address of the leader to which a broker has relayed a call.
const LEADER: &str = "penstock-leader";
/// Connections to leaders that were named beside the given targets.
const NAMED_MAX: usize = 4;

/// `targets` are the addresses of one broker or of brokers of one cluster, as host:port; `authorization` is the value of
/// that header.
#[derive(Debug, Clone)]
pub struct ChannelSettings {
    pub targets: Vec<String>,
    /// Whether to connect to the leader of the virtual host where a broker names it.
    pub follows: bool,
    pub vhost: String,
    pub authorization: String,
    pub connect_timeout_ms: u64,
    pub message_bytes_max: usize,
    /// Plaintext if absent.
    pub tls: Option<ChannelTls>,
}

/// TLS settings, all PEM; empty ones are left out.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ChannelTls {
    /// CAs to trust; the machine's own when empty.
    pub authorities: String,
    /// The client's certificate chain and key.
    pub certificate: String,
    pub key: String,
    /// The name in the broker's certificate, when it is not the target's host.
    pub server_name: String,
}

impl ChannelTls {
    fn config(&self) -> ClientTlsConfig {
        let mut config = match self.authorities.as_str() {
            "" => ClientTlsConfig::new().with_native_roots(),
            authorities => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authorities)),
        };
        if !self.certificate.is_empty() {
            config = config.identity(Identity::from_pem(&self.certificate, &self.key));
        }
        if !self.server_name.is_empty() {
            config = config.domain_name(self.server_name.as_str());
        }
        config
    }
}

/// Where calls go next, for the calls that have it in common.
pub(crate) type Route = Arc<Mutex<Following>>;

#[derive(Debug)]
pub struct Channel {
    /// `None` once it is closed.
    connections: Mutex<Option<Connections>>,
    route: Route,
    /// The virtual host whose leader the channel stays with.
    vhost: String,
    authorization: MetadataValue<Ascii>,
    message_bytes_max: usize,
}

/// Connections by target. Each is made at its first use.
struct Connections {
    settings: ChannelSettings,
    given: HashMap<String, tonic::transport::Channel>,
    /// To leaders that were named, the one that was not used for the longest first.
    named: VecDeque<(String, tonic::transport::Channel)>,
}

impl std::fmt::Debug for Connections {
    /// Without the settings, which have credentials.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named: Vec<&String> = self.named.iter().map(|(target, _)| target).collect();
        formatter.debug_struct("Connections").field("named", &named).finish_non_exhaustive()
    }
}

impl Connections {
    fn new(settings: &ChannelSettings) -> Result<Self, RpcError> {
        let connect = |target: &String| Ok((target.clone(), endpoint(target, settings)?.connect_lazy()));
        let given = settings.targets.iter().map(connect).collect::<Result<_, RpcError>>()?;
        Ok(Self { settings: settings.clone(), given, named: VecDeque::new() })
    }

    /// A leader that was named is connected to as the given targets are: as safely.
    fn at(&mut self, target: &str) -> Result<tonic::transport::Channel, RpcError> {
        if let Some(connection) = self.given.get(target) {
            return Ok(connection.clone());
        }
        let known = self.named.iter().position(|(named, _)| named == target);
        let connection = match known.and_then(|at| self.named.remove(at)) {
            Some((_, connection)) => connection,
            None => {
                let runtime = runtime::handle()?;
                let _entered = runtime.enter();
                endpoint(target, &self.settings)?.connect_lazy()
            }
        };
        self.named.push_back((target.to_owned(), connection.clone()));
        if self.named.len() > NAMED_MAX {
            self.named.pop_front();
        }
        Ok(connection)
    }
}

impl Channel {
    /// Does not connect yet.
    pub fn new(settings: &ChannelSettings) -> Result<Self, RpcError> {
        if settings.targets.is_empty() {
            return Err(invalid("an empty list of targets"));
        }
        let mut authorization: MetadataValue<Ascii> =
            settings.authorization.parse().map_err(|_| invalid("the authorization given"))?;
        authorization.set_sensitive(true);
        let runtime = runtime::handle()?;
        let _entered = runtime.enter();
        Ok(Self {
            connections: Mutex::new(Some(Connections::new(settings)?)),
            route: Arc::new(Mutex::new(Following::new(settings.targets.clone(), settings.follows))),
            vhost: settings.vhost.clone(),
            authorization,
            message_bytes_max: settings.message_bytes_max,
        })
    }

    /// A unary call that blocks until it is answered or `timeout_ms` have passed. Where a broker refuses it because it does
    /// not lead, it is made again at the leader. One that is repeatable is made again also where its connection broke.
    pub fn call(
        &self,
        method: &str,
        payload: Vec<u8>,
        timeout_ms: u64,
        is_repeatable: bool,
    ) -> Result<Vec<u8>, RpcError> {
        let path = path(method)?;
        let timeout = Duration::from_millis(timeout_ms);
        let call = self.unary(path, payload.into(), timeout, is_repeatable);
        let started = Instant::now();
        let answer = runtime::handle()?.block_on(async { tokio::time::timeout(timeout, call).await });
        match answer {
            Ok(Ok(answer)) => Ok(answer.into()),
            // Whichever of the three timers (here, in tonic, at the broker) fired first, it is one error.
            Ok(Err(error)) if error.code != Code::Cancelled as i32 || started.elapsed() < timeout => Err(error),
            _ => {
                let text = format!("{method} was not answered within {timeout_ms} ms; allow more time");
                Err(RpcError::new(Code::DeadlineExceeded, text))
            }
        }
    }

    /// Calls where the state says, until the call was sent and not refused because another broker leads, or no target is
    /// left that could be reached. A broker that refuses a call says why in details, which a connection that breaks does not.
    async fn unary(
        &self,
        path: PathAndQuery,
        payload: Bytes,
        timeout: Duration,
        is_repeatable: bool,
    ) -> Result<Bytes, RpcError> {
        let until = Instant::now() + timeout;
        let (mut back_off, mut unreached, mut breaks) = (BackOff::default(), Unreached::default(), 0);
        // The state for another virtual host than the channel's: it is of this call alone.
        let mut other: Option<Following> = None;
        loop {
            let (target, wants_refusals) = match &other {
                Some(other) => (other.current().to_owned(), other.wants_refusals()),
                None => current(&self.route),
            };
            let mut grpc = self.grpc(&target)?;
            ready(&mut grpc).await?;
            let mut request = self.authorized(payload.clone(), wants_refusals);
            request.set_timeout(until.saturating_duration_since(Instant::now()));
            let status = match grpc.unary(request, path.clone(), BytesCodec).await {
                Ok(response) => {
                    lock(&self.route).ended(&target, answered(response.metadata()));
                    return Ok(response.into_inner());
                }
                Err(status) => status,
            };
            let failure = Failure::of(status);
            if other.is_none() && failure.hint.as_ref().is_some_and(|hint| hint.vhost != self.vhost) {
                other = Some(lock(&self.route).clone());
            }
            let Failure { mut error, hint, is_unsent } = failure;
            error.wait = match &mut other {
                Some(other) => other.ended(&target, end_of(&error, hint.as_ref(), is_unsent)),
                None => lock(&self.route).ended(&target, end_of(&error, hint.as_ref(), is_unsent)),
            };
            let is_broken = matches!(end_of(&error, None, is_unsent), End::Unavailable) && error.details.is_empty();
            breaks += u32::from(is_broken);
            let is_made_again = is_repeatable && is_broken && breaks <= BREAKS_MAX;
            if (hint.is_some() && lock(&self.route).follows()) || is_made_again {
                unreached.clear();
            } else {
                unreached.add(target, error.clone(), is_unsent, lock(&self.route).given())?;
                continue;
            }
            let pause = back_off.after(error.wait);
            if Instant::now() + pause >= until {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Opens a stream in both directions; returns the responses once the broker has accepted it. When it fails, the next
    /// attempt is made where the state says then.
    pub(crate) async fn stream<S>(self: &Arc<Self>, method: &'static str, requests: S) -> Result<Responses, RpcError>
    where
        S: Stream<Item = Bytes> + Send + 'static,
    {
        self.stream_by(&self.route, method, requests).await
    }

    /// The same by another route.
    pub(crate) async fn stream_by<S>(
        &self,
        route: &Route,
        method: &'static str,
        requests: S,
    ) -> Result<Responses, RpcError>
    where
        S: Stream<Item = Bytes> + Send + 'static,
    {
        let (target, wants_refusals) = current(route);
        let mut grpc = self.grpc(&target)?;
        ready(&mut grpc).await?;
        let path = PathAndQuery::from_static(method);
        match grpc.streaming(self.authorized(requests, wants_refusals), path, BytesCodec).await {
            Ok(answer) => {
                let (headers, responses, _) = answer.into_parts();
                Ok(Responses { responses, route: Arc::clone(route), target, unanswered: Some(headers) })
            }
            Err(status) => Err(failed(route, &target, status)),
        }
    }

    /// A route by the given targets alone, whichever broker leads: one that does not lead answers from its replica, or relays the call.
    pub(crate) fn given_route(&self) -> Route {
        Arc::new(Mutex::new(Following::new(lock(&self.route).given().to_vec(), false)))
    }

    /// Makes a call that only the leader answers, and returns the target that is used then.
    pub(crate) async fn find_leader(&self, method: &'static str, payload: Vec<u8>, timeout: Duration) -> String {
        let call = self.unary(PathAndQuery::from_static(method), payload.into(), timeout, false);
        // Whatever it answers: without a leader, the streams get the error.
        let _ = tokio::time::timeout(timeout, call).await;
        current(&self.route).0
    }

    pub(crate) fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }

    /// Closes the channel for new calls and streams; the connection ends with its last stream.
    pub fn close(&self) {
        *lock(&self.connections) = None;
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.connections).is_none()
    }

    fn grpc(&self, target: &str) -> Result<Grpc<tonic::transport::Channel>, RpcError> {
        let closed = || RpcError::new(Code::FailedPrecondition, "the channel is closed; connect again");
        let connection = lock(&self.connections).as_mut().ok_or_else(closed)?.at(target)?;
        let bytes_max = self.message_bytes_max.saturating_add(FRAME_BYTES_EXTRA);
        Ok(Grpc::new(connection).max_decoding_message_size(bytes_max).max_encoding_message_size(bytes_max))
    }

    fn authorized<T>(&self, message: T, wants_refusals: bool) -> Request<T> {
        let mut request = Request::new(message);
        if wants_refusals {
            request.metadata_mut().insert(FOLLOWS, MetadataValue::from_static("1"));
        }
        request.metadata_mut().insert("authorization", self.authorization.clone());
        request
    }
}

/// The target in use, and whether calls there are to be refused where it does not lead.
fn current(route: &Route) -> (String, bool) {
    let following = lock(route);
    (following.current().to_owned(), following.wants_refusals())
}

/// Returns the error of a stream at a target, after the route has taken note of it.
fn failed(route: &Route, target: &str, status: Status) -> RpcError {
    let Failure { mut error, hint, is_unsent } = Failure::of(status);
    let mut following = lock(route);
    error.wait = following.ended(target, end_of(&error, hint.as_ref(), is_unsent));
    if is_unsent && following.given().len() > 1 {
        error.message = format!("{target}: {}", error.message);
    }
    error
}

/// The responses of a stream, at a target.
pub(crate) struct Responses {
    responses: Streaming<Bytes>,
    route: Route,
    target: String,
    /// The headers, until the first response.
    unanswered: Option<MetadataMap>,
}

impl Responses {
    pub(crate) async fn message(&mut self) -> Result<Option<Bytes>, RpcError> {
        match self.responses.message().await {
            Ok(Some(response)) => {
                if let Some(headers) = self.unanswered.take() {
                    lock(&self.route).ended(&self.target, answered(&headers));
                }
                Ok(Some(response))
            }
            Ok(None) => Ok(None),
            Err(status) => Err(failed(&self.route, &self.target, status)),
        }
    }

    /// Returns the error for an answer in the stream that is as good as its end.
    pub(crate) fn given_up(&self, error: RpcError) -> RpcError {
        let wait = lock(&self.route).ended(&self.target, end_of(&error, None, false));
        RpcError { wait, ..error }
    }
}

/// How a call ended that was answered, by the headers of the answer.
fn answered(headers: &MetadataMap) -> End<'_> {
    let leader = headers.get(LEADER).and_then(|leader| leader.to_str().ok());
    leader.map_or(End::Answered, End::Relayed)
}

/// The leader of a virtual host, at this target; empty where no usable one was named.
struct Hint {
    vhost: String,
    target: String,
}

/// A call that failed.
struct Failure {
    error: RpcError,
    hint: Option<Hint>,
    /// There was no connection, so the request reached no broker.
    is_unsent: bool,
}

impl Failure {
    fn of(status: Status) -> Self {
        let is_unsent = is_unconnected(&status);
        let error = RpcError::from(status);
        let is_unavailable = error.code == Code::Unavailable as i32;
        let hint = if is_unavailable { parse_leader_hint(&error.details).ok().flatten() } else { None };
        let hint = hint.map(|hint| Hint {
            vhost: hint.vhost.to_owned(),
            target: if is_target(hint.target) { hint.target.to_owned() } else { String::new() },
        });
        Self { error, hint, is_unsent }
    }
}

fn end_of<'a>(error: &RpcError, hint: Option<&'a Hint>, is_unsent: bool) -> End<'a> {
    match hint {
        Some(hint) => End::NotLeader(&hint.target),
        None if is_unsent => End::Unsent,
        None if error.code == Code::Unavailable as i32 => End::Unavailable,
        None => End::Answered,
    }
}

/// A call that only reads is made again after so many broken connections. More of them are no failover, and the call may be what breaks them.
const BREAKS_MAX: u32 = 3;

/// The targets that a call could not reach, since a broker has answered it.
#[derive(Default)]
struct Unreached(Vec<(String, RpcError)>);

impl Unreached {
    fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a target; fails if the call may not be made again, because it was sent or all the given targets are here.
    fn add(&mut self, target: String, error: RpcError, is_unsent: bool, given: &[String]) -> Result<(), RpcError> {
        if !is_unsent {
            return Err(error);
        }
        self.0.retain(|(known, _)| *known != target);
        self.0.push((target, error.clone()));
        if given.iter().any(|given| self.0.iter().all(|(target, _)| target != given)) {
            return Ok(());
        }
        if self.0.len() == 1 {
            return Err(error);
        }
        let texts: Vec<String> = self.0.iter().map(|(target, error)| format!("{target}: {}", error.message)).collect();
        Err(RpcError { message: texts.join("; "), ..error })
    }
}

/// When a connection without any traffic is asked whether it is there, and given up without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pings {
    interval: Duration,
    timeout: Duration,
}

/// A silent broker of a cluster is left soon, as another one serves. Nothing is won by that where there is one broker.
fn pings(target: &str, given: &[String]) -> Pings {
    if given.len() > 1 || given.iter().all(|given| given != target) { IN_CLUSTER } else { ALONE }
}

/// How to connect to one target.
fn endpoint(target: &str, settings: &ChannelSettings) -> Result<Endpoint, RpcError> {
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    let pings = pings(target, &settings.targets);
    let endpoint = Endpoint::from_shared(format!("{scheme}://{target}"))
        .map_err(|_| invalid(&format!("the target '{target}'")))?
        .connect_timeout(Duration::from_millis(settings.connect_timeout_ms))
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .http2_keep_alive_interval(pings.interval)
        .keep_alive_timeout(pings.timeout)
        .keep_alive_while_idle(true);
    let Some(tls) = &settings.tls else { return Ok(endpoint) };
    endpoint.tls_config(tls.config()).map_err(|error| {
        let text = format!("the certificates given cannot be used: {}", root_of(&error));
        RpcError::new(Code::InvalidArgument, text)
    })
}

fn invalid(what: &str) -> RpcError {
    let text = format!("{what} cannot be used for a connection; give the target as host:port");
    RpcError::new(Code::InvalidArgument, text)
}

/// Whether there was no connection, so that the request reached no broker.
fn is_unconnected(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The root cause of an error, which tonic's own text hides.
fn root_of(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

async fn ready(grpc: &mut Grpc<tonic::transport::Channel>) -> Result<(), RpcError> {
    grpc.ready().await.map_err(|error| RpcError::new(Code::Unavailable, root_of(&error)))
}

fn path(method: &str) -> Result<PathAndQuery, RpcError> {
    method.parse().map_err(|_| {
        let text = format!("'{method}' is not a method; it looks like /penstock.v1.AdminService/Bind");
        RpcError::new(Code::InvalidArgument, text)
    })
}

#[cfg(test)]
mod tests {
    use super::{ALONE, IN_CLUSTER, pings};

    #[test]
    fn a_silent_broker_is_left_soon_where_another_one_may_serve() {
        let [one, two] = ["a:1", "b:1"].map(str::to_owned);

        assert_eq!(pings("a:1", std::slice::from_ref(&one)), ALONE);
        assert_eq!(pings("x:1", std::slice::from_ref(&one)), IN_CLUSTER, "a leader that was named");
        assert_eq!(pings("a:1", &[one, two]), IN_CLUSTER);
    }
}
