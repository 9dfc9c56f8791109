//! A publish stream that batches waiting messages and reconnects. A message is encoded into the current batch under one
//! lock; the stream takes batches whenever the connection accepts one, so batches grow while it is busy and a lone
//! message is sent at once. Messages without an outcome are kept and sent again, in order, on the next connection.
//! Invariant: every assigned number gets exactly one outcome, at the latest when the publisher ends.

use std::future::poll_fn;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use penstock_wire::grpc::{Outcome, encode_publish_open, parse_publish_response};
use tokio::task::AbortHandle;
use tonic::Code;

use crate::back_off::BackOff;
use crate::channel::Channel;
use crate::error::RpcError;
use crate::following::Wait;
use crate::in_flight::{FILLER, InFlight, Next};
use crate::lock::{lock, wait_until};
use crate::message::{Message, OpenBatch};
use crate::outcomes::{CONFIRMED, OutcomeRange, Outcomes, RETURNED};
use crate::runtime;
use crate::wake::Wake;

const METHOD: &str = "/penstock.v1.MessagingService/Publish";
/// How long `close` waits for the broker to end the stream.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct PublisherSettings {
    pub vhost: String,
    pub level: u32,
    /// At most this many messages are without an outcome.
    pub in_flight_max: u64,
    /// At most this many messages are in one request.
    pub batch_max: usize,
    pub reconnect: bool,
    /// The producer of the messages' sequences; empty for none. One stream at a time has a producer, the last one that
    /// asked.
    pub producer: String,
    /// Whether the publisher numbers messages for its producer itself. Then it passes over a refused one, whose number is
    /// given up: it sends a filler with that number, and again what came behind it.
    pub numbers_itself: bool,
}

#[derive(Debug)]
pub struct Publisher {
    shared: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    channel: Arc<Channel>,
    settings: PublisherSettings,
    state: Mutex<State>,
    /// Notified when outcomes arrive and when the publisher ends.
    changed: Condvar,
    wake: Wake,
}

/// Why a stream is over that the broker did not end.
#[derive(Debug)]
enum Over {
    /// The broker stored something not, and may later or elsewhere: it is sent again, with what comes behind it.
    Unavailable(String),
    /// A message was refused, and what came behind it is sent again, after a filler.
    PassedOver,
}

#[derive(Debug)]
struct State {
    last_number: u64,
    numbers_itself: bool,
    /// The batch that messages are still added to, and the number of its first one.
    open: Option<OpenBatch>,
    in_flight: InFlight,
    unresolved_count: u64,
    outcomes: Outcomes,
    /// The request stream, when it has nothing to send.
    idle_stream: Option<Waker>,
    /// Counts connections, so that the request stream of a broken one ends.
    connection: u64,
    /// Why there is no connection, while another one is tried.
    lost: Option<String>,
    is_closing: bool,
    ended: Option<RpcError>,
}

impl Publisher {
    /// Starts to connect at once.
    pub fn new(channel: Arc<Channel>, mut settings: PublisherSettings) -> Result<Self, RpcError> {
        settings.in_flight_max = settings.in_flight_max.max(1);
        settings.batch_max = settings.batch_max.max(1);
        let state = State {
            last_number: 0,
            numbers_itself: settings.numbers_itself,
            open: None,
            in_flight: InFlight::new(),
            unresolved_count: 0,
            outcomes: Outcomes::default(),
            idle_stream: None,
            connection: 0,
            lost: None,
            is_closing: false,
            ended: None,
        };
        let (state, changed, wake) = (Mutex::new(state), Condvar::new(), Wake::new()?);
        let shared = Arc::new(Shared { channel, settings, state, changed, wake });
        let task = runtime::handle()?.spawn(run(Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, task })
    }

    /// Readable while there are outcomes to take.
    pub fn wake_fd(&self) -> RawFd {
        self.shared.wake.raw()
    }

    /// Queues one message and returns its number, or 0 when `in_flight_max` are without an outcome.
    pub fn publish(&self, body: &[u8], message: &Message<'_>) -> Result<u64, RpcError> {
        message.check(body, self.shared.channel.message_bytes_max())?;
        let mut state = lock(&self.shared.state);
        state.accepting()?;
        if state.unresolved_count >= self.shared.settings.in_flight_max {
            return Ok(0);
        }
        state.append(body, message, self.shared.settings.batch_max);
        Ok(self.shared.appended(state))
    }

