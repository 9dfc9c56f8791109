//! The JSON decoder of the Spark connector. The interpreter is free while it works.

use penstock_json::{IpcDecoder, SchemaFault};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<JsonDecoder>()
}

#[pyclass(frozen, module = "penstock._core")]
struct JsonDecoder(IpcDecoder);

type Decoded<'py> = (Bound<'py, PyBytes>, Vec<(usize, String)>);

#[pymethods]
impl JsonDecoder {
    #[new]
    fn new(schema: &[u8]) -> PyResult<Self> {
        IpcDecoder::new(schema).map(Self).map_err(|fault| of_schema(&fault))
    }

    fn decode<'py>(&self, py: Python<'py>, offsets: &[u8], bodies: &[u8]) -> PyResult<Decoded<'py>> {
        let decoded = py.detach(|| self.0.decode(offsets, bodies));
        let (batch, bad) = decoded.map_err(|fault| of_schema(&fault))?;
        Ok((PyBytes::new(py, &batch), bad.into_iter().map(|bad| (bad.row, bad.reason)).collect()))
    }
}

fn of_schema(fault: &SchemaFault) -> PyErr {
    PyValueError::new_err(fault.to_string())
}
