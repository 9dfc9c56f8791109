//! A read stream of one partition that reconnects and goes on after the last message that came. Responses wait here
//! until they are taken, and each then returns its credit.
//!
//! Invariants: no message comes twice and none is left out between the first and the last that came; the broker's
//! credit and the waiting responses never exceed the requested credit.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use penstock_wire::grpc::{
    ReadEvent, ReadOpen, Start, encode_credit, encode_read_open, encode_stored, parse_read_response,
};
use tokio::task::AbortHandle;
use tonic::Code;

use crate::back_off::BackOff;
use crate::channel::{Channel, Route};
use crate::delivery::Deliveries;
use crate::error::RpcError;
use crate::lock::lock;
use crate::runtime;
use crate::wake::Wake;

const METHOD: &str = "/penstock.v1.StreamService/Read";

/// Settings of a reader.
#[derive(Debug, Clone)]
pub struct ReaderSettings {
    pub vhost: String,
    pub partition: String,
    pub start: Start,
    pub end: Option<u64>,
    /// Responses that may be in transit or wait; at least one.
    pub credit: u32,
    pub group: String,
    pub single_active: bool,
    /// It reads at the given targets, from a replica that may not lead.
    pub from_replica: bool,
    pub reconnect: bool,
}

#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    channel: Arc<Channel>,
    /// Of its own, where it reads from replicas.
    route: Option<Route>,
    settings: ReaderSettings,
    state: Mutex<State>,
    wake: Wake,
}

#[derive(Debug)]
struct State {
    /// The deliveries of each response.
    waiting: VecDeque<Deliveries>,
    /// Start of the next connection, once the broker sent the start of this one.
    next: Option<u64>,
    /// Everything below was received.
    behind: u64,
    credit_due: u32,
    /// An offset to store, until it is sent.
    stored: Option<u64>,
    is_active: bool,
    is_finished: bool,
    /// The request stream, when it has nothing to send.
    idle_stream: Option<Waker>,
    connection: u64,
    is_closing: bool,
    ended: Option<RpcError>,
}

/// Why a connection ended.
enum End {
    /// Everything up to the end was received.
    Finished,
    /// Another connection would end the same way.
    Final(RpcError),
    Passing(RpcError),
}

impl End {
    /// The same for a reader that was running: the broker may not know yet that its last connection is broken, which
    /// may hold its group's place or count for a limit. A new reader gets the error of a limit.
    fn after_work(self, was_open: bool) -> End {
        match self {
            End::Passing(error) if !was_open && error.is_limit() => End::Final(error),
            End::Final(error) if was_open && error.may_be_own_past() => End::Passing(error),
            end => end,
        }
    }
}

impl From<RpcError> for End {
    fn from(error: RpcError) -> End {
        if error.is_final() { End::Final(error) } else { End::Passing(error) }
    }
}

impl Reader {
    /// Starts to connect at once.
    pub fn new(channel: Arc<Channel>, settings: ReaderSettings) -> Result<Self, RpcError> {
        let settings = ReaderSettings { credit: settings.credit.max(1), ..settings };
        let state = State {
            waiting: VecDeque::new(),
            next: None,
            behind: 0,
            credit_due: 0,
            stored: None,
            is_active: !settings.single_active,
            is_finished: false,
            idle_stream: None,
            connection: 0,
            is_closing: false,
            ended: None,
        };
        let route = settings.from_replica.then(|| channel.given_route());
        let shared = Arc::new(Shared { channel, route, settings, state: Mutex::new(state), wake: Wake::new()? });
        let task = runtime::handle()?.spawn(run(Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, task })
    }

    #[must_use]
    pub fn partition(&self) -> &str {
        &self.shared.settings.partition
    }

    /// Readable while there are messages to take or the state has changed.
    #[must_use]
    pub fn wake_fd(&self) -> RawFd {
        self.shared.wake.raw()
    }

    /// Whether it is its group's active reader of the partition.
    #[must_use]
    pub fn is_active(&self) -> bool {
        lock(&self.shared.state).is_active
    }

