//! The socket of a connection: frames are read and answers written at the same time, so that no client that only does one of both
//! holds up the other.
//!
//! What must stay true: nothing more is read while too much is not written, or waits for the disk; deliveries wait before. A
//! client is gone after two heartbeats of silence, in which the broker has read. What came and is not stored, and what is not
//! written, counts in the budget of memory, and waits for it. Whatever a connection waits for, it ends when it has to: an
//! administrator closes it, others wait for the memory that it holds, it does not log in or enters no virtual host, or the broker stops.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use penstock_engine::Metric;
use penstock_wire::amqp::connection::Phase;
use penstock_wire::amqp::frame::{PROTOCOL_HEADER, is_served, next_frame, put_heartbeat};
use penstock_wire::amqp::heartbeat::{Due, Heartbeat};
use penstock_wire::amqp::reply::Exception;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::errors::{of_end, of_user, others_wait, shutdown};
use super::exceeding::Exceeding;
use super::relay::Relayed;
use super::relay::splice::Splice;
use super::session::Session;
use super::socket::{READ_BYTES, Read, Reading, poll_write};
use crate::host::broker::Broker;
use crate::host::connection::{Connection, Ended};
use crate::host::memory::{Outgoing, Share};
use crate::host::peer::Peer;
use crate::host::refusal::Refusal;
use crate::host::rights::{Rights, until_refused};
use crate::host::stopping::until_stopped;

/// Deliveries wait while so much is not written.
const OUT_BYTES_MAX: usize = 256 << 10;

/// So much may always be on its way, also when the budget is spent: consumers of small messages wait for no others.
const OUT_BYTES_FREE: usize = 4 << 10;

/// Nothing is read while so much is not written: confirms, returns and answers have to go somewhere. When the budget is spent,
/// nothing is read while as much is not written as may always be on its way.
const UNWRITTEN_BYTES_MAX: usize = 4 << 20;

/// A buffer that is larger is freed when it is empty.
const KEPT_BYTES: usize = 512 << 10;

/// A client that was told of the end may take so long to confirm it, and so long when the broker stops.
const CLOSING: Duration = Duration::from_secs(10);
const STOPPING: Duration = Duration::from_secs(2);

/// A client that waits for memory for so long is told.
const SHORT_OF_MEMORY: Duration = Duration::from_secs(1);

/// The time that a connection's last frames have to reach the client, and the most bytes that may wait before them.
const LAST_WORDS: Duration = Duration::from_secs(1);
const LAST_BYTES_MAX: usize = 256 << 10;

/// Serves a connection to its end. Its task has the size of its largest state for as long as it lasts, so what is large and
/// short, such as handling frames, is on the heap meanwhile.
pub(super) fn converse(broker: Broker, socket: Connection) -> impl Future<Output = ()> + Send {
    let begun = Box::pin(begin(broker, Box::new(socket)));
    async move {
        if let Some((conversation, socket)) = begun.await {
            conversation.run(socket).await;
        }
    }
}

/// Reads the header with which a connection begins. A client that speaks something else is told what is served.
async fn begin(mut broker: Broker, mut socket: Box<Connection>) -> Option<(Box<Conversation>, Box<Connection>)> {
    let mut input = BytesMut::new();
    loop {
        match is_served(&input) {
            Some(true) => break,
            Some(false) => {
                // The client is served nothing; whether it reads that does not matter.
                let _ = socket.write_all(&PROTOCOL_HEADER).await;
                return None;
            }
            None => {}
        }
        tokio::select! {
            read = socket.read_buf(&mut input) => if !matches!(read, Ok(1..)) { return None },
            () = until_stopped(&mut broker.stopping) => return None,
        }
    }
    input.advance(PROTOCOL_HEADER.len());
    let peer = socket.peer().clone();
    let has_external = tokio::select! {
        has_external = names_user(&broker, &peer) => has_external,
        _ = socket.until_ended() => return None,
    };
    Some((Box::new(Conversation::begin(broker, peer, input, has_external)), socket))
}

