//! The JSON decoder of the Spark connector. The interpreter is free while it works.

use penstock_json::{IpcDecoder, SchemaFault};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<JsonDecoder>()?;
    module.add_class::<DecodedBodies>()?;
    module.add_class::<BadBody>()
}

#[pyclass(frozen, module = "penstock._core")]
struct JsonDecoder(IpcDecoder);

/// A batch of Arrow's IPC, null in the rows of bad bodies.
#[pyclass(frozen, get_all, module = "penstock._core")]
struct DecodedBodies {
    batch: Py<PyBytes>,
    bad: Vec<BadBody>,
}

/// The row of a body that is not decoded, and why.
#[pyclass(frozen, get_all, module = "penstock._core")]
#[derive(Clone)]
struct BadBody {
    row: usize,
    reason: String,
}

#[pymethods]
impl JsonDecoder {
    #[new]
    fn new(schema: &[u8]) -> PyResult<Self> {
        IpcDecoder::new(schema).map(Self).map_err(|fault| of_schema(&fault))
    }

    fn decode(&self, py: Python<'_>, offsets: &[u8], bodies: &[u8]) -> PyResult<DecodedBodies> {
        let decoded = py.detach(|| self.0.decode(offsets, bodies));
        let (batch, bad) = decoded.map_err(|fault| of_schema(&fault))?;
        let bad = bad.into_iter().map(|bad| BadBody { row: bad.row, reason: bad.reason }).collect();
        Ok(DecodedBodies { batch: PyBytes::new(py, &batch).unbind(), bad })
    }
}

fn of_schema(fault: &SchemaFault) -> PyErr {
    PyValueError::new_err(fault.to_string())
}
