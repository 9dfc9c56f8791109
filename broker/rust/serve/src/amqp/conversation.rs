//! The socket of a connection: frames are read and answers written at the same time, so that no client that only does one of both
//! holds up the other.
//!
//! What must stay true: nothing more is read while too much is not written, or waits for the disk; deliveries wait before. A
//! client is gone after two heartbeats of silence. What came and is not stored, and what is not written, counts in the budget of
//! memory, and waits for it.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use penstock_wire::amqp::connection::Phase;
use penstock_wire::amqp::frame::{PROTOCOL_HEADER, is_served, next_frame, put_heartbeat};
use penstock_wire::amqp::heartbeat::{Due, Heartbeat};
use penstock_wire::amqp::reply::{Exception, ReplyCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, sleep_until};

use super::session::Session;
use crate::host::broker::Broker;
use crate::host::connection::Connection;
use crate::host::memory::{Outgoing, Part, Share};
use crate::host::stopping::until_stopped;

/// So much is read at a time.
const READ_BYTES: usize = 64 << 10;

/// Deliveries wait while so much is not written.
const OUT_BYTES_MAX: usize = 256 << 10;

/// So much may always be on its way, also when the budget is spent: consumers of small messages wait for no others.
const OUT_BYTES_FREE: usize = 4 << 10;

/// Nothing is read while so much is not written: confirms, returns and answers have to go somewhere.
const UNWRITTEN_BYTES_MAX: usize = 4 << 20;

/// A buffer that is larger is freed when it is empty.
const KEPT_BYTES: usize = 512 << 10;

/// A client that was told of the end may take so long to confirm it.
const CLOSING: Duration = Duration::from_secs(10);

/// Serves a connection to its end.
pub(super) async fn converse(broker: Broker, connection: Connection) {
    let peer = connection.peer().clone();
    let (mut reading, mut writing) = split(connection);
    let mut input = BytesMut::new();
    loop {
        match is_served(&input) {
            Some(true) => break,
            Some(false) => {
                // The client is served nothing; whether it reads that does not matter.
                let _ = writing.write_all(&PROTOCOL_HEADER).await;
                return;
            }
            None => {}
        }
        if !matches!(reading.read_buf(&mut input).await, Ok(1..)) {
            return;
        }
    }
    input.advance(PROTOCOL_HEADER.len());
    let account = Arc::clone(&peer.state.account);
    let session = Session::greet(broker.clone(), peer);
    let (begun, heartbeat) = (Instant::now(), Heartbeat::new(0, 0));
    let conversation = Conversation {
        broker,
        session,
        input,
        written: 0,
        begun,
        heartbeat,
        is_agreed: false,
        is_deaf: false,
        closing_at: None,
        share: Share::new(&account),
        shared: 0,
        part: Part::take(&account, 0),
        outgoing: Outgoing::new(&account),
    };
    conversation.run(reading, writing).await;
}

struct Conversation {
    broker: Broker,
    session: Session,
    input: BytesMut,
    /// How much of what there is to say was written.
    written: usize,
    begun: Instant,
    heartbeat: Heartbeat,
    /// Whether heartbeats are as they were agreed.
    is_agreed: bool,
    /// Whether nothing that comes can be read any more.
    is_deaf: bool,
    closing_at: Option<Instant>,
    /// The part of the memory budget for bytes that came and are not stored, and how many bytes it has taken.
    share: Share,
    shared: usize,
    /// The part of the memory budget for bytes that are not written yet.
    part: Part,
    outgoing: Outgoing,
}

enum Happened {
    Read(std::io::Result<usize>),
    Wrote(std::io::Result<usize>),
    /// Whether the disk works.
    Work(bool),
    HeartbeatDue,
    Stopping,
    TooLate,
}

