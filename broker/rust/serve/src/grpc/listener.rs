//! The gRPC listener: HTTP/2 by tonic over the connections of the host. Once the broker stops it sends GOAWAY and lets streams end.
//!
//! Buffers between the socket and the broker's code, and what bounds each:
//!
//! | buffer | bound |
//! |---|---|
//! | h2: frames of requests that are not read | the windows; before the log-in what the connection reads (`host::connection`) |
//! | h2: the frame that is being read | `FRAME_BYTES_MAX`; one a connection |
//! | h2: headers of a request | `HEADER_LIST_BYTES_MAX` |
//! | tonic: a message that is not whole | its largest size; the budget of memory counts it (`gate`) |
//! | messages that are not stored or answered | the same (`input`) |
//! | hyper: a frame of a response without a window | one a stream; the budget of memory counts it (`responses`) |
//! | h2: frames to be written | the same |
//! | h2: streams to be reset | `RESETS_WAITING_MAX`, `RESETS_FOR_ERRORS_MAX` |
//! | h2: answers to pings and to settings | one of each: no frame is read before they are written |

use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::server::HealthReporter;
use tower_service::Service;

use crate::grpc::admin::Admin;
use crate::grpc::messaging::{ENVELOPE_BYTES_MAX, Messaging};
use crate::grpc::public::Public;
use crate::grpc::relay::Relaying;
use crate::grpc::relay::leaders::Leaders;
use crate::grpc::service::{Answers, Shell};
use crate::grpc::staging::Staging;
use crate::grpc::streams::Streams;
use crate::host::accept::Protocol;
use crate::host::broker::Broker;
use crate::host::peer::Peer;
use crate::host::serving::{Bound, Host};
use crate::host::stopping::until_stopped;

/// HTTP/2 windows: a publisher may be this far ahead of us. No budget counts them, so that a stream that is not read holds an eighth
/// of what its connection may.
const STREAM_WINDOW_BYTES: u32 = 512 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
const FRAME_BYTES_MAX: u32 = 64 << 10;

/// A request's headers: credentials may be long, nothing else is.
const HEADER_LIST_BYTES_MAX: u32 = 32 << 10;

/// Streams that a client opened and reset before they were looked at, and those that were reset for what it sent: one with more
/// is told to go away.
const RESETS_WAITING_MAX: usize = 64;
const RESETS_FOR_ERRORS_MAX: usize = 256;

/// The largest message to the services of gRPC's own, which anybody may call.
const PUBLIC_BYTES_MAX: usize = 16 << 10;

/// A connection that does not answer a ping within both is closed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(feature = "flight")]
const FLIGHT_NAME: Option<&str> = Some(crate::flight::Flight::NAME);
#[cfg(not(feature = "flight"))]
const FLIGHT_NAME: Option<&str> = None;

/// How the host says on a plaintext connection that there is no place for it.
const HTTP2: Protocol = Protocol { name: "grpc", alpn: &[b"h2"], refusal: go_away, web: None };

/// The largest request of any service, where a message has at most so many bytes.
#[must_use]
pub fn request_bytes_max(message_bytes_max: usize) -> usize {
    #[cfg(feature = "flight")]
    let others = crate::flight::PUT_BYTES_MAX;
    #[cfg(not(feature = "flight"))]
    let others = 0;
    message_bytes_max.saturating_add(ENVELOPE_BYTES_MAX).max(others)
}

/// The listener's settings.
#[derive(Clone, Debug)]
pub struct GrpcOptions {
    /// HOST:PORT; port 0 takes a free one.
    pub address: String,
    /// A serialised FileDescriptorSet, for reflection.
    pub descriptors: Vec<u8>,
    /// Of one connection, at a time.
    pub streams_max: u32,
}

/// See the module.
pub struct Grpc {
    address: SocketAddr,
    health: HealthReporter,
}

