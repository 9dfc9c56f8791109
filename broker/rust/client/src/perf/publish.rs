//! A publisher of the load generator: a request stream that makes a batch whenever the connection asks for one and
//! fewer than `in_flight` messages are without an outcome. A batch is a copy of a template with the time written into
//! its bodies, in a reused buffer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::task::AtomicWaker;
use penstock_wire::grpc::{
    BatchEncoder, Outcome, PublishFrame, encode_publish_open, parse_publish, parse_publish_response,
};

use super::options::{Options, PUBLISH};
use super::report::Counters;
use crate::error::RpcError;
use crate::lock::lock;

/// State shared by the request stream and the reader of responses.
#[derive(Debug)]
pub(super) struct Publishing {
    counters: Arc<Counters>,
    resolved: AtomicU64,
    /// The request stream, when enough is in flight.
    pub waker: AtomicWaker,
    /// (number of a batch's last message, when it was sent), when confirms are timed.
    sent: Option<Mutex<VecDeque<(u64, u64)>>>,
}

impl Publishing {
    /// Confirms are timed without consumers.
    pub(super) fn new(counters: Arc<Counters>, consumers: usize) -> Self {
        let sent = (consumers == 0).then(Mutex::default);
        Self { counters, resolved: AtomicU64::new(0), waker: AtomicWaker::new(), sent }
    }

    fn apply(&self, response: &[u8]) -> Result<(), String> {
        let now_ns = self.counters.now_ns();
        for outcome in parse_publish_response(response) {
            let count = match outcome.map_err(|error| error.to_string())? {
                Outcome::Confirmed { first, last } => {
                    let count = last.saturating_sub(first) + 1;
                    Counters::add(&self.counters.confirmed, &self.counters.last_confirmed_ns, count, now_ns);
                    self.time(last, now_ns);
                    count
                }
                Outcome::Returned { reason, .. } => {
                    self.counters.error(reason);
                    1
                }
                Outcome::Rejected { first, last, reason, .. } => {
                    self.counters.error(reason);
                    last.saturating_sub(first) + 1
                }
            };
            self.resolved.fetch_add(count, Ordering::AcqRel);
        }
        self.waker.wake();
        Ok(())
    }

    fn time(&self, last: u64, now_ns: u64) {
        let Some(sent) = &self.sent else { return };
        let mut sent = lock(sent);
        while let Some(&(number, sent_ns)) = sent.front()
            && number <= last
        {
            sent.pop_front();
            self.counters.record(now_ns.saturating_sub(sent_ns), 1);
        }
    }
}

/// Runs one publisher until its messages are sent and all have an outcome.
pub(super) async fn run(options: Options, publishing: Arc<Publishing>, index: usize, quota: u64) {
    let counters = Arc::clone(&publishing.counters);
    if let Err(error) = converse(&options, publishing, index, quota).await {
        counters.error(error.message);
    }
}

async fn converse(options: &Options, publishing: Arc<Publishing>, index: usize, quota: u64) -> Result<(), RpcError> {
    let channel = options.channel()?;
    let requests = Requests::new(options, Arc::clone(&publishing), index, quota);
    let mut responses = channel.stream(PUBLISH, requests).await?;
    while let Some(response) = responses.message().await? {
        if let Err(error) = publishing.apply(&response) {
            publishing.counters.error(error);
            return Ok(());
        }
    }
    Ok(())
}

/// An encoded batch and where the bodies in it begin.
struct Template {
    bytes: Vec<u8>,
    bodies: Vec<usize>,
}

impl Template {
    fn new(queue: &str, size: usize, count: u64) -> Self {
        let body = vec![b'x'; size];
        let mut encoder = BatchEncoder::begin(Vec::new(), "", queue, false);
        (0..count).for_each(|_| encoder.push(&body, None));
        let bytes = encoder.finish();
        let mut bodies = Vec::new();
        if let (Ok(PublishFrame::Batch(batch)), true) = (parse_publish(&bytes), size >= 8) {
            let places = batch.messages().flatten().map(|message| message.body.as_ptr() as usize);
            bodies.extend(places.map(|place| place - bytes.as_ptr() as usize));
        }
        Self { bytes, bodies }
    }
}

struct Requests {
    publishing: Arc<Publishing>,
    /// The open, until it was sent.
    open: Option<Bytes>,
    templates: Vec<Template>,
    next_template: usize,
    queues: Vec<String>,
    size: usize,
    batch: u64,
    in_flight: u64,
    /// How many messages are left to send.
    quota: u64,
    sent: u64,
    buffer: BytesMut,
}

impl Requests {
    fn new(options: &Options, publishing: Arc<Publishing>, index: usize, quota: u64) -> Self {
        let mut open = Vec::new();
        encode_publish_open(&mut open, &options.vhost, options.level_number().unwrap_or_default(), "");
        // Each publisher starts with another queue.
        let queues: Vec<String> = (0..options.queues).map(|queue| options.queue(index + queue)).collect();
        let templates = queues.iter().map(|queue| Template::new(queue, options.size, options.batch)).collect();
        Self {
            publishing,
            open: Some(open.into()),
            templates,
            next_template: 0,
            queues,
            size: options.size,
            batch: options.batch,
            in_flight: options.in_flight,
            quota,
            sent: 0,
            buffer: BytesMut::new(),
        }
    }

    fn has_room(&self, count: u64) -> bool {
        let in_flight = self.sent - self.publishing.resolved.load(Ordering::Acquire).min(self.sent);
        in_flight == 0 || in_flight + count <= self.in_flight
    }

    fn next_batch(&mut self, count: u64) -> Bytes {
        let index = self.next_template % self.templates.len();
        self.next_template = index + 1;
        let last_template;
        let template = if count == self.batch {
            &self.templates[index]
        } else {
            last_template = Template::new(&self.queues[index], self.size, count);
            &last_template
        };
        if self.buffer.capacity() < template.bytes.len() {
            // Reuses the old allocation, as the connection has copied its content.
            self.buffer.reserve(template.bytes.len().max(64 * 1024));
        }
        self.buffer.extend_from_slice(&template.bytes);
        let stamp = self.publishing.counters.stamp().to_le_bytes();
        for &place in &template.bodies {
            if let Some(slot) = self.buffer.get_mut(place..place + 8) {
                slot.copy_from_slice(&stamp);
            }
        }
        self.quota -= count;
        self.sent += count;
        let counters = &self.publishing.counters;
        let now_ns = counters.now_ns();
        Counters::add(&counters.published, &counters.last_published_ns, count, now_ns);
        if let Some(sent) = &self.publishing.sent {
            lock(sent).push_back((self.sent, now_ns));
        }
        self.buffer.split().freeze()
    }
}

impl Stream for Requests {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        if let Some(open) = this.open.take() {
            return Poll::Ready(Some(open));
        }
        let is_stopped = |this: &Self| this.quota == 0 || this.publishing.counters.is_stopped.load(Ordering::Acquire);
        if is_stopped(this) {
            return Poll::Ready(None);
        }
        let count = this.batch.min(this.quota);
        if !this.has_room(count) {
            this.publishing.waker.register(context.waker());
            // Outcomes that arrived before the waker was set woke no task.
            if is_stopped(this) {
                return Poll::Ready(None);
            }
            if !this.has_room(count) {
                return Poll::Pending;
            }
        }
        Poll::Ready(Some(this.next_batch(count)))
    }
}