    /// Queues many messages, waiting while `in_flight_max` are without an outcome; returns the last number. The
    /// message's sequence is the first one's, the others count up.
    pub fn publish_many<'a>(
        &self,
        bodies: impl IntoIterator<Item = &'a [u8]>,
        message: &Message<'_>,
    ) -> Result<u64, RpcError> {
        let (settings, bytes_max) = (&self.shared.settings, self.shared.channel.message_bytes_max());
        let mut message = *message;
        let mut bodies = bodies.into_iter().peekable();
        let mut last = lock(&self.shared.state).last_number;
        while bodies.peek().is_some() {
            let has_room = |state: &State| {
                state.ended.is_some() || state.is_closing || state.unresolved_count < settings.in_flight_max
            };
            let mut state = wait_until(&self.shared.changed, lock(&self.shared.state), None, has_room);
            state.accepting()?;
            // A chunk at a time, so that the stream can take it meanwhile.
            let room = (settings.in_flight_max - state.unresolved_count).min(settings.batch_max as u64);
            let mut refused = Ok(());
            for body in bodies.by_ref().take(room as usize) {
                refused = message.check(body, bytes_max);
                if refused.is_err() {
                    break;
                }
                state.append(body, &message, settings.batch_max);
                message.sequence = message.sequence_after();
            }
            last = self.shared.appended(state);
            refused?;
        }
        Ok(last)
    }

    /// Outcomes since the last call.
    pub fn take(&self) -> Vec<OutcomeRange> {
        self.shared.take(lock(&self.shared.state))
    }

    /// The same, but waits for at least one; empty at the time limit and when the publisher has ended.
    pub fn wait(&self, timeout_ms: u64) -> Vec<OutcomeRange> {
        let timeout = Some(Duration::from_millis(timeout_ms));
        let has_news = |state: &State| state.ended.is_some() || !state.outcomes.is_empty();
        self.shared.take(wait_until(&self.shared.changed, lock(&self.shared.state), timeout, has_news))
    }

    /// Waits until every number has an outcome; returns whether all have.
    pub fn flush(&self, timeout_ms: u64) -> bool {
        let timeout = Some(Duration::from_millis(timeout_ms));
        let is_flushed = |state: &State| state.unresolved_count == 0;
        wait_until(&self.shared.changed, lock(&self.shared.state), timeout, is_flushed).unresolved_count == 0
    }

    /// Why the stream ended for good, if it did.
    pub fn error(&self) -> Option<RpcError> {
        lock(&self.shared.state).ended.clone()
    }

    /// Why there is no connection at the moment; `None` while there is one, and once the stream ended for good.
    pub fn lost(&self) -> Option<String> {
        lock(&self.shared.state).lost.clone()
    }

    /// Sends waiting messages, waits a little for their outcomes, and ends the stream.
    pub fn close(&self) {
        self.close_within(CLOSE_TIMEOUT);
    }

    /// The same, but waits no longer than this for the broker.
    pub fn close_within(&self, timeout: Duration) {
        let state = self.shared.begin_close();
        let state = wait_until(&self.shared.changed, state, Some(timeout), |state| state.ended.is_some());
        let is_ended = state.ended.is_some();
        drop(state);
        if !is_ended {
            self.task.abort();
            self.shared.end(closed());
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        drop(self.shared.begin_close());
    }
}

impl State {
    fn accepting(&self) -> Result<(), RpcError> {
        match &self.ended {
            Some(error) => Err(error.clone()),
            None if self.is_closing => Err(closed()),
            None => Ok(()),
        }
    }

    fn append(&mut self, body: &[u8], message: &Message<'_>, batch_max: usize) {
        let sequence = if self.numbers_itself { self.last_number + 1 } else { message.sequence };
        let message = &Message { sequence, ..*message };
        if !self.open.as_ref().is_some_and(|open| open.has_room(body, message, batch_max)) {
            self.close_batch();
        }
        self.last_number += 1;
        self.unresolved_count += 1;
        let first = self.last_number;
        self.open.get_or_insert_with(|| OpenBatch::begin(first, message)).push(body, message);
    }

    fn close_batch(&mut self) {
        if let Some(open) = self.open.take() {
            self.in_flight.push(open.finish());
        }
    }

