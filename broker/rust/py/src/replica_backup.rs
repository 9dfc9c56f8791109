//! `ReplicaBackup`, a copy of the log of this broker's replica, and `OpenReplicaBackup`, the same to be read part by part; and the log
//! of a backup that becomes a replica's.

use std::path::Path;
use std::sync::Mutex;

use penstock_cluster::{Restoring, prepare_restored};
use penstock_log::{BackupReader, BackupTicket};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cluster_records::{id_of, replica_of};
use crate::errors::{of_replica, of_restored};
use crate::records::BackupFile;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(prepare_replica, module)?)?;
    module.add_class::<PyReplicaBackup>()?;
    module.add_class::<PyOpenReplicaBackup>()
}

/// Prepares the log of a backup for a replica on a new disk; returns the epoch that it ends with.
#[pyfunction]
#[pyo3(signature = (directory, *, log, replica, jump, raises_sequences, unix_ms))]
fn prepare_replica(
    py: Python<'_>,
    directory: &str,
    log: Vec<u8>,
    replica: &str,
    jump: u32,
    raises_sequences: bool,
    unix_ms: u64,
) -> PyResult<u64> {
    let (log_id, replica) = (id_of("log", log)?, replica_of(replica)?);
    let restoring = Restoring { log_id, replica, jump, raises_sequences, unix_ms };
    let prepared = py.detach(|| prepare_restored(Path::new(directory), restoring));
    prepared.map_err(|error| of_restored(py, directory, &error))
}

#[pyclass(name = "ReplicaBackup", module = "penstock._core", frozen)]
pub(crate) struct PyReplicaBackup {
    ticket: Mutex<Option<BackupTicket>>,
    /// The replica's.
    directory: String,
    #[pyo3(get)]
    position: u64,
}

#[pymethods]
impl PyReplicaBackup {
    fn write(&self, py: Python<'_>, directory: &str) -> PyResult<()> {
        let ticket = self.taken()?;
        let written = py.detach(|| ticket.perform(Path::new(directory)));
        written.map_err(|error| of_replica(py, &self.directory, "cannot be backed up", &error))
    }

    fn open(&self, py: Python<'_>) -> PyResult<PyOpenReplicaBackup> {
        let ticket = self.taken()?;
        let opened = py.detach(|| ticket.open());
        let reader = opened.map_err(|error| of_replica(py, &self.directory, "cannot be backed up", &error))?;
        Ok(PyOpenReplicaBackup { reader: Mutex::new(Some(reader)), directory: self.directory.clone() })
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.take()));
    }
}

impl PyReplicaBackup {
    pub(crate) fn new(ticket: BackupTicket, directory: &str) -> PyReplicaBackup {
        let position = ticket.position().0;
        PyReplicaBackup { position, directory: directory.to_owned(), ticket: Mutex::new(Some(ticket)) }
    }

    fn take(&self) -> Option<BackupTicket> {
        self.ticket.lock().ok().and_then(|mut ticket| ticket.take())
    }

    fn taken(&self) -> PyResult<BackupTicket> {
        self.take().ok_or_else(|| PyValueError::new_err("this backup was written, opened or closed already"))
    }
}

/// The lock is held while a part is read, so `close` waits for it and is called without the GIL.
#[pyclass(name = "OpenReplicaBackup", module = "penstock._core", frozen)]
struct PyOpenReplicaBackup {
    reader: Mutex<Option<BackupReader>>,
    directory: String,
}

#[pymethods]
impl PyOpenReplicaBackup {
    #[getter]
    fn files(&self, py: Python<'_>) -> Vec<BackupFile> {
        py.detach(|| {
            let Ok(reader) = self.reader.lock() else { return Vec::new() };
            let files = reader.iter().flat_map(BackupReader::files);
            files.map(|file| BackupFile { path: file.name.clone(), bytes: file.bytes, size: file.size }).collect()
        })
    }

    fn read<'py>(&self, py: Python<'py>, file: usize, at: u64, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        let read = py.detach(|| {
            let mut reader = self.reader.lock().ok()?;
            reader.as_mut().map(|reader| reader.read(file, at, length))
        });
        let Some(read) = read else { return Err(PyValueError::new_err("this backup was closed already")) };
        let part = read.map_err(|error| of_replica(py, &self.directory, "cannot be backed up", &error))?;
        Ok(PyBytes::new(py, &part))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.reader.lock().ok().and_then(|mut reader| reader.take())));
    }
}
