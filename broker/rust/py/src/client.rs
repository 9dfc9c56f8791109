//! `Channel`, `Publisher`, `Consumer`, `Delivery` and the load generator, for the Python client.

use std::sync::Arc;

use penstock_client::{
    Channel, ChannelSettings, Consumer, ConsumerSettings, Delivery, OutcomeRange, Publisher, PublisherSettings,
    RpcError, perf,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySequence, PyString};

use crate::errors;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyChannel>()?;
    module.add_class::<PyPublisher>()?;
    module.add_class::<PyConsumer>()?;
    module.add_class::<PyDelivery>()?;
    module.add_function(wrap_pyfunction!(perf_throughput, module)?)?;
    module.add_function(wrap_pyfunction!(perf_latency, module)?)
}

#[pyclass(name = "Channel", module = "penstock._core", frozen)]
struct PyChannel {
    channel: Arc<Channel>,
}

#[pymethods]
impl PyChannel {
    #[new]
    #[pyo3(signature = (target, authorization, *, connect_timeout_ms, message_bytes_max))]
    fn new(
        target: String,
        authorization: String,
        connect_timeout_ms: u64,
        message_bytes_max: usize,
    ) -> PyResult<PyChannel> {
        let settings = ChannelSettings { target, authorization, connect_timeout_ms, message_bytes_max };
        Ok(PyChannel { channel: Arc::new(Channel::new(&settings).map_err(errors::of_rpc)?) })
    }

    fn call<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        payload: Vec<u8>,
        timeout_ms: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let answered = py.detach(|| self.channel.call(method, payload, timeout_ms));
        Ok(PyBytes::new(py, &answered.map_err(errors::of_rpc)?))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.channel.close());
    }
}

#[pyclass(name = "Publisher", module = "penstock._core", frozen)]
struct PyPublisher {
    publisher: Publisher,
}

type Outcome = (u64, u64, i32, String);

#[pymethods]
impl PyPublisher {
    #[new]
    #[pyo3(signature = (channel, vhost, level, *, in_flight_max, batch_max, reconnect))]
    fn new(
        channel: &PyChannel,
        vhost: String,
        level: u32,
        in_flight_max: u64,
        batch_max: usize,
        reconnect: bool,
    ) -> PyResult<PyPublisher> {
        let settings = PublisherSettings { vhost, level, in_flight_max, batch_max, reconnect };
        let publisher = Publisher::new(Arc::clone(&channel.channel), settings).map_err(errors::of_rpc)?;
        Ok(PyPublisher { publisher })
    }

    #[getter]
    fn wake_fd(&self) -> i32 {
        self.publisher.wake_fd()
    }

    #[pyo3(signature = (body, exchange = "", routing_key = "", properties = None, mandatory = false))]
    fn publish(
        &self,
        body: &[u8],
        exchange: &str,
        routing_key: &str,
        properties: Option<&[u8]>,
        mandatory: bool,
    ) -> PyResult<u64> {
        self.publisher.publish(body, exchange, routing_key, properties, mandatory).map_err(errors::of_rpc)
    }

    #[pyo3(signature = (bodies, exchange = "", routing_key = "", properties = None, mandatory = false))]
    fn publish_many(
        &self,
        py: Python<'_>,
        bodies: &Bound<'_, PySequence>,
        exchange: &str,
        routing_key: &str,
        properties: Option<&[u8]>,
        mandatory: bool,
    ) -> PyResult<u64> {
        // The list keeps the bodies alive while the GIL is released; bytes never change.
        let items = bodies.to_list()?;
        let bodies = items.iter().map(|item| Ok(item.cast_into::<PyBytes>()?.unbind()));
        let bodies: Vec<Py<PyBytes>> =
            bodies.collect::<PyResult<_>>().map_err(|_| PyTypeError::new_err("every body must be bytes"))?;
        let slices: Vec<&[u8]> = bodies.iter().map(|body| body.as_bytes(py)).collect();
        let sent = py.detach(|| self.publisher.publish_many(slices, exchange, routing_key, properties, mandatory));
        sent.map_err(errors::of_rpc)
    }

