//! `Engine`, `Shard` and `inspect_log`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_engine::{
    Backup, DamagedRecord, Destination, Engine, EngineError, EngineOptions, ExchangeKind, LeaseLimits, LeaseStanding,
    Level, QueueCounts, QueueId, QueueLevels, QueueSettings, RouteSettings, Shard, StreamSettings, StreamStanding,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Doing, of_engine};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyEngine>()?;
    module.add_class::<PyShard>()?;
    module.add_function(wrap_pyfunction!(repair_log, module)?)?;
    module.add_class::<PyBackup>()?;
    module.add_function(wrap_pyfunction!(inspect_log, module)?)
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
        producer_memory_ms = 0
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
    ) -> PyResult<PyEngine> {
        let options = EngineOptions {
            segment_bytes_min,
            segment_bytes_max,
            segment_idle: Duration::from_millis(segment_idle_ms),
            disk_free_bytes_min,
            compaction_bytes_per_second,
            producer_memory: Duration::from_millis(producer_memory_ms),
        };
        let engine = Engine::new(options).map_err(|error| of_engine(py, &error, Doing::RunningEngine))?;
        Ok(PyEngine { engine: Arc::new(engine) })
    }

    #[pyo3(signature = (name, directory, *, page_cache_lost))]
    fn open_shard(&self, py: Python<'_>, name: &str, directory: &str, page_cache_lost: bool) -> PyResult<PyShard> {
        let opened = py.detach(|| self.engine.open_shard(name, Path::new(directory), page_cache_lost));
        Ok(PyShard { shard: opened.map_err(|error| of_engine(py, &error, Doing::OpeningLog { directory }))? })
    }

    fn metrics(&self, py: Python<'_>) -> BTreeMap<String, f64> {
        py.detach(|| metrics(&self.engine))
    }

    fn take_notices(&self) -> Vec<(bool, String)> {
        self.engine.notices().take().into_iter().map(|notice| (notice.is_warning, notice.text)).collect()
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
        dedicated_count += f64::from(u8::from(!shard.is_of_vhost()));
        let stats = shard.log_stats();
        quarantined += shard.damages().len() as f64;
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

#[pyclass(name = "Shard", module = "penstock._core", frozen)]
pub(crate) struct PyShard {
    pub shard: Arc<Shard>,
}

type Counts = (u64, u64, u64, u64, u64);

fn counts_tuple(counts: QueueCounts) -> Counts {
    let (ready, unsettled) = (counts.ready_count, counts.unsettled_count);
    (ready, unsettled, counts.ready_bytes, counts.unsettled_bytes, counts.consumer_count)
}

fn standing_tuple(standing: StreamStanding) -> Standing {
    let (first_ms, last_ms) = (standing.first_timestamp_ms, standing.last_timestamp_ms);
    let StreamStanding { first, next, count, bytes, reader_count, .. } = standing;
    (first, next, count, bytes, first_ms, last_ms, reader_count)
}

/// Number, name, whether it goes with its last consumer, level, least level, and the largest age and size of a stream.
type NewQueue = (u32, String, bool, Option<String>, Option<String>, Option<(u64, u64)>);
/// First, next, count, bytes, first and last time, readers.
type Standing = (u64, u64, u64, u64, u64, u64, u64);
/// Name, what it has acknowledged, and its leases: number, count, bytes, when.
type LeaseOwner = (String, u64, Vec<(u64, u64, u64, u64)>);
/// Exchange, key, match, whether the destination is an exchange, destination.
type NewRoute = (String, String, Option<Vec<u8>>, bool, String);

#[pymethods]
impl PyShard {
    #[getter]
    fn name(&self) -> &str {
        self.shard.name()
    }

    #[getter]
    #[allow(clippy::cast_precision_loss)]
    fn recovery(&self) -> BTreeMap<&'static str, f64> {
        let mut total = BTreeMap::new();
        for shard in self.shard.family() {
            let recovery = shard.recovery();
            let parts = [
                ("ms", shard.recovery_ms()),
                ("bytes_read", recovery.bytes_read as f64),
                ("records", recovery.records as f64),
                ("torn_bytes", recovery.torn_bytes as f64),
            ];
            parts.into_iter().for_each(|(name, value)| *total.entry(name).or_default() += value);
        }
        total
    }

    #[getter]
    fn highest_queue_id(&self) -> u32 {
        self.shard.highest_queue_id()
    }

    fn retain_queues(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<usize> {
        let ids: Vec<QueueId> = ids.into_iter().map(QueueId).collect();
        self.with(py, |shard| shard.retain_queues(&ids))
    }

    fn put_queues(&self, py: Python<'_>, queues: Vec<NewQueue>) -> PyResult<()> {
        let levels_of = |(_, _, _, chosen, least, _): &NewQueue| {
            Ok(QueueLevels { chosen: level_of(chosen.as_deref())?, least: level_of(least.as_deref())? })
        };
        let levels = queues.iter().map(levels_of).collect::<PyResult<Vec<_>>>()?;
        let settings = queues.iter().zip(levels).map(|((id, name, auto_delete, _, _, stream), levels)| QueueSettings {
            id: QueueId(*id),
            name,
            auto_delete: *auto_delete,
            levels,
            stream: stream.map(|(max_age_ms, max_bytes)| StreamSettings { max_age_ms, max_bytes }),
        });
        self.with(py, |shard| shard.put_queues(settings))
    }

    fn dedicate_queue(&self, py: Python<'_>, id: u32) -> PyResult<()> {
        let dedicated = py.detach(|| self.shard.dedicate(QueueId(id)));
        dedicated.map_err(|error| of_engine(py, &error, Doing::CreatingQueueLog { vhost: self.shard.name() }))
    }

    fn delete_queue(&self, py: Python<'_>, id: u32) -> PyResult<u64> {
        self.with(py, |shard| shard.delete_queue(QueueId(id)))
    }

    fn shut_empty_queue(&self, py: Python<'_>, id: u32) -> PyResult<Counts> {
        self.with(py, |shard| shard.shut_empty_queue(QueueId(id))).map(counts_tuple)
    }

    fn shut_queue(&self, py: Python<'_>, id: u32) -> PyResult<()> {
        self.with(py, |shard| shard.shut_queue(QueueId(id)))
    }

    fn reopen_queue(&self, py: Python<'_>, id: u32) -> PyResult<()> {
        self.with(py, |shard| shard.reopen_queue(QueueId(id)))
    }

    fn purge_queue(&self, py: Python<'_>, id: u32) -> PyResult<u64> {
        self.with(py, |shard| shard.purge_queue(QueueId(id)))
    }

    #[pyo3(signature = (name, kind, alternate))]
    fn put_exchange(&self, py: Python<'_>, name: &str, kind: &str, alternate: Option<&str>) -> PyResult<()> {
        let kind = match kind {
            "direct" => ExchangeKind::Direct,
            "fanout" => ExchangeKind::Fanout,
            "topic" => ExchangeKind::Topic,
            "headers" => ExchangeKind::Headers,
            "x-super-stream" => ExchangeKind::Partitions,
            other => return Err(PyValueError::new_err(format!("exchange type '{other}' is not known"))),
        };
        self.with(py, |shard| shard.put_exchange(name, kind, alternate))
    }

    fn delete_exchange(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.with(py, |shard| shard.delete_exchange(name))
    }

    fn add_routes(&self, py: Python<'_>, routes: Vec<NewRoute>) -> PyResult<()> {
        let settings = routes.iter().map(|(exchange, key, matching, to_exchange, destination)| RouteSettings {
            exchange,
            key,
            matching: matching.as_deref(),
            destination: destination_of(*to_exchange, destination),
        });
        self.with(py, |shard| shard.add_routes(settings))
    }

    #[pyo3(signature = (exchange, key, r#match, to_exchange, destination))]
    fn remove_route(
        &self,
        py: Python<'_>,
        exchange: &str,
        key: &str,
        r#match: Option<&[u8]>,
        to_exchange: bool,
        destination: &str,
    ) -> PyResult<()> {
        let destination = destination_of(to_exchange, destination);
        self.with(py, |shard| shard.remove_route(exchange, key, r#match, destination))
    }

    fn queue_counts(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<Counts>> {
        let ids: Vec<QueueId> = ids.into_iter().map(QueueId).collect();
        let counts = self.with(py, |shard| shard.queue_counts(&ids))?;
        Ok(counts.into_iter().map(counts_tuple).collect())
    }

    fn stream_states(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<Standing>> {
        let ids: Vec<QueueId> = ids.into_iter().map(QueueId).collect();
        let states = self.with(py, |shard| shard.stream_states(&ids))?;
        Ok(states.into_iter().map(standing_tuple).collect())
    }

    fn stream_extents(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<Standing>> {
        let ids: Vec<QueueId> = ids.into_iter().map(QueueId).collect();
        let extents = self.with(py, |shard| shard.stream_extents(&ids))?;
        Ok(extents.into_iter().map(standing_tuple).collect())
    }

    fn offset_at(&self, py: Python<'_>, id: u32, timestamp_ms: u64) -> PyResult<u64> {
        self.with(py, |shard| shard.home_of(QueueId(id)).offset_at(QueueId(id), timestamp_ms))
    }

    fn trim_stream(&self, py: Python<'_>, id: u32, before: u64) -> PyResult<u64> {
        self.with(py, |shard| shard.home_of(QueueId(id)).trim(QueueId(id), before))
    }

    fn stream_groups(&self, py: Python<'_>, id: u32) -> PyResult<Vec<(String, Option<u64>, u64)>> {
        let groups = self.with(py, |shard| shard.home_of(QueueId(id)).stream_groups(QueueId(id)))?;
        Ok(groups.into_iter().map(|group| (group.name, group.offset, group.reader_count)).collect())
    }

    fn store_offset(&self, py: Python<'_>, id: u32, group: &str, offset: u64) -> PyResult<()> {
        self.with(py, |shard| {
            let home = shard.home_of(QueueId(id));
            home.sync_to(home.store_offset(QueueId(id), group, offset)?)
        })
    }

    fn delete_group(&self, py: Python<'_>, id: u32, group: &str) -> PyResult<bool> {
        self.with(py, |shard| shard.home_of(QueueId(id)).delete_group(QueueId(id), group))
    }

    /// Count, bytes and time of the lease, whether it is new, and how many messages stay ready.
    fn reserve_lease(
        &self,
        py: Python<'_>,
        id: u32,
        owner: &str,
        lease: u64,
        messages_max: u64,
        bytes_max: u64,
    ) -> PyResult<(u64, u64, u64, bool, u64)> {
        let limits = LeaseLimits { messages_max, bytes_max };
        self.with(py, |shard| {
            let home = shard.home_of(QueueId(id));
            let reserved = home.reserve_lease(QueueId(id), owner, lease, limits, now_ms())?;
            // Who asks an empty queue again and again makes nobody sync.
            if reserved.lease.count > 0 {
                home.sync_to(reserved.position)?;
            }
            let LeaseStanding { count, bytes, reserved_at_ms, .. } = reserved.lease;
            Ok((count, bytes, reserved_at_ms, reserved.is_new, reserved.ready_count))
        })
    }

    fn ack_leases(&self, py: Python<'_>, id: u32, owner: &str, up_to: u64) -> PyResult<u64> {
        self.with(py, |shard| shard.home_of(QueueId(id)).ack_leases(QueueId(id), owner, up_to))
    }

    fn release_leases(&self, py: Python<'_>, id: u32, owner: &str, from_: u64) -> PyResult<u64> {
        self.with(py, |shard| shard.home_of(QueueId(id)).release_leases(QueueId(id), owner, from_))
    }

    fn leases(&self, py: Python<'_>, id: u32) -> PyResult<Vec<LeaseOwner>> {
        let owners = self.with(py, |shard| shard.home_of(QueueId(id)).leases(QueueId(id)))?;
        let tuple = |lease: LeaseStanding| (lease.number, lease.count, lease.bytes, lease.reserved_at_ms);
        Ok(owners
            .into_iter()
            .map(|found| (found.owner, found.acked, found.leases.into_iter().map(tuple).collect()))
            .collect())
    }

    fn producer_sequence(&self, py: Python<'_>, name: &str) -> PyResult<Option<u64>> {
        self.with(py, |shard| shard.sequence_in_family(name))
    }

    fn producers(&self, py: Python<'_>) -> PyResult<Vec<(String, u64, u64, bool)>> {
        let producers = self.with(py, |shard| shard.producers_of_family())?;
        Ok(producers.into_iter().map(|one| (one.name, one.sequence, one.used_at_ms, one.is_open)).collect())
    }

    fn delete_producer(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.with(py, |shard| {
            let deleted: Result<Vec<_>, _> = shard.family().iter().map(|one| one.delete_producer(name)).collect();
            Ok(deleted?.contains(&true))
        })
    }

    fn stage_states(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<(Option<u64>, bool)>> {
        let ids: Vec<QueueId> = ids.into_iter().map(QueueId).collect();
        let states = self.with(py, |shard| shard.stage_states(&ids))?;
        Ok(states.into_iter().map(|standing| (standing.last_batch, standing.copying)).collect())
    }

    fn carry_on_staged(&self, py: Python<'_>) {
        let shard = Arc::clone(&self.shard);
        py.detach(|| shard.carry_on_staged_apart());
    }

    fn damages(&self, py: Python<'_>) -> Vec<(String, u64, u64, Vec<String>)> {
        let damages = py.detach(|| self.shard.family().iter().map(|one| one.damages()).collect::<Vec<_>>());
        damages.into_iter().flatten().map(|found| (found.file, found.at, found.records, found.queues)).collect()
    }

    /// Whether its lock, or that of a queue's own log, is held for long: a call that needs it would wait.
    #[getter]
    fn is_stalled(&self, py: Python<'_>) -> bool {
        py.detach(|| self.shard.is_family_stalled())
    }

    #[getter]
    fn fault(&self, py: Python<'_>) -> Option<String> {
        py.detach(|| self.shard.family().iter().find_map(|one| one.fault()))
    }

    fn totals(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        self.with(py, |shard| {
            let totals: Result<Vec<_>, _> = shard.family().iter().map(|one| one.totals_seen()).collect();
            Ok(totals?.into_iter().fold((0, 0), |(ready, unsettled), (one, other)| (ready + one, unsettled + other)))
        })
    }

    #[pyo3(signature = (exchange, key, headers))]
    fn route(&self, py: Python<'_>, exchange: &str, key: &str, headers: Option<&[u8]>) -> PyResult<Vec<String>> {
        self.with(py, |shard| shard.route(exchange, key, headers))
    }

    fn begin_backup(&self, py: Python<'_>) -> PyResult<PyBackup> {
        let backup = self.with(py, |shard| shard.begin_backup())?;
        let vhost = self.shard.name().to_owned();
        Ok(PyBackup { position: backup.position().0, vhost, backup: Mutex::new(Some(backup)) })
    }

    #[pyo3(signature = (*, delete))]
    fn close(&self, py: Python<'_>, delete: bool) -> PyResult<()> {
        self.with(py, |shard| shard.close(delete))
    }
}

impl PyShard {
    /// Runs without the GIL: a publisher may hold the shard's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Arc<Shard>) -> Result<T, EngineError> + Send,
    ) -> PyResult<T> {
        let worked = py.detach(|| work(&self.shard));
        worked.map_err(|error| of_engine(py, &error, Doing::UsingLog { vhost: self.shard.name() }))
    }
}

#[pyclass(name = "Backup", module = "penstock._core", frozen)]
struct PyBackup {
    backup: Mutex<Option<Backup>>,
    vhost: String,
    #[pyo3(get)]
    position: u64,
}

#[pymethods]
impl PyBackup {
    fn write(&self, py: Python<'_>, directory: &str) -> PyResult<()> {
        let Some(backup) = self.take() else {
            return Err(PyValueError::new_err("this backup was written or closed already"));
        };
        let written = py.detach(|| backup.write(Path::new(directory)));
        written.map_err(|error| of_engine(py, &error, Doing::CopyingLog { vhost: &self.vhost, directory }))
    }

    fn close(&self) {
        drop(self.take());
    }
}

impl PyBackup {
    fn take(&self) -> Option<Backup> {
        self.backup.lock().ok().and_then(|mut backup| backup.take())
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn level_of(level: Option<&str>) -> PyResult<Option<Level>> {
    match level {
        None => Ok(None),
        Some("os") => Ok(Some(Level::Os)),
        Some("disk") => Ok(Some(Level::Disk)),
        Some(other) => Err(PyValueError::new_err(format!("level '{other}' is neither 'os' nor 'disk'"))),
    }
}

fn destination_of(to_exchange: bool, name: &str) -> Destination<'_> {
    if to_exchange { Destination::Exchange(name) } else { Destination::Queue(name) }
}

/// Reads a stopped vhost's log: one dictionary per segment.
#[pyfunction]
#[pyo3(signature = (directory, *, verify))]
fn inspect_log<'py>(py: Python<'py>, directory: &str, verify: bool) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let reports = py
        .detach(|| penstock_engine::inspect(Path::new(directory), verify))
        .map_err(|error| of_engine(py, &EngineError::Log(error), Doing::ReadingLog { directory }))?;
    let as_dict = |report: &penstock_engine::SegmentReport| {
        let dict = PyDict::new(py);
        dict.set_item("file", &report.file)?;
        dict.set_item("first_position", report.first_position)?;
        dict.set_item("bytes", report.bytes)?;
        dict.set_item("records", report.records)?;
        dict.set_item("messages", report.messages)?;
        dict.set_item("settles", report.settles)?;
        dict.set_item("error", &report.error)?;
        dict.set_item("error_at", report.error_at)?;
        let damaged: PyResult<Vec<_>> = report.damaged.iter().map(|damaged| damaged_record(py, damaged)).collect();
        dict.set_item("damaged", damaged?)?;
        Ok(dict)
    };
    reports.iter().map(as_dict).collect()
}

fn damaged_record<'py>(py: Python<'py>, damaged: &DamagedRecord) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("at", damaged.at)?;
    dict.set_item("position", damaged.position)?;
    dict.set_item("error", &damaged.why)?;
    let targets: Vec<(u32, u64)> = damaged.targets.iter().map(|target| (target.queue.0, target.sequence.0)).collect();
    dict.set_item("targets", targets)?;
    Ok(dict)
}

/// What a repair dropped, (queue, sequence, why), and the files it set aside.
type RepairReport = (Vec<(u32, u64, String)>, Vec<String>);

/// Mends a stopped vhost's log.
#[pyfunction]
#[pyo3(signature = (directory, *, segment_bytes_min, segment_bytes_max))]
fn repair_log(
    py: Python<'_>,
    directory: &str,
    segment_bytes_min: u64,
    segment_bytes_max: u64,
) -> PyResult<RepairReport> {
    let options = EngineOptions {
        segment_bytes_min,
        segment_bytes_max,
        segment_idle: Duration::ZERO,
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
    };
    let repaired = py
        .detach(|| Engine::repair(&options, Path::new(directory)))
        .map_err(|error| of_engine(py, &error, Doing::RepairingLog { directory }))?;
    let dropped = repaired.dropped.into_iter().map(|(target, why)| (target.queue.0, target.sequence.0, why));
    Ok((dropped.collect(), repaired.set_aside))
}
