//! The tokio runtime of this crate: a single thread, started at the first use and kept until the process ends.

use std::sync::{Mutex, OnceLock};

use tokio::runtime::{Builder, Handle, Runtime};
use tonic::Code;

use crate::error::RpcError;
use crate::lock::lock;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

pub(crate) fn handle() -> Result<Handle, RpcError> {
    let _starting = lock(&STARTING);
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime.handle().clone());
    }
    let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("penstock-client").enable_all().build();
    let runtime = runtime.map_err(|error| {
        RpcError::new(Code::ResourceExhausted, format!("the client's thread cannot start: {error}"))
    })?;
    Ok(RUNTIME.get_or_init(|| runtime).handle().clone())
}