/// Whether the certificate of a client names a user.
async fn names_user(broker: &Broker, peer: &Peer) -> bool {
    if peer.certificate.is_none() || !broker.certificates_name_users {
        return false;
    }
    peer.asks();
    broker.names_user(&peer.caller("")).await
}

struct Conversation {
    broker: Broker,
    session: Session,
    /// Where the client goes on that has entered a virtual host of another broker.
    relayed: Option<Box<Relayed>>,
    input: BytesMut,
    /// How much of what there is to say was written.
    written: usize,
    /// Whether the socket may keep something of that.
    needs_flush: bool,
    begun: Instant,
    heartbeat: Heartbeat,
    /// Whether heartbeats are as they were agreed.
    is_agreed: bool,
    /// When it last waited for the socket.
    waited_ms: u64,
    /// Whether nothing that comes can be read any more.
    is_deaf: bool,
    is_stopping: bool,
    /// Whether its user may still be here, once it has entered.
    rights: Option<Rights>,
    closing_at: Option<Instant>,
    /// Until when it has to enter a virtual host, from its log-in on until it has.
    enters_by: Option<Instant>,
    /// The part of the memory budget for bytes that came and are not stored, and how many bytes it has taken.
    share: Share,
    shared: usize,
    exceeding: Exceeding,
    /// Since when it waits for room in the memory budget before it reads on.
    short_since: Option<Instant>,
    /// Whether the disk is full.
    disk: watch::Receiver<bool>,
    /// Waits for room among the bytes that are not written.
    outgoing: Outgoing,
}

enum Happened {
    Read(std::io::Result<usize>),
    Wrote(std::io::Result<usize>),
    /// Whether the disk works.
    Work(bool),
    HeartbeatDue,
    /// It goes on beyond the bound of the memory budget, or has done so for too long.
    Exceeds,
    /// It has to wait for room in the budget.
    ShortOfMemory,
    Ended(Ended),
    /// Its user may not be here any more.
    Refused(Refusal),
    Stopping,
    TooLate,
    /// It has logged in and enters no virtual host.
    TooSlow,
}

impl Conversation {
    fn begin(broker: Broker, peer: Peer, input: BytesMut, has_external: bool) -> Conversation {
        let account = Arc::clone(&peer.state.account);
        let exceeding = Exceeding::new(broker.first_request, broker.message_bytes_max.saturating_add(2 * READ_BYTES));
        Conversation {
            session: Session::greet(broker.clone(), peer, has_external),
            relayed: None,
            disk: broker.engine.watch_space(),
            short_since: None,
            broker,
            input,
            written: 0,
            needs_flush: false,
            begun: Instant::now(),
            heartbeat: Heartbeat::new(0, 0),
            is_agreed: false,
            waited_ms: 0,
            is_deaf: false,
            is_stopping: false,
            rights: None,
            closing_at: None,
            enters_by: None,
            share: Share::new(&account),
            shared: 0,
            exceeding,
            outgoing: Outgoing::new(&account),
        }
    }

