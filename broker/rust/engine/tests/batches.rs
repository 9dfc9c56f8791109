//! Producers that number batches: what is stored of each batch is known after kills and starts, wherever the log ends, and a
//! repetition is only taken for one when it is the same.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "house/crashing.rs"]
mod crashing;
mod house;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crashing::DyingDisk;
use house::{House, open, open_on, read_all, reader};
use penstock_engine::{
    EngineError, Fate, Payload, ProducerSession, Publication, QueueId, QueueLevels, QueueSettings, ReadFrom,
    Repetition, StreamSettings,
};
use penstock_log::Disk;

/// A stream with a log of its own.
const OWN: QueueId = QueueId(7);

/// Publishes a batch as a task does; returns how many rows were repeated.
fn write(house: &House, name: &str, batch: u32, bodies: &[&str]) -> Result<u64, EngineError> {
    let session = house.shard.open_producer(name, "anna")?;
    let mut rows = begin(house, name, batch, Some(&session))?;
    for body in bodies {
        send(house, &session, &mut rows, body)?;
    }
    rows.end().map(|()| rows.repeated())
}

fn begin(house: &House, name: &str, batch: u32, session: Option<&ProducerSession>) -> Result<Repetition, EngineError> {
    Repetition::begin(name, batch, house.shard.begin_batch(name, batch, "anna", session)?)
}

fn send(house: &House, session: &ProducerSession, rows: &mut Repetition, body: &str) -> Result<(), EngineError> {
    let key = match body {
        "nowhere" => &b"unbound"[..],
        _ if body.starts_with("own") => b"own",
        _ => b"s",
    };
    let payload = Payload::new(b"", key, b"", body.as_bytes())?;
    let payload = rows.numbered(payload, session.id())?;
    let publication = Publication { payload, exchange: b"", key, headers: None, persistent: false, mandatory: false };
    if rows.is_beyond() {
        return if house.shard.reaches_queue(&publication)? { Err(rows.beyond()) } else { Ok(()) };
    }
    let mut fates = Vec::new();
    let published = house.shard.publish_as(Some(session), &[publication], None, 1, &mut fates)?;
    published.refused.map_or(Ok(()), Err)?;
    match fates[..] {
        [Fate::Stored(_) | Fate::Unroutable] => Ok(()),
        [Fate::Behind(refused)] => Err(EngineError::ProducerBehind(refused)),
        [Fate::Shut] => Err(EngineError::QueueShut),
        _ => panic!("{fates:?}"),
    }
}

fn bodies(house: &House) -> Vec<String> {
    read_all(&mut reader(house, ReadFrom::First)).into_iter().map(|said| said.body).collect()
}

fn differs(result: Result<u64, EngineError>) -> bool {
    matches!(result, Err(EngineError::BatchDiffers { .. }))
}

#[test]
fn batches_that_come_again_are_taken_for_repeated_only_when_they_are_the_same_also_after_starts() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    assert_eq!(write(&house, "q/0", 0, &["a", "b"]).unwrap(), 0);
    assert_eq!(write(&house, "q/0", 1, &["c"]).unwrap(), 0);
    house.close();

    for _ in 0..2 {
        let house = open(directory.path());
        assert!(differs(write(&house, "q/0", 1, &["x", "c"])));
        assert!(differs(write(&house, "q/0", 0, &["a"])));
        assert!(differs(write(&house, "q/0", 0, &["a", "b", "c"])));
        assert_eq!(write(&house, "q/0", 0, &["a", "b"]).unwrap(), 2);
        assert_eq!(write(&house, "q/0", 1, &["c"]).unwrap(), 1);
        assert_eq!(bodies(&house), ["a", "b", "c"]);
        house.close();
    }

    let house = open(directory.path());
    assert_eq!(write(&house, "q/0", 1, &["c", "d"]).unwrap(), 1, "the newest goes on behind what is the same");
    assert_eq!(bodies(&house), ["a", "b", "c", "d"]);
    house.close();
}

