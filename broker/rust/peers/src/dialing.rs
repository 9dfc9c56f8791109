//! Connects to a broker with a higher id, again and again, and tells a process that is gone from a network that is cut.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

use crate::codec::{CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, PATH, PeerCodec, SECRET, STREAM_WINDOW_BYTES};
use crate::hello::Hello;
use crate::links::Links;
use crate::session::{Outgoing, greeting, receive, text_of};
use crate::settings::{BrokerId, Settings, Tls};

/// Attempts to dial a broker that should have connected, before the side that was called gives up to ask why it does not.
const PROBES_MAX: u32 = 20;

/// An attempt to connect, or a connection, that ended.
pub(crate) enum Ended {
    /// Nothing listens at the address.
    Refused(String),
    Failed(String),
}

/// Keeps a connection to `broker`; never returns.
pub(crate) async fn keep_connected(
    settings: Arc<Settings>,
    boot: u64,
    broker: BrokerId,
    address: String,
    links: Arc<Links>,
) {
    loop {
        match connect(&settings, boot, broker, &address, &links).await {
            Ended::Refused(reason) => {
                links.refuse(broker);
                links.fail(broker, &reason);
            }
            Ended::Failed(reason) => links.fail(broker, &reason),
        }
        sleep(settings.timeouts.retry).await;
    }
}

/// After a connection from `broker` broke: is its process gone?
pub(crate) async fn probe(settings: Arc<Settings>, broker: BrokerId, address: String, links: Arc<Links>) {
    for _ in 0..PROBES_MAX {
        if links.is_up(broker) {
            return;
        }
        match timeout(settings.timeouts.connect, TcpStream::connect(&address)).await {
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => return links.refuse(broker),
            _ => sleep(settings.timeouts.retry).await,
        }
    }
}

async fn connect(settings: &Settings, boot: u64, broker: BrokerId, address: &str, links: &Arc<Links>) -> Ended {
    let channel = match timeout(settings.timeouts.connect, open(settings, address)).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(ended)) => return ended,
        Err(_) => return unanswered(address, settings.timeouts.connect),
    };
    let Some(secret) = settings.secrets.shown() else {
        return Ended::Failed("the cluster has no secret; set one".into());
    };
    let hello =
        Hello { cluster: settings.cluster, from: settings.broker, to: broker, boot, versions: settings.versions };
    let (greeted, waits) = oneshot::channel();
    let request = match authorized(Outgoing::new(hello, waits, Arc::clone(links)), &secret) {
        Ok(request) => request,
        Err(reason) => return Ended::Failed(reason),
    };
    let mut grpc = Grpc::new(channel).max_decoding_message_size(settings.frame_bytes_max);
    let greetings = async {
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static(PATH);
        let mut frames = grpc.streaming(request, path, PeerCodec).await?.into_inner();
        let theirs = greeting(&mut frames).await?;
        let protocol = hello.agree(&theirs).map_err(|refused| Status::failed_precondition(refused.to_string()))?;
        Ok::<_, Status>((frames, protocol, theirs.versions))
    };
    let (mut frames, protocol, versions) = match timeout(settings.timeouts.connect, greetings).await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(status)) => return Ended::Failed(format!("{address}: {}", text_of(&status))),
        Err(_) => return unanswered(address, settings.timeouts.connect),
    };
    let session = links.begin(broker, protocol, versions);
    // Fails only when the transport is gone already, which ends the frames, too.
    let _ = greeted.send(Arc::clone(&session));
    let reason = receive(links, &session, &mut frames).await;
    links.end(&session);
    Ended::Failed(format!("{address}: {reason}"))
}

fn unanswered(address: &str, limit: Duration) -> Ended {
    Ended::Failed(format!("{address} did not answer within {} ms", limit.as_millis()))
}

fn authorized(outgoing: Outgoing, secret: &str) -> Result<Request<Outgoing>, String> {
    let mut value: MetadataValue<Ascii> =
        secret.parse().map_err(|_| "the cluster's secret has characters that are not printable ASCII".to_owned())?;
    value.set_sensitive(true);
    let mut request = Request::new(outgoing);
    request.metadata_mut().insert(SECRET, value);
    Ok(request)
}

pub(crate) async fn open(settings: &Settings, address: &str) -> Result<Channel, Ended> {
    let failed = |reason: &dyn std::fmt::Display| Ended::Failed(format!("{address}: {reason}"));
    if settings.tls.is_none() {
        let mut found = tokio::net::lookup_host(address).await.map_err(|error| failed(&error))?;
        if !found.all(|socket| socket.ip().is_loopback()) {
            return Err(failed(&"without TLS only loopback addresses are connected; set certificates"));
        }
    }
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
        .and_then(|endpoint| configured(endpoint, settings))
        .map_err(|error| failed(&root_of(&error)))?;
    endpoint.connect().await.map_err(|error| {
        let root = root_of(&error);
        match root.downcast_ref::<std::io::Error>() {
            Some(error) if error.kind() == ErrorKind::ConnectionRefused => {
                Ended::Refused(format!("{address}: {error}"))
            }
            _ => failed(&root),
        }
    })
}

fn configured(endpoint: Endpoint, settings: &Settings) -> Result<Endpoint, tonic::transport::Error> {
    let endpoint = endpoint
        .connect_timeout(settings.timeouts.connect)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .http2_keep_alive_interval(settings.timeouts.keepalive)
        .keep_alive_timeout(settings.timeouts.keepalive_timeout)
        .keep_alive_while_idle(true);
    match &settings.tls {
        Some(tls) => endpoint.tls_config(client_tls(tls)),
        None => Ok(endpoint),
    }
}

fn client_tls(tls: &Tls) -> ClientTlsConfig {
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&tls.authority))
        .identity(Identity::from_pem(&tls.certificate, &tls.key));
    match &tls.server_name {
        Some(name) => config.domain_name(name),
        None => config,
    }
}

fn root_of<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root
}
