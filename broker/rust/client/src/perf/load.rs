//! A throughput run: starts publishers and consumers, stops them at the first limit, lets the consumers catch up, and
//! reports.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::options::Options;
use super::report::Counters;
use super::{consume, publish};

const TICK: Duration = Duration::from_millis(5);
/// Nothing arrived for this long: the queues are empty.
const EMPTY_AFTER: Duration = Duration::from_millis(500);
/// How long consumers may go on after the last confirm.
const GRACE: Duration = Duration::from_secs(2);
/// How long the broker may take to answer what it has accepted, and to end a stream.
const END_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn run(options: Options) -> String {
    let options = options.at_leader().await;
    let counters = Arc::new(Counters::new());
    let consumers: Vec<_> = (0..options.consumers).map(|index| start_consumer(&options, &counters, index)).collect();
    let publishers: Vec<_> = (0..options.publishers).map(|index| start_publisher(&options, &counters, index)).collect();

    until_limit(&options, &counters, || publishers.iter().all(|(_, task)| task.is_finished())).await;
    counters.is_stopped.store(true, Ordering::Release);
    for (publishing, task) in publishers {
        publishing.waker.wake();
        join(task, &counters, "a publisher's messages were not all answered").await;
    }
    if options.consumers > 0 {
        catch_up(&options, &counters).await;
    }
    consumers.iter().for_each(|(consuming, _)| consuming.close());
    for (_, task) in consumers {
        join(task, &counters, "a consumer's stream did not end").await;
    }
    counters.report().to_string()
}

type Consumer = (Arc<consume::Consuming>, JoinHandle<()>);
type Publisher = (Arc<publish::Publishing>, JoinHandle<()>);

fn start_consumer(options: &Options, counters: &Arc<Counters>, index: usize) -> Consumer {
    let consuming = Arc::new(consume::Consuming::new(Arc::clone(counters), options.ack_batch, options.stream));
    let task = tokio::spawn(consume::run(options.clone(), Arc::clone(&consuming), index));
    (consuming, task)
}

fn start_publisher(options: &Options, counters: &Arc<Counters>, index: usize) -> Publisher {
    let publishing = Arc::new(publish::Publishing::new(Arc::clone(counters), options.consumers));
    let quota = options.messages.map_or(u64::MAX, |messages| share(messages, options.publishers, index));
    let task = tokio::spawn(publish::run(options.clone(), Arc::clone(&publishing), index, quota));
    (publishing, task)
}

/// How many of `messages` the publisher `index` of `publishers` sends.
fn share(messages: u64, publishers: usize, index: usize) -> u64 {
    let publishers = publishers as u64;
    messages / publishers + u64::from((index as u64) < messages % publishers)
}

/// Waits for the end of the time, of the publishers, or, without publishers, of the messages to consume.
async fn until_limit(options: &Options, counters: &Counters, publishers_finished: impl Fn() -> bool) {
    let limit = options.seconds.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0)));
    loop {
        let elapsed = counters.started.elapsed();
        let is_consumed = match options.messages {
            _ if options.publishers > 0 => publishers_finished(),
            Some(messages) => counters.consumed.load(Ordering::Relaxed) >= messages,
            None => options.until_empty && idle(counters) >= EMPTY_AFTER,
        };
        if is_consumed || limit.is_some_and(|limit| elapsed >= limit) {
            return;
        }
        sleep(limit.map_or(TICK, |limit| TICK.min(limit - elapsed))).await;
    }
}

/// How long nothing has arrived.
fn idle(counters: &Counters) -> Duration {
    let last = Duration::from_nanos(counters.last_consumed_ns.load(Ordering::Relaxed));
    counters.started.elapsed().saturating_sub(last)
}

async fn catch_up(options: &Options, counters: &Counters) {
    let begun = counters.started.elapsed();
    loop {
        let since = (counters.started.elapsed() - begun).min(idle(counters));
        let is_done = if options.until_empty {
            since >= EMPTY_AFTER
        } else {
            let consumed = counters.consumed.load(Ordering::Relaxed);
            consumed >= counters.confirmed.load(Ordering::Relaxed)
                || since >= EMPTY_AFTER
                || counters.started.elapsed() - begun >= GRACE
        };
        if is_done {
            return;
        }
        sleep(TICK).await;
    }
}

async fn join(mut task: JoinHandle<()>, counters: &Counters, what: &str) {
    match timeout(END_TIMEOUT, &mut task).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => counters.error(error.to_string()),
        Err(_) => {
            task.abort();
            counters.error(format!("{what} within {} s", END_TIMEOUT.as_secs()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (messages, publishers) in [(10, 3), (2, 4), (100, 1)] {
            let sum: u64 = (0..publishers).map(|index| share(messages, publishers, index)).sum();
            assert_eq!(sum, messages);
        }
    }
}
