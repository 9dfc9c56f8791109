//! A consume stream that reconnects. A reader turns responses into deliveries that wait here, at most as many as the
//! prefetch allows and no more than `WAITING_BYTES_MAX` and one response; settlements are collected and sent on the
//! same stream. The deliveries of a broken connection are requeued by the broker, so they are dropped here too, unless
//! the broker counts them as acknowledged already.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::Stream;
use penstock_wire::WireError;
use penstock_wire::grpc::{ConsumeEvent, ConsumeOpen, encode_consume_open, encode_flow, parse_consume_response};
use tokio::task::AbortHandle;
use tokio::time::Sleep;
use tonic::Code;

use crate::back_off::BackOff;
use crate::channel::Channel;
use crate::delivery::Deliveries;
use crate::error::RpcError;
use crate::lock::{lock, wait_until};
use crate::runtime;
use crate::settlements::{Due, Settlements};
use crate::wake::Wake;

const METHOD: &str = "/penstock.v1.MessagingService/Consume";
/// The broker's meaning of a prefetch of 0.
const PREFETCH_DEFAULT: u32 = 1_000;
/// Limit of waiting deliveries besides the last response: a prefetch says nothing about the size of messages.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// How long `close` waits for the broker to end the stream.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct ConsumerSettings {
    pub vhost: String,
    pub queue: String,
    pub consumer_tag: String,
    pub prefetch: u32,
    pub auto_ack: bool,
    pub exclusive: bool,
    pub priority: i32,
    /// How long a message may be unsettled; without it the queue decides.
    pub ack_timeout_ms: Option<u64>,
    pub reconnect: bool,
}

#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    channel: Arc<Channel>,
    settings: ConsumerSettings,
    state: Mutex<State>,
    /// Notified when deliveries arrive and when the consumer ends.
    changed: Condvar,
    wake: Wake,
}

#[derive(Debug)]
struct State {
    waiting: Waiting,
    settlements: Settlements,
    consumer_tag: String,
    /// The prefetch to send to the broker; set by `flow`, kept over connections.
    prefetch: u32,
    is_flow_due: bool,
    /// The request stream, when it has nothing to send.
    idle_stream: Option<Waker>,
    /// The reader, when too many deliveries wait.
    full_reader: Option<Waker>,
    connection: u64,
    /// Whether the broker ever accepted the consumer.
    was_open: bool,
    is_closing: bool,
    ended: Option<RpcError>,
}

impl Consumer {
    /// Starts to connect at once.
    pub fn new(channel: Arc<Channel>, settings: ConsumerSettings) -> Result<Self, RpcError> {
        let state = State {
            waiting: Waiting::default(),
            settlements: Settlements::new(allowed(settings.prefetch)),
            consumer_tag: settings.consumer_tag.clone(),
            prefetch: settings.prefetch,
            is_flow_due: false,
            idle_stream: None,
            full_reader: None,
            connection: 0,
            was_open: false,
            is_closing: false,
            ended: None,
        };
        let (state, changed, wake) = (Mutex::new(state), Condvar::new(), Wake::new()?);
        let shared = Arc::new(Shared { channel, settings, state, changed, wake });
        let task = runtime::handle()?.spawn(run(Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, task })
    }

    /// Readable while there are deliveries to take, and once the stream has ended for good.
    pub fn wake_fd(&self) -> RawFd {
        self.shared.wake.raw()
    }

    /// The tag as set, or the one that the broker assigned.
    pub fn consumer_tag(&self) -> String {
        lock(&self.shared.state).consumer_tag.clone()
    }

    /// Returns arrived deliveries, at most `count_max` messages; an error when none is left and the stream ended for
    /// good.
    pub fn take(&self, count_max: usize) -> Result<Vec<Deliveries>, RpcError> {
        self.shared.take(lock(&self.shared.state), count_max)
    }

    /// The same, but waits for at least one; empty at the time limit.
    pub fn wait(&self, count_max: usize, timeout_ms: u64) -> Result<Vec<Deliveries>, RpcError> {
        let timeout = Some(Duration::from_millis(timeout_ms));
        let has_news = |state: &State| state.ended.is_some() || !state.waiting.is_empty();
        let state = wait_until(&self.shared.changed, lock(&self.shared.state), timeout, has_news);
        self.shared.take(state, count_max)
    }

