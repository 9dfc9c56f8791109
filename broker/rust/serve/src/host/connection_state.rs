//! What the listener knows of one connection: whether its client has logged in, how often that failed, and what it asks.
//!
//! What must stay true: a client counts as known once a call of the connection passed authentication, and not before. Every
//! other answer to a client that is not known counts as a failure, so that nobody stays by asking again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use futures_util::task::AtomicWaker;
use tokio::sync::{Notify, Semaphore};

use crate::host::memory::{Account, Memory};
use crate::host::refusal::{Kind, Refusal};
use crate::host::relay::Origin;

/// Log-ins that may fail one after another before the connection is closed.
const FAILURES_MAX: usize = 10;

/// Requests to public services that a connection may have open before its client has logged in.
const PUBLIC_MAX: usize = 4;

/// Calls of one connection that wait for messages.
const WAITS_MAX: usize = 256;

/// Permits of one connection that are asked for at a time.
const PERMITS_ASKED_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    has_asked: AtomicBool,
    is_known: AtomicBool,
    failure_count: AtomicUsize,
    public_count: AtomicUsize,
    /// Calls that wait for a decision, also those whose client has gone.
    pub waiting: Arc<AtomicUsize>,
    /// Decisions that the client waits for.
    deciding_count: AtomicUsize,
    /// The turns of publishers that ask for permits.
    pub turns: Arc<Semaphore>,
    /// The places of calls that wait for messages.
    #[cfg_attr(not(feature = "flight"), allow(dead_code))]
    pub waits: Arc<Semaphore>,
    generation: AtomicU64,
    rechecks: Notify,
    is_over: AtomicBool,
    over: Notify,
    /// The connection at another broker whose exclusive queues it may use.
    pub origin: Option<Origin>,
    /// Its part of the budget of memory.
    pub account: Arc<Account>,
    /// The connection's task, while it reads no more before the log-in.
    pub reader: AtomicWaker,
}

impl Default for ConnectionState {
    fn default() -> ConnectionState {
        ConnectionState::new(&Arc::default())
    }
}

impl ConnectionState {
    pub fn new(memory: &Arc<Memory>) -> ConnectionState {
        ConnectionState {
            has_asked: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            failure_count: AtomicUsize::new(0),
            public_count: AtomicUsize::new(0),
            waiting: Arc::default(),
            deciding_count: AtomicUsize::new(0),
            turns: Arc::new(Semaphore::new(PERMITS_ASKED_MAX)),
            waits: Arc::new(Semaphore::new(WAITS_MAX)),
            generation: AtomicU64::new(0),
            rechecks: Notify::new(),
            is_over: AtomicBool::new(false),
            over: Notify::new(),
            origin: None,
            account: Arc::new(Account::new(memory)),
            reader: AtomicWaker::new(),
        }
    }

    /// The same with the queues of another broker's connection.
    pub fn from(self, origin: Option<Origin>) -> ConnectionState {
        ConnectionState { origin, ..self }
    }

    /// Note that a request came.
    pub fn asks(&self) {
        if !self.has_asked() {
            self.has_asked.store(true, Ordering::Relaxed);
        }
    }

    pub fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::Relaxed)
    }

    /// Say whether the client has logged in.
    pub fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Acquire)
    }

    /// Say whether the client waits for a decision.
    pub fn is_deciding(&self) -> bool {
        self.deciding_count.load(Ordering::Acquire) > 0
    }

    /// Note that a decision is under way until the answer is dropped, which is after `decided`.
    pub fn deciding(self: &Arc<Self>) -> Deciding {
        self.deciding_count.fetch_add(1, Ordering::AcqRel);
        Deciding(Arc::clone(self))
    }

    /// Say whether so many log-ins have failed that the connection has to be closed.
    pub fn has_failed_too_often(&self) -> bool {
        self.failure_count.load(Ordering::Relaxed) >= FAILURES_MAX
    }

    /// Note that a call was decided: with a refusal's kind, or admitted.
    pub fn decided(&self, refused: Option<Kind>) {
        if refused.is_none_or(is_after_log_in) {
            self.has_logged_in();
        } else if refused == Some(Kind::Unauthenticated) || !self.is_known() {
            self.failure_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Note that the client has logged in.
    pub fn has_logged_in(&self) {
        self.failure_count.store(0, Ordering::Relaxed);
        if !self.is_known() {
            self.is_known.store(true, Ordering::Release);
            self.reader.wake();
        }
    }

    /// Make the streams of this connection ask again whether they may go on, and its publishers for their exchanges.
    pub fn recheck(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.rechecks.notify_waiters();
    }

    /// The number of the last recheck.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Wait for a recheck after that of the given number, and return the number of the last one.
    pub async fn changed(&self, generation: u64) -> u64 {
        loop {
            // It hears of every recheck from here on.
            let recheck = self.rechecks.notified();
            let last = self.generation();
            if last != generation {
                return last;
            }
            recheck.await;
        }
    }

    /// Note that the connection has ended.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.over.notify_waiters();
    }

    /// Wait for the end of the connection.
    pub async fn until_over(&self) {
        // It hears of the end from here on.
        let over = self.over.notified();
        if !self.is_over.load(Ordering::Acquire) {
            over.await;
        }
    }

    /// Take a place for a request to a public service.
    ///
    /// # Errors
    /// When the client has not logged in and has as many open as it may.
    pub fn public_place(self: &Arc<Self>) -> Result<PublicPlace, Refusal> {
        let place = PublicPlace(Arc::clone(self));
        let count = self.public_count.fetch_add(1, Ordering::AcqRel) + 1;
        if count > PUBLIC_MAX && !self.is_known() {
            let text =
                format!("{PUBLIC_MAX} requests without credentials are open on this connection; close one, or log in");
            return Err(Refusal::limit_reached(text));
        }
        Ok(place)
    }
}

