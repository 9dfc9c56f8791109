//! One budget of memory for all connections: bytes of requests that came and are not stored or answered yet, and bytes of
//! responses until the socket has taken them.
//!
//! What must stay true:
//! * a request takes its bytes as they come, and a response its bytes before it is encoded. When the budget is spent, or a
//!   connection has its part of it, they wait: windows are not opened, and messages stay in their queue. Requests and
//!   responses have pools of their own, so that clients that do not read stop no publisher;
//! * no deadlock: whoever holds a part waits for nothing but, as a request, for the rest of its message. One request at a time
//!   of each pool may go on beyond the bound, into a reserve for the largest message, until it gives back what it holds. Its
//!   protocol ends it when the rest does not come. When a request waits too long for those that never end, the
//!   `watch` closes the connection that holds most;
//! * connections without a log-in share a small pool of their own, by all bytes that came on their sockets, beside a fixed part
//!   of each. So a flood of them takes nothing from clients that have logged in.
//!
//! Limits: buffers of fixed size are not in it: those of the kernel, of TLS, and the windows of HTTP/2.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::host::pool::{Pool, Seat};

/// A connection may have the fourth part of each pool.
const CONNECTION_PART: usize = 4;

/// Connections without a log-in share a sixteenth of the limit.
const UNAUTHENTICATED_PART: usize = 16;

/// A publisher takes in so much beside its largest message before it stores it.
const ROUND_BYTES: usize = (1 << 20) + (128 << 10);

/// The two pools of clients that have logged in.
#[derive(Clone, Copy, Debug)]
enum Side {
    Requests,
    Responses,
}

/// See the module.
#[derive(Debug)]
pub struct Memory {
    limit: usize,
    requests: Pool,
    responses: Pool,
    unauthenticated: Pool,
    wait_count: AtomicU64,
    closed_count: AtomicU64,
}

/// What the budget has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    pub limit_bytes: usize,
    pub request_bytes: usize,
    pub response_bytes: usize,
    /// That came from clients that have not logged in.
    pub unauthenticated_bytes: usize,
    /// How often a request or a response had to wait.
    pub wait_count: u64,
    /// Connections that were closed because others waited for what they held.
    pub closed_count: u64,
}

impl Default for Memory {
    /// Without a limit that is ever reached.
    fn default() -> Memory {
        Memory::new(usize::MAX / 2, 0)
    }
}

impl Memory {
    /// Divides the limit: a part for clients that have not logged in, a reserve for the largest message, and the rest, which
    /// is a third at least, for requests and responses in equal parts.
    #[must_use]
    pub fn new(limit: usize, message_bytes_max: usize) -> Memory {
        let unauthenticated = limit / UNAUTHENTICATED_PART;
        let reserve = message_bytes_max.saturating_add(ROUND_BYTES);
        let side = limit.saturating_sub(unauthenticated).saturating_sub(reserve).max(limit / 3) / 2;
        Memory {
            limit,
            requests: Pool::new(side),
            responses: Pool::new(side),
            unauthenticated: Pool::new(unauthenticated),
            wait_count: AtomicU64::new(0),
            closed_count: AtomicU64::new(0),
        }
    }

