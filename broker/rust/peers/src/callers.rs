//! What both methods of the service have in common: the settings, and the proof that a broker of the cluster calls.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tonic::transport::server::TlsConnectInfo;
use tonic::{Request, Status};

use crate::arriving::Place;
use crate::codec::SECRET;
use crate::links::{Addresses, Links};
use crate::relaying::codec::RelayedClient;
use crate::relaying::seats::Seats;
use crate::relaying::tunnel::Tunnel;
use crate::settings::{BrokerId, Settings};

/// Serves the clients that other brokers relay. Its function is called by the threads of the runtime, and must not block.
pub trait Relayed: Send + Sync + 'static {
    /// `via` is the address of the broker that relays.
    ///
    /// # Errors
    /// When the client is not served, with the reason for the broker that relays.
    fn relayed(&self, from: BrokerId, via: SocketAddr, client: RelayedClient, stream: Tunnel) -> std::io::Result<()>;
}

/// It is there once clients are served.
pub(crate) type Serving = Arc<OnceLock<Arc<dyn Relayed>>>;

#[derive(Clone)]
pub(crate) struct PeerService {
    pub settings: Arc<Settings>,
    pub boot: u64,
    pub links: Arc<Links>,
    pub addresses: Addresses,
    pub runtime: Handle,
    pub seats: Arc<Seats>,
    pub relayed: Serving,
}

/// Refuses a request without the cluster's secret.
pub(crate) fn shows_secret<T>(settings: &Settings, request: &Request<T>) -> Result<(), Status> {
    let shown = request.metadata().get(SECRET);
    if !shown.is_some_and(|shown| settings.secrets.accept(shown.as_encoded_bytes())) {
        return Err(Status::unauthenticated("the secret of the cluster is another one"));
    }
    Ok(())
}

/// The connection that a request came on.
pub(crate) fn place_of<T>(request: &Request<T>) -> Option<Arc<Place>> {
    let found = request.extensions();
    let within_tls = found.get::<TlsConnectInfo<Arc<Place>>>().map(TlsConnectInfo::get_ref);
    within_tls.or_else(|| found.get()).cloned()
}
