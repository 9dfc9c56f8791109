//! The connection to each broker: at most one counts at a time, and the newest one wins.
//!
//! Invariant: [`Traffic`] hears of one broker's links and frames one after the other, under that broker's lock, so that no frame of
//! a connection comes after it was said to be down. Waking a broker's stream needs no lock, so [`Traffic`] may do it at any time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;

use futures_util::task::AtomicWaker;
use tokio::sync::watch;

use crate::settings::{BrokerId, Versions};
use crate::{Link, Traffic};

pub(crate) struct Links {
    traffic: Arc<dyn Traffic>,
    peers: Mutex<HashMap<BrokerId, Arc<Peer>>>,
    /// The versions of the last greeting of each broker.
    heard: Mutex<HashMap<BrokerId, Versions>>,
}

#[derive(Default)]
struct Peer {
    state: Mutex<PeerState>,
    /// That of the session that counts. This lock is held for no call.
    waker: Mutex<Arc<AtomicWaker>>,
}

#[derive(Default)]
struct PeerState {
    /// Counts connections; that of the session that counts.
    generation: u64,
    session: Option<Arc<Session>>,
    /// The last thing that was said, to say nothing twice.
    refused: bool,
    failure: String,
}

/// One connection, from the greetings to its end.
pub(crate) struct Session {
    pub broker: BrokerId,
    generation: u64,
    waker: Arc<AtomicWaker>,
    ended: watch::Sender<bool>,
}

impl Session {
    /// Wakes this task when there may be a frame to send, or the session is over.
    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    pub fn is_over(&self) -> bool {
        *self.ended.borrow()
    }

    pub async fn over(&self) {
        // The sender is part of the session, so waiting cannot fail.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    fn finish(&self) {
        self.ended.send_replace(true);
        self.waker.wake();
    }
}

impl Links {
    pub fn new(traffic: Arc<dyn Traffic>) -> Self {
        Self { traffic, peers: Mutex::default(), heard: Mutex::default() }
    }

    pub fn traffic(&self) -> &dyn Traffic {
        &*self.traffic
    }

    /// The versions of a broker as it was last heard, also while it is not connected.
    pub fn heard(&self, broker: BrokerId) -> Option<Versions> {
        lock(&self.heard).get(&broker).copied()
    }

    /// The broker is not of the cluster any more.
    pub fn forget(&self, broker: BrokerId) {
        lock(&self.heard).remove(&broker);
        self.close(broker);
    }

    /// A connection is up; an older one to the same broker ends.
    pub fn begin(&self, broker: BrokerId, protocol: u16, versions: Versions) -> Arc<Session> {
        lock(&self.heard).insert(broker, versions);
        let found = self.peer(broker);
        let mut peer = lock(&found.state);
        if let Some(older) = peer.session.take() {
            older.finish();
            self.traffic.link(broker, Link::Down);
        }
        peer.generation = peer.generation.wrapping_add(1);
        peer.refused = false;
        peer.failure.clear();
        let session = Arc::new(Session {
            broker,
            generation: peer.generation,
            waker: Arc::default(),
            ended: watch::Sender::new(false),
        });
        *lock(&found.waker) = Arc::clone(&session.waker);
        peer.session = Some(Arc::clone(&session));
        self.traffic.link(broker, Link::Up { protocol });
        session
    }

    /// A connection broke. Returns false if a newer one has taken its place.
    pub fn end(&self, session: &Session) -> bool {
        let peer = self.peer(session.broker);
        let mut peer = lock(&peer.state);
        session.finish();
        let counts = peer.session.is_some() && peer.generation == session.generation;
        if counts {
            peer.session = None;
            self.traffic.link(session.broker, Link::Down);
        }
        counts
    }

    pub fn receive(&self, session: &Session, frame: Bytes) {
        let peer = self.peer(session.broker);
        let peer = lock(&peer.state);
        if peer.session.is_some() && peer.generation == session.generation {
            self.traffic.received(session.broker, frame);
        }
    }

    /// Dialling is refused; nothing is said if the broker is connected.
    pub fn refuse(&self, broker: BrokerId) {
        let peer = self.peer(broker);
        let mut peer = lock(&peer.state);
        if peer.session.is_none() && !peer.refused {
            peer.refused = true;
            self.traffic.link(broker, Link::Refused);
        }
    }

    /// Says once why no connection could be made.
    pub fn fail(&self, broker: BrokerId, reason: &str) {
        let peer = self.peer(broker);
        let mut peer = lock(&peer.state);
        if peer.failure != reason {
            reason.clone_into(&mut peer.failure);
            self.traffic.failed(broker, reason);
        }
    }

    pub fn is_up(&self, broker: BrokerId) -> bool {
        lock(&self.peer(broker).state).session.is_some()
    }

    pub fn wake(&self, broker: BrokerId) {
        let waker = Arc::clone(&lock(&self.peer(broker).waker));
        waker.wake();
    }

    /// Ends the connection to a broker, if there is one.
    pub fn close(&self, broker: BrokerId) {
        let session = lock(&self.peer(broker).state).session.clone();
        if let Some(session) = session {
            self.end(&session);
        }
    }

    pub fn close_all(&self) {
        let brokers: Vec<BrokerId> = lock(&self.peers).keys().copied().collect();
        for broker in brokers {
            self.close(broker);
        }
    }

    fn peer(&self, broker: BrokerId) -> Arc<Peer> {
        Arc::clone(lock(&self.peers).entry(broker).or_default())
    }
}

/// Where other brokers are.
#[derive(Clone, Default)]
pub(crate) struct Addresses(Arc<Mutex<HashMap<BrokerId, String>>>);

impl Addresses {
    pub fn of(&self, broker: BrokerId) -> Option<String> {
        lock(&self.0).get(&broker).cloned()
    }

    /// Returns the address that it had.
    pub fn set(&self, broker: BrokerId, address: &str) -> Option<String> {
        lock(&self.0).insert(broker, address.to_owned())
    }

    pub fn brokers(&self) -> Vec<BrokerId> {
        lock(&self.0).keys().copied().collect()
    }

    pub fn remove(&self, broker: BrokerId) {
        lock(&self.0).remove(&broker);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