    async fn run(mut self: Box<Self>, mut socket: Box<Connection>) {
        loop {
            let ended = tokio::select! {
                biased;
                () = Box::pin(self.advance()) => None,
                // What is half done then is undone as for any client that goes away.
                ended = socket.until_ended() => Some(ended),
            };
            if let Some(ended) = ended {
                return self.tell_end(&mut socket, of_end(ended)).await;
            }
            if let Some(relayed) = self.relayed.take() {
                return Box::pin(self.splice(*relayed, &socket).run(socket)).await;
            }
            let is_too_much = !self.exceeding.note(self.share.exceeds(), self.shared, Instant::now());
            if is_too_much && self.share.exceeds_all() {
                return self.tell_end(&mut socket, Some(others_wait())).await;
            }
            if self.session.is_over() && self.written == self.session.out.len() {
                drop(self);
                // The client may not have heard yet that all is said, and still send.
                return socket.say_last(&[], LAST_WORDS).await;
            }
            match self.next(&mut socket).await {
                Happened::Read(Ok(1..)) => self.heartbeat.received(self.now_ms()),
                Happened::Wrote(Ok(count @ 1..)) => self.note_written(count),
                Happened::Read(_) | Happened::Wrote(_) | Happened::TooLate => return,
                Happened::TooSlow => {
                    self.broker.engine.counters().add(Metric::ConnectionsTooSlow, 1);
                    return;
                }
                Happened::Work(true) => {}
                Happened::Work(false) => Box::pin(self.session.fail_for_disk()).await,
                Happened::HeartbeatDue => match self.heartbeat.due(self.now_ms()) {
                    Due::Gone => return,
                    Due::Send => {
                        if self.session.out.is_empty() {
                            // One that was idle for so long keeps no large buffer.
                            self.session.out = Vec::new();
                        }
                        put_heartbeat(&mut self.session.out);
                        self.heartbeat.sent(self.now_ms());
                    }
                    Due::At(_) | Due::Nothing => {}
                },
                Happened::ShortOfMemory => {
                    self.short_since.get_or_insert_with(Instant::now);
                }
                Happened::Exceeds => {
                    if self.exceeding.is_too_late(self.share.is_waited_for(), Instant::now()) {
                        return self.tell_end(&mut socket, Some(others_wait())).await;
                    }
                }
                Happened::Ended(ended) => return self.tell_end(&mut socket, of_end(ended)).await,
                Happened::Refused(refused) => {
                    self.rights = None;
                    Box::pin(self.session.fail(of_user(&refused))).await;
                }
                Happened::Stopping => {
                    self.is_stopping = true;
                    match self.session.phase() {
                        Phase::Running => Box::pin(self.session.fail(shutdown())).await,
                        Phase::Closing => {}
                        _ => return,
                    }
                }
            }
        }
    }

    /// Does what can be done without the socket.
    async fn advance(&mut self) {
        self.note_alarms();
        self.take_frames().await;
        let stopping = *self.broker.stopping.borrow();
        let out_bytes_max = if self.outgoing.has_room() { OUT_BYTES_MAX } else { OUT_BYTES_FREE };
        self.session.work(stopping, out_bytes_max).await;
        self.rights = self.session.take_rights().or(self.rights.take());
        self.note_agreement();
        self.count_memory();
    }

