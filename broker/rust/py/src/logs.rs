//! Reading and repairing the log of a stopped virtual host.

use std::path::Path;
use std::time::Duration;

use penstock_engine::{CorruptRecord, Engine, EngineError, EngineOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Doing, of_engine};
use crate::records::DroppedMessage;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(inspect_log, module)?)?;
    module.add_function(wrap_pyfunction!(repair_log, module)?)
}

/// Reads a stopped vhost's log: one dictionary per segment.
#[pyfunction]
#[pyo3(signature = (directory, *, verify))]
fn inspect_log<'py>(py: Python<'py>, directory: &str, verify: bool) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let reports = py
        .detach(|| penstock_engine::inspect(Path::new(directory), verify))
        .map_err(|error| of_engine(py, &EngineError::Log(error), Doing::ReadingLog { directory }))?;
    let as_dict = |report: &penstock_engine::SegmentReport| {
        let dict = PyDict::new(py);
        dict.set_item("file", &report.file)?;
        dict.set_item("first_position", report.first_position)?;
        dict.set_item("bytes", report.bytes)?;
        dict.set_item("records", report.records)?;
        dict.set_item("messages", report.messages)?;
        dict.set_item("settles", report.settles)?;
        dict.set_item("error", &report.error)?;
        dict.set_item("error_at", report.error_at)?;
        let corrupt: PyResult<Vec<_>> = report.corrupt.iter().map(|corrupt| corrupt_record(py, corrupt)).collect();
        dict.set_item("corrupt", corrupt?)?;
        Ok(dict)
    };
    reports.iter().map(as_dict).collect()
}

fn corrupt_record<'py>(py: Python<'py>, corrupt: &CorruptRecord) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("at", corrupt.at)?;
    dict.set_item("position", corrupt.position)?;
    dict.set_item("error", &corrupt.why)?;
    let targets: Vec<(u32, u64)> = corrupt.targets.iter().map(|target| (target.queue.0, target.sequence.0)).collect();
    dict.set_item("targets", targets)?;
    Ok(dict)
}

/// Repairs a stopped vhost's log. Returns the messages that it dropped and the files that it set aside.
#[pyfunction]
#[pyo3(signature = (directory, *, segment_bytes_min, segment_bytes_max))]
fn repair_log(
    py: Python<'_>,
    directory: &str,
    segment_bytes_min: u64,
    segment_bytes_max: u64,
) -> PyResult<(Vec<DroppedMessage>, Vec<String>)> {
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
        .detach(|| Engine::repair(&options, Path::new(directory)))
        .map_err(|error| of_engine(py, &error, Doing::RepairingLog { directory }))?;
    let dropped = repaired.dropped.into_iter().map(|(target, error)| DroppedMessage {
        queue_id: target.queue.0,
        sequence: target.sequence.0,
        error,
    });
    Ok((dropped.collect(), repaired.set_aside))
}
