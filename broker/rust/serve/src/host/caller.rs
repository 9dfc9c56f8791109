//! Who asks: what a client's requests have in common, whichever connection they came on.

use std::sync::Arc;

use crate::host::connection_state::ConnectionState;
use crate::host::memory::Share;

/// Who asks: connection, address and credentials as they came.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The name of the listener's protocol, whose front end decides.
    pub protocol: &'static str,
    pub connection: u64,
    pub peer: String,
    pub authorization: String,
    /// What the client showed at the handshake, DER; an authority that we trust signed it.
    pub certificate: Option<Arc<[u8]>>,
    pub(crate) state: Arc<ConnectionState>,
    /// What the request holds of the memory, as long as it is waited for.
    pub(crate) share: Option<Arc<Share>>,
}
