//! A connection as its requests see it.

use std::sync::Arc;

use crate::host::caller::Caller;
use crate::host::connection_state::ConnectionState;
use crate::host::pulls::Pulls;
use crate::host::relay::RelayedClient;

/// What all requests of a connection have in common.
#[derive(Clone)]
pub struct Peer {
    /// See [`Caller`].
    pub protocol: &'static str,
    pub connection: u64,
    pub address: String,
    /// See [`Caller`].
    pub certificate: Option<Arc<[u8]>>,
    pub is_tls: bool,
    /// Whether another broker relays the connection, which is not relayed again.
    pub is_relayed: bool,
    pub(crate) pulls: Arc<Pulls>,
    pub(crate) state: Arc<ConnectionState>,
}

impl Peer {
    /// Who asks, with credentials as the protocol's front end in Python reads them.
    #[must_use]
    pub fn caller(&self, authorization: &str) -> Caller {
        Caller {
            protocol: self.protocol,
            connection: self.connection,
            peer: self.address.clone(),
            authorization: authorization.to_owned(),
            certificate: self.certificate.clone(),
            state: Arc::clone(&self.state),
            share: None,
        }
    }

    /// The client of this connection, for a broker to which it is relayed.
    #[must_use]
    pub fn relayed(&self) -> RelayedClient {
        RelayedClient {
            protocol: self.protocol.to_owned(),
            connection: self.connection,
            broker: 0,
            address: self.address.parse().ok(),
            certificate: self.certificate.clone(),
            is_tls: self.is_tls,
        }
    }

    /// Note that the client asked for something: the broker hears of the end of such connections.
    pub fn asks(&self) {
        self.state.asks();
    }
}
