//! `Reader` and `StreamDelivery`, for the Python client: a stream's messages as Python objects. As with `Delivery`, making one
//! and reading its body runs no Python code; properties and the time are made when asked for.

use std::sync::Arc;

use penstock_client::{Deliveries, Delivery, Reader, ReaderSettings, Start};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDateTime, PyString, PyTzInfo};

use crate::client::PyChannel;
use crate::errors;
use crate::names::Name;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyReader>()?;
    module.add_class::<PyStreamDelivery>()
}

#[pyclass(name = "Reader", module = "penstock._core", frozen)]
struct PyReader {
    reader: Reader,
    partition: Py<PyString>,
    /// A message's serialised properties, or None, to what `properties` gives.
    read_properties: Py<PyAny>,
}

#[pymethods]
impl PyReader {
    #[new]
    #[pyo3(signature = (
        channel, vhost, partition, *, start, end, credit, group, single_active, reconnect, read_properties,
        from_replica = false
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        channel: &PyChannel,
        vhost: String,
        partition: String,
        start: &[u8],
        end: Option<u64>,
        credit: u32,
        group: String,
        single_active: bool,
        reconnect: bool,
        read_properties: Py<PyAny>,
        from_replica: bool,
    ) -> PyResult<PyReader> {
        let start = Start::parse(start).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let name = PyString::new(py, &partition).unbind();
        let settings =
            ReaderSettings { vhost, partition, start, end, credit, group, single_active, from_replica, reconnect };
        let reader = Reader::new(Arc::clone(&channel.channel), settings).map_err(errors::of_rpc)?;
        Ok(PyReader { reader, partition: name, read_properties })
    }

    #[getter]
    fn partition(&self, py: Python<'_>) -> Py<PyString> {
        self.partition.clone_ref(py)
    }

    #[getter]
    fn wake_fd(&self) -> i32 {
        self.reader.wake_fd()
    }

    #[getter]
    fn is_active(&self) -> bool {
        self.reader.is_active()
    }

    #[getter]
    fn is_finished(&self) -> bool {
        self.reader.is_finished()
    }

    fn take<'py>(slf: &Bound<'py, Self>, count_max: usize) -> PyResult<Vec<Bound<'py, PyStreamDelivery>>> {
        let taken = slf.get().reader.take(count_max).map_err(errors::of_rpc)?;
        objects(slf, &taken)
    }

    fn store(&self, offset: u64) {
        self.reader.store(offset);
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.reader.close());
    }
}

/// The Python objects of what was taken.
fn objects<'py>(reader: &Bound<'py, PyReader>, taken: &[Deliveries]) -> PyResult<Vec<Bound<'py, PyStreamDelivery>>> {
    let py = reader.py();
    let mut objects = Vec::with_capacity(taken.iter().map(Deliveries::len).sum());
    let (mut exchange, mut routing_key) = (Name::new(py), Name::new(py));
    for delivery in taken.iter().flat_map(Deliveries::iter) {
        let names = (exchange.object(py, delivery.exchange), routing_key.object(py, delivery.routing_key));
        objects.push(Bound::new(py, PyStreamDelivery::new(reader, &delivery, names))?);
    }
    Ok(objects)
}

#[pyclass(name = "StreamDelivery", module = "penstock._core", frozen)]
struct PyStreamDelivery {
    #[pyo3(get)]
    body: Py<PyBytes>,
    #[pyo3(get)]
    exchange: Py<PyString>,
    #[pyo3(get)]
    routing_key: Py<PyString>,
    #[pyo3(get)]
    offset: u64,
    #[pyo3(get)]
    stored_at_ms: u64,
    #[pyo3(get)]
    key: Option<Py<PyBytes>>,
    reader: Py<PyReader>,
    encoded: Option<Py<PyBytes>>,
    decoded: PyOnceLock<Py<PyAny>>,
}

#[pymethods]
impl PyStreamDelivery {
    #[getter]
    fn partition(&self, py: Python<'_>) -> Py<PyString> {
        self.reader.get().partition.clone_ref(py)
    }

    #[getter]
    fn stored_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        PyDateTime::from_timestamp(py, self.stored_at_ms as f64 / 1_000.0, Some(&*PyTzInfo::utc(py)?))
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let read = || self.reader.get().read_properties.call1(py, (&self.encoded,));
        Ok(self.decoded.get_or_try_init(py, read)?.bind(py).clone())
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.properties(py)?.getattr("headers")
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let size = self.body.as_bytes(py).len();
        format!("<StreamMessage {} of {}, {size} bytes>", self.offset, self.reader.get().reader.partition())
    }
}

impl PyStreamDelivery {
    fn new(
        reader: &Bound<'_, PyReader>,
        delivery: &Delivery<'_>,
        (exchange, routing_key): (Py<PyString>, Py<PyString>),
    ) -> Self {
        let py = reader.py();
        let bytes = |part: &[u8]| PyBytes::new(py, part).unbind();
        Self {
            body: bytes(delivery.body),
            exchange,
            routing_key,
            offset: delivery.sequence,
            stored_at_ms: delivery.stored_at_ms,
            key: delivery.key.map(bytes),
            reader: reader.clone().unbind(),
            encoded: delivery.properties.map(bytes),
            decoded: PyOnceLock::new(),
        }
    }
}
