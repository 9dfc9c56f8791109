//! The budget of memory, seen from outside: by what the broker counts, and by what the process holds.
#![allow(clippy::unwrap_used)]

mod http2;
mod storage;

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http2::{Wire, data_frame, head};
use penstock_engine::{Engine, QueueId, Shard};
use penstock_serve::host::{Admitted, Answer, Calls, HostOptions, Kind, Refusal};
use penstock_serve::{AmqpOptions, GrpcOptions, Server, ServerOptions};
use penstock_wire::grpc::{BatchEncoder, encode_publish_open};

const PATIENCE: Duration = Duration::from_secs(120);
const LIMIT: usize = 32 << 20;
const MESSAGE_BYTES_MAX: usize = 1 << 20;
const PUBLISH: &str = "/penstock.v1.MessagingService/Publish";
const ANNA: &str = "anna";
/// What a connection and a stream cost beside their bytes, with the client's own of this test.
const CONNECTION_COST: usize = 48 << 10;
const STREAM_COST: usize = 48 << 10;

/// The memory of a process is that of all its threads, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

struct Broker {
    _alone: MutexGuard<'static, ()>,
    engine: Arc<Engine>,
    _shard: Arc<Shard>,
    server: Server,
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    deciding: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Broker {
    fn start(first_request: Duration) -> Broker {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (engine, shard, directory) = storage::open(1 << 20, QueueId(1));
        let host = HostOptions {
            threads: 2,
            message_bytes_max: MESSAGE_BYTES_MAX,
            request_bytes_max: 2 * MESSAGE_BYTES_MAX,
            buffer_bytes_max: LIMIT,
            calls_max: 40_000,
            connections_max: 20_000,
            first_request,
            tls: None,
            proxies: Vec::new(),
            web_origins: Vec::new(),
        };
        let grpc = GrpcOptions { address: "127.0.0.1:0".to_owned(), descriptors: Vec::new(), streams_max: 1000 };
        let server =
            Server::start(Arc::clone(&engine), &ServerOptions { host, grpc, amqp: AmqpOptions::default() }).unwrap();
        let (calls, is_over) = (Arc::clone(server.calls()), Arc::<AtomicBool>::default());
        let stops = Arc::clone(&is_over);
        let deciding = std::thread::spawn(move || decide(&calls, &stops));
        let address = server.address();
        Broker { _alone: alone, engine, _shard: shard, server, address, is_over, deciding, _directory: directory }
    }

    /// A connection whose client has published a message.
    fn publish(&self) -> Wire {
        let mut wire = Wire::connect(self.address).unwrap();
        let stream = open_publish(&mut wire, ANNA);
        let mut batch = BatchEncoder::begin(Vec::new(), "", "jobs", false);
        batch.push(b"small", None);
        let batch = batch.finish();
        wire.send(stream, &[&head(batch.len())[..], &batch].concat()).unwrap();
        let until = Instant::now() + PATIENCE;
        while wire.answered.is_empty() {
            assert!(Instant::now() < until && !wire.is_over, "no confirm came");
            wire.hear(Duration::from_millis(100)).unwrap();
        }
        wire
    }

    fn until_nothing_is_used(&self) {
        let until = Instant::now() + PATIENCE;
        while self.used() > 0 {
            assert!(Instant::now() < until, "{:?}", self.server.memory_used());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn used(&self) -> usize {
        let used = self.server.memory_used();
        used.request_bytes + used.response_bytes + used.unauthenticated_bytes
    }

    fn stop(self) {
        self.server.stop(Duration::from_millis(100));
        self.is_over.store(true, Ordering::Release);
        self.deciding.join().unwrap();
        self.engine.close().unwrap();
    }
}

/// Admits anna, and leaves others undecided for as long as they wait.
fn decide(calls: &Calls, is_over: &AtomicBool) {
    let mut undecided = Vec::new();
    while !is_over.load(Ordering::Acquire) {
        for mut call in calls.take() {
            let Some(reply) = call.reply.take() else { continue };
            if call.caller.authorization != ANNA {
                undecided.push(reply);
                continue;
            }
            let (vhost, user) = ("/".to_owned(), ANNA.to_owned());
            reply.send(Ok(Answer::Admitted(Admitted { vhost, queue_id: 0, user, by_key: false, replica: None })));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    undecided.into_iter().for_each(|reply| reply.send(Err(Refusal::new(Kind::Unauthenticated, "too late"))));
}

fn open_publish(wire: &mut Wire, user: &str) -> u32 {
    let stream = wire.open(PUBLISH, user).unwrap();
    let mut open = Vec::new();
    encode_publish_open(&mut open, "/", 0, "");
    wire.send(stream, &[&head(open.len())[..], &open].concat()).unwrap();
    stream
}

/// Bytes of the process that no file has.
fn private_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Sends parts of a large message on each of so many streams, until `is_enough` and the broker opens no window for so long.
fn send_parts(wire: &mut Wire, stream_count: usize, rest: Duration, is_enough: impl Fn() -> bool) -> usize {
    const PART_BYTES: usize = 400 << 10;
    let streams: Vec<u32> = (0..stream_count).map(|_| open_publish(wire, ANNA)).collect();
    let part = [&head(MESSAGE_BYTES_MAX)[..], &vec![b'x'; PART_BYTES]].concat();
    let mut sent = vec![0; stream_count];
    let (mut last, until) = (Instant::now(), Instant::now() + PATIENCE);
    while (last.elapsed() < rest || !is_enough()) && !wire.is_over {
        assert!(Instant::now() < until, "{} bytes were sent", sent.iter().sum::<usize>());
        for (stream, sent) in streams.iter().zip(&mut sent) {
            let count = wire.send(*stream, &part[*sent..]).unwrap_or(0);
            *sent += count;
            if count > 0 {
                last = Instant::now();
            }
        }
        wire.hear(Duration::from_millis(1)).unwrap();
    }
    sent.iter().sum()
}

#[test]
fn a_thousand_partial_messages_of_one_connection_stay_within_the_budget() {
    const STREAMS: usize = 1000;
    let broker = Broker::start(PATIENCE);
    drop(broker.publish());
    let before = private_bytes();
    let mut wire = broker.publish();

    let waits = || broker.server.memory_used().wait_count > 0;
    let sent = send_parts(&mut wire, STREAMS - 1, Duration::from_secs(1), waits);

    let used = broker.server.memory_used();
    assert!(used.wait_count > 0 && used.request_bytes > LIMIT / 16, "{sent} bytes were sent: {used:?}");
    assert!(broker.used() <= LIMIT, "{used:?}");
    let held = private_bytes().saturating_sub(before);
    assert!(held <= LIMIT + STREAMS * STREAM_COST, "{held} bytes are held, {sent} were sent: {used:?}");
    // Others are served meanwhile.
    drop(broker.publish());
    drop(wire);
    broker.until_nothing_is_used();
    broker.stop();
}

#[test]
fn partial_messages_of_many_connections_give_way_to_others() {
    let broker = Broker::start(Duration::from_secs(1));
    let mut wires: Vec<Wire> = (0..6).map(|_| broker.publish()).collect();
    for wire in &mut wires {
        send_parts(wire, 40, Duration::from_millis(300), || true);
    }
    let used = broker.server.memory_used();
    assert!(broker.used() <= LIMIT && used.request_bytes > LIMIT / 4, "{used:?}");

    drop(broker.publish());

    drop(wires);
    broker.until_nothing_is_used();
    broker.stop();
}

#[test]
fn connections_without_a_log_in_share_a_small_part_of_the_budget() {
    let broker = Broker::start(10 * PATIENCE);
    let known = broker.publish();
    let before = private_bytes();
    let part = data_frame(1, &vec![b'x'; 16 << 10]);
    let mut wires = Vec::new();
    while wires.len() < connections_that_fit() {
        let mut wire = Wire::connect(broker.address).unwrap();
        open_publish(&mut wire, "a stranger");
        wire.send(1, &[&head(MESSAGE_BYTES_MAX)[..], &vec![b'x'; 12 << 10]].concat()).unwrap();
        // Two connections in a hundred send as much as is taken.
        if wires.len() % 50 == 0 {
            // The window of the stream is the broker's once its settings are acknowledged.
            while wire.window < 1 << 20 && !wire.is_over {
                wire.hear(Duration::from_millis(100)).unwrap();
            }
            wire.press(&part.repeat(16), Duration::from_millis(10));
        }
        wires.push(wire);
    }
    let until = Instant::now() + PATIENCE;
    while broker.server.memory_used().unauthenticated_bytes < LIMIT / 16 {
        assert!(Instant::now() < until, "{:?}", broker.server.memory_used());
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_secs(1));

    let used = broker.server.memory_used();

    assert!(used.unauthenticated_bytes > 0 && used.unauthenticated_bytes <= LIMIT / 16 + (64 << 10), "{used:?}");
    assert!(used.request_bytes <= LIMIT / 64, "{used:?}");
    let held = private_bytes().saturating_sub(before);
    println!("{} bytes are held for each of {}", held / wires.len(), wires.len());
    assert!(held <= LIMIT + wires.len() * CONNECTION_COST, "{held} bytes are held by {} connections", wires.len());
    drop(broker.publish());
    drop((wires, known));
    broker.until_nothing_is_used();
    broker.stop();
}

/// Each had the buffers of HTTP/2.
#[test]
fn connections_that_say_nothing_take_little_memory() {
    const SILENT_COST: usize = 8 << 10;
    let broker = Broker::start(10 * PATIENCE);
    drop(broker.publish());
    let open = || broker.engine.counters().all().find(|(name, _)| *name == "connections").unwrap().1;
    let (before, count) = (private_bytes(), connections_that_fit());

    let silent: Vec<TcpStream> = (0..count).map(|_| TcpStream::connect(broker.address).unwrap()).collect();
    let until = Instant::now() + PATIENCE;
    while open() < silent.len() as u64 {
        assert!(Instant::now() < until, "{} are open", open());
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));

    let held = private_bytes().saturating_sub(before);
    println!("{} bytes are held for each of {count}", held / count);
    assert!(held <= count * SILENT_COST, "{held} bytes are held by {count} connections");
    drop(broker.publish());
    drop(silent);
    broker.stop();
}

/// `CONNECTIONS`, or two thousand; each takes two descriptors of this process.
fn connections_that_fit() -> usize {
    let wanted = std::env::var("CONNECTIONS").map_or(2000, |count| count.parse().unwrap());
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft = line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX);
    (soft.saturating_sub(200) / 2).min(wanted)
}
