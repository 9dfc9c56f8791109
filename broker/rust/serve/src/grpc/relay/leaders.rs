//! The connections to leaders: one for each client's connection and leader, which serves the calls of that client as its own.
//!
//! What must stay true: calls of two clients never share one, because the leader counts, lists and closes connections by client, and gives
//! back what a connection held when it ends. A connection to a leader ends with its client's.

use std::collections::BTreeMap;
use std::io::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
pub(crate) type Slot = Arc<tokio::sync::Mutex<Option<SendRequest<Body>>>>;

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Leaders(Arc<Mutex<BTreeMap<Key, Slot>>>);

impl Leaders {
    /// The connection of a client to a leader, which is made when there is none.
    ///
    /// # Errors
    /// When the leader cannot be reached by a relay.
    pub async fn connection(&self, relays: &Arc<dyn Relays>, peer: &Peer, leader: &str) -> Result<SendRequest<Body>> {
        let slot = self.slot(peer, leader);
        let mut connection = slot.lock().await;
        if let Some(open) = connection.as_mut()
            && open.ready().await.is_ok()
        {
            return Ok(open.clone());
        }
        let stream = relays.open(leader, peer.relayed()).await?;
        let (open, driven) = handshake(stream).await?;
        *connection = Some(open.clone());
        let state = Arc::clone(&peer.state);
        tokio::spawn(async move {
            tokio::select! {
                // Its calls know how it ended.
                _ = driven => {}
                () = state.until_over() => {}
            }
        });
        Ok(open)
    }

    /// The connections that a client has to leaders, by the leaders' names.
    pub fn all_of(&self, peer: &Peer) -> Vec<(String, Slot)> {
        let first = (peer.connection, String::new());
        lock(&self.0)
            .range(first..)
            .take_while(|(key, _)| key.0 == peer.connection)
            .map(|(key, slot)| (key.1.clone(), Arc::clone(slot)))
            .collect()
    }

    /// Where the connection is, or will be, as long as the client's is open.
    fn slot(&self, peer: &Peer, leader: &str) -> Slot {
        let key = (peer.connection, leader.to_owned());
        let mut slots = lock(&self.0);
        if let Some(slot) = slots.get(&key) {
            return Arc::clone(slot);
        }
        let slot = Slot::default();
        slots.insert(key.clone(), Arc::clone(&slot));
        let (all, state) = (Arc::downgrade(&self.0), Arc::clone(&peer.state));
        tokio::spawn(async move {
            state.until_over().await;
            all.upgrade().into_iter().for_each(|all| drop(lock(&all).remove(&key)));
        });
        slot
    }
}

fn lock(slots: &Mutex<BTreeMap<Key, Slot>>) -> MutexGuard<'_, BTreeMap<Key, Slot>> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
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
