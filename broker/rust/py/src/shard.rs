//! `Shard`: one virtual host's log and what flows through it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use penstock_engine::{
    BackOff, Choosing, ConsumerRules, Corruption, DeadLetters, Deduplication, Destination, EngineError, ExchangeKind,
    ExchangeSettings, GroupStanding, HashOn, LeaseLimits, LeaseOwnerStanding, LeaseStanding, LengthLimit, Level,
    Overflow, ProducerStanding, QueueId, QueueLevels, QueueSettings, RetrySchedule, RetryType, RouteSettings,
    Sequences, Shard, StageStanding, StreamSettings,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::backup::PyBackup;
use crate::errors::{Doing, of_engine};
use crate::records::{
    CorruptFile, GroupState, LeaseOwnerState, LeaseState, LogRecovery, NewQueue, NewRoute, ProducerSequences,
    ProducerState, QueueCounts, ReservedLease, SeenIds, StageState, StreamRetention, StreamState, VhostCounts,
};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyShard>()
}

#[pyclass(name = "Shard", module = "penstock._core", frozen)]
pub(crate) struct PyShard {
    pub shard: Arc<Shard>,
}

#[pymethods]
impl PyShard {
    #[getter]
    fn name(&self) -> &str {
        self.shard.name()
    }

    /// Over all logs of the vhost.
    #[getter]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn recovery(&self) -> LogRecovery {
        let mut total = LogRecovery { microseconds: 0, bytes_read: 0, records: 0, torn_bytes: 0 };
        for shard in self.shard.family() {
            let recovery = shard.recovery();
            total.microseconds += (shard.recovery_ms() * 1e3) as u64;
            total.bytes_read += recovery.bytes_read;
            total.records += recovery.records;
            total.torn_bytes += recovery.torn_bytes;
        }
        total
    }

    #[getter]
    fn highest_queue_id(&self) -> u64 {
        self.shard.highest_queue_id()
    }

    #[pyo3(signature = (ids, priorities = Vec::new()))]
    fn retain_queues(&self, py: Python<'_>, ids: Vec<u64>, priorities: Vec<u8>) -> PyResult<usize> {
        let ids: Vec<QueueId> = ids.into_iter().map(QueueId).collect();
        let priorities: Vec<_> = ids.iter().copied().zip(priorities).filter(|(_, highest)| *highest > 0).collect();
        self.with(py, |shard| shard.retain_with_lanes(&ids, &priorities))
    }

    fn put_queues(&self, py: Python<'_>, queues: Vec<Py<NewQueue>>) -> PyResult<()> {
        let levels_of = |queue: &Py<NewQueue>| {
            let (chosen, least) = (&queue.get().level, &queue.get().least_level);
            Ok(QueueLevels { chosen: level_of(chosen.as_deref())?, least: level_of(least.as_deref())? })
        };
        let levels = queues.iter().map(levels_of).collect::<PyResult<Vec<_>>>()?;
        let placed = queues.iter().map(|queue| (QueueId(queue.get().id), queue.get().shard));
        self.with(py, |shard| shard.place_queues(placed))?;
        let settings = queues.iter().map(Py::get).zip(levels).map(|(queue, levels)| QueueSettings {
            id: QueueId(queue.id),
            name: &queue.name,
            auto_delete: queue.auto_delete,
            levels,
            stream: queue.retention.as_ref().map(stream_settings),
        });
        let ages = queues.iter().map(|queue| (QueueId(queue.get().id), queue.get().message_ttl_ms));
        let lengths = queues.iter().map(|queue| (QueueId(queue.get().id), length_limit(queue.get())));
        let times = queues.iter().map(|queue| (QueueId(queue.get().id), queue.get().expires_ms));
        let rules = queues.iter().map(Py::get).map(|queue| {
            let (single_active, ack_timeout_ms) = (queue.single_active, queue.consumer_timeout_ms);
            (QueueId(queue.id), ConsumerRules { single_active, ack_timeout_ms })
        });
        let dead_letters = queues.iter().map(Py::get).map(|queue| (QueueId(queue.id), dead_letters_of(queue)));
        let deliveries = queues.iter().map(|queue| (QueueId(queue.get().id), queue.get().delivery_limit));
        let failures = queues.iter().map(|queue| (QueueId(queue.get().id), queue.get().counts_failures));
        let retries = queues.iter().map(|queue| Ok((QueueId(queue.get().id), retries_of(queue.get())?)));
        let retries = retries.collect::<PyResult<Vec<_>>>()?;
        let seen =
            queues.iter().map(Py::get).map(|queue| (QueueId(queue.id), deduplication_of(queue.deduplication.as_ref())));
        let lanes = queues.iter().map(Py::get);
        let lanes = lanes.map(|queue| (QueueId(queue.id), queue.max_priority, queue.fair_key.is_some()));
        let keys = queues.iter().map(Py::get);
        let keys = keys.map(|queue| (QueueId(queue.id), queue.fair_key.as_deref().map(str::as_bytes)));
        self.with(py, |shard| {
            shard.lay_out_queues(lanes)?;
            shard.put_queues(settings)?;
            shard.take_turns(keys)?;
            shard.rule_consumers(rules)?;
            shard.route_dead_letters(dead_letters)?;
            shard.limit_deliveries(deliveries)?;
            shard.count_failures(failures)?;
            shard.schedule_retries(retries)?;
            shard.deduplicate_queues(seen)?;
            shard.limit_ages(ages)?;
            shard.limit_lengths(lengths)?;
            shard.expire_queues(times)
        })
    }

    fn complete(&self, py: Python<'_>) {
        py.detach(|| self.shard.complete());
    }

    fn end_term(&self, py: Python<'_>) {
        py.detach(|| self.shard.end_term());
    }

    fn count_shards(&self, py: Python<'_>, count: u16) -> PyResult<()> {
        self.with(py, |shard| shard.count_shards(count))
    }

    /// How many shards the vhost has.
    #[getter]
    fn shard_count(&self, py: Python<'_>) -> PyResult<u16> {
        self.with(py, |shard| shard.shard_count())
    }

    fn grow(&self, py: Python<'_>, count: u16) -> PyResult<()> {
        self.with(py, |shard| shard.grow(count))
    }

    fn dedicate_queue(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        let dedicated = py.detach(|| self.shard.dedicate(QueueId(id)));
        dedicated.map_err(|error| of_engine(py, &error, Doing::CreatingQueueLog { vhost: self.shard.name() }))
    }

    fn delete_queue(&self, py: Python<'_>, id: u64) -> PyResult<u64> {
        self.with(py, |shard| shard.delete_queue(QueueId(id)))
    }

    fn shut_empty_queue(&self, py: Python<'_>, id: u64) -> PyResult<QueueCounts> {
        self.with(py, |shard| shard.shut_empty_queue(QueueId(id))).map(QueueCounts::from)
    }

    fn shut_queue(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        self.with(py, |shard| shard.shut_queue(QueueId(id)))
    }

    fn reopen_queue(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        self.with(py, |shard| shard.reopen_queue(QueueId(id)))
    }

    fn use_queue(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        self.with(py, |shard| shard.use_queue(QueueId(id)))
    }

    fn is_unused(&self, py: Python<'_>, id: u64) -> PyResult<bool> {
        self.with(py, |shard| shard.is_unused(QueueId(id)))
    }

    fn purge_queue(&self, py: Python<'_>, id: u64) -> PyResult<u64> {
        self.with(py, |shard| shard.purge_queue(QueueId(id)))
    }

    #[pyo3(signature = (name, kind, alternate, *, algorithm = "ring", hash_header = None, hash_property = None, delayed = false, history_length = None, deduplication = None))]
    #[allow(clippy::too_many_arguments)] // those of Python, by their names
    fn put_exchange(
        &self,
        py: Python<'_>,
        name: &str,
        kind: &str,
        alternate: Option<&str>,
        algorithm: &str,
        hash_header: Option<&str>,
        hash_property: Option<&str>,
        delayed: bool,
        history_length: Option<u64>,
        deduplication: Option<Py<SeenIds>>,
    ) -> PyResult<()> {
        let kind = match kind {
            "direct" => ExchangeKind::Direct,
            "fanout" | "x-recent-history" => ExchangeKind::Fanout,
            "topic" => ExchangeKind::Topic,
            "headers" => ExchangeKind::Headers,
            "x-super-stream" => ExchangeKind::Partitions,
            "x-consistent-hash" if algorithm == "jump" => ExchangeKind::Choice(Choosing::Jump),
            "x-consistent-hash" => ExchangeKind::Choice(Choosing::Ring),
            "x-modulus-hash" => ExchangeKind::Choice(Choosing::Modulus),
            "x-random" | "x-local-random" => ExchangeKind::Choice(Choosing::Random),
            other => return Err(PyValueError::new_err(format!("exchange type '{other}' is not known"))),
        };
        let hash_on = match (hash_header, hash_property) {
            (Some(name), _) => HashOn::Header(name.as_bytes().into()),
            (None, None) => HashOn::RoutingKey,
            (None, Some("message_id")) => HashOn::MessageId,
            (None, Some("correlation_id")) => HashOn::CorrelationId,
            (None, Some("timestamp")) => HashOn::Timestamp,
            (None, Some(other)) => {
                return Err(PyValueError::new_err(format!("property '{other}' cannot be hashed")));
            }
        };
        let settings = ExchangeSettings { hash_on, is_delayed: delayed, ..ExchangeSettings::new(kind, alternate) };
        let seen = deduplication_of(deduplication.as_ref().map(Py::get));
        self.with(py, |shard| {
            shard.deduplicate_exchange(name, seen.as_ref())?;
            match history_length {
                Some(messages_max) => shard.put_keeping_exchange(name, &settings, messages_max),
                None => shard.put_exchange_as(name, &settings),
            }
        })
    }

    fn delete_exchange(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.with(py, |shard| shard.delete_exchange(name))
    }

    fn add_routes(&self, py: Python<'_>, routes: Vec<Py<NewRoute>>) -> PyResult<()> {
        let settings = routes.iter().map(Py::get).map(|route| RouteSettings {
            exchange: &route.exchange,
            key: &route.key,
            matching: route.r#match.as_deref(),
            destination: destination_of(route),
        });
        self.with(py, |shard| shard.add_routes(settings))
    }

    fn remove_route(&self, py: Python<'_>, route: &Bound<'_, NewRoute>) -> PyResult<()> {
        let route = route.get();
        let (matching, destination) = (route.r#match.as_deref(), destination_of(route));
        self.with(py, |shard| shard.remove_route(&route.exchange, &route.key, matching, destination))
    }

    fn queue_counts(&self, py: Python<'_>, ids: Vec<u64>) -> PyResult<Vec<QueueCounts>> {
        let ids: Vec<QueueId> = ids.into_iter().map(QueueId).collect();
        let counts = self.with(py, |shard| shard.queue_counts(&ids))?;
        Ok(counts.into_iter().map(QueueCounts::from).collect())
    }

    fn stream_states(&self, py: Python<'_>, ids: Vec<u64>) -> PyResult<Vec<StreamState>> {
        let ids: Vec<QueueId> = ids.into_iter().map(QueueId).collect();
        let states = self.with(py, |shard| shard.stream_states(&ids))?;
        Ok(states.into_iter().map(StreamState::from).collect())
    }

    fn stream_extents(&self, py: Python<'_>, ids: Vec<u64>) -> PyResult<Vec<StreamState>> {
        let ids: Vec<QueueId> = ids.into_iter().map(QueueId).collect();
        let extents = self.with(py, |shard| shard.stream_extents(&ids))?;
        Ok(extents.into_iter().map(StreamState::from).collect())
    }

    fn offset_at(&self, py: Python<'_>, id: u64, timestamp_ms: u64) -> PyResult<u64> {
        self.with(py, |shard| shard.home_of(QueueId(id)).offset_at(QueueId(id), timestamp_ms))
    }

    fn trim_stream(&self, py: Python<'_>, id: u64, before: u64) -> PyResult<u64> {
        self.with(py, |shard| shard.home_of(QueueId(id)).trim(QueueId(id), before))
    }

    fn stream_groups(&self, py: Python<'_>, id: u64) -> PyResult<Vec<GroupState>> {
        let groups = self.with(py, |shard| shard.home_of(QueueId(id)).stream_groups(QueueId(id)))?;
        let state = |group: GroupStanding| GroupState {
            name: group.name,
            offset: group.offset,
            reader_count: group.reader_count,
        };
        Ok(groups.into_iter().map(state).collect())
    }

    fn store_offset(&self, py: Python<'_>, id: u64, group: &str, offset: u64) -> PyResult<()> {
        self.with(py, |shard| {
            let home = shard.home_of(QueueId(id));
            home.sync_to(home.store_offset(QueueId(id), group, offset)?)
        })
    }

    fn delete_group(&self, py: Python<'_>, id: u64, group: &str) -> PyResult<bool> {
        self.with(py, |shard| shard.home_of(QueueId(id)).delete_group(QueueId(id), group))
    }

    fn reserve_lease(
        &self,
        py: Python<'_>,
        id: u64,
        owner: &str,
        lease: u64,
        messages_max: u64,
        bytes_max: u64,
    ) -> PyResult<ReservedLease> {
        let limits = LeaseLimits { messages_max, bytes_max };
        self.with(py, |shard| {
            let home = shard.home_of(QueueId(id));
            let reserved = home.reserve_lease(QueueId(id), owner, lease, limits, now_ms())?;
            // A client that asks an empty queue again and again causes no syncs.
            if reserved.lease.count > 0 {
                home.sync_to(reserved.position)?;
            }
            let LeaseStanding { count, bytes, reserved_at_ms, .. } = reserved.lease;
            let (is_new, ready_count) = (reserved.is_new, reserved.ready_count);
            Ok(ReservedLease { message_count: count, bytes, reserved_at_ms, is_new, ready_count })
        })
    }

    fn ack_leases(&self, py: Python<'_>, id: u64, owner: &str, up_to: u64) -> PyResult<u64> {
        self.with(py, |shard| shard.home_of(QueueId(id)).ack_leases(QueueId(id), owner, up_to))
    }

    fn release_leases(&self, py: Python<'_>, id: u64, owner: &str, from_: u64) -> PyResult<u64> {
        self.with(py, |shard| shard.home_of(QueueId(id)).release_leases(QueueId(id), owner, from_))
    }

    fn leases(&self, py: Python<'_>, id: u64) -> PyResult<Vec<LeaseOwnerState>> {
        let owners = self.with(py, |shard| shard.home_of(QueueId(id)).leases(QueueId(id)))?;
        let state = |found: LeaseOwnerStanding| LeaseOwnerState {
            name: found.owner,
            acked: found.acked,
            leases: found.leases.into_iter().map(LeaseState::from).collect(),
        };
        Ok(owners.into_iter().map(state).collect())
    }

    fn producer_sequences(&self, py: Python<'_>, name: &str) -> PyResult<Option<ProducerSequences>> {
        let found = self.with(py, |shard| shard.sequences_in_family(name))?;
        Ok(found.map(|Sequences { complete, highest }| ProducerSequences { complete, highest }))
    }

    fn producer_owner(&self, py: Python<'_>, name: &str) -> PyResult<Option<String>> {
        self.with(py, |shard| shard.producer_owner(name))
    }

    fn producers(&self, py: Python<'_>) -> PyResult<Vec<ProducerState>> {
        let producers = self.with(py, |shard| shard.producers_of_family())?;
        let state = |producer: ProducerStanding| ProducerState {
            name: producer.name,
            sequence: producer.sequence,
            used_at_ms: producer.used_at_ms,
            is_open: producer.is_open,
            owner: Some(producer.owner).filter(|owner| !owner.is_empty()),
        };
        Ok(producers.into_iter().map(state).collect())
    }

    fn delete_producer(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.with(py, |shard| shard.delete_producer(name))
    }

    fn delete_producers_of(&self, py: Python<'_>, user: &str) -> PyResult<u64> {
        self.with(py, |shard| shard.delete_producers_of(user))
    }

    fn stage_states(&self, py: Python<'_>, ids: Vec<u64>) -> PyResult<Vec<StageState>> {
        let ids: Vec<QueueId> = ids.into_iter().map(QueueId).collect();
        let states = self.with(py, |shard| shard.stage_states(&ids))?;
        let state =
            |standing: StageStanding| StageState { last_batch: standing.last_batch, is_copying: standing.copying };
        Ok(states.into_iter().map(state).collect())
    }

    fn carry_on_staged(&self, py: Python<'_>) {
        let shard = Arc::clone(&self.shard);
        py.detach(|| shard.carry_on_staged_apart());
    }

    fn corruptions(&self, py: Python<'_>) -> Vec<CorruptFile> {
        let corruptions = py.detach(|| self.shard.family().iter().map(|one| one.corruptions()).collect::<Vec<_>>());
        let file = |found: Corruption| CorruptFile {
            file: found.file,
            at: found.at,
            record_count: found.records,
            queues: found.queues,
        };
        corruptions.into_iter().flatten().map(file).collect()
    }

    /// Whether its lock, or that of another log of the vhost, is held for long: a call that needs it would wait.
    #[getter]
    fn is_stalled(&self, py: Python<'_>) -> bool {
        py.detach(|| self.shard.is_family_stalled())
    }

    #[getter]
    fn fault(&self, py: Python<'_>) -> Option<String> {
        py.detach(|| self.shard.family().iter().find_map(|one| one.fault()))
    }

    fn totals(&self, py: Python<'_>) -> PyResult<VhostCounts> {
        self.with(py, |shard| {
            let mut total = VhostCounts { ready_count: 0, unacked_count: 0, lock_wait_ns: 0 };
            for one in shard.family() {
                let (ready_count, unacked_count) = one.totals_seen()?;
                total.ready_count += ready_count;
                total.unacked_count += unacked_count;
                total.lock_wait_ns += one.lock_wait_ns();
            }
            Ok(total)
        })
    }

    /// The totals of each shard.
    fn shard_totals(&self, py: Python<'_>) -> PyResult<Vec<VhostCounts>> {
        self.with(py, |shard| {
            let mut by_shard = BTreeMap::new();
            for one in shard.family() {
                if let Some(number) = one.shard_number() {
                    let (ready_count, unacked_count) = one.totals_seen()?;
                    let lock_wait_ns = one.lock_wait_ns();
                    by_shard.insert(number, VhostCounts { ready_count, unacked_count, lock_wait_ns });
                }
            }
            Ok(by_shard.into_values().collect())
        })
    }

    #[pyo3(signature = (exchange, key, headers))]
    fn route(&self, py: Python<'_>, exchange: &str, key: &str, headers: Option<&[u8]>) -> PyResult<Vec<String>> {
        self.with(py, |shard| shard.route(exchange, key, headers))
    }

    fn begin_backup(&self, py: Python<'_>) -> PyResult<PyBackup> {
        let backup = self.with(py, |shard| shard.begin_backup())?;
        Ok(PyBackup::new(backup, self.shard.name()))
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

fn length_limit(queue: &NewQueue) -> Option<LengthLimit> {
    let overflow = match (queue.rejects_publish, queue.dead_letters_refused) {
        (false, _) => Overflow::DropHead,
        (true, false) => Overflow::RejectPublish,
        (true, true) => Overflow::RejectPublishDlx,
    };
    let (messages_max, bytes_max) = (queue.messages_max.unwrap_or(u64::MAX), queue.bytes_max.unwrap_or(u64::MAX));
    (queue.messages_max.is_some() || queue.bytes_max.is_some()).then_some(LengthLimit {
        messages_max,
        bytes_max,
        overflow,
    })
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

fn dead_letters_of(queue: &NewQueue) -> Option<DeadLetters> {
    let route = queue.dead_letters.as_ref()?;
    let (exchange, routing_key) = (route.exchange.clone(), route.routing_key.clone());
    Some(DeadLetters { exchange, routing_key, at_least_once: route.at_least_once })
}

/// Steps count before the linear back-off.
fn retries_of(queue: &NewQueue) -> PyResult<Option<RetrySchedule>> {
    let Some(retries) = &queue.retries else { return Ok(None) };
    let of = match retries.kind.as_str() {
        "all" => RetryType::All,
        "failed" => RetryType::Failed,
        "returned" => RetryType::Returned,
        other => return Err(PyValueError::new_err(format!("unknown kind of retries '{other}'"))),
    };
    let back_off = if retries.steps_ms.is_empty() {
        BackOff::Linear { min_ms: retries.min_ms, max_ms: retries.max_ms.unwrap_or(u64::MAX) }
    } else {
        BackOff::Steps(retries.steps_ms.clone())
    };
    Ok(Some(RetrySchedule { of, back_off }))
}

fn deduplication_of(seen: Option<&SeenIds>) -> Option<Deduplication> {
    let SeenIds { header, size_max, ttl_ms } = seen?;
    Some(Deduplication { header: header.as_bytes().into(), size_max: *size_max as usize, ttl_ms: *ttl_ms })
}

fn stream_settings(retention: &StreamRetention) -> StreamSettings {
    StreamSettings { max_age_ms: retention.age_ms_max, max_bytes: retention.bytes_max }
}

fn destination_of(route: &NewRoute) -> Destination<'_> {
    if route.to_exchange { Destination::Exchange(&route.destination) } else { Destination::Queue(&route.destination) }
}
