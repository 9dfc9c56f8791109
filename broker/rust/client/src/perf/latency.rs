//! A latency run: one message at a time, `rate` a second, each timed to its confirm, and to a consumer when there is one.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use hdrhistogram::Histogram;
use penstock_wire::grpc::{BatchEncoder, Outcome, encode_publish_open, parse_publish_response};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::consume;
use super::options::{Options, PUBLISH};
use super::report::{Counters, histogram, percentiles};
use crate::error::RpcError;
use crate::lock::lock;

/// Requests wait here only while the connection does not accept them.
const REQUESTS_MAX: usize = 1_024;
/// How long the last messages may take.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Times of the messages without a confirm, and the round trips of the others.
#[derive(Debug, Default)]
struct Confirms {
    sent_ns: VecDeque<u64>,
    round_trips: Option<Histogram<u64>>,
}

/// Nothing arrived for this long: the queue is empty.
const EMPTY_AFTER: Duration = Duration::from_millis(300);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) async fn run(options: Options) -> String {
    let options = options.at_leader().await;
    if options.consumers > 0 {
        drain(&options).await;
    }
    let counters = Arc::new(Counters::new());
    let confirms = Arc::new(Mutex::new(Confirms { sent_ns: VecDeque::new(), round_trips: histogram() }));
    let consuming = Arc::new(consume::Consuming::new(Arc::clone(&counters), 1, options.stream));
    let consumer: Option<JoinHandle<()>> =
        (options.consumers > 0).then(|| tokio::spawn(consume::run(options.clone(), Arc::clone(&consuming), 0)));

    // On the runtime's own thread, as a publisher would be.
    let publisher = tokio::spawn(publish(options.clone(), Arc::clone(&counters), Arc::clone(&confirms)));
    match publisher.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => counters.error(error.message),
        Err(error) => counters.error(error.to_string()),
    }
    if let Some(task) = consumer {
        let _ = timeout(END_TIMEOUT, all_consumed(&counters)).await;
        consuming.close();
        if timeout(END_TIMEOUT, task).await.is_err() {
            counters.error("the consumer's stream did not end");
        }
    }
    let mut report = counters.report();
    if let Some(report) = report.as_object_mut() {
        let end_to_end = report.insert("latency_us".to_owned(), percentiles(lock(&confirms).round_trips.as_ref()));
        report.insert("end_to_end_us".to_owned(), end_to_end.unwrap_or_default());
    }
    report.to_string()
}

/// Drains the messages of an earlier run, so that they do not delay the timed ones.
async fn drain(options: &Options) {
    let counters = Arc::new(Counters::new());
    let consuming = Arc::new(consume::Consuming::new(Arc::clone(&counters), options.ack_batch, options.stream));
    let consumer = tokio::spawn(consume::run(options.clone(), Arc::clone(&consuming), 0));
    let is_empty = || {
        let last = Duration::from_nanos(counters.last_consumed_ns.load(Ordering::Relaxed));
        counters.started.elapsed().saturating_sub(last) >= EMPTY_AFTER
    };
    while !is_empty() && counters.started.elapsed() < DRAIN_TIMEOUT {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    consuming.close();
    let _ = timeout(END_TIMEOUT, consumer).await;
}

async fn all_consumed(counters: &Counters) {
    while counters.consumed.load(Ordering::Relaxed) < counters.confirmed.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn publish(options: Options, counters: Arc<Counters>, confirms: Arc<Mutex<Confirms>>) -> Result<(), RpcError> {
    let channel = options.channel()?;
    let (sender, mut receiver) = mpsc::channel(REQUESTS_MAX);
    let mut open = Vec::new();
    encode_publish_open(&mut open, &options.vhost, options.level_number().unwrap_or_default(), "");
    let _ = sender.send(Bytes::from(open)).await;
    let mut responses = channel.stream(PUBLISH, stream::poll_fn(move |context| receiver.poll_recv(context))).await?;
    let pace = tokio::spawn(pace(options, Arc::clone(&counters), Arc::clone(&confirms), sender));
    while let Some(response) = responses.message().await? {
        apply(&response, &counters, &confirms);
    }
    pace.abort();
    Ok(())
}

fn apply(response: &[u8], counters: &Counters, confirms: &Mutex<Confirms>) {
    let now_ns = counters.now_ns();
    let mut confirms = lock(confirms);
    for outcome in parse_publish_response(response) {
        let count = match outcome {
            Ok(Outcome::Confirmed { first, last }) => last.saturating_sub(first) + 1,
            Ok(Outcome::Returned { reason, .. } | Outcome::Rejected { reason, .. }) => {
                counters.error(reason);
                1
            }
            Err(error) => {
                counters.error(error.to_string());
                return;
            }
        };
        Counters::add(&counters.confirmed, &counters.last_confirmed_ns, count, now_ns);
        for _ in 0..count {
            let Some(sent_ns) = confirms.sent_ns.pop_front() else { break };
            if let Some(round_trips) = &mut confirms.round_trips {
                round_trips.saturating_record(now_ns.saturating_sub(sent_ns).max(1));
            }
        }
    }
}

/// Sends one message per tick until a limit is reached; the stream ends with it.
async fn pace(options: Options, counters: Arc<Counters>, confirms: Arc<Mutex<Confirms>>, sender: mpsc::Sender<Bytes>) {
    let rate = if options.rate > 0.0 { options.rate } else { 1.0 };
    let seconds = options.seconds.unwrap_or(f64::MAX);
    let mut ticks = interval(Duration::from_secs_f64(1.0 / rate).max(Duration::from_micros(10)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut body = vec![b'x'; options.size];
    let queue = options.queue(0);
    for _ in 0..options.messages.unwrap_or(u64::MAX) {
        ticks.tick().await;
        if counters.started.elapsed().as_secs_f64() >= seconds {
            return;
        }
        if let Some(slot) = body.first_chunk_mut::<8>() {
            *slot = counters.stamp().to_le_bytes();
        }
        let mut encoder = BatchEncoder::begin(Vec::new(), "", &queue, false);
        encoder.push(&body, None);
        let now_ns = counters.now_ns();
        lock(&confirms).sent_ns.push_back(now_ns);
        Counters::add(&counters.published, &counters.last_published_ns, 1, now_ns);
        if sender.send(encoder.finish().into()).await.is_err() {
            return;
        }
    }
}
