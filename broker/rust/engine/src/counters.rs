//! Counters of a process: relaxed atomics, updated once per batch.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters.
#[derive(Clone, Copy, Debug)]
pub enum Metric {
    Published,
    PublishedBytes,
    Confirmed,
    Delivered,
    DeliveredBytes,
    Settled,
    Returned,
    Syncs,
    SyncMicros,
    CorruptRecords,
    Compacted,
    CompactionsGivenUp,
    TlsFailures,
    Connections,
    Consumers,
    Readers,
    Expired,
    DeadLetteredRejected,
    DeadLetteredExpired,
    DeadLetteredMaxLength,
    DeadLetteredDeliveryLimit,
    DeadLettersDropped,
    ConnectionsRefused,
    ConnectionsTooSlow,
    PublishPauses,
    DeliveryPauses,
    StreamsRefused,
    OverflowDropped,
    OverflowRefused,
    Deduplicated,
}

const NAMES: [&str; 30] = [
    "published_total",
    "published_bytes_total",
    "confirmed_total",
    "delivered_total",
    "delivered_bytes_total",
    "settled_total",
    "returned_total",
    "syncs_total",
    "sync_microseconds_total",
    "corrupt_records_total",
    "compaction_bytes_total",
    "compactions_given_up_total",
    "tls_failures_total",
    "connections",
    "consumers",
    "readers",
    "expired_total",
    "dead_lettered_rejected_total",
    "dead_lettered_expired_total",
    "dead_lettered_maxlen_total",
    "dead_lettered_delivery_limit_total",
    "dead_letters_dropped_total",
    "connections_refused_total",
    "connections_too_slow_total",
    "publish_pauses_total",
    "delivery_pauses_total",
    "streams_refused_total",
    "overflow_dropped_total",
    "overflow_refused_total",
    "deduplicated_total",
];

/// One counter per [`Metric`].
#[derive(Debug, Default)]
pub struct Counters {
    values: [AtomicU64; NAMES.len()],
}

impl Counters {
    pub fn add(&self, metric: Metric, amount: u64) {
        if let Some(value) = self.values.get(metric as usize) {
            value.fetch_add(amount, Ordering::Relaxed);
        }
    }

    pub fn subtract(&self, metric: Metric, amount: u64) {
        if let Some(value) = self.values.get(metric as usize) {
            value.fetch_sub(amount, Ordering::Relaxed);
        }
    }

    /// Every counter with its name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.iter().zip(&self.values).map(|(name, value)| (*name, value.load(Ordering::Relaxed)))
    }
}