#[test]
fn a_task_that_had_no_rows_in_a_batch_gets_none_once_another_task_is_further() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    write(&house, "q/0", 0, &["a"]).unwrap();
    write(&house, "q/0", 2, &["c"]).unwrap();
    house.close();
    let house = open(directory.path());

    assert!(differs(write(&house, "q/1", 1, &["b"])));
    assert_eq!(write(&house, "q/1", 1, &[]).unwrap(), 0);
    assert_eq!(write(&house, "q/1", 2, &["b"]).unwrap(), 0, "the newest batch may have another task");
    assert_eq!(write(&house, "other/1", 1, &["d"]).unwrap(), 0);

    assert_eq!(bodies(&house), ["a", "c", "b", "d"]);
    house.close();
}

#[test]
fn rows_that_reached_no_queue_are_in_the_batch() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let batch = &["nowhere", "a", "nowhere", "b", "nowhere"];
    write(&house, "q/0", 0, batch).unwrap();
    write(&house, "q/0", 1, &["nowhere"]).unwrap();
    write(&house, "q/0", 2, &["c"]).unwrap();

    write(&house, "q/0", 0, batch).unwrap();
    write(&house, "q/0", 1, &["nowhere"]).unwrap();

    assert!(differs(write(&house, "q/0", 0, &["nowhere", "a", "b", "nowhere"])));
    assert!(differs(write(&house, "q/0", 0, &["nowhere", "a", "nowhere", "b", "d"])));
    assert!(differs(write(&house, "q/0", 1, &["d"])));
    assert_eq!(bodies(&house), ["a", "b", "c"]);
    house.close();
}

#[test]
fn names_that_are_ended_are_gone_and_not_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    write(&house, "job/0", 0, &["a"]).unwrap();
    write(&house, "other/0", 0, &["b"]).unwrap();
    let names = ["job/0", "job/1"].map(str::to_owned);

    assert!(matches!(house.shard.end_producers(&names, "bob"), Err(EngineError::ProducerOwned(_))));
    assert_eq!(house.shard.end_producers(&names, "anna").unwrap(), 1);

    assert_eq!(house.shard.end_producers(&names, "anna").unwrap(), 0, "again after a lost answer");
    for name in &names {
        let late = write(&house, name, 0, &["a"]);
        assert!(matches!(late, Err(EngineError::ProducerEnded(_))), "a task that was given up: {late:?}");
    }
    let left: Vec<_> = house.shard.producers().unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!((left, bodies(&house)), (vec!["other/0".to_owned()], vec!["a".to_owned(), "b".to_owned()]));
    house.close();
}

#[test]
fn a_session_that_is_open_stores_nothing_once_its_name_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let session = house.shard.open_producer("job/0", "anna").unwrap();
    let mut rows = begin(&house, "job/0", 0, Some(&session)).unwrap();
    send(&house, &session, &mut rows, "a").unwrap();

    house.shard.end_producers(&["job/0".to_owned()], "anna").unwrap();

    let late = send(&house, &session, &mut rows, "b");
    assert!(matches!(late, Err(EngineError::ProducerTaken(_))), "{late:?}");
    assert_eq!(bodies(&house), ["a"]);
    house.close();
}

/// Stores a row, and has the next one refused before it reaches the engine, as one that is too large.
fn write_refused(house: &House, name: &str, batch: u32, body: &str) {
    let session = house.shard.open_producer(name, "anna").unwrap();
    let mut rows = begin(house, name, batch, Some(&session)).unwrap();
    send(house, &session, &mut rows, body).unwrap();
    house.shard.refuse(&session, rows.next_sequence().unwrap()).unwrap();
}

fn is_behind(result: Result<u64, EngineError>) -> bool {
    matches!(result, Err(EngineError::ProducerBehind(_)))
}

