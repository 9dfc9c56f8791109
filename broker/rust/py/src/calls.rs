//! `Call` and what it is about: one class for each kind of question that the listener asks, and for each event.

use std::sync::Mutex;

use penstock_serve::host::{
    Admitted, Answer, ArchiveRows, Call, CallRequest, Caller, FoundPartition, FoundStreams, Kind, Outcome, Refusal,
    Reply, StagePlace, TopologyRequest,
};
use penstock_serve::kind_of_code;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::records::records;
use crate::replica::PyReplica;

records! {
    OpenPublish { vhost: String }
    PermitExchange { vhost: String, exchange: String }
    PermitUserId { vhost: String }
    OpenConsume { vhost: String, queue: String }
    OpenRead { vhost: String, partition: String, group: String, single_active: bool = false, from_replica: bool = false }
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
    ExchangeDeclare {
        vhost: String,
        name: String,
        kind: String,
        passive: bool = false,
        durable: bool = false,
        auto_delete: bool = false,
        internal: bool = false,
        arguments: Vec<u8>,
    }
    ExchangeDelete { vhost: String, name: String, if_unused: bool = false }
    QueueDeclare {
        vhost: String,
        name: String,
        passive: bool = false,
        durable: bool = false,
        exclusive: bool = false,
        auto_delete: bool = false,
        arguments: Vec<u8>,
    }
    QueueDelete { vhost: String, name: String, if_unused: bool = false, if_empty: bool = false }
    QueuePurge { vhost: String, name: String }
    BindingChange {
        vhost: String,
        source: String,
        destination: String,
        to_exchange: bool = false,
        routing_key: String,
        arguments: Vec<u8>,
        unbind: bool = false,
    }
    QueueUnused { vhost: String, queue: String, queue_id: u64 }
    Enter {}
    Renew {}
    NamesUser {}
    FindLeader { vhost: String, known: String }
    EndQueues {}
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
        CallRequest::OpenRead { vhost, partition, group, single_active, from_replica } => {
            OpenRead { vhost, partition, group, single_active, from_replica }.into_py_any(py)
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
        CallRequest::Renew => Renew {}.into_py_any(py),
        CallRequest::NamesUser => NamesUser {}.into_py_any(py),
        CallRequest::FindLeader { vhost, known } => FindLeader { vhost, known }.into_py_any(py),
        CallRequest::EndQueues => EndQueues {}.into_py_any(py),
        CallRequest::OpenStage { vhost, stage, stream, exchange, routing_key } => {
            OpenStage { vhost, stage, stream, exchange, routing_key }.into_py_any(py)
        }
        CallRequest::Topology { vhost, wanted } => topology(py, vhost, wanted),
        CallRequest::Disconnected => Disconnected {}.into_py_any(py),
        CallRequest::QueueUnused { vhost, queue, queue_id } => QueueUnused { vhost, queue, queue_id }.into_py_any(py),
    }
}

fn topology(py: Python<'_>, vhost: String, wanted: TopologyRequest) -> PyResult<Py<PyAny>> {
    use TopologyRequest as Wanted;
    match wanted {
        Wanted::DeclareExchange { name, kind, passive, durable, auto_delete, internal, arguments } => {
            ExchangeDeclare { vhost, name, kind, passive, durable, auto_delete, internal, arguments }.into_py_any(py)
        }
        Wanted::DeleteExchange { name, if_unused } => ExchangeDelete { vhost, name, if_unused }.into_py_any(py),
        Wanted::DeclareQueue { name, passive, durable, exclusive, auto_delete, arguments } => {
            QueueDeclare { vhost, name, passive, durable, exclusive, auto_delete, arguments }.into_py_any(py)
        }
        Wanted::DeleteQueue { name, if_unused, if_empty } => {
            QueueDelete { vhost, name, if_unused, if_empty }.into_py_any(py)
        }
        Wanted::PurgeQueue { name } => QueuePurge { vhost, name }.into_py_any(py),
        Wanted::ChangeBinding(change) => {
            let penstock_serve::host::BindingChange {
                source,
                destination,
                to_exchange,
                routing_key,
                arguments,
                unbind,
            } = change;
            BindingChange { vhost, source, destination, to_exchange, routing_key, arguments, unbind }.into_py_any(py)
        }
    }
}

/// The kind of refusal of a name.
fn kind_named(name: &str) -> Option<Kind> {
    Some(match name {
        "unauthenticated" => Kind::Unauthenticated,
        "access_refused" => Kind::AccessRefused,
        "not_found" => Kind::NotFound,
        "precondition_failed" => Kind::PreconditionFailed,
        "invalid_argument" => Kind::InvalidArgument,
        "limit_reached" => Kind::LimitReached,
        "unsupported" => Kind::Unsupported,
        "conflict" => Kind::Conflict,
        "unavailable" => Kind::Unavailable,
        "led_elsewhere" => Kind::LedElsewhere,
        "corrupt" => Kind::Corrupt,
        "bug" => Kind::Bug,
        _ => return None,
    })
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
    fn protocol(&self) -> &str {
        self.caller.protocol
    }

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

    #[pyo3(signature = (vhost, queue_id = 0, user = String::new(), by_key = false, replica = None))]
    fn admit(
        &self,
        vhost: String,
        queue_id: u64,
        user: String,
        by_key: bool,
        replica: Option<PyRef<'_, PyReplica>>,
    ) -> PyResult<()> {
        let replica = replica.map(|replica| replica.streams());
        self.reply(Ok(Answer::Admitted(Admitted { vhost, queue_id, user, by_key, replica })))
    }

    #[pyo3(signature = (leader = None))]
    fn found_leader(&self, leader: Option<String>) -> PyResult<()> {
        self.reply(Ok(Answer::Leader(leader)))
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

    #[pyo3(signature = (name, message_count = 0, consumer_count = 0))]
    fn changed(&self, name: String, message_count: u64, consumer_count: u64) -> PyResult<()> {
        self.reply(Ok(Answer::Topology(Outcome { name, message_count, consumer_count })))
    }

    #[pyo3(signature = (kind, message, details = Vec::new()))]
    fn refuse_kind(&self, kind: &str, message: String, details: Vec<u8>) -> PyResult<()> {
        let kind = kind_named(kind).ok_or_else(|| PyValueError::new_err(format!("no kind of refusal is '{kind}'")))?;
        self.reply(Err(Refusal { kind, text: message, details }))
    }

    #[pyo3(signature = (code, message, details = Vec::new()))]
    fn refuse(&self, code: i32, message: String, details: Vec<u8>) -> PyResult<()> {
        self.reply(Err(Refusal { kind: kind_of_code(code), text: message, details }))
    }
}
