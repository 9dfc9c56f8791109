//! What the threads of a run count together: messages, and how long confirms and deliveries take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::lock::lock;
use crate::perf::report::{Counters, histogram, percentiles};

/// See the module.
pub(super) struct Figures {
    pub counters: Counters,
    /// Whether consumers have to end.
    pub is_consumed: AtomicBool,
    confirms: Mutex<Option<Histogram<u64>>>,
    deliveries: Mutex<Option<Histogram<u64>>>,
    started_stamp: u64,
}

/// A histogram while a thread adds to it.
pub(super) struct Times<'a> {
    histogram: MutexGuard<'a, Option<Histogram<u64>>>,
    /// Messages of other runs were sent before.
    not_before: u64,
}

impl Times<'_> {
    /// Adds messages by the times at which they were sent and came.
    pub fn record(&mut self, sent: u64, now: u64, count: u64) {
        if let Some(histogram) = self.histogram.as_mut().filter(|_| sent >= self.not_before) {
            histogram.saturating_record_n(now.saturating_sub(sent).max(1), count);
        }
    }
}

impl Figures {
    pub fn new() -> Figures {
        let counters = Counters::new();
        let started_stamp = counters.stamp();
        let (confirms, deliveries) = (Mutex::new(histogram()), Mutex::new(histogram()));
        Figures { counters, is_consumed: AtomicBool::new(false), confirms, deliveries, started_stamp }
    }

    pub fn confirms(&self) -> Times<'_> {
        Times { histogram: lock(&self.confirms), not_before: 0 }
    }

    pub fn deliveries(&self) -> Times<'_> {
        Times { histogram: lock(&self.deliveries), not_before: self.started_stamp }
    }

    pub fn report(&self, cpu: Option<Duration>) -> Value {
        let mut report = self.counters.report();
        let counts = [&self.counters.published, &self.counters.consumed].map(|count| count.load(Ordering::Relaxed));
        let messages = counts.into_iter().max().unwrap_or_default().max(1);
        if let Some(report) = report.as_object_mut() {
            report.insert("latency_us".to_owned(), percentiles(lock(&self.confirms).as_ref()));
            report.insert("end_to_end_us".to_owned(), percentiles(lock(&self.deliveries).as_ref()));
            if let Some(cpu) = cpu {
                report.insert("broker_cpu_us".to_owned(), json!(cpu.as_secs_f64() * 1e6 / messages as f64));
            }
        }
        report
    }
}
