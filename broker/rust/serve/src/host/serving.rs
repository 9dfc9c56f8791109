//! The host: threads, decisions, limits, and the places of connections, for listeners of any protocol.
//!
//! A listener binds an address here and gets connections whose place is counted, whose TLS handshake is over, and which end by
//! themselves when nobody logs in. It runs on the host's threads until the host stops.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use penstock_engine::Engine;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::host::accept::{Door, Protocol, accept, accept_unix};
use crate::host::broker::Broker;
use crate::host::calls::Calls;
use crate::host::connection::Connection;
use crate::host::entrance::Entrance;
use crate::host::memory::Memory;
use crate::host::news::Told;
use crate::host::places::Places;
use crate::host::proxy::Network;
use crate::host::relay::{Duplex, RelayedClient, Relays, Way};
use crate::host::tls::Tls;
use crate::host::unix;
use crate::host::watch::{look_after, report_unused};
use crate::host::workers::Workers;

/// What the host is told at its start.
#[derive(Clone, Debug)]
pub struct HostOptions {
    pub threads: usize,
    pub message_bytes_max: usize,
    /// The largest message of any listener, which may exceed that of a publisher.
    pub request_bytes_max: usize,
    /// See [`Memory`].
    pub buffer_bytes_max: usize,
    /// Calls that may wait for a decision at a time.
    pub calls_max: usize,
    /// Of all listeners together.
    pub connections_max: usize,
    /// See [`Broker`].
    pub first_request: Duration,
    /// Plaintext without.
    pub tls: Option<Tls>,
    /// Whose connections begin with a header of the PROXY protocol. Nobody else's may.
    pub proxies: Vec<Network>,
    /// Of pages that may open a WebSocket though they are of another host; `*` for all.
    pub web_origins: Vec<String>,
}

/// See the module.
pub struct Host {
    /// Gone once it has stopped.
    workers: Mutex<Option<Workers>>,
    listeners: Mutex<JoinSet<()>>,
    broker: Broker,
    places: Places,
    proxies: Arc<[Network]>,
    web_origins: Arc<[String]>,
    stopping: watch::Sender<bool>,
    /// What is served now, without the protocols of the listeners.
    tls: watch::Sender<Option<Tls>>,
    told: Told,
    entrance: Entrance,
}

/// A listener's address, and its connections until this is dropped.
pub struct Bound<C> {
    pub address: SocketAddr,
    pub connections: C,
}

impl Host {
    /// Starts the threads.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn start(engine: Arc<Engine>, options: &HostOptions) -> std::io::Result<Host> {
        let workers = Workers::start(options.threads.max(1), Arc::clone(&engine))?;
        let (stopping, stopped) = watch::channel(false);
        let broker = Broker {
            engine,
            calls: Arc::new(Calls::new(options.calls_max)?),
            quotas: Arc::default(),
            memory: Arc::new(Memory::new(options.buffer_bytes_max, options.request_bytes_max)),
            replies: Arc::default(),
            stopping: stopped,
            counts_streams: true,
            message_bytes_max: options.message_bytes_max,
            first_request: options.first_request,
            certificates_name_users: options.tls.as_ref().is_some_and(|tls| tls.names_users),
            relays: Way::default(),
        };
        workers.runtime().spawn(look_after(broker.clone()));
        workers.runtime().spawn(report_unused(broker.clone()));
        let entrance = Entrance::new(workers.runtime().handle().clone());
        Ok(Host {
            workers: Mutex::new(Some(workers)),
            listeners: Mutex::default(),
            broker,
            places: Places::new(options.connections_max),
            proxies: options.proxies.as_slice().into(),
            web_origins: options.web_origins.as_slice().into(),
            stopping,
            tls: watch::Sender::new(options.tls.clone()),
            told: Told::default(),
            entrance,
        })
    }

    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Binds HOST:PORT, and accepts connections of a protocol there; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be bound, or the host has stopped.
    pub fn bind(
        &self,
        protocol: Protocol,
        address: &str,
    ) -> std::io::Result<Bound<impl Stream<Item = std::io::Result<Connection>> + Send + use<>>> {
        let (door, entrance) = (self.door(protocol), self.entrance.clone());
        self.run(async move {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            let (ready, connections) = accept(listener, door.clone());
            entrance.note(door, ready);
            Ok(Bound { address, connections })
        })
        .unwrap_or_else(|| Err(std::io::Error::other("the host has stopped")))
    }

    /// Binds the path of a Unix socket, and accepts connections of a protocol there, which have no TLS.
    ///
    /// # Errors
    /// When the path cannot be bound, another process listens there, or the host has stopped.
    pub fn bind_unix(
        &self,
        protocol: Protocol,
        path: &Path,
    ) -> std::io::Result<impl Stream<Item = std::io::Result<Connection>> + Send + use<>> {
        let (door, path, entrance) = (self.door(protocol), path.to_owned(), self.entrance.clone());
        self.run(async move {
            let (ready, connections) = accept_unix(unix::bind(&path).await?, door.clone());
            entrance.note(door, ready);
            Ok(connections)
        })
        .unwrap_or_else(|| Err(std::io::Error::other("the host has stopped")))
    }

    /// Says how connections are relayed to other brokers. It is said once.
    pub fn set_relays(&self, relays: Arc<dyn Relays>) {
        self.broker.relays.set(relays);
    }

    /// Where connections come in that other brokers relay.
    #[must_use]
    pub fn entrance(&self) -> &Entrance {
        &self.entrance
    }

    /// See [`Entrance::serve`].
    ///
    /// # Errors
    /// The same.
    pub fn serve_relayed(
        &self,
        client: RelayedClient,
        via: SocketAddr,
        stream: Box<dyn Duplex>,
    ) -> std::io::Result<()> {
        self.entrance.serve(client, via, stream)
    }

    fn door(&self, protocol: Protocol) -> Door {
        Door {
            broker: self.broker.clone(),
            protocol,
            tls: self.tls.subscribe(),
            places: self.places.clone(),
            proxies: Arc::clone(&self.proxies),
            web_origins: Arc::clone(&self.web_origins),
            told: self.told.clone(),
        }
    }

    /// Runs a listener on the host's threads. It ends by itself once the broker stops and its connections are done.
    pub fn serve(&self, listener: impl Future<Output = ()> + Send + 'static) {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(workers) = workers.as_ref() else { return };
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.spawn_on(listener, workers.runtime().handle());
    }

    /// Does something on the calling thread that needs the host's runtime; nothing once it has stopped.
    pub fn run<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.as_ref().map(|workers| workers.runtime().block_on(work))
    }

    /// What connections from now on are served with; those that are there stay. A plaintext listener stays one.
    pub fn set_tls(&self, tls: Tls) {
        self.tls.send_if_modified(|served| served.as_mut().map(|served| *served = tls).is_some());
    }

    /// Tells all listeners to stop, and closes what is left after `grace`. Calls that Python has not answered by then fail.
    pub fn stop(&self, grace: Duration) {
        self.stopping.send_replace(true);
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(workers) = workers else { return };
        let mut listeners = std::mem::take(&mut *self.listeners.lock().unwrap_or_else(PoisonError::into_inner));
        workers.runtime().block_on(async {
            // Whoever is still there after the grace has had its chance.
            let _ = tokio::time::timeout(grace, async { while listeners.join_next().await.is_some() {} }).await;
            listeners.detach_all();
        });
        workers.shutdown(Duration::from_secs(1));
    }
}
