//! The listener for AMQP 0-9-1: each connection has a task. When the broker stops, clients are told so, and those that do not
//! answer are left to the host.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;

use futures_util::{Stream, StreamExt};
use tokio::task::JoinSet;

use super::conversation::converse;
use crate::host::accept::Protocol;
use crate::host::broker::Broker;
use crate::host::connection::Connection;
use crate::host::serving::Host;

/// A client without a place is told nothing: before its header has come there is no way to.
const AMQP: Protocol = Protocol { name: "amqp", alpn: &[b"amqp"], refusal: |_| Vec::new(), web: None };

/// The same in WebSockets.
const WEB: Protocol = Protocol { name: "amqp", alpn: &[b"http/1.1"], refusal: unavailable, web: Some("amqp") };

/// Where AMQP is served.
#[derive(Clone, Debug, Default)]
pub struct AmqpOptions {
    /// HOST:PORT for TCP; port 0 takes a free one.
    pub address: Option<String>,
    /// The path of a Unix socket.
    pub socket: Option<PathBuf>,
    /// HOST:PORT for WebSockets.
    pub web: Option<String>,
}

/// See the module.
pub struct Amqp {
    address: Option<SocketAddr>,
    web_address: Option<SocketAddr>,
}

impl Amqp {
    /// Binds every place, and starts to serve.
    ///
    /// # Errors
    /// When one cannot be bound. The text begins with the setting and the place.
    pub fn listen(host: &Host, options: &AmqpOptions) -> std::io::Result<Amqp> {
        let tcp = |setting, protocol, address: &Option<String>| {
            let Some(address) = address else { return Ok(None) };
            let bound = host.bind(protocol, address).map_err(|error| at(setting, address, &error))?;
            host.serve(serve(host.broker().clone(), bound.connections));
            std::io::Result::Ok(Some(bound.address))
        };
        let (address, web_address) = (tcp("amqp", AMQP, &options.address)?, tcp("amqp_ws", WEB, &options.web)?);
        if let Some(path) = &options.socket {
            let connections = host.bind_unix(AMQP, path).map_err(|error| at("amqp_socket", &path.display(), &error))?;
            host.serve(serve(host.broker().clone(), connections));
        }
        Ok(Amqp { address, web_address })
    }

    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    #[must_use]
    pub fn web_address(&self) -> Option<SocketAddr> {
        self.web_address
    }
}

/// The error with its setting and place, by which Python reports it.
fn at(setting: &str, place: &dyn Display, error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{setting} on {place}: {error}"))
}

fn unavailable(reason: &str) -> Vec<u8> {
    let length = reason.len();
    format!("HTTP/1.1 503 Service Unavailable\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{reason}")
        .into_bytes()
}

async fn serve(broker: Broker, connections: impl Stream<Item = std::io::Result<Connection>>) {
    let (mut connections, mut stopping) = (Box::pin(connections), broker.stopping.clone());
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
    // No client may wait at a socket that takes none, while the last conversations end.
    drop(connections);
    while conversations.join_next().await.is_some() {}
}
