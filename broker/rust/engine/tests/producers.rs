//! Named producers: confirmed messages are stored, whatever was refused before, and wherever a log ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod house;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use house::{House, open, open_on, open_queue, read_all, reader};
use penstock_engine::{
    Destination, EngineError, ExchangeKind, Fate, Level, Payload, Producer, ProducerSession, Publication, QueueId,
    ReadFrom,
};
use penstock_log::{FaultyDisk, Format, marks};

const STORED: Fate = Fate::Stored(Level::Os);

/// Exchange, key and sequence of each message; the body is its sequence.
fn send(house: &House, session: &ProducerSession, sent: &[(&str, &str, u64)]) -> Vec<Fate> {
    let bodies: Vec<String> = sent.iter().map(|(_, _, sequence)| sequence.to_string()).collect();
    let mut batch = Vec::new();
    for (&(exchange, key, sequence), body) in sent.iter().zip(&bodies) {
        let (exchange, key) = (exchange.as_bytes(), key.as_bytes());
        let payload = Payload::new(exchange, key, b"", body.as_bytes()).unwrap();
        let payload = payload.with_producer(Producer { id: session.id(), sequence });
        batch.push(Publication { payload, exchange, key, headers: None, persistent: false, mandatory: true });
    }
    let mut fates = Vec::new();
    house.shard.publish_as(Some(session), &batch, None, 1, &mut fates).unwrap();
    fates
}

fn bodies(house: &House) -> Vec<String> {
    read_all(&mut reader(house, ReadFrom::First)).into_iter().map(|said| said.body).collect()
}

#[test]
fn nothing_overtakes_what_was_refused_until_it_comes_again() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();
    assert_eq!(send(&house, &session, &[("", "s", 4)]), [STORED]);

    let fates = send(&house, &session, &[("late", "", 5), ("", "s", 6)]);
    assert_eq!(fates, [Fate::NoExchange, Fate::Behind(5)]);
    assert_eq!(send(&house, &session, &[("", "s", 7), ("", "s", 4)]), [Fate::Behind(5), STORED], "4 is stored already");
    house.shard.put_exchange("late", ExchangeKind::Fanout, None).unwrap();
    house.shard.add_route("late", "", None, Destination::Queue("s")).unwrap();

    assert_eq!(send(&house, &session, &[("late", "", 5), ("", "s", 6), ("", "s", 7)]), [STORED; 3]);
    assert_eq!(bodies(&house), ["4", "5", "6", "7"]);
    house.close();
}

#[test]
fn a_refusal_outlives_the_stream_that_met_it() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();
    assert_eq!(send(&house, &session, &[("", "nobody", 1)]), [Fate::Returned]);

    let session = house.shard.open_producer("p", "anna").unwrap();
    assert_eq!(send(&house, &session, &[("", "s", 2)]), [Fate::Behind(1)]);
    let other = house.shard.open_producer("q", "anna").unwrap();
    assert_eq!(send(&house, &other, &[("", "s", 2)]), [STORED], "it is another producer's");

    assert_eq!(send(&house, &session, &[("", "s", 1), ("", "s", 2)]), [STORED; 2]);
    house.close();
}

#[test]
fn the_lowest_refused_sequence_counts_and_one_below_it_lifts_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();

    assert_eq!(send(&house, &session, &[("", "nobody", 9), ("", "nobody", 7)]), [Fate::Returned; 2]);
    assert_eq!(send(&house, &session, &[("", "s", 3), ("", "s", 8)]), [STORED, Fate::Behind(7)]);
    assert_eq!(send(&house, &session, &[("", "s", 7), ("", "s", 9)]), [STORED; 2]);

    assert_eq!(bodies(&house), ["3", "7", "9"]);
    house.close();
}

#[test]
fn what_a_caller_refuses_itself_holds_back_what_follows_too() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();
    send(&house, &session, &[("", "s", 1)]);

    house.shard.refuse(&session, 1).unwrap();
    assert_eq!(send(&house, &session, &[("", "s", 2)]), [STORED], "1 is stored, whatever became of its copy");
    house.shard.refuse(&session, 3).unwrap();

    assert_eq!(send(&house, &session, &[("", "s", 4)]), [Fate::Behind(3)]);
    let newer = house.shard.open_producer("p", "anna").unwrap();
    let taken = house.shard.refuse(&session, 2);
    assert!(matches!(taken, Err(EngineError::ProducerTaken(_))));
    assert_eq!(send(&house, &newer, &[("", "s", 3), ("", "s", 4)]), [STORED; 2]);
    house.close();
}

