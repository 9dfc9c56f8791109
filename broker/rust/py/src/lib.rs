//! `penstock._core`: translates between Python objects and the crates. No decision is made here.

mod broker;
mod client;
mod consumer;
mod errors;
mod names;
mod patterns;
mod reader;
mod server;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("version", env!("CARGO_PKG_VERSION"))?;
    errors::register(module)?;
    broker::register(module)?;
    server::register(module)?;
    client::register(module)?;
    consumer::register(module)?;
    patterns::register(module)?;
    reader::register(module)
}