    /// Whether it has received everything up to its end, and all of it was taken.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let state = lock(&self.shared.state);
        state.is_finished && state.waiting.is_empty()
    }

    /// Returns arrived messages, at most `count_max`; an error when none is left and the stream ended for good.
    pub fn take(&self, count_max: usize) -> Result<Vec<Deliveries>, RpcError> {
        let mut state = lock(&self.shared.state);
        if state.waiting.is_empty()
            && let Some(error) = &state.ended
        {
            return Err(error.clone());
        }
        let mut taken = Vec::new();
        let mut left = count_max;
        while left > 0
            && let Some(first) = state.waiting.front_mut()
        {
            let front = first.split_front(left);
            left -= front.len();
            if first.is_empty() {
                state.waiting.pop_front();
                state.credit_due += 1;
            }
            taken.push(front);
        }
        if state.waiting.is_empty() && state.ended.is_none() && !state.is_finished {
            // Under the lock: otherwise the signal of a later response could be cleared.
            self.shared.wake.clear();
        }
        wake_stream(state);
        Ok(taken)
    }

    /// Stores that everything up to here is processed. Only the last one is sent, when the stream takes it.
    pub fn store(&self, offset: u64) {
        let mut state = lock(&self.shared.state);
        state.stored = Some(offset);
        wake_stream(state);
    }

    /// Ends the stream, without waiting for a stored offset.
    pub fn close(&self) {
        self.shared.begin_close();
        self.task.abort();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.close();
    }
}

fn wake_stream(mut state: MutexGuard<'_, State>) {
    let idle = state.idle_stream.take();
    drop(state);
    idle.into_iter().for_each(Waker::wake);
}

impl Shared {
    fn begin_close(&self) {
        let mut state = lock(&self.state);
        state.is_closing = true;
        state.waiting.clear();
        let closed = || RpcError::new(Code::Cancelled, "the reader is closed; open another one");
        state.ended.get_or_insert_with(closed);
        self.wake.set();
        wake_stream(state);
    }

    /// Adds one response. `count_expected` is the approximate number of deliveries in it; returns the number.
    fn receive(&self, response: &Bytes, connection: u64, count_expected: usize) -> Result<usize, End> {
        let unreadable = |error: penstock_wire::WireError| RpcError::new(Code::Internal, error.to_string());
        match parse_read_response(response).map_err(unreadable)? {
            ReadEvent::Opened { begin, .. } => {
                let mut state = lock(&self.state);
                state.next = Some(begin.max(state.behind));
            }
            ReadEvent::Active { active, begin } => {
                let mut state = lock(&self.state);
                state.is_active = active;
                if active {
                    state.next = Some(begin.max(state.behind));
                }
                self.wake.set();
            }
            ReadEvent::Cancelled { reason } => {
                let text = format!("the broker ended the reader: {reason}");
                return Err(End::Final(RpcError::new(Code::Cancelled, text)));
            }
            ReadEvent::Deliveries(view) => {
                let batch = Deliveries::read(response, view, connection, count_expected).map_err(unreadable)?;
                let count = batch.len();
                self.deliver(batch);
                return Ok(count);
            }
        }
        Ok(count_expected)
    }

    fn deliver(&self, mut batch: Deliveries) {
        let mut state = lock(&self.state);
        let known = batch.count_first(|sequence| sequence < state.behind);
        drop(batch.split_front(known));
        let Some(last) = batch.last_sequence() else {
            state.credit_due += 1;
            wake_stream(state);
            return;
        };
        state.behind = last + 1;
        state.next = Some(last + 1);
        if !state.is_closing {
            state.waiting.push_back(batch);
            self.wake.set();
        }
    }

    fn end(&self, end: Option<RpcError>) {
        let mut state = lock(&self.state);
        match end {
            Some(error) => drop(state.ended.get_or_insert(error)),
            None => state.is_finished = true,
        }
        state.connection += 1;
        self.wake.set();
        wake_stream(state);
    }

