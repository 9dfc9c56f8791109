//! Reading and repairing the log of a stopped virtual host.

use std::path::Path;
use std::time::Duration;

use penstock_engine::{Engine, EngineError, EngineOptions};
use pyo3::prelude::*;

use crate::errors::{Doing, of_engine};
use crate::records::{DroppedMessage, LogRepair, SegmentReport};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(inspect_log, module)?)?;
    module.add_function(wrap_pyfunction!(repair_log, module)?)
}

/// Reads a stopped vhost's log: one report per segment.
#[pyfunction]
#[pyo3(signature = (directory, *, verify, shard = 0))]
fn inspect_log(py: Python<'_>, directory: &str, verify: bool, shard: u16) -> PyResult<Vec<SegmentReport>> {
    let reports = py
        .detach(|| penstock_engine::inspect_shard(Path::new(directory), shard, verify))
        .map_err(|error| of_engine(py, &EngineError::Log(error), Doing::ReadingLog { directory }))?;
    Ok(reports.into_iter().map(SegmentReport::from).collect())
}

/// Repairs a stopped vhost's log. Returns the messages that it dropped and the files that it set aside.
#[pyfunction]
#[pyo3(signature = (directory, *, segment_bytes_min, segment_bytes_max, shard = 0))]
fn repair_log(
    py: Python<'_>,
    directory: &str,
    segment_bytes_min: u64,
    segment_bytes_max: u64,
    shard: u16,
) -> PyResult<LogRepair> {
    let options = EngineOptions {
        segment_bytes_min,
        segment_bytes_max,
        segment_idle: Duration::ZERO,
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 4096,
    };
    let repaired = py
        .detach(|| Engine::repair(&options, Path::new(directory), shard))
        .map_err(|error| of_engine(py, &error, Doing::RepairingLog { directory }))?;
    let dropped = repaired.dropped.into_iter().map(|(target, error)| DroppedMessage {
        queue_id: target.queue.0,
        sequence: target.sequence.0,
        error,
    });
    Ok(LogRepair { dropped: dropped.collect(), set_aside: repaired.set_aside })
}
