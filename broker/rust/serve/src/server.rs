//! The listener and its threads: binds, serves until told to stop, drains.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use penstock_engine::Engine;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::server::HealthReporter;
use tower_service::Service;

use crate::accept::{Door, accept};
use crate::admin::Admin;
use crate::calls::Calls;
use crate::messaging::Messaging;
use crate::peer::Peer;
use crate::public::Public;
use crate::quotas::Quotas;
use crate::staging::Staging;
use crate::stopping::until_stopped;
use crate::streams::Streams;
use crate::tls::Tls;
use crate::workers::Workers;

/// HTTP/2 windows: a publisher may be this far ahead of us.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
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

/// What the listener is told at its start.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// HOST:PORT; port 0 takes a free one.
    pub address: String,
    pub threads: usize,
    pub message_bytes_max: usize,
    /// A serialised FileDescriptorSet, for reflection.
    pub descriptors: Vec<u8>,
    /// Calls that may wait for a decision at a time.
    pub calls_max: usize,
    pub connections_max: usize,
    /// Of one connection, at a time.
    pub streams_max: u32,
    /// What a TLS handshake may take, a connection's log-in after it, and a request's first message.
    pub first_request: Duration,
    /// Plaintext without.
    pub tls: Option<Tls>,
}

/// See the module.
pub struct Server {
    workers: Mutex<Option<Workers>>,
    serving: Mutex<Option<JoinHandle<Result<(), tonic::transport::Error>>>>,
    address: SocketAddr,
    calls: Arc<Calls>,
    quotas: Arc<Quotas>,
    health: HealthReporter,
    stopping: watch::Sender<bool>,
    tls: watch::Sender<Option<Tls>>,
}

impl Server {
    /// Binds and starts to serve.
    ///
    /// # Errors
    /// When the address cannot be bound, the descriptors are no FileDescriptorSet, or threads cannot be started.
    pub fn start(engine: Arc<Engine>, options: &ServerOptions) -> std::io::Result<Server> {
        let workers = Workers::start(options.threads.max(1), Arc::clone(&engine))?;
        let runtime = workers.runtime();
        let listener = runtime.block_on(TcpListener::bind(&options.address))?;
        let address = listener.local_addr()?;
        let calls = Arc::new(Calls::new(options.calls_max)?);
        let quotas = Arc::<Quotas>::default();
        let (stopping, mut stopped) = watch::channel(false);
        let (health, health_service) = tonic_health::server::health_reporter();
        let messaging = Messaging {
            engine: Arc::clone(&engine),
            calls: Arc::clone(&calls),
            quotas: Arc::clone(&quotas),
            stopping: stopped.clone(),
            message_bytes_max: options.message_bytes_max,
            first_request: options.first_request,
        };
        let admin = Admin {
            calls: Arc::clone(&calls),
            message_bytes_max: options.message_bytes_max,
            first_request: options.first_request,
        };
        let health_service = health_service.max_decoding_message_size(PUBLIC_BYTES_MAX);
        let streams = Streams { messaging: messaging.clone() };
        let staging = Staging { messaging: messaging.clone() };
        let routes = add_flight(Routes::default(), &messaging).add_service(Noted(staging));
        let routes = routes.add_service(Noted(messaging)).add_service(Noted(streams)).add_service(Noted(admin));
        let routes = routes.add_service(Noted(Public(health_service)));
        let routes = add_reflection(routes, &options.descriptors)?;
        let (tls, served) = watch::channel(options.tls.clone());
        let (connections_max, patience) = (options.connections_max, options.first_request);
        let door = Door::new(engine, Arc::clone(&calls), served, connections_max, patience);
        let incoming = {
            let _entered = runtime.enter();
            accept(listener, door)
        };
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
        let serving = runtime.spawn(router.serve_with_incoming_shutdown(incoming, async move {
            until_stopped(&mut stopped).await;
        }));
        Ok(Server {
            workers: Mutex::new(Some(workers)),
            serving: Mutex::new(Some(serving)),
            address,
            calls,
            quotas,
            health,
            stopping,
            tls,
        })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    #[must_use]
    pub fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    #[must_use]
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// What connections from now on are served with; those that are there stay. A plaintext listener stays one.
    pub fn set_tls(&self, tls: Tls) {
        self.tls.send_if_modified(|served| served.as_mut().map(|served| *served = tls).is_some());
    }

    /// What the health service says of the broker and of each service.
    pub fn set_serving(&self, serving: bool) {
        let status =
            if serving { tonic_health::ServingStatus::Serving } else { tonic_health::ServingStatus::NotServing };
        let Ok(guard) = self.workers.lock() else { return };
        let Some(workers) = guard.as_ref() else { return };
        workers.runtime().block_on(async {
            for name in ["", Messaging::NAME, Streams::NAME, Staging::NAME, Admin::NAME].into_iter().chain(FLIGHT_NAME)
            {
                self.health.set_service_status(name, status).await;
            }
        });
    }

    /// Sends GOAWAY, lets streams end, and closes what is left after `grace`. Calls that Python has not answered by then fail.
    pub fn stop(&self, grace: Duration) {
        self.stopping.send_replace(true);
        let Some(workers) = self.workers.lock().ok().and_then(|mut guard| guard.take()) else { return };
        let serving = self.serving.lock().ok().and_then(|mut guard| guard.take());
        if let Some(serving) = serving {
            // Whoever is still there after the grace has had its chance.
            let _ = workers.runtime().block_on(async { tokio::time::timeout(grace, serving).await });
        }
        workers.shutdown(Duration::from_secs(1));
    }
}

#[cfg(feature = "flight")]
fn add_flight(routes: Routes, messaging: &Messaging) -> Routes {
    routes.add_service(Noted(crate::flight::Flight::new(messaging.clone())))
}

#[cfg(not(feature = "flight"))]
fn add_flight(routes: Routes, _: &Messaging) -> Routes {
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
            peer.state.asks();
        }
        self.0.call(request)
    }
}