    /// Puts a range into the next settlement: 1 ack, 2 reject, 3 requeue.
    pub fn settle(&self, first: u64, last: u64, outcome: u32) {
        let mut state = lock(&self.shared.state);
        if state.settlements.add(first, last, outcome) {
            wake_stream(state);
        }
    }

    /// Settles one delivery; does nothing once its connection has ended.
    #[inline]
    pub fn settle_delivered(&self, connection: u64, sequence: u64, outcome: u32) {
        let mut state = lock(&self.shared.state);
        if connection == state.connection && state.settlements.add(sequence, sequence, outcome) {
            wake_stream(state);
        }
    }

    /// Changes the prefetch; 0 pauses deliveries.
    pub fn flow(&self, prefetch: u32) {
        let mut state = lock(&self.shared.state);
        state.prefetch = prefetch;
        state.settlements.expect(allowed(prefetch));
        state.is_flow_due = true;
        wake_stream(state);
    }

    /// Sends the collected settlements.
    pub fn flush(&self) {
        let mut state = lock(&self.shared.state);
        state.settlements.flush();
        wake_stream(state);
    }

    /// Sends collected settlements and lets the stream end, without waiting for it.
    pub fn begin_close(&self) {
        self.shared.begin_close();
    }

    /// Sends collected settlements and ends the stream.
    pub fn close(&self) {
        self.close_within(CLOSE_TIMEOUT);
    }

    /// The same, but waits no longer than this for the broker.
    pub fn close_within(&self, timeout: Duration) {
        self.shared.begin_close();
        let is_ended = |state: &State| state.ended.is_some();
        let state = wait_until(&self.shared.changed, lock(&self.shared.state), Some(timeout), is_ended);
        let was_ended = state.ended.is_some();
        drop(state);
        if !was_ended {
            self.task.abort();
            self.shared.end(closed());
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.shared.begin_close();
    }
}

fn wake_stream(mut state: MutexGuard<'_, State>) {
    let idle = state.idle_stream.take();
    drop(state);
    if let Some(waker) = idle {
        waker.wake();
    }
}

fn closed() -> RpcError {
    RpcError::new(Code::Cancelled, "the consumer is closed; open another one")
}

fn unreadable(error: &WireError) -> RpcError {
    RpcError::new(Code::Internal, error.to_string())
}

/// How many messages the broker leaves unacked; a paused consumer settles earlier ones.
fn allowed(prefetch: u32) -> u32 {
    if prefetch == 0 { PREFETCH_DEFAULT } else { prefetch }
}

/// Deliveries that were not taken yet. Invariant: `count` is the number of messages in the batches, `bytes` the length
/// of their responses.
#[derive(Debug, Default)]
struct Waiting {
    batches: VecDeque<Deliveries>,
    count: usize,
    bytes: usize,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn push(&mut self, batch: Deliveries) {
        self.count += batch.len();
        self.bytes += batch.response_bytes();
        self.batches.push_back(batch);
    }

    /// Whether the limit is reached and nothing more is to be read.
    fn is_full(&self, prefetch: u32) -> bool {
        self.count >= allowed(prefetch) as usize || self.bytes >= WAITING_BYTES_MAX
    }

