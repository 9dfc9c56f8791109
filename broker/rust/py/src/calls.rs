//! `Call` and what it is about: one class for each kind of question that the listener asks, and for each event.

use std::sync::Mutex;

use penstock_serve::host::{
    Admitted, Answer, ArchiveRows, Call, CallRequest, Caller, FoundPartition, FoundStreams, Refusal, Reply, StagePlace,
};
use penstock_serve::kind_of_code;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::records::records;

records! {
    OpenPublish { vhost: String }
    PermitExchange { vhost: String, exchange: String }
    PermitUserId { vhost: String }
    OpenConsume { vhost: String, queue: String }
    OpenRead { vhost: String, partition: String, group: String, single_active: bool = false }
    OpenGet { vhost: String, queue: String }
    OpenSettle { vhost: String, queue: String }
    OpenStage { vhost: String, stage: String, stream: String, exchange: String, routing_key: String }
    ReadArchive {
        vhost: String,
        partition: String,
        first: u64,
        end: u64,
        columns: Option<Vec<String>> = None,
        key_is: Option<Vec<u8>> = None,
        routing_key_is: Option<Vec<u8>> = None,
        header_is: Option<HeaderIs> = None,
        skip_unreadable: bool = false,
    }
    HeaderIs { name: Vec<u8>, value: Vec<u8> }
    DescribeStreams {
        vhost: String,
        streams: Vec<String>,
        at_timestamp_ms: Option<u64> = None,
        waits: bool = false,
    }
    StreamPartition {
        stream: String,
        name: String,
        queue_id: u64,
        at_timestamp: Option<u64> = None,
        archived: Option<ArchivedRuns> = None,
        archive_error: Option<String> = None,
        partition_count: Option<u32> = None,
    }
    ArchivedRuns { below: u64, runs: Vec<OffsetRun>, bytes: u64 }
    OffsetRun { first: u64, end: u64 }
    QueueUnused { vhost: String, queue: String, queue_id: u64 }
    Enter {}
    Disconnected {}
}

/// A unary method with its serialised request.
#[pyclass(module = "penstock._core", frozen, get_all)]
struct UnaryCall {
    method: String,
    payload: Py<PyBytes>,
}

#[pymethods]
impl UnaryCall {
    #[new]
    #[pyo3(signature = (*, method, payload))]
    fn new(method: String, payload: Py<PyBytes>) -> Self {
        Self { method, payload }
    }
}

/// Routing keys as Python has them: bytes that are not UTF-8 are lone surrogates.
#[pyclass(module = "penstock._core", frozen, get_all)]
struct PermitKeys {
    vhost: String,
    exchange: String,
    keys: Vec<Py<PyString>>,
}

