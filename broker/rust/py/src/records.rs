//! What the broker's part of the module takes and returns in rows: frozen classes with named fields.

use penstock_engine::{LeaseStanding, StreamStanding};
use pyo3::prelude::*;

/// Frozen classes whose constructors take their fields by keyword.
macro_rules! records {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty $(= $default:tt)?),* $(,)? })*) => {
        $(
            $(#[$meta])*
            #[pyclass(module = "penstock._core", frozen, get_all, eq, hash)]
            #[derive(Debug, PartialEq, Eq, Hash)]
            pub(crate) struct $name { $(pub $field: $type),* }

            #[pymethods]
            impl $name {
                #[new]
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

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_records(module)?;
    module.add_class::<LeaseState>()
}

records! {
    NewQueue {
        id: u32,
        name: String,
        auto_delete: bool = false,
        level: Option<String> = None,
        least_level: Option<String> = None,
        retention: Option<(u64, u64)> = None,
    }
    NewRoute {
        exchange: String,
        key: String,
        r#match: Option<Vec<u8>> = None,
        to_exchange: bool = false,
        destination: String,
    }
    QueueCounts {
        ready_count: u64 = 0,
        unacked_count: u64 = 0,
        ready_bytes: u64 = 0,
        unacked_bytes: u64 = 0,
        consumer_count: u64 = 0,
    }
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
    LeaseOwnerState { name: String, acked: u64 = 0, leases: Vec<LeaseState> }
    ProducerState { name: String, sequence: u64, used_at_ms: u64 = 0, is_open: bool = false, owner: Option<String> = None }
    StageState { last_batch: Option<u64> = None, is_copying: bool = false }
    CorruptFile { file: String, at: u64, record_count: u64, queues: Vec<String> }
    DroppedMessage { queue_id: u32, sequence: u64, error: String }
    Notice { is_warning: bool, text: String }
}

/// One lease; beside the others because lists of it are taken from Python, too.
#[pyclass(module = "penstock._core", frozen, get_all, eq, hash, from_py_object)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseState {
    pub number: u64,
    pub message_count: u64,
    pub bytes: u64,
    pub reserved_at_ms: u64,
}

#[pymethods]
impl LeaseState {
    #[new]
    #[pyo3(signature = (*, number, message_count, bytes = 0, reserved_at_ms = 0))]
    fn new(number: u64, message_count: u64, bytes: u64, reserved_at_ms: u64) -> Self {
        Self { number, message_count, bytes, reserved_at_ms }
    }

    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

impl From<penstock_engine::QueueCounts> for QueueCounts {
    fn from(counts: penstock_engine::QueueCounts) -> Self {
        Self {
            ready_count: counts.ready_count,
            unacked_count: counts.unacked_count,
            ready_bytes: counts.ready_bytes,
            unacked_bytes: counts.unacked_bytes,
            consumer_count: counts.consumer_count,
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
