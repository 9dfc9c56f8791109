//! A named producer, and a stage, over several logs: whatever each log lost in a crash, repeating what is not complete
//! leaves every message once in each log that it goes to, in order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

#[path = "house/crashing.rs"]
mod crashing;
mod house;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crashing::CrashingDisk;
use house::{House, open, open_on, read_all, settings};
use penstock_engine::{
    Destination, EngineError, ExchangeKind, Fate, Level, Payload, Producer, ProducerSession, Publication, QueueId,
    QueueLevels, QueueSettings, ReadFrom, Sequences, StageTag, StagedAttempt, StagedBatch, StreamSettings,
};
use proptest::prelude::*;

const OWN: QueueId = QueueId(7);
const OTHER: QueueId = QueueId(8);
const STAGE: QueueId = QueueId(2);
const QUEUES: [(QueueId, &str); 3] = [(house::STREAM, "s"), (OWN, "own"), (OTHER, "other")];
const STORED: Fate = Fate::Stored(Level::Disk);

/// The stream "s" in the vhost's log, "own" and "other" in own logs, and for each set of them, bit by bit, the exchange of
/// that number.
fn with_logs(house: House) -> House {
    with_logs_in(house, false)
}

/// The same, with "own" and "other" in shards 1 and 2 instead.
fn with_logs_in(house: House, in_shards: bool) -> House {
    let shard = &house.shard;
    if in_shards {
        shard.grow(3).unwrap();
        shard.place_queues([(OWN, 1), (OTHER, 2)]).unwrap();
    }
    for (id, name) in QUEUES {
        let stream = Some(StreamSettings::default());
        if id != house::STREAM && !in_shards {
            shard.dedicate(id).unwrap();
        }
        let levels = QueueLevels::default();
        shard.put_queues([QueueSettings { id, name, auto_delete: false, levels, stream }]).unwrap();
    }
    for route in 1..8_u8 {
        let exchange = route.to_string();
        shard.put_exchange(&exchange, ExchangeKind::Fanout, None).unwrap();
        for (_, name) in queues_of(route) {
            shard.add_route(&exchange, "", None, Destination::Queue(name)).unwrap();
        }
    }
    house
}

fn queues_of(route: u8) -> impl Iterator<Item = (QueueId, &'static str)> {
    (0..3).filter(move |bit| route & (1 << bit) > 0).map(|bit: usize| QUEUES[bit])
}

fn opened(directory: &Path) -> House {
    with_logs(open(directory))
}

/// Publishes messages by sequence and route.
fn send(house: &House, session: &ProducerSession, sent: &[(u64, u8)]) -> Result<Vec<Fate>, EngineError> {
    let texts: Vec<_> = sent.iter().map(|(sequence, route)| (format!("m{sequence}"), route.to_string())).collect();
    let all = sent.iter().zip(&texts).map(|(&(sequence, _), (body, exchange))| {
        let payload = Payload::new(exchange.as_bytes(), b"", b"", body.as_bytes()).unwrap();
        let payload = payload.with_producer(Producer { id: session.id(), sequence });
        Publication {
            payload,
            exchange: exchange.as_bytes(),
            key: b"",
            headers: None,
            persistent: true,
            mandatory: true,
        }
    });
    let batch: Vec<_> = all.collect();
    let mut fates = Vec::new();
    let published = house.shard.publish_as(Some(session), &batch, Some(Level::Disk), 1, &mut fates)?;
    published.refused.map_or(Ok(fates), Err)
}

fn bodies(house: &House, id: QueueId) -> Vec<String> {
    let mut reader = house.shard.home_of(id).read(id, settings(ReadFrom::First, None)).unwrap();
    read_all(&mut reader).into_iter().map(|said| said.body).collect()
}

fn all_bodies(house: &House) -> [Vec<String>; 3] {
    QUEUES.map(|(id, _)| bodies(house, id))
}

fn sequences(house: &House) -> (u64, u64) {
    let Sequences { complete, highest } = house.shard.sequences_in_family("p").unwrap().unwrap_or_default();
    (complete, highest)
}

