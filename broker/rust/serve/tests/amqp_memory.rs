//! What connections of AMQP hold of the memory budget: those that hold much give way to others, those that wait for room still
//! end, and nobody counts as silent whom the broker does not read.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod amqp_client;
mod storage;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_wire::Name;
use penstock_wire::amqp::method::Method;

use crate::amqp_client::{Broker, Client, PATIENCE};

/// Of which requests may hold a quarter, and a connection a quarter of that, beside the reserve for the largest message.
const BUDGET: usize = 6 << 20;
const PART_BYTES: usize = 300 << 10;
const HOARDERS: usize = 40;
const LARGE: usize = 1000 << 10;

/// A broker with a small budget, whose clients have so long to log in, or to send the rest of what others wait for.
fn start(first_request: Duration) -> Broker {
    Broker::start_with(|host| {
        (host.buffer_bytes_max, host.connections_max, host.first_request) = (BUDGET, 100, first_request);
    })
}

/// Clients that send parts of messages until others have to wait for room.
fn hoard(broker: &Broker) -> Vec<Client> {
    let mut hoarders: Vec<Client> = (0..HOARDERS).map(|_| Client::open(broker, 0)).collect();
    hoarders.iter_mut().for_each(|client| client.sends_part(PART_BYTES));
    let until = Instant::now() + PATIENCE;
    while broker.server.memory_used().wait_count == 0 {
        assert!(Instant::now() < until, "{:?}", broker.server.memory_used());
        std::thread::sleep(Duration::from_millis(10));
    }
    // The head of one more frame: whoever reads it looks for room again, and waits.
    hoarders.iter_mut().for_each(|client| client.sends(&[3, 0, 1, 0, 0, 16, 0]));
    hoarders
}

/// Publishes with a confirm.
fn publishes_well(client: &mut Client) {
    client.says(1, Method::ConfirmSelect { nowait: false });
    client.expects(1, Method::ConfirmSelectOk {});
    client.publishes("", "jobs", false, b"small");
    client.expects(1, Method::BasicAck { delivery_tag: 1, multiple: false });
}

