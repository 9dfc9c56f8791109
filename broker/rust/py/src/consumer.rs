//! `Consumer` and `Delivery`, for the Python client. A delivery is what an application works with, one Python object for each
//! message, so making it, reading its body and settling it must run no Python code: the body and the names are Python objects
//! from the start, and only properties are decoded when asked for, by a callable that the consumer was given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_client::{Consumer, ConsumerSettings, Deliveries, Delivery, RpcError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};

use crate::client::PyChannel;
use crate::errors;

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
    #[pyo3(signature = (channel, vhost, queue, *, prefetch, auto_ack, exclusive, consumer_tag, reconnect, read_properties))]
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
    ) -> PyResult<PyConsumer> {
        let settings = ConsumerSettings { vhost, queue, consumer_tag, prefetch, auto_ack, exclusive, reconnect };
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

    fn wait<'py>(
        slf: &Bound<'py, Self>,
        count_max: usize,
        timeout_ms: u64,
    ) -> PyResult<Vec<Bound<'py, PyDelivery>>> {
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

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.consumer.close());
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
            let object = PyDelivery {
                body: PyBytes::new(py, delivery.body).unbind(),
                exchange: exchange.object(py, delivery.exchange),
                routing_key: routing_key.object(py, delivery.routing_key),
                consumer: consumer.clone().unbind(),
                encoded: delivery.properties.map(|properties| PyBytes::new(py, properties).unbind()),
                ..PyDelivery::plain(&delivery, batch.connection())
            };
            objects.push(Bound::new(py, object)?);
        }
    }
    Ok(objects)
}

/// The name that the last delivery had, which most often is the next one's too.
struct Name<'a> {
    bytes: &'a [u8],
    object: Py<PyString>,
}