#[test]
fn messages_of_one_producer_go_to_several_logs_and_each_stores_them_once() {
    let directory = tempfile::tempdir().unwrap();
    let sent = [(1, 1), (2, 2), (3, 4), (4, 7), (5, 2)];
    for times in 0..2 {
        let house = opened(directory.path());
        let session = house.shard.open_producer("p", "anna").unwrap();
        if times == 1 {
            assert_eq!(sequences(&house), (5, 5), "it was written at the end");
        }
        assert_eq!(send(&house, &session, &sent).unwrap(), [STORED; 5]);
        assert_eq!(send(&house, &session, &sent[2..]).unwrap(), [STORED; 3]);
        assert_eq!(sequences(&house), (5, 5));
        assert_eq!(bodies(&house, house::STREAM), ["m1", "m4"]);
        assert_eq!(bodies(&house, OWN), ["m2", "m4", "m5"]);
        assert_eq!(bodies(&house, OTHER), ["m3", "m4"]);
        house.close();
    }
}

/// A message for one log counted as stored because another log had a higher sequence.
#[test]
fn a_log_does_not_answer_for_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();
    send(&house, &session, &[(1, 1), (2, 2)]).unwrap();
    house.shard.shut_empty_queue(OTHER).unwrap();

    let fates = send(&house, &session, &[(3, 4), (4, 2), (5, 6), (6, 1)]).unwrap();

    assert_eq!(fates, [Fate::Shut, STORED, Fate::Behind(3), STORED]);
    assert_eq!(sequences(&house), (2, 6));
    assert_eq!(send(&house, &session, &[(7, 1)]).unwrap(), [Fate::Behind(3)]);
    house.shard.reopen_queue(OTHER).unwrap();
    assert_eq!(send(&house, &session, &[(3, 4), (4, 2), (5, 6), (6, 1), (7, 1)]).unwrap(), [STORED; 5]);
    assert_eq!(all_bodies(&house), [vec!["m1", "m6", "m7"], vec!["m2", "m4", "m5"], vec!["m3", "m5"]]);
    house.close();
}

#[test]
fn a_repetition_is_none_of_another_log_after_the_routes_changed() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();
    send(&house, &session, &[(1, 2), (2, 4)]).unwrap();

    assert_eq!(send(&house, &session, &[(1, 1), (2, 2)]).unwrap(), [STORED; 2]);

    assert_eq!(all_bodies(&house), [vec![], vec!["m1"], vec!["m2"]]);
    house.close();
}

#[test]
fn a_confirm_of_a_repetition_waits_for_all_logs_of_its_producer() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();
    send(&house, &session, &[(1, 2), (2, 4)]).unwrap();

    let payload =
        Payload::new(b"2", b"", b"", b"m1").unwrap().with_producer(Producer { id: session.id(), sequence: 1 });
    let again = Publication { payload, exchange: b"2", key: b"", headers: None, persistent: true, mandatory: true };
    let mut fates = Vec::new();
    let published = house.shard.publish_as(Some(&session), &[again], Some(Level::Os), 1, &mut fates).unwrap();

    let places = published.places(&house.shard);
    assert!(!places.are_synced());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    places.request_sync();
    runtime.block_on(places.wait()).unwrap();
    for id in [OWN, OTHER] {
        assert!(house.shard.home_of(id).synced().0 > 0);
    }
    house.close();
}

#[test]
fn a_deleted_name_is_forgotten_by_all_of_its_logs() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();
    send(&house, &session, &[(1, 7), (2, 2)]).unwrap();

    assert!(house.shard.delete_producer("p").unwrap());
    assert!(matches!(send(&house, &session, &[(3, 2)]), Err(EngineError::ProducerTaken(_))));
    house.close();

    let house = opened(directory.path());
    assert_eq!(sequences(&house), (0, 0));
    let session = house.shard.open_producer("p", "anna").unwrap();
    send(&house, &session, &[(1, 2)]).unwrap();
    assert_eq!(sequences(&house), (1, 1), "nothing is left of the logs of the old one");
    assert_eq!(bodies(&house, OWN), ["m1", "m2", "m1"]);
    house.close();
}

