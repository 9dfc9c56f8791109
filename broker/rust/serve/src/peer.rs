//! A connection as its requests see it.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tonic::metadata::MetadataMap;

use crate::caller::Caller;
use crate::connection_state::ConnectionState;
use crate::pulls::Pulls;

/// What tonic hands to every request of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub connection: u64,
    pub address: String,
    pub certificate: Option<Arc<[u8]>>,
    pub pulls: Arc<Pulls>,
    pub state: Arc<ConnectionState>,
}

impl Caller {
    pub(crate) fn of(peer: &Peer, metadata: &MetadataMap) -> Caller {
        let authorization = metadata.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        Caller::with(peer, authorization)
    }

    pub(crate) fn of_headers(peer: &Peer, headers: &HeaderMap) -> Caller {
        let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        Caller::with(peer, authorization)
    }

    fn with(peer: &Peer, authorization: &str) -> Caller {
        Caller {
            connection: peer.connection,
            peer: peer.address.clone(),
            authorization: authorization.to_owned(),
            certificate: peer.certificate.clone(),
            state: Arc::clone(&peer.state),
        }
    }
}
