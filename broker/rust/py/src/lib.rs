//! `penstock._core`: translates between Python objects and the crates. No decision is made here.

mod backup;
mod calls;
mod client;
mod cluster;
mod cluster_records;
mod consumer;
mod engine;
mod errors;
mod json;
mod logs;
mod names;
mod node_events;
mod patterns;
mod reader;
mod records;
mod relays;
mod replica;
mod replica_backup;
mod server;
mod shard;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("version", env!("CARGO_PKG_VERSION"))?;
    errors::register(module)?;
    engine::register(module)?;
    shard::register(module)?;
    backup::register(module)?;
    records::register(module)?;
    logs::register(module)?;
    server::register(module)?;
    calls::register(module)?;
    client::register(module)?;
    consumer::register(module)?;
    json::register(module)?;
    patterns::register(module)?;
    reader::register(module)?;
    cluster_records::register(module)?;
    cluster::register(module)?;
    replica::register(module)?;
    replica_backup::register(module)
}