    fn take(&mut self, count_max: usize) -> Vec<Deliveries> {
        let mut taken = Vec::new();
        let mut left = count_max.min(self.count);
        while left > 0
            && let Some(first) = self.batches.front_mut()
        {
            let front = first.split_front(left);
            left -= front.len();
            self.count -= front.len();
            if first.is_empty() {
                self.bytes -= first.response_bytes();
                self.batches.pop_front();
            }
            taken.push(front);
        }
        taken
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl State {
    /// Whether the reader should stop reading.
    fn is_full(&self) -> bool {
        self.waiting.is_full(self.prefetch)
    }
}

impl Shared {
    fn take(&self, mut state: MutexGuard<'_, State>, count_max: usize) -> Result<Vec<Deliveries>, RpcError> {
        if state.waiting.is_empty()
            && let Some(error) = &state.ended
        {
            return Err(error.clone());
        }
        let taken = state.waiting.take(count_max);
        if state.waiting.is_empty() && !taken.is_empty() && state.ended.is_none() {
            // Under the lock: otherwise the signal of a later delivery could be cleared.
            self.wake.clear();
        }
        let reader = if state.is_full() { None } else { state.full_reader.take() };
        drop(state);
        if let Some(waker) = reader {
            waker.wake();
        }
        Ok(taken)
    }

    fn begin_close(&self) {
        let mut state = lock(&self.state);
        state.is_closing = true;
        let wakers = [state.idle_stream.take(), state.full_reader.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
        self.changed.notify_all();
    }

    /// Adds one response. `count_expected` is the approximate number of deliveries in it; returns the number.
    fn receive(&self, response: &Bytes, connection: u64, count_expected: usize) -> Result<usize, RpcError> {
        match parse_consume_response(response).map_err(|error| unreadable(&error))? {
            ConsumeEvent::Opened { consumer_tag } => {
                let mut state = lock(&self.state);
                state.consumer_tag = consumer_tag.to_owned();
                state.was_open = true;
                Ok(0)
            }
            ConsumeEvent::Cancelled { reason } => {
                Err(RpcError::new(Code::Aborted, format!("the broker cancelled the consumer: {reason}")))
            }
            ConsumeEvent::Deliveries(view) => {
                // Without the lock, which every settlement takes.
                let batch =
                    Deliveries::read(response, view, connection, count_expected).map_err(|error| unreadable(&error))?;
                let count = batch.len();
                self.deliver(batch);
                Ok(count)
            }
        }
    }

    fn deliver(&self, batch: Deliveries) {
        let mut state = lock(&self.state);
        // While closing they are requeued when the stream ends.
        if state.is_closing || batch.is_empty() {
            return;
        }
        let was_empty = state.waiting.is_empty();
        state.waiting.push(batch);
        if was_empty {
            self.wake.set();
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits while too many deliveries are not taken.
    async fn has_room(&self) {
        poll_fn(|context| {
            let mut state = lock(&self.state);
            if state.is_closing || !state.is_full() {
                return Poll::Ready(());
            }
            state.full_reader = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Starts a new connection; returns its number.
    fn restart(&self) -> u64 {
        let mut state = lock(&self.state);
        state.connection += 1;
        state.settlements.clear();
        state.is_flow_due = false;
        if !self.settings.auto_ack {
            state.waiting.clear();
            self.wake.clear();
        }
        state.connection
    }

    fn end(&self, error: RpcError) {
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(error);
        // The request stream of this connection ends with it.
        state.connection += 1;
        self.wake.set();
        wake_stream(state);
        self.changed.notify_all();
    }

    /// Waits for the back-off, or less when the consumer is closed meanwhile.
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

/// The requests of one connection: the open, then settlements and changes of the prefetch.
struct Requests {
    shared: Arc<Shared>,
    connection: u64,
    is_opened: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Requests {
    fn open(&self, state: &State) -> Bytes {
        let settings = &self.shared.settings;
        let mut request = Vec::new();
        let open = ConsumeOpen {
            vhost: &settings.vhost,
            queue: &settings.queue,
            consumer_tag: &settings.consumer_tag,
            prefetch: state.prefetch,
            auto_ack: settings.auto_ack,
            exclusive: settings.exclusive,
            priority: settings.priority,
            ack_timeout_ms: settings.ack_timeout_ms,
        };
        encode_consume_open(&mut request, &open);
        request.into()
    }

    /// The next request to send; otherwise sets the timer for a later one.
    fn next_request(&mut self, state: &mut State, context: &mut Context<'_>) -> Option<Bytes> {
        if std::mem::take(&mut state.is_flow_due) {
            let mut request = Vec::new();
            encode_flow(&mut request, state.prefetch);
            return Some(request.into());
        }
        if state.is_closing {
            state.settlements.flush();
        }
        loop {
            let now = Instant::now();
            let due = match state.settlements.due(now) {
                Due::Never => return None,
                Due::Now => return state.settlements.next_request(now),
                Due::At(due) => due.into(),
            };
            let timer = match &mut self.timer {
                Some(timer) => {
                    timer.as_mut().reset(due);
                    timer
                }
                None => self.timer.insert(Box::pin(tokio::time::sleep_until(due))),
            };
            if timer.as_mut().poll(context).is_pending() {
                return None;
            }
        }
    }
}

impl Stream for Requests {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        let shared = Arc::clone(&this.shared);
        let mut state = lock(&shared.state);
        if state.connection != this.connection {
            return Poll::Ready(None);
        }
        if !this.is_opened {
            this.is_opened = true;
            let open = this.open(&state);
            return Poll::Ready(Some(open));
        }
        if let Some(request) = this.next_request(&mut state, context) {
            return Poll::Ready(Some(request));
        }
        if state.is_closing {
            return Poll::Ready(None);
        }
        state.idle_stream = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Owns the stream: connects, reads, reconnects.
async fn run(shared: Arc<Shared>) {
    let mut back_off = BackOff::default();
    loop {
        let connection = shared.restart();
        let error = converse(&shared, connection, &mut back_off).await;
        let (is_closing, was_open) = {
            let mut state = lock(&shared.state);
            // Deliveries of this connection can no longer be settled.
            state.connection += 1;
            (state.is_closing, state.was_open)
        };
        let (is_final, wait) = (is_final(&error, was_open && !shared.channel.is_closed()), error.wait);
        if is_closing || is_final || !shared.settings.reconnect {
            shared.end(if is_closing { closed() } else { told(error) });
            return;
        }
        shared.pause(back_off.after(wait)).await;
        if lock(&shared.state).is_closing {
            return shared.end(closed());
        }
    }
}

/// Whether the consumer ends with this error. One that consumed before survives more errors than one that just starts,
/// whose application should get the error.
fn is_final(error: &RpcError, was_open: bool) -> bool {
    if was_open && error.may_be_own_past() {
        return false;
    }
    error.is_final() || error.code == Code::Aborted as i32 || (!was_open && error.is_limit())
}

/// Return what the application is told of an end. The broker's cancellation is `Aborted` only up to here: a stream that the
/// transport cancelled has its code, and comes back.
fn told(mut error: RpcError) -> RpcError {
    if error.code == Code::Aborted as i32 {
        error.code = Code::Cancelled as i32;
    }
    error
}

/// One connection, until it ends; why it did.
async fn converse(shared: &Arc<Shared>, connection: u64, back_off: &mut BackOff) -> RpcError {
    let requests = Requests { shared: Arc::clone(shared), connection, is_opened: false, timer: None };
    let mut responses = match shared.channel.stream(METHOD, requests).await {
        Ok(responses) => responses,
        Err(error) => return error,
    };
    let mut count_expected = 0;
    loop {
        shared.has_room().await;
        match responses.message().await {
            Ok(Some(response)) => {
                back_off.reset();
                match shared.receive(&response, connection, count_expected) {
                    Ok(count) => count_expected = count,
                    Err(error) => return error,
                }
            }
            Ok(None) => return RpcError::new(Code::Unavailable, "the broker ended the consume stream"),
            Err(error) => return error,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use penstock_wire::grpc::{DeliveriesEncoder, DeliveryRef};

    use super::*;

    /// A response of `count` messages of `size` bytes each.
    fn batch(count: u64, size: usize) -> Deliveries {
        let (body, mut response) = (vec![0; size], Vec::new());
        let mut encoder = DeliveriesEncoder::begin(&mut response);
        for sequence in 1..=count {
            let delivery = DeliveryRef {
                sequence,
                body: &body,
                exchange: b"",
                routing_key: b"q",
                properties_amqp: b"",
                redelivered: false,
                delivery_count: 0,
                stored_at_ms: 0,
                key: None,
            };
            encoder.push(&delivery).unwrap();
        }
        encoder.finish();
        let response = Bytes::from(response);
        let ConsumeEvent::Deliveries(view) = parse_consume_response(&response).unwrap() else {
            panic!("no deliveries")
        };
        Deliveries::read(&response, view, 1, 0).unwrap()
    }

    #[test]
    fn what_waits_is_bounded_in_messages_and_in_bytes() {
        let mut waiting = Waiting::default();
        waiting.push(batch(3, 10));
        assert!(waiting.is_full(3) && !waiting.is_full(4));

        waiting.push(batch(2, WAITING_BYTES_MAX / 2));
        assert!(waiting.is_full(1_000));
        waiting.take(4);
        assert!(waiting.is_full(1_000), "the response is held until the last of its messages was taken");
        waiting.take(1);
        assert!(!waiting.is_full(1_000) && waiting.bytes == 0);
    }
}