/// Refusals that only callers with valid credentials get.
fn is_after_log_in(kind: Kind) -> bool {
    matches!(kind, Kind::AccessRefused | Kind::NotFound | Kind::PreconditionFailed | Kind::LedElsewhere)
}

/// A decision that the client waits for until this is dropped.
#[derive(Debug)]
pub(crate) struct Deciding(Arc<ConnectionState>);

impl Drop for Deciding {
    fn drop(&mut self) {
        self.0.deciding_count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A request to a public service that is open until this is dropped.
#[derive(Debug)]
pub(crate) struct PublicPlace(Arc<ConnectionState>);

impl Drop for PublicPlace {
    fn drop(&mut self) {
        self.0.public_count.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;

    use super::{ConnectionState, FAILURES_MAX, PUBLIC_MAX};
    use crate::host::refusal::Kind;

    #[test]
    fn a_client_is_known_after_a_decision_that_needs_valid_credentials() {
        for (refused, is_known) in [
            (None, true),
            (Some(Kind::AccessRefused), true),
            (Some(Kind::NotFound), true),
            (Some(Kind::Unauthenticated), false),
            (Some(Kind::Unavailable), false),
            (Some(Kind::LimitReached), false),
        ] {
            let state = ConnectionState::default();
            state.decided(refused);
            assert_eq!(state.is_known(), is_known, "{refused:?}");
        }
    }

    #[test]
    fn log_ins_that_fail_one_after_another_are_counted_until_one_succeeds() {
        let state = ConnectionState::default();
        (1..FAILURES_MAX).for_each(|_| state.decided(Some(Kind::Unauthenticated)));
        assert!(!state.has_failed_too_often());
        state.decided(None);
        (1..FAILURES_MAX).for_each(|_| state.decided(Some(Kind::Unauthenticated)));
        assert!(!state.has_failed_too_often());

        state.decided(Some(Kind::Unauthenticated));

        assert!(state.has_failed_too_often());
    }

    #[test]
    fn a_recheck_is_heard_of_whether_it_comes_before_or_during_the_wait() {
        let state = ConnectionState::default();
        assert_eq!(state.changed(0).now_or_never(), None);
        state.recheck();
        assert_eq!(state.changed(0).now_or_never(), Some(1));
        assert_eq!(state.changed(1).now_or_never(), None);

        let mut waits = std::array::from_fn::<_, 2, _>(|_| Box::pin(state.changed(1)));
        assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_none()));
        state.recheck();

        assert!(waits.iter_mut().all(|wait| wait.now_or_never() == Some(2)));
    }

    #[test]
    fn the_end_is_heard_of_whether_it_comes_before_or_during_the_wait() {
        let state = ConnectionState::default();
        let mut waits = Box::pin(state.until_over());
        assert_eq!((&mut waits).now_or_never(), None);

        state.end();

        assert_eq!(waits.now_or_never(), Some(()));
        assert_eq!(state.until_over().now_or_never(), Some(()));
    }

    #[test]
    fn a_client_that_did_not_log_in_has_few_public_requests_open() {
        let state = Arc::new(ConnectionState::default());
        let mut places: Vec<_> = (0..PUBLIC_MAX).map(|_| state.public_place()).collect();
        assert!(places.iter().all(Result::is_ok));
        assert!(state.public_place().is_err());

        places.pop();
        places.push(state.public_place());
        assert!(places.iter().all(Result::is_ok));

        state.decided(None);
        assert!(state.public_place().is_ok());
    }
}
