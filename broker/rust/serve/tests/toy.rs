//! A protocol that is no gRPC on the host: what it needs to log in, publish, consume and settle is all there.
#![allow(clippy::unwrap_used)]

mod lines;
mod storage;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_engine::{Engine, QueueId, Shard};
use penstock_serve::host::{
    Admitted, Answer, Call, CallRequest, Calls, Host, HostOptions, Kind, Network, Refusal, RelayedClient,
};

const PATIENCE: Duration = Duration::from_secs(60);
const JOBS: QueueId = QueueId(1);

/// What decides instead of Python.
#[derive(Default)]
struct Decider {
    is_over: AtomicBool,
    /// Whether anna is no user any more.
    is_deleted: AtomicBool,
    asked: Mutex<Vec<CallRequest>>,
    /// Addresses that log-ins came from.
    addresses: Mutex<Vec<String>>,
    certificates: Mutex<Vec<Vec<u8>>>,
}

impl Decider {
    fn run(&self, calls: &Calls) {
        while !self.is_over.load(Ordering::Acquire) {
            for mut call in calls.take() {
                self.asked.lock().unwrap().push(call.request.clone());
                let reply = call.reply.take();
                reply.into_iter().for_each(|reply| reply.send(self.decide(&call)));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn decide(&self, call: &Call) -> Result<Answer, Refusal> {
        self.addresses.lock().unwrap().push(call.caller.peer.clone());
        self.certificates.lock().unwrap().extend(call.caller.certificate.as_deref().map(Vec::from));
        if self.is_deleted.load(Ordering::Acquire) || call.caller.authorization != "Basic anna:secret" {
            return Err(Refusal::new(Kind::Unauthenticated, "wrong user or password"));
        }
        let queue_id = match &call.request {
            CallRequest::PermitExchange { exchange, .. } if exchange == "closed" => {
                return Err(Refusal::new(Kind::AccessRefused, "no write permission on exchange 'closed'"));
            }
            CallRequest::OpenConsume { queue, .. } => match queue.strip_prefix("jobs").map(str::parse::<u64>) {
                Some(Ok(number)) => JOBS.0 + number,
                Some(Err(_)) => JOBS.0,
                None => return Err(Refusal::new(Kind::NotFound, format!("queue '{queue}' not found"))),
            },
            _ => 0,
        };
        Ok(Answer::Admitted(Admitted {
            vhost: "/".to_owned(),
            queue_id,
            user: "anna".to_owned(),
            by_key: false,
            replica: None,
        }))
    }
}

/// A broker with one queue, and a listener for lines.
struct Broker {
    engine: Arc<Engine>,
    shard: Arc<Shard>,
    host: Host,
    address: SocketAddr,
    decider: Arc<Decider>,
    deciding: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Broker {
    fn start(connections_max: usize) -> Broker {
        Broker::start_behind(connections_max, Vec::new())
    }

    fn start_behind(connections_max: usize, proxies: Vec<Network>) -> Broker {
        let (engine, shard, directory) = storage::open(64 << 10, JOBS);
        let (threads, message_bytes_max, calls_max) = (1, 1 << 20, 64);
        let options = HostOptions {
            threads,
            message_bytes_max,
            request_bytes_max: message_bytes_max,
            buffer_bytes_max: 64 << 20,
            calls_max,
            connections_max,
            first_request: PATIENCE,
            tls: None,
            proxies,
            web_origins: Vec::new(),
        };
        let host = Host::start(Arc::clone(&engine), &options).unwrap();
        let bound = host.bind(lines::LINES, "127.0.0.1:0").unwrap();
        host.serve(lines::serve(host.broker().clone(), bound.connections));
        let (calls, decider) = (Arc::clone(&host.broker().calls), Arc::<Decider>::default());
        let decides = Arc::clone(&decider);
        let deciding = std::thread::spawn(move || decides.run(&calls));
        Broker { engine, shard, host, address: bound.address, decider, deciding, _directory: directory }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { lines: BufReader::new(stream) }
    }

    fn log_in(&self) -> Client {
        let mut client = self.connect();
        assert_eq!(client.ask("LOGIN anna secret"), "WELCOME anna");
        client
    }

    fn until(&self, is_so: impl Fn(&Broker) -> bool) {
        let mut looks = 0;
        while !is_so(self) {
            looks += 1;
            assert!(looks < 60_000, "it never comes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(self) {
        self.host.stop(PATIENCE);
        self.decider.is_over.store(true, Ordering::Release);
        self.deciding.join().unwrap();
        self.engine.close().unwrap();
    }
}

struct Client {
    lines: BufReader<TcpStream>,
}

impl Client {
    fn say(&mut self, line: &str) {
        self.lines.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next line; an empty one at the end of the connection.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }
}

#[test]
fn a_client_logs_in_publishes_consumes_and_settles() {
    let broker = Broker::start(10);
    let mut client = broker.connect();
    assert_eq!(client.ask("PUBLISH - jobs one"), "REFUSED Unauthenticated log in first");
    assert_eq!(client.ask("LOGIN anna wrong"), "REFUSED Unauthenticated wrong user or password");
    assert_eq!(client.ask("LOGIN anna secret"), "WELCOME anna");

    assert_eq!(client.ask("PUBLISH - jobs one"), "CONFIRMED 1 1");
    assert_eq!(client.ask("PUBLISH - nowhere two"), "RETURNED 2 NO_ROUTE");
    assert_eq!(client.ask("PUBLISH closed jobs three"), "REJECTED 3 3 no write permission on exchange 'closed'");
    assert_eq!(client.ask("CONSUME jobs"), "MESSAGE 1 1 one");
    assert_eq!(client.ask("ACK 1 1"), "SETTLED 1");

    let counts = broker.shard.queue_counts(&[JOBS]).unwrap();
    assert_eq!((counts[0].ready_count, counts[0].unacked_count), (0, 0));
    drop(client);
    broker.until(|broker| broker.decider.asked.lock().unwrap().contains(&CallRequest::Disconnected));
    let asked = broker.decider.asked.lock().unwrap().clone();
    assert!(asked.contains(&CallRequest::OpenPublish { vhost: "/".to_owned() }), "{asked:?}");
    broker.stop();
}

#[test]
fn what_a_client_held_is_delivered_again_when_it_leaves() {
    let broker = Broker::start(10);
    let mut first = broker.log_in();
    assert_eq!(first.ask("CONSUME nothing"), "REFUSED NotFound queue 'nothing' not found");
    for number in 1..=3 {
        assert_eq!(first.ask(&format!("PUBLISH - jobs {number}")), format!("CONFIRMED {number} {number}"));
    }
    assert_eq!(first.ask("CONSUME jobs"), "MESSAGE 1 1 1");
    assert_eq!(first.hear(), "MESSAGE 1 2 2");

    let mut second = broker.log_in();
    assert_eq!(second.ask("CONSUME jobs"), "MESSAGE 1 3 3");
    drop(first);

    assert_eq!(second.hear(), "MESSAGE 1 1 1 again");
    broker.stop();
}

#[test]
fn a_consumer_ends_when_its_user_is_deleted() {
    let broker = Broker::start(10);
    let mut client = broker.log_in();
    client.say("CONSUME jobs");
    broker.until(|broker| !broker.host.broker().calls.listing().consumers().is_empty());

    broker.decider.is_deleted.store(true, Ordering::Release);
    broker.host.broker().calls.recheck(Some("anna"), None);

    assert_eq!(client.hear(), "REFUSED Unauthenticated wrong user or password");
    broker.until(|broker| broker.host.broker().calls.listing().consumers().is_empty());
    broker.stop();
}

#[test]
fn a_client_without_a_place_is_told_so_in_its_own_protocol() {
    let broker = Broker::start(1);
    let first = broker.log_in();

    let refused = broker.connect().hear();

    assert_eq!(refused, "REFUSED 1 connections are open, as many as connections_max allows");
    drop(first);
    broker.stop();
}

#[test]
fn a_trusted_proxy_names_its_client_and_is_refused_when_it_does_not() {
    let broker = Broker::start_behind(10, vec!["127.0.0.0/8".parse().unwrap()]);
    let mut client = broker.connect();
    client.say("PROXY TCP4 203.0.113.9 192.0.2.1 40000 5680\r");

    assert_eq!(client.ask("LOGIN anna secret"), "WELCOME anna");

    assert_eq!(*broker.decider.addresses.lock().unwrap(), ["203.0.113.9:40000"]);
    let refused = broker.connect().ask("LOGIN anna secret");
    assert_eq!(refused, "REFUSED the PROXY protocol header cannot be read: the connection begins with other bytes");
    broker.stop();
}

#[test]
fn a_client_that_is_no_proxy_is_not_believed() {
    let broker = Broker::start_behind(10, vec!["192.0.2.1".parse().unwrap()]);

    let refused = broker.connect().ask("PROXY TCP4 203.0.113.9 192.0.2.1 40000 5680");

    let reason = "it begins with a PROXY protocol header, and the address is not among proxy_addresses";
    assert_eq!(refused, format!("REFUSED {reason}"));
    broker.stop();
}

#[test]
fn two_thousand_consumers_of_one_connection_wake_it_by_one_waker() {
    const COUNT: u64 = 2000;
    let broker = Broker::start(10);
    let names: Vec<_> = (1..=COUNT).map(|number| format!("jobs{number}")).collect();
    for (number, name) in (1..).zip(&names) {
        broker.shard.put_queue(QueueId(JOBS.0 + number), name, false, None).unwrap();
    }
    let (mut consumer, mut publisher) = (broker.log_in(), broker.log_in());
    for name in &names {
        consumer.say(&format!("CONSUME {name}"));
    }
    assert_eq!(consumer.ask("TURNS"), format!("WOKEN 0 TURNS {COUNT}"));

    for (count, number) in [(1, 1), (2, 1234), (3, COUNT)] {
        publisher.ask(&format!("PUBLISH - jobs{number} hello"));

        assert_eq!(consumer.hear(), format!("MESSAGE {number} 1 hello"));
        assert_eq!(consumer.ask("TURNS"), format!("WOKEN {count} TURNS {}", COUNT + count));
    }
    broker.stop();
}

#[test]
fn consumers_of_one_connection_share_a_credit() {
    let broker = Broker::start(10);
    broker.shard.put_queue(QueueId(JOBS.0 + 1), "jobs1", false, None).unwrap();
    let (mut consumer, mut publisher) = (broker.log_in(), broker.log_in());
    consumer.say("CREDIT 1");
    consumer.say("CONSUME jobs");
    consumer.say("CONSUME jobs1");
    publisher.ask("PUBLISH - jobs one");
    assert_eq!(consumer.hear(), "MESSAGE 1 1 one");
    publisher.ask("PUBLISH - jobs1 two");
    let counts = broker.shard.queue_counts(&[QueueId(JOBS.0 + 1)]).unwrap();
    assert_eq!((counts[0].ready_count, counts[0].unacked_count), (1, 0));

    assert_eq!(consumer.ask("ACK 1 1"), "SETTLED 1");

    assert_eq!(consumer.hear(), "MESSAGE 2 1 two");
    broker.stop();
}

#[test]
fn a_name_that_is_too_long_is_refused_at_the_edge() {
    let broker = Broker::start(10);
    let mut client = broker.log_in();

    let refused = client.ask(&format!("PUBLISH - {} body", "x".repeat(256)));

    assert_eq!(refused, "REFUSED InvalidArgument a name has 256 bytes; at most 255 are allowed");
    assert!(client.ask(&format!("CONSUME {}", "x".repeat(256))).starts_with("REFUSED InvalidArgument a name has"));
    broker.stop();
}

/// A client of another broker, which relays what it says.
fn relayed(broker: &Broker, client: RelayedClient) -> std::io::Result<Client> {
    let waits = TcpListener::bind("127.0.0.1:0").unwrap();
    let said = TcpStream::connect(waits.local_addr().unwrap()).unwrap();
    said.set_read_timeout(Some(PATIENCE)).unwrap();
    let (comes, _) = waits.accept().unwrap();
    comes.set_nonblocking(true).unwrap();
    let stream = broker.host.run(async { tokio::net::TcpStream::from_std(comes) }).unwrap().unwrap();
    let via = "192.0.2.2:41000".parse().unwrap();
    broker.host.serve_relayed(client, via, Box::new(stream))?;
    Ok(Client { lines: BufReader::new(said) })
}

fn from(address: Option<&str>) -> RelayedClient {
    let address = address.map(|address| address.parse().unwrap());
    RelayedClient { protocol: "lines".to_owned(), address, ..RelayedClient::default() }
}

#[test]
fn a_client_that_another_broker_relays_logs_in_and_counts_by_its_own_address() {
    let broker = Broker::start(10);
    let shown = RelayedClient { certificate: Some(Arc::from(&[0x30, 7][..])), ..from(Some("203.0.113.9:40000")) };
    let mut client = relayed(&broker, shown).unwrap();
    // A client on the machine of another broker is on no other machine's loopback.
    let mut local = relayed(&broker, from(Some("127.0.0.1:40000"))).unwrap();
    let mut on_socket = relayed(&broker, from(None)).unwrap();

    assert_eq!(client.ask("LOGIN anna wrong"), "REFUSED Unauthenticated wrong user or password");
    assert_eq!(client.ask("LOGIN anna secret"), "WELCOME anna");
    assert_eq!(local.ask("LOGIN anna secret"), "WELCOME anna");
    assert_eq!(on_socket.ask("LOGIN anna secret"), "WELCOME anna");
    assert_eq!(client.ask("PUBLISH - jobs one"), "CONFIRMED 1 1");

    assert_eq!(broker.decider.certificates.lock().unwrap().first(), Some(&vec![0x30, 7]));
    let addresses = broker.decider.addresses.lock().unwrap().clone();
    for (address, count) in [("203.0.113.9:40000", 4), ("192.0.2.2:41000", 2), ("127.0.0.1:40000", 0)] {
        let found = addresses.iter().filter(|found| *found == address).count();
        assert!(found >= count && (found == 0) == (count == 0), "{address}: {addresses:?}");
    }
    drop(client);
    broker.until(|broker| broker.decider.asked.lock().unwrap().contains(&CallRequest::Disconnected));
    broker.stop();
}

#[test]
fn a_relayed_client_is_refused_without_a_place_and_for_a_protocol_that_is_not_served() {
    let broker = Broker::start(1);
    let unknown = RelayedClient { protocol: "mail".to_owned(), ..RelayedClient::default() };
    assert_eq!(relayed(&broker, unknown).err().unwrap().kind(), std::io::ErrorKind::Unsupported);
    let first = broker.log_in();

    let refused = relayed(&broker, from(None)).err().unwrap();

    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(refused.to_string(), "1 connections are open, as many as connections_max allows");
    drop(first);
    broker.stop();
}

#[test]
fn a_host_that_has_stopped_takes_no_relayed_connection() {
    let broker = Broker::start(10);
    let entrance = broker.host.entrance().clone();
    let stream = broker.host.run(async { tokio::io::duplex(64).0 }).unwrap();
    broker.stop();

    let refused = entrance.serve(from(None), "192.0.2.2:41000".parse().unwrap(), Box::new(stream)).unwrap_err();

    assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
}