    /// The next request to send; messages that must not be sent get their outcome.
    fn next_request(&mut self) -> Option<Bytes> {
        loop {
            if !self.in_flight.has_waiting() {
                self.close_batch();
            }
            match self.in_flight.next()? {
                Next::Send(request) => return Some(request),
                Next::Behind { first, last, refused } => {
                    self.unresolved_count -= last - first + 1;
                    let reason = format!("sequence {refused} of this producer was refused: send it again first");
                    self.outcomes.push(first, last, Code::FailedPrecondition as i32, &reason);
                }
            }
        }
    }

    /// Applies the outcomes of one response. Returns why the stream is over if it is: what it says of messages behind that
    /// is no outcome.
    fn apply(&mut self, response: &[u8]) -> Result<Option<Over>, RpcError> {
        let mut refusals = Vec::new();
        for outcome in parse_publish_response(response) {
            match outcome.map_err(|error| RpcError::new(Code::Internal, error.to_string()))? {
                Outcome::Confirmed { first, last } => self.resolve((first, last), CONFIRMED, "")?,
                Outcome::Returned { number, reason } => refusals.push((number, number, RETURNED, reason)),
                Outcome::Rejected { first, last, code, reason } => refusals.push((first, last, code, reason)),
            }
        }
        refusals.sort_unstable();
        for (first, last, code, reason) in refusals {
            if code == Code::Unavailable as i32 {
                return Ok(Some(Over::Unavailable(reason.to_owned())));
            }
            if self.numbers_itself {
                return self.pass_over(first, code, reason).map(Some);
            }
            self.resolve((first, last), code, reason)?;
        }
        Ok(None)
    }

    fn resolve(&mut self, (first, last): (u64, u64), code: i32, reason: &str) -> Result<(), RpcError> {
        if first == 0 || first > last {
            return Err(RpcError::new(Code::Internal, "the broker answered a range that goes backward"));
        }
        let Self { in_flight, outcomes, unresolved_count, .. } = self;
        in_flight.resolve((first, last), code != CONFIRMED, |first, last| {
            if first != FILLER {
                *unresolved_count -= last - first + 1;
                outcomes.push(first, last, code, reason);
            }
        });
        Ok(())
    }

    /// Resolves a refused message, and has a filler take its sequence on the next stream.
    fn pass_over(&mut self, place: u64, code: i32, reason: &str) -> Result<Over, RpcError> {
        let mut number = None;
        self.in_flight.resolve((place, place), false, |first, _| number = Some(first));
        match number {
            Some(FILLER) => {
                let text = format!(
                    "a refused message cannot be passed over, which the default exchange has to take: {reason}"
                );
                return Err(RpcError { code, ..RpcError::new(Code::Unknown, text) });
            }
            Some(number) => {
                self.unresolved_count -= 1;
                self.outcomes.push(number, number, code, reason);
                self.in_flight.fill(number);
            }
            None => return Err(RpcError::new(Code::Internal, "the broker refused a message that waits for no answer")),
        }
        Ok(Over::PassedOver)
    }
}

impl Shared {
    /// Wakes the request stream after messages were added; returns the last number.
    fn appended(&self, mut state: MutexGuard<'_, State>) -> u64 {
        let last = state.last_number;
        let idle = state.idle_stream.take();
        drop(state);
        if let Some(waker) = idle {
            waker.wake();
        }
        last
    }

    fn take(&self, mut state: MutexGuard<'_, State>) -> Vec<OutcomeRange> {
        let outcomes = state.outcomes.take();
        if !outcomes.is_empty() {
            // Under the lock: otherwise a later outcome's signal could be cleared.
            self.wake.clear();
        }
        outcomes
    }

    fn begin_close(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        state.is_closing = true;
        let idle = state.idle_stream.take();
        drop(state);
        if let Some(waker) = idle {
            waker.wake();
        }
        self.changed.notify_all();
        lock(&self.state)
    }

    fn receive(&self, response: &[u8]) -> Result<Option<Over>, RpcError> {
        let mut state = lock(&self.state);
        let was_empty = state.outcomes.is_empty();
        let applied = state.apply(response);
        if was_empty && !state.outcomes.is_empty() {
            self.wake.set();
        }
        drop(state);
        self.changed.notify_all();
        applied
    }

