//! `Replica`: this broker's replica of one shard.

use std::sync::Arc;

use penstock_cluster::{AppendError, Shard};
use penstock_log::Position;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySequence};

use crate::cluster_records::{LogEntry, ReplicaStanding, ShardState, replica_of, text_of};
use crate::errors::of_replica;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyReplica>()
}

#[pyclass(name = "Replica", module = "penstock._core", frozen)]
pub(crate) struct PyReplica {
    shard: Arc<Shard>,
    directory: String,
}

impl PyReplica {
    pub(crate) fn new(shard: Arc<Shard>, directory: &str) -> PyReplica {
        PyReplica { shard, directory: directory.to_owned() }
    }
}

#[pymethods]
impl PyReplica {
    #[getter]
    fn replica(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.shard.replica()).map(text_of).ok_or_else(not_open)
    }

    /// The record of the shard, as last read or watched.
    #[getter]
    fn record(&self, py: Python<'_>) -> Option<ShardState> {
        py.detach(|| self.shard.record()).map(ShardState::from)
    }

    #[getter]
    fn standing(&self, py: Python<'_>) -> PyResult<ReplicaStanding> {
        py.detach(|| self.shard.standing()).map(ReplicaStanding::from).ok_or_else(not_open)
    }

    fn append(
        &self,
        py: Python<'_>,
        epoch: u64,
        token: u64,
        contents: &Bound<'_, PySequence>,
    ) -> PyResult<Option<u64>> {
        // This list keeps the bytes alive while the GIL is released; bytes never change.
        let items = contents.to_list()?;
        let contents = items.iter().map(|item| Ok(item.cast_into::<PyBytes>()?.unbind()));
        let contents: Vec<Py<PyBytes>> =
            contents.collect::<PyResult<_>>().map_err(|_| PyTypeError::new_err("every content must be bytes"))?;
        let slices: Vec<&[u8]> = contents.iter().map(|content| content.as_bytes(py)).collect();
        match py.detach(|| self.shard.append_entries(epoch, token, &slices)) {
            Ok(position) => Ok(Some(position.0)),
            Err(AppendError::NotLeading) => Ok(None),
            Err(error) => Err(of_replica(py, &self.directory, "failed", &error)),
        }
    }

    fn read(&self, py: Python<'_>, after: u64, bytes_max: usize) -> PyResult<Vec<LogEntry>> {
        let read = py.detach(|| self.shard.read_entries(Position(after), bytes_max));
        let entries = read.map_err(|error| of_replica(py, &self.directory, "cannot be read", &error))?;
        Ok(entries.into_iter().map(LogEntry::from).collect())
    }

    fn hand_over(&self, py: Python<'_>, replica: &str) -> PyResult<()> {
        let to = replica_of(replica)?;
        py.detach(|| self.shard.hand_over(to));
        Ok(())
    }
}

fn not_open() -> PyErr {
    PyRuntimeError::new_err("the log of this replica could not be opened again")
}
