//! How a shard tells a consumer's task that there is work, or that the consumer has ended.
//!
//! A consumer has a waker of its own, or its task serves many consumers and gives them one ready list: it collects those
//! whose signals rang, each once however often, and wakes the task once for all of them.
//!
//! Invariants: a shard rings signals by `Wakes` alone, after the lock under which they were found is released; a signal that rings
//! after its consumer was taken from the list is on it again, so that no ring is lost.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tokio::sync::Notify;

use crate::term::Replication;

/// One consumer's waker. A signal without a listener is kept; several signals are merged.
#[derive(Debug, Default)]
pub struct Signal {
    waker: Waker,
    cancelled: OnceLock<String>,
    /// Whether another consumer of its queue is the single active one.
    stands_by: AtomicBool,
    /// How long the queue's consumers may keep a message unacked; 0 is any time.
    ack_timeout_ms: AtomicU64,
}

#[derive(Debug)]
enum Waker {
    Own(Notify),
    Listed(Listed),
}

impl Default for Waker {
    fn default() -> Waker {
        Waker::Own(Notify::new())
    }
}

/// A consumer's place on a ready list.
#[derive(Debug)]
struct Listed {
    list: Arc<ReadyList>,
    token: u64,
    /// Whether it is on the list now.
    is_ready: AtomicBool,
}

impl Signal {
    /// Wakes the consumer: there may be something to take.
    pub fn ring(self: &Arc<Self>) {
        match &self.waker {
            Waker::Own(waker) => waker.notify_one(),
            // It is on the list: the task takes it later than this, and then looks at its queue.
            Waker::Listed(listed) if listed.is_ready.swap(true, Ordering::AcqRel) => {}
            Waker::Listed(listed) => listed.list.add(self),
        }
    }

    /// Ends the consumer; the first reason stays.
    pub fn cancel(self: &Arc<Self>, reason: &str) {
        let _ = self.cancelled.set(reason.to_owned());
        self.ring();
    }

    pub(crate) fn stand_by(&self, stands_by: bool) {
        self.stands_by.store(stands_by, Ordering::Relaxed);
    }

    /// Sets the limit of its queue; returns whether it changed.
    pub(crate) fn limit_unacked(&self, ack_timeout_ms: Option<u64>) -> bool {
        let limit = ack_timeout_ms.unwrap_or(0);
        self.ack_timeout_ms.swap(limit, Ordering::Relaxed) != limit
    }

    /// How long its queue lets it keep a message unacked.
    pub(crate) fn ack_timeout_ms(&self) -> Option<u64> {
        Some(self.ack_timeout_ms.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }

    /// Whether it gets messages: another one of its queue is not active instead.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.stands_by.load(Ordering::Relaxed)
    }

    /// Why the consumer ended, once it has.
    pub fn cancelled(&self) -> Option<&str> {
        self.cancelled.get().map(String::as_str)
    }

    /// Waits for a signal. One of a ready list is heard there, and never here.
    pub async fn heard(&self) {
        match &self.waker {
            Waker::Own(waker) => waker.notified().await,
            Waker::Listed(_) => pending().await,
        }
    }
}

/// Signals to ring. A shard's state collects them under its lock, and they ring when they are dropped, after it. The first
/// needs no memory of its own: one is usual.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    first: Option<Arc<Signal>>,
    others: Vec<Arc<Signal>>,
    replication: Option<Arc<dyn Replication>>,
}

impl Wakes {
    /// There may be something to take.
    pub fn add(&mut self, signal: &Arc<Signal>) {
        match &self.first {
            None => self.first = Some(Arc::clone(signal)),
            Some(_) => self.others.push(Arc::clone(signal)),
        }
    }

    /// The log of a replicated shard has grown.
    pub fn replicate(&mut self, replication: Arc<dyn Replication>) {
        self.replication = Some(replication);
    }

    /// Ends the consumer; the first reason stays.
    pub fn cancel(&mut self, signal: &Arc<Signal>, reason: &str) {
        let _ = signal.cancelled.set(reason.to_owned());
        self.add(signal);
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.first.iter().chain(&self.others).for_each(Signal::ring);
        self.replication.iter().for_each(|replication| replication.appended());
    }
}

/// The consumers of one task whose signals rang; see the module. One task at a time waits for it.
#[derive(Debug, Default)]
pub struct ReadyList {
    rung: Mutex<Vec<Weak<Signal>>>,
    waker: Notify,
}

impl ReadyList {
    /// A signal for one more consumer, which the list names by `token`.
    #[must_use]
    pub fn signal(self: &Arc<Self>, token: u64) -> Arc<Signal> {
        let listed = Listed { list: Arc::clone(self), token, is_ready: AtomicBool::new(false) };
        Arc::new(Signal { waker: Waker::Listed(listed), ..Signal::default() })
    }

    /// Waits until there is a consumer on the list.
    pub async fn heard(&self) {
        while self.rung().is_empty() {
            self.waker.notified().await;
        }
    }

    /// Moves the tokens of the consumers on the list to `tokens`, in the order in which they rang. Those whose
    /// subscriptions are gone are left out.
    pub fn take(&self, tokens: &mut Vec<u64>) {
        for signal in self.rung().drain(..).filter_map(|signal| signal.upgrade()) {
            if let Waker::Listed(listed) = &signal.waker {
                // This comes after every ring that found it on the list, so the next look sees the messages of these rings.
                listed.is_ready.swap(false, Ordering::AcqRel);
                tokens.push(listed.token);
            }
        }
    }

    fn add(&self, signal: &Arc<Signal>) {
        let mut rung = self.rung();
        // Once the list is full: each look at it is paid by as many additions.
        if rung.len() == rung.capacity() {
            rung.retain(|signal| signal.strong_count() > 0);
        }
        let is_first = rung.is_empty();
        rung.push(Arc::downgrade(signal));
        drop(rung);
        if is_first {
            self.waker.notify_one();
        }
    }

    fn rung(&self) -> MutexGuard<'_, Vec<Weak<Signal>>> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(list: &ReadyList) -> Vec<u64> {
        let mut tokens = Vec::new();
        list.take(&mut tokens);
        tokens
    }

    #[test]
    fn a_signal_is_on_the_list_once_until_it_is_taken() {
        let list = Arc::<ReadyList>::default();
        let [one, other] = [1, 2].map(|token| list.signal(token));
        other.ring();
        one.ring();
        other.ring();
        assert_eq!(taken(&list), [2, 1]);
        assert_eq!(taken(&list), [0; 0]);

        let mut wakes = Wakes::default();
        wakes.cancel(&other, "it ended");
        wakes.add(&one);
        assert_eq!((other.cancelled(), taken(&list)), (Some("it ended"), vec![]));
        drop(wakes);

        assert_eq!(taken(&list), [2, 1]);
    }

    #[test]
    fn signals_that_are_gone_are_forgotten() {
        let list = Arc::<ReadyList>::default();
        let stays = list.signal(0);
        stays.ring();

        (1..100_000).for_each(|token| list.signal(token).ring());

        let capacity = list.rung().capacity();
        assert!(capacity < 64, "{capacity}");
        assert_eq!(taken(&list), [0]);
    }
}
