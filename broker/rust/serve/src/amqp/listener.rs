//! The listener for AMQP 0-9-1: each connection has a task. When the broker stops, clients are told so, and those that do not
//! answer are left to the host.

use std::net::SocketAddr;

use futures_util::{Stream, StreamExt};
use tokio::task::JoinSet;

use super::conversation::converse;
use crate::host::accept::Protocol;
use crate::host::broker::Broker;
use crate::host::connection::Connection;
use crate::host::serving::Host;

/// A client without a place is told nothing: before its header has come there is no way to.
const AMQP: Protocol = Protocol { name: "amqp", alpn: &[b"amqp"], refusal: |_| Vec::new() };

/// See the module.
pub struct Amqp {
    address: SocketAddr,
}

impl Amqp {
    /// Binds HOST:PORT and starts to serve; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn listen(host: &Host, address: &str) -> std::io::Result<Amqp> {
        let bound = host.bind(AMQP, address)?;
        host.serve(serve(host.broker().clone(), bound.connections));
        Ok(Amqp { address: bound.address })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(broker: Broker, connections: impl Stream<Item = std::io::Result<Connection>>) {
    let (mut connections, mut stopping) = (std::pin::pin!(connections), broker.stopping.clone());
    let mut conversations = JoinSet::new();
    loop {
        tokio::select! {
            connection = connections.next() => {
                let Some(Ok(connection)) = connection else { break };
                conversations.spawn(converse(broker.clone(), connection));
            }
            Some(_) = conversations.join_next() => {}
            _ = stopping.wait_for(|stopping| *stopping) => break,
        }
    }
    while conversations.join_next().await.is_some() {}
}
