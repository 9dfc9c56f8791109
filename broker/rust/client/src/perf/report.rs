//! Counters of a run, and its final JSON.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::lock::lock;

const ERRORS_MAX: usize = 10;
/// Longer latencies count as this long.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Shared by all tasks of a run.
#[derive(Debug)]
pub(super) struct Counters {
    pub started: Instant,
    started_unix_ns: u64,
    pub published: AtomicU64,
    pub confirmed: AtomicU64,
    pub consumed: AtomicU64,
    /// Nanoseconds after `started`.
    pub last_published_ns: AtomicU64,
    pub last_confirmed_ns: AtomicU64,
    pub last_consumed_ns: AtomicU64,
    pub is_stopped: AtomicBool,
    errors: Mutex<Vec<String>>,
    latency: Mutex<Option<Histogram<u64>>>,
}

impl Counters {
    pub(super) fn new() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_unix_ns: unix.as_nanos() as u64,
            published: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            last_published_ns: AtomicU64::new(0),
            last_confirmed_ns: AtomicU64::new(0),
            last_consumed_ns: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            errors: Mutex::new(Vec::new()),
            latency: Mutex::new(histogram()),
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// A time to put into bodies, valid in every process of the machine.
    pub(super) fn stamp(&self) -> u64 {
        self.started_unix_ns + self.now_ns()
    }

    /// Counts `count` messages stamped `stamp` that arrived just now; those of an earlier run do not count.
    pub(super) fn arrived(&self, stamp: u64, count: u64) {
        if stamp >= self.started_unix_ns {
            self.record(self.stamp().saturating_sub(stamp), count);
        }
    }

    pub(super) fn record(&self, latency_ns: u64, count: u64) {
        if let Some(histogram) = lock(&self.latency).as_mut() {
            histogram.saturating_record_n(latency_ns.clamp(1, LATENCY_NS_MAX), count);
        }
    }

    pub(super) fn error(&self, error: impl Into<String>) {
        let mut errors = lock(&self.errors);
        let error = error.into();
        if errors.len() < ERRORS_MAX && !errors.contains(&error) {
            errors.push(error);
        }
    }

    pub(super) fn add(counter: &AtomicU64, last_ns: &AtomicU64, count: u64, now_ns: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
        last_ns.fetch_max(now_ns, Ordering::Relaxed);
    }

    pub(super) fn report(&self) -> Value {
        let per_s = |counter: &AtomicU64, last_ns: &AtomicU64| {
            let seconds = Duration::from_nanos(last_ns.load(Ordering::Relaxed)).as_secs_f64();
            if seconds > 0.0 { (counter.load(Ordering::Relaxed) as f64 / seconds).round() } else { 0.0 }
        };
        let last_ns = [&self.last_published_ns, &self.last_confirmed_ns, &self.last_consumed_ns]
            .map(|last_ns| last_ns.load(Ordering::Relaxed));
        let seconds = last_ns.into_iter().max().unwrap_or_default() as f64 / 1e9;
        json!({
            "published_per_s": per_s(&self.published, &self.last_published_ns),
            "confirmed_per_s": per_s(&self.confirmed, &self.last_confirmed_ns),
            "consumed_per_s": per_s(&self.consumed, &self.last_consumed_ns),
            "published": self.published.load(Ordering::Relaxed),
            "confirmed": self.confirmed.load(Ordering::Relaxed),
            "consumed": self.consumed.load(Ordering::Relaxed),
            "seconds": seconds,
            "latency_us": percentiles(lock(&self.latency).as_ref()),
            "errors": *lock(&self.errors),
        })
    }
}

/// Three digits are exact, which is more than needed.
pub(super) fn histogram() -> Option<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).ok()
}

pub(super) fn percentiles(histogram: Option<&Histogram<u64>>) -> Value {
    let Some(histogram) = histogram.filter(|histogram| !histogram.is_empty()) else { return Value::Null };
    let us = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
    json!({"p50": us(0.5), "p99": us(0.99), "p999": us(0.999)})
}

/// The report of a run that could not start.
pub(super) fn failed(error: String) -> String {
    json!({
        "published_per_s": 0.0, "confirmed_per_s": 0.0, "consumed_per_s": 0.0, "published": 0, "confirmed": 0,
        "consumed": 0, "seconds": 0.0, "latency_us": null, "errors": [error],
    })
    .to_string()
}
