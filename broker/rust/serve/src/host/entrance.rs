//! Where connections come in that other brokers relay: each goes to the listener of its protocol, like one that was accepted.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::host::accept::{Door, Protocol};
use crate::host::connection::Connection;
use crate::host::relay::{Duplex, RelayedClient};

/// See the module. It may outlive the host, and refuses all connections then.
#[derive(Clone)]
pub struct Entrance {
    runtime: Handle,
    listeners: Arc<Mutex<Vec<Listener>>>,
}

struct Listener {
    door: Door,
    /// Closed once the listener takes no more connections.
    ready: mpsc::WeakSender<Connection>,
}

impl Entrance {
    pub(crate) fn new(runtime: Handle) -> Entrance {
        Entrance { runtime, listeners: Arc::default() }
    }

    /// Notes a listener. Of those of one protocol the first serves relayed connections.
    pub(crate) fn note(&self, door: Door, ready: mpsc::WeakSender<Connection>) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Listener { door, ready });
    }

    /// Gives a relayed connection to the listener of its protocol. `via` is the address of the broker that relays it.
    ///
    /// # Errors
    /// When the protocol is not served, or there is no place for one more connection of that client.
    pub fn serve(&self, client: RelayedClient, via: SocketAddr, stream: Box<dyn Duplex>) -> Result<()> {
        let (door, ready) = self.listener(&client.protocol).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("this broker does not serve '{}'", client.protocol))
        })?;
        // Its timers are those of the threads that serve it.
        let _entered = self.runtime.enter();
        let connection = door.relayed(client, via, stream)?;
        self.runtime.spawn(async move {
            // It fails only once the server has stopped, and the connection is closed then.
            let _ = ready.send(connection).await;
        });
        Ok(())
    }

    fn listener(&self, protocol: &str) -> Option<(Door, mpsc::Sender<Connection>)> {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let of_protocol = |listener: &&Listener| listener.door.protocol.name == protocol;
        listeners.iter().filter(of_protocol).find_map(|found| Some((found.door.clone(), found.ready.upgrade()?)))
    }
}

impl std::fmt::Debug for Entrance {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let protocols: Vec<Protocol> = listeners.iter().map(|listener| listener.door.protocol).collect();
        formatter.debug_tuple("Entrance").field(&protocols).finish()
    }
}
