//! `Replica`: this broker's replica of one shard.

use std::path::Path;
use std::sync::Arc;

use penstock_cluster::comparing::{Difference, compare};
use penstock_cluster::{AppendError, EntriesError, Identity, Shard};
use penstock_engine::{QueueId, StreamReplica};
use penstock_log::Position;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySequence};

use crate::cluster_records::{
    LogEntry, ReplicaIdentity, ReplicaStanding, ShardProgress, ShardState, replica_of, text_of,
};
use crate::engine::PyEngine;
use crate::errors::{of_opened, of_replica};
use crate::replica_backup::PyReplicaBackup;
use crate::shard::PyShard;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(read_replica, module)?)?;
    module.add_function(wrap_pyfunction!(compare_lists, module)?)?;
    module.add_class::<ComparedLists>()?;
    module.add_class::<DifferingRecord>()?;
    module.add_class::<PyReplica>()
}

/// The replica that a folder has, without opening its log; None where there is none.
#[pyfunction]
fn read_replica(py: Python<'_>, directory: &str) -> PyResult<Option<ReplicaIdentity>> {
    let read = py.detach(|| Identity::read(Path::new(directory)));
    let found = read.map_err(|error| of_opened(py, directory, "cannot be read", &error))?;
    Ok(found.map(ReplicaIdentity::from))
}

/// A record with different checksums in two lists.
#[pyclass(module = "penstock._core", frozen, get_all)]
#[derive(Clone)]
pub(crate) struct DifferingRecord {
    position: u64,
    own: u32,
    other: u32,
}

/// Two lists of records, compared as far as both go.
#[pyclass(module = "penstock._core", frozen, get_all)]
pub(crate) struct ComparedLists {
    until: u64,
    count: usize,
    differing: usize,
    named: Vec<DifferingRecord>,
}

/// Compares lists of records from a position on: an own one, and one that another broker sent.
#[pyfunction]
fn compare_lists(after: u64, own: &[u8], other: &[u8]) -> PyResult<ComparedLists> {
    let compared = compare(after, own, other).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let record = |each: &Difference| DifferingRecord { position: each.position, own: each.own, other: each.other };
    let named = compared.named.iter().map(record).collect();
    Ok(ComparedLists { until: compared.until, count: compared.count, differing: compared.differing, named })
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

    /// Its streams, for those who read them here.
    pub(crate) fn streams(&self) -> Arc<dyn StreamReplica> {
        Arc::clone(&self.shard) as _
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

    #[getter]
    fn progress(&self, py: Python<'_>) -> Option<ShardProgress> {
        py.detach(|| self.shard.progress()).map(ShardProgress::from)
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
        let appended = py.detach(|| self.shard.append_entries(epoch, token, &slices));
        self.position_of(py, appended)
    }

    fn read(&self, py: Python<'_>, after: u64, bytes_max: usize) -> PyResult<Option<Vec<LogEntry>>> {
        match py.detach(|| self.shard.read_entries(Position(after), bytes_max)) {
            Ok(entries) => Ok(Some(entries.into_iter().map(LogEntry::from).collect())),
            Err(EntriesError::Removed(_)) => Ok(None),
            Err(error) => Err(of_replica(py, &self.directory, "cannot be read", &error)),
        }
    }

    fn settle(&self, py: Python<'_>, epoch: u64, token: u64, until: u64) -> PyResult<Option<u64>> {
        let appended = py.detach(|| self.shard.settle_entries(epoch, token, Position(until)));
        self.position_of(py, appended)
    }

    fn fold(&self, py: Python<'_>, checkpoint: u64) -> PyResult<bool> {
        let folded = py.detach(|| self.shard.fold_entries(Position(checkpoint)));
        folded.map_err(|error| of_replica(py, &self.directory, "cannot be shortened", &error))
    }

    fn lead(&self, py: Python<'_>, engine: &PyEngine, name: &str, epoch: u64) -> PyResult<Option<PyShard>> {
        let led = py.detach(|| self.shard.lead(&engine.engine, name, epoch));
        match led {
            Ok(queues) => Ok(queues.map(|shard| PyShard { shard })),
            Err(error) => Err(of_replica(py, &self.directory, "cannot open its queues", &error)),
        }
    }

    fn lead_further(
        &self,
        py: Python<'_>,
        engine: &PyEngine,
        vhost: &PyShard,
        number: u16,
        epoch: u64,
    ) -> PyResult<bool> {
        let led = py.detach(|| self.shard.lead_further(&engine.engine, &vhost.shard, number, epoch));
        match led {
            Ok(queues) => Ok(queues.is_some()),
            Err(error) => Err(of_replica(py, &self.directory, "cannot open its queues", &error)),
        }
    }

    fn begin_backup(&self, py: Python<'_>) -> PyResult<PyReplicaBackup> {
        let begun = py.detach(|| self.shard.begin_backup()).ok_or_else(not_open)?;
        let ticket = begun.map_err(|error| of_replica(py, &self.directory, "cannot be backed up", &error))?;
        Ok(PyReplicaBackup::new(ticket, &self.directory))
    }

    #[pyo3(signature = (after, until = None))]
    fn list_checksums<'py>(&self, py: Python<'py>, after: u64, until: Option<u64>) -> PyResult<Bound<'py, PyBytes>> {
        let listed = py.detach(|| self.shard.list_checksums(after, until.unwrap_or(u64::MAX))).ok_or_else(not_open)?;
        let list = listed.map_err(|error| of_replica(py, &self.directory, "cannot be listed", &error))?;
        Ok(PyBytes::new(py, &list))
    }

    fn may_be_read(&self, py: Python<'_>) -> bool {
        py.detach(|| self.shard.may_be_read())
    }

    fn end_readers(&self, py: Python<'_>, queue_id: u64, reason: &str) {
        py.detach(|| self.shard.end_readers(QueueId(queue_id), reason));
    }

    fn place(&self, py: Python<'_>, brokers: Vec<u64>) {
        py.detach(|| self.shard.place(brokers.into_iter().collect()));
    }

    fn hand_over(&self, py: Python<'_>, replica: &str) -> PyResult<()> {
        let to = replica_of(replica)?;
        py.detach(|| self.shard.hand_over(to));
        Ok(())
    }
}

impl PyReplica {
    /// `None` where nothing was appended, as another replica leads.
    fn position_of(&self, py: Python<'_>, appended: Result<Position, AppendError>) -> PyResult<Option<u64>> {
        match appended {
            Ok(position) => Ok(Some(position.0)),
            Err(AppendError::NotLeading) => Ok(None),
            Err(error) => Err(of_replica(py, &self.directory, "failed", &error)),
        }
    }
}

fn not_open() -> PyErr {
    PyRuntimeError::new_err("the log of this replica could not be opened again")
}
