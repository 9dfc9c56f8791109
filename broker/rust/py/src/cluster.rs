//! `ClusterNode`: the replicas of this broker and its connections to other brokers.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_cluster::{Contents, Node, NodeError, NodeOptions};
use penstock_log::LogOptions;
use penstock_peers::{Secrets, Settings as PeerSettings, Timeouts, Tls};
use penstock_replica::{Outcome, Settings, Version};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::cluster_records::{NodeEvent, PeerTls, ShardState, id_of, replica_of};
use crate::errors::{of_node, of_opened, of_replica};
use crate::node_events::NodeEvents;
use crate::relays::{Inwards, Numbers, Outwards};
use crate::replica::PyReplica;
use crate::server::PyServer;

/// The thread for questions ends after this time at the latest.
const QUESTION_WAIT: Duration = Duration::from_millis(100);

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyNode>()
}

#[pyclass(name = "ClusterNode", module = "penstock._core", frozen)]
struct PyNode {
    events: Arc<NodeEvents>,
    secrets: Secrets,
    numbers: Numbers,
    running: Mutex<Option<Running>>,
}

/// A node, and the thread that takes its questions, which ends first.
struct Running {
    node: Arc<Node>,
    is_over: Arc<AtomicBool>,
    questions: Option<JoinHandle<()>>,
}

impl Running {
    fn start(node: Node, events: Arc<NodeEvents>) -> std::io::Result<Running> {
        let (node, is_over) = (Arc::new(node), Arc::new(AtomicBool::new(false)));
        let (asked, ends) = (Arc::clone(&node), Arc::clone(&is_over));
        let take = move || {
            while !ends.load(Ordering::Acquire) {
                if let Some(question) = asked.next_question(QUESTION_WAIT) {
                    events.push(NodeEvent::from(question));
                }
            }
        };
        let questions = std::thread::Builder::new().name("replica-questions".into()).spawn(take)?;
        Ok(Running { node, is_over, questions: Some(questions) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(questions) = self.questions.take() {
            // A thread that panicked has said so.
            let _ = questions.join();
        }
    }
}

#[pymethods]
impl PyNode {
    #[new]
    #[pyo3(signature = (
        *, number, cluster, boot, address, secrets, frame_bytes_max, tls = None, disk_threads = 2, scrub_every_s = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        py: Python<'_>,
        number: u64,
        cluster: Vec<u8>,
        boot: u64,
        address: &str,
        secrets: Vec<String>,
        frame_bytes_max: usize,
        tls: Option<PeerTls>,
        disk_threads: usize,
        scrub_every_s: Option<f64>,
    ) -> PyResult<PyNode> {
        let secrets = Secrets::new(secrets);
        let peers = PeerSettings {
            broker: number,
            cluster: id_of("cluster", cluster)?,
            versions: Node::versions(),
            secrets: secrets.clone(),
            tls: tls.map(tls_of),
            frame_bytes_max,
            timeouts: Timeouts::default(),
        };
        let scrub_every = scrub_every_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let replication = Settings::default();
        let options = NodeOptions { peers, boot, replication, disk_threads, scrub_every };
        let events = Arc::new(NodeEvents::new()?);
        let listener = TcpListener::bind(address)?;
        let heard = Arc::clone(&events);
        let node = py.detach(|| Node::start(options, listener, heard)).map_err(|error| of_node(py, &error, address))?;
        let running = Running::start(node, Arc::clone(&events))?;
        let numbers = Numbers::default();
        Ok(PyNode { events, secrets, numbers, running: Mutex::new(Some(running)) })
    }

    #[getter]
    fn address(&self) -> PyResult<String> {
        let address = self.node()?.address();
        address.map(|address| address.to_string()).ok_or_else(|| PyRuntimeError::new_err("this node has not started"))
    }

    /// The newest version of the protocol that all brokers know.
    #[getter]
    fn used_protocol(&self, py: Python<'_>) -> PyResult<u16> {
        let node = self.node()?;
        let used = py.detach(|| node.used());
        let used = used.ok_or_else(|| PyRuntimeError::new_err("this node has not started"))?;
        Ok(used.protocol)
    }

    #[getter]
    fn wake_fd(&self) -> i32 {
        self.events.wake_fd()
    }

    fn take(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.events.take().into_iter().map(|report| NodeEvent::from(report).object(py)).collect()
    }

    fn set_peer(&self, py: Python<'_>, broker: u64, address: &str, name: &str) -> PyResult<()> {
        let node = self.node()?;
        self.numbers.set(name, broker);
        py.detach(|| node.set_peer(broker, address));
        Ok(())
    }

    fn forget_peer(&self, py: Python<'_>, broker: u64) -> PyResult<()> {
        let node = self.node()?;
        self.numbers.forget(broker);
        py.detach(|| node.forget_peer(broker));
        Ok(())
    }

    /// Clients of `server` are relayed to other brokers, and those of other brokers to it.
    fn relay_clients(&self, server: &PyServer) -> PyResult<()> {
        let node = self.node()?;
        let outwards = Outwards { node: Arc::downgrade(&node), numbers: self.numbers.clone() };
        server.server.set_relays(Arc::new(outwards));
        node.set_relayed(Arc::new(Inwards(server.server.entrance().clone())));
        Ok(())
    }

    /// The relays from and to this broker, by names of metrics.
    fn metrics(&self) -> PyResult<HashMap<&'static str, f64>> {
        let used = self.node()?.relays();
        Ok(HashMap::from([
            ("relays", used.open_count as f64),
            ("relay_sent_bytes_total", used.sent_bytes as f64),
            ("relay_received_bytes_total", used.received_bytes as f64),
        ]))
    }

