//! A connection of the host as tonic takes it, and who asks by the headers of a request.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tonic::transport::server::Connected;
use tonic::{Request, Status};

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

/// Who makes a unary call. The request counts against the memory as long as this is there.
pub(crate) fn caller_of<T>(request: &Request<T>) -> Result<Caller, Status> {
    let peer = request.extensions().get::<Peer>().ok_or_else(|| Status::internal("a request without a connection"))?;
    let authorization = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
    let mut caller = peer.caller(authorization.unwrap_or_default());
    caller.share = request.extensions().get().cloned();
    Ok(caller)
}

pub(crate) fn caller_of_headers(peer: &Peer, headers: &HeaderMap) -> Caller {
    peer.caller(headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default())
}