#[test]
fn a_new_session_of_the_name_ends_the_old_one_in_every_log() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let old = house.shard.open_producer("p", "anna").unwrap();
    send(&house, &old, &[(1, 2), (2, 4)]).unwrap();

    let new = house.shard.open_producer("p", "anna").unwrap();

    for route in [1, 2, 4] {
        assert!(matches!(send(&house, &old, &[(3, route)]), Err(EngineError::ProducerTaken(_))));
    }
    assert_eq!(send(&house, &new, &[(3, 7)]).unwrap(), [STORED]);
    house.close();
}

#[test]
fn a_queue_that_is_deleted_with_its_log_holds_nothing_back() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();
    send(&house, &session, &[(1, 4), (2, 2), (3, 1)]).unwrap();

    house.shard.delete_queue(OTHER).unwrap();
    assert_eq!(sequences(&house), (3, 3));
    assert_eq!(send(&house, &session, &[(4, 2), (5, 1)]).unwrap(), [STORED; 2]);
    house.close();

    let house = open(directory.path());
    assert_eq!(sequences(&house), (5, 5));
    house.close();
}

/// The name answered for messages of the stream that was there before.
#[test]
fn a_producer_all_of_whose_logs_were_deleted_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let session = house.shard.open_producer("p", "anna").unwrap();
    send(&house, &session, &[(1, 4), (2, 2), (3, 4)]).unwrap();
    house.close();
    let house = opened(directory.path());
    for id in [OWN, OTHER] {
        house.shard.delete_queue(id).unwrap();
    }
    assert_eq!(sequences(&house), (0, 0));
    house.close();

    let house = opened(directory.path());

    assert_eq!(sequences(&house), (0, 0));
    let session = house.shard.open_producer("p", "anna").unwrap();
    send(&house, &session, &[(1, 4), (2, 2)]).unwrap();
    assert_eq!(all_bodies(&house), [vec![], vec!["m2"], vec!["m1"]]);
    house.close();
}