    fn set_secrets(&self, secrets: Vec<String>) {
        self.secrets.set(secrets);
    }

    #[pyo3(signature = (
        shard, directory, *, new_replica, segment_bytes_min, segment_bytes_max, page_cache_lost, disk_free_bytes_min = 0,
        has_queues = true, order = 0
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn open(
        &self,
        py: Python<'_>,
        shard: Vec<u8>,
        directory: &str,
        new_replica: &str,
        segment_bytes_min: u64,
        segment_bytes_max: u64,
        page_cache_lost: bool,
        disk_free_bytes_min: u64,
        has_queues: bool,
        order: u64,
    ) -> PyResult<PyReplica> {
        let (node, id, new_replica) = (self.node()?, id_of("shard", shard)?, replica_of(new_replica)?);
        let log = LogOptions {
            segment_bytes_min,
            segment_bytes_max,
            raise: page_cache_lost,
            free_bytes_min: disk_free_bytes_min,
            ..LogOptions::default()
        };
        let contents = if has_queues { Contents::Queues } else { Contents::Entries };
        let opened = py.detach(|| node.open(id, Path::new(directory), log, contents, new_replica, order));
        match opened {
            Ok((shard, _)) => Ok(PyReplica::new(shard, directory)),
            Err(NodeError::Open(error)) => Err(of_opened(py, directory, "cannot be opened", &error)),
            Err(error) => Err(of_replica(py, directory, "cannot be opened", &error)),
        }
    }

    fn send(&self, py: Python<'_>, broker: u64, shard: Vec<u8>, content: Vec<u8>) -> PyResult<bool> {
        let (node, id) = (self.node()?, id_of("shard", shard)?);
        Ok(py.detach(|| node.send(broker, &id, &content)))
    }

    fn close_replica(&self, py: Python<'_>, shard: Vec<u8>) -> PyResult<()> {
        let (node, id) = (self.node()?, id_of("shard", shard)?);
        py.detach(|| node.close(&id));
        Ok(())
    }

    #[pyo3(signature = (shard, read, record, version = 0))]
    fn read(
        &self,
        py: Python<'_>,
        shard: Vec<u8>,
        read: Option<u64>,
        record: Option<ShardState>,
        version: u64,
    ) -> PyResult<()> {
        let (node, id) = (self.node()?, id_of("shard", shard)?);
        let record = record.map(|record| Ok::<_, PyErr>((record.try_into()?, Version(version)))).transpose()?;
        py.detach(|| node.read(&id, read, record));
        Ok(())
    }

    fn changed(&self, py: Python<'_>, shard: Vec<u8>, change: u64, version: u64) -> PyResult<()> {
        self.answer(py, shard, change, Outcome::Changed(Version(version)))
    }

    fn conflicted(&self, py: Python<'_>, shard: Vec<u8>, change: u64) -> PyResult<()> {
        self.answer(py, shard, change, Outcome::Conflict)
    }

    fn unanswered(&self, py: Python<'_>, shard: Vec<u8>, change: u64) -> PyResult<()> {
        self.answer(py, shard, change, Outcome::Unknown)
    }

    fn session(&self, py: Python<'_>, broker: u64, is_alive: bool) -> PyResult<()> {
        let node = self.node()?;
        py.detach(|| node.session(broker, is_alive));
        Ok(())
    }

    fn set_yields(&self, py: Python<'_>, yields: bool) -> PyResult<()> {
        let node = self.node()?;
        py.detach(|| node.set_yields(yields));
        Ok(())
    }

    fn close(&self, py: Python<'_>) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(running));
    }
}

impl PyNode {
    fn node(&self) -> PyResult<Arc<Node>> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let found = running.as_ref().map(|running| Arc::clone(&running.node));
        found.ok_or_else(|| PyRuntimeError::new_err("this node was closed"))
    }

    fn answer(&self, py: Python<'_>, shard: Vec<u8>, change: u64, outcome: Outcome) -> PyResult<()> {
        let (node, id) = (self.node()?, id_of("shard", shard)?);
        py.detach(|| node.changed(&id, change, outcome));
        Ok(())
    }
}

fn tls_of(tls: PeerTls) -> Tls {
    let PeerTls { authority, certificate, key, server_name } = tls;
    Tls { authority, certificate, key: key.0, server_name }
}
