//! `Backup`, a copy of one virtual host's log to be written to a directory, and `OpenBackup`, the same to be read.

use std::path::Path;
use std::sync::Mutex;

use penstock_engine::{Backup, OpenBackup};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{Doing, of_engine};
use crate::records::BackupFile;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyBackup>()?;
    module.add_class::<PyOpenBackup>()
}

#[pyclass(name = "Backup", module = "penstock._core", frozen)]
pub(crate) struct PyBackup {
    backup: Mutex<Option<Backup>>,
    vhost: String,
    #[pyo3(get)]
    position: u64,
}

#[pymethods]
impl PyBackup {
    fn write(&self, py: Python<'_>, directory: &str) -> PyResult<()> {
        let backup = self.taken()?;
        let written = py.detach(|| backup.write(Path::new(directory)));
        written.map_err(|error| of_engine(py, &error, Doing::CopyingLog { vhost: &self.vhost, directory }))
    }

    fn open(&self, py: Python<'_>) -> PyResult<PyOpenBackup> {
        let backup = self.taken()?;
        let opened = py.detach(|| backup.open());
        let open = opened.map_err(|error| of_engine(py, &error, Doing::ReadingBackup { vhost: &self.vhost }))?;
        Ok(PyOpenBackup { open: Mutex::new(Some(open)), vhost: self.vhost.clone() })
    }

    fn close(&self) {
        drop(self.take());
    }
}

impl PyBackup {
    pub(crate) fn new(backup: Backup, vhost: &str) -> PyBackup {
        PyBackup { position: backup.position().0, vhost: vhost.to_owned(), backup: Mutex::new(Some(backup)) }
    }

    fn take(&self) -> Option<Backup> {
        self.backup.lock().ok().and_then(|mut backup| backup.take())
    }

    fn taken(&self) -> PyResult<Backup> {
        self.take().ok_or_else(|| PyValueError::new_err("this backup was written, opened or closed already"))
    }
}

/// The lock is held while a part is read, so `close` waits for it and is called without the GIL.
#[pyclass(name = "OpenBackup", module = "penstock._core", frozen)]
struct PyOpenBackup {
    open: Mutex<Option<OpenBackup>>,
    vhost: String,
}

#[pymethods]
impl PyOpenBackup {
    #[getter]
    fn files(&self, py: Python<'_>) -> Vec<BackupFile> {
        py.detach(|| {
            let open = self.open.lock();
            let files = open.ok().and_then(|open| open.as_ref().map(|open| open.files().to_vec())).unwrap_or_default();
            files.into_iter().map(|file| BackupFile { path: file.path, bytes: file.bytes, size: file.size }).collect()
        })
    }

    fn read<'py>(&self, py: Python<'py>, file: usize, at: u64, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        let read = py.detach(|| {
            let mut open = self.open.lock().ok()?;
            open.as_mut().map(|open| open.read(file, at, length))
        });
        let Some(read) = read else { return Err(PyValueError::new_err("this backup was closed already")) };
        let part = read.map_err(|error| of_engine(py, &error, Doing::ReadingBackup { vhost: &self.vhost }))?;
        Ok(PyBytes::new(py, &part))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.open.lock().ok().and_then(|mut open| open.take())));
    }
}
