//! Every error of the crates, and the one Python exception it becomes.

use penstock_client::RpcError as ClientError;
use penstock_engine::EngineError;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::{PyErr, create_exception};

create_exception!(penstock._core, CoreError, PyException, "The root of what the native module raises.");
create_exception!(penstock._core, NotFoundError, CoreError, "A queue or exchange that the engine does not have.");
create_exception!(penstock._core, StorageError, CoreError, "The disk refused, or what it holds is damaged.");
create_exception!(penstock._core, DiskFullError, StorageError, "The disk has no room; nothing was changed.");
create_exception!(penstock._core, PatternError, CoreError, "A pattern is refused: (rule, way out).");
create_exception!(penstock._core, RpcError, CoreError, "A call ended with a gRPC status: (code, message, details).");

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("CoreError", py.get_type::<CoreError>())?;
    module.add("NotFoundError", py.get_type::<NotFoundError>())?;
    module.add("StorageError", py.get_type::<StorageError>())?;
    module.add("DiskFullError", py.get_type::<DiskFullError>())?;
    module.add("PatternError", py.get_type::<PatternError>())?;
    module.add("RpcError", py.get_type::<RpcError>())
}

pub(crate) fn of_engine(error: EngineError) -> PyErr {
    let text = error.to_string();
    let is_full = error.is_full();
    match error {
        EngineError::NoQueue(..) | EngineError::NoExchange(..) | EngineError::NoLease { .. } => {
            NotFoundError::new_err(text)
        }
        EngineError::Queue(_)
        | EngineError::Routing(_)
        | EngineError::IsStream(_)
        | EngineError::NotStream(_)
        | EngineError::BeyondEnd { .. }
        | EngineError::GroupName { .. }
        | EngineError::LeaseOwner { .. }
        | EngineError::LeaseNumber { .. }
        | EngineError::LeasePart { .. }
        | EngineError::TooMany { .. }
        | EngineError::ProducerTaken(_)
        | EngineError::ProducerBehind(_)
        | EngineError::QueueShut
        | EngineError::ProducerReserved(_)
        | EngineError::StageBusy
        | EngineError::StagedRows { .. }
        | EngineError::SeveralLogs => PyValueError::new_err(text),
        EngineError::Log(_) | EngineError::Io { .. } if is_full => DiskFullError::new_err(text),
        EngineError::Log(_) | EngineError::Io { .. } | EngineError::Stopped(..) | EngineError::Closed(_) => {
            StorageError::new_err(text)
        }
    }
}

pub(crate) fn of_rpc(error: ClientError) -> PyErr {
    RpcError::new_err((error.code, error.message, error.details))
}
