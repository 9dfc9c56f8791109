//! What is open and may be listed or closed: connections by their numbers, and consumers.
//!
//! Nothing on the way of messages looks in here: a connection and a consumer are noted when they open and when they end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Context;

use futures_util::task::AtomicWaker;
use penstock_engine::Signal;
use rustc_hash::FxHashMap;

/// A consumer as it was opened; `prefetch` is the latest, and `signal` says whether it is active.
#[derive(Clone, Debug)]
pub struct OpenConsumer {
    pub connection: u64,
    pub user: String,
    pub vhost: String,
    pub queue: String,
    pub consumer_tag: String,
    pub prefetch: u32,
    pub auto_ack: bool,
    pub exclusive: bool,
    pub priority: i32,
    pub signal: Arc<Signal>,
}

/// Whether a connection is to be closed.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    is_asked: AtomicBool,
    /// Whether others wait for the memory that it holds.
    for_memory: AtomicBool,
    waker: AtomicWaker,
}

impl Closing {
    /// Wake the task when the connection is to be closed.
    pub fn register(&self, cx: &mut Context<'_>) {
        self.waker.register(cx.waker());
    }

    /// Say whether it is to be closed, and if so whether for the memory that it holds.
    pub fn asked(&self) -> Option<bool> {
        self.is_asked.load(Ordering::Acquire).then(|| self.for_memory.load(Ordering::Relaxed))
    }

    fn ask(&self, for_memory: bool) {
        self.for_memory.store(for_memory, Ordering::Relaxed);
        self.is_asked.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Listing {
    connections: Mutex<FxHashMap<u64, Arc<Closing>>>,
    consumers: Mutex<BTreeMap<u64, OpenConsumer>>,
    next_consumer: AtomicU64,
}

impl Listing {
    /// End a connection for an administrator: its transport fails; return whether there is such a connection.
    pub fn close_connection(&self, connection: u64) -> bool {
        self.ask(connection, false)
    }

    /// End a connection because others wait for the memory that it holds; return whether there is such a connection.
    pub(crate) fn close_for_memory(&self, connection: u64) -> bool {
        self.ask(connection, true)
    }

    fn ask(&self, connection: u64, for_memory: bool) -> bool {
        let found = self.connections.lock().ok().and_then(|connections| connections.get(&connection).cloned());
        found.inspect(|closing| closing.ask(for_memory)).is_some()
    }

    /// Return the open consumers, oldest first.
    #[must_use]
    pub fn consumers(&self) -> Vec<OpenConsumer> {
        self.consumers.lock().map(|consumers| consumers.values().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn connected(&self, connection: u64) -> Arc<Closing> {
        let closing = Arc::<Closing>::default();
        if let Ok(mut connections) = self.connections.lock() {
            connections.insert(connection, Arc::clone(&closing));
        }
        closing
    }

    pub(crate) fn disconnected(&self, connection: u64) {
        if let Ok(mut connections) = self.connections.lock() {
            connections.remove(&connection);
        }
    }

    /// Note a consumer; return its number here.
    pub(crate) fn consumes(&self, consumer: OpenConsumer) -> u64 {
        let number = self.next_consumer.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut consumers) = self.consumers.lock() {
            consumers.insert(number, consumer);
        }
        number
    }

    pub(crate) fn note_prefetch(&self, number: u64, prefetch: u32) {
        if let Ok(mut consumers) = self.consumers.lock()
            && let Some(consumer) = consumers.get_mut(&number)
        {
            consumer.prefetch = prefetch;
        }
    }

    /// Forget a consumer; a second time nothing happens.
    pub(crate) fn left(&self, number: u64) {
        if let Ok(mut consumers) = self.consumers.lock() {
            consumers.remove(&number);
        }
    }
}