/// Publishes one message; `None` when it was refused for lack of space.
fn send_large(house: &House, session: &ProducerSession, sequence: u64) -> Option<Fate> {
    let payload = Payload::new(b"", b"s", b"", &[7; 20_000]).unwrap();
    let payload = payload.with_producer(Producer { id: session.id(), sequence });
    let publication =
        Publication { payload, exchange: b"", key: b"s", headers: None, persistent: false, mandatory: true };
    let mut fates = Vec::new();
    house.shard.publish_as(Some(session), &[publication], None, 1, &mut fates).unwrap();
    fates.pop()
}

#[test]
fn what_found_no_room_holds_back_what_follows_once_there_is_room_again() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let house = open_on(directory.path(), Arc::clone(&disk) as _);
    let session = house.shard.open_producer("p", "anna").unwrap();
    disk.free_bytes.store(1, Ordering::SeqCst);
    let refused = (1..).find(|&sequence| send_large(&house, &session, sequence).is_none()).unwrap();
    disk.free_bytes.store(0, Ordering::SeqCst);

    let started = Instant::now();
    let after = loop {
        assert!(started.elapsed() < Duration::from_secs(60), "there is room, and it was not seen");
        match send_large(&house, &session, refused + 1) {
            Some(fate) => break fate,
            None => std::thread::yield_now(),
        }
    };

    assert_eq!(after, Fate::Behind(refused));
    assert_eq!(send_large(&house, &session, refused), Some(STORED));
    assert_eq!(send_large(&house, &session, refused + 1), Some(STORED));
    house.close();
}

/// As many queues behind one exchange, from the number 2 on.
fn put_wide(house: &House, count: u64) -> Vec<QueueId> {
    house.shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
    let named: Vec<_> = (2..2 + count).map(|id| (QueueId(id), format!("q{id}"))).collect();
    for (id, name) in &named {
        house.shard.put_queue(*id, name, false, None).unwrap();
        house.shard.add_route("all", "", None, Destination::Queue(name)).unwrap();
    }
    named.into_iter().map(|(id, _)| id).collect()
}

/// Puts zeros from the second record with this body on: the log ends there.
fn tear_after_the_first(directory: &Path, body: &[u8]) {
    let finds = |content: &[u8]| content.windows(body.len()).position(|found| found == body);
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut segments = files.filter(|path| path.is_file()).map(|path| (std::fs::read(&path).unwrap(), path));
    let (mut content, path) = segments.find(|(content, _)| finds(content).is_some()).unwrap();
    let (mut at, mut found) = (64, 0);
    loop {
        let length = u32::from_le_bytes(content[at..at + 4].try_into().unwrap()) as usize;
        assert!(length > 0, "there is no second record");
        found += usize::from(finds(&content[at..at + length]).is_some());
        if found == 2 {
            break;
        }
        at += length;
    }
    content[at..].fill(0);
    std::fs::write(path, content).unwrap();
}

#[test]
fn a_message_for_very_many_queues_is_stored_again_when_the_log_ends_amid_its_records() {
    let (directory, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (body, targets_max) = ("1234567", Format::Two.targets_max());
    {
        let house = open_queue(directory.path());
        put_wide(&house, targets_max as u64 + 500);
        let session = house.shard.open_producer("p", "anna").unwrap();
        assert_eq!(send(&house, &session, &[("all", "", 1_234_567)]), [STORED]);
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
            }
        }
        house.close();
    }
    tear_after_the_first(copy.path(), body.as_bytes());
    let house = open_queue(copy.path());
    let queues = put_wide(&house, targets_max as u64 + 500);
    assert_eq!(house.shard.totals().unwrap(), (targets_max as u64, 0));
    let session = house.shard.open_producer("p", "anna").unwrap();

    assert_eq!(send(&house, &session, &[("all", "", 1_234_567)]), [STORED]);

    let counts = house.shard.queue_counts(&queues).unwrap();
    assert!(counts.iter().all(|counts| counts.ready_count >= 1));
    assert_eq!(house.shard.producer_sequence("p").unwrap(), Some(1_234_567));
    house.close();
}