/// A log that had its last message of a producer long ago held the answer down, also when all logs were whole.
#[test]
fn what_is_complete_is_written_down_once_it_is_on_the_disk() {
    let (directory, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = Arc::new(CrashingDisk::default());
    let house = with_logs(open_on(directory.path(), Arc::clone(&disk) as _));
    let session = house.shard.open_producer("p", "anna").unwrap();
    send(&house, &session, &[(1, 4), (2, 2), (3, 1)]).unwrap();
    house.shard.note_complete().unwrap();
    send(&house, &session, &[(4, 1)]).unwrap();
    for shard in house.shard.family() {
        shard.request_sync();
    }
    let mut found = (0, 0);
    for _ in 0..2_000 {
        house.shard.note_complete().unwrap();
        disk.image(directory.path(), after.path(), &[255]);
        let copy = opened(after.path());
        found = sequences(&copy);
        copy.close();
        if found.0 == 4 {
            break;
        }
        std::fs::remove_dir_all(after.path()).unwrap();
    }
    assert_eq!(found, (4, 4));
    let _ = house.engine.close();
}

/// The highest sequence of all logs was the answer. After a failure of power that cost one of them its end, a client that
/// went on behind it lost what that log had lost.
#[test]
fn what_one_log_lost_comes_again_from_the_complete_sequence_on() {
    let (directory, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = Arc::new(CrashingDisk::default());
    let house = with_logs(open_on(directory.path(), Arc::clone(&disk) as _));
    let session = house.shard.open_producer("p", "anna").unwrap();
    for (sequence, route) in [(1, 2), (2, 4), (3, 2), (4, 4)] {
        send(&house, &session, &[(sequence, route)]).unwrap();
    }
    // In the order of their paths: the vhost's log, that of "own", that of "other", which loses all.
    disk.image(directory.path(), after.path(), &[255, 255, 0]);
    let _ = house.engine.close();

    let house = opened(after.path());

    assert_eq!(bodies(&house, OTHER), [""; 0]);
    assert_eq!(sequences(&house), (0, 3), "the log of \"own\" says that \"other\" had some");
    let session = house.shard.open_producer("p", "anna").unwrap();
    send(&house, &session, &[(1, 2), (2, 4), (3, 2), (4, 4)]).unwrap();
    assert_eq!(all_bodies(&house), [vec![], vec!["m1", "m3"], vec!["m2", "m4"]]);
    house.close();
}

/// One life of a broker: how many messages go into a batch, after how many writes it dies, and which share of what was not
/// synced each log keeps.
type Life = (usize, i64, [u8; 3]);

/// Publishes from the complete sequence on, until all is sent or the disk fails. What it was told to be complete, stays so.
fn live(house: &House, routes: &[u8], in_batch: usize) -> Result<(), EngineError> {
    let session = house.shard.open_producer("p", "anna")?;
    let (complete, highest) = sequences(house);
    assert!(complete <= highest && highest <= routes.len() as u64);
    let all: Vec<(u64, u8)> = (1..).zip(routes.iter().copied()).collect();
    for batch in all[usize::try_from(complete).unwrap()..].chunks(in_batch) {
        let fates = send(house, &session, batch)?;
        assert_eq!(fates, vec![STORED; batch.len()]);
        house.shard.note_complete()?;
    }
    Ok(())
}

fn expected(routes: &[u8]) -> [Vec<String>; 3] {
    QUEUES.map(|(id, _)| {
        let all = (1..).zip(routes).filter(|(_, route)| queues_of(**route).any(|(queue, _)| queue == id));
        all.map(|(sequence, _): (u64, _)| format!("m{sequence}")).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_log_ends_with_each_of_its_messages_once_and_in_order(
        routes in prop::collection::vec(1..8_u8, 1..30),
        lives in prop::collection::vec((1..8_usize, 0..40_i64, any::<[u8; 3]>()), 0..4),
        last in 1..8_usize,
        in_shards in any::<bool>(),
    ) {
        let lives: Vec<Life> = lives;
        let mut directory = tempfile::tempdir().unwrap();
        for (in_batch, writes, kept) in lives {
            let disk = Arc::new(CrashingDisk::default());
            let house = with_logs_in(open_on(directory.path(), Arc::clone(&disk) as _), in_shards);
            disk.writes_left.store(writes, Ordering::SeqCst);
            let _ = live(&house, &routes, in_batch);
            let after = tempfile::tempdir().unwrap();
            disk.image(directory.path(), after.path(), &kept);
            // A stopped log cannot be closed.
            let _ = house.engine.close();
            directory = after;
        }
        let house = with_logs_in(open(directory.path()), in_shards);
        live(&house, &routes, last).unwrap();
        prop_assert_eq!(all_bodies(&house), expected(&routes));
        prop_assert_eq!(sequences(&house).1, routes.len() as u64);
        house.close();
    }
}

fn with_stage(house: House, in_shards: bool) -> House {
    let house = with_logs_in(house, in_shards);
    let (levels, stream) = (QueueLevels::default(), Some(StreamSettings::default()));
    house
        .shard
        .put_queues([QueueSettings { id: STAGE, name: "amq.stage.x", auto_delete: false, levels, stream }])
        .unwrap();
    house.shard.put_exchange("keys", ExchangeKind::Direct, None).unwrap();
    for (key, (_, name)) in QUEUES.iter().enumerate() {
        house.shard.add_route("keys", &key.to_string(), None, Destination::Queue(name)).unwrap();
    }
    house
}

/// Stages rows, whose keys are the numbers of their queues.
fn stage(house: &House, batch: u64, attempt: u64, rows: &[(String, usize)]) -> StagedAttempt {
    let tag = StageTag { batch, attempt }.to_text();
    let keys: Vec<_> = rows.iter().map(|(_, queue)| queue.to_string()).collect();
    let rows = rows.iter().zip(&keys);
    let rows = rows.map(|((body, _), key)| Payload::new(tag.as_bytes(), key.as_bytes(), b"", body.as_bytes()).unwrap());
    let rows: Vec<_> = rows.collect();
    house.shard.stage(STAGE, &rows, 1).unwrap();
    StagedAttempt { attempt, count: rows.len() as u64 }
}

fn decide(house: &House, batch: u64, attempts: &[StagedAttempt]) -> Result<bool, EngineError> {
    let wanted = StagedBatch { batch, attempts, exchange: "keys", routing_key: "" };
    house.shard.publish_staged(STAGE, &wanted).map(|outcome| outcome.was_decided)
}

/// Rows of 20 KiB, so that a copy takes several rounds.
fn rows(batch: u64, count: usize) -> Vec<(String, usize)> {
    (0..count).map(|row| (format!("{batch}/{row:04}").repeat(3_000), (row * 7 + row / 5) % 3)).collect()
}

#[test]
fn a_stage_publishes_into_several_logs() {
    [false, true].into_iter().for_each(publish_a_stage);
}

fn publish_a_stage(in_shards: bool) {
    let directory = tempfile::tempdir().unwrap();
    let house = with_stage(open(directory.path()), in_shards);
    let (first, second) = (rows(1, 12), rows(2, 9));
    let attempts = [stage(&house, 1, 1, &first[..6]), stage(&house, 1, 2, &first[6..])];

    assert!(!decide(&house, 1, &attempts).unwrap());
    assert!(decide(&house, 1, &attempts).unwrap());
    let attempt = stage(&house, 2, 3, &second);
    assert!(!decide(&house, 2, &[attempt]).unwrap());

    assert_eq!(all_bodies(&house), expected_rows(&[first, second].concat()));
    house.close();
}

fn expected_rows(rows: &[(String, usize)]) -> [Vec<String>; 3] {
    [0, 1, 2].map(|queue| rows.iter().filter(|(_, of)| *of == queue).map(|(body, _)| body.clone()).collect())
}

/// The rows of a decided batch stood in one log, and every call failed with the other.
#[test]
fn a_copy_into_several_logs_that_dies_at_any_write_is_carried_on_and_has_each_row_once() {
    [false, true].into_iter().for_each(die_at_any_write);
}

fn die_at_any_write(in_shards: bool) {
    let all = rows(1, 60);
    let (mut died_copying, mut writes) = (0, 0);
    loop {
        let (directory, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disk = Arc::new(CrashingDisk::default());
        let house = with_stage(open_on(directory.path(), Arc::clone(&disk) as _), in_shards);
        let attempt = stage(&house, 1, 1, &all);
        disk.writes_left.store(writes, Ordering::SeqCst);
        let was_enough = decide(&house, 1, &[attempt]).is_ok();
        // Each log loses another part of what it did not sync.
        let kept = [1, 3, 5].map(|factor| (writes * 50 * factor % 256) as u8);
        disk.image(directory.path(), after.path(), &kept);
        let _ = house.engine.close();

        let house = with_stage(open(after.path()), in_shards);
        let standing = house.shard.stage_states(&[STAGE]).unwrap()[0];
        died_copying += u32::from(standing.copying);
        house.shard.carry_on_staged();
        if standing.last_batch.is_none() {
            assert_eq!(all_bodies(&house), expected_rows(&[]), "nothing was decided");
            let again = stage(&house, 1, 2, &all);
            decide(&house, 1, &[again]).unwrap();
        }

        let found = all_bodies(&house);
        let right = found == expected_rows(&all);
        assert!(right, "died at write {writes}: {:?} rows", found.map(|rows| rows.len()));
        house.close();
        if was_enough {
            break;
        }
        writes += 1;
    }
    assert!(died_copying > 4, "died {died_copying} times in mid-copy");
}
