//! The rows that the module takes and returns: frozen classes with named fields.

use std::fmt;

use penstock_engine::{LeaseStanding, StreamStanding};
use penstock_serve::host::QuotaLimits;
use pyo3::prelude::*;

/// Frozen classes whose constructors take their fields by keyword.
macro_rules! records {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty $(= $default:tt)?),* $(,)? })*) => {
        $(
            $(#[$meta])*
            #[pyclass(module = "penstock._core", frozen, get_all, eq, hash, from_py_object)]
            #[derive(Clone, Debug, PartialEq, Eq, Hash)]
            pub(crate) struct $name { $(pub $field: $type),* }

            #[pymethods]
            impl $name {
                #[new]
                #[allow(clippy::too_many_arguments, reason = "Python names them")]
                #[pyo3(signature = (*, $($field $(= $default)?),*))]
                fn new($($field: $type),*) -> Self {
                    Self { $($field),* }
                }

                fn __repr__(&self) -> String {
                    format!("{self:?}")
                }
            }
        )*

        fn add_records(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_class::<$name>()?;)*
            Ok(())
        }
    };
}

pub(crate) use records;

/// A private key: a representation, which may get into a log, does not show it.
#[derive(Clone, PartialEq, Eq, Hash, FromPyObject, IntoPyObject, IntoPyObjectRef)]
#[pyo3(transparent)]
pub(crate) struct Secret<T>(pub T);

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("...")
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_records(module)
}

records! {
    NewQueue {
        id: u64,
        name: String,
        auto_delete: bool = false,
        level: Option<String> = None,
        least_level: Option<String> = None,
        retention: Option<StreamRetention> = None,
        message_ttl_ms: Option<u64> = None,
        messages_max: Option<u64> = None,
        bytes_max: Option<u64> = None,
        rejects_publish: bool = false,
        dead_letters_refused: bool = false,
        expires_ms: Option<u64> = None,
        max_priority: u8 = 0,
        fair_key: Option<String> = None,
        single_active: bool = false,
        consumer_timeout_ms: Option<u64> = None,
        shard: u16 = 0,
        dead_letters: Option<DeadLetterRoute> = None,
        delivery_limit: Option<u32> = None,
        counts_failures: bool = false,
        retries: Option<RetrySchedule> = None,
        deduplication: Option<SeenIds> = None,
    }
    SeenIds { header: String, size_max: u32, ttl_ms: Option<u64> = None }
    DeadLetterRoute { exchange: String, routing_key: Option<String> = None, at_least_once: bool = false }
    RetrySchedule { kind: String, min_ms: u64 = 0, max_ms: Option<u64> = None, steps_ms: Vec<u64> }
    ProducerSequences { complete: u64, highest: u64 }
    StreamRetention { age_ms_max: u64 = 0, bytes_max: u64 = 0 }
    NewRoute {
        exchange: String,
        key: String,
        r#match: Option<Vec<u8>> = None,
        to_exchange: bool = false,
        destination: String,
    }
    QueueCounts {
        ready_count: u64 = 0,
        delayed_count: u64 = 0,
        unacked_count: u64 = 0,
        ready_bytes: u64 = 0,
        unacked_bytes: u64 = 0,
        consumer_count: u64 = 0,
        published_count: u64 = 0,
        delivered_count: u64 = 0,
        settled_count: u64 = 0,
        deduplicated_count: u64 = 0,
    }
    VhostCounts { ready_count: u64 = 0, unacked_count: u64 = 0, lock_wait_ns: u64 = 0 }
    StreamState {
        first: u64 = 0,
        next: u64 = 0,
        count: u64 = 0,
        bytes: u64 = 0,
        first_timestamp_ms: u64 = 0,
        last_timestamp_ms: u64 = 0,
        reader_count: u64 = 0,
    }
    GroupState { name: String, offset: Option<u64> = None, reader_count: u64 = 0 }
    ReservedLease {
        message_count: u64,
        bytes: u64,
        reserved_at_ms: u64,
        is_new: bool,
        ready_count: u64,
    }
    LeaseState { number: u64, message_count: u64, bytes: u64 = 0, reserved_at_ms: u64 = 0 }
    LeaseOwnerState { name: String, acked: u64 = 0, leases: Vec<LeaseState> }
    ProducerState { name: String, sequence: u64, used_at_ms: u64 = 0, is_open: bool = false, owner: Option<String> = None }
    StageState { last_batch: Option<u64> = None, is_copying: bool = false }
    BackupFile { path: String, bytes: u64, size: u64 }
    CorruptFile { file: String, at: u64, record_count: u64, queues: Vec<String> }
    DroppedMessage { queue_id: u64, sequence: u64, error: String }
    LogRecovery { microseconds: u64 = 0, bytes_read: u64 = 0, records: u64 = 0, torn_bytes: u64 = 0 }
    MessageId { queue_id: u64, sequence: u64 }
    CorruptRecord { at: u64, position: u64, error: String, messages: Vec<MessageId> }
    SegmentReport {
        file: String,
        first_position: u64,
        bytes: u64,
        records: u64,
        messages: u64,
        settles: u64,
        error: Option<String> = None,
        error_at: Option<u64> = None,
        corrupt: Vec<CorruptRecord>,
    }
    LogRepair { dropped: Vec<DroppedMessage>, set_aside: Vec<String> }
    UsageLimits {
        publish_rate: Option<u64> = None,
        publish_bytes_rate: Option<u64> = None,
        in_flight_bytes_max: Option<u64> = None,
        message_bytes_max: Option<u64> = None,
        streams_max: Option<u64> = None,
    }
    NamedCertificate { name: String, chain: Vec<u8>, key: Secret<Vec<u8>> }
    ChannelTls { authorities: String, certificate: String, key: Secret<String>, server_name: String }
    OutcomeRange { first: u64, last: u64, code: i32, reason: String }
    Notice { is_warning: bool, text: String }
}