    fn take(&self) -> Vec<Outcome> {
        tuples(self.publisher.take())
    }

    fn wait(&self, py: Python<'_>, timeout_ms: u64) -> Vec<Outcome> {
        tuples(py.detach(|| self.publisher.wait(timeout_ms)))
    }

    fn flush(&self, py: Python<'_>, timeout_ms: u64) -> bool {
        py.detach(|| self.publisher.flush(timeout_ms))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.publisher.close());
    }
}

fn tuples(outcomes: Vec<OutcomeRange>) -> Vec<Outcome> {
    outcomes.into_iter().map(|range| (range.first, range.last, range.code, range.reason)).collect()
}

#[pyclass(name = "Consumer", module = "penstock._core", frozen)]
struct PyConsumer {
    consumer: Arc<Consumer>,
}

#[pymethods]
impl PyConsumer {
    #[new]
    #[pyo3(signature = (channel, vhost, queue, *, prefetch, auto_ack, exclusive, consumer_tag, reconnect))]
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
    ) -> PyResult<PyConsumer> {
        let settings = ConsumerSettings { vhost, queue, consumer_tag, prefetch, auto_ack, exclusive, reconnect };
        let consumer = Consumer::new(Arc::clone(&channel.channel), settings).map_err(errors::of_rpc)?;
        Ok(PyConsumer { consumer: Arc::new(consumer) })
    }

    #[getter]
    fn wake_fd(&self) -> i32 {
        self.consumer.wake_fd()
    }

    #[getter]
    fn consumer_tag(&self) -> String {
        self.consumer.consumer_tag()
    }

    fn take(&self, count_max: usize) -> PyResult<Vec<PyDelivery>> {
        self.wrap(self.consumer.take(count_max))
    }

    fn wait(&self, py: Python<'_>, count_max: usize, timeout_ms: u64) -> PyResult<Vec<PyDelivery>> {
        self.wrap(py.detach(|| self.consumer.wait(count_max, timeout_ms)))
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

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.consumer.close());
    }
}

impl PyConsumer {
    fn wrap(&self, taken: Result<Vec<Delivery>, RpcError>) -> PyResult<Vec<PyDelivery>> {
        let deliveries = taken.map_err(errors::of_rpc)?.into_iter();
        Ok(deliveries.map(|delivery| PyDelivery { delivery, consumer: Arc::clone(&self.consumer) }).collect())
    }
}

#[pyclass(name = "Delivery", module = "penstock._core", frozen)]
struct PyDelivery {
    delivery: Delivery,
    consumer: Arc<Consumer>,
}

#[pymethods]
impl PyDelivery {
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.delivery.body())
    }

    #[getter]
    fn sequence(&self) -> u64 {
        self.delivery.sequence
    }

    #[getter]
    fn exchange<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::new(py, self.delivery.exchange())
    }

    #[getter]
    fn routing_key<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::new(py, self.delivery.routing_key())
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.delivery.properties().map(|properties| PyBytes::new(py, properties))
    }

    #[getter]
    fn redelivered(&self) -> bool {
        self.delivery.redelivered
    }

    #[getter]
    fn delivery_count(&self) -> u32 {
        self.delivery.delivery_count
    }

    #[getter]
    fn stored_at_ms(&self) -> u64 {
        self.delivery.stored_at_ms
    }

    #[getter]
    fn connection(&self) -> u64 {
        self.delivery.connection
    }

    fn settle(&self, outcome: u32) {
        self.consumer.settle_delivery(&self.delivery, outcome);
    }
}

/// Runs the load generator: JSON in, JSON out.
#[pyfunction]
fn perf_throughput(py: Python<'_>, options: &str) -> String {
    py.detach(|| perf::throughput(options))
}

#[pyfunction]
fn perf_latency(py: Python<'_>, options: &str) -> String {
    py.detach(|| perf::latency(options))
}
