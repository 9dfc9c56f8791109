//! Named producers: what is confirmed is stored, whatever was refused before it, and wherever a log ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod house;

use std::path::Path;

use house::{House, open_queue};
use penstock_engine::{
    Destination, ExchangeKind, Fate, Level, Payload, Producer, ProducerSession, Publication, QueueId,
};

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

/// As many queues behind one exchange, from the number 2 on.
fn put_wide(house: &House, count: u32) -> Vec<QueueId> {
    house.shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
    let named: Vec<_> = (2..2 + count).map(|id| (QueueId(id), format!("q{id}"))).collect();
    for (id, name) in &named {
        house.shard.put_queue(*id, name, false, None).unwrap();
        house.shard.add_route("all", "", None, Destination::Queue(name)).unwrap();
    }
    named.into_iter().map(|(id, _)| id).collect()
}

/// Puts zeros where the second record with this body begins, and behind it: there the log ends.
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
    let body = "1234567";
    {
        let house = open_queue(directory.path());
        put_wide(&house, 1_500);
        let session = house.shard.open_producer("p").unwrap();
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
    let queues = put_wide(&house, 1_500);
    assert_eq!(house.shard.totals().unwrap(), (1_024, 0));
    let session = house.shard.open_producer("p").unwrap();

    assert_eq!(send(&house, &session, &[("all", "", 1_234_567)]), [STORED]);

    let counts = house.shard.queue_counts(&queues).unwrap();
    assert!(counts.iter().all(|counts| counts.ready_count >= 1));
    assert_eq!(house.shard.producer_sequence("p").unwrap(), Some(1_234_567));
    house.close();
}
