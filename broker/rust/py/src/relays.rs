//! Relays between brokers: what the listeners open goes to the node's connections, and what comes by these goes to the listeners.

use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use penstock_cluster::Node;
use penstock_peers::{BrokerId, Relayed, RelayedClient as Peer, Tunnel};
use penstock_serve::host::{Duplex, Entrance, RelayOpening, RelayedClient, Relays};

/// The name of gRPC among the protocols of listeners.
const GRPC: &str = "grpc";

/// The numbers of brokers, by their names.
#[derive(Clone, Default)]
pub(crate) struct Numbers(Arc<Mutex<HashMap<String, BrokerId>>>);

impl Numbers {
    pub fn set(&self, name: &str, number: BrokerId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), number);
    }

    pub fn forget(&self, number: BrokerId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, known| *known != number);
    }

    fn of(&self, name: &str) -> Option<BrokerId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }
}

/// The listeners' way to other brokers.
pub(crate) struct Outwards {
    pub node: Weak<Node>,
    pub numbers: Numbers,
}

impl Relays for Outwards {
    fn open(&self, leader: &str, client: RelayedClient) -> RelayOpening {
        let found = self.numbers.of(leader).zip(self.node.upgrade());
        let opening = found.and_then(|(broker, node)| node.relay(broker, outwards(client)));
        let leader = leader.to_owned();
        Box::pin(async move {
            let Some(opening) = opening else {
                return Err(Error::new(ErrorKind::NotFound, format!("broker '{leader}' is not known here")));
            };
            let stream: Box<dyn Duplex> = Box::new(opening.await?);
            Ok(stream)
        })
    }
}

/// Other brokers' way to the listeners.
pub(crate) struct Inwards(pub Entrance);

impl Relayed for Inwards {
    fn relayed(&self, from: BrokerId, via: SocketAddr, client: Peer, stream: Tunnel) -> std::io::Result<()> {
        // A call of gRPC that declares is answered where it comes, and the others are relayed one by one.
        let declares_at = if client.protocol == GRPC { from } else { 0 };
        self.0.serve(inwards(declares_at, client), via, Box::new(stream))
    }
}

fn outwards(client: RelayedClient) -> Peer {
    let RelayedClient { protocol, connection, address, certificate, is_tls, broker: _ } = client;
    Peer { protocol, connection, address, certificate, is_tls }
}

fn inwards(broker: BrokerId, client: Peer) -> RelayedClient {
    let Peer { protocol, connection, address, certificate, is_tls } = client;
    RelayedClient { protocol, connection, broker, address, certificate, is_tls }
}