#[test]
fn a_batch_that_comes_again_without_its_refused_row_lets_the_next_one_in() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    write_refused(&house, "q/0", 1, "a");
    assert!(is_behind(write(&house, "q/0", 2, &["b"])), "the refused row may come again");
    assert!(is_behind(write(&house, "q/0", 3, &["c"])));

    assert_eq!(write(&house, "q/0", 1, &["a"]).unwrap(), 1);

    assert_eq!(write(&house, "q/0", 2, &["b"]).unwrap(), 0);
    assert_eq!(write(&house, "q/0", 3, &["c"]).unwrap(), 0);
    assert_eq!(bodies(&house), ["a", "b", "c"]);
    house.close();
}

#[test]
fn a_batch_whose_only_row_was_refused_may_come_again_without_rows() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    let session = house.shard.open_producer("q/0", "anna").unwrap();
    let refused = begin(&house, "q/0", 1, Some(&session)).unwrap().next_sequence().unwrap();
    house.shard.refuse(&session, refused).unwrap();

    begin(&house, "q/0", 1, None).unwrap();
    let mut rows = begin(&house, "q/0", 2, None).unwrap();
    let late = send(&house, &session, &mut rows, "b");
    assert!(matches!(late, Err(EngineError::ProducerBehind(_))), "its session is still open: {late:?}");
    drop(session);
    begin(&house, "q/0", 1, None).unwrap().end().unwrap();

    assert_eq!(write(&house, "q/0", 2, &["b"]).unwrap(), 0);
    house.close();
}

#[test]
fn a_log_of_its_own_forgets_the_refused_row_too() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    house.shard.dedicate(OWN).unwrap();
    let (levels, stream) = (QueueLevels::default(), Some(StreamSettings::default()));
    house.shard.put_queues([QueueSettings { id: OWN, name: "own", auto_delete: false, levels, stream }]).unwrap();
    house.shard.shut_empty_queue(OWN).unwrap();
    let refused = write(&house, "q/0", 1, &["a", "own-1"]);
    assert!(matches!(refused, Err(EngineError::QueueShut)), "{refused:?}");
    house.shard.reopen_queue(OWN).unwrap();
    assert!(is_behind(write(&house, "q/0", 2, &["own-2"])));

    assert_eq!(write(&house, "q/0", 1, &["a"]).unwrap(), 1);

    assert_eq!(write(&house, "q/0", 2, &["own-2"]).unwrap(), 0);
    house.close();
}

#[test]
fn a_batch_is_compared_and_continued_wherever_a_crash_left_it() {
    let batches: [&[&str]; 3] = [&["a", "b"], &["c", "d", "e"], &["f"]];
    let mut died_within = 0;
    for writes in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(DyingDisk::default());
        let house = open_on(directory.path(), Arc::clone(&disk) as Arc<dyn Disk>);
        disk.writes_left.store(writes, Ordering::SeqCst);
        let sent: Result<Vec<_>, _> =
            (0..).zip(batches).map(|(batch, rows)| write(&house, "q/0", batch, rows)).collect();
        // Closing a stopped shard fails as it should.
        let _ = house.engine.close();
        drop(house);

        let house = open(directory.path());
        let before = bodies(&house);
        for (batch, rows) in (0..).zip(batches).filter(|(_, rows)| before.iter().any(|body| *body == rows[0])) {
            let others: Vec<&str> = std::iter::once("x").chain(rows[1..].iter().copied()).collect();
            assert!(differs(write(&house, "q/0", batch, &others)), "died at write {writes}: {before:?}");
        }
        assert_eq!(bodies(&house), before, "what differs is not stored");
        (0..).zip(batches).for_each(|(batch, rows)| assert!(write(&house, "q/0", batch, rows).is_ok()));
        assert_eq!(bodies(&house), ["a", "b", "c", "d", "e", "f"], "died at write {writes}: {before:?}");
        house.close();
        died_within += u32::from([1, 3, 4].contains(&before.len()));
        if sent.is_ok() {
            break;
        }
    }
    assert!(died_within > 2, "died {died_within} times within a batch");
}
