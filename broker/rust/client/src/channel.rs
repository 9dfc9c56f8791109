//! One HTTP/2 connection to a broker, made at the first use and again after it broke. All holders of a channel share
//! it; the broker sees one client connection.
//!
//! A broker may have several addresses. Invariant: the next one is tried only when an attempt to connect failed, so no
//! request reaches a broker twice.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::Stream;
use http::uri::PathAndQuery;
use serde::Deserialize;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Request, Status, Streaming};

use crate::codec::BytesCodec;
use crate::error::RpcError;
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
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Size of a response beside one message of the largest size.
const FRAME_BYTES_EXTRA: usize = 4 << 20;

/// `targets` are the addresses of one broker, as host:port; `authorization` is the value of that header.
#[derive(Debug, Clone)]
pub struct ChannelSettings {
    pub targets: Vec<String>,
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

#[derive(Debug)]
pub struct Channel {
    /// One for each target; only the current one is used.
    inner: Mutex<Option<Vec<tonic::transport::Channel>>>,
    targets: Vec<String>,
    current: AtomicUsize,
    authorization: MetadataValue<Ascii>,
    message_bytes_max: usize,
}

impl Channel {
    /// Does not connect yet.
    pub fn new(settings: &ChannelSettings) -> Result<Self, RpcError> {
        let targets = settings.targets.clone();
        if targets.is_empty() {
            return Err(invalid("an empty list of targets"));
        }
        let endpoints = targets.iter().map(|target| endpoint(target, settings)).collect::<Result<Vec<_>, _>>()?;
        let mut authorization: MetadataValue<Ascii> =
            settings.authorization.parse().map_err(|_| invalid("the authorization given"))?;
        authorization.set_sensitive(true);
        let runtime = runtime::handle()?;
        let _entered = runtime.enter();
        let inner = Mutex::new(Some(endpoints.iter().map(Endpoint::connect_lazy).collect()));
        let current = AtomicUsize::new(0);
        Ok(Self { inner, targets, current, authorization, message_bytes_max: settings.message_bytes_max })
    }

    /// A unary call that blocks until it is answered or `timeout_ms` have passed.
    pub fn call(&self, method: &str, payload: Vec<u8>, timeout_ms: u64) -> Result<Vec<u8>, RpcError> {
        let path = path(method)?;
        let timeout = Duration::from_millis(timeout_ms);
        let call = self.unary(path, payload.into(), timeout);
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

    /// Calls at the current target, and at each of the others while there is no connection.
    async fn unary(&self, path: PathAndQuery, payload: Bytes, timeout: Duration) -> Result<Bytes, RpcError> {
        let mut tried = Vec::new();
        loop {
            let (at, mut grpc) = self.grpc()?;
            ready(&mut grpc).await?;
            let mut request = self.authorized(payload.clone());
            request.set_timeout(timeout);
            let status = match grpc.unary(request, path.clone(), BytesCodec).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => status,
            };
            let is_unreachable = is_unconnected(&status);
            let error = self.failed(at, status);
            if !is_unreachable {
                return Err(error);
            }
            tried.push(error.message.clone());
            if tried.len() >= self.targets.len() {
                return Err(RpcError { message: tried.join("; "), ..error });
            }
        }
    }

    /// Opens a stream in both directions; returns the responses once the broker has accepted it. When it cannot connect
    /// it fails, and the next attempt uses the next target.
    pub(crate) async fn stream<S>(&self, method: &'static str, requests: S) -> Result<Streaming<Bytes>, RpcError>
    where
        S: Stream<Item = Bytes> + Send + 'static,
    {
        let (at, mut grpc) = self.grpc()?;
        ready(&mut grpc).await?;
        let path = PathAndQuery::from_static(method);
        let answer = grpc.streaming(self.authorized(requests), path, BytesCodec).await;
        Ok(answer.map_err(|status| self.failed(at, status))?.into_inner())
    }

    pub(crate) fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }

    /// Closes the channel for new calls and streams; the connection ends with its last stream.
    pub fn close(&self) {
        *lock(&self.inner) = None;
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.inner).is_none()
    }

    /// Returns the error of a call at a target, and leaves that target when it cannot be reached.
    fn failed(&self, at: usize, status: Status) -> RpcError {
        let is_unreachable = is_unconnected(&status);
        let error = RpcError::from(status);
        let Some(target) = self.targets.get(at).filter(|_| is_unreachable && self.targets.len() > 1) else {
            return error;
        };
        // Another call may have left it already.
        let next = (at + 1) % self.targets.len();
        let _ = self.current.compare_exchange(at, next, Ordering::AcqRel, Ordering::Acquire);
        RpcError { message: format!("{target}: {}", error.message), ..error }
    }

    /// The current target's index, and its connection.
    fn grpc(&self) -> Result<(usize, Grpc<tonic::transport::Channel>), RpcError> {
        let at = self.current.load(Ordering::Acquire);
        let Some(inner) = lock(&self.inner).as_ref().and_then(|channels| channels.get(at).cloned()) else {
            return Err(RpcError::new(Code::FailedPrecondition, "the channel is closed; connect again"));
        };
        let bytes_max = self.message_bytes_max.saturating_add(FRAME_BYTES_EXTRA);
        Ok((at, Grpc::new(inner).max_decoding_message_size(bytes_max).max_encoding_message_size(bytes_max)))
    }

    fn authorized<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.authorization.clone());
        request
    }
}

/// How to connect to one target.
fn endpoint(target: &str, settings: &ChannelSettings) -> Result<Endpoint, RpcError> {
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{target}"))
        .map_err(|_| invalid(&format!("the target '{target}'")))?
        .connect_timeout(Duration::from_millis(settings.connect_timeout_ms))
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
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