impl Conversation {
    async fn run(mut self, mut reading: ReadHalf<Connection>, mut writing: WriteHalf<Connection>) {
        loop {
            self.take_frames().await;
            let stopping = *self.broker.stopping.borrow();
            let out_bytes_max = if self.outgoing.has_room() { OUT_BYTES_MAX } else { OUT_BYTES_FREE };
            self.session.work(stopping, out_bytes_max).await;
            self.note_agreement();
            self.count_memory();
            if self.session.is_over() && self.written == self.session.out.len() {
                // A client that has gone does not matter.
                let _ = writing.shutdown().await;
                return;
            }
            match self.next(&mut reading, &mut writing).await {
                Happened::Read(Ok(1..)) => self.heartbeat.received(self.now_ms()),
                Happened::Wrote(Ok(count @ 1..)) => self.note_written(count),
                Happened::Read(_) | Happened::Wrote(_) | Happened::TooLate => return,
                Happened::Work(true) => {}
                Happened::Work(false) => self.session.fail_for_disk().await,
                Happened::HeartbeatDue => match self.heartbeat.due(self.now_ms()) {
                    Due::Gone => return,
                    Due::Send => {
                        put_heartbeat(&mut self.session.out);
                        self.heartbeat.sent(self.now_ms());
                    }
                    Due::At(_) | Due::Nothing => {}
                },
                Happened::Stopping => {
                    let text = "broker forced connection closure with reason 'shutdown'";
                    self.session.fail(Exception::of_no_method(ReplyCode::ConnectionForced, text)).await;
                }
            }
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
        self.part.resize(self.session.out.len());
    }

    fn unwritten(&self) -> usize {
        self.session.out.len() - self.written
    }

    fn may_read(&self) -> bool {
        !self.session.is_over() && self.unwritten() < UNWRITTEN_BYTES_MAX && !self.session.is_crowded()
    }

    async fn take_frames(&mut self) {
        while !self.is_deaf && self.may_read() {
            match next_frame(&self.input, self.session.limits().frame_bytes_max) {
                Ok(Some((frame, length))) => {
                    self.session.take(frame).await;
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

    /// Begins heartbeats when they were agreed, and the client's last time when it was told of the end.
    fn note_agreement(&mut self) {
        if !self.is_agreed && self.session.is_agreed() {
            self.is_agreed = true;
            self.heartbeat = Heartbeat::new(self.session.limits().heartbeat_seconds, self.now_ms());
        }
        if self.session.phase() == Phase::Closing {
            self.closing_at.get_or_insert_with(|| Instant::now() + CLOSING);
        }
    }

    fn note_written(&mut self, count: usize) {
        self.written += count;
        self.heartbeat.sent(self.now_ms());
        let out = &mut self.session.out;
        if self.written == out.len() {
            self.written = 0;
            out.clear();
            if out.capacity() > KEPT_BYTES {
                *out = Vec::new();
            }
        } else if self.written > KEPT_BYTES {
            out.drain(..self.written);
            self.written = 0;
        }
    }

    async fn next(&mut self, reading: &mut ReadHalf<Connection>, writing: &mut WriteHalf<Connection>) -> Happened {
        let (may_read, may_write) = (self.may_read(), self.unwritten() > 0);
        let heartbeat_at = match self.heartbeat.due(self.now_ms()) {
            Due::Nothing => None,
            Due::At(ms) => Some(self.begun + Duration::from_millis(ms)),
            Due::Send | Due::Gone => return Happened::HeartbeatDue,
        };
        let is_running = self.session.phase() == Phase::Running;
        let is_held_up = self.session.is_held_up();
        let closing_at = self.closing_at;
        let until = |at: Option<Instant>| async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        self.input.reserve(READ_BYTES);
        let Conversation { broker, session, input, written, share, outgoing, .. } = self;
        let read = async {
            poll_fn(|cx| share.poll_room(cx)).await;
            reading.read_buf(input).await
        };
        let unwritten = session.out.get(*written..).unwrap_or_default();
        // Each of these may be dropped at any time without a loss.
        tokio::select! {
            wrote = writing.write(unwritten), if may_write => Happened::Wrote(wrote),
            read = read, if may_read => Happened::Read(read),
            () = until_stopped(&mut broker.stopping), if is_running => Happened::Stopping,
            () = until(heartbeat_at) => Happened::HeartbeatDue,
            () = until(closing_at) => Happened::TooLate,
            is_good = session.until_work(), if is_running && !(is_held_up && may_write) => Happened::Work(is_good),
            () = outgoing.until_room(), if is_held_up && !may_write => Happened::Work(true),
        }
    }
}
