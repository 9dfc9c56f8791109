//! Starts and stops the port for other brokers, and the connections to them.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::server::Router;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use crate::Traffic;
use crate::arriving::arriving;
use crate::callers::{PeerService, Relayed, Serving};
use crate::codec::{CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, STREAM_WINDOW_BYTES};
use crate::dialing::keep_connected;
use crate::links::{Addresses, Links, lock};
use crate::relaying::Relaying;
use crate::relaying::codec::RelayedClient;
use crate::relaying::seats::{RELAYS_MAX, RelaysUse, Seats};
use crate::relaying::tunnel::Tunnel;
use crate::settings::{BrokerId, Settings};
use crate::versions::{Used, used};

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the port for other brokers: {0}")]
    Listen(#[from] std::io::Error),
    #[error("the certificates for other brokers cannot be used: {0}")]
    Certificates(#[from] tonic::transport::Error),
    #[error("{0} can be reached from other machines, and there are no certificates; set them, or listen on loopback")]
    Plaintext(SocketAddr),
    #[error("the cluster has no secret; set one")]
    Secret,
}

/// The connections of one broker. They end when it is dropped.
pub struct Peers {
    settings: Arc<Settings>,
    boot: u64,
    links: Arc<Links>,
    addresses: Addresses,
    dialing: Mutex<HashMap<BrokerId, JoinHandle<()>>>,
    runtime: Handle,
    address: SocketAddr,
    relaying: Arc<Relaying>,
    relayed: Serving,
    stop: Option<oneshot::Sender<()>>,
}

impl Peers {
    /// Takes connections at `listener`; `boot` is another number after each start.
    ///
    /// # Errors
    /// The settings cannot be used with this listener: see [`StartError`].
    pub fn start(
        settings: Settings,
        boot: u64,
        listener: TcpListener,
        traffic: Arc<dyn Traffic>,
        runtime: &Handle,
    ) -> Result<Self, StartError> {
        let address = listener.local_addr()?;
        if settings.tls.is_none() && !address.ip().is_loopback() {
            return Err(StartError::Plaintext(address));
        }
        if settings.secrets.shown().is_none() {
            return Err(StartError::Secret);
        }
        listener.set_nonblocking(true)?;
        let settings = Arc::new(settings);
        let links = Arc::new(Links::new(traffic));
        let addresses = Addresses::default();
        let (seats, relayed) = (Arc::<Seats>::default(), Serving::default());
        let relaying = Relaying::new(Arc::clone(&settings), addresses.clone(), Arc::clone(&seats));
        let service = PeerService {
            settings: Arc::clone(&settings),
            boot,
            links: Arc::clone(&links),
            addresses: addresses.clone(),
            runtime: runtime.clone(),
            seats,
            relayed: Arc::clone(&relayed),
        };
        let router = router(&settings, service)?;
        let _entered = runtime.enter();
        let connections = arriving(tokio::net::TcpListener::from_std(listener)?);
        let (stop, stopped) = oneshot::channel();
        // Ends when the last connection has ended after `stop`; errors of single connections are the links' own.
        runtime.spawn(router.serve_with_incoming_shutdown(connections, async {
            let _ = stopped.await;
        }));
        Ok(Self {
            settings,
            boot,
            links,
            addresses,
            dialing: Mutex::default(),
            runtime: runtime.clone(),
            address,
            relaying: Arc::new(relaying),
            relayed,
            stop: Some(stop),
        })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says where a broker is, as host:port. If it has a higher id than this one, a connection is made.
    pub fn set(&self, broker: BrokerId, address: &str) {
        let older = self.addresses.set(broker, address);
        if broker <= self.settings.broker || older.as_deref() == Some(address) {
            return;
        }
        let (settings, links) = (Arc::clone(&self.settings), Arc::clone(&self.links));
        let task = self.runtime.spawn(keep_connected(settings, self.boot, broker, address.to_owned(), links));
        if let Some(older) = lock(&self.dialing).insert(broker, task) {
            older.abort();
            self.links.close(broker);
        }
    }

    /// The broker is not of the cluster any more.
    pub fn forget(&self, broker: BrokerId) {
        self.addresses.remove(broker);
        if let Some(task) = lock(&self.dialing).remove(&broker) {
            task.abort();
        }
        self.links.forget(broker);
        self.relaying.forget(broker);
    }

    /// The versions that the cluster uses, as far as this broker knows: see [`used`].
    #[must_use]
    pub fn used(&self) -> Used {
        let me = self.settings.broker;
        let others = self.addresses.brokers().into_iter().filter(|&broker| broker != me);
        used(self.settings.versions, others.map(|broker| self.links.heard(broker)))
    }

    /// Says who serves the clients that other brokers relay. It is said once.
    pub fn set_relayed(&self, relayed: Arc<dyn Relayed>) {
        let _ = self.relayed.set(relayed);
    }

    /// Begins a relay of a client to a broker. It ends when the tunnel is dropped, or the connection breaks.
    ///
    /// The future fails with `Unsupported` where that broker does not know relays.
    pub fn relay(
        &self,
        broker: BrokerId,
        client: RelayedClient,
    ) -> impl Future<Output = std::io::Result<Tunnel>> + Send + use<> {
        let relaying = Arc::clone(&self.relaying);
        let opening = self.runtime.spawn(async move { relaying.open(broker, client).await });
        async move { opening.await.unwrap_or_else(|_| Err(std::io::Error::other("the connections have ended"))) }
    }

    /// The relays from and to this broker.
    #[must_use]
    pub fn relays(&self) -> RelaysUse {
        self.relaying.seats.used()
    }

    /// [`Traffic::next`] has a frame for a broker again.
    pub fn wake(&self, broker: BrokerId) {
        self.links.wake(broker);
    }

    /// Breaks the connection to a broker, which is then made again.
    pub fn disconnect(&self, broker: BrokerId) {
        self.links.close(broker);
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for (_, task) in lock(&self.dialing).drain() {
            task.abort();
        }
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        self.links.close_all();
    }
}

fn router(settings: &Settings, service: PeerService) -> Result<Router, tonic::transport::Error> {
    let timeouts = &settings.timeouts;
    let mut server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_concurrent_streams(u32::try_from(RELAYS_MAX).ok())
        .http2_keepalive_interval(Some(timeouts.keepalive))
        .http2_keepalive_timeout(Some(timeouts.keepalive_timeout));
    if let Some(tls) = &settings.tls {
        let config = ServerTlsConfig::new()
            .identity(Identity::from_pem(&tls.certificate, &tls.key))
            .client_ca_root(Certificate::from_pem(&tls.authority))
            .timeout(timeouts.connect);
        server = server.tls_config(config)?;
    }
    Ok(server.add_service(service))
}
