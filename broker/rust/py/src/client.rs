//! `Channel`, `Publisher` and the load generator, for the Python client; what it receives is in `consumer` and `reader`.

use std::sync::Arc;
use std::time::Duration;

use penstock_client::{Channel, ChannelSettings, Message, Publisher, PublisherSettings, perf};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySequence};

use crate::errors;
use crate::records::{ChannelTls, OutcomeRange};

/// How long a close waits for the broker to end a stream, unless it is told.
pub(crate) const CLOSE_TIMEOUT_MS: u64 = 5_000;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyChannel>()?;
    module.add_class::<PyPublisher>()?;
    module.add_function(wrap_pyfunction!(perf_throughput, module)?)?;
    module.add_function(wrap_pyfunction!(perf_latency, module)?)?;
    module.add_function(wrap_pyfunction!(perf_amqp, module)?)?;
    module.add_function(wrap_pyfunction!(perf_interrupt, module)?)
}

#[pyclass(name = "Channel", module = "penstock._core", frozen)]
pub(crate) struct PyChannel {
    pub(crate) channel: Arc<Channel>,
}

#[pymethods]
impl PyChannel {
    #[new]
    #[pyo3(signature = (
        targets, authorization, *, connect_timeout_ms, message_bytes_max, tls = None, follows = true, vhost = "/"
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        targets: Vec<String>,
        authorization: String,
        connect_timeout_ms: u64,
        message_bytes_max: usize,
        tls: Option<ChannelTls>,
        follows: bool,
        vhost: &str,
    ) -> PyResult<PyChannel> {
        let tls = tls.map(|tls| penstock_client::ChannelTls {
            authorities: tls.authorities,
            certificate: tls.certificate,
            key: tls.key.0,
            server_name: tls.server_name,
        });
        let vhost = vhost.to_owned();
        let settings =
            ChannelSettings { targets, follows, vhost, authorization, connect_timeout_ms, message_bytes_max, tls };
        Ok(PyChannel { channel: Arc::new(Channel::new(&settings).map_err(errors::of_rpc)?) })
    }

    fn call<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        payload: Vec<u8>,
        timeout_ms: u64,
        is_repeatable: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let answered = py.detach(|| self.channel.call(method, payload, timeout_ms, is_repeatable));
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

#[pymethods]
impl PyPublisher {
    #[new]
    #[pyo3(signature = (
        channel, vhost, level, *, in_flight_max, batch_max, reconnect, producer = String::new(), numbers_itself = false
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        channel: &PyChannel,
        vhost: String,
        level: u32,
        in_flight_max: u64,
        batch_max: usize,
        reconnect: bool,
        producer: String,
        numbers_itself: bool,
    ) -> PyResult<PyPublisher> {
        let settings =
            PublisherSettings { vhost, level, in_flight_max, batch_max, reconnect, producer, numbers_itself };
        let publisher = Publisher::new(Arc::clone(&channel.channel), settings).map_err(errors::of_rpc)?;
        Ok(PyPublisher { publisher })
    }

    #[getter]
    fn wake_fd(&self) -> i32 {
        self.publisher.wake_fd()
    }

    #[pyo3(signature = (
        body, exchange = "", routing_key = "", properties = None, mandatory = false, key = None, sequence = 0
    ))]
    #[allow(clippy::too_many_arguments)]
    fn publish(
        &self,
        body: &[u8],
        exchange: &str,
        routing_key: &str,
        properties: Option<&[u8]>,
        mandatory: bool,
        key: Option<&[u8]>,
        sequence: u64,
    ) -> PyResult<u64> {
        let message = Message { exchange, routing_key, properties, mandatory, key, sequence };
        self.publisher.publish(body, &message).map_err(errors::of_rpc)
    }

    #[pyo3(signature = (
        bodies, exchange = "", routing_key = "", properties = None, mandatory = false, key = None, sequence = 0
    ))]
    #[allow(clippy::too_many_arguments)]
    fn publish_many(
        &self,
        py: Python<'_>,
        bodies: &Bound<'_, PySequence>,
        exchange: &str,
        routing_key: &str,
        properties: Option<&[u8]>,
        mandatory: bool,
        key: Option<&[u8]>,
        sequence: u64,
    ) -> PyResult<u64> {
        // The list keeps the bodies alive while the GIL is released; bytes never change.
        let items = bodies.to_list()?;
        let bodies = items.iter().map(|item| Ok(item.cast_into::<PyBytes>()?.unbind()));
        let bodies: Vec<Py<PyBytes>> =
            bodies.collect::<PyResult<_>>().map_err(|_| PyTypeError::new_err("every body must be bytes"))?;
        let slices: Vec<&[u8]> = bodies.iter().map(|body| body.as_bytes(py)).collect();
        let message = Message { exchange, routing_key, properties, mandatory, key, sequence };
        let sent = py.detach(|| self.publisher.publish_many(slices, &message));
        sent.map_err(errors::of_rpc)
    }

    fn take(&self) -> Vec<OutcomeRange> {
        ranges(self.publisher.take())
    }

    fn wait(&self, py: Python<'_>, timeout_ms: u64) -> Vec<OutcomeRange> {
        ranges(py.detach(|| self.publisher.wait(timeout_ms)))
    }

    fn flush(&self, py: Python<'_>, timeout_ms: u64) -> bool {
        py.detach(|| self.publisher.flush(timeout_ms))
    }

    #[getter]
    fn lost(&self) -> Option<String> {
        self.publisher.lost()
    }

    #[getter]
    fn is_ended(&self) -> bool {
        self.publisher.error().is_some()
    }

    #[pyo3(signature = (timeout_ms = CLOSE_TIMEOUT_MS))]
    fn close(&self, py: Python<'_>, timeout_ms: u64) {
        py.detach(|| self.publisher.close_within(Duration::from_millis(timeout_ms)));
    }
}

fn ranges(outcomes: Vec<penstock_client::OutcomeRange>) -> Vec<OutcomeRange> {
    let range = |one: penstock_client::OutcomeRange| OutcomeRange {
        first: one.first,
        last: one.last,
        code: one.code,
        reason: one.reason,
    };
    outcomes.into_iter().map(range).collect()
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

#[pyfunction]
fn perf_amqp(py: Python<'_>, options: &str) -> String {
    py.detach(|| perf::amqp(options))
}

#[pyfunction]
fn perf_interrupt() {
    perf::interrupt();
}
