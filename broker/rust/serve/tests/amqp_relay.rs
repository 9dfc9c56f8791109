//! Clients of a broker that does not lead their virtual host: it relays their connections to the leader, which is another broker of the
//! same process, or the test itself.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod amqp_client;
mod storage;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use penstock_serve::host::{Duplex, RelayedClient, Relays};
use penstock_wire::Name;
use penstock_wire::amqp::argument::{FieldTable, LongText};
use penstock_wire::amqp::content::put_content;
use penstock_wire::amqp::frame::PROTOCOL_HEADER;
use penstock_wire::amqp::method::Method;

use crate::amqp_client::relayed::{Opening, Pair, ToBroker, leads};
use crate::amqp_client::{Broker, Client, PATIENCE};

/// Relays to a socket that the test serves.
struct ToTest {
    address: SocketAddr,
    tries: AtomicUsize,
}

impl Relays for ToTest {
    fn open(&self, _: &str, _: RelayedClient) -> Opening {
        self.tries.fetch_add(1, Ordering::AcqRel);
        let address = self.address;
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}

/// A broker with a leader that the test serves.
fn start_with_test() -> (Broker, TcpListener, Arc<ToTest>) {
    let (broker, listener) = (Broker::start(), TcpListener::bind("127.0.0.1:0").unwrap());
    let relays = Arc::new(ToTest { address: listener.local_addr().unwrap(), tries: AtomicUsize::new(0) });
    broker.server.set_relays(Arc::clone(&relays) as Arc<dyn Relays>);
    leads(&broker);
    (broker, listener, relays)
}

fn put_log_in(out: &mut Vec<u8>) {
    let (client_properties, mechanism, locale) = (FieldTable::default(), Name::cut("PLAIN"), Name::cut("en_US"));
    let response = LongText(b"\0anna\0secret");
    out.extend(PROTOCOL_HEADER);
    Method::ConnectionStartOk { client_properties, mechanism, response, locale }.put(0, out);
    Method::ConnectionTuneOk { channel_max: 7, frame_max: 4096, heartbeat: 0 }.put(0, out);
    Method::ConnectionOpen { virtual_host: Name::cut("/") }.put(0, out);
}

/// The leader's side of a client that has entered. `properties` of the log-in are those of `Client`.
fn serve_entry(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut header = [0; 8];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(header, PROTOCOL_HEADER);
    let mut out = Vec::new();
    let (version_major, version_minor, server_properties) = (0, 9, FieldTable::default());
    let (mechanisms, locales) = (LongText(b"PLAIN"), LongText(b"en_US"));
    Method::ConnectionStart { version_major, version_minor, server_properties, mechanisms, locales }.put(0, &mut out);
    Method::ConnectionTune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 }.put(0, &mut out);
    Method::ConnectionOpenOk {}.put(0, &mut out);
    stream.write_all(&out).unwrap();
    stream
}

/// A client that has entered at a leader that the test serves.
fn enter_at_test(broker: &Broker, listener: &TcpListener) -> (Client, TcpStream) {
    let mut client = Client::connect(broker);
    client.log_in(b"\0anna\0secret");
    client.expects(0, Method::ConnectionTune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 });
    client.says(0, Method::ConnectionTuneOk { channel_max: 2047, frame_max: 131_072, heartbeat: 0 });
    client.says(0, Method::ConnectionOpen { virtual_host: Name::cut("/") });
    let leader = serve_entry(listener);
    client.expects(0, Method::ConnectionOpenOk {});
    (client, leader)
}

#[test]
fn the_leader_serves_a_client_of_another_broker() {
    let pair = Pair::start();
    let mut client = Client::open(&pair.here, 0);
    client.says(1, Method::ConfirmSelect { nowait: false });
    client.expects(1, Method::ConfirmSelectOk {});
    client.publishes("", "jobs", false, b"hello");
    client.expects(1, Method::BasicAck { delivery_tag: 1, multiple: false });
    pair.leader.until_ready(1);
    client.consumes(true);
    assert_eq!(client.expects_delivery(), (1, false, b"hello".to_vec()));
    pair.here.until_ready(0);

    client.says(0, Method::ConnectionClose { reply_code: 200, reply_text: Name::EMPTY, class: 0, method: 0 });
    client.expects(0, Method::ConnectionCloseOk {});
    client.expects_end();

    let clients = pair.relays.clients.lock().unwrap().clone();
    assert_eq!(clients.len(), 1);
    assert_eq!((clients[0].protocol.as_str(), clients[0].address), ("amqp", Some(client.stream.local_addr().unwrap())));
    pair.stop();
}

