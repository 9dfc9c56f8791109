//! Relays between brokers over real sockets: bytes in both directions, ends, refusals, and relays whose bytes are not read.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
mod brokers;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brokers::{Broker, Heard, certificates, pair, settings};
use bytes::Bytes;
use penstock_peers::{BrokerId, ClusterId, Frame, Link, Relayed, RelayedClient, Secrets, Settings, Tunnel};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Only ends a test that would otherwise never end.
const LIMIT: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;

/// A broker's clients: `echo` gets back what it says, `silent` is kept and not read, and others are refused.
#[derive(Default)]
struct Listeners {
    came: Mutex<Vec<(BrokerId, SocketAddr, RelayedClient)>>,
    silent: Mutex<Vec<Tunnel>>,
}

impl Relayed for Listeners {
    fn relayed(&self, from: BrokerId, via: SocketAddr, client: RelayedClient, stream: Tunnel) -> std::io::Result<()> {
        match client.protocol.as_str() {
            "echo" => drop(Handle::current().spawn(async move {
                let (mut reading, mut writing) = split(stream);
                copy(&mut reading, &mut writing).await.ok();
                writing.shutdown().await.ok();
            })),
            "silent" => self.silent.lock().unwrap().push(stream),
            other => return Err(std::io::Error::new(ErrorKind::Unsupported, format!("'{other}' is not served"))),
        }
        self.came.lock().unwrap().push((from, via, client));
        Ok(())
    }
}

fn client(protocol: &str) -> RelayedClient {
    RelayedClient { protocol: protocol.to_owned(), connection: 9, ..RelayedClient::default() }
}

fn listening(broker: &Broker) -> Arc<Listeners> {
    let listeners = Arc::<Listeners>::default();
    broker.peers.as_ref().unwrap().set_relayed(Arc::clone(&listeners) as _);
    listeners
}

/// Two brokers, of which the second one serves clients.
fn serving(first: Settings, second: Settings) -> (Broker, Broker, Arc<Listeners>) {
    let (first, second) = pair(first, second);
    let listeners = listening(&second);
    (first, second, listeners)
}

fn run<T>(broker: &Broker, work: impl Future<Output = T>) -> T {
    broker.runtime.as_ref().unwrap().block_on(async { timeout(LIMIT, work).await.unwrap() })
}

fn open(from: &Broker, to: BrokerId, client: RelayedClient) -> std::io::Result<Tunnel> {
    run(from, from.peers.as_ref().unwrap().relay(to, client))
}

/// Says so much and returns what came back.
async fn echoed(tunnel: Tunnel, bytes: usize) -> usize {
    let (mut reading, mut writing) = split(tunnel);
    let said = tokio::spawn(async move {
        writing.write_all(&vec![7; bytes]).await.unwrap();
        writing.shutdown().await.unwrap();
    });
    let mut back = Vec::new();
    reading.read_to_end(&mut back).await.unwrap();
    said.await.unwrap();
    assert!(back.iter().all(|&byte| byte == 7));
    back.len()
}

fn with_tls(broker: BrokerId, tls: &penstock_peers::Tls) -> Settings {
    Settings { tls: Some(tls.clone()), ..settings(broker) }
}

#[test]
fn bytes_go_through_a_relay_in_both_directions_and_it_ends_from_either_side() {
    let tls = certificates();
    let (first, second, listeners) = serving(with_tls(1, &tls), with_tls(2, &tls));
    let whole = RelayedClient {
        address: Some("203.0.113.9:40000".parse().unwrap()),
        certificate: Some(Arc::from(vec![0x30; 2000])),
        is_tls: true,
        ..client("echo")
    };

    let tunnel = open(&first, 2, whole.clone()).unwrap();
    assert_eq!(run(&first, echoed(tunnel, 5 * MIB)), 5 * MIB);

    let (from, via, came) = listeners.came.lock().unwrap().pop().unwrap();
    assert_eq!((from, via.ip().is_loopback(), came), (1, true, whole));
    // Relays do not go by the direction of the connection that brokers have for frames.
    let back = listening(&first);
    assert_eq!(run(&second, echoed(open(&second, 1, client("echo")).unwrap(), 10)), 10);
    assert_eq!(back.came.lock().unwrap().len(), 1);

    let mut tunnel = open(&first, 2, client("silent")).unwrap();
    drop(listeners.silent.lock().unwrap().pop());
    assert_eq!(run(&first, tunnel.read(&mut [0; 8])).unwrap(), 0);
}

#[test]
fn what_was_written_before_a_relay_is_dropped_arrives() {
    let (first, _second, listeners) = serving(settings(1), settings(2));
    let mut tunnel = open(&first, 2, client("silent")).unwrap();
    run(&first, tunnel.write_all(&[5; 9000])).unwrap();

    drop(tunnel);

    let mut silent = listeners.silent.lock().unwrap().pop().unwrap();
    let mut came = Vec::new();
    run(&first, silent.read_to_end(&mut came)).unwrap();
    assert_eq!(came, [5; 9000]);
}