#[test]
fn a_message_for_very_many_queues_that_comes_again_after_a_start_is_not_stored_again() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let house = open_queue(directory.path());
        let queues = put_wide(&house, Format::Two.targets_max() as u64 + 500);
        let session = house.shard.open_producer("p", "anna").unwrap();

        assert_eq!(send(&house, &session, &[("all", "", 7)]), [STORED]);

        let counts = house.shard.queue_counts(&queues).unwrap();
        assert!(counts.iter().all(|counts| counts.ready_count == 1));
        house.close();
    }
}

#[test]
fn one_hold_of_the_lock_ends_after_so_many_places_in_queues_and_the_rest_follows() {
    let directory = tempfile::tempdir().unwrap();
    let house = open_queue(directory.path());
    let queues = put_wide(&house, 300);
    let payload = Payload::new(b"all", b"", b"", b"body").unwrap();
    let one = Publication { payload, exchange: b"all", key: b"", headers: None, persistent: false, mandatory: true };
    let batch = vec![one; 2_000];
    let mut fates = Vec::new();

    house.shard.publish_round(None, &batch, None, 1, &mut fates).unwrap();
    assert_eq!(fates, [STORED; 4], "4 x 300 are more than 1,024");
    house.shard.publish_as(None, &batch[4..10], None, 1, &mut fates).unwrap();
    assert_eq!(fates, [STORED; 10]);
    assert!(house.shard.queue_counts(&queues).unwrap().iter().all(|counts| counts.ready_count == 10));

    let payload = Payload::new(b"", b"q2", b"", b"body").unwrap();
    let narrow = vec![Publication { payload, exchange: b"", key: b"q2", ..one }; 2_000];
    fates.clear();
    house.shard.publish_round(None, &narrow, None, 1, &mut fates).unwrap();
    assert_eq!(fates.len(), 1_024);
    house.close();
}

/// While the disk was full, stored messages were refused when they came again: a client that sent one under another
/// sequence then had it stored twice.
#[test]
fn what_is_stored_already_is_confirmed_also_while_the_disk_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let house = open_on(directory.path(), Arc::clone(&disk) as _);
    let own = QueueId(7);
    house.shard.dedicate(own).unwrap();
    house.shard.put_queue(own, "own", false, None).unwrap();
    let [here, there] = ["p", "q"].map(|name| house.shard.open_producer(name, "anna").unwrap());
    assert_eq!(send(&house, &here, &[("", "s", 1), ("", "s", 2)]), [STORED; 2]);
    assert_eq!(send(&house, &there, &[("", "own", 1), ("", "own", 2)]), [STORED; 2]);
    disk.free_bytes.store(1, Ordering::SeqCst);
    let filler = house.shard.open_producer("filler", "anna").unwrap();
    (1..).find(|&sequence| send_large(&house, &filler, sequence).is_none()).unwrap();

    // A connection broke before they were confirmed.
    let [here, there] = ["p", "q"].map(|name| house.shard.open_producer(name, "anna").unwrap());
    assert_eq!(send(&house, &here, &[("", "s", 1), ("", "s", 2), ("", "s", 3)]), [STORED; 2]);
    // Its own log alone knows at which level: a confirm of the stricter one is right for both.
    assert_eq!(send(&house, &there, &[("", "own", 1), ("", "own", 2)]), [Fate::Stored(Level::Disk); 2]);

    assert_eq!(house.shard.queue_counts(&[own]).unwrap()[0].ready_count, 2);
    house.close();
}

