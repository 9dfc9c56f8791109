//! A connection as its requests see it.

use std::sync::Arc;

use crate::host::caller::Caller;
use crate::host::connection_state::ConnectionState;
use crate::host::pulls::Pulls;

/// What all requests of a connection have in common.
#[derive(Clone)]
pub struct Peer {
    /// See [`Caller`].
    pub protocol: &'static str,
    pub connection: u64,
    pub address: String,
    /// See [`Caller`].
    pub certificate: Option<Arc<[u8]>>,
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

    /// Note that the client asked for something: the broker hears of the end of such connections.
    pub fn asks(&self) {
        self.state.asks();
    }
}