    #[must_use]
    pub fn used(&self) -> MemoryUse {
        MemoryUse {
            limit_bytes: self.limit,
            request_bytes: self.requests.used(),
            response_bytes: self.responses.used(),
            unauthenticated_bytes: self.unauthenticated.used(),
            wait_count: self.wait_count.load(Ordering::Relaxed),
            closed_count: self.closed_count.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn unauthenticated(&self) -> &Pool {
        &self.unauthenticated
    }

    /// Wakes whoever has been passed over. Return whether one has waited for longer than `patience`.
    pub(crate) fn look(&self, patience: Duration) -> bool {
        self.unauthenticated.look();
        let first = [self.requests.look(), self.responses.look()].into_iter().flatten().min();
        first.is_some_and(|since| since.elapsed() > patience)
    }

    pub(crate) fn note_closed(&self) {
        self.closed_count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_wait(&self) {
        self.wait_count.fetch_add(1, Ordering::Relaxed);
    }

    fn pool(&self, side: Side) -> &Pool {
        match side {
            Side::Requests => &self.requests,
            Side::Responses => &self.responses,
        }
    }
}

/// The part of one connection.
#[derive(Debug)]
pub(crate) struct Account {
    memory: Arc<Memory>,
    requests: Pool,
    responses: Pool,
}

impl Account {
    pub fn new(memory: &Arc<Memory>) -> Account {
        let part = |pool: &Pool| Pool::new(pool.bytes_max() / CONNECTION_PART);
        Account { memory: Arc::clone(memory), requests: part(&memory.requests), responses: part(&memory.responses) }
    }

    pub fn used(&self) -> usize {
        self.requests.used() + self.responses.used()
    }

    /// See [`Memory::look`].
    pub fn look(&self) {
        self.requests.look();
        self.responses.look();
    }

    /// Its own pool, then the one of all.
    fn pools(&self, side: Side) -> [&Pool; 2] {
        let own = match side {
            Side::Requests => &self.requests,
            Side::Responses => &self.responses,
        };
        [own, self.memory.pool(side)]
    }

    fn has_room(&self, side: Side) -> bool {
        self.pools(side).iter().all(|pool| pool.has_room())
    }

    fn take(&self, side: Side, bytes: usize) {
        self.pools(side).iter().for_each(|pool| pool.take(bytes));
    }

    fn give_back(&self, side: Side, bytes: usize) {
        self.pools(side).iter().for_each(|pool| pool.give_back(bytes));
    }

    fn poll_room(&self, side: Side, seats: &mut [Seat; 2], cx: &mut Context<'_>) -> Poll<()> {
        let may_exceed = matches!(side, Side::Requests);
        let waited = seats.iter().any(Seat::waits);
        for (pool, seat) in self.pools(side).into_iter().zip(seats) {
            if pool.poll_room(seat, may_exceed, cx).is_pending() {
                if !waited {
                    self.memory.note_wait();
                }
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    fn leave(&self, side: Side, seats: &mut [Seat; 2]) {
        self.pools(side).into_iter().zip(seats).for_each(|(pool, seat)| pool.withdraw(seat));
    }
}

/// What a request holds: its bytes, from the transport until its protocol is done with them. It is given back with the request.
#[derive(Debug)]
pub(crate) struct Share {
    account: Arc<Account>,
    held: AtomicUsize,
    /// Not before the client has logged in.
    is_counted: AtomicBool,
    seats: Mutex<[Seat; 2]>,
    /// Whether it has a seat, to be read without the lock.
    is_seated: AtomicBool,
    /// Whether bytes were given back since this was asked for.
    has_given: AtomicBool,
}

impl Share {
    pub fn new(account: &Arc<Account>) -> Share {
        Share {
            account: Arc::clone(account),
            held: AtomicUsize::new(0),
            is_counted: AtomicBool::new(false),
            seats: Mutex::default(),
            is_seated: AtomicBool::new(false),
            has_given: AtomicBool::new(false),
        }
    }

    /// Ready when more of the request may be read.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_seated.load(Ordering::Relaxed) && self.account.has_room(Side::Requests) {
            return Poll::Ready(());
        }
        let mut seats = self.lock();
        let room = self.account.poll_room(Side::Requests, &mut seats, cx);
        self.is_seated.store(seats.iter().any(|seat| seat.waits() || seat.exceeds()), Ordering::Relaxed);
        room
    }

    /// Whether there is room for more.
    pub fn has_room(&self) -> bool {
        self.account.has_room(Side::Requests)
    }

    /// Whether it goes on beyond a bound.
    pub fn exceeds(&self) -> bool {
        self.is_seated.load(Ordering::Relaxed) && self.lock().iter().any(Seat::exceeds)
    }

    /// Whether it goes on beyond the bound of all, not only beyond its connection's part.
    pub fn exceeds_all(&self) -> bool {
        self.is_seated.load(Ordering::Relaxed) && self.lock().last().is_some_and(Seat::exceeds)
    }

    /// Whether others wait while it exceeds a bound.
    pub fn is_waited_for(&self) -> bool {
        let seats = self.lock();
        let pools = self.account.pools(Side::Requests);
        pools.iter().zip(seats.iter()).any(|(pool, seat)| seat.exceeds() && pool.is_waited_for())
    }

    /// Whether bytes were given back since this was asked last.
    pub fn has_given_back(&self) -> bool {
        self.has_given.swap(false, Ordering::Relaxed)
    }

    /// Counts bytes that came. Those of a client that has not logged in are counted with its connection.
    pub fn take(&self, bytes: usize, is_known: bool) {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        if self.is_counted.load(Ordering::Relaxed) {
            self.account.take(Side::Requests, bytes);
        } else if is_known {
            self.is_counted.store(true, Ordering::Relaxed);
            self.account.take(Side::Requests, before + bytes);
        }
    }

    /// Gives back bytes that are stored, or answered; no more than are held.
    pub fn give_back(&self, bytes: usize) {
        let held = self.held.load(Ordering::Relaxed);
        let bytes = bytes.min(held);
        self.held.store(held - bytes, Ordering::Relaxed);
        self.has_given.store(true, Ordering::Relaxed);
        if bytes > 0 && self.is_counted.load(Ordering::Relaxed) {
            self.account.give_back(Side::Requests, bytes);
        }
        self.rest();
    }

    /// Lets another request exceed the bound once this one holds nothing, or there is room.
    pub fn rest(&self) {
        if !self.is_seated.load(Ordering::Relaxed) {
            return;
        }
        if self.held.load(Ordering::Relaxed) == 0 || self.account.has_room(Side::Requests) {
            self.account.leave(Side::Requests, &mut self.lock());
            self.is_seated.store(false, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, [Seat; 2]> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(usize::MAX);
    }
}

/// What a response holds, until its last byte was written.
#[derive(Debug)]
pub(crate) struct Part {
    account: Arc<Account>,
    bytes: usize,
}

impl Part {
    /// Takes it without waiting: for small responses, and for those that a request waits for.
    pub fn take(account: &Arc<Account>, bytes: usize) -> Part {
        account.take(Side::Responses, bytes);
        Part { account: Arc::clone(account), bytes }
    }

    /// Corrects what was estimated.
    pub fn resize(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.account.take(Side::Responses, more),
            None => self.account.give_back(Side::Responses, self.bytes - bytes),
        }
        self.bytes = bytes;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.account.give_back(Side::Responses, self.bytes);
    }
}

/// A stream of responses, as it waits for room for the next one.
#[derive(Debug)]
pub(crate) struct Outgoing {
    account: Arc<Account>,
    seats: [Seat; 2],
}

impl Outgoing {
    pub fn new(account: &Arc<Account>) -> Outgoing {
        Outgoing { account: Arc::clone(account), seats: <[Seat; 2]>::default() }
    }

    pub fn has_room(&self) -> bool {
        self.account.has_room(Side::Responses)
    }

    /// Takes so many bytes, when there is room.
    pub fn part(&mut self, bytes: usize) -> Option<Part> {
        if !self.has_room() {
            return None;
        }
        self.account.leave(Side::Responses, &mut self.seats);
        Some(Part::take(&self.account, bytes))
    }

    /// Waits no more.
    pub fn leave(&mut self) {
        self.account.leave(Side::Responses, &mut self.seats);
    }

    /// Waits until there is room.
    pub async fn until_room(&mut self) {
        std::future::poll_fn(|cx| self.poll_room(cx)).await;
    }

    /// Ready once there is room.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        self.account.poll_room(Side::Responses, &mut self.seats, cx)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.account.leave(Side::Responses, &mut self.seats);
    }
}
