//! The way of a connection to the listener for AMQP, up to a virtual host: proxies, checks of a port, Unix sockets, and clients that
//! go no further.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod amqp_client;
mod storage;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use penstock_serve::host::{Certificate, Tls, TlsOptions};
use penstock_wire::amqp::frame::PROTOCOL_HEADER;
use penstock_wire::amqp::method::Method;
use rcgen::{CertifiedKey, generate_simple_self_signed};

use crate::amqp_client::{Broker, Client, PATIENCE};

/// Nothing in a test waits for so long.
const NEVER: Duration = Duration::from_secs(3600);

/// More than a test has, also while none of them is over.
const CONNECTIONS_MAX: usize = 1000;

fn counter(broker: &Broker, name: &str) -> u64 {
    let found = broker.engine.counters().all().find(|(each, _)| *each == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

fn until_counted(broker: &Broker, name: &str) -> u64 {
    for _ in 0..60_000 {
        match counter(broker, name) {
            0 => std::thread::sleep(Duration::from_millis(1)),
            count => return count,
        }
    }
    panic!("{name} stays 0");
}

fn lines(broker: &Broker) -> Vec<String> {
    broker.engine.notices().take().into_iter().map(|notice| notice.text).collect()
}

/// The lines of the log, once there are some: they come after a count.
fn until_lines(broker: &Broker) -> Vec<String> {
    for _ in 0..60_000 {
        match lines(broker) {
            none if none.is_empty() => std::thread::sleep(Duration::from_millis(1)),
            lines => return lines,
        }
    }
    panic!("no line comes");
}

fn client_of(stream: TcpStream) -> Client {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Client { stream, input: Vec::new(), hears_alarms: false }
}

/// Behind trusted proxies on this machine.
fn behind_proxies(first_request: Duration) -> Broker {
    Broker::start_with(|host| {
        host.connections_max = CONNECTIONS_MAX;
        host.first_request = first_request;
        host.proxies = vec!["127.0.0.0/8".parse().unwrap()];
    })
}

fn tls() -> Tls {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = Certificate { chain: cert.pem().into_bytes(), key: signing_key.serialize_pem().into_bytes() };
    Tls::new(&TlsOptions { certificate, named: Vec::new(), clients: None, only_13: false }).unwrap()
}

/// Connects and closes again without a byte, as a load balancer's check does.
fn check(address: SocketAddr) {
    for _ in 0..20 {
        drop(TcpStream::connect(address).unwrap());
    }
}

#[test]
fn a_client_without_a_header_at_a_trusted_address_is_refused_before_more_comes() {
    let broker = behind_proxies(NEVER);
    let mut client = client_of(TcpStream::connect(broker.address).unwrap());
    client.sends(&PROTOCOL_HEADER);

    client.expects_end();

    assert_eq!(counter(&broker, "connections_refused_total"), 1);
    broker.stop();
}

#[test]
fn a_silent_client_at_a_trusted_address_is_refused_after_a_while() {
    let broker = behind_proxies(Duration::from_millis(200));
    let mut client = client_of(TcpStream::connect(broker.address).unwrap());

    client.expects_end();

    assert!(lines(&broker).iter().any(|line| line.contains("no PROXY protocol header came in time")));
    broker.stop();
}

#[test]
fn headers_without_an_address_are_served() {
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    let unix = [&signature[..], &[0x21, 0x31, 0, 216], &[b'/'; 216]].concat();
    let headers: [&[u8]; 4] =
        [b"PROXY UNKNOWN\r\n", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", b"\r\n\r\n\0\r\nQUIT\n\x21\0\0\0", &unix];
    let broker = behind_proxies(NEVER);
    for header in headers {
        let mut stream = TcpStream::connect(broker.address).unwrap();
        stream.write_all(header).unwrap();
        drop(client_of(stream).enter(0));
    }
    broker.stop();
}

#[test]
fn a_check_of_a_port_counts_for_nothing() {
    let broker = behind_proxies(NEVER);
    check(broker.address);
    check(broker.server.amqp_web_address().unwrap());
    for _ in 0..20 {
        let mut stream = TcpStream::connect(broker.server.amqp_web_address().unwrap()).unwrap();
        stream.write_all(b"PROXY UNKNOWN\r\n").unwrap();
    }

    // One that does count, so that there is something to wait for.
    client_of(TcpStream::connect(broker.address).unwrap()).sends(b"no header");

    assert_eq!(until_counted(&broker, "connections_refused_total"), 1);
    assert_eq!(until_lines(&broker).len(), 1);
    broker.stop();
}

#[test]
fn a_check_of_a_port_is_no_failed_handshake() {
    let broker = Broker::start_with(|host| (host.connections_max, host.tls) = (CONNECTIONS_MAX, Some(tls())));
    check(broker.address);

    client_of(TcpStream::connect(broker.address).unwrap()).sends(b"no TLS at all");

    assert_eq!(until_counted(&broker, "tls_failures_total"), 1);
    assert_eq!(until_lines(&broker).len(), 1);
    broker.stop();
}

#[test]
fn a_header_from_an_address_that_is_not_trusted_is_refused_and_logged() {
    let header = b"PROXY TCP4 203.0.113.9 192.0.2.1 40000 5672\r\nAMQP\0\0\x09\x01";
    for is_tls in [false, true] {
        let broker = Broker::start_with(|host| host.tls = is_tls.then(tls));
        for _ in 0..3 {
            let mut stream = TcpStream::connect(broker.address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(header).unwrap();
            // The end may be a reset, since the header is not read.
            let _ = stream.read_to_end(&mut Vec::new());
        }

        let lines = lines(&broker);

        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("begins with a PROXY protocol header"), "{lines:?}");
        assert_eq!((counter(&broker, "connections_refused_total"), counter(&broker, "tls_failures_total")), (3, 0));
        broker.stop();
    }
}

#[test]
fn a_client_that_logs_in_and_enters_no_virtual_host_is_closed() {
    let broker = Broker::start_with(|host| host.first_request = Duration::from_secs(3));
    let mut other = Client::open(&broker, 0);
    for agrees in [false, true] {
        let mut client = Client::connect(&broker);
        client.log_in(b"\0anna\0secret");
        client.expects(0, Method::ConnectionTune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 });
        if agrees {
            client.says(0, Method::ConnectionTuneOk { channel_max: 1, frame_max: 4096, heartbeat: 0 });
        }

        client.expects_end();
    }

    assert_eq!(counter(&broker, "connections_too_slow_total"), 2);
    // One that has entered stays.
    other.opens(2);
    drop(other);
    broker.stop();
}

#[test]
fn the_file_of_a_unix_socket_goes_with_the_broker_also_when_a_client_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("amqp.sock");
    let broker = Broker::start_at(Some(path.clone()), |_| ());
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(&PROTOCOL_HEADER).unwrap();
    client.read_exact(&mut [0; 8]).unwrap();

    broker.stop_within(Duration::ZERO);

    assert!(!path.exists());
}
