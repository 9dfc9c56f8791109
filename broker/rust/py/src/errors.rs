//! What the native module raises: the refusals and faults of `penstock.model.errors`, and the status of a client's call.
//!
//! All texts of the broker's side are made here. They name no protocol: a front end maps the classes to its codes.

use std::fmt::Display;

use penstock_client::RpcError as ClientError;
use penstock_cluster::{NodeError, OpenError};
use penstock_engine::EngineError;
use penstock_log::LogError;
use penstock_pattern::Refusal;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{IntoPyObjectExt, PyErr, create_exception};

create_exception!(penstock._core, RpcError, PyException, "A call ended with a gRPC status: (code, message, details).");

/// `penstock.model.errors`, imported when it is first needed: the client has no use for it.
static MODEL: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("RpcError", module.py().get_type::<RpcError>())
}

/// What the engine was doing when it failed.
#[derive(Clone, Copy)]
pub(crate) enum Doing<'a> {
    UsingLog { vhost: &'a str },
    CreatingQueueLog { vhost: &'a str },
    OpeningLog { directory: &'a str },
    ReadingLog { directory: &'a str },
    RepairingLog { directory: &'a str },
    CopyingLog { vhost: &'a str, directory: &'a str },
    ReadingBackup { vhost: &'a str },
    RunningEngine,
}

/// A `Thing` of the model.
struct Thing<'a> {
    kind: &'static str,
    name: &'a str,
    vhost: Option<&'a str>,
}

impl<'a> Thing<'a> {
    fn of(kind: &'static str, name: &'a str) -> Thing<'a> {
        Thing { kind, name, vhost: None }
    }

    fn within(vhost: Option<&'a str>, kind: &'static str, name: &'a str) -> Thing<'a> {
        Thing { kind, name, vhost }
    }
}

/// A class of the model with the arguments that follow the thing, and one keyword.
struct Class<'py> {
    name: &'static str,
    parts: Vec<String>,
    keyword: Option<(&'static str, Bound<'py, PyAny>)>,
}

impl<'py> Class<'py> {
    fn of<const COUNT: usize>(name: &'static str, parts: [String; COUNT]) -> Class<'py> {
        Class { name, parts: parts.into(), keyword: None }
    }

    fn with(mut self, py: Python<'py>, keyword: &'static str, value: impl IntoPyObjectExt<'py>) -> PyResult<Self> {
        self.keyword = Some((keyword, value.into_bound_py_any(py)?));
        Ok(self)
    }

    fn error(self, py: Python<'py>, thing: &Thing<'_>) -> PyResult<PyErr> {
        let model = MODEL.get_or_try_init(py, || py.import("penstock.model.errors").map(Bound::unbind))?.bind(py);
        let mut arguments = vec![model.getattr("Thing")?.call1((thing.kind, thing.name, thing.vhost))?];
        for part in self.parts {
            arguments.push(part.into_bound_py_any(py)?);
        }
        let keywords = PyDict::new(py);
        if let Some((name, value)) = self.keyword {
            keywords.set_item(name, value)?;
        }
        let error = model.getattr(self.name)?.call(PyTuple::new(py, arguments)?, Some(&keywords))?;
        Ok(PyErr::from_value(error))
    }
}

/// The model's error for what the engine refuses or cannot do.
pub(crate) fn of_engine(py: Python<'_>, error: &EngineError, doing: Doing<'_>) -> PyErr {
    let made = match error {
        EngineError::Log(_) | EngineError::Io { .. } | EngineError::Stopped(..) | EngineError::Closed(_) => {
            fault(py, error, doing)
        }
        _ => refusal(py, error, doing),
    };
    made.unwrap_or_else(|failed| failed)
}

/// The model's error for a node that cannot be started.
pub(crate) fn of_node(py: Python<'_>, error: &NodeError, address: &str) -> PyErr {
    let way_out = "check the address, the secrets and the certificates of the cluster".to_owned();
    let class = Class::of("InvalidArgumentError", [format!("cannot be used: {error}"), way_out]);
    class.error(py, &Thing::of("cluster listener", address)).unwrap_or_else(|failed| failed)
}

/// The model's error for a replica whose log failed; `failed` says at what.
pub(crate) fn of_replica(py: Python<'_>, directory: &str, failed: &str, error: &impl Display) -> PyErr {
    of_replica_as(py, "StorageError", directory, failed, error)
}

/// The same for a replica that cannot be opened.
pub(crate) fn of_opened(py: Python<'_>, directory: &str, failed: &str, error: &OpenError) -> PyErr {
    let is_corrupt = matches!(
        error,
        OpenError::RecordsLost { .. }
            | OpenError::LogGone { .. }
            | OpenError::Promise { .. }
            | OpenError::Log(LogError::Corrupt { .. })
    );
    of_replica_as(py, if is_corrupt { "CorruptError" } else { "StorageError" }, directory, failed, error)
}

fn of_replica_as(py: Python<'_>, class: &'static str, directory: &str, failed: &str, error: &impl Display) -> PyErr {
    let way_out = "repair the disk, or move the directory away, so that the replica copies the records of another one";
    let class = Class::of(class, [format!("{failed}: {error}"), way_out.to_owned()]);
    class.error(py, &Thing::of("replica", directory)).unwrap_or_else(|failed| failed)
}

/// The model's error for the log of a backup that cannot be a replica's.
pub(crate) fn of_restored(py: Python<'_>, directory: &str, error: &impl Display) -> PyErr {
    let way_out = "restore another backup; nothing was restored".to_owned();
    let class = Class::of("StorageError", [format!("of a backup cannot be restored: {error}"), way_out]);
    class.error(py, &Thing::of("log", directory)).unwrap_or_else(|failed| failed)
}

/// The model's error for a pattern that is not accepted.
pub(crate) fn of_pattern(py: Python<'_>, source: &str, refusal: Refusal) -> PyErr {
    let class = Class::of("InvalidArgumentError", [refusal.rule, refusal.way_out]);
    class.error(py, &Thing::of("pattern", source)).unwrap_or_else(|failed| failed)
}

pub(crate) fn of_rpc(error: ClientError) -> PyErr {
    RpcError::new_err((error.code, error.message, error.details))
}

fn fault(py: Python<'_>, error: &EngineError, doing: Doing<'_>) -> PyResult<PyErr> {
    let storage = |kind, name, rule: String, way_out: &str| {
        Class::of("StorageError", [rule, way_out.to_owned()]).error(py, &Thing::of(kind, name))
    };
    let broken = "repair the disk, then restart the broker";
    let named = "name a data directory, or the directory of a virtual host in it";
    match doing {
        Doing::CreatingQueueLog { vhost } if error.is_full() => {
            let rule = "has no space on its disk for a queue's own log".to_owned();
            let way_out = "consume messages or free space, and declare the queue again".to_owned();
            Class::of("DiskFullError", [rule, way_out]).error(py, &Thing::of("log", vhost))
        }
        Doing::UsingLog { vhost } | Doing::CreatingQueueLog { vhost } => {
            storage("log", vhost, format!("failed: {error}"), broken)
        }
        Doing::OpeningLog { directory } => {
            let way_out = "repair the disk, or check the log with `penstock log verify`";
            storage("log", directory, format!("cannot be opened: {error}"), way_out)
        }
        Doing::ReadingLog { directory } => storage("log", directory, format!("cannot be read: {error}"), named),
        Doing::RepairingLog { directory } => storage("log", directory, format!("cannot be repaired: {error}"), named),
        Doing::CopyingLog { vhost, directory } => {
            let rule = format!("of virtual host '{vhost}' failed: {error}");
            let way_out = "free space there or repair that disk, and try again; the broker goes on";
            storage("backup", directory, rule, way_out)
        }
        Doing::ReadingBackup { vhost } => {
            let way_out = "repair the disk, and try again; the broker goes on";
            storage("backup", vhost, format!("of this virtual host failed: {error}"), way_out)
        }
        Doing::RunningEngine => storage("engine", "storage", format!("failed: {error}"), broken),
    }
}

fn refusal(py: Python<'_>, error: &EngineError, doing: Doing<'_>) -> PyResult<PyErr> {
    let vhost = match doing {
        Doing::UsingLog { vhost } | Doing::CreatingQueueLog { vhost } | Doing::CopyingLog { vhost, .. } => Some(vhost),
        _ => None,
    };
    let invalid = |rule: String, way_out: String| Class::of("InvalidArgumentError", [rule, way_out]);
    match error {
        EngineError::NoQueue(id, absent) => {
            let name = absent.name.clone().unwrap_or_else(|| id.to_string());
            Class::of("NotFoundError", []).error(py, &Thing::within(vhost, "queue", &name))
        }
        EngineError::NoShard(number, _) => {
            Class::of("NotFoundError", []).error(py, &Thing::within(vhost, "shard", &number.to_string()))
        }
        EngineError::NoExchange(name, _) => {
            Class::of("NotFoundError", []).error(py, &Thing::within(vhost, "exchange", name))
        }
        EngineError::IsStream(name) => {
            invalid("is a stream, which has no consumers".to_owned(), "read it as a stream".to_owned())
                .error(py, &Thing::within(vhost, "queue", name))
        }
        EngineError::NotStream(name) => {
            invalid("is not a stream and cannot be read".to_owned(), "consume it".to_owned())
                .error(py, &Thing::within(vhost, "queue", name))
        }
        EngineError::BeyondEnd { stream, offset, next } => {
            let rule = format!("has no offset {offset} yet: the next message gets {next}");
            invalid(rule, format!("store an offset below {next}"))
                .with(py, "field", "offset")?
                .error(py, &Thing::within(vhost, "stream", stream))
        }
        EngineError::GroupName { bytes, bytes_max } => too_long("group", *bytes, *bytes_max)
            .with(py, "field", "group")?
            .error(py, &Thing::within(vhost, "group", "")),
        EngineError::LeaseOwner { bytes, bytes_max } => too_long("owner", *bytes, *bytes_max)
            .with(py, "field", "owner")?
            .error(py, &Thing::within(vhost, "owner of leases", "")),
        EngineError::LeaseNumber { queue, owner, number, last } => {
            let next = last.saturating_add(1);
            let rule = format!("has had leases of queue '{queue}' up to {last}, so {number} is not one of them");
            invalid(rule, format!("the next new one is {next}"))
                .with(py, "field", "lease")?
                .error(py, &Thing::within(vhost, "owner of leases", owner))
        }
        EngineError::NotLeading(_) => {
            Class::of("NotLedError", []).error(py, &Thing::of("vhost", vhost.unwrap_or_default()))
        }
        EngineError::TooMany { what, max } => Class::of("LimitReachedError", [format!("has {max} {what}")])
            .with(py, "limit", *max)?
            .error(py, &Thing::of("vhost", vhost.unwrap_or_default())),
        EngineError::ProducerReserved(prefix) => {
            let rule = format!("begins with '{prefix}', which is the broker's own");
            invalid(rule, "choose another name".to_owned()).error(py, &Thing::within(vhost, "producer", prefix))
        }
        // Only what connections ask is refused like this, or the broker has a bug.
        other => Ok(PyRuntimeError::new_err(other.to_string())),
    }
}

fn too_long<'py>(what: &str, bytes: usize, bytes_max: usize) -> Class<'py> {
    let rule = format!("has a name of {bytes} bytes, and between 1 and {bytes_max} are allowed");
    Class::of("InvalidArgumentError", [rule, format!("choose another name for the {what}")])
}