#[test]
fn a_name_belongs_to_the_user_who_opened_it_first_also_after_a_start() {
    let directory = tempfile::tempdir().unwrap();
    let house = house::open(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();
    assert!(matches!(house.shard.open_producer("p", "bob"), Err(EngineError::ProducerOwned(name)) if name == "p"));
    assert_eq!(send(&house, &session, &[("", "s", 1)]), [STORED]);
    house.shard.open_producer("p", "anna").unwrap();
    house.close();

    for round in 0..2 {
        let house = house::open(directory.path());
        assert!(matches!(house.shard.open_producer("p", "bob"), Err(EngineError::ProducerOwned(_))), "start {round}");
        assert_eq!(house.shard.producer_owner("p").unwrap().as_deref(), Some("anna"));
        house.shard.open_producer("p", "anna").unwrap();
        house.close();
    }
    let house = house::open(directory.path());
    assert!(house.shard.delete_producer("p").unwrap());
    house.shard.open_producer("p", "bob").unwrap();
    assert_eq!(house.shard.producer_owner("p").unwrap().as_deref(), Some("bob"));
    house.close();
}

#[test]
fn one_user_fills_the_names_of_that_user_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let house = house::open_with_few_names(directory.path(), 2);
    for name in ["a", "b", "a"] {
        house.shard.open_producer(name, "anna").unwrap();
    }
    assert!(matches!(house.shard.open_producer("c", "anna"), Err(EngineError::ProducersOfUser(2))));
    house.shard.open_producer("c", "bob").unwrap();
    house.close();

    let house = house::open_with_few_names(directory.path(), 2);
    assert!(matches!(house.shard.open_producer("d", "anna"), Err(EngineError::ProducersOfUser(2))), "after a start");
    house.shard.open_producer("d", "bob").unwrap();
    assert!(house.shard.delete_producer("a").unwrap());
    house.shard.open_producer("e", "anna").unwrap();
    house.close();
}

#[test]
fn a_name_without_an_owner_belongs_to_the_next_user_who_opens_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = house::open_log(directory.path());
    log.append_mark(marks::PRODUCER_NAMES, b"p", &[7_u64.to_le_bytes(), 1_u64.to_le_bytes()].concat()).unwrap();
    log.close().unwrap();
    let house = open(directory.path());
    assert_eq!(house.shard.producer_owner("p").unwrap(), None);

    let session = house.shard.open_producer("p", "anna").unwrap();

    assert_eq!(session.id().get(), 7);
    assert!(matches!(house.shard.open_producer("p", "bob"), Err(EngineError::ProducerOwned(_))));
    house.close();
    let house = open(directory.path());
    assert_eq!(house.shard.producer_owner("p").unwrap().as_deref(), Some("anna"));
    house.close();
}

#[test]
fn a_user_who_is_made_anew_inherits_no_name() {
    let directory = tempfile::tempdir().unwrap();
    let house = house::open(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();
    assert_eq!(send(&house, &session, &[("", "s", 5)]), [STORED]);
    for name in 0..1_500 {
        house.shard.open_producer(&name.to_string(), "anna").unwrap();
    }
    house.shard.open_producer("q", "bob").unwrap();

    assert_eq!(house.shard.delete_producers_of("anna").unwrap(), 1_501);
    assert_eq!(house.shard.delete_producers_of("anna").unwrap(), 0);

    let names = |house: &House| house.shard.producers().unwrap().into_iter().map(|one| one.name).collect::<Vec<_>>();
    assert_eq!(names(&house), ["q"]);
    let taken = house.shard.refuse(&session, 6);
    assert!(matches!(taken, Err(EngineError::ProducerTaken(_))), "the session ended: {taken:?}");
    house.close();
    let house = house::open(directory.path());
    assert_eq!(names(&house), ["q"]);
    let session = house.shard.open_producer("p", "anna").unwrap();
    assert_eq!(send(&house, &session, &[("", "s", 1)]), [STORED]);
    assert_eq!(bodies(&house), ["5", "1"]);
    house.close();
}

#[test]
fn a_user_who_is_not_admitted_any_more_opens_no_name() {
    let directory = tempfile::tempdir().unwrap();
    let house = house::open(directory.path());

    let opened = house.shard.open_producer_while("p", "anna", || false);

    assert!(matches!(opened, Err(EngineError::NotAdmitted)), "{opened:?}");
    assert_eq!(house.shard.producer_owner("p").unwrap(), None);
    house.close();
}