impl From<penstock_engine::QueueCounts> for QueueCounts {
    fn from(counts: penstock_engine::QueueCounts) -> Self {
        Self {
            ready_count: counts.ready_count,
            delayed_count: counts.delayed_count,
            unacked_count: counts.unacked_count,
            ready_bytes: counts.ready_bytes,
            unacked_bytes: counts.unacked_bytes,
            consumer_count: counts.consumer_count,
            published_count: counts.published_count,
            delivered_count: counts.delivered_count,
            settled_count: counts.settled_count,
            deduplicated_count: counts.deduplicated_count,
        }
    }
}

impl From<StreamStanding> for StreamState {
    fn from(standing: StreamStanding) -> Self {
        let StreamStanding { first, next, count, bytes, first_timestamp_ms, last_timestamp_ms, reader_count, .. } =
            standing;
        Self { first, next, count, bytes, first_timestamp_ms, last_timestamp_ms, reader_count }
    }
}

impl From<LeaseStanding> for LeaseState {
    fn from(lease: LeaseStanding) -> Self {
        let LeaseStanding { number, count, bytes, reserved_at_ms, .. } = lease;
        Self { number, message_count: count, bytes, reserved_at_ms }
    }
}

impl From<penstock_engine::SegmentReport> for SegmentReport {
    fn from(report: penstock_engine::SegmentReport) -> Self {
        Self {
            file: report.file,
            first_position: report.first_position,
            bytes: report.bytes,
            records: report.records,
            messages: report.messages,
            settles: report.settles,
            error: report.error,
            error_at: report.error_at,
            corrupt: report.corrupt.into_iter().map(CorruptRecord::from).collect(),
        }
    }
}

impl From<penstock_engine::CorruptRecord> for CorruptRecord {
    fn from(corrupt: penstock_engine::CorruptRecord) -> Self {
        let penstock_engine::CorruptRecord { at, position, why, targets, .. } = corrupt;
        let message =
            |target: penstock_engine::Target| MessageId { queue_id: target.queue.0, sequence: target.sequence.0 };
        Self { at, position, error: why, messages: targets.into_iter().map(message).collect() }
    }
}

impl From<UsageLimits> for QuotaLimits {
    fn from(limits: UsageLimits) -> Self {
        let UsageLimits { publish_rate, publish_bytes_rate, in_flight_bytes_max, message_bytes_max, streams_max } =
            limits;
        Self { publish_rate, publish_bytes_rate, in_flight_bytes_max, message_bytes_max, streams_max }
    }
}