    /// Waits for the back-off, or less when the reader is closed meanwhile.
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

/// The requests of one connection: the open, then stored offsets and credit.
struct Requests {
    shared: Arc<Shared>,
    connection: u64,
    is_opened: bool,
}

impl Requests {
    /// Waiting responses count against the credit already.
    fn open(&self, state: &mut State) -> Bytes {
        let settings = &self.shared.settings;
        let waiting = u32::try_from(state.waiting.len()).unwrap_or(u32::MAX);
        state.credit_due = 0;
        let open = ReadOpen {
            vhost: &settings.vhost,
            partition: &settings.partition,
            start: state.next.map_or(settings.start, Start::Offset),
            end: settings.end,
            credit: settings.credit.saturating_sub(waiting).max(1),
            group: &settings.group,
            single_active: settings.single_active,
            from_replica: settings.from_replica,
        };
        let mut request = Vec::new();
        encode_read_open(&mut request, &open);
        request.into()
    }

    fn next_request(&self, state: &mut State) -> Option<Bytes> {
        let mut request = Vec::new();
        if let Some(offset) = state.stored.take() {
            encode_stored(&mut request, offset);
            return Some(request.into());
        }
        if state.credit_due == 0 || state.credit_due.saturating_mul(2) < self.shared.settings.credit {
            return None;
        }
        encode_credit(&mut request, std::mem::take(&mut state.credit_due));
        Some(request.into())
    }
}

impl Stream for Requests {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        let shared = Arc::clone(&this.shared);
        let mut state = lock(&shared.state);
        if state.connection != this.connection || state.is_closing {
            return Poll::Ready(None);
        }
        if !std::mem::replace(&mut this.is_opened, true) {
            return Poll::Ready(Some(this.open(&mut state)));
        }
        if let Some(request) = this.next_request(&mut state) {
            return Poll::Ready(Some(request));
        }
        state.idle_stream = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Owns the stream: connects, reads, reconnects.
async fn run(shared: Arc<Shared>) {
    let mut back_off = BackOff::default();
    loop {
        let connection = {
            let mut state = lock(&shared.state);
            state.connection += 1;
            state.connection
        };
        let end = converse(&shared, connection, &mut back_off).await;
        let was_open = lock(&shared.state).next.is_some() && !shared.channel.is_closed();
        match end.after_work(was_open) {
            End::Finished => return shared.end(None),
            End::Final(error) => return shared.end(Some(error)),
            End::Passing(error) if !shared.settings.reconnect => return shared.end(Some(error)),
            End::Passing(error) => {
                // Without a connection it is not active.
                lock(&shared.state).is_active = !shared.settings.single_active;
                shared.pause(back_off.after(error.wait)).await;
            }
        }
    }
}

/// Runs one connection; returns why it ended.
async fn converse(shared: &Arc<Shared>, connection: u64, back_off: &mut BackOff) -> End {
    let requests = Requests { shared: Arc::clone(shared), connection, is_opened: false };
    let opened = match &shared.route {
        Some(route) => shared.channel.stream_by(route, METHOD, requests).await,
        None => shared.channel.stream(METHOD, requests).await,
    };
    let mut responses = match opened {
        Ok(responses) => responses,
        Err(error) => return error.into(),
    };
    let mut count_expected = 0;
    loop {
        match responses.message().await {
            Ok(Some(response)) => {
                back_off.reset();
                match shared.receive(&response, connection, count_expected) {
                    Ok(count) => count_expected = count,
                    Err(end) => return end,
                }
            }
            // The broker ends a stream without an error only at the requested end.
            Ok(None) if shared.settings.end.is_some() => return End::Finished,
            Ok(None) => return End::Passing(RpcError::new(Code::Unavailable, "the broker ended the read stream")),
            Err(error) => return error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_was_at_work_takes_its_own_past_as_passing() {
        let end = |code| End::from(RpcError::new(code, "refused"));

        assert!(matches!(end(Code::FailedPrecondition).after_work(true), End::Passing(_)));
        assert!(matches!(end(Code::FailedPrecondition).after_work(false), End::Final(_)));
        let limit = || RpcError { details: b"LIMIT_REACHED".to_vec(), ..RpcError::new(Code::ResourceExhausted, "") };
        assert!(matches!(End::from(limit()).after_work(true), End::Passing(_)));
        assert!(matches!(End::from(limit()).after_work(false), End::Final(_)));
        assert!(matches!(end(Code::NotFound).after_work(true), End::Final(_)));
    }
}
