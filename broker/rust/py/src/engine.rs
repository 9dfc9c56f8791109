//! `Engine`: all shards of this process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use penstock_engine::{Engine, EngineOptions};
use pyo3::prelude::*;

use crate::errors::{Doing, of_engine};
use crate::records::Notice;
use crate::shard::PyShard;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyEngine>()
}

#[pyclass(name = "Engine", module = "penstock._core", frozen)]
pub(crate) struct PyEngine {
    pub engine: Arc<Engine>,
}

#[pymethods]
impl PyEngine {
    #[new]
    #[pyo3(signature = (
        *, segment_bytes_min, segment_bytes_max, segment_idle_ms, disk_free_bytes_min = 0, compaction_bytes_per_second = 0,
        producer_memory_ms = 0,
        producers_of_user_max = 4096
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        py: Python<'_>,
        segment_bytes_min: u64,
        segment_bytes_max: u64,
        segment_idle_ms: u64,
        disk_free_bytes_min: u64,
        compaction_bytes_per_second: u64,
        producer_memory_ms: u64,
        producers_of_user_max: usize,
    ) -> PyResult<PyEngine> {
        let options = EngineOptions {
            segment_bytes_min,
            segment_bytes_max,
            segment_idle: Duration::from_millis(segment_idle_ms),
            disk_free_bytes_min,
            compaction_bytes_per_second,
            producer_memory: Duration::from_millis(producer_memory_ms),
            producers_of_user_max,
        };
        let engine = Engine::new(options).map_err(|error| of_engine(py, &error, Doing::RunningEngine))?;
        Ok(PyEngine { engine: Arc::new(engine) })
    }

    #[pyo3(signature = (name, directory, *, page_cache_lost))]
    fn open_shard(&self, py: Python<'_>, name: &str, directory: &str, page_cache_lost: bool) -> PyResult<PyShard> {
        let opened = py.detach(|| self.engine.open_incomplete(name, Path::new(directory), page_cache_lost));
        Ok(PyShard { shard: opened.map_err(|error| of_engine(py, &error, Doing::OpeningLog { directory }))? })
    }

    fn metrics(&self, py: Python<'_>) -> BTreeMap<String, f64> {
        py.detach(|| metrics(&self.engine))
    }

    fn take_notices(&self) -> Vec<Notice> {
        let notices = self.engine.notices().take().into_iter();
        notices.map(|notice| Notice { is_warning: notice.is_warning, text: notice.text }).collect()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.engine.close()).map_err(|error| of_engine(py, &error, Doing::RunningEngine))
    }
}

#[allow(clippy::cast_precision_loss)]
fn metrics(engine: &Engine) -> BTreeMap<String, f64> {
    let mut all: BTreeMap<String, f64> =
        engine.counters().all().map(|(name, value)| (name.to_owned(), value as f64)).collect();
    if let Some(micros) = all.remove("sync_microseconds_total") {
        all.insert("sync_seconds_total".to_owned(), micros / 1e6);
    }
    let (mut segments, mut mapped_bytes, mut bytes_written, mut quarantined) = (0.0, 0.0, 0.0, 0.0);
    let mut dedicated_count = 0.0;
    for shard in engine.shards() {
        dedicated_count += f64::from(u8::from(shard.is_dedicated()));
        let stats = shard.log_stats();
        quarantined += shard.corruptions().len() as f64;
        segments += stats.segments as f64;
        mapped_bytes += stats.mapped_bytes as f64;
        bytes_written += stats.bytes_written as f64;
    }
    all.insert("dedicated_logs".to_owned(), dedicated_count);
    all.insert("quarantined_segments".to_owned(), quarantined);
    let (is_full, free_bytes) = engine.disk();
    all.insert("disk_full".to_owned(), f64::from(u8::from(is_full)));
    all.insert("disk_free_bytes".to_owned(), free_bytes as f64);
    all.insert("segments".to_owned(), segments);
    all.insert("mapped_bytes".to_owned(), mapped_bytes);
    all.insert("log_bytes_written_total".to_owned(), bytes_written);
    all
}
