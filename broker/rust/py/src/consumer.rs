//! `Consumer` and `Delivery`, for the Python client. A delivery is what an application works with, one Python object for each
//! message, so making it, reading its body and settling it must run no Python code: the body and the names are Python objects
//! from the start, and only properties are decoded when asked for, by a callable that the consumer was given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use penstock_client::{Consumer, ConsumerSettings, Deliveries, Delivery, RpcError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};

use crate::client::{CLOSE_TIMEOUT_MS, PyChannel};
use crate::errors;
use crate::names::Name;

const ACK: u32 = 1;
const REJECT: u32 = 2;
const REQUEUE: u32 = 3;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyConsumer>()?;
    module.add_class::<PyDelivery>()
}

#[pyclass(name = "Consumer", module = "penstock._core", frozen)]
struct PyConsumer {
    consumer: Consumer,
    /// A delivery's serialised properties, or None, to what `properties` gives.
    read_properties: Py<PyAny>,
}

#[pymethods]
impl PyConsumer {
    #[new]
    #[pyo3(signature = (channel, vhost, queue, *, prefetch, auto_ack, exclusive, consumer_tag, reconnect, read_properties, priority = 0, consumer_timeout_ms = 0))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        channel: &PyChannel,
        vhost: String,
        queue: String,
        prefetch: u32,
        auto_ack: bool,
        exclusive: bool,
        consumer_tag: String,
        reconnect: bool,
        read_properties: Py<PyAny>,
        priority: i32,
        consumer_timeout_ms: u64,
    ) -> PyResult<PyConsumer> {
        let ack_timeout_ms = Some(consumer_timeout_ms).filter(|limit| *limit > 0);
        let settings = ConsumerSettings {
            vhost,
            queue,
            consumer_tag,
            prefetch,
            auto_ack,
            exclusive,
            priority,
            ack_timeout_ms,
            reconnect,
        };
        let consumer = Consumer::new(Arc::clone(&channel.channel), settings).map_err(errors::of_rpc)?;
        Ok(PyConsumer { consumer, read_properties })
    }

    #[getter]
    fn wake_fd(&self) -> i32 {
        self.consumer.wake_fd()
    }

    #[getter]
    fn consumer_tag(&self) -> String {
        self.consumer.consumer_tag()
    }

    fn take<'py>(slf: &Bound<'py, Self>, count_max: usize) -> PyResult<Vec<Bound<'py, PyDelivery>>> {
        objects(slf, slf.get().consumer.take(count_max))
    }

    fn wait<'py>(slf: &Bound<'py, Self>, count_max: usize, timeout_ms: u64) -> PyResult<Vec<Bound<'py, PyDelivery>>> {
        let consumer = &slf.get().consumer;
        objects(slf, slf.py().detach(|| consumer.wait(count_max, timeout_ms)))
    }

    fn settle(&self, first: u64, last: u64, outcome: u32) {
        self.consumer.settle(first, last, outcome);
    }

    fn flow(&self, prefetch: u32) {
        self.consumer.flow(prefetch);
    }

    fn flush(&self) {
        self.consumer.flush();
    }

    fn begin_close(&self) {
        self.consumer.begin_close();
    }

    #[pyo3(signature = (timeout_ms = CLOSE_TIMEOUT_MS))]
    fn close(&self, py: Python<'_>, timeout_ms: u64) {
        py.detach(|| self.consumer.close_within(Duration::from_millis(timeout_ms)));
    }
}

/// The Python objects of what was taken.
fn objects<'py>(
    consumer: &Bound<'py, PyConsumer>,
    taken: Result<Vec<Deliveries>, RpcError>,
) -> PyResult<Vec<Bound<'py, PyDelivery>>> {
    let (py, taken) = (consumer.py(), taken.map_err(errors::of_rpc)?);
    let mut objects = Vec::with_capacity(taken.iter().map(Deliveries::len).sum());
    let (mut exchange, mut routing_key) = (Name::new(py), Name::new(py));
    for batch in &taken {
        for delivery in batch.iter() {
            let names = (exchange.object(py, delivery.exchange), routing_key.object(py, delivery.routing_key));
            objects.push(Bound::new(py, PyDelivery::new(consumer, &delivery, batch.connection(), names))?);
        }
    }
    Ok(objects)
}

#[pyclass(name = "Delivery", module = "penstock._core", frozen)]
struct PyDelivery {
    #[pyo3(get)]
    body: Py<PyBytes>,
    #[pyo3(get)]
    exchange: Py<PyString>,
    #[pyo3(get)]
    routing_key: Py<PyString>,
    #[pyo3(get)]
    sequence: u64,
    #[pyo3(get)]
    stored_at_ms: u64,
    #[pyo3(get)]
    delivery_count: u32,
    #[pyo3(get)]
    redelivered: bool,
    is_settled: AtomicBool,
    connection: u64,
    consumer: Py<PyConsumer>,
    encoded: Option<Py<PyBytes>>,
    decoded: PyOnceLock<Py<PyAny>>,
}

#[pymethods]
impl PyDelivery {
    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let read = || self.consumer.get().read_properties.call1(py, (&self.encoded,));
        Ok(self.decoded.get_or_try_init(py, read)?.bind(py).clone())
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.properties(py)?.getattr("headers")
    }

    fn ack(&self) {
        self.settle(ACK);
    }

    #[pyo3(signature = (requeue = true))]
    fn nack(&self, requeue: bool) {
        self.settle(if requeue { REQUEUE } else { REJECT });
    }

    fn reject(&self) {
        self.settle(REJECT);
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (size, routing_key) = (self.body.as_bytes(py).len(), self.routing_key.bind(py).repr()?);
        Ok(format!("<Message {} of {size} bytes, routing key {routing_key}>", self.sequence))
    }
}

impl PyDelivery {
    fn new(
        consumer: &Bound<'_, PyConsumer>,
        delivery: &Delivery<'_>,
        connection: u64,
        (exchange, routing_key): (Py<PyString>, Py<PyString>),
    ) -> Self {
        let py = consumer.py();
        Self {
            body: PyBytes::new(py, delivery.body).unbind(),
            exchange,
            routing_key,
            sequence: delivery.sequence,
            stored_at_ms: delivery.stored_at_ms,
            delivery_count: delivery.delivery_count,
            redelivered: delivery.redelivered,
            is_settled: AtomicBool::new(false),
            connection,
            consumer: consumer.clone().unbind(),
            encoded: delivery.properties.map(|properties| PyBytes::new(py, properties).unbind()),
            decoded: PyOnceLock::new(),
        }
    }

    /// The second time nothing happens.
    fn settle(&self, outcome: u32) {
        if !self.is_settled.swap(true, Ordering::Relaxed) {
            self.consumer.get().consumer.settle_delivered(self.connection, self.sequence, outcome);
        }
    }
}