#[test]
fn frames_that_come_behind_the_opening_go_to_the_leader_with_the_limits_that_were_agreed() {
    let pair = Pair::start();
    let mut client = Client::connect(&pair.here);
    let mut out = Vec::new();
    put_log_in(&mut out);
    Method::ChannelOpen {}.put(1, &mut out);
    let (exchange, routing_key) = (Name::EMPTY, Name::cut("jobs"));
    Method::BasicPublish { exchange, routing_key, mandatory: false, immediate: false }.put(1, &mut out);
    put_content(1, &[0x10, 0, 1], b"at once", 4096, &mut out);
    Method::ChannelOpen {}.put(8, &mut out);
    (2..8).for_each(|channel| Method::ChannelOpen {}.put(channel, &mut out));

    client.sends(&out);

    assert!(matches!(Method::read(&client.hears().payload), Ok(Method::ConnectionStart { .. })));
    client.expects(0, Method::ConnectionTune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 });
    client.expects(0, Method::ConnectionOpenOk {});
    for channel in [1, 8, 2, 3, 4, 5, 6] {
        client.expects(channel, Method::ChannelOpenOk {});
    }
    let text = "NOT_ALLOWED - number of channels opened (7) has reached the negotiated channel_max (7)";
    assert_eq!(client.expects_close(0), (530, text.to_owned()));
    pair.leader.until_ready(1);
    drop(client);
    pair.stop();
}

#[test]
fn the_client_hears_the_leader_s_refusal() {
    let pair = Pair::start();
    pair.leader.decider.is_deleted.store(true, Ordering::Release);
    let mut client = Client::connect(&pair.here);
    client.log_in(b"\0anna\0secret");
    client.expects(0, Method::ConnectionTune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 });
    client.says(0, Method::ConnectionTuneOk { channel_max: 2047, frame_max: 131_072, heartbeat: 0 });
    client.says(0, Method::ConnectionOpen { virtual_host: Name::cut("/") });

    let text =
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.";
    assert_eq!(client.expects_close(0), (403, text.to_owned()));
    client.says(0, Method::ConnectionCloseOk {});
    client.expects_end();
    pair.stop();
}

#[test]
fn a_client_is_served_here_when_no_other_broker_leads_or_its_connection_is_relayed_already() {
    let pair = Pair::start();
    // The leader takes another one for the leader, which would take this one.
    let entrance = pair.here.server.entrance().clone();
    pair.leader.server.set_relays(Arc::new(ToBroker { entrance, clients: Mutex::default() }));
    leads(&pair.leader);
    let mut client = Client::open(&pair.here, 0);
    client.publishes("", "jobs", false, b"there");
    pair.leader.until_ready(1);

    *pair.here.decider.leader.lock().unwrap() = None;
    let mut client_here = Client::open(&pair.here, 0);
    client_here.publishes("", "jobs", false, b"here");
    pair.here.until_ready(1);

    assert_eq!(pair.relays.clients.lock().unwrap().len(), 1);
    drop((client, client_here));
    pair.stop();
}

#[test]
fn a_leader_that_makes_no_sense_is_given_up_after_a_while() {
    let (broker, listener, relays) = start_with_test();
    let serving = std::thread::spawn(move || {
        for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"", b"\x01\0\0\0\x02\0\0"] {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(answer).unwrap();
        }
        // It offers lower limits than those that the client has.
        let (mut stream, _) = listener.accept().unwrap();
        let mut out = Vec::new();
        let (version_major, version_minor, server_properties) = (0, 9, FieldTable::default());
        let (mechanisms, locales) = (LongText(b"PLAIN"), LongText(b"en_US"));
        Method::ConnectionStart { version_major, version_minor, server_properties, mechanisms, locales }
            .put(0, &mut out);
        Method::ConnectionTune { channel_max: 2047, frame_max: 4096, heartbeat: 60 }.put(0, &mut out);
        stream.write_all(&out).unwrap();
        // From here on nothing is there.
    });

    let client = Client::open(&broker, 0);

    serving.join().unwrap();
    assert!(relays.tries.load(Ordering::Acquire) >= 5);
    drop(client);
    broker.stop();
}

#[test]
fn a_client_hears_that_its_leader_is_gone_behind_whole_frames_only() {
    let (broker, listener, _) = start_with_test();
    let mut frame = Vec::new();
    Method::ChannelOpenOk {}.put(1, &mut frame);
    for part in [0, 5] {
        let (mut client, mut leader) = enter_at_test(&broker, &listener);
        leader.write_all(&frame).unwrap();
        leader.write_all(&frame[..part]).unwrap();
        client.expects(1, Method::ChannelOpenOk {});
        if part > 0 {
            while client.input.is_empty() {
                assert!(client.hears_more());
            }
        }
        drop(leader);

        if part == 0 {
            let text = "CONNECTION_FORCED - the broker 'mq-1' that led vhost '/' is gone; connect again";
            assert_eq!(client.expects_close(0), (320, text.to_owned()));
        }
        client.expects_end();
        assert_eq!(client.input.len(), part);
    }
    broker.stop();
}

