//! A connection of the host as tonic takes it, and who asks by the headers of a request.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tonic::metadata::MetadataMap;
use tonic::transport::server::Connected;

use crate::host::caller::Caller;
use crate::host::connection::Connection;
use crate::host::peer::Peer;

impl Connected for Connection {
    /// Every request of the connection has it among its extensions.
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer().clone()
    }
}

pub(crate) fn caller_of(peer: &Peer, metadata: &MetadataMap) -> Caller {
    peer.caller(metadata.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default())
}

pub(crate) fn caller_of_headers(peer: &Peer, headers: &HeaderMap) -> Caller {
    peer.caller(headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default())
}
