//! `Server` and `Call`: the listener, and what it asks Python to decide.

use std::sync::Mutex;
use std::time::Duration;

use penstock_serve::{Answer, Call, Kind, Refusal, Server, ServerOptions};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::broker::PyEngine;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyServer>()?;
    module.add_class::<PyCall>()
}

#[pyclass(name = "Server", module = "penstock._core", frozen)]
struct PyServer {
    server: Server,
}

#[pymethods]
impl PyServer {
    #[new]
    #[pyo3(signature = (engine, *, address, threads, message_bytes_max, descriptors, calls_max))]
    fn new(
        py: Python<'_>,
        engine: &PyEngine,
        address: String,
        threads: usize,
        message_bytes_max: usize,
        descriptors: Vec<u8>,
        calls_max: usize,
    ) -> PyResult<PyServer> {
        let options = ServerOptions { address, threads, message_bytes_max, descriptors, calls_max };
        let engine = std::sync::Arc::clone(&engine.engine);
        let server = py.detach(|| Server::start(engine, &options))?;
        Ok(PyServer { server })
    }

    #[getter]
    fn address(&self) -> String {
        self.server.address().to_string()
    }

    #[getter]
    fn wake_fd(&self) -> i32 {
        self.server.calls().wake_fd()
    }

    fn take(&self) -> Vec<PyCall> {
        self.server.calls().take().into_iter().map(|call| PyCall { call: Mutex::new(call) }).collect()
    }

    fn serving(&self, py: Python<'_>, serving: bool) {
        py.detach(|| self.server.set_serving(serving));
    }

    fn forget(&self) {
        self.server.calls().forget();
    }

    fn stop(&self, py: Python<'_>, grace_ms: u64) {
        py.detach(|| self.server.stop(Duration::from_millis(grace_ms)));
    }
}

#[pyclass(name = "Call", module = "penstock._core", frozen)]
struct PyCall {
    call: Mutex<Call>,
}

#[pymethods]
impl PyCall {
    #[getter]
    fn kind(&self) -> PyResult<&'static str> {
        self.read(|call| match call.kind {
            Kind::Call => "call",
            Kind::Publish => "publish",
            Kind::Permit => "permit",
            Kind::Consume => "consume",
            Kind::Read => "read",
            Kind::Get => "get",
            Kind::Settle => "settle",
            Kind::Disconnected => "disconnected",
            Kind::Unused => "unused",
        })
    }

    #[getter]
    fn method(&self) -> PyResult<String> {
        self.read(|call| call.method.clone())
    }

    #[getter]
    fn authorization(&self) -> PyResult<String> {
        self.read(|call| call.caller.authorization.clone())
    }

    #[getter]
    fn peer(&self) -> PyResult<String> {
        self.read(|call| call.caller.peer.clone())
    }

    #[getter]
    fn connection(&self) -> PyResult<u64> {
        self.read(|call| call.caller.connection)
    }

    #[getter]
    fn vhost(&self) -> PyResult<String> {
        self.read(|call| call.vhost.clone())
    }

    #[getter]
    fn subject(&self) -> PyResult<String> {
        self.read(|call| call.subject.clone())
    }

    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.read(|call| PyBytes::new(py, &call.payload))
    }

    fn answer(&self, payload: Vec<u8>) -> PyResult<()> {
        self.reply(Ok(Answer::Payload(payload)))
    }

    #[pyo3(signature = (vhost, queue_id = 0))]
    fn admit(&self, vhost: String, queue_id: u32) -> PyResult<()> {
        self.reply(Ok(Answer::Admitted { vhost, queue_id }))
    }

    #[pyo3(signature = (code, message, details = Vec::new()))]
    fn refuse(&self, code: i32, message: String, details: Vec<u8>) -> PyResult<()> {
        self.reply(Err(Refusal { code, message, details }))
    }
}

impl PyCall {
    fn read<T>(&self, read: impl FnOnce(&Call) -> T) -> PyResult<T> {
        let call = self.call.lock().map_err(|_| PyRuntimeError::new_err("this call is broken"))?;
        Ok(read(&call))
    }

    /// Whoever asked may be gone already; then there is nobody to tell.
    fn reply(&self, answer: Result<Answer, Refusal>) -> PyResult<()> {
        let mut call = self.call.lock().map_err(|_| PyRuntimeError::new_err("this call is broken"))?;
        if let Some(reply) = call.reply.take() {
            let _ = reply.send(answer);
        }
        Ok(())
    }
}