#[pymethods]
impl PermitKeys {
    #[new]
    #[pyo3(signature = (*, vhost, exchange, keys))]
    fn new(vhost: String, exchange: String, keys: Vec<Py<PyString>>) -> Self {
        Self { vhost, exchange, keys }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_records(module)?;
    module.add_class::<UnaryCall>()?;
    module.add_class::<PermitKeys>()?;
    module.add_class::<PyCall>()
}

impl From<StreamPartition> for FoundPartition {
    fn from(partition: StreamPartition) -> FoundPartition {
        let StreamPartition { stream, name, queue_id, at_timestamp, archived, archive_error, partition_count } =
            partition;
        let archived = archived.map(|ArchivedRuns { below, runs, bytes }| {
            let runs = runs.into_iter().map(|OffsetRun { first, end }| (first, end)).collect();
            penstock_serve::host::ArchivedRuns { below, runs, bytes }
        });
        FoundPartition { stream, name, queue_id, at_timestamp, archived, archive_error, partition_count }
    }
}

fn object(py: Python<'_>, request: CallRequest) -> PyResult<Py<PyAny>> {
    match request {
        CallRequest::Unary { method, payload } => {
            UnaryCall { method, payload: PyBytes::new(py, &payload).unbind() }.into_py_any(py)
        }
        CallRequest::OpenPublish { vhost } => OpenPublish { vhost }.into_py_any(py),
        CallRequest::PermitExchange { vhost, exchange } => PermitExchange { vhost, exchange }.into_py_any(py),
        CallRequest::PermitUserId { vhost } => PermitUserId { vhost }.into_py_any(py),
        CallRequest::PermitKeys { vhost, exchange, keys } => {
            let keys = keys.iter().map(|key| routing_key(py, key)).collect::<PyResult<_>>()?;
            PermitKeys { vhost, exchange, keys }.into_py_any(py)
        }
        CallRequest::OpenConsume { vhost, queue } => OpenConsume { vhost, queue }.into_py_any(py),
        CallRequest::OpenRead { vhost, partition, group, single_active } => {
            OpenRead { vhost, partition, group, single_active }.into_py_any(py)
        }
        CallRequest::ReadArchive { vhost, partition, wanted } => {
            let ArchiveRows { first, end, columns, key_is, routing_key_is, header_is, skip_unreadable } = wanted;
            let header_is = header_is.map(|(name, value)| HeaderIs { name, value });
            ReadArchive { vhost, partition, first, end, columns, key_is, routing_key_is, header_is, skip_unreadable }
                .into_py_any(py)
        }
        CallRequest::DescribeStreams { vhost, streams, at_timestamp_ms, waits } => {
            DescribeStreams { vhost, streams, at_timestamp_ms, waits }.into_py_any(py)
        }
        CallRequest::OpenGet { vhost, queue } => OpenGet { vhost, queue }.into_py_any(py),
        CallRequest::OpenSettle { vhost, queue } => OpenSettle { vhost, queue }.into_py_any(py),
        CallRequest::Enter => Enter {}.into_py_any(py),
        CallRequest::OpenStage { vhost, stage, stream, exchange, routing_key } => {
            OpenStage { vhost, stage, stream, exchange, routing_key }.into_py_any(py)
        }
        CallRequest::Disconnected => Disconnected {}.into_py_any(py),
        CallRequest::QueueUnused { vhost, queue, queue_id } => QueueUnused { vhost, queue, queue_id }.into_py_any(py),
    }
}

fn routing_key(py: Python<'_>, key: &[u8]) -> PyResult<Py<PyString>> {
    if let Ok(text) = std::str::from_utf8(key) {
        return Ok(PyString::new(py, text).unbind());
    }
    let decoded = PyBytes::new(py, key).call_method1("decode", ("utf-8", "surrogateescape"))?;
    Ok(decoded.cast_into::<PyString>()?.unbind())
}

/// What is asked, who asks, and the way back for the answer.
#[pyclass(name = "Call", module = "penstock._core", frozen)]
pub(crate) struct PyCall {
    #[pyo3(get)]
    request: Py<PyAny>,
    /// The stream is open already: this asks whether it may go on.
    #[pyo3(get)]
    again: bool,
    caller: Caller,
    reply: Mutex<Option<Reply>>,
}

impl PyCall {
    pub(crate) fn new(py: Python<'_>, call: Call) -> PyResult<PyCall> {
        let Call { request, caller, again, reply } = call;
        Ok(PyCall { request: object(py, request)?, again, caller, reply: Mutex::new(reply) })
    }

    fn reply(&self, answer: Result<Answer, Refusal>) -> PyResult<()> {
        let mut reply = self.reply.lock().map_err(|_| PyRuntimeError::new_err("this call is broken"))?;
        if let Some(reply) = reply.take() {
            reply.send(answer);
        }
        Ok(())
    }
}

#[pymethods]
impl PyCall {
    #[getter]
    fn authorization(&self) -> &str {
        &self.caller.authorization
    }

    #[getter]
    fn certificate<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.caller.certificate.as_deref().unwrap_or_default())
    }

    #[getter]
    fn peer(&self) -> &str {
        &self.caller.peer
    }

    #[getter]
    fn connection(&self) -> u64 {
        self.caller.connection
    }

    fn answer(&self, payload: Vec<u8>) -> PyResult<()> {
        self.reply(Ok(Answer::Payload(payload)))
    }

    #[pyo3(signature = (vhost, queue_id = 0, user = String::new(), by_key = false))]
    fn admit(&self, vhost: String, queue_id: u64, user: String, by_key: bool) -> PyResult<()> {
        self.reply(Ok(Answer::Admitted(Admitted { vhost, queue_id, user, by_key })))
    }

    fn permit_keys(&self, permitted: Vec<bool>) -> PyResult<()> {
        self.reply(Ok(Answer::Keys(permitted)))
    }

    fn describe(&self, vhost: String, user: String, partitions: Vec<StreamPartition>) -> PyResult<()> {
        let partitions = partitions.into_iter().map(FoundPartition::from).collect();
        self.reply(Ok(Answer::Streams(FoundStreams { vhost, user, partitions })))
    }

    #[pyo3(signature = (vhost, queue_id, user, *, exchange, routing_key))]
    fn admit_stage(
        &self,
        vhost: String,
        queue_id: u64,
        user: String,
        exchange: String,
        routing_key: String,
    ) -> PyResult<()> {
        self.reply(Ok(Answer::Stage(StagePlace { vhost, queue_id, user, exchange, routing_key })))
    }

    #[pyo3(signature = (code, message, details = Vec::new()))]
    fn refuse(&self, code: i32, message: String, details: Vec<u8>) -> PyResult<()> {
        self.reply(Err(Refusal { kind: kind_of_code(code), text: message, details }))
    }
}
