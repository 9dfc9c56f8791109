//! The connections to leaders: one for each client's connection and leader, which serves the calls of that client as its own.
//!
//! What must stay true: calls of two clients never share one, because the leader counts, lists and closes connections by client, and gives
//! back what a connection held when it ends. A connection to a leader ends with its client's.

use std::collections::HashMap;
use std::io::Result;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic::body::Body;

use crate::host::peer::Peer;
use crate::host::relay::{Duplex, Relays};

/// HTTP/2 windows for responses. What is not read of them is in no budget, as with requests.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// What a call may have waiting to be sent.
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// The headers of a response.
const HEADER_LIST_BYTES_MAX: u32 = 32 << 10;

type Io = TokioIo<Box<dyn Duplex>>;

/// By the client's connection and the leader's name.
type Key = (u64, String);

/// A connection, once it is there. Calls that need it meanwhile wait.
type Slot = Arc<tokio::sync::Mutex<Option<SendRequest<Body>>>>;

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Leaders(Arc<Mutex<HashMap<Key, Slot>>>);

impl Leaders {
    /// The connection of a client to a leader, which is made when there is none.
    ///
    /// # Errors
    /// When the leader cannot be reached by a relay.
    pub async fn connection(&self, relays: &Arc<dyn Relays>, peer: &Peer, leader: &str) -> Result<SendRequest<Body>> {
        let key = (peer.connection, leader.to_owned());
        let slot = Arc::clone(self.lock().entry(key.clone()).or_default());
        let mut connection = slot.lock().await;
        if let Some(open) = connection.as_ref().filter(|open| !open.is_closed()) {
            return Ok(open.clone());
        }
        let unused = Unused { leaders: self, key: &key, slot: &slot };
        let stream = relays.open(leader, peer.relayed()).await?;
        let (open, driven) = handshake(stream).await?;
        std::mem::forget(unused);
        *connection = Some(open.clone());
        let (leaders, state, slot) = (Arc::downgrade(&self.0), Arc::clone(&peer.state), Arc::downgrade(&slot));
        tokio::spawn(async move {
            tokio::select! {
                // Its calls know how it ended.
                _ = driven => {}
                () = state.until_over() => {}
            }
            forget(&leaders, &key, &slot);
        });
        Ok(open)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the slot again when no connection came to be, also where nobody waits for it any more.
struct Unused<'a> {
    leaders: &'a Leaders,
    key: &'a Key,
    slot: &'a Slot,
}

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        forget(&Arc::downgrade(&self.leaders.0), self.key, &Arc::downgrade(self.slot));
    }
}

fn forget(leaders: &Weak<Mutex<HashMap<Key, Slot>>>, key: &Key, slot: &Weak<tokio::sync::Mutex<Option<SendRequest<Body>>>>) {
    let Some(leaders) = leaders.upgrade() else { return };
    let mut leaders = leaders.lock().unwrap_or_else(PoisonError::into_inner);
    // A newer connection may have taken the place.
    if leaders.get(key).is_some_and(|found| std::ptr::eq(Arc::as_ptr(found), slot.as_ptr())) {
        leaders.remove(key);
    }
}

async fn handshake(stream: Box<dyn Duplex>) -> Result<(SendRequest<Body>, Connection<Io, Body, TokioExecutor>)> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(HEADER_LIST_BYTES_MAX);
    builder.handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)
}
