//! `Server` and `Tls`: the listeners.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use penstock_serve::host::{
    Certificate, ClientCertificates, Holder, HostOptions, Network, OpenConsumer, Tls, TlsOptions,
};
use penstock_serve::{AmqpOptions, GrpcOptions, Server, ServerOptions, request_bytes_max};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::calls::PyCall;
use crate::cluster_records::RelayOrigin;
use crate::engine::PyEngine;
use crate::records::{NamedCertificate, UsageLimits};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTls>()?;
    module.add_class::<PyServer>()?;
    module.add_class::<PyOpenConsumer>()
}

#[pyclass(name = "Tls", module = "penstock._core", frozen)]
struct PyTls {
    tls: Tls,
}

#[pymethods]
impl PyTls {
    #[new]
    #[pyo3(signature = (chain, key, *, client_authorities = None, client_required = false, client_users = false, only_13 = false, named = Vec::new()))]
    fn new(
        chain: Vec<u8>,
        key: Vec<u8>,
        client_authorities: Option<Vec<u8>>,
        client_required: bool,
        client_users: bool,
        only_13: bool,
        named: Vec<NamedCertificate>,
    ) -> PyResult<PyTls> {
        let (required, name_users) = (client_required, client_users);
        let clients = client_authorities.map(|authorities| ClientCertificates { authorities, required, name_users });
        let named = named.into_iter().map(|one| (one.name, Certificate { chain: one.chain, key: one.key.0 })).collect();
        let options = TlsOptions { certificate: Certificate { chain, key }, named, clients, only_13 };
        let tls = Tls::new(&options).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(PyTls { tls })
    }
}

#[pyclass(name = "Server", module = "penstock._core", frozen)]
pub(crate) struct PyServer {
    pub(crate) server: Server,
}

