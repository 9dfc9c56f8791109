//! A run: declares the queues, opens all connections, starts the threads together, stops them at the first limit, lets the consumers
//! catch up, deletes the queues, and reports.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::consume::Consumer;
use super::figures::Figures;
use super::interruption::is_interrupted;
use super::link::Link;
use super::login::{close, consume, declare, delete, open, select_confirms};
use super::options::Options;
use super::processor;
use super::publish::Publisher;
use crate::perf::report::Counters;

const TICK: Duration = Duration::from_millis(5);
/// Nothing arrived for this long: the queues are empty.
const EMPTY_AFTER: Duration = Duration::from_millis(500);
/// How long consumers may go on after the publishers.
const GRACE: Duration = Duration::from_secs(2);
/// A thread's buffers are not on its stack.
const STACK_BYTES: usize = 256 << 10;

/// Returns the report.
pub(super) fn run(options: Options) -> Result<String, String> {
    let mut control = open(&options)?;
    let names = names(options.queues);
    let mut declared = 0;
    let measured = measure(&options, &mut control, &names, &mut declared);
    let deleted = delete_all(&options, control, names.get(..declared).unwrap_or_default());
    let (figures, cpu) = measured?;
    if let Err(error) = deleted {
        figures.counters.error(format!("the queues {} ... were not deleted: {error}", names.first().map_or("", |s| s)));
    }
    Ok(figures.report(cpu).to_string())
}

/// Names of queues that no other run has.
fn names(count: usize) -> Vec<String> {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let run = (unix.as_nanos() as u64) ^ (u64::from(std::process::id()) << 40);
    (1..=count).map(|number| format!("perf-{run:016x}-{number}")).collect()
}

fn measure(
    options: &Options,
    control: &mut Link,
    names: &[String],
    declared: &mut usize,
) -> Result<(Arc<Figures>, Option<Duration>), String> {
    for name in names {
        declare(control, name, options.quorum)?;
        *declared += 1;
    }
    let consuming = (0..options.consumers).map(|index| {
        let mut link = open(options)?;
        consume(&mut link, options, names.get(index % names.len().max(1)).map_or("", String::as_str))?;
        Ok(link)
    });
    let consuming: Vec<Link> = consuming.collect::<Result<_, String>>()?;
    let publishing = (0..options.publishers).map(|_| {
        let mut link = open(options)?;
        if options.in_flight > 0 {
            select_confirms(&mut link)?;
        }
        Ok(link)
    });
    let publishing: Vec<Link> = publishing.collect::<Result<_, String>>()?;

    let used_before = options.pid.map(processor::used).transpose()?;
    let figures = Arc::new(Figures::new());
    let consumers = consuming.into_iter().map(|link| {
        let consumer = Consumer::new(link, Arc::clone(&figures), options);
        start("perf-consumer", move || consumer.run())
    });
    let consumers: Vec<_> = consumers.collect::<Result<_, String>>()?;
    let publishers = publishing.into_iter().enumerate().map(|(index, link)| {
        let publisher = Publisher::new(link, Arc::clone(&figures), options, names, index);
        start("perf-publisher", move || publisher.run())
    });
    let publishers: Vec<_> = publishers.collect::<Result<_, String>>()?;
    until_end(options, &figures, publishers, consumers);
    let used = options.pid.map(processor::used).transpose()?;
    Ok((figures, used.zip(used_before).map(|(used, before)| used.saturating_sub(before))))
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    let started = Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(run);
    started.map_err(|error| format!("a thread cannot start: {error}"))
}

fn until_end(options: &Options, figures: &Figures, publishers: Vec<JoinHandle<()>>, consumers: Vec<JoinHandle<()>>) {
    let counters = &figures.counters;
    let limit = options.seconds.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0)));
    loop {
        let is_late = limit.is_some_and(|limit| counters.started.elapsed() >= limit);
        let are_done = !publishers.is_empty() && publishers.iter().all(JoinHandle::is_finished);
        if is_late || are_done || is_interrupted() || consumers.iter().any(JoinHandle::is_finished) {
            break;
        }
        sleep(TICK);
    }
    counters.is_stopped.store(true, Ordering::Release);
    publishers.into_iter().for_each(|thread| join(thread, counters));
    if !consumers.is_empty() {
        catch_up(figures);
    }
    figures.is_consumed.store(true, Ordering::Release);
    consumers.into_iter().for_each(|thread| join(thread, counters));
}

/// Each thread ends by itself: everything that it waits for has a time limit.
fn join(thread: JoinHandle<()>, counters: &Counters) {
    if thread.join().is_err() {
        counters.error("a thread of the load generator has failed");
    }
}

/// Lets consumers take what was published, as far as they do it soon.
fn catch_up(figures: &Figures) {
    let counters = &figures.counters;
    let begun = counters.started.elapsed();
    loop {
        let since = counters.started.elapsed() - begun;
        let last = Duration::from_nanos(counters.last_consumed_ns.load(Ordering::Relaxed));
        let idle = counters.started.elapsed().saturating_sub(last).min(since);
        let are_all = counters.consumed.load(Ordering::Relaxed) >= counters.published.load(Ordering::Relaxed);
        if are_all || idle >= EMPTY_AFTER || since >= GRACE || is_interrupted() {
            return;
        }
        sleep(TICK);
    }
}

/// Deletes the queues, by a new connection if the old one is lost.
fn delete_all(options: &Options, mut control: Link, names: &[String]) -> Result<(), String> {
    for name in names {
        if delete(&mut control, name).is_err() {
            control = open(options)?;
            delete(&mut control, name)?;
        }
    }
    close(&mut control)
}