fn until_nothing_is_used(broker: &Broker) {
    let until = Instant::now() + PATIENCE;
    loop {
        let used = broker.server.memory_used();
        if used.request_bytes + used.response_bytes + used.unauthenticated_bytes == 0 {
            return;
        }
        assert!(Instant::now() < until, "{used:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn half_messages_of_many_clients_give_way_to_others() {
    let broker = start(Duration::from_secs(1));
    let mut client = Client::open(&broker, 0);
    let hoarders = hoard(&broker);

    publishes_well(&mut client);

    drop((client, hoarders));
    until_nothing_is_used(&broker);
    broker.stop();
}

#[test]
fn a_client_that_keeps_others_waiting_is_told_why_it_ends() {
    let broker = start(Duration::from_secs(1));
    let mut client = Client::open(&broker, 0);
    let mut hoarders = hoard(&broker);
    publishes_well(&mut client);

    let told = hoarders.iter_mut().filter_map(|hoarder| {
        hoarder.stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        hoarder.hears_if_any().then(|| hoarder.expects_close(0))
    });
    let told: Vec<_> = told.collect();

    let text =
        "RESOURCE_ERROR - the broker's memory for requests is used up, and others wait for the rest of this message";
    assert!(told.contains(&(506, text.to_owned())), "{told:?}");
    drop((client, hoarders));
    broker.stop();
}

#[test]
fn one_connection_holds_no_more_than_its_part_and_a_message() {
    let broker = start(PATIENCE);
    let mut client = Client::open(&broker, 0);
    (2..=20).for_each(|channel| client.opens(channel));
    let is_told = (1..=20).any(|channel| !client.tries_to_send_part(channel, PART_BYTES));
    assert!(is_told || client.hears_if_any(), "it was not ended");

    assert_eq!(client.expects_close(0).0, 506);

    publishes_well(&mut Client::open(&broker, 0));
    drop(client);
    until_nothing_is_used(&broker);
    broker.stop();
}

#[test]
fn an_administrator_closes_a_connection_that_waits_for_room() {
    let broker = start(PATIENCE);
    let mut client = Client::open(&broker, 0);
    client.consumes(false);
    let connection = broker.server.calls().listing().consumers()[0].connection;
    let hoarders = hoard(&broker);
    client.publishes("", "jobs", false, b"it waits");

    assert!(broker.server.calls().listing().close_connection(connection));

    assert_eq!(client.expects_close(0), (320, "CONNECTION_FORCED - an administrator closed the connection".to_owned()));
    client.expects_end();
    drop(hoarders);
    broker.stop();
}

#[test]
fn a_client_that_waits_for_room_is_not_silent() {
    let broker = start(PATIENCE);
    let mut client = Client::open(&broker, 1);
    let (mut beating, is_over) = (client.same(), Arc::<AtomicBool>::default());
    let ends = Arc::clone(&is_over);
    let beats = std::thread::spawn(move || {
        while !ends.load(Ordering::Acquire) {
            beating.sends(&[8, 0, 0, 0, 0, 0, 0, 0xce]);
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let hoarders = hoard(&broker);
    std::thread::sleep(Duration::from_secs(4));
    drop(hoarders);
    is_over.store(true, Ordering::Release);
    beats.join().unwrap();

    publishes_well(&mut client);

    drop(client);
    broker.stop();
}

#[test]
fn a_stop_does_not_wait_for_those_that_do_not_answer() {
    let broker = start(10 * PATIENCE);
    let mut silent = Client::connect(&broker);
    let mut greeted = Client::connect(&broker);
    greeted.log_in(b"\0anna\0secret");
    greeted.expects(0, Method::ConnectionTune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 });
    let mut deaf = Client::open(&broker, 0);
    let hoarders = hoard(&broker);
    let stopping = std::thread::spawn(move || broker.stop_within(10 * PATIENCE));

    silent.expects_end();
    greeted.expects_end();
    deaf.expects_close(0);
    deaf.expects_end();
    drop(hoarders);
    stopping.join().unwrap();
}

/// What clients that do not read are sent stays within the budget, and comes once they do.
fn stays_within_the_budget(broker: Broker, ask: impl Fn(&mut Client) + Copy + Send + 'static) {
    const EACH: usize = 6;
    let clients: Vec<Client> = (0..10).map(|_| Client::open(&broker, 0)).collect();
    let asking: Vec<_> = clients
        .iter()
        .map(|client| {
            let mut client = client.same();
            std::thread::spawn(move || (0..EACH).for_each(|_| ask(&mut client)))
        })
        .collect();
    let (mut most, mut last, mut since) = (0, 0, Instant::now());
    let until = Instant::now() + PATIENCE;
    while (since.elapsed() < Duration::from_secs(2) || most == 0) && Instant::now() < until {
        let bytes = broker.server.memory_used().response_bytes;
        if bytes != last {
            (last, since) = (bytes, Instant::now());
        }
        most = most.max(bytes);
        std::thread::sleep(Duration::from_millis(5));
    }
    let reading = clients.into_iter().map(|mut client| {
        std::thread::spawn(move || (0..EACH).for_each(|_| assert_eq!(client.expects_message().len(), LARGE)))
    });
    reading.collect::<Vec<_>>().into_iter().chain(asking).for_each(|thread| thread.join().unwrap());

    assert!((LARGE..BUDGET).contains(&most), "{most} bytes were held");
    until_nothing_is_used(&broker);
    broker.stop();
}

#[test]
fn messages_that_are_got_wait_for_room() {
    let broker = start(PATIENCE);
    let mut client = Client::open(&broker, 0);
    (0..60).for_each(|_| client.publishes("", "jobs", false, &[b'x'; LARGE]));
    broker.until_ready(60);

    stays_within_the_budget(broker, |client| client.gets(true));
}

#[test]
fn messages_that_return_wait_for_room() {
    stays_within_the_budget(start(PATIENCE), |client| client.publishes("", "nowhere", true, &[b'x'; LARGE]));
}

/// Each of these clients made the broker hold 4 MiB of answers, however small the budget was.
#[test]
fn answers_that_clients_do_not_read_stay_within_the_budget() {
    let broker = start(PATIENCE);
    let mut request = Vec::new();
    // The answer to it is as long.
    let consumer_tag = Name::new("a tag", &[b'x'; 255]).unwrap();
    Method::BasicCancel { consumer_tag, nowait: false }.put(1, &mut request);
    let mut asking: Vec<(Client, usize)> = (0..6).map(|_| (Client::open(&broker, 0), 0)).collect();
    asking.iter().for_each(|(client, _)| client.stream.set_nonblocking(true).unwrap());
    let requests = request.repeat(100);
    let (mut most, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_secs(2) {
        for (client, sent) in &mut asking {
            while let Ok(count) = client.stream.write(&requests[*sent % request.len()..]) {
                (*sent, since) = (*sent + count, Instant::now());
            }
        }
        most = most.max(broker.server.memory_used().response_bytes);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!((1..BUDGET).contains(&most), "{most} bytes were held");

    for (client, sent) in &mut asking {
        client.stream.set_nonblocking(false).unwrap();
        let (mut same, rest) = (client.same(), request[*sent % request.len()..].to_vec());
        let ends = std::thread::spawn(move || same.sends(&rest));
        (0..=*sent / request.len()).for_each(|_| client.expects(1, Method::BasicCancelOk { consumer_tag }));
        ends.join().unwrap();
    }
    drop(asking);
    until_nothing_is_used(&broker);
    broker.stop();
}

#[test]
fn a_client_that_waits_for_room_is_told() {
    let broker = start(PATIENCE);
    let client = Client { hears_alarms: true, ..Client::connect(&broker) };
    let mut client = client.enter(0);
    let hoarders = hoard(&broker);
    client.publishes("", "jobs", false, b"it waits");
    client.expects(0, Method::ConnectionBlocked { reason: Name::cut("low on memory") });

    drop(hoarders);

    client.expects(0, Method::ConnectionUnblocked {});
    broker.until_ready(1);
    drop(client);
    broker.stop();
}