impl Grpc {
    /// Binds and starts to serve.
    ///
    /// # Errors
    /// When the address cannot be bound, or the descriptors are no FileDescriptorSet.
    pub fn listen(host: &Host, options: &GrpcOptions) -> std::io::Result<Grpc> {
        let (health, health_service) = tonic_health::server::health_reporter();
        let broker = host.broker().clone();
        let health_service = health_service.max_decoding_message_size(PUBLIC_BYTES_MAX);
        let leaders = Leaders::default();
        let routes = add_flight(Routes::default(), &broker, &leaders)
            .add_service(led(Staging { broker: broker.clone() }, &leaders))
            .add_service(led(Messaging { broker: broker.clone() }, &leaders))
            .add_service(led(Streams { broker: broker.clone() }, &leaders))
            .add_service(led(Admin { broker: broker.clone() }, &leaders));
        let routes = routes.add_service(Noted(Public(health_service)));
        let routes = add_reflection(routes, &options.descriptors)?;
        let Bound { address, connections } = host.bind(HTTP2, &options.address)?;
        let router = tonic::transport::Server::builder()
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES_MAX)
            .max_concurrent_streams(options.streams_max)
            .http2_max_header_list_size(HEADER_LIST_BYTES_MAX)
            .http2_max_pending_accept_reset_streams(Some(RESETS_WAITING_MAX))
            .http2_max_local_error_reset_streams(Some(RESETS_FOR_ERRORS_MAX))
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .add_routes(routes);
        let mut stopping = broker.stopping;
        let serving =
            router.serve_with_incoming_shutdown(connections, async move { until_stopped(&mut stopping).await });
        host.serve(async move {
            // Its connections come from a stream that never fails.
            let _ = serving.await;
        });
        Ok(Grpc { address, health })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Set what the health service says of the broker and of each service.
    pub async fn set_serving(&self, serving: bool) {
        let status =
            if serving { tonic_health::ServingStatus::Serving } else { tonic_health::ServingStatus::NotServing };
        for name in ["", Messaging::NAME, Streams::NAME, Staging::NAME, Admin::NAME].into_iter().chain(FLIGHT_NAME) {
            self.health.set_service_status(name, status).await;
        }
    }
}

/// The bytes that HTTP/2 sends to a client that is not served: empty settings, then GOAWAY with a reason.
fn go_away(reason: &str) -> Vec<u8> {
    const ENHANCE_YOUR_CALM: u32 = 11;
    let length = u32::try_from(8 + reason.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut frames = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    frames.extend_from_slice(&length[1..]);
    frames.extend_from_slice(&[7, 0, 0, 0, 0, 0]);
    frames.extend_from_slice(&0_u32.to_be_bytes());
    frames.extend_from_slice(&ENHANCE_YOUR_CALM.to_be_bytes());
    frames.extend_from_slice(reason.as_bytes());
    frames
}

/// A service whose calls may have to go to a leader.
fn led<S: Answers>(service: S, leaders: &Leaders) -> Noted<Relaying<Shell<S>>> {
    let broker = service.broker().clone();
    let bytes_max = request_bytes_max(broker.message_bytes_max);
    Noted(Relaying::new(Shell(service), &broker, leaders, bytes_max))
}

#[cfg(feature = "flight")]
fn add_flight(routes: Routes, broker: &Broker, leaders: &Leaders) -> Routes {
    let flight = crate::flight::Flight::new(broker.clone());
    routes.add_service(Noted(Relaying::new(flight, broker, leaders, crate::flight::PUT_BYTES_MAX)))
}

#[cfg(not(feature = "flight"))]
fn add_flight(routes: Routes, _: &Broker, _: &Leaders) -> Routes {
    routes
}

fn add_reflection(routes: Routes, descriptors: &[u8]) -> std::io::Result<Routes> {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(descriptors)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let v1 = builder().build_v1().map_err(std::io::Error::other)?;
    let v1alpha = builder().build_v1alpha().map_err(std::io::Error::other)?;
    let v1 = v1.max_decoding_message_size(PUBLIC_BYTES_MAX);
    let v1alpha = v1alpha.max_decoding_message_size(PUBLIC_BYTES_MAX);
    Ok(routes.add_service(Noted(Public(v1))).add_service(Noted(Public(v1alpha))))
}

/// A service whose requests are noted by their connections, which are closed when none comes.
#[derive(Clone)]
struct Noted<S>(S);

impl<S: NamedService> NamedService for Noted<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: Service<http::Request<Body>>> Service<http::Request<Body>> for Noted<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> S::Future {
        if let Some(peer) = request.extensions().get::<Peer>() {
            peer.asks();
        }
        self.0.call(request)
    }
}
