//! A consumer of the load generator: reads deliveries, acknowledges each response's as ranges, and measures latencies
//! by the time that publishers wrote into the bodies. A stream's reader does the same but acknowledges nothing.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::task::AtomicWaker;
use penstock_wire::grpc::{
    ConsumeEvent, ConsumeOpen, DeliveriesView, ReadEvent, ReadOpen, Start, encode_consume_open, encode_read_open,
    encode_settlement, parse_consume_response, parse_read_response,
};
use tokio::sync::Notify;

use super::options::{CONSUME, Options, READ};
use super::report::Counters;
use crate::error::RpcError;
use crate::lock::lock;

const ACK: u32 = 1;

/// State shared by the request stream and the reader of deliveries.
#[derive(Debug)]
pub(super) struct Consuming {
    counters: Arc<Counters>,
    acks: Mutex<Acks>,
    ack_batch: u64,
    is_stream: bool,
    /// The request stream, when it has nothing to acknowledge.
    waker: AtomicWaker,
    is_closing: AtomicBool,
    /// Notifies a reader of its end.
    closed: Notify,
}

#[derive(Debug, Default)]
struct Acks {
    ranges: Vec<(u64, u64)>,
    count: u64,
}

impl Acks {
    fn add(&mut self, sequence: u64) {
        self.count += 1;
        match self.ranges.last_mut() {
            Some(range) if range.1 + 1 == sequence => range.1 = sequence,
            _ => self.ranges.push((sequence, sequence)),
        }
    }
}

impl Consuming {
    pub(super) fn new(counters: Arc<Counters>, ack_batch: u64, is_stream: bool) -> Self {
        Self {
            counters,
            acks: Mutex::default(),
            ack_batch,
            is_stream,
            waker: AtomicWaker::new(),
            is_closing: AtomicBool::new(false),
            closed: Notify::new(),
        }
    }

    /// Acknowledges the rest and ends the stream.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.waker.wake();
        self.closed.notify_one();
    }

    fn next_request(&self) -> Option<Bytes> {
        let mut acks = lock(&self.acks);
        let is_due = acks.count >= self.ack_batch || self.is_closing.load(Ordering::Acquire);
        if acks.count == 0 || !is_due {
            return None;
        }
        let mut request = Vec::with_capacity(16 + 24 * acks.ranges.len());
        encode_settlement(&mut request, ACK, acks.ranges.drain(..));
        acks.count = 0;
        Some(request.into())
    }

    fn apply(&self, response: &[u8]) -> Result<(), String> {
        let Some(view) = self.deliveries_in(response)? else { return Ok(()) };
        let (mut count, mut stamp, mut stamped) = (0, 0, 0);
        let mut acks = lock(&self.acks);
        for delivery in view {
            let delivery = delivery.map_err(|error| error.to_string())?;
            if !self.is_stream {
                acks.add(delivery.sequence);
            }
            count += 1;
            let Some(bytes) = delivery.body.first_chunk::<8>() else { continue };
            let sent = u64::from_le_bytes(*bytes);
            if sent != stamp {
                self.counters.arrived(stamp, stamped);
                (stamp, stamped) = (sent, 0);
            }
            stamped += 1;
        }
        let is_due = acks.count >= self.ack_batch;
        drop(acks);
        self.counters.arrived(stamp, stamped);
        Counters::add(&self.counters.consumed, &self.counters.last_consumed_ns, count, self.counters.now_ns());
        if is_due {
            self.waker.wake();
        }
        Ok(())
    }
}

impl Consuming {
    fn deliveries_in<'a>(&self, response: &'a [u8]) -> Result<Option<DeliveriesView<'a>>, String> {
        if self.is_stream {
            return match parse_read_response(response).map_err(|error| error.to_string())? {
                ReadEvent::Deliveries(view) => Ok(Some(view)),
                ReadEvent::Cancelled { reason } => Err(reason.to_owned()),
                ReadEvent::Opened { .. } | ReadEvent::Active { .. } => Ok(None),
            };
        }
        match parse_consume_response(response).map_err(|error| error.to_string())? {
            ConsumeEvent::Opened { .. } => Ok(None),
            ConsumeEvent::Cancelled { reason } => Err(reason.to_owned()),
            ConsumeEvent::Deliveries(view) => Ok(Some(view)),
        }
    }
}

/// Runs one consumer until it is closed.
pub(super) async fn run(options: Options, consuming: Arc<Consuming>, index: usize) {
    if let Err(error) = converse(&options, &consuming, index).await {
        consuming.counters.error(error.message);
    }
}

async fn converse(options: &Options, consuming: &Arc<Consuming>, index: usize) -> Result<(), RpcError> {
    let channel = options.channel()?;
    let (method, open) = opening(options, &options.queue(index));
    let requests = Requests { consuming: Arc::clone(consuming), open: Some(open) };
    let mut responses = channel.stream(method, requests).await?;
    // A reader sends nothing, and its stream has no end.
    while let Some(response) = until_closed(consuming, responses.message()).await? {
        if let Err(error) = consuming.apply(&response) {
            consuming.counters.error(error);
            return Ok(());
        }
    }
    Ok(())
}

fn opening(options: &Options, queue: &str) -> (&'static str, Bytes) {
    let mut open = Vec::new();
    if options.stream {
        let request = ReadOpen { vhost: &options.vhost, partition: queue, start: Start::First, ..ReadOpen::default() };
        encode_read_open(&mut open, &request);
        return (READ, open.into());
    }
    let prefetch = options.prefetch;
    let request = ConsumeOpen { vhost: &options.vhost, queue, prefetch, ..ConsumeOpen::default() };
    encode_consume_open(&mut open, &request);
    (CONSUME, open.into())
}

/// The next response; a reader that is closed waits for none.
async fn until_closed(
    consuming: &Consuming,
    response: impl Future<Output = Result<Option<Bytes>, RpcError>>,
) -> Result<Option<Bytes>, RpcError> {
    if !consuming.is_stream {
        return response.await;
    }
    tokio::select! {
        biased;
        () = consuming.closed.notified() => Ok(None),
        response = response => response,
    }
}

struct Requests {
    consuming: Arc<Consuming>,
    /// The open, until it was sent.
    open: Option<Bytes>,
}

impl Stream for Requests {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        if let Some(open) = this.open.take() {
            return Poll::Ready(Some(open));
        }
        if let Some(request) = this.consuming.next_request() {
            return Poll::Ready(Some(request));
        }
        this.consuming.waker.register(context.waker());
        // Messages that arrived before the waker was set woke no task.
        match this.consuming.next_request() {
            Some(request) => Poll::Ready(Some(request)),
            None if this.consuming.is_closing.load(Ordering::Acquire) => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}