    fn note_alarms(&mut self) {
        let is_short = self.short_since.is_some_and(|since| since.elapsed() >= SHORT_OF_MEMORY);
        if self.session.is_running() {
            self.session.note_alarms(*self.disk.borrow_and_update(), is_short);
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn count_memory(&mut self) {
        let held = self.input.len() + self.session.held_bytes();
        match held.checked_sub(self.shared) {
            Some(more) => self.share.take(more, self.session.is_agreed()),
            None => self.share.give_back(self.shared - held),
        }
        self.shared = held;
        self.session.count_unwritten();
    }

    fn unwritten(&self) -> usize {
        self.session.out.len() - self.written
    }

    fn may_read(&self) -> bool {
        // A connection without room goes on as soon as its client reads its answers. It waits for no other connection.
        let unwritten_max = if self.outgoing.has_room() { UNWRITTEN_BYTES_MAX } else { OUT_BYTES_FREE };
        let is_served = !self.session.is_over() && self.relayed.is_none();
        is_served && self.unwritten() < unwritten_max && !self.session.is_crowded()
    }

    async fn take_frames(&mut self) {
        while !self.is_deaf && self.may_read() {
            let taken = self.session.take_messages(&self.input);
            if taken > 0 {
                self.input.advance(taken);
                continue;
            }
            match next_frame(&self.input, self.session.limits().frame_bytes_max) {
                Ok(Some((frame, length))) => {
                    self.relayed = self.session.take(frame).await;
                    self.input.advance(length);
                }
                Ok(None) => return,
                Err(error) => {
                    self.is_deaf = true;
                    self.session.fail(error.into()).await;
                }
            }
        }
        if self.is_deaf {
            self.input.clear();
        }
    }

    /// Begins heartbeats when they were agreed, the time to enter a virtual host after the log-in, and the client's last time when
    /// it was told of the end.
    fn note_agreement(&mut self) {
        self.enters_by = match self.session.phase() {
            Phase::Tuning | Phase::Opening => {
                self.enters_by.or_else(|| Some(Instant::now() + self.broker.first_request))
            }
            _ => None,
        };
        if !self.is_agreed && self.session.is_agreed() {
            self.is_agreed = true;
            self.heartbeat = Heartbeat::new(self.session.limits().heartbeat_seconds, self.now_ms());
        }
        if self.session.phase() == Phase::Closing {
            let last = Instant::now() + if self.is_stopping { STOPPING } else { CLOSING };
            let at = self.closing_at.get_or_insert(last);
            *at = last.min(*at);
        }
    }

    fn note_written(&mut self, count: usize) {
        self.written += count;
        self.needs_flush = true;
        self.heartbeat.sent(self.now_ms());
        let is_running = self.session.is_running();
        let out = &mut self.session.out;
        if self.written == out.len() {
            self.written = 0;
            out.clear();
            // The answers of a log-in are longer than what an idle connection says later.
            if out.capacity() > KEPT_BYTES || !is_running {
                *out = Vec::new();
            }
        } else if self.written > KEPT_BYTES {
            out.drain(..self.written);
            self.written = 0;
        }
    }

    /// What has to happen first that needs nobody else, and when.
    fn deadline(&self, now: Instant) -> Option<(Instant, Happened)> {
        let heartbeat_at = match self.heartbeat.due(self.waited_ms) {
            Due::Nothing => None,
            Due::At(ms) => Some(self.begun + Duration::from_millis(ms)),
            Due::Send | Due::Gone => Some(now),
        };
        // A client is told once.
        let told_at = self.short_since.map(|since| since + SHORT_OF_MEMORY).filter(|at| *at > now);
        let all = [
            (heartbeat_at, Happened::HeartbeatDue),
            (self.exceeding.until(), Happened::Exceeds),
            (self.closing_at, Happened::TooLate),
            (self.enters_by, Happened::TooSlow),
            (self.session.paused_until(), Happened::Work(true)),
            (told_at, Happened::Work(true)),
        ];
        all.into_iter().filter_map(|(at, what)| Some((at?, what))).min_by_key(|(at, _)| *at)
    }

    /// What the broker tells a connection that has no time to wait for it.
    fn told(&self) -> Option<Happened> {
        if !self.is_stopping && *self.broker.stopping.borrow() {
            return Some(Happened::Stopping);
        }
        let refused = self.rights.as_ref().filter(|_| self.session.is_running())?.refused();
        refused.map(Happened::Refused)
    }

    /// Waits for the first of all that a connection waits for. Its socket comes first: what else there is was looked at before.
    async fn next(&mut self, socket: &mut Connection) -> Happened {
        let (began_ms, now) = (self.now_ms(), Instant::now());
        // Nothing was read since it last waited.
        self.heartbeat.not_read(self.waited_ms, began_ms);
        self.waited_ms = began_ms;
        let deadline = self.deadline(now);
        let (deadline, due) = match (self.told(), deadline) {
            (Some(told), _) => return told,
            (None, Some((at, due))) if at <= now => return due,
            (None, Some((at, due))) => (Some(at), due),
            (None, None) => (None, Happened::Work(true)),
        };
        let (may_read, may_write) = (self.may_read(), self.unwritten() > 0);
        let (is_running, is_stopping) = (self.session.is_running(), self.is_stopping);
        let is_held_up = self.session.is_held_up();
        let waits_for_room = self.session.waits_for_room() || (is_held_up && !may_write);
        if !waits_for_room {
            self.outgoing.leave();
        }
        let Conversation { broker, session, input, written, needs_flush, share, outgoing, rights, disk, .. } = self;
        let share = session.is_agreed().then_some(&*share);
        let (is_noted, is_waiting) = (self.exceeding.is_noted(), self.short_since.is_some());
        let mut reading = Reading { input, share, is_noted, is_waiting, has_read: false };
        let unwritten = session.out.get(*written..).unwrap_or_default();
        let over_socket = poll_fn(|cx| {
            if let Poll::Ready(ended) = socket.poll_ended(cx) {
                return Poll::Ready(Happened::Ended(ended));
            }
            if let Poll::Ready(wrote) = poll_write(socket, unwritten, needs_flush, cx) {
                return Poll::Ready(Happened::Wrote(wrote));
            }
            if !may_read {
                return Poll::Pending;
            }
            reading.poll(socket, cx).map(|read| match read {
                Read::Came(came) => Happened::Read(came),
                Read::Exceeds => Happened::Exceeds,
                Read::Waits => Happened::ShortOfMemory,
            })
        });
        // Each of these may be dropped at any time without a loss.
        let happened = tokio::select! {
            biased;
            happened = over_socket => happened,
            is_good = session.until_work(), if is_running && !(is_held_up && may_write) => Happened::Work(is_good),
            () = outgoing.until_room(), if waits_for_room => Happened::Work(true),
            () = until_stopped(&mut broker.stopping), if !is_stopping => Happened::Stopping,
            refused = until_refused(rights), if is_running => Happened::Refused(refused),
            Ok(()) = disk.changed(), if is_running => Happened::Work(true),
            () = until(deadline) => due,
        };
        let has_read = reading.has_read;
        self.note_wait(may_read, has_read);
        happened
    }

    /// Takes note of a wait that is over, and whether the socket was read in it.
    fn note_wait(&mut self, may_read: bool, has_read: bool) {
        let now_ms = self.now_ms();
        if !has_read {
            self.heartbeat.not_read(self.waited_ms, now_ms);
        }
        if has_read || !may_read {
            self.short_since = None;
        }
        self.waited_ms = now_ms;
    }

    /// Goes on by passing bytes on. What a connection has here is free then.
    fn splice(self: Box<Self>, relayed: Relayed, socket: &Connection) -> Splice {
        let unwritten = self.session.out.get(self.written..).unwrap_or_default();
        Splice::new(relayed, socket, (unwritten, self.input), self.broker.stopping)
    }

    /// Tells a client that has logged in why its connection ends, if its socket takes that soon. What the connection held is free
    /// before.
    async fn tell_end(self: Box<Self>, socket: &mut Connection, exception: Option<Exception>) {
        let Some(exception) = exception.filter(|_| self.session.is_running() && self.unwritten() < LAST_BYTES_MAX)
        else {
            return;
        };
        let mut last = self.session.out.get(self.written..).unwrap_or_default().to_vec();
        exception.put_connection_close(&mut last);
        drop(self);
        socket.say_last(&last, LAST_WORDS).await;
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::{Conversation, converse};

    /// The size of the state of what a function of two arguments returns.
    fn state_bytes<A, B, F>(_: impl FnOnce(A, B) -> F) -> usize {
        size_of::<F>()
    }

    /// Ten thousand connections that do nothing are mostly made of these two: the task alone had 7 KB once.
    #[test]
    fn the_task_of_a_connection_is_small() {
        assert!(state_bytes(converse) <= 1_536, "{}", state_bytes(converse));
        assert!(size_of::<Conversation>() <= 1_792, "{}", size_of::<Conversation>());
    }
}
