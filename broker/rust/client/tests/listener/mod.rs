//! The broker's listener above a shard of its own. A thread makes its decisions: every user may do everything, `s` is a
//! stream and everything else a queue.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_client::{Channel, ChannelSettings, Reader, ReaderSettings};
use penstock_engine::{
    Engine, EngineOptions, Payload, Publication, QueueId, QueueLevels, QueueSettings, Shard, StreamSettings,
};
use penstock_serve::host::{Admitted, Answer, Call, CallRequest, Calls, HostOptions};
use penstock_serve::{AmqpOptions, GrpcOptions, Server, ServerOptions};

pub const STREAM: QueueId = QueueId(1);
const QUEUE: QueueId = QueueId(2);
const GRACE: Duration = Duration::from_secs(5);
/// Poll interval of waits.
const LOOK: Duration = Duration::from_millis(2);

pub struct Broker {
    pub shard: Arc<Shard>,
    engine: Arc<Engine>,
    listener: Option<Listener>,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Broker {
    pub fn start() -> Broker {
        let directory = tempfile::tempdir().unwrap();
        let options = EngineOptions {
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 256 << 10,
            segment_idle: Duration::from_secs(60),
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
            producers_of_user_max: 4096,
        };
        let engine = Arc::new(Engine::new(options).unwrap());
        let shard = engine.open_shard("/", directory.path(), false).unwrap();
        let queue =
            |id, name, stream| QueueSettings { id, name, auto_delete: false, levels: QueueLevels::default(), stream };
        let stream = queue(STREAM, "s", Some(StreamSettings::default()));
        shard.put_queues([stream, queue(QUEUE, "jobs", None)]).unwrap();
        let listener = Listener::start(&engine, "127.0.0.1:0");
        let address = listener.server.address();
        Broker { shard, engine, listener: Some(listener), address, _directory: directory }
    }

    /// Ends every connection and listens again on the same address.
    pub fn restart(&mut self) {
        drop(self.listener.take());
        self.listener = Some(Listener::start(&self.engine, &self.address.to_string()));
    }

    pub fn publish(&self, bodies: &[&str]) {
        let batch: Vec<Publication<'_>> = bodies.iter().map(|body| published(body)).collect();
        self.shard.publish(&batch, None, 1, &mut Vec::new()).unwrap();
    }

    pub fn channel(&self) -> Arc<Channel> {
        let settings = ChannelSettings {
            targets: vec![self.address.to_string()],
            follows: true,
            vhost: "v".to_owned(),
            authorization: "Basic Z3Vlc3Q6Z3Vlc3Q=".to_owned(),
            connect_timeout_ms: 5_000,
            message_bytes_max: 1 << 20,
            tls: None,
        };
        Arc::new(Channel::new(&settings).unwrap())
    }

    pub fn reader(&self, settings: ReaderSettings) -> Reader {
        Reader::new(self.channel(), settings).unwrap()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.listener.take());
        self.engine.close().unwrap();
    }
}

fn published(body: &str) -> Publication<'_> {
    let payload = Payload::new(b"", b"s", b"", body.as_bytes()).unwrap();
    Publication { payload, exchange: b"", key: b"s", headers: None, persistent: false, mandatory: false }
}

struct Listener {
    server: Server,
    decider: Option<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
}

impl Listener {
    fn start(engine: &Arc<Engine>, address: &str) -> Listener {
        let host = HostOptions {
            threads: 1,
            message_bytes_max: 1 << 20,
            request_bytes_max: 2 << 20,
            buffer_bytes_max: 64 << 20,
            calls_max: 100,
            connections_max: 1000,
            first_request: Duration::from_secs(60),
            tls: None,
            proxies: Vec::new(),
            web_origins: Vec::new(),
        };
        let grpc = GrpcOptions { address: address.to_owned(), descriptors: Vec::new(), streams_max: 1000 };
        let options = ServerOptions { host, grpc, amqp: AmqpOptions::default() };
        let server = Server::start(Arc::clone(engine), &options).unwrap();
        let stopping = Arc::<AtomicBool>::default();
        let (calls, stopped) = (Arc::clone(server.calls()), Arc::clone(&stopping));
        let decider = Some(std::thread::spawn(move || decide(&calls, &stopped)));
        Listener { server, decider, stopping }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.server.stop(GRACE);
        self.stopping.store(true, Ordering::Release);
        self.decider.take().into_iter().for_each(|decider| decider.join().unwrap());
    }
}

fn decide(calls: &Calls, stopping: &AtomicBool) {
    while !stopping.load(Ordering::Acquire) {
        for call in calls.take() {
            let queue_id = if name_in(&call) == "s" { STREAM.0 } else { QUEUE.0 };
            let user = "guest".to_owned();
            let admitted =
                Answer::Admitted(Admitted { vhost: "/".to_owned(), queue_id, user, by_key: false, replica: None });
            if let Some(reply) = call.reply {
                // The caller may be gone.
                reply.send(Ok(admitted));
            }
        }
        look_again();
    }
}

/// The queue or stream of a call.
fn name_in(call: &Call) -> String {
    match &call.request {
        CallRequest::OpenRead { partition, .. } => partition.clone(),
        CallRequest::OpenConsume { queue, .. } => queue.clone(),
        _ => String::new(),
    }
}

/// Yields to other threads before another poll.
pub fn look_again() {
    std::thread::sleep(LOOK);
}