#[pymethods]
impl PyServer {
    #[new]
    #[pyo3(signature = (engine, *, address, threads, message_bytes_max, buffer_bytes_max, descriptors, calls_max, connections_max, streams_max, first_request_ms, proxies = Vec::new(), tls = None, amqp = None, amqp_socket = None, amqp_web = None, amqp_web_origins = Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        py: Python<'_>,
        engine: &PyEngine,
        address: String,
        threads: usize,
        message_bytes_max: usize,
        buffer_bytes_max: usize,
        descriptors: Vec<u8>,
        calls_max: usize,
        connections_max: usize,
        streams_max: u32,
        first_request_ms: u64,
        proxies: Vec<String>,
        tls: Option<&PyTls>,
        amqp: Option<String>,
        amqp_socket: Option<PathBuf>,
        amqp_web: Option<String>,
        amqp_web_origins: Vec<String>,
    ) -> PyResult<PyServer> {
        let tls = tls.map(|tls| tls.tls.clone());
        let proxies: Result<Vec<Network>, String> = proxies.iter().map(|proxy| proxy.parse()).collect();
        let host = HostOptions {
            threads,
            message_bytes_max,
            request_bytes_max: request_bytes_max(message_bytes_max),
            buffer_bytes_max,
            calls_max,
            connections_max,
            first_request: Duration::from_millis(first_request_ms),
            tls,
            proxies: proxies.map_err(PyValueError::new_err)?,
            web_origins: amqp_web_origins,
        };
        let amqp = AmqpOptions { address: amqp, socket: amqp_socket, web: amqp_web };
        let options = ServerOptions { host, grpc: GrpcOptions { address, descriptors, streams_max }, amqp };
        let engine = std::sync::Arc::clone(&engine.engine);
        let server = py.detach(|| Server::start(engine, &options))?;
        Ok(PyServer { server })
    }

    #[getter]
    fn address(&self) -> String {
        self.server.address().to_string()
    }

    #[getter]
    fn amqp_address(&self) -> Option<String> {
        self.server.amqp_address().map(|address| address.to_string())
    }

    #[getter]
    fn amqp_web_address(&self) -> Option<String> {
        self.server.amqp_web_address().map(|address| address.to_string())
    }

    #[getter]
    fn wake_fd(&self) -> i32 {
        self.server.calls().wake_fd()
    }

    fn take(&self, py: Python<'_>) -> PyResult<Vec<PyCall>> {
        self.server.calls().take().into_iter().map(|call| PyCall::new(py, call)).collect()
    }

    fn serving(&self, py: Python<'_>, serving: bool) {
        py.detach(|| self.server.set_serving(serving));
    }

    fn set_tls(&self, tls: &PyTls) {
        self.server.set_tls(tls.tls.clone());
    }

    /// The budget of memory for requests and responses, and how often clients met it, by names of metrics.
    fn metrics(&self) -> HashMap<&'static str, f64> {
        let used = self.server.memory_used();
        HashMap::from([
            ("buffer_limit_bytes", used.limit_bytes as f64),
            ("buffer_request_bytes", used.request_bytes as f64),
            ("buffer_response_bytes", used.response_bytes as f64),
            ("buffer_unauthenticated_bytes", used.unauthenticated_bytes as f64),
            ("buffer_waits_total", used.wait_count as f64),
            ("connections_closed_for_buffers_total", used.closed_count as f64),
        ])
    }

    #[pyo3(signature = (vhost = None))]
    fn forget(&self, vhost: Option<&str>) {
        self.server.calls().forget(vhost);
    }

    #[pyo3(signature = (user = None, vhost = None))]
    fn recheck(&self, user: Option<&str>, vhost: Option<&str>) {
        self.server.calls().recheck(user, vhost);
    }

    fn recheck_connection(&self, connection: u64) {
        self.server.calls().recheck_connection(connection);
    }

    fn set_limits(&self, name: &str, is_user: bool, limits: UsageLimits) {
        let holder = if is_user { Holder::User } else { Holder::Vhost };
        self.server.quotas().set(holder, name, limits.into());
    }

    fn consumers(&self) -> Vec<PyOpenConsumer> {
        self.server.calls().listing().consumers().into_iter().map(PyOpenConsumer::from).collect()
    }

    /// The connection whose exclusive queues another one may use, which its broker relays: that broker's number, and its own there.
    fn origin_of(&self, connection: u64) -> Option<RelayOrigin> {
        let origin = self.server.calls().origin_of(connection)?;
        Some(RelayOrigin { broker: origin.broker, connection: origin.connection })
    }

    fn close_connection(&self, connection: u64) -> bool {
        self.server.calls().listing().close_connection(connection)
    }

    fn stop(&self, py: Python<'_>, grace_ms: u64) {
        py.detach(|| self.server.stop(Duration::from_millis(grace_ms)));
    }
}

#[pyclass(name = "OpenConsumer", module = "penstock._core", frozen, get_all)]
struct PyOpenConsumer {
    connection: u64,
    user: String,
    vhost: String,
    queue: String,
    consumer_tag: String,
    prefetch: u32,
    auto_ack: bool,
    exclusive: bool,
    priority: i32,
    active: bool,
}

#[pymethods]
impl PyOpenConsumer {
    #[new]
    #[pyo3(signature = (*, connection, user, vhost, queue, consumer_tag, prefetch, auto_ack, exclusive, priority = 0, active = true))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        connection: u64,
        user: String,
        vhost: String,
        queue: String,
        consumer_tag: String,
        prefetch: u32,
        auto_ack: bool,
        exclusive: bool,
        priority: i32,
        active: bool,
    ) -> PyOpenConsumer {
        PyOpenConsumer { connection, user, vhost, queue, consumer_tag, prefetch, auto_ack, exclusive, priority, active }
    }
}

impl From<OpenConsumer> for PyOpenConsumer {
    fn from(open: OpenConsumer) -> PyOpenConsumer {
        let OpenConsumer { connection, user, vhost, queue, consumer_tag, prefetch, .. } = open;
        let OpenConsumer { auto_ack, exclusive, priority, signal, .. } = open;
        let active = signal.is_active();
        PyOpenConsumer { connection, user, vhost, queue, consumer_tag, prefetch, auto_ack, exclusive, priority, active }
    }
}
