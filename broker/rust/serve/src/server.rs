//! The host with its listeners, as Python starts them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use penstock_engine::Engine;

use crate::amqp::listener::{Amqp, AmqpOptions};
use crate::grpc::listener::{Grpc, GrpcOptions};
use crate::host::calls::Calls;
use crate::host::entrance::Entrance;
use crate::host::memory::MemoryUse;
use crate::host::quotas::Quotas;
use crate::host::relay::Relays;
use crate::host::serving::{Host, HostOptions};
use crate::host::tls::Tls;

/// See the module.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub host: HostOptions,
    pub grpc: GrpcOptions,
    pub amqp: AmqpOptions,
}

/// See the module.
pub struct Server {
    host: Host,
    grpc: Grpc,
    amqp: Amqp,
}

impl Server {
    /// Binds and starts to serve.
    ///
    /// # Errors
    /// When threads cannot be started, or a listener cannot.
    pub fn start(engine: Arc<Engine>, options: &ServerOptions) -> std::io::Result<Server> {
        let host = Host::start(engine, &options.host)?;
        let grpc = Grpc::listen(&host, &options.grpc)?;
        let amqp = Amqp::listen(&host, &options.amqp)?;
        Ok(Server { host, grpc, amqp })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.grpc.address()
    }

    /// Where AMQP 0-9-1 is served over TCP.
    #[must_use]
    pub fn amqp_address(&self) -> Option<SocketAddr> {
        self.amqp.address()
    }

    /// Where AMQP 0-9-1 is served in WebSockets.
    #[must_use]
    pub fn amqp_web_address(&self) -> Option<SocketAddr> {
        self.amqp.web_address()
    }

    #[must_use]
    pub fn calls(&self) -> &Arc<Calls> {
        &self.host.broker().calls
    }

    #[must_use]
    pub fn quotas(&self) -> &Quotas {
        &self.host.broker().quotas
    }

    #[must_use]
    pub fn memory_used(&self) -> MemoryUse {
        self.host.broker().memory.used()
    }

    /// See [`Host::set_relays`].
    pub fn set_relays(&self, relays: Arc<dyn Relays>) {
        self.host.set_relays(relays);
    }

    /// See [`Host::entrance`].
    #[must_use]
    pub fn entrance(&self) -> &Entrance {
        self.host.entrance()
    }

    /// See [`Host::set_tls`].
    pub fn set_tls(&self, tls: Tls) {
        self.host.set_tls(tls);
    }

    /// See [`Grpc::set_serving`]; nothing once the host has stopped.
    pub fn set_serving(&self, serving: bool) {
        self.host.run(self.grpc.set_serving(serving));
    }

    /// See [`Host::stop`].
    pub fn stop(&self, grace: Duration) {
        self.host.stop(grace);
    }
}