#[test]
fn a_relay_that_is_not_read_is_bounded_and_holds_up_neither_others_nor_frames() {
    let (first, second, listeners) = serving(settings(1), settings(2));
    second.recorder.wait_for_links(Link::Up { protocol: 1 }, 1);
    // More in all than the windows of HTTP/2 on one connection.
    let mut stalled: Vec<Tunnel> = (0..100).map(|_| open(&first, 2, client("silent")).unwrap()).collect();
    let written: usize = stalled
        .iter_mut()
        .map(|tunnel| {
            let mut count = 0;
            // What is granted comes later than the first bytes, so it ends when nothing moves for a while.
            run(&first, async {
                while let Ok(more) = timeout(Duration::from_millis(20), tunnel.write(&[0; 64 << 10])).await {
                    count += more.unwrap();
                }
            });
            count
        })
        .sum();
    assert!(written <= 100 * (256 << 10), "{written} bytes were taken, and none read");
    assert_eq!(listeners.silent.lock().unwrap().len(), 100);

    assert_eq!(run(&first, echoed(open(&first, 2, client("echo")).unwrap(), 5 * MIB)), 5 * MIB);
    let frame = Frame { head: Bytes::from_static(b"frame"), ..Frame::default() };
    first.send(2, [frame]);
    second.recorder.wait_for(&Heard::Frame(1, Bytes::from_static(b"frame")));

    // A stalled one goes on where it is read again.
    let mut silent = listeners.silent.lock().unwrap().remove(0);
    let (said, mut read) = (vec![0; 4 * MIB], vec![0; 4 * MIB]);
    let (writes, reads) = (stalled[0].write_all(&said), silent.read_exact(&mut read));
    run(&first, async { tokio::try_join!(writes, reads) }).unwrap();
}

#[test]
fn a_thousand_relays_are_open_at_a_time() {
    let (first, second, _listeners) = serving(settings(1), settings(2));
    let tunnels: Vec<Tunnel> = (0..1000).map(|_| open(&first, 2, client("echo")).unwrap()).collect();
    let used = (first.peers.as_ref().unwrap().relays(), second.peers.as_ref().unwrap().relays());
    assert_eq!((used.0.open_count, used.1.open_count), (1000, 1000));

    let back: usize = tunnels.into_iter().map(|tunnel| run(&first, echoed(tunnel, 1000))).sum();

    assert_eq!(back, 1_000_000);
    let used = second.peers.as_ref().unwrap().relays();
    assert_eq!((used.received_bytes, used.sent_bytes), (1_000_000, 1_000_000));
    run(&first, async {
        while second.peers.as_ref().unwrap().relays().open_count > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn relays_of_a_broker_that_is_gone_break_and_others_can_be_made_after_its_restart() {
    let (first, mut second, _listeners) = serving(settings(1), settings(2));
    let mut tunnel = open(&first, 2, client("silent")).unwrap();

    second.kill();

    assert_eq!(run(&first, tunnel.read(&mut [0; 8])).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(run(&first, tunnel.write(&[0; 8])).is_err());
    assert!(open(&first, 2, client("echo")).is_err());
    let second = Broker::start_at(settings(2), second.address);
    second.knows(1, &first);
    listening(&second);
    assert_eq!(run(&first, echoed(open(&first, 2, client("echo")).unwrap(), 10)), 10);
}

#[test]
fn a_relay_is_refused_with_a_reason() {
    let (first, _second, _listeners) = serving(settings(1), settings(2));
    let refused = open(&first, 2, client("mail")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().ends_with("'mail' is not served"), "{refused}");
    assert_eq!(open(&first, 3, client("echo")).unwrap_err().kind(), ErrorKind::NotFound);
    // A broker that serves no clients yet.
    let (first, _second) = pair(settings(1), settings(2));
    assert_eq!(open(&first, 2, client("echo")).unwrap_err().kind(), ErrorKind::ConnectionAborted);
}

#[test]
fn only_brokers_of_the_cluster_relay() {
    let tls = certificates();
    let other = |change: fn(&mut Settings)| {
        let mut settings = with_tls(1, &tls);
        change(&mut settings);
        let (first, _second, listeners) = serving(settings, with_tls(2, &tls));
        let refused = open(&first, 2, client("echo")).unwrap_err();
        assert!(listeners.came.lock().unwrap().is_empty());
        refused.kind()
    };
    assert_eq!(other(|settings| settings.secrets = Secrets::new(vec!["another".into()])), ErrorKind::PermissionDenied);
    assert_eq!(other(|settings| settings.cluster = ClusterId::default()), ErrorKind::PermissionDenied);
    // Of an authority that the other one does not know.
    other(|settings| {
        let own = certificates();
        let trusted = settings.tls.as_ref().unwrap().authority.clone();
        settings.tls = Some(penstock_peers::Tls { authority: trusted, ..own });
    });
    // One that the other one does not know.
    let (first, second) = (Broker::start(settings(1)), Broker::start(settings(2)));
    first.knows(2, &second);
    listening(&second);
    assert_eq!(open(&first, 2, client("echo")).unwrap_err().kind(), ErrorKind::PermissionDenied);
}
