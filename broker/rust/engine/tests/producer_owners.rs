//! Names of producers of several users: what one user does with names neither holds back nor confuses another user's.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod house;

use house::{House, open, read_all, settings};
use penstock_engine::{
    EngineError, Fate, Payload, Publication, QueueId, QueueLevels, QueueSettings, ReadFrom, Repetition, StreamSettings,
};

/// A stream with a log of its own.
const OWN: QueueId = QueueId(7);

fn with_own_log(house: House) -> House {
    house.shard.dedicate(OWN).unwrap();
    let (levels, stream) = (QueueLevels::default(), Some(StreamSettings::default()));
    house.shard.put_queues([QueueSettings { id: OWN, name: "own", auto_delete: false, levels, stream }]).unwrap();
    house
}

/// Publishes one row as a batch of a user's producer; returns how many were repeated.
fn write(house: &House, user: &str, name: &str, batch: u32, (key, body): (&str, &str)) -> Result<u64, EngineError> {
    let session = house.shard.open_producer(name, user)?;
    let mut rows = Repetition::begin(name, batch, house.shard.begin_batch(name, batch, user, Some(&session))?)?;
    let key = key.as_bytes();
    let payload = rows.numbered(Payload::new(b"", key, b"", body.as_bytes())?, session.id())?;
    if rows.is_beyond() {
        return Err(rows.beyond());
    }
    let publication = Publication { payload, exchange: b"", key, headers: None, persistent: false, mandatory: false };
    let mut fates = Vec::new();
    house.shard.publish_as(Some(&session), &[publication], None, 1, &mut fates)?.refused.map_or(Ok(()), Err)?;
    assert!(matches!(fates[..], [Fate::Stored(_)]), "{fates:?}");
    rows.end().map(|()| rows.repeated())
}

fn bodies(house: &House, id: QueueId) -> Vec<String> {
    let mut reader = house.shard.home_of(id).read(id, settings(ReadFrom::First, None)).unwrap();
    read_all(&mut reader).into_iter().map(|said| said.body).collect()
}

/// Another user's name of that group, with a higher batch, made the job's older batches pass for those that had no rows.
#[test]
fn names_of_another_user_are_in_another_group_in_every_log_and_after_starts() {
    let directory = tempfile::tempdir().unwrap();
    for key in ["s", "own"] {
        let house = with_own_log(open(directory.path()));
        write(&house, "bob", &format!("{key}/9"), 1000, (key, "b")).unwrap();
        write(&house, "anna", &format!("{key}/0"), 5, (key, "a")).unwrap();
        house.close();
        let house = with_own_log(open(directory.path()));

        assert_eq!(write(&house, "anna", &format!("{key}/1"), 5, (key, "c")).unwrap(), 0);
        let own_group = write(&house, "anna", &format!("{key}/2"), 4, (key, "d"));
        assert!(matches!(own_group, Err(EngineError::BatchDiffers { .. })), "{own_group:?}");
        house.close();
    }
}

/// A log of its own had a name left of its first owner, as after a power failure, and answered for the second one's messages.
#[test]
fn a_name_that_a_log_has_left_of_its_former_owner_says_nothing_of_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_own_log(open(directory.path()));
    write(&house, "anna", "job/0", 7, ("own", "anna's")).unwrap();
    house.close();
    let kept = tempfile::tempdir().unwrap();
    copy(&directory.path().join("shards"), &kept.path().join("shards"));
    let house = with_own_log(open(directory.path()));
    house.shard.delete_producer("job/0").unwrap();
    house.close();
    std::fs::remove_dir_all(directory.path().join("shards")).unwrap();
    copy(&kept.path().join("shards"), &directory.path().join("shards"));
    let house = with_own_log(open(directory.path()));

    assert_eq!(write(&house, "bob", "job/0", 7, ("own", "bob's")).unwrap(), 0);

    assert_eq!(bodies(&house, OWN), ["anna's", "bob's"]);
    assert_eq!(write(&house, "bob", "job/0", 7, ("own", "bob's")).unwrap(), 1);
    house.close();
}

fn is_ended(house: &House, user: &str, name: &str) -> bool {
    matches!(house.shard.open_producer(name, user), Err(EngineError::ProducerEnded(_)))
}

/// All users shared the places, so a task of another user's job that was given up stored its rows twice.
#[test]
fn names_that_one_user_invents_do_not_push_out_those_that_another_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    write(&house, "anna", "job/0", 0, ("s", "a")).unwrap();
    house.shard.end_producers(&["job/0".to_owned()], "anna").unwrap();

    let invented: Vec<_> = (0..70_000).map(|number| format!("x{number}")).collect();
    assert_eq!(house.shard.end_producers(&invented, "bob").unwrap(), 0);

    assert!(is_ended(&house, "anna", "job/0"));
    assert!(is_ended(&house, "bob", "x69999") && !is_ended(&house, "bob", "x0"));
    house.close();
}

#[test]
fn a_name_of_another_user_leaves_all_names_of_a_call_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    write(&house, "anna", "job/0", 0, ("s", "a")).unwrap();
    write(&house, "bob", "other", 0, ("s", "b")).unwrap();
    let session = house.shard.open_producer("job/0", "anna").unwrap();

    let refused = house.shard.end_producers(&["job/0", "job/1", "other"].map(str::to_owned), "anna");

    assert!(matches!(refused, Err(EngineError::ProducerOwned(_))), "{refused:?}");
    house.shard.refuse(&session, 1).unwrap();
    assert!(!is_ended(&house, "anna", "job/0") && !is_ended(&house, "anna", "job/1"));
    house.close();
}

#[test]
fn more_names_than_are_removed_in_one_hold_of_the_lock_are_all_ended() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_own_log(open(directory.path()));
    let names: Vec<_> = (0..2_500).map(|number| format!("job/{number}")).collect();
    for name in &names {
        house.shard.open_producer(name, "anna").unwrap();
    }
    write(&house, "anna", "job/2499", 0, ("own", "a")).unwrap();

    assert_eq!(house.shard.end_producers(&names, "anna").unwrap(), 2_500);

    assert!(house.shard.producers_of_family().unwrap().is_empty());
    assert!(house.shard.home_of(OWN).producers().unwrap().is_empty());
    house.close();
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