#[test]
fn a_leader_that_has_closed_the_connection_has_the_last_word() {
    let (broker, listener, _) = start_with_test();
    let (mut client, mut leader) = enter_at_test(&broker, &listener);
    let mut close = Vec::new();
    let reply_text = Name::cut("CONNECTION_FORCED - bye");
    Method::ConnectionClose { reply_code: 320, reply_text, class: 0, method: 0 }.put(0, &mut close);

    leader.write_all(&close).unwrap();
    drop(leader);

    assert_eq!(client.expects_close(0), (320, "CONNECTION_FORCED - bye".to_owned()));
    client.expects_end();
    assert!(client.input.is_empty());
    broker.stop();
}

#[test]
fn a_client_that_does_not_read_and_a_leader_that_does_not_hold_up_each_other_alone() {
    let (broker, listener, _) = start_with_test();
    let (mut client, mut leader) = enter_at_test(&broker, &listener);
    for stream in [&client.stream, &leader] {
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    }
    // Nobody reads: each fills the sockets, and what the broker holds.
    let mut body = Vec::new();
    put_content(1, &[0x10, 0, 1], &vec![b'x'; 1 << 20], 4096, &mut body);
    for stream in [&mut client.stream, &mut leader] {
        let refused = (0..1_000).find_map(|_| stream.write_all(&body).err()).unwrap();
        assert!(matches!(refused.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{refused}");
    }

    let began = Instant::now();
    let mut used = broker.server.memory_used();
    while (used.request_bytes == 0 || used.response_bytes == 0) && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
        used = broker.server.memory_used();
    }
    assert!((1..=64 << 10).contains(&used.request_bytes), "{used:?}");
    assert!((1..=64 << 10).contains(&used.response_bytes), "{used:?}");

    drop((client, leader));
    let (client, leader) = enter_at_test(&broker, &listener);
    drop((client, leader));
    broker.stop();
}

#[test]
fn what_a_client_sent_before_it_went_reaches_the_leader() {
    let pair = Pair::start();
    let mut client = Client::open(&pair.here, 0);
    for _ in 0..100 {
        client.publishes("", "jobs", false, &[b'x'; 10_000]);
    }

    drop(client);

    pair.leader.until_ready(100);
    pair.stop();
}

#[test]
fn an_administrator_and_the_stop_of_the_broker_end_a_relayed_connection() {
    let pair = Pair::start();
    let (mut closed, mut stopped) = (Client::open(&pair.here, 0), Client::open(&pair.here, 0));
    let number = pair.relays.clients.lock().unwrap()[0].connection;

    assert!(pair.here.server.calls().listing().close_connection(number));
    let text = "CONNECTION_FORCED - an administrator closed the connection";
    assert_eq!(closed.expects_close(0), (320, text.to_owned()));
    closed.expects_end();

    pair.here.stop();
    let text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'";
    assert_eq!(stopped.expects_close(0), (320, text.to_owned()));
    stopped.expects_end();
    pair.leader.stop();
}

#[test]
fn a_client_hears_that_another_broker_leads_also_when_its_own_leader_says_nothing() {
    let (broker, listener, _) = start_with_test();
    let (mut client, leader) = enter_at_test(&broker, &listener);
    broker.server.calls().recheck(None, Some("/"));
    let (mut other, leader_of_other) = enter_at_test(&broker, &listener);

    *broker.decider.leader.lock().unwrap() = Some("mq-2".to_owned());
    broker.server.calls().recheck(None, Some("/"));

    let text = "CONNECTION_FORCED - another broker leads vhost '/' now; connect again";
    for client in [&mut client, &mut other] {
        assert_eq!(client.expects_close(0), (320, text.to_owned()));
        client.expects_end();
    }
    drop((leader, leader_of_other));
    broker.stop();
}

#[test]
fn a_client_that_waits_for_a_leader_which_says_nothing_goes_to_the_next_one() {
    let (broker, listener, relays) = start_with_test();
    let mut client = Client::connect(&broker);
    client.log_in(b"\0anna\0secret");
    client.expects(0, Method::ConnectionTune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 });
    client.says(0, Method::ConnectionTuneOk { channel_max: 2047, frame_max: 131_072, heartbeat: 0 });
    client.says(0, Method::ConnectionOpen { virtual_host: Name::cut("/") });
    let silent = listener.accept().unwrap();

    *broker.decider.leader.lock().unwrap() = Some("mq-2".to_owned());
    broker.server.calls().recheck(None, Some("/"));

    broker.until(|_| relays.tries.load(Ordering::Acquire) == 2);
    let leader = serve_entry(&listener);
    client.expects(0, Method::ConnectionOpenOk {});
    drop((silent, leader));
    broker.stop();
}

#[test]
fn the_stop_of_the_leader_reaches_a_relayed_client() {
    let pair = Pair::start();
    let mut client = Client::open(&pair.here, 0);

    let stopping = std::thread::spawn(move || pair.leader.stop());

    let text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'";
    assert_eq!(client.expects_close(0), (320, text.to_owned()));
    client.says(0, Method::ConnectionCloseOk {});
    client.expects_end();
    stopping.join().unwrap();
    pair.here.stop();
}