    /// Ends the publisher: everything without an outcome gets `error`; nothing is accepted any more.
    fn end(&self, error: RpcError) {
        let mut state = lock(&self.state);
        let state_ref = &mut *state;
        if state_ref.ended.is_some() {
            return;
        }
        state_ref.close_batch();
        state_ref.connection += 1;
        let State { in_flight, outcomes, unresolved_count, .. } = state_ref;
        in_flight.abandon(|first, last| outcomes.push(first, last, error.code, &error.message));
        *unresolved_count = 0;
        state_ref.ended = Some(error);
        state_ref.lost = None;
        let idle = state_ref.idle_stream.take();
        self.wake.set();
        drop(state);
        if let Some(waker) = idle {
            waker.wake();
        }
        self.changed.notify_all();
    }

    /// Waits for the back-off, or less when the publisher is closed meanwhile.
    async fn pause(&self, pause: Duration) {
        let closing = poll_fn(|context| {
            let mut state = lock(&self.state);
            if state.is_closing {
                return Poll::Ready(());
            }
            state.idle_stream = Some(context.waker().clone());
            Poll::Pending
        });
        let _ = tokio::time::timeout(pause, closing).await;
    }
}

fn closed() -> RpcError {
    RpcError::new(Code::Cancelled, "the publisher is closed; open another one")
}

/// The requests of one connection: the open, then waiting batches whenever the connection asks for more.
struct Requests {
    shared: Arc<Shared>,
    connection: u64,
    is_opened: bool,
}

impl Stream for Requests {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        let mut state = lock(&this.shared.state);
        if state.connection != this.connection {
            return Poll::Ready(None);
        }
        if !this.is_opened {
            this.is_opened = true;
            let mut open = Vec::new();
            let settings = &this.shared.settings;
            encode_publish_open(&mut open, &settings.vhost, settings.level, &settings.producer);
            return Poll::Ready(Some(open.into()));
        }
        let was_empty = state.outcomes.is_empty();
        let request = state.next_request();
        if was_empty && !state.outcomes.is_empty() {
            this.shared.wake.set();
            this.shared.changed.notify_all();
        }
        if request.is_some() {
            return Poll::Ready(request);
        }
        if state.is_closing {
            return Poll::Ready(None);
        }
        state.idle_stream = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Owns the stream: connects, takes responses, reconnects.
async fn run(shared: Arc<Shared>) {
    let mut back_off = BackOff::default();
    loop {
        let connection = {
            let mut state = lock(&shared.state);
            state.connection += 1;
            state.in_flight.restart();
            state.connection
        };
        let error = converse(&shared, connection, &mut back_off).await;
        let is_closing = {
            let mut state = lock(&shared.state);
            // The broken connection's request stream takes nothing more.
            state.connection += 1;
            state.is_closing
        };
        if is_closing || error.is_final() || !shared.settings.reconnect {
            shared.end(if is_closing && !error.is_final() { closed() } else { error });
            return;
        }
        lock(&shared.state).lost = (error.wait != Wait::None).then_some(error.message);
        shared.pause(back_off.after(error.wait)).await;
        if lock(&shared.state).is_closing {
            return shared.end(closed());
        }
    }
}

/// Runs one connection; returns why it ended.
async fn converse(shared: &Arc<Shared>, connection: u64, back_off: &mut BackOff) -> RpcError {
    let requests = Requests { shared: Arc::clone(shared), connection, is_opened: false };
    let mut responses = match shared.channel.stream(METHOD, requests).await {
        Ok(responses) => responses,
        Err(error) => return error,
    };
    lock(&shared.state).lost = None;
    loop {
        match responses.message().await {
            Ok(Some(response)) => match shared.receive(&response) {
                Ok(None) => back_off.reset(),
                Ok(Some(Over::Unavailable(reason))) => {
                    return responses.given_up(RpcError::new(Code::Unavailable, reason));
                }
                Ok(Some(Over::PassedOver)) => {
                    back_off.reset();
                    let passed = RpcError::new(Code::Unavailable, "a refused message is passed over");
                    return RpcError { wait: Wait::None, ..passed };
                }
                Err(error) => return error,
            },
            Ok(None) => return RpcError::new(Code::Unavailable, "the broker ended the publish stream"),
            Err(error) => return error,
        }
    }
}
